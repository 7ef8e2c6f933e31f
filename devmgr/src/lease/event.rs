//! What happens to the manager: the whole of its input.
//!
//! Invariant: an event says who it is from only by what the shell has checked (`user`), and nothing
//! in it is trusted beyond that: unknown leases, wrong users and stale epochs are answers, not faults.

use causeway_proto::request::DeviceRequest;

use super::id::{Epoch, LeaseId};
use super::time::Span;
use crate::inventory::{NodeId, OfferedDevice};
use crate::policy::{Class, GroupName, Policy, Quota, Subject, UserName};

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A node has connected. What came over its earlier connection is over: the shell delivers
    /// nothing of it any more.
    NodeJoined(Joined),
    /// A connected node has other devices than before, or is reached elsewhere.
    NodeChanged {
        /// Which.
        node: NodeId,
        /// All of them, as in [`Joined`].
        addresses: Vec<String>,
        /// All of them.
        devices: Vec<OfferedDevice>,
    },
    /// A node's connection has ended or is silent.
    NodeLost {
        /// Which.
        node: NodeId,
    },
    /// A connected node was told to end: no more grants on it. What it serves goes on until it says otherwise, or leaves.
    NodeStopping {
        /// Which.
        node: NodeId,
    },
    /// No more grants on a node, or grants again.
    Drain {
        /// Which; it need not be connected.
        node: NodeId,
        /// `false`: resume.
        draining: bool,
    },
    /// A lost node will not come back: forget it, if [that is allowed](super::Manager::may_forget).
    ForgetNode {
        /// Which.
        node: NodeId,
        /// Its leases end, whether or not it serves them still. If it is back after all, it is told so before it is
        /// granted anything: no unit is in two leases by this.
        force: bool,
    },
    /// Devices are asked for. Of an id that this user's request or lease has: the client is back (after a
    /// restart of the manager, too) and wants to hear; what waits has kept its place.
    Request(NewRequest),
    /// The connection over which a request was made is gone. What waits keeps its place for
    /// `Timing::place`; what is leased goes on.
    RequestLost {
        /// Which.
        lease: LeaseId,
    },
    /// A user does not want to wait any longer, or gives back what he got meanwhile.
    Cancel {
        /// Which.
        lease: LeaseId,
        /// Whose it has to be.
        user: UserName,
    },
    /// A reservation becomes a lease.
    Confirm {
        /// Which.
        lease: LeaseId,
        /// Whose it has to be.
        user: UserName,
    },
    /// The holder is alive.
    Renew {
        /// Which.
        lease: LeaseId,
        /// Whose it has to be.
        user: UserName,
    },
    /// The holder gives it back.
    Release {
        /// Which.
        lease: LeaseId,
        /// Whose it has to be.
        user: UserName,
    },
    /// An administrator ends it, whatever it is: lease, reservation or waiting request.
    Revoke {
        /// Which.
        lease: LeaseId,
    },
    /// A node serves a grant.
    GrantAcknowledged(GrantWord),
    /// A node does not serve a grant, and will not.
    GrantRefused(GrantWord),
    /// A node does not serve a grant any more: it was told so, or the grant's time was over.
    Withdrawn(GrantWord),
    /// How many sessions of a lease a node has; told when it changes.
    Sessions {
        /// Of which grant.
        of: GrantWord,
        /// How many.
        count: u32,
    },
    /// A quota is set (`None`: taken away).
    QuotaChanged {
        /// Whose.
        subject: Subject,
        /// What.
        quota: Option<Quota>,
    },
    /// The administrator's settings are others.
    PolicyChanged(Policy),
    /// Time has passed.
    Tick,
}

/// A grant as a node speaks of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GrantWord {
    /// Who speaks.
    pub node: NodeId,
    /// Of which lease.
    pub lease: LeaseId,
    /// Of which grant of it.
    pub epoch: Epoch,
}

/// A node that has connected.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Joined {
    /// Which.
    pub node: NodeId,
    /// As whom, where the shell has asked; it has refused who [may not](super::Manager::account_of).
    pub account: Option<UserName>,
    /// Its name for people.
    pub name: String,
    /// `host:port` where clients reach it, the likeliest first.
    pub addresses: Vec<String>,
    /// All its devices.
    pub devices: Vec<OfferedDevice>,
    /// The grants that it still serves.
    pub running: Vec<Running>,
    /// It was told to end, as by [`Event::NodeStopping`].
    pub stopping: bool,
}

/// A grant that a node still serves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Running {
    /// Of which lease.
    pub lease: LeaseId,
    /// Of which grant of it.
    pub epoch: Epoch,
    /// Sessions that use it now.
    pub sessions: u32,
}

/// Devices asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NewRequest {
    /// A new, random name for the request and its lease.
    pub lease: LeaseId,
    /// Who asks.
    pub user: UserName,
    /// The groups that he is in.
    pub groups: Vec<GroupName>,
    /// What he asks for.
    pub devices: DeviceRequest,
    /// How urgently.
    pub class: Class,
    /// How long he wants it at most.
    pub limit: Option<Span>,
    /// Whether he waits if it is not free.
    pub wait: bool,
    /// Whether he gets a reservation first, to be confirmed.
    pub reserve: bool,
}
