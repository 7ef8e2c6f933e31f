//! Seen from outside, for those who watch machines: `/healthz` and `/metrics` over plain HTTP/1, and gRPC's
//! health service.
//!
//! What it is not: a web server; one request a connection, answered and closed. Invariant: nothing of users
//! is in it, only counts: it asks nobody who he is.

use std::fmt::Write;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use causeway_proto::manager::leases_server;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};

use super::book::Book;
use super::input::Input;
use super::owner::Health;
use super::read;

/// How such a connection begins.
pub(super) const FIRST_BYTE: u8 = b'G';
/// A request's head is shorter.
const MAX_HEAD: usize = 8 << 10;

/// What is counted.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Requests for devices that came.
    pub(crate) requests: AtomicU64,
    /// Leases and reservations that clients were told of.
    pub(crate) granted: AtomicU64,
    /// Leases that ended, for whatever reason.
    pub(crate) ended: AtomicU64,
    /// Transactions of the store.
    pub(crate) commits: AtomicU64,
    /// Those that failed.
    pub(crate) failed_commits: AtomicU64,
}

impl Counters {
    pub(crate) fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// See the module.
#[derive(Clone)]
pub(super) struct Watching {
    pub(super) owner: mpsc::Sender<Input>,
    pub(super) health: watch::Receiver<Health>,
    pub(super) counters: Arc<Counters>,
}

impl Watching {
    /// Answers the one request of a connection; the caller limits the time.
    pub(super) async fn answer(&self, mut socket: TcpStream) -> io::Result<()> {
        let mut head = Vec::new();
        while !head.windows(4).any(|end| end == b"\r\n\r\n") {
            let room = MAX_HEAD - head.len();
            let got = (&mut socket).take(room as u64).read_buf(&mut head).await?;
            if got == 0 {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        let head = String::from_utf8_lossy(&head);
        let path = head
            .strip_prefix("GET ")
            .and_then(|rest| rest.split(' ').next());
        let (status, body) = match path {
            Some("/healthz") => self.health(),
            Some("/metrics") => self.metrics().await,
            _ => (
                "404 Not Found",
                "there are /healthz and /metrics\n".to_owned(),
            ),
        };
        let answer = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        socket.write_all(answer.as_bytes()).await?;
        socket.shutdown().await
    }

    /// gRPC's health service, which follows.
    pub(super) fn grpc(&self) -> HealthServer<HealthService> {
        let reporter = HealthReporter::new();
        let service = HealthService::from_health_reporter(reporter.clone());
        let mut health = self.health.clone();
        tokio::spawn(async move {
            loop {
                let is_serving = health.borrow_and_update().problem.is_none();
                let status = if is_serving {
                    ServingStatus::Serving
                } else {
                    ServingStatus::NotServing
                };
                for name in ["", leases_server::SERVICE_NAME] {
                    reporter.set_service_status(name, status).await;
                }
                if health.changed().await.is_err() {
                    return;
                }
            }
        });
        HealthServer::new(service)
    }

    fn health(&self) -> (&'static str, String) {
        match &self.health.borrow().problem {
            None => ("200 OK", "ok\n".to_owned()),
            Some(problem) => ("503 Service Unavailable", format!("{problem}\n")),
        }
    }

    async fn metrics(&self) -> (&'static str, String) {
        let Ok(mut text) = read(&self.owner, |sight| gauges(sight.book)).await else {
            let text = "the device manager is stopping\n".to_owned();
            return ("503 Service Unavailable", text);
        };
        let is_serving = self.health.borrow().problem.is_none();
        let help = "Whether leases can be granted";
        line(&mut text, "serving", "gauge", help, u64::from(is_serving));
        let counters = &self.counters;
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
                "commits_failed_total",
                "Failed transactions",
                &counters.failed_commits,
            ),
        ] {
            let value = counter.load(Ordering::Relaxed);
            line(&mut text, name, "counter", help, value);
        }
        ("200 OK", text)
    }
}

fn gauges(book: &Book) -> String {
    let connected = || book.connected.values();
    let devices = connected().map(|node| node.devices.len()).sum();
    let units = connected().flat_map(|node| &node.devices);
    let units = units.map(|of| usize::from(of.shares)).sum();
    let leased = book.leases.values().flat_map(|row| &row.units);
    let leased = leased.map(|(_, units)| units.len()).sum();
    let mut text = String::new();
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
        line(&mut text, name, "gauge", help, value as u64);
    }
    text
}

fn line(text: &mut String, name: &str, kind: &str, help: &str, value: u64) {
    // To a string it cannot fail.
    let _ = write!(
        text,
        "# HELP causeway_manager_{name} {help}.\n# TYPE causeway_manager_{name} {kind}\ncauseway_manager_{name} {value}\n"
    );
}
