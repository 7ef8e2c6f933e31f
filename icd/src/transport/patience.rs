//! For how long a session without connections is waited for, and when the next attempt is due.
//!
//! Pure: the caller says how long each pause was to take, and how long it took. Time in which the process was stopped
//! (Ctrl-Z, a suspended machine) does not count. Invariant: after the process was stopped, attempts go on for
//! [`AFTER_WAKING`] at least.
#![forbid(unsafe_code)]

use std::time::Duration;

/// The pauses between attempts grow from the first to the second.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(2));
/// How long attempts go on at least after the process was stopped.
const AFTER_WAKING: Duration = Duration::from_secs(10);
/// A pause or attempt that takes this much longer than planned means that the process was stopped.
const STOPPED: Duration = Duration::from_secs(1);

/// The time that is left for a session; see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Patience {
    left: Duration,
    pause: Duration,
}

impl Patience {
    /// Waits for `limit` in all.
    pub(super) fn new(limit: Duration) -> Patience {
        Patience {
            left: limit,
            pause: PAUSES.0,
        }
    }

    /// The pause before the next attempt; `None` if no time is left.
    pub(super) fn pause(&mut self) -> Option<Duration> {
        let pause = self.pause.min(self.left);
        self.pause = (self.pause * 3 / 2).min(PAUSES.1);
        (!pause.is_zero()).then_some(pause)
    }

    /// Whether any time is left.
    pub(super) fn has_time(&self) -> bool {
        !self.left.is_zero()
    }

    /// The longest time that the next attempt, at one address, may take.
    pub(super) fn attempt(&self) -> Duration {
        self.left.clamp(PAUSES.0, PAUSES.1)
    }

    /// Counts a step that was to take `planned` at most, and took `taken`.
    pub(super) fn count(&mut self, planned: Duration, taken: Duration) {
        if taken < planned + STOPPED {
            self.left = self.left.saturating_sub(taken);
        } else {
            self.left = self.left.saturating_sub(planned).max(AFTER_WAKING);
            self.pause = PAUSES.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_stopped_process_has_time_after_it_wakes() {
        let mut patience = Patience::new(Duration::from_secs(1));
        let pause = patience.pause().unwrap();
        patience.count(pause, Duration::from_secs(3600));
        assert_eq!(patience.left, AFTER_WAKING);
        assert_eq!(patience.pause(), Some(PAUSES.0));
    }

    proptest! {
        #[test]
        fn the_limit_is_kept_and_pauses_grow(limit in 1u64..600_000) {
            let limit = Duration::from_millis(limit);
            let mut patience = Patience::new(limit);
            let (mut waited, mut last) = (Duration::ZERO, Duration::ZERO);
            while let Some(pause) = patience.pause() {
                prop_assert!(pause >= last.min(limit - waited) && pause <= PAUSES.1);
                patience.count(pause, pause);
                waited += pause;
                last = pause;
            }
            prop_assert_eq!(waited, limit);
        }
    }
}
