//! What a server's own certificate says: by which names it may be reached, and until when.
//!
//! What it is not: it judges no signature; clients do. Invariant: what is said here of a name is what a client will
//! find when it compares that name with this certificate.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustls::pki_types::{CertificateDer, ServerName, UnixTime};

use crate::files::{self, BadFile};

/// Later than any certificate's end, in seconds since 1970 (the year 9999 is a certificate's last).
const NEVER: Duration = Duration::from_secs(1 << 40);

/// A server's certificate, to be looked at.
#[derive(Clone, Debug)]
pub struct OwnCertificate {
    file: PathBuf,
    der: CertificateDer<'static>,
}

impl OwnCertificate {
    /// The first of a file in PEM: the server's own.
    ///
    /// # Errors
    /// [`BadFile`], also for what is no certificate.
    pub fn load(file: &Path) -> Result<OwnCertificate, BadFile> {
        let all = files::certificates(file)?;
        let none = || BadFile::new(file, "there is no certificate in it (PEM)");
        let der = all.into_iter().next().ok_or_else(none)?;
        webpki::EndEntityCert::try_from(&der).map_err(|error| BadFile::new(file, error))?;
        Ok(OwnCertificate {
            file: file.to_owned(),
            der,
        })
    }

    /// Where it was read.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Its DNS names that name one host: no wildcards.
    #[must_use]
    pub fn host_names(&self) -> Vec<String> {
        let Ok(certificate) = webpki::EndEntityCert::try_from(&self.der) else {
            return Vec::new();
        };
        let names = certificate.valid_dns_names();
        let plain = names.filter(|name| !name.contains('*'));
        plain.map(str::to_owned).collect()
    }

    /// Whether clients that look for `host`, a name or a numeric address without brackets, take this certificate for
    /// its.
    #[must_use]
    pub fn covers(&self, host: &str) -> bool {
        let Ok(name) = ServerName::try_from(host) else {
            return false;
        };
        webpki::EndEntityCert::try_from(&self.der)
            .is_ok_and(|certificate| certificate.verify_is_valid_for_subject_name(&name).is_ok())
    }

    /// When its time is over; `None` where that cannot be read.
    #[must_use]
    pub fn ends(&self) -> Option<SystemTime> {
        let certificate = webpki::EndEntityCert::try_from(&self.der).ok()?;
        // Time is judged before anything else of a certificate, and what is said of it names the end.
        let judged = certificate.verify_for_usage(
            &[],
            &[],
            &[],
            UnixTime::since_unix_epoch(NEVER),
            webpki::KeyUsage::server_auth(),
            None,
            None,
        );
        match judged.err()? {
            webpki::Error::CertExpired { not_after, .. } => {
                Some(SystemTime::UNIX_EPOCH + Duration::from_secs(not_after.as_secs()))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_says_its_names_and_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let end = now + Duration::from_secs(3600);
        let names = ["gpu1", "*.cluster.org", "10.0.0.1", "::1"].map(str::to_owned);
        let mut parameters = rcgen::CertificateParams::new(names).unwrap();
        (parameters.not_before, parameters.not_after) = (now.into(), end.into());
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = parameters.self_signed(&key).unwrap();
        let file = folder.path().join("node.pem");
        std::fs::write(&file, certificate.pem()).unwrap();
        let own = OwnCertificate::load(&file).unwrap();
        assert_eq!(own.host_names(), ["gpu1"]);
        for (host, is_covered) in [
            ("gpu1", true),
            ("GPU1", true),
            ("x.cluster.org", true),
            ("10.0.0.1", true),
            ("::1", true),
            ("gpu2", false),
            ("10.0.0.2", false),
            ("a b", false),
        ] {
            assert_eq!(own.covers(host), is_covered, "{host}");
        }
        let off = own.ends().unwrap().duration_since(end);
        let off = off.unwrap_or_else(|error| error.duration());
        assert!(off < Duration::from_secs(2), "{off:?}");
    }
}
