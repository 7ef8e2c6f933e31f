//! Limits how often a connection takes a place from the one before, so that two holders of a secret cannot keep a node
//! busy. The same for the workers of a session. Pure.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The latest times at which something took a place from the one before: at most `MOST` in `SECONDS`.
#[derive(Debug, Default)]
pub(crate) struct Takeovers<const MOST: usize = 10, const SECONDS: u64 = 10>(VecDeque<Instant>);

impl<const MOST: usize, const SECONDS: u64> Takeovers<MOST, SECONDS> {
    /// Counts a takeover. Returns false if there were too many.
    pub(crate) fn may_take(&mut self, now: Instant) -> bool {
        while self.0.front().is_some_and(|at| !Self::is_new(*at, now)) {
            self.0.pop_front();
        }
        let may = self.0.len() < MOST;
        if may {
            self.0.push_back(now);
        }
        may
    }

    /// Returns whether [`Takeovers::may_take`] would allow another one.
    pub(crate) fn would_allow(&self, now: Instant) -> bool {
        let new = self.0.iter().filter(|at| Self::is_new(**at, now));
        new.count() < MOST
    }

    fn is_new(at: Instant, now: Instant) -> bool {
        now.saturating_duration_since(at) < Duration::from_secs(SECONDS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn takeovers_are_limited(pauses in prop::collection::vec(0..3000u64, 0..60)) {
            limited::<10, 10>(&pauses)?;
            limited::<1, 2>(&pauses)?;
            limited::<20, 40>(&pauses)?;
        }
    }

    fn limited<const MOST: usize, const SECONDS: u64>(pauses: &[u64]) -> Result<(), TestCaseError> {
        let time = Duration::from_secs(SECONDS);
        let mut takeovers = Takeovers::<MOST, SECONDS>::default();
        let mut now = Instant::now();
        let mut taken = Vec::new();
        for pause in pauses {
            now += Duration::from_millis(*pause);
            let recent = taken.iter().filter(|at| now - **at < time).count();
            prop_assert_eq!(takeovers.would_allow(now), recent < MOST);
            prop_assert_eq!(takeovers.may_take(now), recent < MOST);
            if recent < MOST {
                taken.push(now);
            }
        }
        Ok(())
    }
}
