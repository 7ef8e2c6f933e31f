//! The command line in raw form. The comments on the fields are the help text.

use std::path::PathBuf;

use causeway_serving::logging;
use causeway_serving::settings::ServerFlags;

use super::file::{DrainLimit, ResumeLimit, SessionLimit, SpareWorkers};
use super::sharing::Together;

/// Serve this machine's OpenCL devices to Causeway clients.
#[derive(Clone, Debug, Default, clap::Parser)]
#[command(name = "causewayd", version, about)]
#[command(
    mut_arg("listen", |arg| arg.help(
        "Listen on ADDR:PORT, or on the Unix socket unix:/PATH (repeatable; port 0 selects a free port) [default: 127.0.0.1:7079]"
    )),
    mut_arg("config", |arg| arg.help(
        "Read settings from FILE [default: /etc/causeway/daemon.toml, if it exists]"
    )),
    mut_arg("log", |arg| arg.env(logging::FILTER_VARIABLE)),
    mut_arg("log_format", |arg| arg.env(logging::FORMAT_VARIABLE)),
)]
pub struct Flags {
    /// The flags that the device manager has, too.
    #[command(flatten)]
    pub server: ServerFlags,

    /// Advertise HOST or HOST:PORT to other nodes and to the device manager's users (repeatable) [default:
    /// the addresses it listens on; for users, the names in its certificate]
    #[arg(long, value_name = "HOST:PORT")]
    pub advertise: Vec<String>,

    /// Announce the node on its networks by mDNS, so that clients with `discover = true` find it
    #[arg(long)]
    pub announce: bool,

    /// Admit clients with a token in this file; each line is SHA256 USER, optionally followed by its last
    /// day
    #[arg(long, value_name = "FILE")]
    pub tokens: Option<PathBuf>,

    /// Serve only what the device manager at HOST or HOST:PORT leases (repeatable, for all managers that
    /// share a store); or discover:NAME, for the one that announces itself under this name
    #[arg(long, value_name = "HOST:PORT")]
    pub manager: Vec<String>,

    /// CA that must have signed the device manager's certificate (PEM)
    #[arg(long, value_name = "FILE")]
    pub manager_ca: Option<PathBuf>,

    /// File with this node's token for the device manager; must not be readable by others
    #[arg(long, value_name = "FILE")]
    pub manager_token_file: Option<PathBuf>,

    /// This node's certificate for the device manager (PEM) [default: --tls-certificate, with --manager-ca
    /// and no token]
    #[arg(long, value_name = "FILE")]
    pub manager_certificate: Option<PathBuf>,

    /// Private key of the certificate for the device manager (PEM); must not be readable by others
    #[arg(long, value_name = "FILE")]
    pub manager_key: Option<PathBuf>,

    /// Name of the node in tools; announcements have the certificate's, or the host name [default: the host name]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,

    /// Maximum number of simultaneous sessions [default: 64]
    #[arg(long, value_name = "N")]
    pub session_limit: Option<SessionLimit>,

    /// Number of workers kept ready for the next sessions [default: 1]
    #[arg(long, value_name = "N")]
    pub spare_workers: Option<SpareWorkers>,

    /// Seconds that running sessions may continue after SIGTERM, not counting waits for programs that are away [default: 30]
    #[arg(long, value_name = "SECONDS")]
    pub drain_limit: Option<DrainLimit>,

    /// Seconds for which a session waits for a client whose connections have ended, at most; 0: sessions end with
    /// their connections [default: 600]
    #[arg(long, value_name = "SECONDS")]
    pub resume_limit: Option<ResumeLimit>,

    /// Let sessions of one user, of a group's users or of everyone have one host process: none, user,
    /// group:NAME or all [default: none]
    #[arg(long, value_name = "WHO", env = "CAUSEWAYD_TOGETHER")]
    pub together: Option<Together>,

    /// Keep built programs in DIR [default: causeway/builds in the user's cache directory]
    #[arg(long, value_name = "DIR", env = "CAUSEWAYD_BUILD_CACHE_DIR")]
    pub build_cache_dir: Option<PathBuf>,

    /// Maximum size of the build cache in bytes; 0: no cache [default: 536870912]
    #[arg(long, value_name = "BYTES", env = "CAUSEWAYD_BUILD_CACHE_SIZE")]
    pub build_cache_size: Option<u64>,

    /// Park sessions in DIR when the daemon ends, for the next one [default: sessions end with the daemon]
    #[arg(long, value_name = "DIR", env = "CAUSEWAYD_SURVIVAL_DIR")]
    pub survival_dir: Option<PathBuf>,

    /// Let sessions' processes also read and execute files in DIR (repeatable)
    #[arg(
        long,
        value_name = "DIR",
        env = "CAUSEWAYD_SANDBOX_READ",
        value_delimiter = ':'
    )]
    pub sandbox_read: Vec<PathBuf>,

    /// Let sessions' processes also write in DIR (repeatable)
    #[arg(
        long,
        value_name = "DIR",
        env = "CAUSEWAYD_SANDBOX_WRITE",
        value_delimiter = ':'
    )]
    pub sandbox_write: Vec<PathBuf>,

    /// Run sessions' processes without a sandbox, with all rights of their user
    #[arg(long)]
    pub no_sandbox: bool,

    /// Serve the one program that holds the other end of standard input, and end with it
    #[arg(long, hide = true)]
    pub private: bool,

    /// Serve one session over the socket on descriptor 0
    #[arg(long, hide = true)]
    pub internal_worker: bool,

    /// Write this machine's inventory to the socket on descriptor 0
    #[arg(long, hide = true)]
    pub internal_probe: bool,

    /// Measure what a process takes of each card, for the socket on descriptor 0
    #[arg(long, hide = true)]
    pub internal_measure: bool,

    /// Answer questions about cards on the socket on descriptor 0
    #[arg(long, hide = true)]
    pub internal_cards: bool,

    /// Announce the node as the socket on descriptor 0 says
    #[arg(long, hide = true)]
    pub internal_announce: bool,

    /// Measure a link as the socket on descriptor 0 says
    #[arg(long, hide = true)]
    pub internal_link: bool,

    /// Look for the device manager that the socket on descriptor 0 names
    #[arg(long, hide = true)]
    pub internal_find: bool,
}
