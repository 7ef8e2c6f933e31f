//! TLS settings: how the client verifies servers and authenticates itself. They name files, which are not
//! opened here.
//!
//! ```toml
//! [tls]                            # for all servers; a [[server]] may have each of these keys itself
//! ca = "ca.pem"                    # the CA of the servers' certificates; with it, connections use TLS
//! certificate = "alice.pem"        # the user's certificate
//! key = "alice.key"
//! token_file = "token"             # or a token instead: one line
//! name = "node1"                   # the name in the server's certificate, if that is not the address
//! ```
//! Relative file names start at the folder of `servers.toml`. `CAUSEWAY_CA`, `CAUSEWAY_CERTIFICATE`,
//! `CAUSEWAY_KEY` and `CAUSEWAY_TOKEN_FILE` override `[tls]`. A server's own keys override both.

use std::ffi::OsString;
use std::path::PathBuf;

/// TLS settings of one server, or the defaults for all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TlsSettings {
    /// The CA that must have signed the server's certificate. Without one, connections are not encrypted.
    pub ca: Option<PathBuf>,
    /// The user's certificate.
    pub certificate: Option<PathBuf>,
    /// The key of the user's certificate.
    pub key: Option<PathBuf>,
    /// The file with the user's token.
    pub token_file: Option<PathBuf>,
    /// The name that the certificate must have. Default: the host of the address.
    pub name: Option<String>,
    /// Whether the certificate's extended key usage must name servers. So it is for servers that were found, and not
    /// configured: a user of the same CA cannot pose as one of them.
    pub servers_only: bool,
    /// Whether some part could not be read. If so, no unencrypted connection may be made.
    pub is_broken: bool,
}

/// The variables that set TLS files for all servers.
const CA: &str = "CAUSEWAY_CA";
const CERTIFICATE: &str = "CAUSEWAY_CERTIFICATE";
const KEY: &str = "CAUSEWAY_KEY";
const TOKEN_FILE: &str = "CAUSEWAY_TOKEN_FILE";

/// All variables that name files. Relative names start at the program's working directory.
pub const FILE_VARIABLES: [&str; 5] = ["CAUSEWAY_CONFIG", CA, CERTIFICATE, KEY, TOKEN_FILE];

impl TlsSettings {
    /// The settings of the environment.
    pub(super) fn of(set: impl Fn(&str) -> Option<OsString>) -> TlsSettings {
        let file = |variable| set(variable).map(PathBuf::from);
        TlsSettings {
            ca: file(CA),
            certificate: file(CERTIFICATE),
            key: file(KEY),
            token_file: file(TOKEN_FILE),
            name: None,
            servers_only: false,
            is_broken: false,
        }
    }

    /// Fills settings that are missing here from `general`. Certificate and key belong together: they are
    /// taken from one place.
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
