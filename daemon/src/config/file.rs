//! The configuration file in raw form: types only, no validation.

use std::path::PathBuf;
use std::time::Duration;

use causeway_proto::limits;
use causeway_proto::settings::Within;
use causeway_proto::span;
use causeway_serving::logging::Format;
use causeway_serving::settings::{HeartbeatTable, TlsTable};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::sandbox::DriverCaches;
use super::sharing::Together;
use super::size::Size;
use super::warm::WarmDevices;

/// Path of the file if no flag names another.
pub const DEFAULT_PATH: &str = "/etc/causeway/daemon.toml";

/// The parsed file, with its text for error positions.
pub type ConfigFile = causeway_serving::ConfigFile<Table>;

/// Maximum number of simultaneous sessions.
pub type SessionLimit = Within<u32, 1, 65_536>;
/// Number of spare workers.
pub type SpareWorkers = Within<u32, 0, 64>;
/// Seconds that running sessions may continue after SIGTERM.
pub type DrainLimit = Within<u32, 0, 86_400>;
/// Seconds for which a session waits for a client that is away.
pub type ResumeLimit = Within<u32, 0, 86_400>;

/// A limit that the file may lower only.
pub type UpTo<const MOST: u64> = Within<usize, 1, MOST>;

/// The whole file. Every key is optional.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Addresses to listen on.
    pub listen: Option<Vec<Spanned<String>>>,
    /// Addresses at which other nodes can reach this one.
    pub advertise: Option<Vec<Spanned<String>>>,
    /// Whether interfaces other than loopback may be served without TLS and authentication.
    pub insecure: Option<bool>,
    /// Name of the node.
    pub name: Option<String>,
    /// Log filter.
    pub log: Option<Spanned<String>>,
    /// Log format.
    pub log_format: Option<Format>,
    /// `[sessions]`.
    #[serde(default)]
    pub sessions: Sessions,
    /// `[connections]`.
    #[serde(default)]
    pub connections: Connections,
    /// `[heartbeat]`.
    #[serde(default)]
    pub heartbeat: HeartbeatTable<200>,
    /// `[inventory]`.
    #[serde(default)]
    pub inventory: Inventory,
    /// `[sharing]`.
    #[serde(default)]
    pub sharing: Sharing,
    /// `[sandbox]`.
    #[serde(default)]
    pub sandbox: Sandbox,
    /// `[build_cache]`.
    #[serde(default)]
    pub build_cache: BuildCache,
    /// `[survival]`.
    #[serde(default)]
    pub survival: Survival,
    /// `[discovery]`.
    #[serde(default)]
    pub discovery: Discovery,
    /// `[links]`.
    #[serde(default)]
    pub links: Links,
    /// `[tls]`.
    #[serde(default)]
    pub tls: TlsTable,
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

/// The `[discovery]` table: how clients find this node.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Discovery {
    /// Whether the node announces itself on its networks.
    pub announce: Option<bool>,
    /// Interfaces on which it does; default: all.
    pub interfaces: Option<Vec<String>>,
}

/// The `[links]` table: measuring the ways to other nodes.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Links {
    /// Users who may measure while sessions move data.
    #[serde(default)]
    pub administrators: Vec<String>,
}

/// The `[auth]` table: which users are admitted.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Auth {
    /// File with the hashes of tokens.
    pub tokens: Option<PathBuf>,
}

/// The `[manager]` table: the device manager of this node.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manager {
    /// Addresses of the manager, `HOST` or `HOST:PORT`; or `discover`.
    pub address: Option<Spanned<Addresses>>,
    /// The announced name of the manager, with `discover`.
    pub name: Option<String>,
    /// CA of the manager's certificate.
    pub ca: Option<PathBuf>,
    /// File with this node's token for the manager.
    pub token_file: Option<PathBuf>,
    /// This node's certificate for the manager.
    pub certificate: Option<PathBuf>,
    /// The certificate's private key.
    pub key: Option<PathBuf>,
}

/// One address, or a list.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "an address or a list of addresses")]
pub enum Addresses {
    /// `address = "manager"`.
    One(String),
    /// `address = ["manager1", "manager2"]`.
    Several(Vec<String>),
}

impl Addresses {
    /// All addresses.
    #[must_use]
    pub fn all(&self) -> &[String] {
        match self {
            Addresses::One(one) => std::slice::from_ref(one),
            Addresses::Several(all) => all,
        }
    }
}

/// A `[[shares]]` entry: a device that is offered in several shares.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// Name of the device, or `PLATFORM.DEVICE` by index.
    pub device: Spanned<String>,
    /// Number of shares that the device is offered as.
    pub count: Within<u32, 1, 1024>,
    /// Memory of each share in bytes. By default, the device's memory is divided equally.
    pub memory: Option<u64>,
    /// Part of the device's time for each share, in percent: a number, or a list with one for each share.
    pub time: Option<Spanned<Times>>,
    /// Whether shares get no more time even if nobody else wants the device.
    #[serde(default)]
    pub strict: bool,
    /// Whose sessions on these shares may have one host process; default: as in `[sharing]`.
    pub together: Option<Together>,
}

/// Parts of a device's time, in percent.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Times {
    /// One part that every share gets.
    Each(u32),
    /// A part for each share, in their order.
    List(Vec<u32>),
}

