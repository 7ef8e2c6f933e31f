//! The node's state for monitoring: `/healthz`, `/metrics`, and gRPC health.
//!
//! This module asks no worker: the workers' counters are in memory that the supervisor has mapped. The process that
//! reads cards is asked, and need not answer.
//! Invariant: metrics contain counts only and no names of users.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_proto::control::DeviceUse;
use causeway_security::OwnCertificate;
use causeway_serving::counts::Reasons;
use causeway_serving::exposition::{
    ConstGauge, Registry, Samples, Seconds, Total, by_reason, certificate_end,
};
use causeway_serving::watched::Watched;

use super::counts::Refusals;
use super::managed::Managed;
use super::readiness::Readiness;
use super::workers::{Counts, Workers};
use crate::accounting::DeviceName;

/// Longest time that metrics wait for the figures of cards.
const CARDS_WITHIN: Duration = Duration::from_millis(500);

/// Serves the health check and the metrics.
#[derive(Clone)]
pub(super) struct Watch {
    pub(super) readiness: Arc<Readiness>,
    pub(super) workers: Workers,
    pub(super) managed: Option<Managed>,
    /// Connections that were not served, by reason.
    pub(super) refused: Arc<Reasons>,
    /// Sessions that were not opened, by reason.
    pub(super) not_opened: Arc<Refusals>,
    pub(super) started: Instant,
    /// The daemon's own certificate, with TLS.
    pub(super) certificate: Option<OwnCertificate>,
}

impl Watched for Watch {
    async fn problem(&self) -> Option<String> {
        // The drivers may have changed since the last probe.
        drop(self.readiness.current_inventory().await);
        self.readiness.look_at_health().map(str::to_owned)
    }

    async fn metrics(&self) -> Result<Registry, String> {
        let mut registry = Registry::with_prefix("causeway");
        self.tell_state(&mut registry);
        self.tell_sessions(&mut registry);
        self.tell_figures(&mut registry);
        self.tell_busy_sessions(&mut registry);
        tell_devices(&self.readiness.uses(CARDS_WITHIN).await, &mut registry);
        Ok(registry)
    }
}

impl Watch {
    fn tell_state(&self, registry: &mut Registry) {
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        let info = Samples::from_iter([(version, ConstGauge::new(1_u64))]);
        registry.register("info", "The daemon", info);
        let serving = self.readiness.look_at_health().is_none();
        let uptime = self.started.elapsed().as_secs();
        for (name, help, value) in [
            (
                "serving",
                "Whether new sessions are served",
                u64::from(serving),
            ),
            ("uptime_seconds", "Seconds since the daemon started", uptime),
            (
                "devices",
                "OpenCL devices of the node",
                self.readiness.devices() as u64,
            ),
        ] {
            registry.register(name, help, ConstGauge::new(value));
        }
        certificate_end(self.certificate.as_ref(), registry);
        registry.register(
            "handshakes_refused_total",
            "Connections that were not served",
            by_reason(self.refused.all()),
        );
        if let Some(managed) = &self.managed {
            let (now, ever) = managed.leases();
            registry.register("leases", "Current leases on the node", ConstGauge::new(now));
            registry.register(
                "leases_served_total",
                "Leases accepted since the daemon started",
                Total(ever),
            );
            registry.register(
                "manager_joined",
                "Whether the node is connected to its device manager",
                ConstGauge::new(u64::from(managed.is_joined())),
            );
        }
    }

    fn tell_sessions(&self, registry: &mut Registry) {
        let counts = self.workers.counts();
        self.tell_workers(registry, &counts);
        let (away, resumed) = self.workers.away();
        registry.register(
            "sessions_away",
            "Open sessions that wait for their clients, whose connections have ended",
            ConstGauge::new(away as u64),
        );
        registry.register(
            "sessions_resumed_total",
            "Times that clients came back to their sessions",
            Total(resumed),
        );
        self.tell_hosts(registry);
        registry.register(
            "session_open_seconds",
            "Time from the request for a session until its worker has the client's command connection",
            self.workers.openings(),
        );
        registry.register(
            "sessions_opened_total",
            "Sessions opened",
            Total(counts.opened),
        );
        registry.register(
            "sessions_ended_total",
            "Sessions that are over",
            by_reason(self.workers.ended()),
        );
        registry.register(
            "sessions_refused_total",
            "Sessions that were requested and refused",
            by_reason(self.not_opened.all()),
        );
    }

