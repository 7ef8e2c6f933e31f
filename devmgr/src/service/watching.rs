//! Monitoring: `/healthz` and `/metrics`.
//!
//! Invariant: both contain counts and nodes' uuids only, and nothing about users or names.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use causeway_proto::metadata::Term;
use causeway_security::OwnCertificate;
use causeway_serving::counts::Reasons;
use causeway_serving::exposition::{
    ConstGauge, Histogram, Registry, Samples, Seconds, Total, by_reason, certificate_end, durations,
};
use causeway_serving::watched::Watched;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};

use super::book::{Book, Sight};
use super::connections::REASONS;
use super::input::Input;
use super::owner::Health;
use super::reading::read;
use super::surroundings::Surroundings;
use crate::etcd::Standing;
use crate::time::Span;

/// Counters since this manager began to serve.
#[derive(Debug)]
pub(crate) struct Counters {
    /// Requests for devices received.
    pub(crate) requests: AtomicU64,
    /// Leases and reservations that clients were told of.
    pub(crate) granted: AtomicU64,
    /// Leases and requests that ended, for any reason.
    pub(crate) ended: AtomicU64,
    /// Transactions of the store that failed.
    pub(crate) failed_commits: AtomicU64,
    /// Kind of the store: `etcd` or `file`.
    store: &'static str,
    /// How long the transactions that succeeded took.
    commits: Histogram,
    /// How long it took from each request until its client was told of a lease or reservation.
    grants: Histogram,
    /// How long requests were in the queue.
    waits: Histogram,
}

impl Counters {
    pub(crate) fn new(is_shared: bool) -> Counters {
        Counters {
            requests: AtomicU64::new(0),
            granted: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            failed_commits: AtomicU64::new(0),
            store: match is_shared {
                true => "etcd",
                false => "file",
            },
            commits: durations(-4, 1),
            grants: durations(-3, 5),
            waits: durations(-2, 5),
        }
    }

    pub(crate) fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a transaction that succeeded.
    pub(crate) fn commit(&self, took: Duration) {
        self.commits.observe(took.as_secs_f64());
    }

    /// Counts a request whose client is told of a lease or reservation.
    pub(crate) fn grant(&self, took: Duration) {
        self.grants.observe(took.as_secs_f64());
    }

    /// Counts a request that has left the queue.
    pub(crate) fn wait(&self, took: Duration) {
        self.waits.observe(took.as_secs_f64());
    }

    fn tell(&self, registry: &mut Registry) {
        for (name, help, counter) in [
            ("requests_total", "Requests for devices", &self.requests),
            (
                "grants_total",
                "Leases and reservations granted",
                &self.granted,
            ),
            (
                "leases_ended_total",
                "Leases and requests that are over",
                &self.ended,
            ),
            (
                "commits_failed_total",
                "Failed transactions",
                &self.failed_commits,
            ),
        ] {
            let count = counter.load(Ordering::Relaxed);
            registry.register(name, help, Total(count));
        }
        let commits = [([("store", self.store)], self.commits.clone())];
        registry.register(
            "commit_seconds",
            "Time of the transactions of the store that succeeded",
            Samples::from_iter(commits),
        );
        registry.register(
            "request_grant_seconds",
            "Time from a request until its client was told of a lease or reservation",
            self.grants.clone(),
        );
        registry.register(
            "queue_wait_seconds",
            "Time that requests were in the queue, until a lease, a refusal or their end; those served at once do not count",
            self.waits.clone(),
        );
    }
}

/// Answers `/healthz` and `/metrics`.
#[derive(Clone)]
pub(super) struct Watching {
    /// The state that is served at present. `None`: this manager stands by.
    served: Arc<Mutex<Option<ServedState>>>,
    /// About the other managers, if there are any.
    others: Option<Surroundings>,
    /// The manager's own certificate, with TLS.
    certificate: Option<OwnCertificate>,
    /// Connections that were not served, by reason.
    pub(super) refused: Arc<Reasons>,
}

/// What a serving manager shows.
#[derive(Clone)]
pub(super) struct ServedState {
    pub(super) owner: mpsc::Sender<Input>,
    pub(super) health: watch::Receiver<Health>,
    pub(super) counters: Arc<Counters>,
    pub(super) term: Term,
}

