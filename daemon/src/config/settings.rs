//! Validated settings, combined from command line and configuration file.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use causeway_announcer::{AnnounceSettings, BadAnnounce, host_name};
use causeway_proto::DAEMON_PORT;
use causeway_proto::settings::Within;
use causeway_serving::admission::Admission;
use causeway_serving::logging::{BadLogging, Logging};
use causeway_serving::watched;
use causeway_serving::{BadAddress, BadFile, is_loopback, parse_listen};

use super::address::{Advertised, BadAdvertised, parse_advertised};
use super::build_cache::{self, BuildCacheSettings};
use super::discovery;
use super::file::{ConfigFile, Connections, DEFAULT_PATH};
use super::flags::Flags;
use super::managed::{self, BadManager, ManagerSettings, ShareSettings};
use super::sandbox::{self, SandboxSettings, WorkerUser};
use super::security::{BadSecurity, Security};
use super::sessions::{self, SessionSettings};
use super::sharing::{self, SharingSettings};
use super::warm::WarmDevices;

/// All settings of the daemon.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Addresses to listen on; empty only if there are `sockets`.
    pub listen: Vec<SocketAddr>,
    /// Unix sockets to listen on.
    pub sockets: Vec<PathBuf>,
    /// Whether the daemon serves only one program on its own machine, and ends when standard input does.
    pub private: bool,
    /// Folder in which the node's identity is stored; `None` if the user has no state directory.
    pub state: Option<PathBuf>,
    /// Addresses at which other nodes can reach this one; empty: the addresses it listens on.
    pub advertise: Vec<Advertised>,
    /// How the node announces itself; `None`: not at all.
    pub announce: Option<AnnounceSettings>,
    /// Users who may measure links while sessions move data.
    pub link_administrators: Vec<String>,
    /// Whether interfaces other than loopback may be served without TLS and authentication.
    pub insecure: bool,
    /// TLS and authentication.
    pub security: Security,
    /// Name of the node.
    pub name: String,
    /// What is logged, and in which format.
    pub logging: Logging,
    /// Limits on sessions.
    pub sessions: SessionSettings,
    /// Devices on which spare workers and hosts keep a context ready.
    pub warm: WarmDevices,
    /// Limits on connections.
    pub handshakes: Handshakes,
    /// When a peer counts as lost.
    pub heartbeat: Heartbeat,
    /// How the node's devices are listed.
    pub inventory: InventorySettings,
    /// Directory for parked sessions; `None`: sessions end with the daemon.
    pub parked: Option<PathBuf>,
    /// The build cache.
    pub build_cache: BuildCacheSettings,
    /// Which sessions may have one host process.
    pub sharing: SharingSettings,
    /// The sandbox of sessions' processes.
    pub sandbox: SandboxSettings,
    /// User that the sessions' processes run as.
    pub worker_user: WorkerUser,
    /// The device manager, in managed mode.
    pub manager: Option<ManagerSettings>,
    /// Devices that are offered in several shares.
    pub shares: Vec<ShareSettings>,
    /// Address of `/metrics` and `/healthz`, if they are served.
    pub metrics: Option<SocketAddr>,
}

/// Limits on connections that have not been assigned to a session.
#[derive(Clone, Copy, Debug)]
pub struct Handshakes {
    /// Maximum number of simultaneous connections that have not yet shown what they are.
    pub limit: usize,
    /// Maximum number of such connections of one address.
    pub per_peer: usize,
    /// Time limit for the first bytes and a TLS handshake. The same time applies again to a credential.
    pub time_limit: Duration,
    /// Maximum number of simultaneous gRPC connections; separately for unidentified callers and for others.
    pub control: usize,
    /// Maximum number of gRPC connections of one address.
    pub control_per_peer: usize,
}

impl Handshakes {
    /// Makes the admission of gRPC connections.
    pub(crate) fn control(&self) -> Admission {
        Admission::new(self.control, self.control_per_peer)
    }
}

/// When a peer counts as lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// Time between heartbeats.
    pub interval: Duration,
    /// Silence after which the peer counts as lost; at least twice the interval.
    pub limit: Duration,
}

/// How the node's devices are listed.
#[derive(Clone, Copy, Debug)]
pub struct InventorySettings {
    /// Time limit for a probing worker, and for a session's worker to load OpenCL.
    pub probe_time_limit: Duration,
}

