//! When to renew a lease, and which losses of it are new. Used by the library and by `causeway run`.
//!
//! This module sends nothing and has no clock: callers pass the time. Invariant: a renewal is due well
//! before the lease expires, and no more often than [`RETRY`] allows.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bytes::Bytes;
use causeway_proto::manager::{Granted, NodeShare};

/// Shortest and longest time between two attempts to reach the manager.
pub const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// A lease is renewed after this fraction of its lifetime. That leaves time for at least two more attempts.
const RENEW_AFTER: u32 = 3;
/// After an attempt without an answer, the next one follows after this fraction of the lifetime.
const RETRY_AFTER: u32 = 12;
/// Shortest lifetime that is assumed. The manager's are minutes; a zero must not cause a flood of requests.
const SHORTEST: Duration = Duration::from_millis(300);
/// Shortest time between a request to the manager and one that `hurry` brings forward.
const PAUSE: Duration = Duration::from_millis(250);

/// The time at which a lease is to be renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renewal {
    since: Instant,
    at: Instant,
    lifetime: Duration,
}

impl Renewal {
    /// `asked` is when the request was sent. The lifetime counts from there, because the answer may have
    /// taken any time.
    #[must_use]
    pub fn new(asked: Instant, lifetime: Duration) -> Renewal {
        let lifetime = lifetime.max(SHORTEST);
        Renewal {
            since: asked,
            at: asked + lifetime / RENEW_AFTER,
            lifetime,
        }
    }

    /// The time at which the renewal is due.
    #[must_use]
    pub fn at(&self) -> Instant {
        self.at
    }

    /// Schedules a retry after the manager did not answer.
    pub fn unheard(&mut self, now: Instant) {
        self.at = now + (self.lifetime / RETRY_AFTER).clamp(RETRY.0, RETRY.1);
    }

    /// Brings the renewal forward, because the manager may have news. Returns whether the renewal is
    /// earlier now.
    pub fn hurry(&mut self, now: Instant) -> bool {
        let soon = now.max(self.since + PAUSE);
        let is_sooner = soon < self.at;
        self.at = soon.min(self.at);
        is_sooner
    }
}

/// The pauses of a client that waits for devices and loses its manager: within [`RETRY`], each twice the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pauses(Duration);

impl Default for Pauses {
    fn default() -> Pauses {
        Pauses(RETRY.0)
    }
}

impl Pauses {
    /// The pause before the next attempt.
    pub fn next_pause(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(RETRY.1);
        pause
    }

    /// Begins anew, because a manager has the request. Otherwise a client that waits through many changes of the leader
    /// would come back later each time.
    pub fn heard(&mut self) {
        *self = Pauses::default();
    }
}

/// The nodes whose devices a lease has lost, as far as its holder knows.
#[derive(Debug, Default)]
pub struct Losses(BTreeSet<Bytes>);

impl Losses {
    /// The losses in this grant that were not known yet.
    pub fn news(&mut self, granted: &Granted) -> Vec<NodeShare> {
        let lost = granted.lost.iter();
        lost.filter(|of| self.0.insert(of.node_uuid.clone()))
            .cloned()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_third_of_the_lifetime_may_pass_from_when_it_was_asked_for() {
        let now = Instant::now();
        assert_eq!(Renewal::new(now, 60 * SECOND).at(), now + 20 * SECOND);
        assert_eq!(Renewal::new(now, Duration::ZERO).at(), now + SHORTEST / 3);
    }

    #[test]
    fn a_silent_manager_is_asked_again_and_again_before_the_end() {
        let now = Instant::now();
        let mut renewal = Renewal::new(now, 60 * SECOND);
        for (lifetime, pause) in [
            (60 * SECOND, 5 * SECOND),
            (12 * SECOND, SECOND),
            (3600 * SECOND, 5 * SECOND),
            (SECOND, Duration::from_millis(100)),
        ] {
            renewal = Renewal {
                lifetime,
                ..renewal
            };
            renewal.unheard(now);
            assert_eq!(renewal.at(), now + pause);
        }
    }

    #[test]
    fn who_hurries_asks_sooner_but_not_all_the_time() {
        let now = Instant::now();
        let mut renewal = Renewal::new(now, 60 * SECOND);
        assert!(renewal.hurry(now) && !renewal.hurry(now + SECOND));
        assert_eq!(renewal.at(), now + PAUSE);
        let mut renewal = Renewal::new(now, 60 * SECOND);
        assert!(renewal.hurry(now + 2 * SECOND));
        assert_eq!(renewal.at(), now + 2 * SECOND);
        assert!(!Renewal::new(now, SECOND).hurry(now + SECOND), "it is due");
    }

    #[test]
    fn pauses_grow_until_a_manager_has_the_request() {
        let mut pauses = Pauses::default();
        let first: Vec<Duration> = (0..8).map(|_| pauses.next_pause()).collect();
        assert_eq!(first[..2], [RETRY.0, RETRY.0 * 2]);
        assert_eq!(first[6..], [RETRY.1; 2]);
        pauses.heard();
        assert_eq!(pauses.next_pause(), RETRY.0);
    }

    #[test]
    fn each_loss_is_news_once() {
        let share = |id: u8| NodeShare {
            node_uuid: vec![id; 16].into(),
            name: format!("node{id}"),
            ..NodeShare::default()
        };
        let granted = |lost: &[u8]| Granted {
            nodes: vec![share(9)],
            lost: lost.iter().copied().map(share).collect(),
            ..Granted::default()
        };
        let mut losses = Losses::default();
        assert_eq!(losses.news(&granted(&[])), []);
        assert_eq!(losses.news(&granted(&[1])), [share(1)]);
        assert_eq!(losses.news(&granted(&[1])), []);
        assert_eq!(losses.news(&granted(&[1, 2])), [share(2)]);
        assert_eq!(losses.news(&granted(&[])), []);
    }
}
