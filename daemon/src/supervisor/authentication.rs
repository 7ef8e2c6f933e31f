//! Who calls: a user, by certificate or token, or nobody that has to be known.
//!
//! What it is not: it says nothing about what a user may have. Invariant: where the settings ask for a name, a call
//! without one gets an answer that tells nothing about the node.

use std::time::SystemTime;

use causeway_security::{NotAuthenticated, Token};
use tonic::metadata::MetadataMap;
use tonic::{Request, Status};

use crate::config::Security;
use crate::port::Caller;

/// Before the token, in `authorization`.
const SCHEME: &str = "Bearer ";

/// A caller who has shown who he is, where that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct User(pub(super) Option<String>);

/// Makes sure of the caller.
///
/// # Errors
/// `UNAUTHENTICATED`, and why; the log has where the call came from.
pub(super) fn authenticate<T>(security: &Security, request: &Request<T>) -> Result<User, Status> {
    let caller = request.extensions().get::<Caller>();
    let certified = caller.and_then(|caller| caller.certified.clone());
    let user = user(security, certified, request.metadata(), SystemTime::now());
    user.map_err(|error| {
        let peer = caller.and_then(|caller| caller.peer);
        tracing::info!(?peer, %error, "a call was refused");
        Status::unauthenticated(error.to_string())
    })
}

fn user(
    security: &Security,
    certified: Option<String>,
    metadata: &MetadataMap,
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
    let said = metadata
        .get("authorization")
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
    use std::sync::Arc;

    fn said(text: &str) -> MetadataMap {
        let mut metadata = MetadataMap::new();
        metadata.insert("authorization", text.parse().unwrap());
        metadata
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
        let none = MetadataMap::new();
        let now = SystemTime::now();
        let of = |security: &Security, certified: Option<&str>, metadata: &MetadataMap| {
            let certified = certified.map(str::to_owned);
            user(security, certified, metadata, now).map(|User(name)| name)
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