    fn tell_workers(&self, registry: &mut Registry, counts: &Counts) {
        for (name, help, value) in [
            ("sessions", "Sessions that are open", counts.sessions as u64),
            (
                "sessions_limit",
                "Maximum number of simultaneous sessions",
                self.workers.limit().into(),
            ),
            ("workers", "Worker processes", counts.workers as u64),
            (
                "workers_spare",
                "Worker processes without a session",
                counts.spares as u64,
            ),
            (
                "workers_spare_target",
                "Worker processes without a session that the daemon keeps",
                self.workers.spare_target().into(),
            ),
            (
                "hosts",
                "Worker processes for several sessions",
                counts.hosts as u64,
            ),
            (
                "workers_stuck",
                "Worker processes that were killed and have not ended",
                counts.stuck as u64,
            ),
        ] {
            registry.register(name, help, ConstGauge::new(value));
        }
        let warm = [
            ("spare", counts.warm_in_spares),
            ("host", counts.warm_in_hosts),
            ("session", counts.warm_in_sessions),
        ];
        let warm = warm.map(|(by, count)| ([("by", by)], ConstGauge::new(count)));
        registry.register(
            "warm_contexts",
            "Contexts that were made before any session, and take memory of their devices",
            Samples::from_iter(warm),
        );
    }

    fn tell_hosts(&self, registry: &mut Registry) {
        let hosts = self.workers.hosts().into_iter();
        let hosts = hosts.map(|(worker, domain, sessions)| {
            let labels = [
                ("domain", domain.to_owned()),
                ("worker", worker.to_string()),
            ];
            (labels, ConstGauge::new(sessions as u64))
        });
        registry.register(
            "host_sessions",
            "Open sessions of each host process, by kind of domain",
            Samples::from_iter(hosts),
        );
        let domains = self.workers.sessions_by_domain().into_iter();
        let domains = domains.map(|(of, count)| ([("domain", of)], ConstGauge::new(count)));
        registry.register(
            "domain_sessions",
            "Open sessions by kind of domain; none: with a process each",
            Samples::from_iter(domains),
        );
    }

    fn tell_figures(&self, registry: &mut Registry) {
        let of = self.workers.figures();
        for (name, help, value) in [
            (
                "commands_total",
                "Commands of sessions applied",
                of.commands,
            ),
            (
                "builds_total",
                "Programs built, compiled or linked",
                of.builds,
            ),
            (
                "builds_cached_total",
                "Builds that came from the build cache instead",
                of.cached_builds,
            ),
            (
                "connections_unproved_total",
                "Connections of sessions that did not prove their secret",
                of.refused,
            ),
        ] {
            registry.register(name, help, Total(value));
        }
        let bytes = [
            ("client", "received", of.from_client),
            ("client", "sent", of.to_client),
            ("node", "received", of.from_nodes),
            ("node", "sent", of.to_nodes),
        ];
        let bytes = bytes.map(|(with, direction, count)| {
            let labels = [("with", with), ("direction", direction)];
            (labels, Total(count))
        });
        registry.register(
            "bulk_bytes_total",
            "Bytes of buffers over bulk connections",
            Samples::from_iter(bytes),
        );
    }

    fn tell_busy_sessions(&self, registry: &mut Registry) {
        let uses = self.workers.session_uses().into_iter();
        let uses = uses.map(|of| {
            let DeviceName(platform, device) = of.device;
            let labels = [
                ("session", of.session.to_string()),
                ("domain", of.domain.unwrap_or("none").to_owned()),
                ("device", format!("{platform}.{device}")),
            ];
            (labels, Seconds(of.busy))
        });
        registry.register(
            "session_busy_seconds_total",
            "Time for which an open session, by its number in the log, had commands under way on a device",
            Samples::from_iter(uses),
        );
    }
}

/// Tells the use of devices. What is unknown about all of them is left out.
fn tell_devices(uses: &[DeviceUse], registry: &mut Registry) {
    let device = |of: &DeviceUse| [("device", format!("{}.{}", of.platform, of.device))];
    let busy = uses.iter();
    let busy = busy.map(|of| (device(of), Seconds(Duration::from_nanos(of.busy_ns))));
    registry.register(
        "device_busy_seconds_total",
        "Time for which sessions had commands under way on a device",
        Samples::from_iter(busy),
    );
    let card = |of: &DeviceUse| of.card.unwrap_or_default();
    let known = |figure: &dyn Fn(&DeviceUse) -> Option<u64>| -> Vec<_> {
        let known = uses.iter();
        known
            .filter_map(|of| Some((device(of), ConstGauge::new(figure(of)?))))
            .collect()
    };
    for (name, help, samples) in [
        (
            "device_utilization_percent",
            "Part of the time in which a card was in use by any program, as NVML defines it",
            known(&|of| card(of).utilization.map(u64::from)),
        ),
        (
            "device_memory_used_bytes",
            "Memory of a card that all programs use",
            known(&|of| card(of).memory_used),
        ),
        (
            "device_memory_bytes",
            "Memory of a card",
            known(&|of| card(of).memory_total),
        ),
        (
            "device_temperature_celsius",
            "Temperature of a card's chip",
            known(&|of| card(of).temperature.map(u64::from)),
        ),
        (
            "device_context_memory_bytes",
            "Memory of a card that each process takes by itself, as measured when the daemon started",
            known(&|of| of.context_memory),
        ),
    ] {
        if !samples.is_empty() {
            registry.register(name, help, Samples::from_iter(samples));
        }
    }
}
