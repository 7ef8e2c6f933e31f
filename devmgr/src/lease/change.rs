//! The manager's durable state, as rows that are put and deleted.
//!
//! A start reads the current rows ([`Rows`]); it does not replay a history. Nodes report everything else
//! when they join: offers that no client knew of, and withdrawals in progress. Invariant: a row contains
//! no [`Time`](crate::time::Time), which means nothing in another process.

use causeway_proto::request::DeviceRequest;
use serde::{Deserialize, Serialize};

use super::action::UnitsMoved;
use super::id::{Epoch, LeaseId};
use crate::inventory::{DeviceClass, NodeId, Unit};
use crate::policy::ledger::{Hour, UseRow};
use crate::policy::{Class, GroupName, Policy, Quota, Subject, UserName};
use crate::time::{Span, Wall};

/// One change of the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// Upper bound for every epoch that is used before the next such change.
    Epochs(Epoch),
    /// Stores a lease or reservation; the key is its id.
    PutLease(LeaseRow),
    /// Deletes a lease that is over.
    DeleteLease(LeaseId),
    /// Stores a waiting request; the key is its id.
    PutWaiting(WaitingRow),
    /// Deletes a request that waits no longer.
    DeleteWaiting(LeaseId),
    /// Stores a known node; the key is its id.
    PutNode(NodeRow),
    /// Deletes a node that is forgotten.
    DeleteNode(NodeId),
    /// Stores since when a node is lost; the key is its id. Written some time after the node can serve nothing any more.
    PutAbsence(Absence),
    /// Deletes the absence of a node that returns or is forgotten.
    DeleteAbsence(NodeId),
    /// Stores a subject's quota; the key is the subject.
    PutQuota(Subject, Quota),
    /// Deletes a subject's quota.
    DeleteQuota(Subject),
    /// Stores the unit time that a subject used in an hour; the key is both.
    PutUse(UseRow),
    /// Deletes an hour that lies outside of the accounting window.
    DeleteUse(Subject, Hour),
    /// Stores the administrator's settings.
    PutPolicy(Policy),
}

/// The complete contents of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rows {
    /// The last [`Change::Epochs`].
    pub epochs: Epoch,
    /// Leases and reservations.
    pub leases: Vec<LeaseRow>,
    /// Waiting requests.
    pub waiting: Vec<WaitingRow>,
    /// Known nodes.
    pub nodes: Vec<NodeRow>,
    /// Absences of lost nodes.
    pub absences: Vec<Absence>,
    /// Quotas by subject.
    pub quotas: Vec<(Subject, Quota)>,
    /// Unit time used, by subject and hour.
    pub uses: Vec<UseRow>,
    /// The administrator's settings. `None`: never set.
    pub policy: Option<Policy>,
}

/// A lease that its client knows of, or learns of next.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LeaseRow {
    /// The lease's id.
    pub lease: LeaseId,
    /// The grant's number.
    pub epoch: Epoch,
    /// The lease's user.
    pub user: UserName,
    /// The groups whose quotas the lease counts for.
    pub groups: Vec<GroupName>,
    /// The devices requested.
    #[serde(with = "line")]
    pub devices: DeviceRequest,
    /// The units, by node.
    pub units: Vec<(NodeId, Vec<UnitRow>)>,
    /// The units that the lease has lost, by node.
    #[serde(default)]
    pub lost: Vec<(NodeId, Vec<UnitRow>)>,
    /// All moves of the lease, the latest last.
    #[serde(default)]
    pub moved: Vec<UnitsMoved>,
    /// The classes of the units' devices, if equal ones take their place when the node is lost.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replace: Vec<DeviceClass>,
    /// When the lease was granted.
    pub since: Wall,
    /// Time limit of the lease.
    pub limit: Option<Span>,
    /// Whether the client confirmed the lease, or no confirmation was needed.
    pub confirmed: bool,
    /// For how long managers have served without a word of the holder. 0: the holder is in time.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub silence: Span,
}

fn is_zero(span: &Span) -> bool {
    *span == Span(0)
}

/// A unit of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct UnitRow {
    /// The unit.
    pub unit: Unit,
    /// Memory of the unit in bytes, as quotas count it.
    pub memory: u64,
}

/// A request in the queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct WaitingRow {
    /// The request's id.
    pub lease: LeaseId,
    /// QueuePlace in the queue: lower places came earlier.
    pub place: u64,
    /// The user.
    pub user: UserName,
    /// The groups whose quotas the lease will count for.
    pub groups: Vec<GroupName>,
    /// The devices requested.
    #[serde(with = "line")]
    pub devices: DeviceRequest,
    /// The priority class.
    pub class: Class,
    /// Time limit of the lease.
    pub limit: Option<Span>,
    /// Whether the client gets a reservation first.
    pub reserve: bool,
    /// Whether equal devices take the place of lost ones.
    #[serde(default)]
    pub replace: bool,
    /// When the request began to wait.
    pub since: Wall,
}

/// A known node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NodeRow {
    /// The node's id.
    pub node: NodeId,
    /// The node's name for people.
    pub name: String,
    /// `host:port` where clients reach the node.
    pub addresses: Vec<String>,
    /// Whether an administrator is draining the node.
    pub draining: bool,
    /// The account under which the node first joined. `None`: callers were not authenticated then.
    #[serde(default)]
    pub account: Option<UserName>,
}

/// Since when a node is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Absence {
    /// The node's id.
    pub node: NodeId,
    /// Start of the absence.
    pub since: Wall,
}

/// Stores a request in its one-line form.
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
