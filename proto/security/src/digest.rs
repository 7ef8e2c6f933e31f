//! Short names of CAs, which nodes announce, so that a client tries the nodes of its own CA first.
//!
//! A digest proves nothing; TLS does. Invariant: the same certificate has the same digest in every file.

use std::path::Path;

use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::files::{self, BadFile};
use crate::fingerprint::Fingerprint;

/// The first bytes of the SHA-256 of a CA's certificate.
pub type CaDigest = [u8; 8];

/// Most certificates from an own one to its CA.
const LONGEST_CHAIN: usize = 8;

/// The digests of the certificates in a file of CAs.
///
/// # Errors
/// [`BadFile`].
pub fn ca_digests(file: &Path) -> Result<Vec<CaDigest>, BadFile> {
    let all = files::certificates(file)?;
    Ok(all.iter().map(|certificate| digest(certificate)).collect())
}

fn digest(certificate: &[u8]) -> CaDigest {
    let Fingerprint(whole) = Fingerprint::of(certificate);
    std::array::from_fn(|at| whole[at])
}

/// The digest of the CA of a certificate: follows the issuers through `known` to one that is its own issuer. `None` if
/// that one is not known.
pub(crate) fn of_issuer(
    own: &CertificateDer<'_>,
    known: &[CertificateDer<'_>],
) -> Option<CaDigest> {
    let parsed: Vec<_> = known
        .iter()
        .filter_map(|der| Some((der, X509Certificate::from_der(der).ok()?.1)))
        .collect();
    let (_, own) = X509Certificate::from_der(own).ok()?;
    let mut issuer = own.issuer().clone();
    for _ in 0..LONGEST_CHAIN {
        let (der, next) = parsed.iter().find(|(_, of)| of.subject() == &issuer)?;
        if next.issuer() == next.subject() {
            return Some(digest(der));
        }
        issuer = next.issuer().clone();
    }
    None
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::{Authority, OwnCertificate};

    #[test]
    fn a_node_and_its_clients_name_their_ca_alike() {
        let folder = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let valid = now..now + Duration::from_secs(3600);
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let (ca, of_ca) = Authority::generate("ours", valid.clone()).unwrap();
        let (_, of_other) = Authority::generate("theirs", valid.clone()).unwrap();
        let node = ca.node(&["gpu1".to_owned()], valid).unwrap();
        let ca = write("ca.pem", &of_ca.certificate);
        let other = write("other.pem", &of_other.certificate);
        let both = write("both.pem", &(of_other.certificate + &of_ca.certificate));
        let own = OwnCertificate::load(&write("node.pem", &node.certificate)).unwrap();
        let digest = ca_digests(&ca).unwrap()[0];
        assert_eq!(own.ca_digest(Some(&ca)), Some(digest));
        assert_eq!(own.ca_digest(Some(&both)), Some(digest));
        assert_eq!(
            (own.ca_digest(Some(&other)), own.ca_digest(None)),
            (None, None)
        );
        assert_eq!(ca_digests(&both).unwrap()[1], digest);
        let chain = write("chain.pem", &(node.certificate + &of_ca.certificate));
        let own = OwnCertificate::load(&chain).unwrap();
        assert_eq!(own.ca_digest(None), Some(digest));
    }
}
