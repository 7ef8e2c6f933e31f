//! The node's state for monitoring: `/healthz`, `/metrics`, and gRPC health.
//!
//! This module asks no worker: the workers' counters are in memory that the supervisor has mapped.
//! Invariant: metrics contain counts only and no names of users.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::Instant;

use causeway_serving::exposition::{Exposition, Kind};
use causeway_serving::watched::Watched;

use super::counts::{Reasons, Refusals};
use super::managed::Managed;
use super::readiness::Readiness;
use super::workers::Workers;

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
}

impl Watched for Watch {
    async fn problem(&self) -> Option<String> {
        // The drivers may have changed since the last probe.
        drop(self.readiness.current_inventory().await);
        self.readiness.look_at_health().map(str::to_owned)
    }

    async fn metrics(&self) -> Result<String, String> {
        let mut text = Exposition::new("causeway");
        self.tell_state(&mut text);
        self.tell_sessions(&mut text);
        self.tell_figures(&mut text);
        Ok(text.finish())
    }
}

impl Watch {
    fn tell_state(&self, text: &mut Exposition) {
        text.family(Kind::Gauge, "info", "The daemon")
            .sample(&[("version", env!("CARGO_PKG_VERSION"))], 1);
        let serving = u64::from(self.readiness.look_at_health().is_none());
        text.gauge("serving", "Whether new sessions are served", serving);
        let uptime = self.started.elapsed().as_secs();
        text.gauge("uptime_seconds", "Seconds since the daemon started", uptime);
        text.gauge(
            "devices",
            "OpenCL devices of the node",
            self.readiness.devices() as u64,
        );
        let mut refused = text.family(
            Kind::Counter,
            "handshakes_refused_total",
            "Connections that were not served",
        );
        for (reason, count) in self.refused.all() {
            refused.sample(&[("reason", reason)], count);
        }
        if let Some(managed) = &self.managed {
            let (now, ever) = managed.leases();
            text.gauge("leases", "Current leases on the node", now);
            text.counter(
                "leases_served_total",
                "Leases accepted since the daemon started",
                ever,
            );
            let joined = u64::from(managed.is_joined());
            text.gauge(
                "manager_joined",
                "Whether the node is connected to its device manager",
                joined,
            );
        }
    }

    fn tell_sessions(&self, text: &mut Exposition) {
        let counts = self.workers.counts();
        text.gauge("sessions", "Sessions that are open", counts.sessions as u64);
        let limit = self.workers.limit();
        text.gauge(
            "sessions_limit",
            "Maximum number of simultaneous sessions",
            limit.into(),
        );
        text.gauge("workers", "Worker processes", counts.workers as u64);
        text.gauge(
            "workers_spare",
            "Worker processes without a session",
            counts.spares as u64,
        );
        text.gauge(
            "workers_stuck",
            "Worker processes that were killed and have not ended",
            counts.stuck as u64,
        );
        text.counter("sessions_opened_total", "Sessions opened", counts.opened);
        let mut ended = text.family(
            Kind::Counter,
            "sessions_ended_total",
            "Sessions that are over",
        );
        for (reason, count) in self.workers.ended() {
            ended.sample(&[("reason", reason)], count);
        }
        let mut refused = text.family(
            Kind::Counter,
            "sessions_refused_total",
            "Sessions that were requested and refused",
        );
        for (reason, count) in self.not_opened.all() {
            refused.sample(&[("reason", reason)], count);
        }
    }

    fn tell_figures(&self, text: &mut Exposition) {
        let of = self.workers.figures();
        text.counter(
            "commands_total",
            "Commands of sessions applied",
            of.commands,
        );
        text.counter(
            "builds_total",
            "Programs built, compiled or linked",
            of.builds,
        );
        text.counter(
            "builds_cached_total",
            "Builds that came from the build cache instead",
            of.cached_builds,
        );
        text.counter(
            "connections_unproved_total",
            "Connections of sessions that did not prove their secret",
            of.refused,
        );
        text.family(
            Kind::Counter,
            "bulk_bytes_total",
            "Bytes of buffers over bulk connections",
        )
        .sample(
            &[("with", "client"), ("direction", "received")],
            of.from_client,
        )
        .sample(&[("with", "client"), ("direction", "sent")], of.to_client)
        .sample(
            &[("with", "node"), ("direction", "received")],
            of.from_nodes,
        )
        .sample(&[("with", "node"), ("direction", "sent")], of.to_nodes);
    }
}
