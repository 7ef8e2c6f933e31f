//! Validated settings.

use std::ffi::OsString;
use std::fmt::Display;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use causeway_proto::{DAEMON_PORT, limits};
use causeway_serving::logging::{BadLogging, Logging};
use causeway_serving::{BadAddress, BadFile, is_loopback, parse_listen};
use toml::Spanned;

use super::address::{Advertised, BadAdvertised, parse_advertised};
use super::file::{self, ConfigFile};
use super::flags::Flags;
use super::managed::{self, BadManager, ManagerSettings, ShareSettings};
use super::sandbox::{self, SandboxSettings, WorkerUser};
use super::security::{BadSecurity, Security};

/// Everything the daemon was told, checked.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where to listen; not empty.
    pub listen: Vec<SocketAddr>,
    /// Where other nodes may reach this one; empty: where it listens.
    pub advertise: Vec<Advertised>,
    /// Other interfaces than loopback may be served in the clear.
    pub insecure: bool,
    /// How the port is secured.
    pub security: Security,
    /// The node's name.
    pub name: String,
    /// What is logged and how.
    pub logging: Logging,
    /// What clients may have.
    pub sessions: SessionSettings,
    /// What strangers may have.
    pub handshakes: Handshakes,
    /// How soon a loss is noticed.
    pub heartbeat: Heartbeat,
    /// How the node's devices are found out.
    pub inventory: InventorySettings,
    /// Programs that were built before.
    pub build_cache: BuildCacheSettings,
    /// What sessions' processes may reach.
    pub sandbox: SandboxSettings,
    /// Whose they are.
    pub worker_user: WorkerUser,
    /// The device manager that gives this node out, if one does.
    pub manager: Option<ManagerSettings>,
    /// Devices that are offered as several.
    pub shares: Vec<ShareSettings>,
}

/// What clients may have.
#[derive(Clone, Copy, Debug)]
pub struct SessionSettings {
    /// Sessions at once; at least 1.
    pub limit: u32,
    /// Workers kept ready.
    pub spare_workers: u32,
    /// For running sessions after SIGTERM.
    pub drain_limit: Duration,
    /// From opening a session to its command connection.
    pub connect_limit: Duration,
    /// A session's share of the node.
    pub limits: SessionLimits,
    /// A user's, and an address'.
    pub holders: HolderLimits,
    /// Bulk connections of one session.
    pub bulk_connections: u32,
}

impl SessionSettings {
    /// Processes at once that compile for the build cache.
    pub const COMPILING: u32 = 3;
    /// Those that were killed and are inside a driver that does not let go.
    const STUCK: u32 = 4;

    /// Worker processes at once, of all kinds: one lists the devices, some compile, and spare ones whose
    /// drivers have changed end while others start.
    #[must_use]
    pub fn processes(&self) -> u32 {
        self.limit + 2 * self.spare_workers + 1 + Self::COMPILING + Self::STUCK
    }
}

/// What one address and one user may have at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HolderLimits {
    /// Sessions from one address other than this machine's own; at least 1.
    pub per_address: u32,
    /// Sessions of one user, where users are known; at least 1.
    pub per_user: u32,
    /// Host memory of all sessions, each counted with the most that it may have, bytes; 0: no limit.
    pub host_memory_in_all: u64,
    /// The same of one user's sessions.
    pub host_memory_per_user: u64,
}

impl HolderLimits {
    /// Whether there is a limit on memory.
    #[must_use]
    pub fn limits_memory(&self) -> bool {
        self.host_memory_in_all > 0 || self.host_memory_per_user > 0
    }
}

/// What one session may take of its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionLimits {
    /// Objects alive at once.
    pub objects: usize,
    /// Commands held at once because something they wait for is open.
    pub held_commands: usize,
    /// Bytes inside the commands so held.
    pub held_bytes: usize,
    /// Device memory in all, bytes; 0: the device's own limit.
    pub device_memory: u64,
    /// Host memory of the session's process in all, bytes, buffers of CPU devices included; 0: no limit.
    pub host_memory: u64,
}

/// What strangers may have.
#[derive(Clone, Copy, Debug)]
pub struct Handshakes {
    /// Connections at once that have not yet said what they are.
    pub limit: usize,
    /// The same, from one address.
    pub per_peer: usize,
    /// For the first bytes.
    pub time_limit: Duration,
    /// gRPC connections at once.
    pub control: usize,
    /// The same, from one address.
    pub control_per_peer: usize,
}

