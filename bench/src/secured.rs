//! TLS for a node of the run: a CA, a certificate and a token.
#![forbid(unsafe_code)]

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::{Duration, SystemTime};

use causeway_security::{Authority, Token};

/// The files, which are removed with this value.
pub(crate) struct Secured(tempfile::TempDir);

impl Secured {
    /// Makes files for a node on loopback, valid for a day.
    pub(crate) fn new() -> io::Result<Secured> {
        let folder = tempfile::tempdir()?;
        let hour = Duration::from_secs(3600);
        let valid = SystemTime::now() - hour..SystemTime::now() + 24 * hour;
        let (authority, ca) =
            Authority::generate("bench", valid.clone()).map_err(io::Error::other)?;
        let node = authority
            .node(&["127.0.0.1".to_owned()], valid)
            .map_err(io::Error::other)?;
        let token = Token::generate();
        for (name, bytes) in [
            ("ca.pem", ca.certificate.as_bytes()),
            ("node.pem", node.certificate.as_bytes()),
            ("node.key", node.key.reveal()),
            ("token", token.reveal().as_bytes()),
            ("tokens", format!("{} bench", token.hash()).as_bytes()),
        ] {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes)?;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        }
        Ok(Secured(folder))
    }

    /// Flags with which a daemon uses TLS and requires the token.
    pub(crate) fn tell(&self, daemon: &mut Command) {
        for (flag, file) in [
            ("--tls-certificate", "node.pem"),
            ("--tls-key", "node.key"),
            ("--tokens", "tokens"),
        ] {
            daemon.arg(flag).arg(self.0.path().join(file));
        }
    }

    /// Further keys of the server's entry in `servers.toml`.
    pub(crate) fn keys(&self) -> String {
        let folder = self.0.path().display();
        format!("ca = \"{folder}/ca.pem\"\ntoken_file = \"{folder}/token\"\n")
    }
}
