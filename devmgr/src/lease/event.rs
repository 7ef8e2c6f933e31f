//! Events: the complete input of the lease manager.
//!
//! Invariant: an event's sender is known only by what the service has checked (`user`). Nothing else in
//! an event is trusted: unknown leases, wrong users and stale epochs are answered, and are no faults.

use causeway_proto::request::DeviceRequest;

use super::id::{Epoch, LeaseId};
use crate::inventory::{NodeId, OfferedDevice};
use crate::policy::ledger::Party;
use crate::policy::{Class, Policy, Quota, Subject, UserName};
use crate::time::Span;

/// One event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A node has connected. Its earlier connection, if any, is over: the service delivers nothing more
    /// from it.
    NodeJoined(Joined),
    /// A connected node's devices or addresses have changed.
    NodeChanged {
        /// The node.
        node: NodeId,
        /// All addresses, as in [`Joined`].
        addresses: Vec<String>,
        /// All devices.
        devices: Vec<OfferedDevice>,
    },
    /// A node's connection has ended or timed out.
    NodeLost {
        /// The node.
        node: NodeId,
    },
    /// A connected node was told to shut down and gets no more grants. It serves its leases until it
    /// withdraws them or disconnects.
    NodeStopping {
        /// The node.
        node: NodeId,
    },
    /// An administrator starts or ends the draining of a node.
    Drain {
        /// The node; it need not be connected.
        node: NodeId,
        /// `true`: no more grants. `false`: grants again.
        draining: bool,
    },
    /// Moves the leases of a node that is being drained to other nodes.
    Migrate {
        /// The node.
        node: NodeId,
        /// After this time, the leases that are still there end. `None`: they go on.
        within: Option<Span>,
    },
    /// A node has moved the sessions of a grant to another node, or has not.
    MoveEnded(GrantReport, Epoch, MoveResult),
    /// Forgets a lost node that will not come back, if [that is allowed](super::Manager::may_forget).
    ForgetNode {
        /// The node.
        node: NodeId,
        /// Ends the node's leases even if the node may still serve them. If the node returns after all,
        /// it must withdraw them before it gets any grant, so no unit is in two leases.
        force: bool,
    },
    /// Requests devices. If this user already has a request or lease of this id, the client has
    /// reconnected and receives its state. That works after a restart of the manager too. A waiting
    /// request has kept its place.
    Request(NewRequest),
    /// The connection of a request has ended. A waiting request keeps its place for `Timing::place`; a
    /// lease goes on.
    RequestLost {
        /// The request.
        lease: LeaseId,
    },
    /// Turns a reservation into a lease.
    Confirm {
        /// The lease.
        lease: LeaseId,
        /// The user, who must own the lease.
        user: UserName,
    },
    /// The holder renews a lease.
    Renew {
        /// The lease.
        lease: LeaseId,
        /// The user, who must own the lease.
        user: UserName,
    },
    /// The holder releases a lease, or a user cancels a request.
    Release {
        /// The lease or request.
        lease: LeaseId,
        /// The user, who must own it.
        user: UserName,
    },
    /// An administrator ends a lease, reservation or waiting request.
    Revoke {
        /// The lease or request.
        lease: LeaseId,
    },
    /// A node serves a grant.
    GrantAcknowledged(GrantReport),
    /// A node does not serve a grant, and never will.
    GrantRefused(GrantReport),
    /// A node no longer serves a grant: the manager withdrew it, or its time was over.
    Withdrawn(GrantReport),
    /// The number of a lease's sessions on a node has changed.
    Sessions {
        /// The grant.
        of: GrantReport,
        /// The number of sessions.
        count: u32,
    },
    /// Sets a subject's quota, or removes it (`None`).
    QuotaChanged {
        /// The subject.
        subject: Subject,
        /// The quota.
        quota: Option<Quota>,
    },
    /// The administrator's settings have changed.
    PolicyChanged(Policy),
    /// Only time has passed.
    Tick,
}

/// How the attempt to move a grant's sessions has ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum MoveResult {
    /// All sessions are at the other node.
    Moved,
    /// A session cannot be moved, for this reason.
    Stays(String),
    /// The other node did not take the sessions, for this reason.
    NotTaken(String),
}

/// A node's message about a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GrantReport {
    /// The sending node.
    pub node: NodeId,
    /// The lease.
    pub lease: LeaseId,
    /// The grant of that lease.
    pub epoch: Epoch,
}

/// A node that has connected.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Joined {
    /// The node.
    pub node: NodeId,
    /// The node's account, if the service authenticates callers. The service has already rejected an
    /// account that [does not own the node](super::Manager::account_of).
    pub account: Option<UserName>,
    /// The node's name for people.
    pub name: String,
    /// `host:port` where clients reach the node, the most likely address first.
    pub addresses: Vec<String>,
    /// All devices of the node.
    pub devices: Vec<OfferedDevice>,
    /// The grants that the node still serves.
    pub running: Vec<ServedGrant>,
    /// Whether the node was told to shut down, as by [`Event::NodeStopping`].
    pub stopping: bool,
}

/// A grant that a node still serves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServedGrant {
    /// The lease.
    pub lease: LeaseId,
    /// The grant of that lease.
    pub epoch: Epoch,
    /// Number of sessions that use the grant now.
    pub sessions: u32,
}

/// A request for devices.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NewRequest {
    /// A new, random id for the request and its lease.
    pub lease: LeaseId,
    /// The user, and the groups of the user.
    pub party: Party,
    /// The devices requested.
    pub devices: DeviceRequest,
    /// The priority class.
    pub class: Class,
    /// Time limit that the user asks for.
    pub limit: Option<Span>,
    /// Whether to wait if the devices are not free.
    pub wait: bool,
    /// Whether to make a reservation first, which the client then confirms.
    pub reserve: bool,
    /// Whether the holder can execute its sessions again at equal devices, if the lease's only node is lost.
    pub replace: bool,
}
