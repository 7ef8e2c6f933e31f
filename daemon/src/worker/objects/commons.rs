//! What the sessions of one host share: native contexts, the standard output, and how memory is handed on.
//!
//! A worker that serves one session has none of this. Invariant: a native context is shared by sessions
//! whose platform, devices and properties are equal. Everything that a session makes in it is its own.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::time::Duration;

use causeway_proto::id::{DeviceIndex, PlatformIndex};
use causeway_proto::status::Status;
use parking_lot::Mutex;

use super::console::Console;
use super::progress::Progresses;
use crate::runtime::context::{Context as NativeContext, ErrorListener};

/// How often a session that ends looks whether the driver has ended further commands.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// What the sessions of a host share.
pub(crate) struct Commons {
    /// The native contexts.
    pub(crate) contexts: Contexts,
    /// The standard output; `None` if it cannot be captured.
    pub(crate) console: Option<Console>,
    /// Whether new memory is filled with zeros, because it may have been another user's.
    pub(crate) clears: bool,
    /// How the sessions' commands get on.
    pub(crate) progresses: Progresses,
}

/// What makes a native context: its platform, and its devices. All contexts have the same properties, because the
/// wire has none.
pub(crate) type Kind = (PlatformIndex, Vec<DeviceIndex>);

type Listeners = Arc<Mutex<HashMap<u64, Arc<ErrorListener>>>>;

/// The native contexts of a host, which live as long as a session uses them.
#[derive(Default)]
pub(crate) struct Contexts(Mutex<HashMap<Kind, Arc<Mutex<Place>>>>);

/// The place of a native context, which exists or has existed.
#[derive(Default)]
struct Place {
    native: Weak<NativeContext>,
    listeners: Listeners,
    last: u64,
}

/// Keeps a session's listener for a context's errors registered.
pub(crate) struct Listening {
    listeners: Listeners,
    number: u64,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.listeners.lock().remove(&self.number);
    }
}

impl Contexts {
    /// Returns the native context of this kind, which `make` makes if no session has it. Adds a listener
    /// for its errors. Others that want the same context wait meanwhile.
    ///
    /// # Errors
    /// The error of `make`.
    pub(crate) fn get(
        &self,
        mut kind: Kind,
        listener: ErrorListener,
        make: impl FnOnce(ErrorListener) -> Result<NativeContext, Status>,
    ) -> Result<(Arc<NativeContext>, Listening), Status> {
        // The client chooses the list. Neither its order nor repetitions make another context.
        kind.1.sort_unstable();
        kind.1.dedup();
        let place = {
            let mut places = self.0.lock();
            // A place that only the table has cannot be locked elsewhere.
            places.retain(|_, of| Arc::strong_count(of) > 1 || of.lock().is_used());
            Arc::clone(places.entry(kind).or_default())
        };
        let mut place = place.lock();
        let native = match place.native.upgrade() {
            Some(native) => native,
            None => {
                // The driver keeps its listener for ever, so each context has its own list, which is empty
                // when no session uses it.
                place.listeners = Listeners::default();
                let listeners = Arc::clone(&place.listeners);
                let native = Arc::new(make(Box::new(move |text| tell(&listeners, text)))?);
                place.native = Arc::downgrade(&native);
                native
            }
        };
        place.last += 1;
        let (number, listeners) = (place.last, Arc::clone(&place.listeners));
        listeners.lock().insert(number, Arc::new(listener));
        Ok((native, Listening { listeners, number }))
    }
}

impl Contexts {
    /// Gives no further session this native context, because commands fail in it. Returns whether it is one of
    /// those that sessions share.
    pub(crate) fn spoil(&self, native: &NativeContext) -> bool {
        let places: Vec<_> = self.0.lock().values().map(Arc::clone).collect();
        let is_it = |place: &&Arc<Mutex<Place>>| std::ptr::eq(place.lock().native.as_ptr(), native);
        let Some(place) = places.iter().find(is_it) else {
            return false;
        };
        place.lock().native = Weak::new();
        true
    }
}

impl Place {
    fn is_used(&self) -> bool {
        self.native.strong_count() > 0
    }
}

fn tell(listeners: &Listeners, text: &str) {
    // Cloned, so that no listener is called under the lock.
    let all: Vec<_> = listeners.lock().values().map(Arc::clone).collect();
    for listener in all {
        listener(text);
    }
}

/// Held by what a session must release before it ends. In a worker of its own, nothing counts it.
#[derive(Clone, Default)]
pub(crate) struct Alive {
    _held: Option<mpsc::Sender<Infallible>>,
}

/// Tells when everything that holds an [`Alive`] is gone.
pub(crate) struct AllGone(Mutex<mpsc::Receiver<Infallible>>);

impl Alive {
    /// Makes a holder that is counted.
    pub(crate) fn counted() -> (Alive, AllGone) {
        let (held, gone) = mpsc::channel();
        (Alive { _held: Some(held) }, AllGone(Mutex::new(gone)))
    }
}

impl AllGone {
    /// Waits until everything is gone.
    pub(crate) fn wait(&self) {
        self.wait_with(|| ());
    }

    /// As [`AllGone::wait`]. Meanwhile runs `release` again and again, which lets go of what has ended.
    pub(crate) fn wait_with(&self, release: impl Fn()) {
        let gone = self.0.lock();
        // Nothing is ever sent, so this ends when the last sender has been dropped.
        while gone.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
            release();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_contexts_leave_nothing_in_the_table() {
        let contexts = Contexts::default();
        for device in 0..100 {
            let kind = (PlatformIndex(0), vec![DeviceIndex(device); 3]);
            let made = contexts.get(kind, Box::new(|_| ()), |_| Err(Status::OUT_OF_RESOURCES));
            assert_eq!(made.err(), Some(Status::OUT_OF_RESOURCES));
            assert_eq!(contexts.0.lock().len(), 1);
        }
        let places = contexts.0.lock();
        let (_, devices) = places.keys().next().unwrap();
        assert_eq!(devices, &[DeviceIndex(99)]);
    }
}
