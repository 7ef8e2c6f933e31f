//! Who calls: a user, by certificate or token, or nobody that has to be known.
//!
//! What it is not: it says nothing about what a user may have. Invariant: where the settings ask for a name, a call
//! without one gets an answer that tells nothing about the node, and nothing of its message is read.

use std::sync::Arc;
use std::time::SystemTime;

use causeway_security::{NotAuthenticated, Token};
use causeway_serving::door::{Judge, Peer};
use tonic::codegen::http::{Extensions, HeaderMap};
use tonic::{Request, Status};

use super::{Supervisor, node_service};
use crate::config::{Security, Settings};

/// The header with a token, and what stands before it there.
const AUTHORIZATION: &str = "authorization";
const SCHEME: &str = "Bearer ";

/// A caller who has shown who he is, where that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct User(pub(super) Option<String>);

/// Whether a new connection is nobody's who has to show anything, or has shown a certificate. Where leases are asked
/// for, it is a stranger's until a good one came over it.
pub(super) fn knows(settings: &Settings, certified: Option<&str>) -> bool {
    match settings.security.authenticates() {
        true => settings.security.client_certificates && certified.is_some(),
        false => settings.manager.is_none(),
    }
}

/// Judges callers of the node.
#[derive(Clone)]
pub(super) struct Door(pub(super) Arc<Supervisor>);

impl Judge for Door {
    type Caller = User;

    fn judge(
        &self,
        path: &str,
        headers: &HeaderMap,
        extensions: &Extensions,
    ) -> Result<User, Status> {
        let user = judged(&self.0.settings.security, headers, extensions.get::<Peer>());
        if let Err(status) = &user {
            node_service::count_refusal(&self.0, path, status);
        }
        user
    }
}

/// `UNAUTHENTICATED`, and why, or `RESOURCE_EXHAUSTED`; the log has where the call came from.
fn judged(security: &Security, headers: &HeaderMap, peer: Option<&Peer>) -> Result<User, Status> {
    let certified = peer.and_then(|peer| peer.certified.clone());
    let user = user(security, certified, headers, SystemTime::now());
    security.tell_of_tokens();
    let user = user.map_err(|error| {
        let address = peer.map(|peer| peer.address);
        tracing::info!(peer = ?address, %error, "a call was refused");
        Status::unauthenticated(error.to_string())
    })?;
    match peer {
        Some(peer) if user.0.is_some() => let_in(peer)?,
        _ => {}
    }
    Ok(user)
}

/// From now on the connection is not a stranger's.
///
/// # Errors
/// `RESOURCE_EXHAUSTED`.
pub(super) fn let_in(peer: &Peer) -> Result<(), Status> {
    let let_in = peer.standing.let_in();
    let_in.map_err(|full| Status::resource_exhausted(full.to_string()))
}

/// Who calls, as he was judged.
///
/// # Errors
/// `INTERNAL`: he was not.
pub(super) fn caller<T>(request: &Request<T>) -> Result<User, Status> {
    let judged = request.extensions().get::<User>().cloned();
    judged.ok_or_else(|| Status::internal("nobody asked who calls"))
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
    // TLS has looked at it, if it was to.
    if let Some(name) = certified.filter(|_| security.client_certificates) {
        return Ok(User(Some(name)));
    }
    let tokens = security.tokens.as_ref().ok_or(NotAuthenticated::Nothing)?;
    let said = headers
        .get(AUTHORIZATION)
        .and_then(|said| said.to_str().ok());
    let said = said.and_then(|said| said.strip_prefix(SCHEME));
    let token = Token::parse(said.ok_or(NotAuthenticated::Nothing)?.as_bytes());
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
            Err(NotAuthenticated::Nothing)
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
            Err(NotAuthenticated::Nothing)
        );
        // A certificate counts only where they are looked at.
        assert_eq!(
            of(&with_tokens, Some("bob"), &none),
            Err(NotAuthenticated::Nothing)
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
        let open = Security::default();
        assert_eq!(of(&open, Some("bob"), &bearer(&stranger)), Ok(None));
    }
}
