//! What must outlive the manager: rows, put and deleted.
//!
//! Loading is reading the rows that are there ([`Rows`]), not replaying a history. What is not a row
//! is told by the nodes when they join: offers that nobody was told of, withdrawals under way.
//! Invariant: a row holds no [`Time`](super::time::Time), which means nothing in another process.

use causeway_proto::request::DeviceRequest;
use serde::{Deserialize, Serialize};

use super::id::{Epoch, LeaseId};
use super::time::{Span, Wall};
use crate::inventory::{NodeId, Unit};
use crate::policy::{Class, GroupName, Policy, Quota, Subject, UserName};

/// One change of the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// Every epoch that may be used up to the next such change is at most this.
    Epochs(Epoch),
    /// A lease or reservation is as in this row; the key is its id.
    PutLease(LeaseRow),
    /// A lease is over.
    DeleteLease(LeaseId),
    /// A request waits as in this row; the key is its id.
    PutWaiting(WaitingRow),
    /// A request waits no longer.
    DeleteWaiting(LeaseId),
    /// A node is known; the key is its id.
    PutNode(NodeRow),
    /// A node is forgotten.
    DeleteNode(NodeId),
    /// A node is lost since then; the key is its id. Noted some time later, and taken back some time after it came.
    PutAbsence(Absence),
    /// A node is not lost, or not known.
    DeleteAbsence(NodeId),
    /// A subject's quota; the key is the subject.
    PutQuota(Subject, Quota),
    /// A subject has no quota any more.
    DeleteQuota(Subject),
    /// Time of units that a subject used in an hour; the key is both.
    PutUse(UseRow),
    /// An hour that no window has in it any more.
    DeleteUse(Subject, Hour),
    /// The administrator's settings.
    PutPolicy(Policy),
}

/// Everything that is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rows {
    /// From [`Change::Epochs`].
    pub epochs: Epoch,
    /// Leases.
    pub leases: Vec<LeaseRow>,
    /// Waiting requests.
    pub waiting: Vec<WaitingRow>,
    /// Nodes.
    pub nodes: Vec<NodeRow>,
    /// Those that are lost.
    pub absences: Vec<Absence>,
    /// Quotas.
    pub quotas: Vec<(Subject, Quota)>,
    /// Accounts.
    pub uses: Vec<UseRow>,
    /// Settings; `None`: never set.
    pub policy: Option<Policy>,
}

/// A lease that its client has been or will be told of.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LeaseRow {
    /// Its id.
    pub lease: LeaseId,
    /// Its grant.
    pub epoch: Epoch,
    /// Whose it is.
    pub user: UserName,
    /// The groups that it counts for.
    pub groups: Vec<GroupName>,
    /// What was asked for.
    #[serde(with = "line")]
    pub devices: DeviceRequest,
    /// The units, by node.
    pub units: Vec<(NodeId, Vec<UnitRow>)>,
    /// Those that it has lost.
    #[serde(default)]
    pub lost: Vec<(NodeId, Vec<UnitRow>)>,
    /// When it was granted.
    pub since: Wall,
    /// How long it may last.
    pub limit: Option<Span>,
    /// Whether it was confirmed, or needed no confirmation.
    pub confirmed: bool,
}

/// A unit of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct UnitRow {
    /// Which.
    pub unit: Unit,
    /// Its memory in bytes, which quotas count.
    pub memory: u64,
}

/// A request that waits.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct WaitingRow {
    /// Its id.
    pub lease: LeaseId,
    /// Its place: lower ones came earlier.
    pub place: u64,
    /// Whose it is.
    pub user: UserName,
    /// The groups that it will count for.
    pub groups: Vec<GroupName>,
    /// What is asked for.
    #[serde(with = "line")]
    pub devices: DeviceRequest,
    /// How urgently.
    pub class: Class,
    /// How long it is wanted at most.
    pub limit: Option<Span>,
    /// Whether a reservation comes first.
    pub reserve: bool,
    /// Since when it waits.
    pub since: Wall,
}

/// A node that is known.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NodeRow {
    /// Its id.
    pub node: NodeId,
    /// Its name for people.
    pub name: String,
    /// `host:port` where clients reach it.
    pub addresses: Vec<String>,
    /// Whether an administrator is draining it.
    pub draining: bool,
    /// As whom it joined first; `None`: nobody was asked who he is.
    #[serde(default)]
    pub account: Option<UserName>,
}

/// A node that is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Absence {
    /// Its id.
    pub node: NodeId,
    /// Since when.
    pub since: Wall,
}

/// An hour of the host's clock: hours since 1970.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Hour(pub u64);

/// Time of units that a subject used in an hour.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct UseRow {
    /// Who; never `EveryUser`.
    pub subject: Subject,
    /// When.
    pub hour: Hour,
    /// How much, of all units together.
    pub used: Span,
}

/// A request stands in a row in its one-line form.
mod line {
    use causeway_proto::request::DeviceRequest;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        devices: &DeviceRequest,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(devices)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<DeviceRequest, D::Error> {
        let line = String::deserialize(deserializer)?;
        line.parse().map_err(serde::de::Error::custom)
    }
}
