//! Configuration: reads files and the environment into validated [`Settings`].
//!
//! Servers come from the first of these places that has a file:
//! 1. `CAUSEWAY_CONFIG`: a `servers.toml`, a list (a name that ends in `.list`), or a directory with
//!    either.
//! 2. The working directory, but only files that the user or root owns and nobody else can write.
//! 3. The user's directory: `$XDG_CONFIG_HOME/causeway`, else `~/.config/causeway`.
//! 4. The system's directory: `/etc/causeway`.
//!
//! Each place may have a `servers.toml` and next to it a plain list, `servers.list`. `CAUSEWAY_SERVERS`
//! (`a:7079,b`) overrides the set of servers; settings of `servers.toml` for one of them still apply. For
//! all servers, `CAUSEWAY_SHARED_MEMORY` (`0` or `1`) overrides `shared_memory`, `CAUSEWAY_ISOLATED` (`0` or
//! `1`) overrides `isolated`, `CAUSEWAY_COMPRESSION` (`lz4` or `off`) overrides `compression`, and
//! `CAUSEWAY_ANSWER_LIMIT` (`30s`) overrides `answer_limit`, `CAUSEWAY_RESUME` (`0s`) `resume`, and `CAUSEWAY_RESTART` (`10min`) `restart`.
//! `CAUSEWAY_REEXECUTE` (`1`) and `CAUSEWAY_HOLD` (`client`) override `reexecute` and `hold` of [`Survival`], and
//! `CAUSEWAY_DISCOVER` (`0` or `1`) `discover`.
//! `CAUSEWAY_CA` and related variables ([`TlsSettings`]) override `[tls]`. A device manager and the request
//! to it ([`LeaseSettings`]) come from the same places. A program with more rights than its user (setuid)
//! reads place 4 only. Inside a daemon ([`causeway_proto::RECURSION_GUARD`]) there are no servers.
//!
//! This module opens no connection. Invariant: a broken entry is one [`Problem`] and only that entry is
//! dropped.

mod address;
mod discovery;
mod file;
mod leasing;
mod list;
pub mod log;
mod paper;
mod place;
pub mod rate;
pub mod remembered;
mod security;
mod survival;
mod tables;

use std::ffi::OsString;
use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

pub use address::{Address, BadAddress};
pub use causeway_managers::sought::DISCOVER;
pub use causeway_proto::span::{BadDuration, duration, wait};
pub(crate) use discovery::dialled;
pub use discovery::{DiscoverySettings, NamePattern, NotUsed};
pub use leasing::{LeaseSettings, LeaseTerms, LeaseWanted, priority};
pub use place::{link_memory, own_file};
pub use security::{FILE_VARIABLES, TlsSettings};
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::Error as UnknownName;
pub use survival::{Hold, Survival};

/// Maximum number of addresses of one server.
pub const MOST_ADDRESSES: usize = 8;

/// The validated configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The servers, in the user's order, without duplicates.
    pub servers: Vec<ServerSettings>,
    /// The files or the variable that named servers. Empty when nothing is configured.
    pub origins: Vec<String>,
    /// `resume` of all servers without their own.
    pub resume: Option<Duration>,
    /// `keep` of all servers without their own.
    pub keep: Option<Duration>,
    /// `restart` of all servers without their own.
    pub restart: Option<Duration>,
    /// Whether the program outlives the processes of its sessions.
    pub survival: Survival,
    /// Whether a kernel is assumed not to write through a pointer to `const`: `const_pointers_are_reads`.
    /// In a context of several nodes, copies of the buffer on other nodes then stay valid. A kernel that
    /// casts `const` away and writes needs `false`.
    pub const_is_read: bool,
    /// Default TLS settings, for servers that have none of their own.
    pub tls: TlsSettings,
    /// The device manager, if one is configured, even if nothing is requested from it.
    pub manager: Option<ServerSettings>,
    /// The request to the manager. Without one, the manager is not contacted.
    pub lease: Option<LeaseSettings>,
    /// Whether nodes are looked for on this host's networks: `discover`.
    pub discover: bool,
    /// Which of the nodes that are found are used, and how.
    pub discovery: DiscoverySettings,
    /// What is wrong in the configuration, one problem per line.
    pub problems: Vec<Problem>,
    // The lease settings of the files, until all files have been read.
    draft: leasing::Draft,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            servers: Vec::new(),
            origins: Vec::new(),
            resume: None,
            keep: None,
            restart: None,
            survival: Survival::default(),
            const_is_read: true,
            tls: TlsSettings::default(),
            manager: None,
            lease: None,
            discover: false,
            discovery: DiscoverySettings::default(),
            problems: Vec::new(),
            draft: leasing::Draft::default(),
        }
    }
}

