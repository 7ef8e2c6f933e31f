//! The server's side of TLS: the certificate of a node or manager, and what clients must present.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::server::{NoServerSessionStorage, ServerConnection, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};

use crate::Handshake;
use crate::files::{self, BadFile};
use crate::fingerprint::Fingerprint;
use crate::provider::{VERSIONS, provider};

/// ALPN name of HTTP/2.
pub(crate) const HTTP2: &[u8] = b"h2";
/// ALPN name of HTTP/1.1, for the monitoring port.
pub(crate) const HTTP1: &[u8] = b"http/1.1";

/// What clients must present in the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificates<'a> {
    /// No certificate.
    None,
    /// A certificate signed by this CA if they have one. Clients without one send a token later.
    Optional(&'a Path),
    /// A certificate signed by this CA.
    Required(&'a Path),
}

/// A server's certificate and key, and its requirements for clients.
#[derive(Clone, Debug)]
pub struct ServerTls(pub(crate) Arc<ServerConfig>);

impl ServerTls {
    /// Loads PEM files: the certificate with its chain to the CA, the key, and the CA for clients.
    ///
    /// # Errors
    /// [`BadFile`] names the unusable file.
    pub fn load(
        certificate: &Path,
        key: &Path,
        clients: ClientCertificates<'_>,
    ) -> Result<ServerTls, BadFile> {
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(VERSIONS)
            .map_err(|error| BadFile::new(certificate, error))?;
        let builder = match clients {
            ClientCertificates::None => builder.with_no_client_auth(),
            ClientCertificates::Optional(ca) | ClientCertificates::Required(ca) => {
                let optional = matches!(clients, ClientCertificates::Optional(_));
                builder.with_client_cert_verifier(verifier(ca, optional)?)
            }
        };
        let chain = files::certificates(certificate)?;
        let mut config = builder
            .with_single_cert(chain, files::private_key(key)?)
            .map_err(|error| unusable(certificate, key, &error))?;
        config.alpn_protocols = vec![HTTP2.to_vec()];
        without_tickets(&mut config);
        Ok(ServerTls(Arc::new(config)))
    }

    /// Returns these settings for HTTP/1.1. A client that supports both would choose HTTP/2.
    #[must_use]
    pub fn over_http1(&self) -> ServerTls {
        let mut config = ServerConfig::clone(&self.0);
        config.alpn_protocols = vec![HTTP1.to_vec()];
        ServerTls(Arc::new(config))
    }

    /// The server's end of a new connection.
    ///
    /// # Errors
    /// Errors of the rustls configuration.
    pub fn handshake(&self) -> io::Result<Handshake> {
        ServerConnection::new(Arc::clone(&self.0))
            .map(Handshake::from)
            .map_err(io::Error::other)
    }
}

/// Distinguishes a key that does not belong to the certificate from a broken file.
pub(crate) fn unusable(certificate: &Path, key: &Path, error: &rustls::Error) -> BadFile {
    if !matches!(error, rustls::Error::InconsistentKeys(_)) {
        return BadFile::new(key, error);
    }
    let problem = format!(
        "the key does not belong to the certificate in {}; name the two files that were made together",
        certificate.display()
    );
    BadFile::new(key, problem)
}

fn verifier(
    ca: &Path,
    optional: bool,
) -> Result<Arc<dyn rustls::server::danger::ClientCertVerifier>, BadFile> {
    let roots: Arc<RootCertStore> = Arc::new(files::roots(ca)?);
    let builder = WebPkiClientVerifier::builder_with_provider(roots, provider());
    let builder = if optional {
        builder.allow_unauthenticated()
    } else {
        builder
    };
    builder.build().map_err(|error| BadFile::new(ca, error))
}

/// Disables session tickets. Clients never resume a connection, so tickets would only cost bytes and
/// memory.
pub(crate) fn without_tickets(config: &mut ServerConfig) {
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
}

/// The user that a verified certificate names: its first DNS name, or else its digest.
#[must_use]
pub fn user_of(certificate: &[u8]) -> String {
    let der = rustls::pki_types::CertificateDer::from(certificate);
    let named = webpki::EndEntityCert::try_from(&der).ok();
    let first = named.and_then(|named| named.valid_dns_names().next().map(str::to_owned));
    first.unwrap_or_else(|| format!("certificate {}", Fingerprint::of(certificate)))
}
