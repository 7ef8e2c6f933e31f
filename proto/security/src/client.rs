//! The client's side of TLS: a server is verified by a CA, or by the digest of a session's certificate.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientConnection, Resumption};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};

use crate::Handshake;
use crate::files::{self, BadFile};
use crate::fingerprint::Fingerprint;
use crate::provider::{VERSIONS, provider};
use crate::server::{HTTP2, unusable};

/// How a client verifies servers and authenticates itself.
#[derive(Clone, Debug)]
pub struct ClientTls(Arc<ClientConfig>);

impl ClientTls {
    /// Trusts certificates that `ca` has signed. Presents the certificate of `identity` (with its key) to
    /// servers that ask for one.
    ///
    /// # Errors
    /// [`BadFile`] names the unusable file.
    pub fn load(ca: &Path, identity: Option<(&Path, &Path)>) -> Result<ClientTls, BadFile> {
        let roots = files::roots(ca)?;
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(VERSIONS)
            .map_err(|error| BadFile::new(ca, error))?
            .with_root_certificates(roots);
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => builder
                .with_client_auth_cert(files::certificates(certificate)?, files::private_key(key)?)
                .map_err(|error| unusable(certificate, key, &error))?,
        };
        config.alpn_protocols = vec![HTTP2.to_vec()];
        Ok(ClientTls(Arc::new(config)))
    }

    /// Starts a connection to a server whose certificate covers `name`, a DNS name or a numeric address.
    ///
    /// # Errors
    /// `InvalidInput` if `name` is neither.
    pub fn handshake(&self, name: &str) -> io::Result<Handshake> {
        let server = ServerName::try_from(name.to_owned())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        ClientConnection::new(Arc::clone(&self.0), server)
            .map(Handshake::from)
            .map_err(io::Error::other)
    }
}

/// Starts a connection that accepts only the certificate with this digest.
///
/// # Errors
/// Errors of the rustls configuration.
pub fn pinned(fingerprint: Fingerprint) -> io::Result<Handshake> {
    let provider = provider();
    let verifier = Pinned {
        fingerprint,
        provider: Arc::clone(&provider),
    };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(VERSIONS)
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    // Each connection proves the session's secret again, and the digest is what the client trusts. So
    // resumption has no use.
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    let name = ServerName::try_from("session.causeway.invalid").map_err(io::Error::other)?;
    ClientConnection::new(Arc::new(config), name)
        .map(Handshake::from)
        .map_err(io::Error::other)
}

/// Accepts a single certificate. TLS itself verifies that the other end has its key.
#[derive(Debug)]
struct Pinned {
    fingerprint: Fingerprint,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if Fingerprint::of(certificate) == self.fingerprint {
            return Ok(ServerCertVerified::assertion());
        }
        Err(rustls::CertificateError::ApplicationVerificationFailure.into())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General(
            "TLS 1.2 is not supported; TLS 1.3 is required".to_owned(),
        ))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
