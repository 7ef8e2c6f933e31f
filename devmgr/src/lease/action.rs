//! Actions: the complete output of the lease manager.
//!
//! Invariant: a [`Transition`]'s changes are durable before any of its actions is carried out. Actions for one
//! node or one lease are carried out in order.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::change::Change;
use super::id::{Epoch, LeaseId};
use super::reasons::Reasons;
use super::shortfall::{Detail, Shortfall};
use crate::inventory::{NodeId, Unit};
use crate::policy::UserName;
use crate::time::{Span, Time};

/// The result of one event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Transition {
    /// Changes to store first, all or nothing.
    pub changes: Vec<Change>,
    /// Actions to carry out after that, in order.
    pub actions: Vec<Action>,
}

/// One action for the service to carry out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Welcomes a node. Grants up to `fence` that the node did not list are void: the node refuses them,
    /// however late they arrive.
    Welcome {
        /// The node.
        node: NodeId,
        /// The newest epoch so far.
        fence: Epoch,
    },
    /// Tells a node whether it is being drained. Sent after each welcome, because the node may remember
    /// an older state, and when an administrator changes it. The node only reports this state; the
    /// manager acts on it.
    Drain {
        /// The node.
        node: NodeId,
        /// Whether the node is being drained.
        draining: bool,
    },
    /// Asks a node to serve its part of a lease.
    Grant(Grant),
    /// Tells a node to stop serving a grant, to end its sessions, and to report when both are done. A
    /// node that does not know the grant reports so at once.
    Withdraw {
        /// The node.
        node: NodeId,
        /// The lease.
        lease: LeaseId,
        /// The grant of that lease. A node that receives this grant only later refuses it.
        epoch: Epoch,
        /// Why the lease ended. `None`: no client has this grant, because its offer failed or the lease was moved.
        reason: Option<EndReason>,
    },
    /// Reports the state of a request or lease to its client. Each `Request`, `Confirm`, `Renew`
    /// and `Release` gets one at once; more follow when the state changes.
    Tell {
        /// The request or lease.
        lease: LeaseId,
        /// The state.
        outcome: Outcome,
    },
    /// A lease has lost the devices of one node. The lease goes on with the others, or waits for equal devices if there
    /// are none. The client receives the new state.
    Reduced {
        /// The lease.
        lease: LeaseId,
        /// The node whose devices are lost.
        node: NodeId,
        /// The state since then: `Reserved` or `Leased`.
        outcome: Outcome,
    },
    /// Asks a node to move the sessions of its grant to another node. The node answers with
    /// [`Event::MoveEnded`](super::Event::MoveEnded).
    Move {
        /// The node that has the sessions.
        node: NodeId,
        /// The lease.
        lease: LeaseId,
        /// The node's grant of that lease.
        epoch: Epoch,
        /// The grant of the other node, which has acknowledged it.
        target: Granted,
        /// When the node answers at the latest.
        within: Span,
    },
    /// Tells a node that the sessions of its grant go on there: the move has failed, even if the other node has taken them.
    Stay {
        /// The node that had the sessions before the move.
        node: NodeId,
        /// The lease.
        lease: LeaseId,
        /// The node's grant of that lease.
        epoch: Epoch,
    },
    /// A lease was moved to another node, or another node has replaced its lost one. The client receives the new state.
    Moved {
        /// The lease.
        lease: LeaseId,
        /// The node that the lease has left.
        from: NodeId,
        /// The node that serves the lease now. After a loss, this may be the same node.
        to: NodeId,
        /// The state since then: `Reserved` or `Leased`.
        outcome: Outcome,
    },
    /// A lease or a waiting request has ended. Sent when the end is decided; units become free later.
    Ended {
        /// The lease.
        lease: LeaseId,
        /// The lease's user.
        user: UserName,
        /// The reason.
        reason: EndReason,
    },
}

/// A node's part of a lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    /// The node.
    pub node: NodeId,
    /// The lease.
    pub lease: LeaseId,
    /// The grant of that lease.
    pub epoch: Epoch,
    /// The user whose sessions the node may serve.
    pub user: UserName,
    /// The units that the node serves them with.
    pub units: Vec<GrantedUnit>,
    /// Time limit from now, enforced by the node's own clock. Renewals do not change it.
    pub limit: Option<Span>,
    /// How long the node serves the grant without receiving anything (such as heartbeat answers) from the
    /// manager. A connected node serves the grant until it is withdrawn: renewals are not forwarded to
    /// it.
    pub autonomy: Span,
    /// Longest time for which the node keeps the grant's sessions while their connections are broken.
    pub resume: Span,
}

/// A unit in a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GrantedUnit {
    /// The unit.
    pub unit: Unit,
    /// Limit in bytes for allocations, if the unit is a share. `None`: the device's whole memory.
    pub memory_limit: Option<u64>,
}