/// One server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSettings {
    /// The address on which the server listens; the first one, if there are several.
    pub address: Address,
    /// Further addresses of the same server, which are ways to it over other networks. Of a device manager: the
    /// addresses of the other managers of its cluster.
    pub further: Vec<Address>,
    /// Of a device manager that is found by its name: what is looked for. `address` is then not known.
    pub sought: Option<Sought>,
    /// A display name.
    pub name: Option<String>,
    /// The connection type for commands.
    pub carrier: Carrier,
    /// Number of bulk connections, 1 to [`causeway_proto::limits::MAX_BULK_CONNECTIONS`].
    pub bulk_connections: u32,
    /// Whether large transfers use shared memory if the node is on this host.
    pub shared_memory: bool,
    /// Whether sessions ask for a worker of their own, where the node would let them share one.
    pub isolated: bool,
    /// Upper limit of large transfers, in bytes a second in each direction. `None` for no limit.
    pub pacing: Option<u64>,
    /// Compression of large transfers, in each direction.
    pub compression: Compression,
    /// Timeout for the answer of a node that has accepted the connection. A busy node takes longer than an
    /// absent one.
    pub answer_limit: Duration,
    /// How long the program waits when connections to the server break. Zero: the session ends with its connections.
    /// `None` for [`ServerSettings::DEFAULT_RESUME`].
    pub resume: Option<Duration>,
    /// How long the server is asked to keep a session while it hears nothing of the program. `None` for
    /// [`ServerSettings::DEFAULT_KEEP`], or for `resume` if that is longer.
    pub keep: Option<Duration>,
    /// How long the program waits for a server whose daemon is started anew. Zero: not at all. `None` for
    /// [`ServerSettings::DEFAULT_RESTART`], or for longer if the device manager replaces lost devices.
    pub restart: Option<Duration>,
    /// Whether the program outlives the processes of its sessions on the server. The same for all servers.
    pub survival: Survival,
    /// TLS settings: how the client verifies the server and authenticates itself.
    pub tls: TlsSettings,
}

/// A device manager whose address is found: `address = "discover"`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sought {
    /// The announced name, for which the CA must have signed the manager's certificate.
    pub name: String,
    /// Domains that DNS is asked for, too.
    pub domains: Vec<String>,
    /// Whether addresses behind routers are dialled.
    pub routed: bool,
}

/// Compression of the chunks of large transfers on a link to another machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// No compression: `compression = "off"`. A link of 10 Gbit/s is faster than a core compresses most
    /// data.
    #[default]
    Off,
    /// LZ4, as long as a transfer's bytes become smaller: `compression = "lz4"`.
    Lz4,
}

impl Compression {
    fn named(name: &str) -> Result<Compression, UnknownName> {
        Compression::deserialize(name.into_deserializer())
    }
}

/// The connection type for commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Carrier {
    /// Frames directly on a socket, written by the calling thread: `carrier = "direct"`.
    #[default]
    Direct,
    /// A gRPC stream: `carrier = "grpc"`.
    Grpc,
}

/// An error in the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file or environment variable.
    pub origin: String,
    /// The line in the file, from 1.
    pub line: Option<usize>,
    /// The message for the user.
    pub message: String,
}

impl Settings {
    /// Reads the environment and the files. Prints nothing.
    #[must_use]
    pub fn load() -> Settings {
        Settings::load_with(&[])
    }

    /// As [`Settings::load`], as if these variables were set in the environment as well. A tool passes its
    /// options this way.
    #[must_use]
    pub fn load_with(variables: &[(&str, OsString)]) -> Settings {
        place::Environment::of_process(variables)
            .map_or_else(Settings::default, |environment| environment.load())
    }

    /// The process's settings. The first call loads them and prints their problems on stderr.
    pub fn of_process() -> &'static Settings {
        static SETTINGS: OnceLock<Settings> = OnceLock::new();
        SETTINGS.get_or_init(|| {
            let settings = Settings::load();
            for problem in &settings.problems {
                crate::stderr::say(problem);
            }
            settings
        })
    }

    /// Settings for a server that the program connects, and that is not configured: those of all servers.
    #[must_use]
    pub fn connected(&self, address: Address) -> ServerSettings {
        ServerSettings {
            address,
            ..self.discovery.like.clone()
        }
    }

    /// Settings for a node that a device manager assigned, with the addresses that the manager reports. They are those
    /// of the configured server with one of these addresses, and its addresses come first. Otherwise they are those of
    /// the manager's nodes. `None` without any valid address.
    #[must_use]
    pub fn server_at(&self, reported: &[String], name: &str) -> Option<ServerSettings> {
        let reported = reported.iter().filter_map(|address| address.parse().ok());
        let addresses: Vec<Address> = reported.collect();
        let first = addresses.first()?.clone();
        let is_known = |of: &&ServerSettings| addresses.iter().any(|address| of.is_at(address));
        let mut server = match self.servers.iter().find(is_known) {
            Some(known) => known.clone(),
            None => self.assigned(first, name),
        };
        for address in addresses {
            if !server.is_at(&address) && server.further.len() + 1 < MOST_ADDRESSES {
                server.further.push(address);
                // The token is for the addresses that the user has configured.
                server.tls.token_file = None;
            }
        }
        Some(server)
    }

    // Settings for a node that is not configured.
    fn assigned(&self, address: Address, name: &str) -> ServerSettings {
        let of_all = || ServerSettings::at(address.clone());
        ServerSettings {
            name: (!name.is_empty()).then(|| name.to_owned()),
            // The token is for the manager only: a node that sees it could act as the user. The node gets
            // the signed lease instead.
            tls: TlsSettings {
                token_file: None,
                ..self.tls.clone()
            },
            address: address.clone(),
            further: Vec::new(),
            sought: None,
            ..self.manager.clone().unwrap_or_else(of_all)
        }
    }

    // Adds a server, unless one with one of its addresses exists: that is a problem.
    fn add(&mut self, server: ServerSettings, problem_at: impl FnOnce(String) -> Problem) {
        let is_known = |address: &&Address| self.servers.iter().any(|of| of.is_at(address));
        let known = server.addresses().find(is_known).cloned();
        match known {
            Some(address) => self.problems.push(problem_at(format!(
                "server {address} is configured twice; the second entry is ignored"
            ))),
            None => self.servers.push(server),
        }
    }
}