impl Watching {
    pub(super) fn new(
        others: Option<Surroundings>,
        certificate: Option<OwnCertificate>,
    ) -> Watching {
        Watching {
            served: Arc::default(),
            others,
            certificate,
            refused: Arc::new(Reasons::new(&REASONS)),
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
        let others = self.others.as_ref();
        Some(others.map_or_else(
            || "the device manager is stopping".to_owned(),
            |others| standby(&others.standing.borrow()),
        ))
    }

    async fn metrics(&self) -> Result<Registry, String> {
        let served = self.served();
        let mut registry = match &served {
            Some(served) => {
                let gauges = read(&served.owner, gauges).await;
                gauges.map_err(|status| status.message().to_owned())?
            }
            None => Registry::with_prefix("causeway_manager"),
        };
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        let info = Samples::from_iter([(version, ConstGauge::new(1_u64))]);
        registry.register("info", "The device manager", info);
        certificate_end(self.certificate.as_ref(), &mut registry);
        registry.register(
            "handshakes_refused_total",
            "Connections that were not served",
            by_reason(self.refused.all()),
        );
        if let Some(others) = &self.others {
            others.tell(&mut registry);
        }
        let term = match (&served, &self.others) {
            (Some(served), _) => served.term,
            (None, Some(others)) => others.standing.borrow().met,
            (None, None) => Term(0),
        };
        let is_serving = served.as_ref().is_some_and(|served| {
            let health = served.health.borrow();
            health.problem.is_none()
        });
        for (name, help, value) in [
            (
                "serving",
                "Whether leases can be granted",
                u64::from(is_serving),
            ),
            (
                "leader",
                "Whether this manager leads",
                u64::from(served.is_some()),
            ),
            (
                "term",
                "The term in which this manager leads, or the highest that it has met",
                term.0,
            ),
        ] {
            registry.register(name, help, ConstGauge::new(value));
        }
        if let Some(served) = &served {
            served.counters.tell(&mut registry);
        }
        Ok(registry)
    }
}

fn gauges(sight: &Sight<'_>) -> Registry {
    let book = sight.book;
    let connected = || book.connected.values();
    let devices = connected().map(|node| node.devices.len()).sum();
    let units = connected().flat_map(|node| &node.devices);
    let units = units.map(|of| usize::from(of.shares)).sum();
    // As for the devices, so that the units leased are a part of the units.
    let of_leases = || {
        let of_leases = book.leases.values().flat_map(|row| &row.units);
        of_leases.filter(|(node, _)| book.connected.contains_key(node))
    };
    let leased = of_leases().map(|(_, units)| units.len()).sum();
    let memory: u64 = connected()
        .flat_map(|node| &node.devices)
        .fold(0, |sum, of| sum.saturating_add(of.memory));
    let leased_memory = of_leases()
        .flat_map(|(_, units)| units)
        .fold(0_u64, |sum, of| sum.saturating_add(of.memory));
    let mut registry = Registry::with_prefix("causeway_manager");
    for (name, help, value) in [
        ("nodes", "Nodes that are known", book.nodes.len()),
        (
            "nodes_connected",
            "Nodes that are connected",
            book.connected.len(),
        ),
        ("devices", "Devices of connected nodes", devices),
        ("units", "Their units: devices, or shares of them", units),
        (
            "units_leased",
            "Those of these units that are in leases and reservations",
            leased,
        ),
        ("leases", "Leases and reservations", book.leases.len()),
        (
            "requests_waiting",
            "Requests in the queue",
            book.waiting.len(),
        ),
    ] {
        registry.register(name, help, ConstGauge::new(value as u64));
    }
    for (name, help, bytes) in [
        (
            "memory_bytes",
            "Memory of the devices of connected nodes",
            memory,
        ),
        (
            "memory_leased_bytes",
            "Memory of the units of connected nodes in leases and reservations",
            leased_memory,
        ),
    ] {
        registry.register(name, help, ConstGauge::new(bytes));
    }
    head(sight, &mut registry);
    by_node(book, &mut registry);
    registry
}

/// Adds how long the head of the queue waits.
fn head(sight: &Sight<'_>, registry: &mut Registry) {
    let seconds = |span: Span| ConstGauge::new(Duration::from_millis(span.0).as_secs_f64());
    let (waits, late) = match sight.manager.head() {
        Some(head) => (sight.now.wall.since(head.since), head.late),
        None => (Span(0), Span(0)),
    };
    registry.register(
        "queue_head_wait_seconds",
        "How long the request has waited that is served next; 0: none has waited for long",
        seconds(waits),
    );
    registry.register(
        "queue_head_late_seconds",
        "For how long the request that is served next should have been served, by the time limits of leases",
        seconds(late),
    );
}

/// Adds the bytes, commands and busy time of connected nodes, as of their last heartbeats. Totals count from each
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
    let busy = loads
        .iter()
        .map(|(node, load)| (node.clone(), Seconds(Duration::from_nanos(load.busy_ns))));
    registry.register(
        "node_busy_seconds_total",
        "Time for which sessions had commands under way on a node's devices, added up",
        Samples::from_iter(busy),
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
