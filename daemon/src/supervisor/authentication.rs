//! Authenticates callers: as a user, by certificate or token, or as anonymous where the settings do not
//! require authentication.
//!
//! This module does not decide what a user may use. Invariant: where the settings require authentication,
//! an unauthenticated caller learns nothing about the node, and no byte of its message is read.

use std::sync::Arc;
use std::time::SystemTime;

use causeway_security::{NotAuthenticated, Token};
use causeway_serving::gate::{Full, Judge, Peer};
use tonic::codegen::http::{Extensions, HeaderMap};
use tonic::{Request, Status};

use super::counts::Refusals;
use crate::config::{Security, Settings};

/// Header that carries a token, and the prefix of the token in it.
const AUTHORIZATION: &str = "authorization";
const SCHEME: &str = "Bearer ";

/// A caller that has met the authentication requirements. The name is `None` if the settings require none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct User(pub(super) Option<String>);

/// Returns whether a new connection counts as known from the start. That is the case if no credential is
/// required, or if the caller has shown a certificate. On a managed node without authentication, a
/// connection becomes known with its first valid lease.
pub(super) fn knows(settings: &Settings, certified: Option<&str>) -> bool {
    match settings.security.authenticates() {
        true => settings.security.client_certificates && certified.is_some(),
        false => settings.manager.is_none(),
    }
}

/// Authenticates the calls to the node's gRPC services.
#[derive(Clone)]
pub(super) struct ClientJudge {
    pub(super) settings: Arc<Settings>,
    pub(super) refusals: Arc<Refusals>,
}

impl Judge for ClientJudge {
    type Caller = User;

    fn judge(
        &self,
        path: &str,
        headers: &HeaderMap,
        extensions: &Extensions,
    ) -> Result<User, Status> {
        let user = judged(&self.settings.security, headers, extensions.get::<Peer>());
        if let Err(status) = &user {
            self.refusals.count_call(path, status);
        }
        user
    }
}

/// Returns the user, or `UNAUTHENTICATED` with the reason, or `RESOURCE_EXHAUSTED`. The caller's address
/// goes to the log only.
fn judged(security: &Security, headers: &HeaderMap, peer: Option<&Peer>) -> Result<User, Status> {
    let certified = peer.and_then(|peer| peer.certified.clone());
    let user = user(security, certified, headers, SystemTime::now());
    security.tell_of_tokens();
    let user = user.map_err(|error| {
        let address = peer.map(|peer| tracing::field::display(peer.address));
        tracing::info!(peer = address, %error, "a call was refused because the caller is not authenticated");
        Status::unauthenticated(error.to_string())
    })?;
    match peer {
        Some(peer) if user.0.is_some() => let_in(peer)?,
        // On a managed node, `NodeService::let_in` marks the connection as known once a valid lease is
        // shown.
        Some(peer) => peer.standing.called().map_err(exhausted)?,
        None => {}
    }
    Ok(user)
}

/// Marks the connection as known from now on.
///
/// # Errors
/// `RESOURCE_EXHAUSTED` if there are too many known connections.
pub(super) fn let_in(peer: &Peer) -> Result<(), Status> {
    peer.standing.let_in().map_err(exhausted)
}

fn exhausted(full: Full) -> Status {
    Status::resource_exhausted(full.to_string())
}

/// Returns the user that [`ClientJudge`] has attached to the request.
///
/// # Errors
/// `INTERNAL` if the request was not authenticated.
pub(super) fn caller<T>(request: &Request<T>) -> Result<User, Status> {
    let judged = request.extensions().get::<User>().cloned();
    judged.ok_or_else(|| Status::internal("internal error: the call was not authenticated"))
}

fn user(
    security: &Security,
    certified: Option<String>,
    headers: &HeaderMap,
    now: SystemTime,
) -> Result<User, NotAuthenticated> {
    if !security.authenticates() {
        return Ok(User(None));
    }
    // TLS has already verified the certificate.
    if let Some(name) = certified.filter(|_| security.client_certificates) {
        return Ok(User(Some(name)));
    }
    let tokens = security.tokens.as_ref();
    let tokens = tokens.ok_or(NotAuthenticated::NoCertificate)?;
    let nothing = match security.client_certificates {
        true => NotAuthenticated::Nothing,
        false => NotAuthenticated::NoToken,
    };
    let said = headers
        .get(AUTHORIZATION)
        .and_then(|said| said.to_str().ok());
    let said = said.and_then(|said| said.strip_prefix(SCHEME));
    let token = Token::parse(said.ok_or(nothing)?.as_bytes());
    let token = token.map_err(|_| NotAuthenticated::Unknown)?;
    tokens.user(&token, now).map(|name| User(Some(name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_security::TokenList;

    fn said(text: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, text.parse().unwrap());
        headers
    }

    #[test]
    fn a_name_comes_by_token_or_certificate_where_it_is_asked_for() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (token, stranger) = (Token::generate(), Token::generate());
        std::fs::write(file.path(), format!("{} alice\n", token.hash())).unwrap();
        let with_tokens = Security {
            tokens: Some(Arc::new(TokenList::load(file.path()).unwrap())),
            ..Security::default()
        };
        let bearer = |token: &Token| said(&format!("Bearer {}", token.reveal()));
        let none = HeaderMap::new();
        let now = SystemTime::now();
        let of = |security: &Security, certified: Option<&str>, headers: &HeaderMap| {
            let certified = certified.map(str::to_owned);
            user(security, certified, headers, now).map(|User(name)| name)
        };
        let alice = Ok(Some("alice".to_owned()));
        assert_eq!(of(&with_tokens, None, &bearer(&token)), alice);
        assert_eq!(
            of(&with_tokens, None, &none),
            Err(NotAuthenticated::NoToken)
        );
        for wrong in [bearer(&stranger), said("Bearer "), said("Bearer a b")] {
            assert_eq!(
                of(&with_tokens, None, &wrong),
                Err(NotAuthenticated::Unknown)
            );
        }
        let basic = said(&format!("Basic {}", token.reveal()));
        assert_eq!(
            of(&with_tokens, None, &basic),
            Err(NotAuthenticated::NoToken)
        );
        // A certificate counts only if the settings enable client certificates.
        assert_eq!(
            of(&with_tokens, Some("bob"), &none),
            Err(NotAuthenticated::NoToken)
        );
        let with_both = Security {
            client_certificates: true,
            ..with_tokens
        };
        assert_eq!(
            of(&with_both, Some("bob"), &none),
            Ok(Some("bob".to_owned()))
        );
        assert_eq!(of(&with_both, None, &bearer(&token)), alice);
        assert_eq!(of(&with_both, None, &none), Err(NotAuthenticated::Nothing));
        let with_certificates = Security {
            client_certificates: true,
            ..Security::default()
        };
        assert_eq!(
            of(&with_certificates, None, &bearer(&token)),
            Err(NotAuthenticated::NoCertificate)
        );
        let open = Security::default();
        assert_eq!(of(&open, Some("bob"), &bearer(&stranger)), Ok(None));
    }
}
