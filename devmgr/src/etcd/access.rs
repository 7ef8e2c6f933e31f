//! How etcd is reached: endpoints, TLS, credentials, and the prefix of all keys.
//!
//! Files are read when a connection is opened, not before: renewed ones count from the next connection on.
//! Invariant: an [`Access`] names at least one endpoint.

use std::path::{Path, PathBuf};

use etcd_client::{Certificate, ConnectOptions, Identity, TlsOptions};

use super::fault::Fault;
use crate::time::Span;

/// How etcd is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// URLs of etcd's members; not empty.
    pub endpoints: Vec<String>,
    /// The beginning of all keys; ends with `/`.
    pub prefix: String,
    /// TLS to `https` endpoints.
    pub tls: Option<Tls>,
    /// etcd's user, and the file with the password.
    pub login: Option<(String, PathBuf)>,
    /// Time of the leader's key without a sign of its leader.
    pub ttl: Span,
}

/// TLS to etcd.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// The CA of the members' certificates.
    pub ca: Option<PathBuf>,
    /// This manager's certificate and key, if etcd wants one.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl Access {
    /// The options of a new connection.
    pub(super) fn options(&self) -> Result<ConnectOptions, Fault> {
        let mut options = ConnectOptions::new()
            .with_connect_timeout(super::client::CONNECTS_WITHIN)
            .with_keep_alive(super::client::PING_EVERY, super::client::PING_WITHIN)
            .with_keep_alive_while_idle(true)
            // Without it, a member that is cut off from the others serves watches for ever.
            .with_require_leader(true);
        if let Some(tls) = &self.tls {
            let mut of = TlsOptions::new();
            if let Some(ca) = &tls.ca {
                of = of.ca_certificate(Certificate::from_pem(read(ca)?));
            }
            if let Some((certificate, key)) = &tls.identity {
                of = of.identity(Identity::from_pem(read(certificate)?, read(key)?));
            }
            options = options.with_tls(of);
        }
        if let Some((user, file)) = &self.login {
            let password = read(file)?;
            let password = String::from_utf8_lossy(&password);
            options = options.with_user(user, password.trim_end_matches(['\r', '\n']));
        }
        Ok(options)
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Fault> {
    std::fs::read(path).map_err(|error| Fault::File {
        path: path.to_owned(),
        error,
    })
}
