//! Events and reports of [`Grants`](super::grants::Grants).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::name::{DeviceAt, Epoch, GrantedUnit, LeaseId, PlaceNumber, Unit};

/// A grant, as the manager sends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) lease: LeaseId,
    pub(crate) epoch: Epoch,
    pub(crate) user: String,
    pub(crate) units: Vec<GrantedUnit>,
    /// Time after which the lease ends by itself.
    pub(crate) limit: Option<Duration>,
    /// Time for which the lease is served without contact to the manager.
    pub(crate) autonomy: Duration,
    /// Longest time for which its sessions are kept while they are away; `None`: as this daemon's settings say.
    pub(crate) resume: Option<Duration>,
}

/// The part of this node that a client claims. The signature of the claim has been verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claimed {
    pub(crate) lease: LeaseId,
    pub(crate) epoch: Epoch,
    pub(crate) user: String,
    pub(crate) units: Vec<Unit>,
}

/// A device as it is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offered {
    /// Number of units that the device has.
    pub(crate) shares: u32,
    /// Digest of the device's properties. A different digest means a different device.
    pub(crate) identity: u64,
}

/// Actions for the shell, to be carried out in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Report to the manager, if there is a connection.
    Report(LeaseId, Epoch, GrantReport),
    /// End the sessions with these places. The reason is reported to their clients.
    End(Vec<PlaceNumber>, Option<Why>),
}

/// A report to the manager about a grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GrantReport {
    Acknowledged,
    Refused(NotGranted),
    Withdrawn,
    /// The number of open sessions.
    Sessions(u32),
}

/// Reasons for which a grant is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotGranted {
    #[error("the node is draining")]
    Draining,
    #[error("the node is stopping")]
    Stopping,
    #[error("the grant is older than a later grant, withdrawal or welcome")]
    Stale,
    #[error("the node has no such device or share")]
    NoSuchUnit,
    #[error("a unit is still in use by {0:?}")]
    InUse(LeaseId),
    #[error("the grant is invalid: {0}")]
    Malformed(&'static str),
}

/// Reasons for which a session is not admitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotAdmitted {
    #[error("this node does not serve the lease; it has ended or was never granted")]
    Unknown,
    #[error("the lease's credential is outdated; renew the lease")]
    Stale,
    #[error("the lease has ended: {0}")]
    Ended(Why),
    #[error("the lease is another user's")]
    OtherUser,
    #[error("the devices in the lease's credential differ from those of its grant")]
    OtherUnits,
}

/// Reasons for which a lease ends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Why {
    /// The manager withdrew the lease; contains its reason.
    #[error("{0}")]
    Withdrawn(Arc<str>),
    /// The manager withdrew the grant without a reason: no client has it, because the lease was moved for example.
    #[error("the device manager withdrew the lease")]
    Unused,
    #[error("the lease's time limit is reached")]
    Limit,
    #[error("the node has had no contact with the device manager for too long")]
    Alone,
    #[error("the node's devices have changed")]
    DevicesChanged,
    #[error("the lease's devices were granted to another lease")]
    Fenced,
    #[error("the node's daemon is stopping")]
    Stopping,
}

/// What the end of a lease on this node says about the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseEnd {
    /// The lease has ended at all nodes, so no other node has its sessions.
    Everywhere,
    /// The lease may go on at another node, which has its sessions then.
    Here,
    /// The node has ended the lease by itself. The manager may have the node's part replaced.
    Lost,
}

impl Why {
    /// What the reason says about the lease.
    pub(crate) fn end(&self) -> LeaseEnd {
        match self {
            Why::Withdrawn(_) | Why::Limit => LeaseEnd::Everywhere,
            Why::Unused => LeaseEnd::Here,
            Why::Alone | Why::DevicesChanged | Why::Fenced | Why::Stopping => LeaseEnd::Lost,
        }
    }
}

/// A lease that is in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseInUse {
    pub(crate) lease: LeaseId,
    pub(crate) epoch: Epoch,
    pub(crate) sessions: u32,
}

/// The place and the devices of an admitted session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    pub(crate) place: PlaceNumber,
    /// Each device with the bytes that the lease may allocate on it; 0: no limit.
    pub(crate) devices: BTreeMap<DeviceAt, u64>,
    /// Longest time for which the session is kept while it is away, if the manager limits it.
    pub(crate) resume: Option<Duration>,
}
