//! The state machine of what a program has from the device manager: nothing, a reservation, or a lease.
//!
//! ```text
//! Nothing ── granted ──► Reserved ── confirmed ──► Active ──┐ renewed
//!    ▲  └─ refused: quiet for a while    │            ▲─────┘
//!    └──────────── over ─────────────────┴────────────┘
//! any ── left (disconnected, end of the program) ──► Left
//! ```
//! The state machine sends nothing and has no clock: callers pass the time. Invariant: a lease ends here
//! only when the manager or the program ends it, never because the manager is silent. The nodes serve it as
//! long as it is valid, and end it themselves.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use super::renewal::Renewal;
use crate::transport::manager::LeaseId;

/// Shortest pause after a refusal. The pause grows with the duration of the refused request, so that
/// requests take only a small part of the time.
const PAUSE: Duration = Duration::from_millis(250);
const PAUSE_PER_WAIT: u32 = 10;
/// Longest pause after a refusal: a user tries again soon.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The state machine; see the module.
#[derive(Debug, Default)]
pub(super) struct Life {
    state: LifeState,
    quiet_until: Option<Instant>,
    has_warned: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum LifeState {
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
    /// The lifetime, counted from when the request was sent: the answer may have taken any time.
    pub(super) lifetime: Duration,
}

impl Life {
    /// Whether enumeration has to ask for devices.
    pub(super) fn wants(&self, now: Instant) -> bool {
        let is_quiet = self.quiet_until.is_some_and(|until| now < until);
        match self.state {
            LifeState::Nothing => !is_quiet,
            LifeState::Reserved { until, .. } => now >= until && !is_quiet,
            LifeState::Active { .. } | LifeState::Left => false,
        }
    }

    /// Records a reservation. Returns false if the program has a lease already or has left; the caller then
    /// releases the reservation.
    pub(super) fn reserved(&mut self, asked: Instant, terms: Terms) -> bool {
        if matches!(self.state, LifeState::Active { .. } | LifeState::Left) {
            return false;
        }
        self.state = LifeState::Reserved {
            lease: terms.lease,
            until: asked + terms.lifetime,
        };
        (self.quiet_until, self.has_warned) = (None, false);
        true
    }

    /// Records a refusal and starts the pause. Returns whether the caller should log it: only the first one
    /// in a row.
    pub(super) fn refused(&mut self, asked: Instant, now: Instant) -> bool {
        let took = now.saturating_duration_since(asked);
        let pause = (took * PAUSE_PER_WAIT).clamp(PAUSE, LONGEST_PAUSE);
        self.quiet_until = Some(now + pause);
        !std::mem::replace(&mut self.has_warned, true)
    }

    /// The reservation that must be confirmed before the devices are used.
    pub(super) fn unconfirmed(&self) -> Option<LeaseId> {
        match self.state {
            LifeState::Reserved { lease, .. } => Some(lease),
            _ => None,
        }
    }

    /// Records that the reservation became a lease, or that the lease was renewed. Returns false if the
    /// program no longer has that one.
    pub(super) fn running(&mut self, asked: Instant, terms: Terms) -> bool {
        if self.lease() != Some(terms.lease) {
            return false;
        }
        self.state = LifeState::Active {
            lease: terms.lease,
            renewal: Renewal::new(asked, terms.lifetime),
        };
        true
    }

    /// When to renew the lease, and its id.
    pub(super) fn renewal(&self) -> Option<(Instant, LeaseId)> {
        match self.state {
            LifeState::Active { lease, renewal } => Some((renewal.at(), lease)),
            _ => None,
        }
    }

    /// Brings the renewal forward after a lost node, because the manager knows whether the lease is lost
    /// too. Returns whether the renewal is earlier now.
    pub(super) fn hurry(&mut self, now: Instant) -> bool {
        match &mut self.state {
            LifeState::Active { renewal, .. } => renewal.hurry(now),
            _ => false,
        }
    }

    /// Records that the manager did not answer. Schedules a retry.
    pub(super) fn unheard(&mut self, now: Instant) {
        if let LifeState::Active { renewal, .. } = &mut self.state {
            renewal.unheard(now);
        }
    }

    /// Records that the manager has ended the lease. Returns false if the program no longer has that one.
    pub(super) fn over(&mut self, lease: LeaseId, now: Instant) -> bool {
        if self.lease() != Some(lease) {
            return false;
        }
        // After a reservation that could not be confirmed, the program may ask again at once.
        let was_active = matches!(self.state, LifeState::Active { .. });
        self.quiet_until = was_active.then(|| now + PAUSE);
        self.state = LifeState::Nothing;
        true
    }

    /// Records that the program wants nothing more. Returns the lease to release.
    pub(super) fn leave(&mut self) -> Option<LeaseId> {
        let lease = self.lease();
        self.state = LifeState::Left;
        lease
    }

    fn lease(&self) -> Option<LeaseId> {
        match self.state {
            LifeState::Reserved { lease, .. } | LifeState::Active { lease, .. } => Some(lease),
            LifeState::Nothing | LifeState::Left => None,
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
        // Until a new reservation is made, the manager may still accept the old one.
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
        // After a reservation that cannot be confirmed, another may be requested at once.
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
