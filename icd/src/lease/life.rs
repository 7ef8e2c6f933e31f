//! The life of what a program has from the device manager.
//!
//! ```text
//! Nothing ── granted ──► Reserved ── confirmed ──► Active ──┐ renewed
//!    ▲  └─ refused: quiet for a while    │            ▲─────┘
//!    └──────────── over ─────────────────┴────────────┘
//! any ── left (disconnected, end of the program) ──► Left
//! ```
//! What it is not: it asks nobody, and has no clock: what time it is comes in. Invariant: a lease ends here by the
//! manager's word or the program's wish, never because the manager is silent: the nodes serve it for as long as they
//! may, and are the ones to end it.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use super::renewal::Renewal;
use crate::transport::manager::LeaseId;

/// Who refused is not asked again sooner; nor does asking cost more than a part of the time.
const PAUSE: Duration = Duration::from_millis(250);
const PAUSE_PER_WAIT: u32 = 10;
/// Nor is it put off for longer: a user looks again.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Life {
    state: State,
    quiet_until: Option<Instant>,
    has_warned: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Nothing,
    Reserved {
        lease: LeaseId,
        until: Instant,
    },
    Active {
        lease: LeaseId,
        renewal: Renewal,
    },
    Left,
}

/// What the manager has granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Terms {
    pub(super) lease: LeaseId,
    /// From when it was asked on: nobody's message takes less than no time.
    pub(super) lifetime: Duration,
}

impl Life {
    /// Whether enumeration has to ask for devices.
    pub(super) fn wants(&self, now: Instant) -> bool {
        let is_quiet = self.quiet_until.is_some_and(|until| now < until);
        match self.state {
            State::Nothing => !is_quiet,
            State::Reserved { until, .. } => now >= until && !is_quiet,
            State::Active { .. } | State::Left => false,
        }
    }

    /// Devices are set aside, for a program that has none (any more). False: it has, or wants none, and these are to
    /// be given back.
    pub(super) fn reserved(&mut self, asked: Instant, terms: Terms) -> bool {
        if matches!(self.state, State::Active { .. } | State::Left) {
            return false;
        }
        self.state = State::Reserved {
            lease: terms.lease,
            until: asked + terms.lifetime,
        };
        (self.quiet_until, self.has_warned) = (None, false);
        true
    }

    /// Nothing was granted. Says whether that is news.
    pub(super) fn refused(&mut self, asked: Instant, now: Instant) -> bool {
        let took = now.saturating_duration_since(asked);
        let pause = (took * PAUSE_PER_WAIT).clamp(PAUSE, LONGEST_PAUSE);
        self.quiet_until = Some(now + pause);
        !std::mem::replace(&mut self.has_warned, true)
    }

    /// What has to be confirmed before the devices are used.
    pub(super) fn unconfirmed(&self) -> Option<LeaseId> {
        match self.state {
            State::Reserved { lease, .. } => Some(lease),
            _ => None,
        }
    }

    /// The reservation is a lease now, or the lease has been renewed. False: it is not what the program has.
    pub(super) fn running(&mut self, asked: Instant, terms: Terms) -> bool {
        if self.lease() != Some(terms.lease) {
            return false;
        }
        self.state = State::Active {
            lease: terms.lease,
            renewal: Renewal::new(asked, terms.lifetime),
        };
        true
    }

    /// When to renew, and what.
    pub(super) fn renewal(&self) -> Option<(Instant, LeaseId)> {
        match self.state {
            State::Active { lease, renewal } => Some((renewal.at(), lease)),
            _ => None,
        }
    }

    /// A node of the lease was lost: the manager knows whether the lease was, too. Says whether to ask it sooner.
    pub(super) fn hurry(&mut self, now: Instant) -> bool {
        match &mut self.state {
            State::Active { renewal, .. } => renewal.hurry(now),
            _ => false,
        }
    }

    /// The manager could not be asked; another time.
    pub(super) fn unheard(&mut self, now: Instant) {
        if let State::Active { renewal, .. } = &mut self.state {
            renewal.unheard(now);
        }
    }

    /// The manager says that it is over. False: it is not what the program has.
    pub(super) fn over(&mut self, lease: LeaseId, now: Instant) -> bool {
        if self.lease() != Some(lease) {
            return false;
        }
        // Of a reservation that came to nothing, another is wanted at once.
        let was_active = matches!(self.state, State::Active { .. });
        self.quiet_until = was_active.then(|| now + PAUSE);
        self.state = State::Nothing;
        true
    }

    /// The program wants nothing any more; what there is to give back.
    pub(super) fn leave(&mut self) -> Option<LeaseId> {
        let lease = self.lease();
        self.state = State::Left;
        lease
    }

