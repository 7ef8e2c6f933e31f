//! A CA and its certificates, as files of one folder.
//!
//! Invariant: only the owner can read keys and tokens, as the programs that read them require.

use std::fs;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use causeway_security::{Authority, Issued};

use crate::{Error, io};

/// Certificates are valid for so long before and after now.
const DAY: Duration = Duration::from_secs(86_400);

/// A CA with a folder for its files. See the module.
pub struct Certificates {
    folder: PathBuf,
    authority: Authority,
}

impl Certificates {
    /// Makes a new CA in an existing folder.
    ///
    /// # Errors
    /// [`Error`] if a certificate cannot be made or a file cannot be written.
    pub fn new(folder: &Path) -> Result<Certificates, Error> {
        let (authority, ca) = Authority::generate("test", valid())?;
        let certificates = Certificates {
            folder: folder.to_owned(),
            authority,
        };
        certificates.issued("ca", &ca)?;
        Ok(certificates)
    }

    /// Path of the CA's certificate.
    #[must_use]
    pub fn ca(&self) -> PathBuf {
        self.path("ca.pem")
    }

    /// Path of a file in the folder.
    #[must_use]
    pub fn path(&self, file: &str) -> PathBuf {
        self.folder.join(file)
    }

    /// Issues a server's certificate and key: `NAME.pem` and `NAME.key`.
    ///
    /// # Errors
    /// [`Error`] if the certificate cannot be made or a file cannot be written.
    pub fn server(&self, name: &str, hosts: &[&str]) -> Result<(PathBuf, PathBuf), Error> {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        self.issued(name, &self.authority.node(&hosts, valid())?)
    }

    /// Issues a user's certificate and key: `NAME.pem` and `NAME.key`.
    ///
    /// # Errors
    /// [`Error`] if the certificate cannot be made or a file cannot be written.
    pub fn user(&self, name: &str) -> Result<(PathBuf, PathBuf), Error> {
        self.issued(name, &self.authority.user(name, valid())?)
    }

    /// Writes a file that only its owner can read.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be written.
    pub fn private(&self, file: &str, contents: &[u8]) -> Result<PathBuf, Error> {
        let path = self.path(file);
        let written = fs::write(&path, contents)
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o600)));
        written.map_err(io(format!("cannot write {}", path.display())))?;
        Ok(path)
    }

    fn issued(&self, name: &str, issued: &Issued) -> Result<(PathBuf, PathBuf), Error> {
        let certificate = self.private(&format!("{name}.pem"), issued.certificate.as_bytes())?;
        let key = self.private(&format!("{name}.key"), issued.key.reveal())?;
        Ok((certificate, key))
    }
}

fn valid() -> Range<SystemTime> {
    SystemTime::now() - DAY..SystemTime::now() + DAY
}
