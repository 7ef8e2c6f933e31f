//! How servers are made sure of, and what they are shown: names of files, as they were written.
//!
//! ```toml
//! [tls]                            # for all servers; a [[server]] may have each of these keys for itself
//! ca = "ca.pem"                    # who signs servers' certificates; with it, TLS is spoken
//! certificate = "alice.pem"        # who this user is
//! key = "alice.key"
//! token_file = "token"             # or that: one line
//! name = "node1"                   # what the certificate must say, where that is not the address
//! ```
//! Names of files are taken from the folder of `servers.toml` on. `CAUSEWAY_CA`, `CAUSEWAY_CERTIFICATE`,
//! `CAUSEWAY_KEY` and `CAUSEWAY_TOKEN_FILE` win over `[tls]`, a server's own keys over both.
//!
//! What it is not: it opens no file.

use std::path::PathBuf;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TlsSettings {
    /// The CA that a server's certificate must come from; without, connections are in the clear.
    pub ca: Option<PathBuf>,
    /// The user's certificate.
    pub certificate: Option<PathBuf>,
    /// Its key.
    pub key: Option<PathBuf>,
    /// The user's token.
    pub token_file: Option<PathBuf>,
    /// The name that the certificate must have; none: the address's host.
    pub name: Option<String>,
    /// Something of it cannot be read: nothing may be taken to be in the clear.
    pub is_broken: bool,
}

/// The keys that name files, in `servers.toml` and, for all servers, in the environment.
pub(super) const FILES: [(&str, &str); 4] = [
    ("ca", "CAUSEWAY_CA"),
    ("certificate", "CAUSEWAY_CERTIFICATE"),
    ("key", "CAUSEWAY_KEY"),
    ("token_file", "CAUSEWAY_TOKEN_FILE"),
];

/// The variables that name files, each from the program's working directory on.
pub const FILE_VARIABLES: [&str; 5] = [
    "CAUSEWAY_CONFIG",
    FILES[0].1,
    FILES[1].1,
    FILES[2].1,
    FILES[3].1,
];

impl TlsSettings {
    /// The setting of that key.
    pub(super) fn file(&mut self, key: &str) -> Option<&mut Option<PathBuf>> {
        match key {
            "ca" => Some(&mut self.ca),
            "certificate" => Some(&mut self.certificate),
            "key" => Some(&mut self.key),
            "token_file" => Some(&mut self.token_file),
            _ => None,
        }
    }

    /// What is not said here is as there. A certificate and its key are one thing.
    pub(super) fn or(&mut self, general: &TlsSettings) {
        let take = |own: &mut Option<PathBuf>, general: &Option<PathBuf>| {
            if own.is_none() {
                own.clone_from(general);
            }
        };
        if self.certificate.is_none() && self.key.is_none() {
            self.certificate.clone_from(&general.certificate);
            self.key.clone_from(&general.key);
        }
        take(&mut self.ca, &general.ca);
        take(&mut self.token_file, &general.token_file);
        self.is_broken |= general.is_broken;
        if self.name.is_none() {
            self.name.clone_from(&general.name);
        }
    }
}
