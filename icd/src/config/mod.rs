//! Configuration: files and environment in, validated [`Settings`] out.
//!
//! Where servers come from, the first place that says anything counts:
//! 1. `CAUSEWAY_CONFIG`: a `servers.toml`, a list (a name ending in `.list`), or a directory of either.
//! 2. The working directory, only when the user or root owns the file and nobody else can write it.
//! 3. The user's: `$XDG_CONFIG_HOME/causeway`, else `~/.config/causeway`.
//! 4. The system's: `/etc/causeway`.
//!
//! Each place may hold a `servers.toml` and next to it a plain list, `servers.list`. `CAUSEWAY_SERVERS`
//! (`a:7079,b`) overrides which servers there are; what `servers.toml` says about one of them holds.
//! `CAUSEWAY_SHARED_MEMORY` (`0` or `1`) overrides `shared_memory` of all servers,
//! `CAUSEWAY_COMPRESSION` (`lz4` or `off`) their `compression`, `CAUSEWAY_ANSWER_LIMIT` (`30s`) their `answer_limit`.
//! `CAUSEWAY_CA` and its like ([`TlsSettings`]) override `[tls]`.
//! A device manager and what is asked of it ([`LeaseSettings`]) come beside the servers, and from the same places.
//! A program that runs with more rights than its user (setuid) listens to place 4 only. Inside a daemon
//! ([`causeway_proto::RECURSION_GUARD`]) there are no servers at all.
//!
//! What it is not: it opens no connection. Invariant: a broken entry is one [`Problem`] and costs
//! only itself; the other servers stay.

mod address;
mod file;
mod leasing;
mod list;
pub mod log;
mod paper;
mod place;
mod rate;
mod security;
mod span;

use std::ffi::OsString;
use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

pub use address::{Address, BadAddress};
use causeway_proto::limits::MAX_BULK_CONNECTIONS;
pub use leasing::{LeaseSettings, LeaseTerms, Wish, priority};
pub use security::{FILE_VARIABLES, TlsSettings};
pub use span::{BadDuration, duration};

/// Everything the user has set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The servers, in the user's order, without duplicates.
    pub servers: Vec<ServerSettings>,
    /// Where they were named: files, or `CAUSEWAY_SERVERS`. Empty when nothing is configured.
    pub origins: Vec<String>,
    /// Whether a kernel's pointer to `const` is taken to be read only, so that in a context of several
    /// nodes the buffer stays valid where else it is: `const_pointers_are_reads`. A kernel that casts `const`
    /// away and writes needs `false`.
    pub const_is_read: bool,
    /// How servers are made sure of that say nothing else.
    pub tls: TlsSettings,
    /// The device manager, whether anything is asked of it or not.
    pub manager: Option<ServerSettings>,
    /// The devices that are asked of a manager; none: it is not asked.
    pub lease: Option<LeaseSettings>,
    /// What was wrong, one clear line each.
    pub problems: Vec<Problem>,
    // What files say about leases, until all of them are read.
    draft: leasing::Draft,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            servers: Vec::new(),
            origins: Vec::new(),
            const_is_read: true,
            tls: TlsSettings::default(),
            manager: None,
            lease: None,
            problems: Vec::new(),
            draft: leasing::Draft::default(),
        }
    }
}

/// One server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSettings {
    /// Where it listens.
    pub address: Address,
    /// A name for people.
    pub name: Option<String>,
    /// What carries its commands.
    pub carrier: Carrier,
    /// How many bulk connections to open, 1 to [`MAX_BULK_CONNECTIONS`].
    pub bulk_connections: u32,
    /// Whether large transfers go through shared memory where the node is on this host.
    pub shared_memory: bool,
    /// What large transfers use of the link at most, bytes a second in each direction; `None` for as much as
    /// there is.
    pub pacing: Option<u64>,
    /// Whether large transfers are compressed, in each direction.
    pub compression: Compression,
    /// For the answer of a node that has accepted the connection: a busy one takes longer than one that is not there.
    pub answer_limit: Duration,
    /// How it is made sure of, and what it is shown.
    pub tls: TlsSettings,
}

/// Whether the chunks of large transfers are compressed on a link to another machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// They are not: `compression = "off"`. A link of 10 Gbit/s is faster than a core compresses most data.
    #[default]
    Off,
    /// By LZ4, as long as the bytes of a transfer become smaller: `compression = "lz4"`.
    Lz4,
}

impl Compression {
    // What is wrong with another name.
    fn named(name: &str) -> Result<Compression, String> {
        match name {
            "off" => Ok(Compression::Off),
            "lz4" => Ok(Compression::Lz4),
            other => Err(format!(
                "compression \"{other}\" is neither \"off\" nor \"lz4\""
            )),
        }
    }
}

/// What carries commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Carrier {
    /// Frames straight over a socket, written by the calling thread: `carrier = "direct"`.
    #[default]
    Direct,
    /// A gRPC stream: `carrier = "grpc"`.
    Grpc,
}

/// Something wrong in the configuration: where and what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// File or environment variable.
    pub origin: String,
    /// Line in the file, from 1.
    pub line: Option<usize>,
    /// What is wrong.
    pub message: String,
}

impl Settings {
    /// Reads the environment and the files; prints nothing.
    #[must_use]
    pub fn load() -> Settings {
        Settings::load_with(&[])
    }

    /// The same as if these variables were set in the environment as well: what a tool's options say.
    #[must_use]
    pub fn load_with(variables: &[(&str, OsString)]) -> Settings {
        place::Environment::of_process(variables)
            .map_or_else(Settings::default, |environment| environment.load())
    }

    /// The process's settings: loaded at the first call, which also says on stderr what was wrong.
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

    /// How a node is spoken to that a device manager names: what is written of its address holds, else what is
    /// written of the manager's nodes.
    #[must_use]
    pub fn server_at(&self, address: Address, name: &str) -> ServerSettings {
        let known = |server: &&ServerSettings| server.address == address;
        if let Some(known) = self.servers.iter().find(known) {
            return known.clone();
        }
        let of_all = || ServerSettings::at(address.clone());
        ServerSettings {
            name: (!name.is_empty()).then(|| name.to_owned()),
            // The token is for the manager: a node is shown the lease, and could use a token as if it were the user.
            tls: TlsSettings {
                token_file: None,
                ..self.tls.clone()
            },
            address: address.clone(),
            ..self.manager.clone().unwrap_or_else(of_all)
        }
    }

    // Takes a server unless one of the same address is there.
    fn add(&mut self, server: ServerSettings, problem_at: impl FnOnce(String) -> Problem) {
        if self
            .servers
            .iter()
            .any(|earlier| earlier.address == server.address)
        {
            self.problems.push(problem_at(format!(
                "server {} is named twice",
                server.address
            )));
        } else {
            self.servers.push(server);
        }
    }
}

impl ServerSettings {
    /// Two connections fill links that one does not, and more lengthen the queue that commands wait in.
    pub const DEFAULT_BULK_CONNECTIONS: u32 = 2;

    /// A silent node must not hold a program up for long, and a busy one takes longer than one that is off.
    pub const DEFAULT_ANSWER_LIMIT: Duration = Duration::from_secs(3);

    /// A server of which only the address is known.
    #[must_use]
    pub fn at(address: Address) -> ServerSettings {
        ServerSettings {
            address,
            name: None,
            carrier: Carrier::default(),
            bulk_connections: ServerSettings::DEFAULT_BULK_CONNECTIONS,
            shared_memory: true,
            pacing: None,
            compression: Compression::default(),
            answer_limit: ServerSettings::DEFAULT_ANSWER_LIMIT,
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
