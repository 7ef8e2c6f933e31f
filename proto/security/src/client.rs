//! The client's side of TLS: a server is verified by a CA, or by the digest of a session's certificate.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientConnection, Resumption, WantsClientCert, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ConfigBuilder, DigitallySignedStruct, SignatureScheme};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::Handshake;
use crate::files::{self, BadFile};
use crate::fingerprint::Fingerprint;
use crate::provider::{VERSIONS, provider};
use crate::server::{HTTP1, HTTP2, unusable};

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
        ClientTls::of(builder, identity)
    }

    /// As [`ClientTls::load`], for servers that nobody has configured: the extended key usage of their certificates must
    /// name servers. So a user of the same CA, or a certificate for any purpose, cannot pose as a server.
    ///
    /// # Errors
    /// [`BadFile`] names the unusable file.
    pub fn for_found(ca: &Path, identity: Option<(&Path, &Path)>) -> Result<ClientTls, BadFile> {
        let roots = Arc::new(files::roots(ca)?);
        let inner = WebPkiServerVerifier::builder_with_provider(roots, provider()).build();
        let inner = inner.map_err(|error| BadFile::new(ca, error))?;
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(VERSIONS)
            .map_err(|error| BadFile::new(ca, error))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(ServersOnly { inner }));
        ClientTls::of(builder, identity)
    }

    fn of(
        builder: ConfigBuilder<ClientConfig, WantsClientCert>,
        identity: Option<(&Path, &Path)>,
    ) -> Result<ClientTls, BadFile> {
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => builder
                .with_client_auth_cert(files::certificates(certificate)?, files::private_key(key)?)
                .map_err(|error| unusable(certificate, key, &error))?,
        };
        config.alpn_protocols = vec![HTTP2.to_vec()];
        Ok(ClientTls(Arc::new(config)))
    }

    /// Returns these settings for a server of HTTP/1.1.
    #[must_use]
    pub fn over_http1(&self) -> ClientTls {
        let mut config = ClientConfig::clone(&self.0);
        config.alpn_protocols = vec![HTTP1.to_vec()];
        ClientTls(Arc::new(config))
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

/// Accepts the certificates of a CA whose extended key usage names servers.
#[derive(Debug)]
struct ServersOnly {
    inner: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for ServersOnly {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified =
            self.inner
                .verify_server_cert(certificate, intermediates, name, ocsp, now)?;
        // The usual verifier also accepts certificates that name no usage at all.
        let names_servers = X509Certificate::from_der(certificate).is_ok_and(|(_, of)| {
            let usage = of.extended_key_usage();
            usage.is_ok_and(|usage| usage.is_some_and(|usage| usage.value.server_auth))
        });
        match names_servers {
            true => Ok(verified),
            false => Err(rustls::CertificateError::InvalidPurpose.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
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

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::{Authority, ClientCertificates, Issued, ServerTls};

    /// Shakes hands in memory with a server that has this certificate.
    fn shake(client: &ClientTls, folder: &Path, issued: &Issued) -> Result<(), rustls::Error> {
        let (certificate, key) = (folder.join("x.pem"), folder.join("x.key"));
        std::fs::write(&certificate, &issued.certificate).unwrap();
        std::fs::write(&key, issued.key.reveal()).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&key, mode).unwrap();
        let server = ServerTls::load(&certificate, &key, ClientCertificates::None).unwrap();
        let mut ends = [
            client.handshake("gpu1").unwrap(),
            server.handshake().unwrap(),
        ];
        for turn in 0..8 {
            let mut bytes = Vec::new();
            ends[turn % 2].write_tls(&mut bytes).unwrap();
            let receiver = &mut ends[(turn + 1) % 2];
            receiver.read_tls(&mut &bytes[..]).unwrap();
            receiver.process_new_packets()?;
        }
        assert!(!ends[0].is_handshaking());
        Ok(())
    }

    #[test]
    fn a_found_server_needs_a_certificate_that_names_servers() {
        let folder = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let valid = now..now + Duration::from_secs(3600);
        let (authority, of_ca) = Authority::generate("ours", valid.clone()).unwrap();
        let ca = folder.path().join("ca.pem");
        std::fs::write(&ca, &of_ca.certificate).unwrap();
        let node = authority.node(&["gpu1".to_owned()], valid.clone()).unwrap();
        let user = authority.user("gpu1", valid.clone()).unwrap();
        let other = authority.node(&["gpu2".to_owned()], valid.clone()).unwrap();
        let any = {
            let issuer = std::str::from_utf8(of_ca.key.reveal()).unwrap();
            let issuer = rcgen::KeyPair::from_pem(issuer).unwrap();
            let issuer = rcgen::Issuer::from_ca_cert_pem(&of_ca.certificate, issuer).unwrap();
            let key = rcgen::KeyPair::generate().unwrap();
            let names = vec!["gpu1".to_owned()];
            let parameters = rcgen::CertificateParams::new(names).unwrap();
            let certificate = parameters.signed_by(&key, &issuer).unwrap().pem();
            let key = crate::Secret::new(key.serialize_pem());
            Issued { certificate, key }
        };
        let configured = ClientTls::load(&ca, None).unwrap();
        let found = ClientTls::for_found(&ca, None).unwrap();
        let shake = |client: &ClientTls, issued: &Issued| shake(client, folder.path(), issued);
        assert_eq!(shake(&found, &node), Ok(()));
        assert_eq!(
            shake(&configured, &any),
            Ok(()),
            "no usage is any usage, as usual"
        );
        let purpose = rustls::Error::from(rustls::CertificateError::InvalidPurpose);
        assert_eq!(shake(&found, &any), Err(purpose));
        assert!(shake(&found, &user).is_err() && shake(&found, &other).is_err());
    }
}
