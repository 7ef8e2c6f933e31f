//! The reasons that administrators gave when they revoked leases.
//!
//! They are not stored: after a restart a revoked lease is unknown, like any other that has ended.
//! Invariant: at most `MOST` are kept, the latest ones.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::lease::{EndReason, LeaseId};
use crate::policy::UserName;

/// Maximum number of leases with a reason.
const MOST: usize = 1024;
/// Maximum number of characters of a reason.
const MAX_REASON: usize = 256;

/// The reasons by lease. See the module.
#[derive(Default)]
pub(super) struct Revoked {
    said: HashMap<LeaseId, (UserName, Arc<str>)>,
    order: VecDeque<LeaseId>,
}

impl Revoked {
    /// Remembers the revocation of this user's lease.
    pub(super) fn remember(&mut self, lease: LeaseId, user: UserName, reason: Arc<str>) {
        if self.said.insert(lease, (user, reason)).is_none() {
            self.order.push_back(lease);
        }
        if self.order.len() > MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.said.remove(&oldest);
        }
    }

    /// Whether this lease of this user was revoked.
    pub(super) fn was_of(&self, lease: &LeaseId, user: &UserName) -> bool {
        self.said.get(lease).is_some_and(|(of, _)| of == user)
    }

    /// The reason for the end of a lease, as its user is told.
    pub(super) fn told(&self, lease: &LeaseId, reason: EndReason) -> String {
        match self.said.get(lease) {
            Some((_, said)) if reason == EndReason::Revoked && !said.is_empty() => {
                let said: String = said.chars().take(MAX_REASON).collect();
                format!("{reason}: {said}")
            }
            _ => reason.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_remembered_and_told_to_their_users() {
        let mut revoked = Revoked::default();
        let lease = |n: usize| LeaseId((n as u128).to_be_bytes());
        for n in 0..=MOST {
            revoked.remember(lease(n), "ann".into(), "maintenance".into());
        }
        assert!(!revoked.was_of(&lease(0), &"ann".into()));
        assert!(revoked.was_of(&lease(1), &"ann".into()));
        assert!(!revoked.was_of(&lease(1), &"bob".into()));
        let told = revoked.told(&lease(MOST), EndReason::Revoked);
        assert_eq!(told, "an administrator revoked the lease: maintenance");
        let other = revoked.told(&lease(MOST), EndReason::Released);
        assert_eq!(other, EndReason::Released.to_string());
        assert_eq!(revoked.said.len(), MOST);
    }
}
