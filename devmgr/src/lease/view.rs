//! Read-only views of the manager's state, for listings and for tests.

use causeway_proto::request::DeviceRequest;

use super::action::{EndReason, Granted};
use super::holding::{Holding, PartState, Phase, Waiting};
use super::id::{Epoch, LeaseId};
use super::manager::{Manager, Standing};
use crate::inventory::{Cluster, NodeId};
use crate::policy::ledger::Ledger;
use crate::policy::{Class, Policy, UserName};
use crate::time::{Time, Wall};

/// A grant: an offer, a lease, or an ended lease whose units are not all free yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseView<'a> {
    /// The lease.
    pub lease: LeaseId,
    /// The user.
    pub user: &'a UserName,
    /// The devices requested.
    pub devices: &'a DeviceRequest,
    /// The grant's state.
    pub state: LeaseState,
    /// The units that are not free yet, and the times at which the lease ends.
    pub granted: Granted,
    /// When the lease was granted.
    pub since: Wall,
    /// Number of sessions, as the nodes report it.
    pub sessions: u32,
}

/// The state of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaseState {
    /// Not all nodes have acknowledged the grant.
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

/// A waiting request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingView<'a> {
    /// The request.
    pub lease: LeaseId,
    /// The user.
    pub user: &'a UserName,
    /// The devices requested.
    pub devices: &'a DeviceRequest,
    /// The priority class.
    pub class: Class,
    /// When the request began to wait.
    pub since: Wall,
    /// Whether the client is connected.
    pub present: bool,
}

/// A known node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView<'a> {
    /// The node.
    pub node: NodeId,
    /// The node's name for people.
    pub name: &'a str,
    /// `host:port` where clients reach the node.
    pub addresses: &'a [String],
    /// Whether the node is connected.
    pub connected: bool,
    /// Whether an administrator is draining the node.
    pub draining: bool,
    /// Whether the node was told to shut down.
    pub stopping: bool,
    /// Until when the node gets no grant, because it refused one or did not answer.
    pub distrusted: Option<Time>,
}

impl Manager {
    /// All grants, the oldest first.
    pub fn leases(&self) -> impl Iterator<Item = LeaseView<'_>> {
        self.grants.values().map(|of| self.lease_view(of))
    }

    /// A lease that has not ended, or the offer for it.
    #[must_use]
    pub fn lease(&self, lease: LeaseId) -> Option<LeaseView<'_>> {
        match self.leases.get(&lease)? {
            Standing::Granted(epoch) => self.grants.get(epoch).map(|of| self.lease_view(of)),
            Standing::Waiting(_) => None,
        }
    }

    /// The user of a grant, until the grant's last unit is free.
    #[must_use]
    pub fn holder(&self, epoch: Epoch) -> Option<&UserName> {
        self.grants.get(&epoch).map(|of| &of.demand.party.user)
    }

    fn lease_view<'a>(&self, of: &'a Holding) -> LeaseView<'a> {
        LeaseView {
            lease: of.demand.lease,
            user: &of.demand.party.user,
            devices: &of.demand.devices,
            state: match of.phase {
                Phase::Offered { .. } => LeaseState::Offered,
                Phase::Reserved { .. } => LeaseState::Reserved,
                Phase::Active { .. } => LeaseState::Active,
                Phase::Lapsed { .. } => LeaseState::Lapsed,
                Phase::Ending { reason } => LeaseState::Ending(reason),
            },
            granted: of.granted(self.skew),
            since: of.since,
            sessions: of.sessions(),
        }
    }

    /// All waiting requests in the order of their arrival.
    pub fn waiting(&self) -> impl Iterator<Item = WaitingView<'_>> {
        self.queue.iter().map(|(_, of)| waiting_view(of))
    }

    /// All known nodes.
    pub fn nodes(&self) -> impl Iterator<Item = NodeView<'_>> {
        self.nodes.iter().map(|(id, node)| NodeView {
            node: *id,
            name: &node.name,
            addresses: &node.addresses,
            connected: node.connected,
            draining: node.draining,
            stopping: node.stopping,
            distrusted: node.distrusted.map(|at| at.after(self.skew)),
        })
    }

    /// The cluster's devices and units.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Quotas, and what each subject uses of them.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The administrator's settings.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The newest epoch that was used.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Parts of ended grants that their nodes have not withdrawn yet.
    #[must_use]
    pub fn withdrawals(&self) -> usize {
        let parts = self.grants.values().flat_map(|of| &of.parts);
        parts
            .filter(|of| of.state == PartState::Withdrawing)
            .count()
    }
}

fn waiting_view(of: &Waiting) -> WaitingView<'_> {
    WaitingView {
        lease: of.demand.lease,
        user: &of.demand.party.user,
        devices: &of.demand.devices,
        class: of.demand.class,
        since: of.since,
        present: of.away.is_none(),
    }
}