/// The state of a request or lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The nodes have been asked to serve the request; another outcome follows.
    Offered,
    /// The request waits in the queue.
    Waiting {
        /// Position in the order of arrival, from 1.
        position: u32,
        /// Length of the queue.
        of: u32,
        /// The devices that the request lacks, regardless of other requests.
        shortfall: Option<Shortfall>,
        /// Why the request waits. `None`: a later report says so.
        reasons: Option<Box<Reasons>>,
    },
    /// Granted; the client has to confirm it.
    Reserved(Granted),
    /// Granted, with no confirmation outstanding.
    Leased(Granted),
    /// Neither granted nor queued.
    Refused(Refused),
    /// The lease is over, by its holder's request or for another reason.
    Ended(EndReason),
    /// The user has no such lease or request.
    Unknown,
}

/// The units of a grant, and its times.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Granted {
    /// The grant's number.
    pub epoch: Epoch,
    /// The units by node. Where the nodes allow it, units of the request's first kind come first.
    pub units: Vec<(NodeId, Vec<Unit>)>,
    /// Units that the lease has lost, by node.
    pub lost: Vec<(NodeId, Vec<Unit>)>,
    /// All moves of the lease, the latest last.
    pub moves: Vec<UnitsMoved>,
    /// Whether equal units take the place of these if their only node is lost.
    pub replaceable: bool,
    /// When the lease ends unless it is confirmed or renewed.
    pub until: Time,
    /// When the lease ends in any case.
    pub ends: Option<Time>,
}

/// Units of a node that a lease had, and those that it has instead.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct UnitsMoved {
    /// The node that the lease has left, with the units there.
    pub from: (NodeId, Vec<Unit>),
    /// The node that took over, with the units there.
    pub to: (NodeId, Vec<Unit>),
    /// Whether the first node was lost with its sessions. Then both may be the same node.
    #[serde(default)]
    pub replaced: bool,
}

/// A refusal with an explanation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Refused {
    /// The reason.
    pub why: Refusal,
    /// The missing devices, or the quota that is exceeded.
    pub detail: Option<Detail>,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.why)?;
        match &self.detail {
            Some(Detail::Devices(shortfall)) => write!(f, ": {shortfall}")?,
            Some(Detail::Quota(quota)) => write!(f, ": {quota}")?,
            None => {}
        }
        match self.why {
            Refusal::NothingFree => {
                f.write_str("; ask again, or wait for them (causeway run --wait)")
            }
            _ => Ok(()),
        }
    }
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refusal {
    /// The cluster has no such devices, free or in use.
    #[error("the cluster does not have these devices, free or not")]
    NothingFits,
    /// Such devices are in use.
    #[error("the requested devices are in use")]
    NothingFree,
    /// A quota of devices, of the user or a group, is exceeded.
    #[error("the quota of devices is exceeded")]
    QuotaOfDevices,
    /// A quota of memory, of the user or a group, is exceeded.
    #[error("the quota of device memory is exceeded")]
    QuotaOfMemory,
    /// A quota of device time, of the user or a group, is exceeded.
    #[error("the quota of device time is used up, or less than asked for is left")]
    QuotaOfTime,
    /// The user may not use this priority class.
    #[error("you may not use this priority class")]
    Class,
    /// The queue is full.
    #[error("too many requests are waiting already")]
    QueueFull,
    /// The user already has as many waiting requests as one user may have.
    #[error(
        "too many of your requests are waiting already; one of them must be served or given up first"
    )]
    QueueFullOfOwn,
}

/// Why a lease or a waiting request is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum EndReason {
    /// The holder released the lease.
    #[error("the lease was released")]
    Released,
    /// The reservation was not confirmed, or the lease was not renewed.
    #[error("the lease was not confirmed or renewed in time")]
    Expired,
    /// All sessions ended, and the holder did not renew the lease.
    #[error("the lease's client was lost")]
    ClientLost,
    /// The time limit is over.
    #[error("the lease's time limit is reached")]
    TimeLimit,
    /// An administrator revoked the lease.
    #[error("an administrator revoked the lease")]
    Revoked,
    /// All nodes of the lease are lost or have restarted.
    #[error("the lease's nodes were lost")]
    NodeLost,
    /// The only node of the lease was lost, and nothing has replaced it in time.
    #[error(
        "the lease's node was lost, and no equal device became free within 10 minutes; request devices anew"
    )]
    NotReplaced,
    /// An administrator drains the lease's node, and the lease was not moved in time.
    #[error("the lease's node is drained, and the lease could not be moved to another one in time")]
    Drained,
    /// The lease's devices have changed.
    #[error("the lease's devices have changed")]
    DevicesChanged,
}
