//! What the machine shows: for lists, for people, for checks. It changes nothing.

use causeway_proto::request::DeviceRequest;

use super::action::{EndReason, Granted};
use super::holding::{Holding, PartState, Phase, Waiting};
use super::id::{Epoch, LeaseId};
use super::manager::{Manager, Standing};
use super::time::{Time, Wall};
use crate::inventory::{Cluster, NodeId};
use crate::policy::ledger::Ledger;
use crate::policy::{Class, Policy, UserName};

/// A grant: a lease, or what it comes from or leaves behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseView<'a> {
    /// Which.
    pub lease: LeaseId,
    /// Whose.
    pub user: &'a UserName,
    /// What was asked for.
    pub devices: &'a DeviceRequest,
    /// Where in its life it is.
    pub state: LeaseState,
    /// Its units that are not free yet, and when it ends.
    pub granted: Granted,
    /// When it was granted.
    pub since: Wall,
    /// Sessions that use it, as nodes told.
    pub sessions: u32,
}

/// Where in its life a grant is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaseState {
    /// Nodes have not all acknowledged it.
    Offered,
    /// Granted, to be confirmed.
    Reserved,
    /// In use.
    Active,
    /// Its last session has ended; it is kept for the grace time.
    Lapsed,
    /// Over; nodes have not all let go yet. `None`: no client knew of it.
    Ending(Option<EndReason>),
}

/// A request that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingView<'a> {
    /// Which.
    pub lease: LeaseId,
    /// Whose.
    pub user: &'a UserName,
    /// What is asked for.
    pub devices: &'a DeviceRequest,
    /// How urgently.
    pub class: Class,
    /// Since when.
    pub since: Wall,
    /// Whether its client is connected.
    pub present: bool,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView<'a> {
    /// Which.
    pub node: NodeId,
    /// Its name for people.
    pub name: &'a str,
    /// `host:port` where clients reach it.
    pub addresses: &'a [String],
    /// Whether it is connected.
    pub connected: bool,
    /// Whether an administrator is draining it.
    pub draining: bool,
    /// Whether it was told to end.
    pub stopping: bool,
    /// Until when it gets no grant because it refused one or did not answer.
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

    /// Whose a grant is, until its last unit is free.
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

    /// All waiting requests in the order in which they came.
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

    /// Devices and units.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Quotas, and what everyone has.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The administrator's settings.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The newest epoch that was given out.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Parts of ended grants that their nodes have not let go yet.
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
