//! Limits how often a connection takes a place from the one before, so that two holders of a secret cannot keep a node
//! busy. The same for the workers of a session. Pure.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Most takeovers in [`TAKEOVER_TIME`].
const TAKEOVERS: usize = 10;
const TAKEOVER_TIME: Duration = Duration::from_secs(10);

/// The latest times at which something took a place from the one before.
#[derive(Debug, Default)]
pub(crate) struct Takeovers(VecDeque<Instant>);

impl Takeovers {
    /// Counts a takeover. Returns false if there were too many.
    pub(crate) fn may_take(&mut self, now: Instant) -> bool {
        let is_old = |at: &Instant| now.saturating_duration_since(*at) >= TAKEOVER_TIME;
        while self.0.front().is_some_and(is_old) {
            self.0.pop_front();
        }
        let may = self.0.len() < TAKEOVERS;
        if may {
            self.0.push_back(now);
        }
        may
    }

    /// Returns whether [`Takeovers::may_take`] would allow another one.
    pub(crate) fn would_allow(&self, now: Instant) -> bool {
        let is_new = |at: &&Instant| now.saturating_duration_since(**at) < TAKEOVER_TIME;
        self.0.iter().filter(is_new).count() < TAKEOVERS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn takeovers_are_limited(pauses in prop::collection::vec(0..3000u64, 0..60)) {
            let mut takeovers = Takeovers::default();
            let mut now = Instant::now();
            let mut taken = Vec::new();
            for pause in pauses {
                now += Duration::from_millis(pause);
                let recent = taken.iter().filter(|at| now - **at < TAKEOVER_TIME).count();
                prop_assert_eq!(takeovers.would_allow(now), recent < TAKEOVERS);
                prop_assert_eq!(takeovers.may_take(now), recent < TAKEOVERS);
                if recent < TAKEOVERS {
                    taken.push(now);
                }
            }
        }
    }
}
