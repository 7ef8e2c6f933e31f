//! Which contexts are being made, are ready, or are not to be made.
//!
//! This module makes nothing, and knows no driver. Invariant: a place goes from absent to *under way*, *ready* and
//! *gone*, and never back.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::time::{Duration, Instant};

use causeway_proto::id::{DeviceIndex, PlatformIndex};
use parking_lot::{Condvar, Mutex};

/// What makes a native context: its platform, and its devices in order. All contexts have the same
/// properties, because the wire has none.
pub(crate) type Kind = (PlatformIndex, Vec<DeviceIndex>);

/// The places of contexts by their kinds.
pub(super) struct Places<T> {
    state: Mutex<WarmState<T>>,
    changed: Condvar,
    patience: Duration,
}

struct WarmState<T> {
    is_closed: bool,
    is_given_up: bool,
    places: HashMap<Kind, WarmPlace<T>>,
}

enum WarmPlace<T> {
    UnderWay {
        began: Instant,
    },
    Ready(T),
    /// Taken, failed, given up, or asked for before it existed.
    Gone,
}

impl<T> Places<T> {
    /// A request waits until `patience` after the beginning of what it wants.
    pub(super) fn new(patience: Duration) -> Places<T> {
        let state = WarmState {
            is_closed: false,
            is_given_up: false,
            places: HashMap::new(),
        };
        Places {
            state: Mutex::new(state),
            changed: Condvar::new(),
            patience,
        }
    }

    /// Begins with this kind. Returns whether it is to be made.
    pub(super) fn begin(&self, kind: &Kind) -> bool {
        let mut state = self.state.lock();
        if state.is_closed || state.places.contains_key(kind) {
            return false;
        }
        let began = Instant::now();
        state
            .places
            .insert(kind.clone(), WarmPlace::UnderWay { began });
        true
    }

    /// Puts what was made into its place.
    ///
    /// # Errors
    /// Gives it back if nobody wants it any more.
    pub(super) fn put(&self, kind: &Kind, made: T) -> Result<(), T> {
        let mut state = self.state.lock();
        let Some(place @ WarmPlace::UnderWay { .. }) = state.places.get_mut(kind) else {
            return Err(made);
        };
        *place = WarmPlace::Ready(made);
        self.changed.notify_all();
        Ok(())
    }

    /// Gives this kind up. Returns what was ready.
    pub(super) fn withdraw(&self, kind: &Kind) -> Option<T> {
        let mut state = self.state.lock();
        let before = state.places.insert(kind.clone(), WarmPlace::Gone);
        self.changed.notify_all();
        match before {
            Some(WarmPlace::Ready(made)) => Some(made),
            _ => None,
        }
    }

    /// Takes what is in the place of this kind. Waits for what is under way, for a limited time. Returns `None`
    /// if there is nothing, and nothing is made from now on.
    pub(super) fn take(&self, kind: &Kind) -> Option<T> {
        let mut state = self.state.lock();
        while let Some(WarmPlace::UnderWay { began }) = state.places.get(kind) {
            let until = *began + self.patience;
            if self.changed.wait_until(&mut state, until).timed_out() {
                if let Some(WarmPlace::UnderWay { .. }) = state.places.get(kind) {
                    tracing::warn!(
                        patience = ?self.patience,
                        "the driver has not made a context for [sessions] warm in time; the session makes its own"
                    );
                }
                break;
            }
        }
        if state.is_closed && !state.places.contains_key(kind) {
            return None;
        }
        match state.places.insert(kind.clone(), WarmPlace::Gone) {
            Some(WarmPlace::Ready(made)) => Some(made),
            _ => None,
        }
    }

    /// Returns whether the kind is ready and was not taken.
    pub(super) fn is_ready(&self, kind: &Kind) -> bool {
        matches!(
            self.state.lock().places.get(kind),
            Some(WarmPlace::Ready(_))
        )
    }

    /// Gives up what is ready and what becomes ready later. [`wait_for_rest`](Places::wait_for_rest) returns it.
    pub(super) fn give_up(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.is_given_up = true;
        self.changed.notify_all();
    }

