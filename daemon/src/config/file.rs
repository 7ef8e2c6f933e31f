//! The configuration file as it is written: shapes, no judgement.

use std::path::PathBuf;

use serde::Deserialize;
use toml::Spanned;

/// Where the file lies unless a flag names another.
pub const DEFAULT_PATH: &str = "/etc/causeway/daemon.toml";

/// The file, with what is needed to point into it.
pub type ConfigFile = causeway_serving::ConfigFile<Table>;

/// The whole file. Every key may be absent.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Addresses to listen on.
    pub listen: Option<Vec<Spanned<String>>>,
    /// Where other nodes may reach this one.
    pub advertise: Option<Vec<Spanned<String>>>,
    /// See [`Flags::insecure`](super::Flags::insecure).
    pub insecure: Option<bool>,
    /// The node's name.
    pub name: Option<String>,
    /// The log's filter.
    pub log: Option<Spanned<String>>,
    /// `text` or `json`.
    pub log_format: Option<Spanned<String>>,
    /// `[sessions]`.
    #[serde(default)]
    pub sessions: Sessions,
    /// `[connections]`.
    #[serde(default)]
    pub connections: Connections,
    /// `[heartbeat]`.
    #[serde(default)]
    pub heartbeat: Heartbeat,
    /// `[inventory]`.
    #[serde(default)]
    pub inventory: Inventory,
    /// `[sandbox]`.
    #[serde(default)]
    pub sandbox: Sandbox,
    /// `[build_cache]`.
    #[serde(default)]
    pub build_cache: BuildCache,
    /// `[tls]`.
    #[serde(default)]
    pub tls: Tls,
    /// `[auth]`.
    #[serde(default)]
    pub auth: Auth,
    /// `[manager]`.
    #[serde(default)]
    pub manager: Manager,
    /// `[[shares]]`.
    #[serde(default)]
    pub shares: Vec<Share>,
    /// `[metrics]`.
    #[serde(default)]
    pub metrics: causeway_serving::watched::Table,
}

/// Who this node is, and who signs its clients' certificates: files in PEM.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// The node's certificate, with what leads to its CA.
    pub certificate: Option<PathBuf>,
    /// Its key.
    pub key: Option<PathBuf>,
    /// The CA of clients' certificates.
    pub client_ca: Option<PathBuf>,
}

/// Who may use it.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Auth {
    /// The file of tokens' digests.
    pub tokens: Option<PathBuf>,
}

/// The device manager that gives this node out.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manager {
    /// Its addresses, `HOST` or `HOST:PORT`.
    pub address: Option<Vec<Spanned<String>>>,
    /// The CA of its certificate.
    pub ca: Option<PathBuf>,
    /// This node's token.
    pub token_file: Option<PathBuf>,
    /// This node's certificate.
    pub certificate: Option<PathBuf>,
    /// Its key.
    pub key: Option<PathBuf>,
}

/// A device that is offered as several.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// Its name, or `PLATFORM.DEVICE`.
    pub device: Spanned<String>,
    /// As so many.
    pub count: Spanned<u32>,
    /// Bytes of memory of each; the device's, divided, otherwise.
    pub memory: Option<u64>,
}

/// What clients may have.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sessions {
    /// Sessions at once.
    pub limit: Option<Spanned<u32>>,
    /// Workers kept ready.
    pub spare_workers: Option<Spanned<u32>>,
    /// Seconds for running sessions after SIGTERM.
    pub drain_limit: Option<Spanned<u32>>,
    /// Seconds from opening a session to its command connection.
    pub connect_limit: Option<Spanned<u32>>,
    /// Objects alive in one session.
    pub objects: Option<Spanned<usize>>,
    /// Commands that one session may have held.
    pub held_commands: Option<Spanned<usize>>,
    /// Bytes inside them.
    pub held_bytes: Option<Spanned<usize>>,
    /// Device memory of one session, bytes; 0: the device's own limit.
    pub device_memory: Option<u64>,
    /// Host memory of one session's process, bytes; 0: no limit.
    pub host_memory: Option<u64>,
    /// Bulk connections of one session.
    pub bulk_connections: Option<Spanned<u32>>,
    /// Sessions at once from one address.
    pub per_address: Option<Spanned<u32>>,
    /// Sessions at once of one user.
    pub per_user: Option<Spanned<u32>>,
    /// Host memory of all sessions, bytes; 0: no limit.
    pub host_memory_in_all: Option<Spanned<u64>>,
    /// Host memory of one user's sessions, bytes; 0: no limit.
    pub host_memory_per_user: Option<Spanned<u64>>,
    /// The user that sessions' processes have.
    pub user: Option<String>,
    /// The numbers of users, `FIRST-LAST`, of which each process has one.
    pub uid_range: Option<Spanned<String>>,
    /// Groups that either of them has as well.
    pub groups: Option<Vec<String>>,
}

/// What strangers may have.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Connections {
    /// Connections at once that have not yet said what they are.
    pub handshakes: Option<Spanned<usize>>,
    /// The same, from one address.
    pub handshakes_per_peer: Option<Spanned<usize>>,
    /// Milliseconds for the first bytes.
    pub handshake_time_limit_ms: Option<Spanned<u32>>,
    /// gRPC connections at once.
    pub control: Option<Spanned<usize>>,
    /// The same, from one address.
    pub control_per_peer: Option<Spanned<usize>>,
}

/// How soon a loss is noticed.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Heartbeat {
    /// Milliseconds between heartbeats.
    pub interval_ms: Option<Spanned<u32>>,
    /// Milliseconds of silence after which the other side counts as lost.
    pub limit_ms: Option<Spanned<u32>>,
}

/// How the node's devices are found out.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inventory {
    /// Seconds after which a probing worker is given up.
    pub probe_time_limit: Option<Spanned<u32>>,
}

/// What sessions' processes may reach.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sandbox {
    /// Whether there is one.
    pub enabled: Option<bool>,
    /// Whether to go on without it where drivers show devices only then.
    pub fall_back: Option<bool>,
    /// More to read and run.
    pub read: Option<Vec<Spanned<PathBuf>>>,
    /// More to write.
    pub write: Option<Vec<Spanned<PathBuf>>>,
    /// Where processes have their folders.
    pub directory: Option<Spanned<PathBuf>>,
    /// `shared` or `private`.
    pub driver_caches: Option<Spanned<String>>,
    /// TCP ports that they may connect to.
    pub connect_ports: Option<Vec<u16>>,
    /// More of the daemon's variables that they have.
    pub environment: Option<Vec<String>>,
}

/// Programs that were built before.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BuildCache {
    /// Where they are kept.
    pub directory: Option<PathBuf>,
    /// Bytes that are kept; 0: none.
    pub size: Option<u64>,
}
