//! Settings of TLS and authentication; loads the files that they name.
//!
//! Invariant: if clients must authenticate, there is TLS, so that no token is ever sent in the clear.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use causeway_security::{
    BadFile, ClientCertificates, OwnCertificate, ServerTls, TokenList, TokenListState,
};

use super::file::ConfigFile;
use super::flags::Flags;

/// How the node's port is secured.
#[derive(Clone, Debug, Default)]
pub struct Security {
    /// TLS settings of the port; `None`: no TLS.
    pub tls: Option<ServerTls>,
    /// The same certificate, for reports on its names and its validity.
    pub certificate: Option<OwnCertificate>,
    /// List of admitted tokens.
    pub tokens: Option<Arc<TokenList>>,
    /// Whether clients may authenticate by certificate.
    pub client_certificates: bool,
}

/// Settings of TLS and authentication that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadSecurity {
    /// A certificate without a key, or a key without a certificate.
    #[error(
        "TLS needs both a certificate and a key; set --tls-certificate and --tls-key ([tls] certificate and key)"
    )]
    Half,
    /// Authentication is configured without TLS.
    #[error(
        "authentication requires TLS; --tokens and --tls-client-ca ([auth] tokens, [tls] client_ca) also need \
         --tls-certificate and --tls-key"
    )]
    InTheClear,
    /// A file cannot be read or is invalid.
    #[error(transparent)]
    File(#[from] BadFile),
}

impl Security {
    /// Combines flags and file; each flag takes precedence over its key.
    ///
    /// # Errors
    /// [`BadSecurity`].
    pub fn load(flags: &Flags, file: &ConfigFile) -> Result<Security, BadSecurity> {
        let tls = flags.server.tls(&file.table.tls);
        let client_ca = tls.client_ca;
        let tokens = flags.tokens.as_ref().or(file.table.auth.tokens.as_ref());
        let (certificate, key) = match (tls.certificate, tls.key) {
            (Some(certificate), Some(key)) => (certificate, key),
            (None, None) if client_ca.is_none() && tokens.is_none() => {
                return Ok(Security::default());
            }
            (None, None) => return Err(BadSecurity::InTheClear),
            _ => return Err(BadSecurity::Half),
        };
        let clients = clients(client_ca.as_deref(), tokens.is_some());
        Ok(Security {
            tls: Some(ServerTls::load(&certificate, &key, clients)?),
            certificate: Some(OwnCertificate::load(&certificate)?),
            client_certificates: client_ca.is_some(),
            tokens: match tokens {
                Some(path) => Some(Arc::new(TokenList::load(path)?)),
                None => None,
            },
        })
    }

    /// Returns whether the list of tokens is currently unreadable, so that no token is accepted.
    pub fn is_locked(&self) -> bool {
        let Some(tokens) = &self.tokens else {
            return false;
        };
        let state = tokens.state(SystemTime::now());
        self.tell_of_tokens();
        matches!(state, TokenListState::Unreadable(_))
    }

    /// Logs the state of the list of tokens, once for each change.
    pub fn tell_of_tokens(&self) {
        match self.tokens.as_ref().and_then(|tokens| tokens.news()) {
            None => {}
            Some(TokenListState::Good) => {
                tracing::info!("the list of tokens is valid again")
            }
            Some(TokenListState::Wrong(lines)) => tracing::warn!(
                ?lines,
                "the list of tokens has invalid lines, which are ignored; expected SHA256 USER [UNTIL]"
            ),
            Some(TokenListState::Unreadable(error)) => tracing::warn!(
                error,
                "the list of tokens cannot be read; no token is accepted until the file is corrected"
            ),
        }
    }

    /// Returns whether clients must authenticate.
    pub fn authenticates(&self) -> bool {
        self.client_certificates || self.tokens.is_some()
    }

    /// Returns whether the port may be open to other machines: it has TLS, and clients must authenticate.
    pub fn is_complete(&self) -> bool {
        self.tls.is_some() && self.authenticates()
    }
}

fn clients(ca: Option<&Path>, or_token: bool) -> ClientCertificates<'_> {
    match ca {
        None => ClientCertificates::None,
        Some(ca) if or_token => ClientCertificates::Optional(ca),
        Some(ca) => ClientCertificates::Required(ca),
    }
}