/// How soon a loss is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// Between heartbeats.
    pub interval: Duration,
    /// Silence after which the other side counts as lost; at least twice the interval.
    pub limit: Duration,
}

/// How the node's devices are found out.
#[derive(Clone, Copy, Debug)]
pub struct InventorySettings {
    /// After which a probing worker is given up, and a session's worker that is still loading OpenCL.
    pub probe_time_limit: Duration,
}

/// Programs that were built before.
#[derive(Clone, Debug)]
pub struct BuildCacheSettings {
    /// Where they are kept; `None` where the user has no place for such.
    pub folder: Option<PathBuf>,
    /// Bytes that are kept; 0: none.
    pub size: u64,
}

/// Bytes of built programs that are kept unless the settings say another number: a few thousand programs
/// of PoCL's, of 50 KiB to 500 KiB each.
const BUILD_CACHE_SIZE: u64 = 512 << 20;

/// The daemon cannot start with what it was told.
#[derive(Debug, thiserror::Error)]
pub enum BadSettings {
    /// Something in the file.
    #[error(transparent)]
    File(#[from] BadFile),
    /// `--listen`.
    #[error("--listen: {0}")]
    Listen(#[from] BadAddress),
    /// `--advertise`.
    #[error("--advertise: {0}")]
    Advertise(#[from] BadAdvertised),
    /// TLS and authentication.
    #[error(transparent)]
    Security(#[from] BadSecurity),
    /// The device manager.
    #[error(transparent)]
    Manager(#[from] BadManager),
    /// The log.
    #[error(transparent)]
    Log(#[from] BadLogging),
    /// A flag's number.
    #[error("{flag}: {problem}")]
    Flag {
        /// Which.
        flag: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// See `design.md` §10: in the clear, only this machine is served.
    #[error(
        "{0} can be reached from other machines, and there is no TLS with authentication: give it both ([tls] and [auth] in daemon.toml), listen on 127.0.0.1 (and tunnel), or say --insecure if you trust everyone who can reach it"
    )]
    Exposed(SocketAddr),
}

impl Settings {
    /// What flags and file say together; flags win.
    ///
    /// # Errors
    /// [`BadSettings`] names the first thing that is wrong, and where.
    pub fn from_flags(flags: &Flags) -> Result<Settings, BadSettings> {
        let file = match &flags.config {
            Some(path) => Some(ConfigFile::read(path)?),
            None => ConfigFile::read_if_there(std::path::Path::new(file::DEFAULT_PATH))?,
        };
        let file = match file {
            Some(file) => file,
            None => ConfigFile::parse(std::path::Path::new(file::DEFAULT_PATH), String::new())?,
        };
        Settings::combine(flags, &file)
    }

    /// [`Settings::from_flags`] with the file given.
    ///
    /// # Errors
    /// As there.
    pub fn combine(flags: &Flags, file: &ConfigFile) -> Result<Settings, BadSettings> {
        let table = &file.table;
        let insecure = flags.insecure || table.insecure.unwrap_or(false);
        let sessions = sessions(flags, file)?;
        let settings = Settings {
            listen: listen(flags, file)?,
            advertise: advertise(flags, file)?,
            insecure,
            security: Security::load(flags, file)?,
            name: flags
                .name
                .clone()
                .or_else(|| table.name.clone())
                .unwrap_or_else(host_name),
            logging: Logging::combine(
                (flags.log.as_ref(), flags.log_format),
                file,
                (&table.log, &table.log_format),
            )?,
            sessions,
            handshakes: handshakes(file)?,
            heartbeat: heartbeat(file)?,
            inventory: InventorySettings {
                probe_time_limit: Duration::from_secs(u64::from(ranged(
                    file,
                    table.inventory.probe_time_limit.as_ref(),
                    (1, 600),
                    60,
                )?)),
            },
            build_cache: build_cache(flags, file),
            sandbox: sandbox::sandbox(flags, file)?,
            worker_user: sandbox::worker_user(file, sessions.processes())?,
            manager: managed::manager(flags, file, insecure)?,
            shares: managed::shares(file)?,
        };
        for address in &settings.listen {
            settings.check_exposure(address)?;
        }
        Ok(settings)
    }

    /// Whether it is allowed to serve this address so.
    ///
    /// # Errors
    /// [`BadSettings::Exposed`] if not.
    pub fn check_exposure(&self, address: &SocketAddr) -> Result<(), BadSettings> {
        if self.insecure || !self.exposes(address) {
            Ok(())
        } else {
            Err(BadSettings::Exposed(*address))
        }
    }

    /// Whether others than this machine's users can use the node at this address without a name.
    #[must_use]
    pub fn exposes(&self, address: &SocketAddr) -> bool {
        // A managed node asks for a lease, which is a name.
        let is_secured = self.manager.is_some() && self.security.tls.is_some();
        !is_loopback(address) && !self.security.is_complete() && !is_secured
    }
}

fn listen(flags: &Flags, file: &ConfigFile) -> Result<Vec<SocketAddr>, BadSettings> {
    if !flags.listen.is_empty() {
        return Ok(flags
            .listen
            .iter()
            .map(|text| parse_listen(text, DAEMON_PORT))
            .collect::<Result<_, _>>()?);
    }
    match &file.table.listen {
        Some(list) if !list.is_empty() => list
            .iter()
            .map(|text| {
                parse_listen(text.get_ref(), DAEMON_PORT)
                    .map_err(|error| file.wrong(text, &error).into())
            })
            .collect(),
        _ => Ok(vec![SocketAddr::from(([127, 0, 0, 1], DAEMON_PORT))]),
    }
}

fn advertise(flags: &Flags, file: &ConfigFile) -> Result<Vec<Advertised>, BadSettings> {
    if !flags.advertise.is_empty() {
        let parsed = flags.advertise.iter().map(|text| parse_advertised(text));
        return Ok(parsed.collect::<Result<_, _>>()?);
    }
    let listed = file.table.advertise.iter().flatten();
    listed
        .map(|text| {
            parse_advertised(text.get_ref()).map_err(|error| file.wrong(text, &error).into())
        })
        .collect()
}

fn sessions(flags: &Flags, file: &ConfigFile) -> Result<SessionSettings, BadSettings> {
    let table = &file.table.sessions;
    let flag = |flag: &'static str, value: Option<u32>, range: (u32, u32)| match value {
        Some(n) if n < range.0 || n > range.1 => Err(BadSettings::Flag {
            flag,
            problem: out_of_range(&n, range),
        }),
        other => Ok(other),
    };
    let limit = flag("--session-limit", flags.session_limit, (1, 65_536))?;
    let spare = flag("--spare-workers", flags.spare_workers, (0, 64))?;
    let drain = flag("--drain-limit", flags.drain_limit, (0, 86_400))?;
    let from_file = (
        ranged(file, table.limit.as_ref(), (1, 65_536), 64)?,
        ranged(file, table.spare_workers.as_ref(), (0, 64), 1)?,
        ranged(file, table.drain_limit.as_ref(), (0, 86_400), 30)?,
    );
    let limit = limit.unwrap_or(from_file.0);
    Ok(SessionSettings {
        limit,
        holders: holders(file, limit)?,
        spare_workers: spare.unwrap_or(from_file.1),
        drain_limit: Duration::from_secs(u64::from(drain.unwrap_or(from_file.2))),
        connect_limit: Duration::from_secs(u64::from(ranged(
            file,
            table.connect_limit.as_ref(),
            (1, 600),
            10,
        )?)),
        limits: SessionLimits {
            objects: at_most(file, table.objects.as_ref(), limits::MAX_OBJECTS)?,
            held_commands: at_most(
                file,
                table.held_commands.as_ref(),
                limits::MAX_HELD_COMMANDS,
            )?,
            held_bytes: at_most(file, table.held_bytes.as_ref(), limits::MAX_HELD_BYTES)?,
            device_memory: table.device_memory.unwrap_or(0),
            host_memory: table.host_memory.unwrap_or(0),
        },
        bulk_connections: ranged(
            file,
            table.bulk_connections.as_ref(),
            (1, limits::MAX_BULK_CONNECTIONS),
            limits::MAX_BULK_CONNECTIONS,
        )?,
    })
}

/// Unless it is said otherwise, one leaves a quarter of the sessions to others.
fn holders(file: &ConfigFile, limit: u32) -> Result<HolderLimits, BadSettings> {
    let table = &file.table.sessions;
    let most = limit - limit / 4;
    let memory = |bytes: &Option<Spanned<u64>>| match bytes {
        Some(bytes) if *bytes.get_ref() > 0 && table.host_memory.unwrap_or(0) == 0 => {
            let message = "it takes a limit on one session's memory, host_memory";
            Err(file.wrong(bytes, &message))
        }
        bytes => Ok(bytes.as_ref().map_or(0, |bytes| *bytes.get_ref())),
    };
    Ok(HolderLimits {
        per_address: ranged(file, table.per_address.as_ref(), (1, 65_536), most)?,
        per_user: ranged(file, table.per_user.as_ref(), (1, 65_536), most)?,
        host_memory_in_all: memory(&table.host_memory_in_all)?,
        host_memory_per_user: memory(&table.host_memory_per_user)?,
    })
}

fn handshakes(file: &ConfigFile) -> Result<Handshakes, BadSettings> {
    let table = &file.table.connections;
    Ok(Handshakes {
        limit: ranged(file, table.handshakes.as_ref(), (1, 65_536), 256)?,
        per_peer: ranged(file, table.handshakes_per_peer.as_ref(), (1, 65_536), 64)?,
        time_limit: Duration::from_millis(u64::from(ranged(
            file,
            table.handshake_time_limit_ms.as_ref(),
            (100, 60_000),
            5_000,
        )?)),
        control: ranged(file, table.control.as_ref(), (1, 65_536), 1_024)?,
        control_per_peer: ranged(file, table.control_per_peer.as_ref(), (1, 65_536), 256)?,
    })
}

fn build_cache(flags: &Flags, file: &ConfigFile) -> BuildCacheSettings {
    let table = &file.table.build_cache;
    let folder = flags.build_cache_dir.as_ref().or(table.directory.as_ref());
    BuildCacheSettings {
        folder: folder
            .cloned()
            .or_else(|| cache_folder(&|name| std::env::var_os(name))),
        size: flags
            .build_cache_size
            .or(table.size)
            .unwrap_or(BUILD_CACHE_SIZE),
    }
}

/// A folder among those that systemd or the user has for caches.
fn cache_folder(variable: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let given = |name: &str| {
        variable(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    // systemd's may be a list, and is the daemon's alone.
    let own = variable("CACHE_DIRECTORY")
        .and_then(|list| std::env::split_paths(&list).next())
        .filter(|path| path.is_absolute());
    own.or_else(|| {
        given("XDG_CACHE_HOME")
            .or_else(|| given("HOME").map(|home| home.join(".cache")))
            .map(|caches| caches.join("causeway"))
    })
    .map(|own| own.join("builds"))
}

fn heartbeat(file: &ConfigFile) -> Result<Heartbeat, BadSettings> {
    let table = &file.table.heartbeat;
    let interval = ranged(file, table.interval_ms.as_ref(), (50, 60_000), 500)?;
    let limit = ranged(file, table.limit_ms.as_ref(), (200, 600_000), 4_000)?;
    if limit < 2 * interval {
        let message = format!("limit_ms ({limit}) must be at least twice interval_ms ({interval})");
        let at = table.limit_ms.as_ref().or(table.interval_ms.as_ref());
        return Err(match at {
            Some(at) => file.wrong(at, &message).into(),
            // Not reachable with the defaults above, which fit each other.
            None => BadSettings::Flag {
                flag: "heartbeat",
                problem: message,
            },
        });
    }
    Ok(Heartbeat {
        interval: Duration::from_millis(u64::from(interval)),
        limit: Duration::from_millis(u64::from(limit)),
    })
}

fn ranged<T: PartialOrd + Display + Copy>(
    file: &ConfigFile,
    value: Option<&Spanned<T>>,
    range: (T, T),
    default: T,
) -> Result<T, BadSettings> {
    match value {
        None => Ok(default),
        Some(n) if *n.get_ref() >= range.0 && *n.get_ref() <= range.1 => Ok(*n.get_ref()),
        Some(n) => Err(file.wrong(n, &out_of_range(n.get_ref(), range)).into()),
    }
}

/// A limit of the wire that the file may lower.
fn at_most(
    file: &ConfigFile,
    value: Option<&Spanned<usize>>,
    most: usize,
) -> Result<usize, BadSettings> {
    ranged(file, value, (1, most), most)
}

fn out_of_range<T: Display>(value: &T, range: (T, T)) -> String {
    format!("{value} is out of range: {} to {}", range.0, range.1)
}

fn host_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn combine(flags: &Flags, text: &str) -> Result<Settings, String> {
        ConfigFile::parse(Path::new("daemon.toml"), text.to_owned())
            .map_err(|error| error.to_string())
            .and_then(|file| Settings::combine(flags, &file).map_err(|error| error.to_string()))
    }

    #[test]
    fn the_defaults_serve_this_machine_only() {
        let settings = combine(&Flags::default(), "").unwrap();
        assert_eq!(settings.listen, ["127.0.0.1:7079".parse().unwrap()]);
        assert!(!settings.insecure && !settings.name.is_empty());
        assert_eq!(settings.sessions.spare_workers, 1);
        assert_eq!(settings.heartbeat.limit, Duration::from_secs(4));
    }

    #[test]
    fn builds_are_kept_where_caches_are() {
        let among = |set: &[(&str, &str)]| {
            let set: Vec<_> = set
                .iter()
                .map(|(n, v)| (n.to_string(), v.to_string()))
                .collect();
            cache_folder(&|name| {
                let found = set.iter().find(|(n, _)| n == name);
                found.map(|(_, value)| value.into())
            })
        };
        let systemd = ("CACHE_DIRECTORY", "/var/cache/causeway:/var/cache/more");
        let home = ("HOME", "/home/me");
        assert_eq!(
            among(&[systemd, home]),
            Some("/var/cache/causeway/builds".into())
        );
        let xdg = ("XDG_CACHE_HOME", "/tmp/caches");
        assert_eq!(
            among(&[xdg, home]),
            Some("/tmp/caches/causeway/builds".into())
        );
        assert_eq!(
            among(&[home]),
            Some("/home/me/.cache/causeway/builds".into())
        );
        assert_eq!(among(&[("HOME", "here")]), None);
        let flags = Flags {
            build_cache_size: Some(0),
            ..Flags::default()
        };
        let text = "[build_cache]\ndirectory = \"/x\"\nsize = 9\n";
        let settings = combine(&flags, text).unwrap();
        assert_eq!(settings.build_cache.folder, Some("/x".into()));
        assert_eq!(settings.build_cache.size, 0);
        let size = |text| {
            let settings = combine(&Flags::default(), text).unwrap();
            settings.build_cache.size
        };
        assert_eq!((size(text), size("")), (9, BUILD_CACHE_SIZE));
    }

    #[test]
    fn flags_win_over_the_file() {
        let flags = Flags {
            listen: vec!["[::1]:0".to_owned()],
            session_limit: Some(3),
            ..Flags::default()
        };
        let text = "listen = [\"127.0.0.1:1\"]\n[sessions]\nlimit = 9\nspare_workers = 0\n";
        let settings = combine(&flags, text).unwrap();
        assert_eq!(settings.listen, ["[::1]:0".parse().unwrap()]);
        assert_eq!(settings.sessions.limit, 3);
        assert_eq!(settings.sessions.spare_workers, 0);
    }

    #[test]
    fn what_is_wrong_is_named_with_file_and_line() {
        for (text, start) in [
            ("\nlisen = []\n", "daemon.toml:2: unknown field `lisen`"),
            (
                "[sessions]\nlimit = 0\n",
                "daemon.toml:2: 0 is out of range",
            ),
            (
                "[sessions]\n\nlimits = 1\n",
                "daemon.toml:3: unknown field `limits`",
            ),
            (
                "listen = [\"127.0.0.1:1\",\n \"here\"]\n",
                "daemon.toml:2: \"here\" is no address",
            ),
            (
                "log_format = \"xml\"",
                "daemon.toml:1: \"xml\" is no log format",
            ),
            ("log = \"x=loudly\"", "daemon.toml:1: "),
            (
                "[heartbeat]\ninterval_ms = 3000\n",
                "daemon.toml:2: limit_ms (4000) must be",
            ),
            ("name = \n", "daemon.toml:1: "),
        ] {
            let error = combine(&Flags::default(), text).unwrap_err();
            assert!(error.starts_with(start), "{text:?} gave {error:?}");
        }
    }

    #[test]
    fn other_interfaces_need_an_explicit_word() {
        for listen in ["0.0.0.0:0", "[::]:0", "192.0.2.1:7079"] {
            let mut flags = Flags {
                listen: vec![listen.to_owned()],
                ..Flags::default()
            };
            let error = combine(&flags, "").unwrap_err();
            assert!(error.contains("--insecure"), "{error}");
            flags.insecure = true;
            assert!(combine(&flags, "").is_ok());
        }
    }

    #[test]
    fn a_flag_out_of_range_is_named() {
        let flags = Flags {
            session_limit: Some(0),
            ..Flags::default()
        };
        let error = combine(&flags, "").unwrap_err();
        assert!(
            error.starts_with("--session-limit: 0 is out of range"),
            "{error}"
        );
    }
}
