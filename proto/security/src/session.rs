//! The certificate of one session: made with the session, identified by its digest, and gone with it.
//!
//! Because of it, the node's own key is never in a process that runs other people's kernels.

use std::io;
use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::fingerprint::Fingerprint;
use crate::provider::{VERSIONS, provider};
use crate::secret::Secret;
use crate::server::{ServerTls, without_tickets};

/// A self-signed certificate and its key, which the supervisor passes to the worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionCertificate {
    /// The certificate in DER format.
    pub certificate: Vec<u8>,
    /// The key in PKCS #8 and DER format.
    pub key: Secret,
}

impl SessionCertificate {
    /// Generates a certificate. Takes a fraction of a millisecond.
    ///
    /// # Errors
    /// Fails when the system has no randomness.
    pub fn generate() -> io::Result<SessionCertificate> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(io::Error::other)?;
        // The client checks only the digest, not the names or dates.
        let certificate = CertificateParams::new(vec!["session.causeway.invalid".to_owned()])
            .and_then(|parameters| parameters.self_signed(&key))
            .map_err(io::Error::other)?;
        Ok(SessionCertificate {
            certificate: certificate.der().to_vec(),
            key: Secret::new(key.serialize_der()),
        })
    }

    /// The digest by which the client knows the certificate.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.certificate)
    }

    /// The TLS settings of a server with this certificate.
    ///
    /// # Errors
    /// Fails when certificate and key are invalid or do not belong together.
    pub fn server(&self) -> io::Result<ServerTls> {
        let key = PrivatePkcs8KeyDer::from(self.key.reveal().to_vec());
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(VERSIONS)
            .map_err(io::Error::other)?
            .with_no_client_auth()
            .with_single_cert(
                vec![CertificateDer::from(self.certificate.clone())],
                PrivateKeyDer::from(key),
            )
            .map_err(io::Error::other)?;
        without_tickets(&mut config);
        Ok(ServerTls(Arc::new(config)))
    }
}
