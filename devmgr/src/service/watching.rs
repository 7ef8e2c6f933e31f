//! Monitoring: `/healthz` and `/metrics`.
//!
//! Invariant: both contain counts and nodes' uuids only, and nothing about users or names.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use causeway_serving::exposition::{ConstGauge, Registry, Samples, Total};
use causeway_serving::watched::Watched;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};

use super::book::Book;
use super::input::Input;
use super::owner::Health;
use super::reading::read;
use crate::etcd::Standing;

/// Counters since the start.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Requests for devices received.
    pub(crate) requests: AtomicU64,
    /// Leases and reservations that clients were told of.
    pub(crate) granted: AtomicU64,
    /// Leases and requests that ended, for any reason.
    pub(crate) ended: AtomicU64,
    /// Transactions of the store that succeeded.
    pub(crate) commits: AtomicU64,
    /// Microseconds that these took.
    pub(crate) commit_us: AtomicU64,
    /// Transactions of the store that failed.
    pub(crate) failed_commits: AtomicU64,
}

impl Counters {
    pub(crate) fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a transaction that succeeded.
    pub(crate) fn commit(&self, took: Duration) {
        Self::count(&self.commits);
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.commit_us.fetch_add(took, Ordering::Relaxed);
    }
}

/// Answers `/healthz` and `/metrics`.
#[derive(Clone)]
pub(super) struct Watching {
    /// The state that is served at present. `None`: this manager stands by.
    served: Arc<Mutex<Option<ServedState>>>,
    /// About the other managers, if there are any.
    standing: Option<watch::Receiver<Standing>>,
}

/// What a serving manager shows.
#[derive(Clone)]
pub(super) struct ServedState {
    pub(super) owner: mpsc::Sender<Input>,
    pub(super) health: watch::Receiver<Health>,
    pub(super) counters: Arc<Counters>,
}

impl Watching {
    pub(super) fn new(standing: Option<watch::Receiver<Standing>>) -> Watching {
        Watching {
            served: Arc::default(),
            standing,
        }
    }

    /// Shows another state, or none, from now on.
    pub(super) fn set(&self, served: Option<ServedState>) {
        *self.served.lock() = served;
    }

    fn served(&self) -> Option<ServedState> {
        self.served.lock().clone()
    }
}

/// Why a standby does not serve.
pub(super) fn standby(standing: &Standing) -> String {
    let leader = match &standing.leader {
        Some(leader) => format!("standby; the leader is {leader}"),
        None => "standby; no manager leads at present".to_owned(),
    };
    match &standing.problem {
        Some(problem) => format!("{leader} ({problem})"),
        None => leader,
    }
}

impl Watched for Watching {
    async fn problem(&self) -> Option<String> {
        if let Some(served) = self.served() {
            let health = served.health.borrow();
            return health.problem.as_ref().map(ToString::to_string);
        }
        let standing = self.standing.as_ref();
        Some(standing.map_or_else(
            || "the device manager is stopping".to_owned(),
            |standing| standby(&standing.borrow()),
        ))
    }

    async fn metrics(&self) -> Result<Registry, String> {
        let Some(served) = self.served() else {
            let mut registry = Registry::with_prefix("causeway_manager");
            let serving = ConstGauge::new(0_u64);
            registry.register("serving", "Whether leases can be granted", serving);
            return Ok(registry);
        };
        let gauges = read(&served.owner, |sight| gauges(sight.book)).await;
        let mut registry = gauges.map_err(|status| status.message().to_owned())?;
        let is_serving = served.health.borrow().problem.is_none();
        let help = "Whether leases can be granted";
        registry.register("serving", help, ConstGauge::new(u64::from(is_serving)));
        let counters = &served.counters;
        for (name, help, counter) in [
            ("requests_total", "Requests for devices", &counters.requests),
            (
                "grants_total",
                "Leases and reservations granted",
                &counters.granted,
            ),
            (
                "leases_ended_total",
                "Leases and requests that are over",
                &counters.ended,
            ),
            (
                "commits_total",
                "Transactions of the store",
                &counters.commits,
            ),
            (
                "commit_microseconds_total",
                "Time of these transactions",
                &counters.commit_us,
            ),
            (
                "commits_failed_total",
                "Failed transactions",
                &counters.failed_commits,
            ),
        ] {
            let count = counter.load(Ordering::Relaxed);
            registry.register(name, help, Total(count));
        }
        Ok(registry)
    }
}

fn gauges(book: &Book) -> Registry {
    let connected = || book.connected.values();
    let devices = connected().map(|node| node.devices.len()).sum();
    let units = connected().flat_map(|node| &node.devices);
    let units = units.map(|of| usize::from(of.shares)).sum();
    let leased = book.leases.values().flat_map(|row| &row.units);
    let leased = leased.map(|(_, units)| units.len()).sum();
    let mut registry = Registry::with_prefix("causeway_manager");
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    let info = Samples::from_iter([(version, ConstGauge::new(1_u64))]);
    registry.register("info", "The device manager", info);
    for (name, help, value) in [
        ("nodes", "Nodes that are known", book.nodes.len()),
        (
            "nodes_connected",
            "Nodes that are connected",
            book.connected.len(),
        ),
        ("devices", "Devices of connected nodes", devices),
        ("units", "Their units: devices, or shares of them", units),
        ("units_leased", "Units in leases and reservations", leased),
        ("leases", "Leases and reservations", book.leases.len()),
        (
            "requests_waiting",
            "Requests in the queue",
            book.waiting.len(),
        ),
    ] {
        registry.register(name, help, ConstGauge::new(value as u64));
    }
    by_node(book, &mut registry);
    registry
}

/// Adds the bytes and commands of connected nodes, as of their last heartbeats. Totals count from each
/// daemon's start.
fn by_node(book: &Book, registry: &mut Registry) {
    let loads = book.connected.iter();
    let loads: Vec<_> = loads
        .map(|(node, connected)| ([("node", node.to_string())], connected.load.whole()))
        .collect();
    let bytes = loads
        .iter()
        .map(|(node, load)| (node.clone(), Total(load.bytes)));
    registry.register(
        "node_bytes_total",
        "Bytes that a node's sessions have moved over bulk connections",
        Samples::from_iter(bytes),
    );
    let commands = loads
        .iter()
        .map(|(node, load)| (node.clone(), Total(load.commands)));
    registry.register(
        "node_commands_total",
        "Commands that a node's sessions have run",
        Samples::from_iter(commands),
    );
    let sessions = loads
        .into_iter()
        .map(|(node, load)| (node, ConstGauge::new(u64::from(load.sessions))));
    registry.register(
        "node_sessions",
        "Sessions that are open on a node",
        Samples::from_iter(sessions),
    );
}
