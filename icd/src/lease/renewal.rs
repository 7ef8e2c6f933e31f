//! How a lease is kept: when it is renewed, and what of it was lost meanwhile. For the library, and for `causeway run`.
//!
//! What it is not: it asks nobody, and has no clock: what time it is comes in. Invariant: a renewal is due well before
//! the end that the manager has named, and no more often than [`RETRY`] allows.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bytes::Bytes;
use causeway_proto::manager::{Granted, NodeShare};

/// Between two tries to reach the manager: at least, and at most.
pub const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// A lease is renewed after this part of its lifetime: two more tries are possible then.
const RENEW_AFTER: u32 = 3;
/// Of a manager that is not heard, this part of the lifetime passes before it is asked again.
const RETRY_AFTER: u32 = 12;
/// The manager's lifetimes are minutes; a zero must not make a flood of it.
const SHORTEST: Duration = Duration::from_millis(300);
/// Who hurries does so no sooner after he asked last.
const PAUSE: Duration = Duration::from_millis(250);

/// When a lease is to be renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renewal {
    since: Instant,
    at: Instant,
    lifetime: Duration,
}

impl Renewal {
    /// The manager was asked then, and gives so much time from there on: nobody's message takes less than no time.
    #[must_use]
    pub fn new(asked: Instant, lifetime: Duration) -> Renewal {
        let lifetime = lifetime.max(SHORTEST);
        Renewal {
            since: asked,
            at: asked + lifetime / RENEW_AFTER,
            lifetime,
        }
    }

    /// When it is due.
    #[must_use]
    pub fn at(&self) -> Instant {
        self.at
    }

    /// The manager could not be asked; another time.
    pub fn unheard(&mut self, now: Instant) {
        self.at = now + (self.lifetime / RETRY_AFTER).clamp(RETRY.0, RETRY.1);
    }

    /// Something has happened of which the manager knows more. Says whether it is to be asked sooner.
    pub fn hurry(&mut self, now: Instant) -> bool {
        let soon = now.max(self.since + PAUSE);
        let is_sooner = soon < self.at;
        self.at = soon.min(self.at);
        is_sooner
    }
}

/// The nodes whose devices a lease has lost, as far as its holder knows.
#[derive(Debug, Default)]
pub struct Losses(BTreeSet<Bytes>);

impl Losses {
    /// What this grant says of losses that were not known yet.
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
