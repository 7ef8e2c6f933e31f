//! Which builds did not come out for the cache, and when each may be tried again: pure.
//!
//! Some will never come out, because the compiler crashes on them; others failed for want of memory, or because
//! somebody else had the device. Nobody can tell the two apart, so each may be tried again, after a pause
//! that grows from failure to failure, and no more after a few; one that comes out after all has never failed. An entry that is outdated counts as well, without a
//! pause: a compiler is replaced now and then, but a driver that compiles with a passing file makes entries that are
//! always outdated.
//!
//! Invariants: a name fails at most [`ATTEMPTS`] times as long as it is remembered; at most the given number of
//! names is remembered, the one that failed longest ago going first.
#![forbid(unsafe_code)]

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::time::{Duration, Instant};

/// Failures after which a build is left alone.
pub const ATTEMPTS: u32 = 5;
/// From the first failure to the next attempt.
const FIRST_PAUSE: Duration = Duration::from_secs(30);
/// Each pause is so many times the one before.
const GROWTH: u32 = 4;

/// What failed, by name.
#[derive(Debug)]
pub struct Failures<N> {
    most: usize,
    failed: HashMap<N, Failed>,
    // Each name once, the one that failed longest ago first.
    order: VecDeque<N>,
}

#[derive(Clone, Copy, Debug)]
struct Failed {
    times: u32,
    // Of these times.
    outdated: u32,
    // None: never.
    again: Option<Instant>,
}

impl<N: Copy + Eq + Hash> Failures<N> {
    /// Nothing has failed; so many names are remembered.
    #[must_use]
    pub fn new(most: usize) -> Failures<N> {
        Failures {
            most,
            failed: HashMap::new(),
            order: VecDeque::new(),
        }
    }

    /// It failed now.
    pub fn fail(&mut self, name: N, now: Instant) {
        let pause = |times| FIRST_PAUSE * GROWTH.pow(times - 1);
        self.count(name, 0, |times| now + pause(times));
    }

    /// It came out: its failures are forgiven, not how often it was outdated.
    pub fn succeed(&mut self, name: &N) {
        if let Some(failed) = self.failed.get_mut(name)
            && failed.again.is_some()
        {
            failed.times = failed.outdated;
        }
    }

    /// It came out once, for a compiler that is another one now.
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

    /// Whether it may be tried.
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