/// Prefix of a Unix socket's path in a listen address.
const UNIX: &str = "unix:";
/// Maximum length of a Unix socket's path, in bytes.
const LONGEST_SOCKET_PATH: usize = 107;
/// Default port of `/metrics`.
const METRICS_PORT: u16 = 9079;
/// The settings are invalid.
#[derive(Debug, thiserror::Error)]
pub enum BadSettings {
    /// An error in the file.
    #[error(transparent)]
    File(#[from] BadFile),
    /// An invalid address in `--listen`.
    #[error("--listen: {0}")]
    Listen(#[from] BadAddress),
    /// An invalid address in `--advertise`.
    #[error("--advertise: {0}")]
    Advertise(#[from] BadAdvertised),
    /// Invalid settings of TLS or authentication.
    #[error(transparent)]
    Security(#[from] BadSecurity),
    /// Invalid settings of the announcement.
    #[error(transparent)]
    Announce(#[from] BadAnnounce),
    /// Invalid settings of the device manager.
    #[error(transparent)]
    Manager(#[from] BadManager),
    /// Invalid settings of the log.
    #[error(transparent)]
    Log(#[from] BadLogging),
    /// The address is reachable from other machines without TLS and authentication, and `insecure` is not
    /// set.
    #[error(
        "address {0} is reachable from other machines without TLS and authentication; configure both ([tls] and [auth] \
         in daemon.toml), listen on 127.0.0.1 and use a tunnel, or use --insecure if you trust everyone who can reach \
         it"
    )]
    Exposed(SocketAddr),
    /// The metrics' address is reachable from other machines without TLS, and `insecure` is not set.
    #[error(
        "/metrics at {0} is reachable from other machines without TLS; configure [tls] in daemon.toml, listen on \
         127.0.0.1, or use --insecure"
    )]
    ExposedMetrics(SocketAddr),
}

impl Settings {
    /// Reads the configuration file and combines it with the flags; flags take precedence.
    ///
    /// # Errors
    /// [`BadSettings`] describes the first error and its position.
    pub fn from_flags(flags: &Flags) -> Result<Settings, BadSettings> {
        let file = ConfigFile::load(flags.server.config.as_deref(), DEFAULT_PATH.as_ref())?;
        Settings::combine(flags, &file)
    }

    /// Combines the flags with a configuration file that is already parsed.
    ///
    /// # Errors
    /// As [`Settings::from_flags`].
    pub fn combine(flags: &Flags, file: &ConfigFile) -> Result<Settings, BadSettings> {
        let table = &file.table;
        let insecure = flags.server.insecure || table.insecure.unwrap_or(false);
        let sessions = sessions::sessions(flags, file)?;
        let (listen, sockets) = listen(flags, file)?;
        let security = Security::load(flags, file)?;
        let announce = discovery::announce(flags, file, &security)?;
        let manager = managed::manager(flags, file, insecure)?;
        let seeks = manager.as_ref().is_some_and(|of| of.sought.is_some());
        let processes = sessions.processes(u32::from(announce.is_some()) + u32::from(seeks));
        let settings = Settings {
            listen,
            sockets,
            private: flags.private,
            state: managed::state_folder(&|name| std::env::var_os(name)),
            advertise: advertise(flags, file)?,
            announce,
            link_administrators: table.links.administrators.clone(),
            insecure,
            security,
            name: flags
                .name
                .clone()
                .or_else(|| table.name.clone())
                .unwrap_or_else(host_name),
            logging: Logging::combine(&flags.server, file, (table.log.as_ref(), table.log_format))?,
            sessions,
            warm: table.sessions.warm.clone().unwrap_or_default(),
            handshakes: handshakes(&table.connections),
            heartbeat: heartbeat(file)?,
            inventory: InventorySettings {
                probe_time_limit: Duration::from_secs(u64::from(
                    table.inventory.probe_time_limit.map_or(60, Within::get),
                )),
            },
            parked: (flags.survival_dir.as_ref())
                .or(table.survival.directory.as_ref())
                .cloned(),
            build_cache: build_cache::build_cache(flags, file),
            sharing: sharing::sharing(flags, file)?,
            sandbox: sandbox::sandbox(flags, file)?,
            worker_user: sandbox::worker_user(file, processes)?,
            manager,
            shares: managed::shares(file)?,
            metrics: watched::address::<_, BadSettings>(
                flags.server.metrics.as_ref(),
                file,
                &table.metrics,
                METRICS_PORT,
            )?,
        };
        for address in &settings.listen {
            settings.check_exposure(address)?;
        }
        match settings.metrics {
            Some(at) if !is_loopback(&at) && settings.security.tls.is_none() && !insecure => {
                Err(BadSettings::ExposedMetrics(at))
            }
            _ => Ok(settings),
        }
    }

    /// Checks whether the settings allow to serve this address.
    ///
    /// # Errors
    /// [`BadSettings::Exposed`] if they do not.
    pub fn check_exposure(&self, address: &SocketAddr) -> Result<(), BadSettings> {
        if self.insecure || !self.exposes(address) {
            Ok(())
        } else {
            Err(BadSettings::Exposed(*address))
        }
    }

    /// Returns whether other machines can use the node at this address without authentication.
    #[must_use]
    pub fn exposes(&self, address: &SocketAddr) -> bool {
        // A managed node requires a signed lease, which names a user.
        let is_secured = self.manager.is_some() && self.security.tls.is_some();
        !is_loopback(address) && !self.security.is_complete() && !is_secured
    }
}

fn listen(
    flags: &Flags,
    file: &ConfigFile,
) -> Result<(Vec<SocketAddr>, Vec<PathBuf>), BadSettings> {
    let mut found = (Vec::new(), Vec::new());
    let mut add = |text: &str| -> Result<(), BadAddress> {
        match text.strip_prefix(UNIX) {
            Some(path) if is_socket_path(path) => found.1.push(PathBuf::from(path)),
            _ => found.0.push(parse_listen(text, DAEMON_PORT)?),
        }
        Ok(())
    };
    // Addresses of the command line replace those of the file.
    if !flags.server.listen.is_empty() {
        flags.server.listen.iter().try_for_each(|text| add(text))?;
        return Ok(found);
    }
    for text in file.table.listen.iter().flatten() {
        add(text.get_ref()).map_err(|error| file.wrong(text, &error))?;
    }
    if found == (Vec::new(), Vec::new()) {
        found
            .0
            .push(SocketAddr::from(([127, 0, 0, 1], DAEMON_PORT)));
    }
    Ok(found)
}

/// Returns whether the path is absolute, so that it does not depend on the working directory, and short
/// enough.
fn is_socket_path(path: &str) -> bool {
    path.starts_with('/') && path.len() <= LONGEST_SOCKET_PATH
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

fn handshakes(table: &Connections) -> Handshakes {
    let time_limit = table.handshake_time_limit_ms.map_or(5_000, Within::get);
    Handshakes {
        limit: table.handshakes.map_or(256, Within::get),
        per_peer: table.handshakes_per_peer.map_or(64, Within::get),
        time_limit: Duration::from_millis(u64::from(time_limit)),
        control: table.control.map_or(1_024, Within::get),
        control_per_peer: table.control_per_peer.map_or(256, Within::get),
    }
}

fn heartbeat(file: &ConfigFile) -> Result<Heartbeat, BadFile> {
    let (interval, limit) = file.table.heartbeat.times(file, (500, 4_000))?;
    Ok(Heartbeat { interval, limit })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::path::Path;

    fn flags(line: &[&str]) -> Flags {
        Flags::parse_from([&["causewayd"], line].concat())
    }

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
    fn unix_sockets_are_listened_on_by_their_whole_path() {
        let text = "listen = [\"unix:/run/causeway/node\", \"127.0.0.1:1\"]\n";
        let settings = combine(&Flags::default(), text).unwrap();
        assert_eq!(settings.sockets, [PathBuf::from("/run/causeway/node")]);
        assert_eq!(settings.listen, ["127.0.0.1:1".parse().unwrap()]);
        let only = combine(&Flags::default(), "listen = [\"unix:/x\"]\n").unwrap();
        assert!(only.listen.is_empty());
        for wrong in [
            "unix:",
            "unix:relative",
            &format!("unix:/{}", "x".repeat(107)),
        ] {
            let error = combine(&Flags::default(), &format!("listen = [\"{wrong}\"]\n"));
            assert!(error.unwrap_err().contains("unix:/PATH"), "{wrong}");
        }
    }

    #[test]
    fn flags_win_over_the_file() {
        let flags = flags(&["--listen", "[::1]:0", "--session-limit", "3"]);
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
                "daemon.toml:2: 0 is out of range; expected a number from 1 to 65536 in `sessions.limit`",
            ),
            (
                "[sessions]\n\nlimits = 1\n",
                "daemon.toml:3: unknown field `limits`",
            ),
            (
                "listen = [\"127.0.0.1:1\",\n \"here\"]\n",
                "daemon.toml:2: invalid listen address \"here\"",
            ),
            (
                "log_format = \"xml\"",
                "daemon.toml:1: unknown variant `xml`, expected `text` or `json` in `log_format`",
            ),
            ("log = \"x=loudly\"", "daemon.toml:1: "),
            (
                "[heartbeat]\ninterval_ms = 3000\n",
                "daemon.toml:2: limit_ms (4000) must be",
            ),
            ("name = \n", "daemon.toml:1: "),
            (
                "[metrics]\nlisten = \"x\"",
                "daemon.toml:2: invalid listen address \"x\"",
            ),
            ("[metrics]\nlisten = \"0.0.0.0:0\"", "/metrics at 0.0.0.0:0"),
        ] {
            let error = combine(&Flags::default(), text).unwrap_err();
            assert!(error.starts_with(start), "{text:?} gave {error:?}");
        }
    }

    #[test]
    fn other_interfaces_need_an_explicit_word() {
        for listen in ["0.0.0.0:0", "[::]:0", "192.0.2.1:7079"] {
            let error = combine(&flags(&["--listen", listen]), "").unwrap_err();
            assert!(error.contains("--insecure"), "{error}");
            assert!(combine(&flags(&["--listen", listen, "--insecure"]), "").is_ok());
        }
    }

    #[test]
    fn a_flag_out_of_range_is_named() {
        for flag in ["--session-limit", "--spare-workers", "--drain-limit"] {
            let error = Flags::try_parse_from(["causewayd", flag, "100000"]).unwrap_err();
            let error = error.to_string();
            let named = error.contains(flag) && error.contains("100000 is out of range");
            assert!(named, "{error}");
        }
    }
}
