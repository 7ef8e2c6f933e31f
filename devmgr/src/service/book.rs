//! The durable state in memory, from which listings are made.
//!
//! The book follows changes as they become durable, so that no listing shows state that a crash could
//! undo. Invariant: it has the rows that a restart would load.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use causeway_proto::control::Client;
use causeway_proto::request::{answer_of, property};

use super::input::{ConnectionId, Load, NodeLink};
use super::link_place::LinkPlace;
use crate::inventory::{DeviceId, NodeId, OfferedDevice};
use crate::lease::change::{LeaseRow, NodeRow, WaitingRow};
use crate::lease::{Change, Event, Joined, LeaseId, Manager, Rows};
use crate::policy::{Policy, Quota, Subject, UserName};
use crate::time::{Time, Wall};

/// The durable state, and what connected nodes report. See the module.
#[derive(Default)]
pub(crate) struct Book {
    pub(crate) leases: BTreeMap<LeaseId, LeaseRow>,
    /// By place, so in the order of arrival.
    pub(crate) waiting: BTreeMap<u64, WaitingRow>,
    places: HashMap<LeaseId, u64>,
    pub(crate) nodes: BTreeMap<NodeId, NodeRow>,
    pub(crate) quotas: BTreeMap<Subject, Quota>,
    pub(crate) policy: Policy,
    /// Clients' descriptions of themselves. Not stored.
    pub(crate) clients: HashMap<LeaseId, Client>,
    /// Connected nodes. Not stored.
    pub(crate) connected: HashMap<NodeId, Connected>,
}

/// The state that a read may see.
pub(crate) struct Sight<'a> {
    pub(crate) book: &'a Book,
    pub(crate) manager: &'a Manager,
    pub(crate) now: Now,
}

/// One moment by both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub(crate) time: Time,
    pub(crate) wall: Wall,
}

/// A connected node.
pub(crate) struct Connected {
    /// The node's current connection.
    pub(crate) connection: ConnectionId,
    pub(crate) devices: Vec<Offered>,
    /// Whether the node was told to shut down.
    pub(crate) stopping: bool,
    /// Whether everyone who can reach the node can use it.
    pub(crate) insecure: bool,
    /// Where other nodes reach the node for a link.
    pub(crate) place: LinkPlace,
    pub(crate) load: Arc<Load>,
}

/// The properties of a device that listings show.
#[derive(Clone, Debug)]
pub(crate) struct Offered {
    pub(crate) id: DeviceId,
    pub(crate) name: String,
    pub(crate) kind: u64,
    pub(crate) memory: u64,
    pub(crate) shares: u16,
}

impl Offered {
    pub(crate) fn new(device: &OfferedDevice) -> Offered {
        let bytes = |info| answer_of(&device.answers, info);
        let text = bytes(property::NAME).unwrap_or_default();
        let kind = bytes(property::TYPE)
            .and_then(|bytes| bytes.try_into().ok())
            .map_or(0, u64::from_le_bytes);
        Offered {
            id: device.id,
            name: String::from_utf8_lossy(text)
                .trim_end_matches('\0')
                .chars()
                .take(128)
                .collect(),
            kind,
            memory: device.memory(),
            shares: device.shares.count(),
        }
    }
}

impl Book {
    pub(crate) fn new(rows: &Rows) -> Book {
        let mut book = Book::default();
        let changes = rows.leases.iter().cloned().map(Change::PutLease);
        let changes = changes.chain(rows.waiting.iter().cloned().map(Change::PutWaiting));
        let changes = changes.chain(rows.nodes.iter().cloned().map(Change::PutNode));
        let quotas = rows.quotas.iter().cloned();
        let changes = changes.chain(quotas.map(|(who, quota)| Change::PutQuota(who, quota)));
        let changes = changes.chain(rows.policy.iter().cloned().map(Change::PutPolicy));
        changes.for_each(|change| book.apply(change));
        book
    }

    /// Applies a change that has become durable.
    pub(crate) fn apply(&mut self, change: Change) {
        match change {
            Change::PutLease(row) => {
                self.leases.insert(row.lease, row);
            }
            Change::DeleteLease(lease) => {
                self.leases.remove(&lease);
                // A request that is back in the queue still needs its description.
                if !self.places.contains_key(&lease) {
                    self.clients.remove(&lease);
                }
            }
            Change::PutWaiting(row) => {
                if let Some(earlier) = self.places.insert(row.lease, row.place) {
                    self.waiting.remove(&earlier);
                }
                self.waiting.insert(row.place, row);
            }
            Change::DeleteWaiting(lease) => {
                if let Some(place) = self.places.remove(&lease) {
                    self.waiting.remove(&place);
                }
            }
            Change::PutNode(row) => {
                self.nodes.insert(row.node, row);
            }
            Change::DeleteNode(node) => {
                self.nodes.remove(&node);
            }
            Change::PutQuota(subject, quota) => {
                self.quotas.insert(subject, quota);
            }
            Change::DeleteQuota(subject) => {
                self.quotas.remove(&subject);
            }
            Change::PutPolicy(policy) => self.policy = policy,
            Change::Epochs(_)
            | Change::PutUse(_)
            | Change::DeleteUse(..)
            | Change::PutAbsence(_)
            | Change::DeleteAbsence(_) => {}
        }
    }

    /// Records a connected node.
    pub(crate) fn connect(&mut self, joined: &Joined, link: &NodeLink) {
        let connected = Connected {
            connection: link.connection,
            devices: joined.devices.iter().map(Offered::new).collect(),
            stopping: joined.stopping,
            insecure: link.is_insecure,
            place: link.place.clone(),
            load: Arc::clone(&link.load),
        };
        self.connected.insert(joined.node, connected);
    }

    /// Records a connected node's message, as far as listings show it.
    pub(crate) fn heard(&mut self, node: NodeId, event: &Event) {
        let Some(connected) = self.connected.get_mut(&node) else {
            return;
        };
        match event {
            Event::NodeChanged { devices, .. } => {
                connected.devices = devices.iter().map(Offered::new).collect();
            }
            Event::NodeStopping { .. } => connected.stopping = true,
            _ => {}
        }
    }

    /// The user of a lease.
    pub(crate) fn user_of(&self, lease: &LeaseId) -> Option<&UserName> {
        self.leases.get(lease).map(|row| &row.user)
    }

    /// The user of a lease or waiting request.
    pub(crate) fn whose(&self, lease: &LeaseId) -> Option<&UserName> {
        let waiting = || Some(&self.waiting.get(self.places.get(lease)?)?.user);
        self.user_of(lease).or_else(waiting)
    }

    /// When a waiting request was made.
    pub(crate) fn waiting_since(&self, lease: &LeaseId) -> Option<Wall> {
        Some(self.waiting.get(self.places.get(lease)?)?.since)
    }

    /// Whether a lease or request with this id exists.
    pub(crate) fn knows(&self, lease: &LeaseId) -> bool {
        self.leases.contains_key(lease) || self.places.contains_key(lease)
    }
}
