//! A certificate for one session: made with it, known to its client by the digest, gone with it.
//!
//! So the node's own key never lies in a process that runs others' kernels.

use std::io;
use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::ServerConnection;

use crate::Handshake;
use crate::fingerprint::Fingerprint;
use crate::provider::{VERSIONS, provider};
use crate::secret::Secret;
use crate::server::without_tickets;

/// A self-signed certificate and its key, as they go from supervisor to worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionCertificate {
    /// In DER.
    pub certificate: Vec<u8>,
    /// PKCS #8, in DER.
    pub key: Secret,
}

impl SessionCertificate {
    /// A fresh one. Takes a fraction of a millisecond.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub fn generate() -> io::Result<SessionCertificate> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(io::Error::other)?;
        // Nobody looks at names or dates in it: it is known by its digest alone.
        let certificate = CertificateParams::new(vec!["session.causeway.invalid".to_owned()])
            .and_then(|parameters| parameters.self_signed(&key))
            .map_err(io::Error::other)?;
        Ok(SessionCertificate {
            certificate: certificate.der().to_vec(),
            key: Secret::new(key.serialize_der()),
        })
    }

    /// By which the client knows it.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.certificate)
    }

    /// What serves with it.
    ///
    /// # Errors
    /// When certificate and key are none, or do not belong together.
    pub fn server(&self) -> io::Result<SessionTls> {
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
        Ok(SessionTls(Arc::new(config)))
    }
}

/// The worker's end of its session's connections.
#[derive(Clone, Debug)]
pub struct SessionTls(Arc<ServerConfig>);

impl SessionTls {
    /// One that begins.
    ///
    /// # Errors
    /// What rustls says of its configuration.
    pub fn handshake(&self) -> io::Result<Handshake> {
        ServerConnection::new(Arc::clone(&self.0))
            .map(Handshake::from)
            .map_err(io::Error::other)
    }
}
