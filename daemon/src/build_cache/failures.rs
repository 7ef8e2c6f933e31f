//! Builds that failed for the cache, and when each may be retried: pure.
//!
//! Some builds always fail, for example because they crash the compiler. Others fail because memory was
//! short or the device was busy. The two cannot be told apart, so each failed build is retried, after
//! pauses that grow, and a few times only. A success resets its failures. An outdated entry also counts,
//! but without a pause: compilers are replaced now and then. A driver that loads a temporary file for each
//! compilation, however, makes entries that are always outdated.
//!
//! Invariants: a remembered name fails at most [`ATTEMPTS`] times. The number of names is limited; the one
//! that failed longest ago is dropped first.
#![forbid(unsafe_code)]

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::time::{Duration, Instant};

/// Number of failures after which a build is not retried.
pub const ATTEMPTS: u32 = 5;
/// Pause between the first failure and the next attempt.
const FIRST_PAUSE: Duration = Duration::from_secs(30);
/// Factor by which each pause is longer than the one before.
const GROWTH: u32 = 4;

/// The failed builds, by name.
#[derive(Debug)]
pub struct Failures<N> {
    most: usize,
    failed: HashMap<N, Failed>,
    // Each name once, ordered by the time of the latest failure.
    order: VecDeque<N>,
}

#[derive(Clone, Copy, Debug)]
struct Failed {
    times: u32,
    // Number of failures that were outdated entries.
    outdated: u32,
    // Time of the next attempt; `None`: never.
    again: Option<Instant>,
}

impl<N: Copy + Eq + Hash> Failures<N> {
    /// Makes an empty table that remembers at most `most` names.
    #[must_use]
    pub fn new(most: usize) -> Failures<N> {
        Failures {
            most,
            failed: HashMap::new(),
            order: VecDeque::new(),
        }
    }

    /// Records a failed build.
    pub fn fail(&mut self, name: N, now: Instant) {
        let pause = |times| FIRST_PAUSE * GROWTH.pow(times - 1);
        self.count(name, 0, |times| now + pause(times));
    }

    /// Records a successful build. Its failures are reset, but not the count of outdated entries.
    pub fn succeed(&mut self, name: &N) {
        // A build without a further attempt (`again` is `None`) stays abandoned.
        if let Some(failed) = self.failed.get_mut(name)
            && failed.again.is_some()
        {
            failed.times = failed.outdated;
        }
    }

    /// Records that an entry was outdated: it was built, but its compiler has changed since.
    pub fn outdate(&mut self, name: N, now: Instant) {
        self.count(name, 1, |_| now);
    }

    fn count(&mut self, name: N, outdated: u32, again: impl FnOnce(u32) -> Instant) {
        let before = self.failed.get(&name);
        let (times, before) = before.map_or((0, 0), |failed| (failed.times, failed.outdated));
        let times = ATTEMPTS.min(times + 1);
        let failed = Failed {
            times,
            outdated: before + outdated,
            again: (times < ATTEMPTS).then(|| again(times)),
        };
        if self.failed.insert(name, failed).is_some() {
            self.order.retain(|other| *other != name);
        }
        self.order.push_back(name);
        if self.order.len() > self.most
            && let Some(oldest) = self.order.pop_front()
        {
            self.failed.remove(&oldest);
        }
    }

    /// Returns whether the build may be tried now.
    #[must_use]
    pub fn may_try(&self, name: &N, now: Instant) -> bool {
        let failed = self.failed.get(name);
        failed.is_none_or(|failed| failed.again.is_some_and(|again| again <= now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pauses_grow_and_end() {
        let mut failures = Failures::new(8);
        let mut now = Instant::now();
        for pause in [30, 120, 480, 1920] {
            assert!(failures.may_try(&1, now));
            failures.fail(1, now);
            now += Duration::from_secs(pause);
            assert!(!failures.may_try(&1, now - Duration::from_secs(1)));
            assert!(failures.may_try(&2, now));
        }
        assert!(failures.may_try(&1, now));
        failures.fail(1, now);
        assert!(!failures.may_try(&1, now + Duration::from_secs(1 << 30)));
    }

    #[test]
    fn who_succeeds_is_forgiven_its_failures_but_not_its_age() {
        let mut failures = Failures::new(8);
        let mut now = Instant::now();
        for _ in 0..ATTEMPTS {
            for _ in 0..ATTEMPTS - 1 {
                failures.fail(1, now);
                now += FIRST_PAUSE * GROWTH.pow(ATTEMPTS);
            }
            failures.succeed(&1);
            assert!(failures.may_try(&1, now));
        }
        for _ in 0..ATTEMPTS {
            assert!(failures.may_try(&2, now));
            failures.outdate(2, now);
            failures.succeed(&2);
        }
        assert!(!failures.may_try(&2, now));
    }

    #[test]
    fn what_is_outdated_may_be_made_at_once_but_not_for_ever() {
        let mut failures = Failures::new(8);
        let now = Instant::now();
        for _ in 0..ATTEMPTS {
            assert!(failures.may_try(&1, now));
            failures.outdate(1, now);
        }
        assert!(!failures.may_try(&1, now));
    }

    proptest! {
        #[test]
        fn few_are_remembered_and_the_latest_among_them(
            steps in prop::collection::vec((0u8..9, any::<bool>()), 1..60),
        ) {
            let mut failures = Failures::new(4);
            let now = Instant::now();
            for (name, fails) in steps {
                if fails {
                    failures.fail(name, now);
                    prop_assert!(!failures.may_try(&name, now));
                } else {
                    failures.outdate(name, now);
                    prop_assert_eq!(failures.order.back(), Some(&name));
                }
                prop_assert!(failures.order.len() <= 4);
                prop_assert_eq!(failures.order.len(), failures.failed.len());
            }
        }
    }
}