impl ServerSettings {
    /// Default number of bulk connections. Two fill links that one cannot fill. More lengthen the queue in
    /// which commands wait.
    pub const DEFAULT_BULK_CONNECTIONS: u32 = 2;

    /// Default timeout for an answer. It is long enough for a busy node and short enough not to delay the
    /// program for a silent one.
    pub const DEFAULT_ANSWER_LIMIT: Duration = Duration::from_secs(3);
    /// The default of [`ServerSettings::resume`].
    pub const DEFAULT_RESUME: Duration = Duration::from_secs(60);
    /// The default of [`ServerSettings::keep`].
    pub const DEFAULT_KEEP: Duration = Duration::from_secs(600);

    /// The default of [`ServerSettings::restart`].
    pub const DEFAULT_RESTART: Duration = Duration::from_secs(300);

    /// How long the program waits for a server whose daemon is started anew.
    #[must_use]
    pub fn restart(&self) -> Duration {
        self.restart.unwrap_or(ServerSettings::DEFAULT_RESTART)
    }

    /// How long the program waits if the device manager replaces lost devices within this time. A set `restart` wins, and
    /// the default is the longer of both.
    #[must_use]
    pub fn restart_or_replacement(&self, within: Duration) -> Duration {
        self.restart
            .unwrap_or(ServerSettings::DEFAULT_RESTART.max(within))
    }

    /// How long the program waits when connections to the server break.
    #[must_use]
    pub fn resume(&self) -> Duration {
        self.resume.unwrap_or(ServerSettings::DEFAULT_RESUME)
    }

    /// How long the server is asked to keep a session while it hears nothing of the program.
    #[must_use]
    pub fn keep(&self) -> Duration {
        self.keep
            .unwrap_or_else(|| ServerSettings::DEFAULT_KEEP.max(self.resume()))
    }

    /// All addresses of the server, in the user's order.
    pub fn addresses(&self) -> impl Iterator<Item = &Address> {
        std::iter::once(&self.address).chain(&self.further)
    }

    /// All addresses, separated by commas, as `CAUSEWAY_MANAGER` takes them.
    #[must_use]
    pub fn all_addresses(&self) -> String {
        if let Some(sought) = &self.sought {
            return format!("{DISCOVER}:{}", sought.name);
        }
        let addresses: Vec<&str> = self.addresses().map(Address::as_str).collect();
        addresses.join(",")
    }

    /// Whether this is one of the server's addresses.
    #[must_use]
    pub fn is_at(&self, address: &Address) -> bool {
        self.addresses().any(|of| of == address)
    }

    /// Default settings for a server at this address.
    #[must_use]
    pub fn at(address: Address) -> ServerSettings {
        ServerSettings {
            address,
            further: Vec::new(),
            sought: None,
            name: None,
            carrier: Carrier::default(),
            bulk_connections: ServerSettings::DEFAULT_BULK_CONNECTIONS,
            shared_memory: true,
            isolated: false,
            pacing: None,
            compression: Compression::default(),
            answer_limit: ServerSettings::DEFAULT_ANSWER_LIMIT,
            resume: None,
            keep: None,
            restart: None,
            survival: Survival::default(),
            tls: TlsSettings::default(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.origin, self.message),
            None => write!(f, "{}: {}", self.origin, self.message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_devices_are_waited_for_as_long_as_the_manager_may_take_unless_restart_is_set() {
        let mut server = ServerSettings::at("n:1".parse().unwrap());
        let [short, long] = [60, 1290].map(Duration::from_secs);
        assert_eq!(server.restart_or_replacement(long), long);
        for none_or_short in [Duration::ZERO, short] {
            let waited = server.restart_or_replacement(none_or_short);
            assert_eq!(waited, ServerSettings::DEFAULT_RESTART);
        }
        for set in [Duration::ZERO, short] {
            server.restart = Some(set);
            assert_eq!(server.restart_or_replacement(long), set);
        }
    }
}