/// The `[sharing]` table: which sessions may have one host process.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sharing {
    /// Whose sessions may have one host process.
    pub together: Option<Together>,
    /// Drivers whose sessions get a process each.
    pub except: Option<Vec<Spanned<String>>>,
    /// Time for which a host process without sessions is kept.
    #[serde(default, deserialize_with = "duration")]
    pub host_idle: Option<Duration>,
}

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(deserializer)?;
    span::duration(&text).map(Some).map_err(D::Error::custom)
}

/// The `[sessions]` table: limits on sessions.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sessions {
    /// Maximum number of simultaneous sessions.
    pub limit: Option<SessionLimit>,
    /// Number of spare workers.
    pub spare_workers: Option<SpareWorkers>,
    /// Devices on which spare workers and hosts keep a context ready.
    pub warm: Option<WarmDevices>,
    /// Seconds that running sessions may continue after SIGTERM.
    pub drain_limit: Option<DrainLimit>,
    /// Seconds for which a session waits for a client that is away, at most.
    pub resume_limit: Option<ResumeLimit>,
    /// Seconds between the opening of a session and its command connection.
    pub connect_limit: Option<Within<u32, 1, 600>>,
    /// Maximum number of live objects in one session.
    pub objects: Option<UpTo<{ limits::MAX_OBJECTS as u64 }>>,
    /// Maximum number of one session's commands that wait in its worker.
    pub held_commands: Option<UpTo<{ limits::MAX_HELD_COMMANDS as u64 }>>,
    /// Maximum total size of these commands, in bytes.
    pub held_bytes: Option<UpTo<{ limits::MAX_HELD_BYTES as u64 }>>,
    /// Device memory of one session in bytes; 0: the device's own limit.
    pub device_memory: Option<u64>,
    /// Host memory of one session's process in bytes; 0: no limit.
    pub host_memory: Option<u64>,
    /// Maximum number of bulk connections of one session.
    pub bulk_connections: Option<Within<u32, 1, { limits::MAX_BULK_CONNECTIONS as u64 }>>,
    /// Maximum number of simultaneous sessions from one address.
    pub per_address: Option<SessionLimit>,
    /// Maximum number of simultaneous sessions of one user.
    pub per_user: Option<SessionLimit>,
    /// Host memory of all sessions together in bytes; 0: no limit.
    pub host_memory_in_all: Option<Spanned<u64>>,
    /// Host memory of one user's sessions together in bytes; 0: no limit.
    pub host_memory_per_user: Option<Spanned<u64>>,
    /// User that the sessions' processes run as.
    pub user: Option<String>,
    /// Range of user ids, `FIRST-LAST`, of which each process gets one.
    pub uid_range: Option<Spanned<String>>,
    /// Supplementary groups of these users.
    pub groups: Option<Vec<String>>,
}

/// The `[connections]` table: limits on connections.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Connections {
    /// Maximum number of simultaneous connections that have not yet shown what they are.
    pub handshakes: Option<UpTo<65_536>>,
    /// Maximum number of such connections of one address.
    pub handshakes_per_peer: Option<UpTo<65_536>>,
    /// Milliseconds for the first bytes.
    pub handshake_time_limit_ms: Option<Within<u32, 100, 60_000>>,
    /// Maximum number of simultaneous gRPC connections.
    pub control: Option<UpTo<65_536>>,
    /// Maximum number of gRPC connections of one address.
    pub control_per_peer: Option<UpTo<65_536>>,
}

/// The `[inventory]` table: how the node's devices are listed.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inventory {
    /// Seconds after which a probing worker is killed.
    pub probe_time_limit: Option<Within<u32, 1, 600>>,
}

/// The `[sandbox]` table: resources that the sessions' processes can reach.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sandbox {
    /// Whether the sandbox is enabled.
    pub enabled: Option<bool>,
    /// Whether to run without the sandbox if drivers show devices only without it.
    pub fall_back: Option<bool>,
    /// Further paths to read and execute.
    pub read: Option<Vec<Spanned<PathBuf>>>,
    /// Further paths to write.
    pub write: Option<Vec<Spanned<PathBuf>>>,
    /// Directory in which the processes' folders are made.
    pub directory: Option<Spanned<PathBuf>>,
    /// Drivers' caches.
    pub driver_caches: Option<DriverCaches>,
    /// TCP ports that the processes may connect to.
    pub connect_ports: Option<Vec<u16>>,
    /// Further environment variables of the daemon that the processes inherit.
    pub environment: Option<Vec<String>>,
}

/// The `[survival]` table: what survives the end of the daemon, or of a session's process.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Survival {
    /// Directory for the sessions that a daemon which ends parks for the next one.
    pub directory: Option<PathBuf>,
    /// Maximum size of the checkpoint of one session, in memory; 0: no checkpoints.
    pub held: Option<Size>,
    /// Memory for the checkpoints of one user's sessions together; 0: no limit.
    pub held_per_user: Option<Spanned<Size>>,
}

/// The `[build_cache]` table.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BuildCache {
    /// Directory of the cache.
    pub directory: Option<PathBuf>,
    /// Maximum size in bytes; 0: no cache.
    pub size: Option<u64>,
}
