//! Limits how often each user may ask something that costs them nothing: a burst, then a rate. Requests
//! that are granted do not count; those that are refused do.
//!
//! The crate `governor` counts a call when it asks whether the call is allowed, so that a granted request
//! would count too. This module reads no clock. Invariant: a user who has not asked for long enough is not
//! remembered.

use std::collections::HashMap;
use std::time::Duration;

use crate::policy::UserName;

/// A burst and a rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    /// Size of the burst.
    pub(super) at_once: u32,
    /// Interval after which one more call is allowed.
    pub(super) each: Duration,
}

/// For questions what a request would get, which people ask.
pub(super) const CONSIDERED: Limit = Limit {
    at_once: 60,
    each: Duration::from_secs(1),
};
/// For requests that do not wait and are refused. Programs make these, and a user may start many at once.
/// Each retries no more often than this on its own.
pub(super) const REFUSED: Limit = Limit {
    at_once: 240,
    each: Duration::from_millis(250),
};

/// For claims for measuring, which cost two signatures a node. A tool that measures a large cluster asks every two minutes.
pub(super) const CLAIMED: Limit = Limit {
    at_once: 10,
    each: Duration::from_secs(10),
};

/// A rate limit by user. All times are since the same arbitrary moment.
#[derive(Debug)]
pub(super) struct Pace {
    limit: Limit,
    /// When each user has the whole burst again.
    whole_at: HashMap<UserName, Duration>,
    /// The number of users at which those with a whole burst are removed.
    many: usize,
}

impl Pace {
    pub(super) fn new(limit: Limit) -> Pace {
        Pace {
            limit,
            whole_at: HashMap::new(),
            many: 0,
        }
    }

    /// Whether the user may ask now; if so, counts the call.
    pub(super) fn may(&mut self, user: &UserName, now: Duration) -> bool {
        let may = self.has_left(user, now);
        if may {
            self.has_asked(user, now);
        }
        may
    }

    /// Whether the user may ask now.
    pub(super) fn has_left(&self, user: &UserName, now: Duration) -> bool {
        self.next(user, now) <= now + self.limit.each * self.limit.at_once
    }

    /// Counts a call. Calls beyond the limit do not extend the waiting time.
    pub(super) fn has_asked(&mut self, user: &UserName, now: Duration) {
        let most = now + self.limit.each * self.limit.at_once;
        let next = self.next(user, now).min(most);
        if self.whole_at.len() >= self.many {
            self.whole_at.retain(|_, whole_at| *whole_at > now);
            // Twice as many, so that this costs each call a constant time.
            self.many = 2 * self.whole_at.len() + 64;
        }
        self.whole_at.insert(user.clone(), next);
    }

    fn next(&self, user: &UserName, now: Duration) -> Duration {
        let whole_at = self.whole_at.get(user).copied().unwrap_or_default();
        whole_at.max(now) + self.limit.each
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(number: u64) -> UserName {
        format!("u{number}").as_str().into()
    }

    #[test]
    fn each_has_his_times_and_gets_them_back() {
        let (mut pace, now) = (Pace::new(CONSIDERED), Duration::from_secs(1000));
        let times = |pace: &mut Pace, user: &UserName, now| {
            (0..2 * CONSIDERED.at_once)
                .filter(|_| pace.may(user, now))
                .count() as u32
        };
        assert_eq!(times(&mut pace, &user(1), now), CONSIDERED.at_once);
        assert_eq!(times(&mut pace, &user(1), now + CONSIDERED.each / 2), 0);
        assert_eq!(times(&mut pace, &user(1), now + CONSIDERED.each), 1);
        assert_eq!(
            times(&mut pace, &user(2), now),
            CONSIDERED.at_once,
            "another's"
        );
        assert_eq!(times(&mut pace, &user(1), now + CONSIDERED.each * 5), 4);
        let later = now + CONSIDERED.each * 10 * CONSIDERED.at_once;
        assert_eq!(times(&mut pace, &user(1), later), CONSIDERED.at_once);
    }

    #[test]
    fn who_has_asked_too_often_by_far_waits_no_longer_than_who_has_by_one() {
        let (mut pace, now) = (Pace::new(REFUSED), Duration::from_secs(1000));
        for _ in 0..10 * REFUSED.at_once {
            pace.has_asked(&user(1), now);
        }
        assert!(!pace.has_left(&user(1), now));
        assert!(pace.has_left(&user(1), now + REFUSED.each));
        assert!(pace.has_left(&user(2), now), "another's");
    }

    #[test]
    fn who_asks_now_and_then_is_not_remembered() {
        let mut pace = Pace::new(CONSIDERED);
        for number in 0..10_000 {
            assert!(pace.may(&user(number), CONSIDERED.each * number as u32));
        }
        assert!(pace.whole_at.len() <= 128, "{}", pace.whole_at.len());
    }
}
