//! What administrators said when they took leases back.
//!
//! What it is not: it is not stored; after a restart a user hears that his lease is unknown, as of any that has
//! ended. Invariant: it has so many at most, the latest ones.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::lease::{EndReason, LeaseId};
use crate::policy::UserName;

/// Leases of which it is known.
const MOST: usize = 1024;
/// Characters of a reason.
const MAX_REASON: usize = 256;

/// See the module.
#[derive(Default)]
pub(super) struct Revoked {
    said: HashMap<LeaseId, (UserName, Arc<str>)>,
    order: VecDeque<LeaseId>,
}

impl Revoked {
    /// A lease of this user's is taken back.
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

    /// Whether it was taken back, and this user's.
    pub(super) fn was_of(&self, lease: &LeaseId, user: &UserName) -> bool {
        self.said.get(lease).is_some_and(|(of, _)| of == user)
    }

    /// Why a lease has ended, as its user is told.
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
        assert_eq!(told, "an administrator revoked it: maintenance");
        let other = revoked.told(&lease(MOST), EndReason::Released);
        assert_eq!(other, EndReason::Released.to_string());
        assert_eq!(revoked.said.len(), MOST);
    }
}
