//! Read-only views of the manager's state, for listings.

use super::action::{EndReason, Granted};
use super::holding::{GrantPart, Holding, Phase};
use super::id::{Epoch, LeaseId};
use super::manager::Manager;
use crate::policy::UserName;
use crate::policy::ledger::Ledger;
use crate::time::Wall;

/// A grant: an offer, a lease, or an ended lease whose units are not all free yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseView<'a> {
    /// The lease.
    pub lease: LeaseId,
    /// The user.
    pub user: &'a UserName,
    /// The grant's state.
    pub state: LeaseState,
    /// The units that are not free yet, and the times at which the lease ends.
    pub granted: Granted,
    /// When the lease was granted.
    pub since: Wall,
}

/// The state of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaseState {
    /// Not all nodes have acknowledged the grant, or it is to take over the sessions of another one.
    Offered,
    /// Granted; the client has to confirm it.
    Reserved,
    /// In use.
    Active,
    /// The last session has ended; the lease is kept for the grace time.
    Lapsed,
    /// Over, but not all nodes have withdrawn it yet. `None`: no client knew of it.
    Ending(Option<EndReason>),
}

impl Manager {
    /// All grants, the oldest first.
    pub fn leases(&self) -> impl Iterator<Item = LeaseView<'_>> {
        self.grants.values().map(|of| self.lease_view(of))
    }

    /// The user of a grant, until the grant's last unit is free.
    #[must_use]
    pub fn holder(&self, epoch: Epoch) -> Option<&UserName> {
        self.grants.get(&epoch).map(|of| &of.demand.party.user)
    }

    fn lease_view<'a>(&self, of: &'a Holding) -> LeaseView<'a> {
        let mut granted = of.granted(self.skew);
        // Whoever looks at the lease wants to know what is replaced, unlike its client.
        granted.lost = of.lost().map(GrantPart::units_by_node).collect();
        LeaseView {
            lease: of.demand.lease,
            user: &of.demand.party.user,
            state: match of.phase {
                Phase::Offered { .. } | Phase::Moving { .. } => LeaseState::Offered,
                Phase::Reserved { .. } => LeaseState::Reserved,
                Phase::Active { .. } => LeaseState::Active,
                Phase::Lapsed { .. } => LeaseState::Lapsed,
                Phase::Ending { reason } => LeaseState::Ending(reason),
            },
            granted,
            since: of.since,
        }
    }

    /// All waiting requests with their users, in the order of their arrival.
    pub fn waiting(&self) -> impl Iterator<Item = (LeaseId, &UserName)> {
        let waiting = self.queue.iter().map(|(_, of)| &*of.demand);
        waiting.map(|demand| (demand.lease, &demand.party.user))
    }

    /// Quotas, and what each subject uses of them.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }
}
