//! What was typed.

use std::path::PathBuf;

use causeway_serving::logging::{self, Format};

/// Serves this machine's OpenCL devices to Causeway clients.
#[derive(Clone, Debug, Default, clap::Parser)]
#[command(name = "causewayd", version, about)]
pub struct Flags {
    /// Listen on ADDR:PORT, or on a Unix socket by unix:/PATH (may be given several times; port 0 takes a free one)
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Vec<String>,

    /// Tell other nodes and the device manager's users to reach this one there; HOST or HOST:PORT (may be given
    /// several times; otherwise where it listens, and users by the names of its certificate)
    #[arg(long, value_name = "HOST:PORT")]
    pub advertise: Vec<String>,

    /// Answer /metrics and /healthz at ADDR:PORT (port 0 takes a free one)
    #[arg(long, value_name = "ADDR:PORT")]
    pub metrics: Option<String>,

    /// Read settings from FILE [default: /etc/causeway/daemon.toml, if it is there]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Serve interfaces other than loopback without TLS and authentication
    #[arg(long)]
    pub insecure: bool,

    /// The node's certificate for TLS (PEM, with what leads to its CA)
    #[arg(long, value_name = "FILE")]
    pub tls_certificate: Option<PathBuf>,

    /// Its key (PEM); others must not be able to read it
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,

    /// Let in who shows a certificate that this CA has signed (PEM)
    #[arg(long, value_name = "FILE")]
    pub tls_client_ca: Option<PathBuf>,

    /// Let in who says a token of this file: a line each, SHA256 USER and, if it is to end, the day
    #[arg(long, value_name = "FILE")]
    pub tokens: Option<PathBuf>,
    /// Serve what this device manager leases, and nothing else; HOST or HOST:PORT (may be given several times: its
    /// other addresses)
    #[arg(long, value_name = "HOST:PORT")]
    pub manager: Vec<String>,

    /// The CA whose certificate the device manager has to show (PEM)
    #[arg(long, value_name = "FILE")]
    pub manager_ca: Option<PathBuf>,

    /// The token that this node says to the device manager; others must not be able to read it
    #[arg(long, value_name = "FILE")]
    pub manager_token_file: Option<PathBuf>,

    /// The certificate that this node shows to the device manager (PEM) [default: --tls-certificate, with --manager-ca
    /// and no token]
    #[arg(long, value_name = "FILE")]
    pub manager_certificate: Option<PathBuf>,

    /// Its key (PEM); others must not be able to read it
    #[arg(long, value_name = "FILE")]
    pub manager_key: Option<PathBuf>,

    /// The node's name, as tools show it [default: the host name]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,

    /// What to log: error, warn, info, debug, trace, or a tracing filter
    #[arg(long, value_name = "FILTER", env = logging::FILTER_VARIABLE)]
    pub log: Option<String>,

    /// How log lines look
    #[arg(long, value_name = "FORMAT", value_enum, env = logging::FORMAT_VARIABLE)]
    pub log_format: Option<Format>,

    /// Sessions served at once
    #[arg(long, value_name = "N")]
    pub session_limit: Option<u32>,

    /// Workers kept ready for the next sessions
    #[arg(long, value_name = "N")]
    pub spare_workers: Option<u32>,

    /// Seconds that running sessions get to finish after SIGTERM
    #[arg(long, value_name = "SECONDS")]
    pub drain_limit: Option<u32>,

    /// Keep built programs in DIR [default: causeway/builds in the user's cache directory]
    #[arg(long, value_name = "DIR", env = "CAUSEWAYD_BUILD_CACHE_DIR")]
    pub build_cache_dir: Option<PathBuf>,

    /// Bytes of built programs that are kept; 0: none
    #[arg(long, value_name = "BYTES", env = "CAUSEWAYD_BUILD_CACHE_SIZE")]
    pub build_cache_size: Option<u64>,

    /// Let sessions' processes read and run what is in DIR as well (may be given several times)
    #[arg(
        long,
        value_name = "DIR",
        env = "CAUSEWAYD_SANDBOX_READ",
        value_delimiter = ':'
    )]
    pub sandbox_read: Vec<PathBuf>,

    /// Let them write there as well
    #[arg(
        long,
        value_name = "DIR",
        env = "CAUSEWAYD_SANDBOX_WRITE",
        value_delimiter = ':'
    )]
    pub sandbox_write: Vec<PathBuf>,

    /// Let sessions' processes reach all that their user may
    #[arg(long)]
    pub no_sandbox: bool,

    /// Serve the program of whoever holds the other end of standard input, and end with them
    #[arg(long, hide = true)]
    pub private: bool,

    /// Serve one session over the socket on descriptor 0
    #[arg(long, hide = true)]
    pub internal_worker: bool,

    /// Write this machine's inventory to the socket on descriptor 0
    #[arg(long, hide = true)]
    pub internal_probe: bool,

    /// Build the program that comes over the socket on descriptor 0, for the build cache
    #[arg(long, hide = true)]
    pub internal_compile: bool,
}
