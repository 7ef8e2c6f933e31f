//! What the sessions of one host share: native contexts, the standard output, and how memory is handed on.
//!
//! A worker that serves one session has none of this. Invariant: a native context is shared by sessions
//! whose platform, devices and properties are equal. Everything that a session makes in it is its own.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::time::Duration;

use causeway_proto::status::Status;
use parking_lot::Mutex;

use super::console::Console;
use super::listeners::{Listeners, Listening};
use super::pace::Devices;
use super::progress::Progresses;
use super::warm::{Kind, Warm, WarmContext};
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
    /// Which sessions have which devices.
    pub(crate) devices: Devices,
    /// Whether a command of a session that has ended has failed as in a context of no further use.
    pub(crate) suspicion: AtomicBool,
}

/// The native contexts of a host. Each lives as long as a session uses it; those that were made before any
/// session live as long as the host.
pub(crate) struct Contexts {
    places: Mutex<HashMap<Kind, Arc<Mutex<ContextPlace>>>>,
    warm: Arc<Warm>,
}

/// The place of a native context, which exists or has existed.
#[derive(Default)]
struct ContextPlace {
    native: Weak<NativeContext>,
    /// The context, if it is kept while no session uses it.
    kept: Option<Arc<NativeContext>>,
    listeners: Listeners,
    /// Whether a session has used the context.
    is_used: bool,
}

impl ContextPlace {
    /// Returns the context that the other sessions use, or the last ones have left if it still works.
    fn current(&self, works: impl FnOnce(&NativeContext) -> bool) -> Option<Arc<NativeContext>> {
        let native = self.native.upgrade()?;
        // A kernel may have broken the context for good. Sessions of that time share its fate. A later one
        // gets another context.
        if self.is_used && self.kept.is_some() && self.listeners.is_empty() && !works(&native) {
            tracing::warn!(
                "a context that sessions have left does not work any more; it is replaced"
            );
            return None;
        }
        Some(native)
    }

    /// Puts a context into the place of one that is gone.
    fn put(&mut self, context: WarmContext, is_kept: bool) -> Arc<NativeContext> {
        let WarmContext { native, listeners } = context;
        self.native = Arc::downgrade(&native);
        self.kept = is_kept.then(|| Arc::clone(&native));
        self.listeners = listeners;
        self.is_used = false;
        native
    }
}

impl Contexts {
    /// Makes a host's list of contexts, which begins with those in `warm`.
    pub(crate) fn new(warm: Arc<Warm>) -> Contexts {
        Contexts {
            places: Mutex::default(),
            warm,
        }
    }

    /// Returns the native context of this kind, which `make` makes if no session has it and none is kept. Adds
    /// a listener for its errors. Others that want the same context wait meanwhile. `works` checks a context
    /// that was kept.
    ///
    /// # Errors
    /// The error of `make`.
    pub(crate) fn get(
        &self,
        mut kind: Kind,
        listener: ErrorListener,
        works: impl FnOnce(&NativeContext) -> bool,
        make: impl FnOnce(ErrorListener) -> Result<NativeContext, Status>,
    ) -> Result<(Arc<NativeContext>, Listening), Status> {
        // The client chooses the list. Neither its order nor repetitions make another context.
        kind.1.sort_unstable();
        kind.1.dedup();
        let place = {
            let mut places = self.places.lock();
            // A place that only the table has cannot be locked elsewhere.
            places.retain(|_, of| Arc::strong_count(of) > 1 || of.lock().is_alive());
            Arc::clone(places.entry(kind.clone()).or_default())
        };
        let mut place = place.lock();
        let native = match place.current(works) {
            Some(native) => native,
            None => match self.warm.take(&kind) {
                Some(warm) => place.put(warm, true),
                None => {
                    let was_kept = place.kept.take().is_some();
                    place.put(own(make)?, was_kept)
                }
            },
        };
        place.is_used = true;
        let listening = place.listeners.add(listener);
        Ok((native, listening))
    }
}

impl Contexts {
    /// Gives no further session this native context, because commands fail in it. Returns whether it is one of
    /// those that sessions share.
    pub(crate) fn spoil(&self, native: &NativeContext) -> bool {
        let places: Vec<_> = self.places.lock().values().map(Arc::clone).collect();
        let is_it =
            |place: &&Arc<Mutex<ContextPlace>>| std::ptr::eq(place.lock().native.as_ptr(), native);
        let Some(place) = places.iter().find(is_it) else {
            return false;
        };
        place.lock().forget();
        true
    }
}

impl ContextPlace {
    fn is_alive(&self) -> bool {
        self.native.strong_count() > 0
    }

    /// Gives the context to no further session.
    fn forget(&mut self) {
        self.native = Weak::new();
        self.kept = None;
    }
}

/// Makes a context with a list of listeners. The driver keeps its listener for ever, so each context has a list of
/// its own, which is empty when no session uses it.
fn own(
    make: impl FnOnce(ErrorListener) -> Result<NativeContext, Status>,
) -> Result<WarmContext, Status> {
    let listeners = Listeners::default();
    let native = Arc::new(make(listeners.for_driver())?);
    Ok(WarmContext { native, listeners })
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
    use causeway_proto::id::{DeviceIndex, PlatformIndex};

    #[test]
    fn refused_contexts_leave_nothing_in_the_table() {
        let contexts = Contexts::new(Arc::default());
        for device in 0..100 {
            let kind = (PlatformIndex(0), vec![DeviceIndex(device); 3]);
            let made = contexts.get(
                kind,
                Box::new(|_| ()),
                |_| true,
                |_| Err(Status::OUT_OF_RESOURCES),
            );
            assert_eq!(made.err(), Some(Status::OUT_OF_RESOURCES));
            assert_eq!(contexts.places.lock().len(), 1);
        }
        let places = contexts.places.lock();
        let (_, devices) = places.keys().next().unwrap();
        assert_eq!(devices, &[DeviceIndex(99)]);
    }
}
