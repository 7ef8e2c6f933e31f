//! What [`Grants`](super::grants::Grants) is told, and what it says.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::name::{DeviceAt, Epoch, GrantedUnit, LeaseId, PlaceNumber, Unit};

/// A grant, as the manager says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) lease: LeaseId,
    pub(crate) epoch: Epoch,
    pub(crate) user: String,
    pub(crate) units: Vec<GrantedUnit>,
    /// After which it ends by itself.
    pub(crate) limit: Option<Duration>,
    /// For which it is served without a word of the manager.
    pub(crate) autonomy: Duration,
}

/// What a client claims to have of this node. Its signature was found good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claimed {
    pub(crate) lease: LeaseId,
    pub(crate) epoch: Epoch,
    pub(crate) user: String,
    pub(crate) units: Vec<Unit>,
}

/// What a device is offered as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offered {
    /// Units that it has.
    pub(crate) shares: u32,
    /// A digest of what it is: another one is another device.
    pub(crate) identity: u64,
}

/// What the shell is to do, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Tell the manager, if there is a connection.
    Say(LeaseId, Epoch, Word),
    /// End the sessions that have these places; why, as their clients are told.
    End(Vec<PlaceNumber>, Option<Why>),
}

/// What the manager is told of a grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    Acknowledged,
    Refused(NotGranted),
    Withdrawn,
    /// So many are open.
    Sessions(u32),
}

/// A grant is not served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotGranted {
    #[error("the node is draining")]
    Draining,
    #[error("the node is stopping")]
    Stopping,
    #[error("the grant is older than what the node has heard since")]
    Stale,
    #[error("the node has no such device, or not so many shares of it")]
    NoSuchUnit,
    #[error("a unit is still in use by {0:?}")]
    InUse(LeaseId),
    #[error("the grant makes no sense: {0}")]
    Malformed(&'static str),
}

/// A session is not admitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotAdmitted {
    #[error("this node serves no such lease: it has ended, or was never granted")]
    Unknown,
    #[error("the lease's credential is of an older grant")]
    Stale,
    #[error("the lease is over: {0}")]
    Ended(Why),
    #[error("the lease is another user's")]
    OtherUser,
    #[error("the lease does not have what its credential names")]
    OtherUnits,
}

/// Why a lease is served no more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Why {
    /// As the manager has said.
    #[error("{0}")]
    Withdrawn(Arc<str>),
    #[error("its time is over")]
    Limit,
    #[error("the device manager has not been heard of for too long")]
    Alone,
    #[error("the node's devices have changed")]
    DevicesChanged,
    #[error("its devices were granted to somebody else")]
    Fenced,
    #[error("the node's daemon is stopping")]
    Stopping,
}

/// A lease that has a place here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Running {
    pub(crate) lease: LeaseId,
    pub(crate) epoch: Epoch,
    pub(crate) sessions: u32,
}

/// What an admitted session may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    pub(crate) place: PlaceNumber,
    /// Each device with the bytes that the lease may allocate on it; 0: no limit.
    pub(crate) devices: BTreeMap<DeviceAt, u64>,
}
