//! The flags and the tables of the configuration file that both servers have, raw, and what follows from
//! them.
//!
//! A server's own flags contain [`ServerFlags`], and name there its variables and its default file. Flags
//! override the file. Invariant: a flag that both servers have is declared here only.

use std::path::PathBuf;
use std::time::Duration;

use causeway_proto::settings::Within;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::Spanned;

use crate::logging::Format;
use crate::{BadFile, ConfigFile};

/// The flags of both servers. The comments are the help text.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ServerFlags {
    /// Listen on ADDR:PORT (repeatable; port 0 selects a free port)
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Vec<String>,

    /// Serve /metrics and /healthz on ADDR:PORT (port 0 selects a free port)
    #[arg(long, value_name = "ADDR:PORT")]
    pub metrics: Option<String>,

    /// Read settings from FILE
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Allow interfaces other than loopback without TLS and authentication
    #[arg(long)]
    pub insecure: bool,

    /// The server's TLS certificate (PEM, with the chain to its CA)
    #[arg(long, value_name = "FILE")]
    pub tls_certificate: Option<PathBuf>,

    /// Private key of the TLS certificate (PEM); must not be readable by others
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,

    /// Admit clients with a certificate that this CA has signed (PEM)
    #[arg(long, value_name = "FILE")]
    pub tls_client_ca: Option<PathBuf>,

    /// What to log: error, warn, info, debug, trace, off, or target=level pairs
    #[arg(long, value_name = "FILTER")]
    pub log: Option<String>,

    /// Format of log lines
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub log_format: Option<Format>,
}

/// The `[tls]` table: the server's certificate and the CA of its clients, as PEM files.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsTable {
    /// The server's certificate, with the chain to its CA.
    pub certificate: Option<PathBuf>,
    /// The certificate's private key.
    pub key: Option<PathBuf>,
    /// CA of the clients' certificates.
    pub client_ca: Option<PathBuf>,
}

impl ServerFlags {
    /// The TLS files of flags and table.
    #[must_use]
    pub fn tls(&self, table: &TlsTable) -> TlsTable {
        let or =
            |flag: &Option<PathBuf>, key: &Option<PathBuf>| flag.as_ref().or(key.as_ref()).cloned();
        TlsTable {
            certificate: or(&self.tls_certificate, &table.certificate),
            key: or(&self.tls_key, &table.key),
            client_ca: or(&self.tls_client_ca, &table.client_ca),
        }
    }
}

/// The `[heartbeat]` table: when a peer counts as lost. `LEAST` is the shortest limit.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeartbeatTable<const LEAST: u64> {
    interval_ms: Option<Spanned<Within<u32, 50, 60_000>>>,
    limit_ms: Option<Spanned<Within<u32, LEAST, 600_000>>>,
}

impl<const LEAST: u64> HeartbeatTable<LEAST> {
    /// The time between heartbeats, and the silence after which the peer counts as lost. `defaults` are
    /// milliseconds.
    ///
    /// # Errors
    /// The limit is shorter than two intervals.
    pub fn times<Table: DeserializeOwned>(
        &self,
        file: &ConfigFile<Table>,
        defaults: (u32, u32),
    ) -> Result<(Duration, Duration), BadFile> {
        let interval = self
            .interval_ms
            .as_ref()
            .map_or(defaults.0, |n| n.get_ref().get());
        let limit = self
            .limit_ms
            .as_ref()
            .map_or(defaults.1, |n| n.get_ref().get());
        if limit < 2 * interval {
            let message =
                format!("limit_ms ({limit}) must be at least twice interval_ms ({interval})");
            let limit = self.limit_ms.as_ref().map(Spanned::span);
            let interval = self.interval_ms.as_ref().map(Spanned::span);
            let at = Spanned::new(limit.or(interval).unwrap_or_default(), ());
            return Err(file.wrong(&at, &message));
        }
        let milliseconds = |ms| Duration::from_millis(u64::from(ms));
        Ok((milliseconds(interval), milliseconds(limit)))
    }
}