    fn lease(&self) -> Option<LeaseId> {
        match self.state {
            State::Reserved { lease, .. } | State::Active { lease, .. } => Some(lease),
            State::Nothing | State::Left => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const A: LeaseId = [1; 16];
    const B: LeaseId = [2; 16];
    const SECOND: Duration = Duration::from_secs(1);

    fn terms(lease: LeaseId, seconds: u32) -> Terms {
        Terms {
            lease,
            lifetime: SECOND * seconds,
        }
    }

    #[test]
    fn a_reservation_is_asked_for_once_confirmed_and_renewed() {
        let (mut life, now) = (Life::default(), Instant::now());
        assert!(life.wants(now) && life.unconfirmed().is_none());
        assert!(life.reserved(now, terms(A, 10)));
        assert!(!life.wants(now + 9 * SECOND));
        assert_eq!((life.unconfirmed(), life.renewal()), (Some(A), None));
        assert!(life.running(now, terms(A, 60)));
        assert_eq!(life.renewal(), Some((now + 20 * SECOND, A)));
        assert!(!life.wants(now + 100 * SECOND) && life.unconfirmed().is_none());
        let later = now + 20 * SECOND;
        assert!(life.running(later, terms(A, 60)));
        assert_eq!(life.renewal(), Some((later + 20 * SECOND, A)));
    }

    #[test]
    fn a_reservation_that_has_run_out_is_asked_for_anew() {
        let (mut life, now) = (Life::default(), Instant::now());
        life.reserved(now, terms(A, 10));
        assert!(life.wants(now + 10 * SECOND));
        // Until then the manager may still take it.
        assert_eq!(life.unconfirmed(), Some(A));
        assert!(life.reserved(now + 10 * SECOND, terms(B, 10)));
        assert!(!life.running(now, terms(A, 60)), "it is another's now");
        assert_eq!(life.unconfirmed(), Some(B));
    }

    #[test]
    fn who_is_refused_says_so_once_and_waits_longer_the_longer_it_took() {
        let (mut life, now) = (Life::default(), Instant::now());
        assert!(life.refused(now, now + SECOND / 2));
        assert!(!life.wants(now + 5 * SECOND) && life.wants(now + 6 * SECOND));
        assert!(!life.refused(now, now + SECOND));
        assert!(!life.wants(now + 10 * SECOND) && life.wants(now + 11 * SECOND));
        assert!(!life.refused(now, now + 5 * SECOND));
        assert!(!life.wants(now + 14 * SECOND) && life.wants(now + 15 * SECOND));
        assert!(!life.refused(now + 15 * SECOND, now + 15 * SECOND));
        assert!(life.reserved(now + 16 * SECOND, terms(A, 1)));
        assert!(
            life.refused(now + 18 * SECOND, now + 18 * SECOND),
            "news again"
        );
    }

    #[test]
    fn a_silent_manager_ends_nothing() {
        let (mut life, now) = (Life::default(), Instant::now());
        life.reserved(now, terms(A, 10));
        life.running(now, terms(A, 60));
        let mut at = now + 20 * SECOND;
        for _ in 0..100 {
            life.unheard(at);
            assert_eq!(life.renewal(), Some((at + 5 * SECOND, A)));
            at += 5 * SECOND;
        }
        assert!(life.over(A, at) && life.renewal().is_none());
    }

    #[test]
    fn who_lost_a_node_asks_sooner_if_he_has_a_lease() {
        let (mut life, now) = (Life::default(), Instant::now());
        assert!(!life.hurry(now));
        life.reserved(now, terms(A, 10));
        assert!(!life.hurry(now));
        life.running(now, terms(A, 60));
        assert!(life.hurry(now + 2 * SECOND));
        assert_eq!(life.renewal(), Some((now + 2 * SECOND, A)));
    }

    #[test]
    fn what_is_over_may_be_asked_for_again_what_was_left_not() {
        let (mut life, now) = (Life::default(), Instant::now());
        life.reserved(now, terms(A, 10));
        life.running(now, terms(A, 60));
        assert!(!life.over(B, now) && life.over(A, now) && !life.over(A, now));
        assert!(!life.wants(now) && life.wants(now + SECOND));
        life.reserved(now, terms(B, 10));
        assert_eq!((life.leave(), life.leave()), (Some(B), None));
        assert!(!life.wants(now + 100 * SECOND));
        assert!(!life.reserved(now, terms(A, 10)), "to be given back");
        // Of a reservation that cannot be confirmed another is wanted at once.
        let mut life = Life::default();
        life.reserved(now, terms(A, 10));
        assert!(life.over(A, now) && life.wants(now));
    }

    proptest! {
        #[test]
        fn what_was_granted_is_held_over_or_given_back(steps in proptest::collection::vec((0..7u8, 1..4u8, 0..40u32), 0..60)) {
            let (mut life, mut now) = (Life::default(), Instant::now());
            let mut held: Option<LeaseId> = None;
            let mut gone = false;
            for (step, lease, seconds) in steps {
                now += SECOND * seconds;
                let lease = [lease; 16];
                match step {
                    0 if life.wants(now) => {
                        prop_assert!(life.reserved(now, terms(lease, 10)));
                        held = Some(lease);
                    }
                    1 => prop_assert_eq!(life.running(now, terms(lease, seconds)), held == Some(lease)),
                    2 => life.unheard(now),
                    3 if life.over(lease, now) => {
                        prop_assert_eq!(held.take(), Some(lease));
                    }
                    4 => { life.refused(now, now); }
                    5 if seconds > 35 => {
                        prop_assert_eq!(life.leave(), held.take());
                        gone = true;
                    }
                    _ => {}
                }
                prop_assert!(!gone || !life.wants(now));
                let known = life.unconfirmed().or(life.renewal().map(|(_, lease)| lease));
                prop_assert_eq!(known, held);
            }
        }
    }
}
