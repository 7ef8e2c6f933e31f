//! A CA and what it has signed, as files of one folder.
//!
//! Invariant: keys and tokens are readable by their owner alone, as those who read them ask for.

use std::fs;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use causeway_security::{Authority, Issued};

use crate::{Error, io};

/// How long before and after now certificates are good.
const DAY: Duration = Duration::from_secs(86_400);

/// See the module.
pub struct Certificates {
    folder: PathBuf,
    authority: Authority,
}

impl Certificates {
    /// A new CA, in a folder that is there.
    ///
    /// # Errors
    /// [`Error`].
    pub fn new(folder: &Path) -> Result<Certificates, Error> {
        let (authority, ca) = Authority::generate("test", valid())?;
        let certificates = Certificates {
            folder: folder.to_owned(),
            authority,
        };
        certificates.issued("ca", &ca)?;
        Ok(certificates)
    }

    /// The CA's certificate.
    #[must_use]
    pub fn ca(&self) -> PathBuf {
        self.path("ca.pem")
    }

    /// A file of the folder.
    #[must_use]
    pub fn path(&self, file: &str) -> PathBuf {
        self.folder.join(file)
    }

    /// A server's certificate and key: `NAME.pem` and `NAME.key`.
    ///
    /// # Errors
    /// [`Error`].
    pub fn server(&self, name: &str, hosts: &[&str]) -> Result<(PathBuf, PathBuf), Error> {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        self.issued(name, &self.authority.node(&hosts, valid())?)
    }

    /// A user's certificate and key, likewise.
    ///
    /// # Errors
    /// [`Error`].
    pub fn user(&self, name: &str) -> Result<(PathBuf, PathBuf), Error> {
        self.issued(name, &self.authority.user(name, valid())?)
    }

    /// A file for its owner alone.
    ///
    /// # Errors
    /// [`Error::Io`].
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
