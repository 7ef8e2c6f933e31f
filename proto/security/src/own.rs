//! Facts about a server's own certificate: the names by which clients may reach the server, and when it
//! expires.
//!
//! Signatures are not checked; clients do that. Invariant: the answer about a name is the one that a
//! client gets when it compares the name with this certificate.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustls::pki_types::{CertificateDer, ServerName};

use crate::digest::{self, CaDigest};
use crate::files::{self, BadFile};
use crate::validity::{self, Validity};

/// A server's certificate, for inspection.
#[derive(Clone, Debug)]
pub struct OwnCertificate {
    file: PathBuf,
    der: CertificateDer<'static>,
    /// The other certificates of the file.
    chain: Vec<CertificateDer<'static>>,
}

impl OwnCertificate {
    /// Loads the first certificate of a PEM file, which is the server's own.
    ///
    /// # Errors
    /// [`BadFile`], also if it is not a certificate.
    pub fn load(file: &Path) -> Result<OwnCertificate, BadFile> {
        let mut all = files::certificates(file)?.into_iter();
        let none = || BadFile::new(file, "the file contains no certificate in PEM format");
        let der = all.next().ok_or_else(none)?;
        webpki::EndEntityCert::try_from(&der).map_err(|error| BadFile::new(file, error))?;
        Ok(OwnCertificate {
            file: file.to_owned(),
            der,
            chain: all.collect(),
        })
    }

    /// The file that the certificate was read from.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The certificate's DNS names that name one host, so no wildcards.
    #[must_use]
    pub fn host_names(&self) -> Vec<String> {
        let Ok(certificate) = webpki::EndEntityCert::try_from(&self.der) else {
            return Vec::new();
        };
        let names = certificate.valid_dns_names();
        let plain = names.filter(|name| !name.contains('*'));
        plain.map(str::to_owned).collect()
    }

    /// Whether clients that connect to `host` accept this certificate. `host` is a name, or a numeric
    /// address without brackets.
    #[must_use]
    pub fn covers(&self, host: &str) -> bool {
        let Ok(name) = ServerName::try_from(host) else {
            return false;
        };
        webpki::EndEntityCert::try_from(&self.der)
            .is_ok_and(|certificate| certificate.verify_is_valid_for_subject_name(&name).is_ok())
    }

    /// The digest of the CA that signed the certificate, if it is in the certificate's file or in `client_ca`.
    #[must_use]
    pub fn ca_digest(&self, client_ca: Option<&Path>) -> Option<CaDigest> {
        let mut known = self.chain.clone();
        // An unreadable file is an error elsewhere.
        let of_clients = client_ca.map(files::certificates);
        known.extend(of_clients.and_then(Result::ok).into_iter().flatten());
        digest::of_issuer(&self.der, &known)
    }

    /// When the certificate expires. `None` if that cannot be read.
    #[must_use]
    pub fn end(&self) -> Option<SystemTime> {
        validity::end(&self.der)
    }

    /// The present validity of the certificate. `None` if its end cannot be read.
    #[must_use]
    pub fn validity(&self) -> Option<Validity> {
        Some(Validity::at(self.end()?, SystemTime::now()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
        let Some(Validity::Soon(told)) = own.validity() else {
            panic!("{:?}", own.validity());
        };
        let off = told.duration_since(end);
        let off = off.unwrap_or_else(|error| error.duration());
        assert!(off < Duration::from_secs(2), "{off:?}");
    }
}
