//! What the manager wants done: the whole of its output.
//!
//! Invariant: a [`Step`]'s changes are durable before any of its actions is carried out, and actions
//! for one node or one lease are carried out in order.

use super::change::Change;
use super::id::{Epoch, LeaseId};
use super::lack::{Detail, Lack};
use super::time::{Span, Time};
use crate::inventory::{NodeId, Unit};
use crate::policy::UserName;

/// What one event led to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Step {
    /// To be stored, all or nothing, first.
    pub changes: Vec<Change>,
    /// To be done then, in order.
    pub actions: Vec<Action>,
}

/// Something to be done.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A node is welcome. Grants up to `fence` that it did not report are void: it refuses them,
    /// however late they come.
    Welcome {
        /// Which.
        node: NodeId,
        /// The newest epoch so far.
        fence: Epoch,
    },
    /// A node is told whether it is being drained: after each welcome, since it may remember what was said before it,
    /// and when an administrator says so. It decides nothing by it that is not decided here.
    Drain {
        /// Which.
        node: NodeId,
        /// Whether it is.
        draining: bool,
    },
    /// A node is told of its part of a lease.
    Grant(Grant),
    /// A node shall serve a grant no longer, end its sessions, and say when that is so. A node that
    /// does not know the grant says so at once.
    Withdraw {
        /// Which node.
        node: NodeId,
        /// Of which lease.
        lease: LeaseId,
        /// Of which grant of it; a node that hears of this one only later refuses it.
        epoch: Epoch,
        /// Why the lease has ended; `None`: the offer came to nothing, and no client knew of it.
        reason: Option<EndReason>,
    },
    /// The client of a request or lease hears how it stands. One of these answers each `Request`,
    /// `Confirm`, `Renew`, `Release` and `Cancel` at once; others come when something changes.
    Tell {
        /// Of which.
        lease: LeaseId,
        /// How it stands.
        outcome: Outcome,
    },
    /// A lease has lost the devices of one node; it goes on with the others. Its client hears what it has now.
    Reduced {
        /// Which.
        lease: LeaseId,
        /// Whose devices it lost.
        node: NodeId,
        /// How it stands since: `Reserved` or `Leased`.
        outcome: Outcome,
    },
    /// A lease that its client was told of has ended. Said when it is decided; its units are free later.
    Ended {
        /// Which.
        lease: LeaseId,
        /// Whose it was.
        user: UserName,
        /// Why.
        reason: EndReason,
    },
}

/// A node's part of a lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    /// Whose part.
    pub node: NodeId,
    /// Of which lease.
    pub lease: LeaseId,
    /// Of which grant of it.
    pub epoch: Epoch,
    /// Whose sessions it may serve.
    pub user: UserName,
    /// What it serves them with.
    pub units: Vec<GrantedUnit>,
    /// How long at most, from now; the node sees to it by its own clock. Being renewed does not change it.
    pub limit: Option<Span>,
    /// How long the node serves it without hearing anything (heartbeats' answers, say) from the manager.
    /// A node that is connected serves it until it is told otherwise: renewals are not passed on.
    pub autonomy: Span,
}

/// A unit in a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GrantedUnit {
    /// Which.
    pub unit: Unit,
    /// Bytes that may be allocated, where the unit is a share; `None`: what the device has.
    pub memory_limit: Option<u64>,
}

/// How a request or lease stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Nodes were asked to serve it; the answer follows.
    Offered,
    /// It waits.
    Waiting {
        /// Its place in the order in which requests came, from 1.
        position: u32,
        /// Of so many.
        of: u32,
        /// What is not there for it, whoever else comes first.
        lack: Option<Lack>,
    },
    /// Granted, and to be confirmed.
    Reserved(Granted),
    /// Granted.
    Leased(Granted),
    /// Not granted, and not waiting.
    Refused(Refused),
    /// It is over, by the holder's own wish or not.
    Ended(EndReason),
    /// There is no such lease or request of this user's.
    Unknown,
}

/// What was granted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Granted {
    /// The grant.
    pub epoch: Epoch,
    /// The units by node. The first kind's come first in the request's order only where nodes allow it.
    pub units: Vec<(NodeId, Vec<Unit>)>,
    /// Those that it had and has lost, with their nodes.
    pub lost: Vec<(NodeId, Vec<Unit>)>,
    /// When it ends unless it is confirmed or renewed.
    pub until: Time,
    /// When it ends in any case.
    pub ends: Option<Time>,
}

/// A refusal, and what can be said about it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Refused {
    /// Why.
    pub why: Refusal,
    /// What is missing, or the quota in the way.
    pub detail: Option<Detail>,
}

/// Why a request gets nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refusal {
    /// The cluster has no such devices, free or not.
    #[error("the cluster does not have these devices, free or not")]
    NothingFits,
    /// Such devices are in use.
    #[error("these devices are not free now")]
    NothingFree,
    /// The user's or a group's quota of devices.
    #[error("the quota of devices at once does not allow it")]
    QuotaOfDevices,
    /// The user's or a group's quota of memory.
    #[error("the quota of device memory does not allow it")]
    QuotaOfMemory,
    /// The user's or a group's quota of device time.
    #[error("the quota of device time is used up, or less than asked for is left")]
    QuotaOfTime,
    /// The user may not ask so urgently.
    #[error("a request of this priority class is not allowed")]
    Class,
    /// Too many requests wait already.
    #[error("too many requests are waiting already")]
    QueueFull,
    /// Too many of the user's own requests wait already.
    #[error(
        "too many of your requests are waiting already; one of them must be served or given up first"
    )]
    QueueFullOfOwn,
}

/// Why a lease or a waiting request is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum EndReason {
    /// Its holder gave it back.
    #[error("it was given back")]
    Released,
    /// A reservation that nobody confirmed, or a lease that nobody renewed.
    #[error("it was not confirmed or renewed in time")]
    Expired,
    /// Its sessions ended, and its holder did not renew it.
    #[error("its client was lost")]
    ClientLost,
    /// Its time limit.
    #[error("its time limit is over")]
    TimeLimit,
    /// An administrator.
    #[error("an administrator revoked it")]
    Revoked,
    /// All its nodes are lost, or have started anew.
    #[error("its nodes were lost")]
    NodeLost,
    /// Its devices are no longer what they were.
    #[error("its devices have changed")]
    DevicesChanged,
}
