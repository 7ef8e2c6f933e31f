//! The node's state for monitoring: `/healthz`, `/metrics`, and gRPC health.
//!
//! This module asks no worker: the workers' counters are in memory that the supervisor has mapped.
//! Invariant: metrics contain counts only and no names of users.
#![forbid(unsafe_code)]

use std::sync::Arc;

use causeway_serving::exposition::{Exposition, Kind};
use causeway_serving::watched::Watched;

use super::Supervisor;
use super::managed::Managed;

/// Serves the health check and the metrics.
#[derive(Clone)]
pub(super) struct Watch(pub(super) Arc<Supervisor>);

impl Watched for Watch {
    async fn problem(&self) -> Option<String> {
        // The drivers may have changed since the last probe.
        drop(self.0.current_inventory().await);
        self.0.look_at_health().map(str::to_owned)
    }

    async fn metrics(&self) -> Result<String, String> {
        let mut text = Exposition::new("causeway");
        self.0.tell_state(&mut text);
        self.0.tell_sessions(&mut text);
        self.0.tell_figures(&mut text);
        Ok(text.finish())
    }
}

impl Supervisor {
    /// Returns why the node opens no new sessions; `None` if it does. Notifies the subscribers of the
    /// health state if it has changed.
    pub(super) fn look_at_health(&self) -> Option<&'static str> {
        let is_draining = self.managed.as_ref().is_some_and(Managed::is_draining);
        let problem = if self.workers.counts().draining {
            Some("the node is shutting down")
        } else if is_draining {
            Some("the device manager is draining this node, so it gets no new leases")
        } else if self.settings.security.is_locked() {
            Some("the node cannot read its list of tokens, so it accepts no token; see its log")
        } else if self.devices() == 0 {
            Some("the node has no OpenCL device that could be served")
        } else {
            None
        };
        self.health.send_if_modified(|health| {
            let is_new = *health != problem;
            *health = problem;
            is_new
        });
        problem
    }

    pub(super) fn devices(&self) -> usize {
        let known = self.inventory.latest();
        known
            .inventory
            .platforms
            .iter()
            .map(|of| of.devices.len())
            .sum()
    }

    fn tell_state(&self, text: &mut Exposition) {
        text.family(Kind::Gauge, "info", "The daemon")
            .sample(&[("version", env!("CARGO_PKG_VERSION"))], 1);
        let serving = u64::from(self.look_at_health().is_none());
        text.gauge("serving", "Whether new sessions are served", serving);
        let uptime = self.started.elapsed().as_secs();
        text.gauge("uptime_seconds", "Seconds since the daemon started", uptime);
        text.gauge(
            "devices",
            "OpenCL devices of the node",
            self.devices() as u64,
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
        let limit = self.settings.sessions.limit;
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