    /// Waits until the rest is given up, and returns what is ready then.
    pub(super) fn wait_for_rest(&self) -> Vec<T> {
        let mut state = self.state.lock();
        while !state.is_given_up {
            self.changed.wait(&mut state);
        }
        let ready = state.places.values_mut().filter_map(|place| {
            if !matches!(place, WarmPlace::Ready(_)) {
                return None;
            }
            match std::mem::replace(place, WarmPlace::Gone) {
                WarmPlace::Ready(made) => Some(made),
                WarmPlace::UnderWay { .. } | WarmPlace::Gone => None,
            }
        });
        ready.collect()
    }

    /// Begins with no further kind.
    pub(super) fn close(&self) {
        self.state.lock().is_closed = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread;

    const LONG: Duration = Duration::from_secs(60);

    fn kind(device: u32) -> Kind {
        (PlatformIndex(0), vec![DeviceIndex(device)])
    }

    #[test]
    fn each_is_taken_once_and_for_its_own_kind() {
        let places = Places::new(LONG);
        assert!(places.begin(&kind(0)) && !places.begin(&kind(0)));
        assert!(places.put(&kind(0), "a").is_ok());
        assert!(places.is_ready(&kind(0)));
        let both = (PlatformIndex(0), vec![DeviceIndex(0), DeviceIndex(1)]);
        let elsewhere = (PlatformIndex(1), vec![DeviceIndex(0)]);
        assert_eq!(places.take(&both), None);
        assert_eq!(places.take(&elsewhere), None);
        assert!(places.is_ready(&kind(0)));
        assert_eq!(places.take(&kind(0)), Some("a"));
        assert_eq!(places.take(&kind(0)), None);
        assert!(!places.begin(&kind(0)));
    }

    #[test]
    fn what_was_asked_for_before_is_not_made() {
        let places: Places<()> = Places::new(LONG);
        assert_eq!(places.take(&kind(0)), None);
        assert!(!places.begin(&kind(0)));
        places.close();
        assert!(!places.begin(&kind(1)));
    }

    #[test]
    fn a_request_waits_for_what_is_under_way() {
        let places = Arc::new(Places::new(LONG));
        for failed in [false, true] {
            let wanted = kind(u32::from(failed));
            assert!(places.begin(&wanted));
            let (own, of_request) = (Arc::clone(&places), wanted.clone());
            let request = thread::spawn(move || own.take(&of_request));
            if failed {
                assert_eq!(places.withdraw(&wanted), None);
                assert_eq!(request.join().unwrap(), None);
            } else {
                assert!(places.put(&wanted, 7).is_ok());
                assert_eq!(request.join().unwrap(), Some(7));
            }
        }
    }

    #[test]
    fn a_request_does_not_wait_for_a_driver_that_hangs() {
        let places = Places::new(Duration::ZERO);
        assert!(places.begin(&kind(0)));
        assert_eq!(places.take(&kind(0)), None);
        // The driver returns after all.
        assert_eq!(places.put(&kind(0), 7), Err(7));
        assert!(!places.is_ready(&kind(0)));
    }

    #[test]
    fn what_is_given_up_is_the_rest_and_nothing_is_taken_later() {
        let places = Arc::new(Places::new(LONG));
        assert!(places.begin(&kind(0)) && places.begin(&kind(1)));
        assert!(places.put(&kind(0), 0).is_ok() && places.put(&kind(1), 1).is_ok());
        let own = Arc::clone(&places);
        let rest = thread::spawn(move || own.wait_for_rest());
        assert_eq!(places.take(&kind(0)), Some(0));
        places.give_up();
        assert_eq!(rest.join().unwrap(), [1]);
        assert_eq!(places.take(&kind(1)), None);
        assert!(!places.begin(&kind(2)));
    }

    #[test]
    fn what_does_not_work_is_withdrawn_unless_it_was_taken() {
        let places = Places::new(LONG);
        assert!(places.begin(&kind(0)) && places.begin(&kind(1)));
        assert!(places.put(&kind(0), 0).is_ok() && places.put(&kind(1), 1).is_ok());
        assert_eq!(places.withdraw(&kind(0)), Some(0));
        assert_eq!(places.take(&kind(0)), None);
        assert_eq!(places.take(&kind(1)), Some(1));
        assert_eq!(places.withdraw(&kind(1)), None);
    }
}
