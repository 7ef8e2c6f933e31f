//! The client's credentials for a server: the files of the settings, loaded.
//!
//! The files are read at the start of each conversation, so that renewed files need no restart of the
//! program.
//!
//! Invariant: if TLS is configured and cannot be used, the result is an error, never an unencrypted
//! connection. A token is sent over TLS only.
#![forbid(unsafe_code)]

use causeway_proto::status::WireError;
use causeway_security::{BadFile, ClientTls, Handshake, Token};
use tonic::Request;
use tonic::metadata::MetadataValue;

use super::socket::plain;
use crate::config::{Address, ServerSettings};

/// TLS settings and token; see the module. Their `Debug` output contains no secrets.
#[derive(Debug)]
pub(super) struct Credentials {
    tls: Option<ClientTls>,
    token: Option<Token>,
}

/// Errors of the settings.
#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error(transparent)]
    File(#[from] BadFile),
    #[error("the [tls] settings of servers.toml are invalid; correct the error reported for them")]
    Broken,
    #[error("the TLS settings name only one of certificate and key; name both")]
    Half,
    #[error(
        "tokens and client certificates need TLS; name the CA of the node's certificate (ca below [tls], or CAUSEWAY_CA)"
    )]
    InTheClear,
}

impl Credentials {
    /// Reads the files.
    ///
    /// # Errors
    /// [`WireError::Credentials`]; nothing has been sent to the node.
    pub(super) fn load(server: &ServerSettings) -> Result<Credentials, WireError> {
        read(server).map_err(|error| WireError::Credentials {
            address: server.address.to_string(),
            reason: error.to_string(),
        })
    }

    /// Prepares TLS with the server at this address of it, if it is configured.
    ///
    /// # Errors
    /// [`WireError::Unreachable`] if the server's name is invalid.
    pub(super) fn handshake(
        &self,
        server: &ServerSettings,
        address: &Address,
    ) -> Result<Option<Handshake>, WireError> {
        let Some(tls) = &self.tls else {
            return Ok(None);
        };
        let own = server.tls.name.as_deref();
        let name = own.unwrap_or_else(|| address.host_without_zone());
        let handshake = tls.handshake(name).map_err(|error| WireError::Unreachable {
            address: address.to_string(),
            reason: plain(&error),
        });
        handshake.map(Some)
    }

    /// A message for the server, with the caller's token.
    pub(super) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let value = self
            .token
            .as_ref()
            .and_then(|token| MetadataValue::try_from(format!("Bearer {}", token.reveal())).ok());
        if let Some(mut value) = value {
            // Sensitive headers are neither printed nor kept in HTTP/2's header tables.
            value.set_sensitive(true);
            request.metadata_mut().insert("authorization", value);
        }
        request
    }
}

fn read(server: &ServerSettings) -> Result<Credentials, Unusable> {
    let tls = &server.tls;
    if tls.is_broken {
        return Err(Unusable::Broken);
    }
    let identity = match (&tls.certificate, &tls.key) {
        (Some(certificate), Some(key)) => Some((certificate.as_path(), key.as_path())),
        (None, None) => None,
        _ => return Err(Unusable::Half),
    };
    let Some(ca) = &tls.ca else {
        if identity.is_some() || tls.token_file.is_some() {
            return Err(Unusable::InTheClear);
        }
        return Ok(Credentials {
            tls: None,
            token: None,
        });
    };
    let token = tls
        .token_file
        .as_deref()
        .map(Token::from_file)
        .transpose()?;
    Ok(Credentials {
        tls: Some(match tls.servers_only {
            true => ClientTls::for_found(ca, identity)?,
            false => ClientTls::load(ca, identity)?,
        }),
        token,
    })
}
