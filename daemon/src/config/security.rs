//! TLS and authentication: the files that the settings name, loaded.
//!
//! Invariant: where anybody has to show who he is, there is TLS: a token is never asked for in the clear.

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
    /// The node's certificate; without, the port speaks in the clear.
    pub tls: Option<ServerTls>,
    /// The same certificate, to be looked at.
    pub certificate: Option<OwnCertificate>,
    /// Who may come with a token.
    pub tokens: Option<Arc<TokenList>>,
    /// Whether certificates of clients are looked at.
    pub client_certificates: bool,
}

/// Settings that do not make a secured port.
#[derive(Debug, thiserror::Error)]
pub enum BadSecurity {
    /// A certificate without a key, or the other way round.
    #[error("TLS takes both: --tls-certificate and --tls-key ([tls] certificate and key)")]
    Half,
    /// Somebody would have to show who he is in the clear.
    #[error(
        "clients can show who they are with TLS only: --tokens and --tls-client-ca ([auth] tokens, [tls] client_ca) \
         need --tls-certificate and --tls-key"
    )]
    InTheClear,
    /// A file.
    #[error(transparent)]
    File(#[from] BadFile),
}

impl Security {
    /// What flags and file say together; each flag wins over its key.
    ///
    /// # Errors
    /// [`BadSecurity`].
    pub fn load(flags: &Flags, file: &ConfigFile) -> Result<Security, BadSecurity> {
        let (tls, auth) = (&file.table.tls, &file.table.auth);
        let of = |flag: &'_ Option<std::path::PathBuf>, key: &'_ Option<std::path::PathBuf>| {
            flag.clone().or_else(|| key.clone())
        };
        let client_ca = of(&flags.tls_client_ca, &tls.client_ca);
        let tokens = of(&flags.tokens, &auth.tokens);
        let certificate = of(&flags.tls_certificate, &tls.certificate);
        let (certificate, key) = match (certificate, of(&flags.tls_key, &tls.key)) {
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
                Some(path) => Some(Arc::new(TokenList::load(&path)?)),
                None => None,
            },
        })
    }

    /// Whether the list of tokens cannot be read now, so that nobody is let in by a token.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        let Some(tokens) = &self.tokens else {
            return false;
        };
        let state = tokens.state(SystemTime::now());
        self.tell_of_tokens();
        matches!(state, TokenListState::Unreadable(_))
    }

    /// Logs how the list of tokens can be read, once and at each change.
    pub fn tell_of_tokens(&self) {
        match self.tokens.as_ref().and_then(|tokens| tokens.news()) {
            None => {}
            Some(TokenListState::Good) => {
                tracing::info!("the list of tokens is used as a whole again")
            }
            Some(TokenListState::Wrong(lines)) => tracing::warn!(
                ?lines,
                "lines of the list of tokens let nobody in; write SHA256 USER [UNTIL]"
            ),
            Some(TokenListState::Unreadable(error)) => tracing::warn!(
                error,
                "the list of tokens cannot be used: nobody is let in by a token until it can"
            ),
        }
    }

    /// Whether clients have to show who they are.
    #[must_use]
    pub fn authenticates(&self) -> bool {
        self.client_certificates || self.tokens.is_some()
    }

    /// Whether other machines may be let near: there is TLS, and nobody is let in without a name.
    #[must_use]
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
