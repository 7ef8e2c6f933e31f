//! Authentication of callers.
//!
//! A manager with authentication accepts a client certificate or a token, and nothing else. A manager
//! without it trusts the name in a header and lets everyone administrate. Such a manager serves loopback
//! only, or was started with `--insecure`. Invariant: permissions come from the directory as it is at the
//! time of the call.

use std::sync::Arc;
use std::time::SystemTime;

use causeway_security::Token;
use causeway_serving::gate::{Full, Judge, Peer};
use parking_lot::{RwLock, RwLockReadGuard};
use tonic::codegen::http::{Extensions, HeaderMap};
use tonic::{Request, Status};

use crate::identity::{Caller, Directory, NotKnown};
use crate::time::Wall;

/// The header with a token.
const AUTHORIZATION: &str = "authorization";
const BEARER: &str = "Bearer ";
/// The header with the caller's name, for a manager without authentication.
const USER: &str = "causeway-user";
/// Maximum length of a name.
pub(crate) const MAX_NAME: usize = 128;

/// Authenticates callers. See the module.
#[derive(Clone)]
pub(crate) struct Authenticator {
    authenticate: bool,
    directory: SharedDirectory,
}

/// The durable users and tokens. Only the owner changes them.
pub(crate) type SharedDirectory = Arc<RwLock<Directory>>;

impl Authenticator {
    pub(crate) fn new(authenticate: bool, directory: SharedDirectory) -> Authenticator {
        Authenticator {
            authenticate,
            directory,
        }
    }

    /// Whether callers have to authenticate.
    pub(crate) fn authenticates(&self) -> bool {
        self.authenticate
    }

    /// Whether this certificate is enough to make a new connection a known caller's. That of a removed
    /// user is not.
    pub(super) fn knows(&self, certified: Option<&str>) -> bool {
        let is_let_in = |name| self.directory().by_certificate(name).is_ok();
        !self.authenticate || certified.is_some_and(is_let_in)
    }

    /// The caller of a request whose message has arrived, re-checked against the directory.
    /// [`Judge::judge`] has authenticated them before.
    ///
    /// # Errors
    /// `INTERNAL`: the caller was not authenticated. `UNAUTHENTICATED`: they are no longer allowed.
    pub(crate) fn caller<T>(&self, request: &Request<T>) -> Result<Caller, Status> {
        let caller = request.extensions().get::<Caller>();
        self.again(
            caller.ok_or_else(|| {
                Status::internal("internal error: the caller was not authenticated")
            })?,
        )
    }

    /// Looks up an authenticated caller again and returns their current identity.
    ///
    /// # Errors
    /// `UNAUTHENTICATED`: the caller is no longer allowed.
    pub(crate) fn again(&self, caller: &Caller) -> Result<Caller, Status> {
        let again = self.directory().again(caller, wall_now());
        again.map_err(|error| Status::unauthenticated(error.to_string()))
    }

    /// [`Authenticator::caller`] for a user who may have leases. A node's key allows only what a node needs.
    ///
    /// # Errors
    /// `PERMISSION_DENIED` in addition to those of [`Authenticator::caller`].
    pub(crate) fn user<T>(&self, request: &Request<T>) -> Result<Caller, Status> {
        as_user(self.caller(request)?)
    }

    /// [`Authenticator::caller`] for an administrator.
    ///
    /// # Errors
    /// `PERMISSION_DENIED` in addition to those of [`Authenticator::caller`].
    pub(crate) fn admin<T>(&self, request: &Request<T>) -> Result<Caller, Status> {
        as_admin(self.caller(request)?)
    }

    /// The current directory.
    pub(crate) fn directory(&self) -> RwLockReadGuard<'_, Directory> {
        self.directory.read()
    }

    fn authenticated(&self, headers: &HeaderMap, peer: Option<&Peer>) -> Result<Caller, NotKnown> {
        let directory = self.directory();
        // A token goes first: a caller with a bad token is not let in by their certificate.
        if let Some(header) = headers.get(AUTHORIZATION) {
            let said = header.to_str().ok().and_then(|h| h.strip_prefix(BEARER));
            let token = said.and_then(|text| Token::parse(text.as_bytes()).ok());
            let token = token.ok_or(NotKnown::Token)?;
            return directory.by_token(&token.hash(), wall_now());
        }
        match peer.and_then(|peer| peer.certified.as_deref()) {
            Some(name) => directory.by_certificate(name),
            None => Err(NotKnown::Nothing),
        }
    }
}

impl Judge for Authenticator {
    type Caller = Caller;

    /// Errors: `UNAUTHENTICATED` with what is missing, or `RESOURCE_EXHAUSTED`.
    fn judge(
        &self,
        _: &str,
        headers: &HeaderMap,
        extensions: &Extensions,
    ) -> Result<Caller, Status> {
        let peer = extensions.get::<Peer>();
        let exhausted = |full: Full| Status::resource_exhausted(full.to_string());
        if !self.authenticate {
            let caller = self.directory().by_word(said(headers)?);
            if let Some(peer) = peer {
                peer.standing.called().map_err(exhausted)?;
            }
            return Ok(caller);
        }
        let caller = self.authenticated(headers, peer).map_err(|error| {
            // The connection counted as known by the certificate of a user who is removed now.
            if let (NotKnown::Removed, Some(peer)) = (error, peer) {
                peer.standing.turn_out();
            }
            Status::unauthenticated(error.to_string())
        })?;
        if let Some(peer) = peer {
            peer.standing.let_in().map_err(exhausted)?;
        }
        Ok(caller)
    }
}

/// The caller, if they may have leases.
///
/// # Errors
/// `PERMISSION_DENIED`
pub(super) fn as_user(caller: Caller) -> Result<Caller, Status> {
    if !caller.may_lease() {
        return Err(Status::permission_denied(format!(
            "{} is a node: it may join, and nothing else",
            caller.user
        )));
    }
    Ok(caller)
}

/// The caller, if they may administrate.
///
/// # Errors
/// `PERMISSION_DENIED`
pub(super) fn as_admin(caller: Caller) -> Result<Caller, Status> {
    if !caller.admin {
        return Err(Status::permission_denied(
            "only administrators of the device manager may do this",
        ));
    }
    Ok(caller)
}

fn said(headers: &HeaderMap) -> Result<&str, Status> {
    let Some(header) = headers.get(USER) else {
        return Ok("nobody");
    };
    let name = header.to_str().unwrap_or_default();
    check_name(name).map_err(Status::invalid_argument)?;
    Ok(name)
}

/// Checks that a name can be a user's, a group's or a node's.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    // Spaces are allowed, because names in certificates have them: "Ann Smith".
    let is_good = |c: char| (c.is_ascii_graphic() && !matches!(c, '"' | '\\' | ',')) || c == ' ';
    let is_trimmed = name.trim() == name;
    if name.is_empty() || name.len() > MAX_NAME || !is_trimmed || !name.chars().all(is_good) {
        return Err(format!(
            "a name has 1 to {MAX_NAME} printable ASCII characters without comma, quote or backslash, and neither \
             begins nor ends with a space"
        ));
    }
    Ok(())
}

/// The host's clock.
pub(crate) fn wall_now() -> Wall {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let milliseconds = since.map_or(0, |since| since.as_millis());
    Wall(u64::try_from(milliseconds).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use causeway_serving::admission::Admission;
    use causeway_serving::gate::{Places, Standing};

    use super::*;
    use crate::identity::{Shown, TokenId, TokenRow, User};

    fn authenticator(authenticate: bool, token: &Token) -> Authenticator {
        let user = User {
            name: "ann".into(),
            groups: Vec::new(),
            admin: false,
            node: false,
        };
        let row = TokenRow {
            id: TokenId("1".to_owned()),
            user: "ann".into(),
            label: String::new(),
            hash: token.hash().0,
            expires: None,
        };
        let directory = Directory::new(vec![user], vec![row], vec!["carl".into()]);
        Authenticator::new(authenticate, Arc::new(RwLock::new(directory)))
    }

    fn standing(is_known: bool) -> Arc<Standing> {
        let places = Places {
            strangers: Admission::new(1, 1),
            known: Admission::new(1, 1),
        };
        let address = "127.0.0.1:1".parse().unwrap();
        Arc::new(Standing::new(address, is_known, &places).ok().unwrap())
    }

    /// The head of a call: a header, and a certificate's name.
    type Head<'a> = (Option<(&'static str, &'a str)>, Option<&'a str>);

    fn judged(
        authenticator: &Authenticator,
        (header, certified): Head<'_>,
    ) -> Result<Caller, Status> {
        let mut headers = HeaderMap::new();
        if let Some((name, value)) = header {
            headers.insert(name, value.parse().unwrap());
        }
        let mut extensions = Extensions::new();
        let standing = standing(false);
        extensions.insert(Peer {
            address: "127.0.0.1:1".parse().unwrap(),
            certified: certified.map(str::to_owned),
            standing: Arc::clone(&standing),
        });
        let caller = authenticator.judge("", &headers, &extensions);
        assert_eq!(
            standing.is_known(),
            caller.is_ok() && authenticator.authenticate
        );
        caller
    }

    #[test]
    fn only_a_token_or_a_certificate_is_believed() {
        let token = Token::generate();
        let authenticator = authenticator(true, &token);
        let bearer = format!("Bearer {}", token.reveal());
        let caller = judged(&authenticator, (Some((AUTHORIZATION, &bearer)), None)).unwrap();
        assert_eq!(&*caller.user.0, "ann");
        assert_eq!(caller.shown, Shown::Token(TokenId("1".to_owned())));
        let nonsense = Some((AUTHORIZATION, "Bearer nonsense"));
        for wrong in [
            (nonsense, None),
            // A valid certificate does not make up for a bad token.
            (nonsense, Some("bob")),
            (Some((AUTHORIZATION, token.reveal())), None),
            (Some((AUTHORIZATION, "Bearer ")), None),
            (Some((USER, "ann")), None),
            (None, None),
        ] {
            let status = judged(&authenticator, wrong).unwrap_err();
            assert_eq!(status.code(), tonic::Code::Unauthenticated);
            assert!(!status.message().contains(token.reveal()));
        }
        let certified = judged(&authenticator, (None, Some("bob"))).unwrap();
        assert_eq!((&*certified.user.0, certified.admin), ("bob", false));
        assert_eq!(certified.shown, Shown::Certificate);
    }

    #[test]
    fn a_certificate_of_one_who_was_removed_is_a_strangers() {
        let authenticator = authenticator(true, &Token::generate());
        let known = |name| authenticator.knows(Some(name));
        // A certificate whose name is not in the directory authenticates an ordinary user.
        assert!(known("ann") && known("bob") && !known("carl") && !authenticator.knows(None));
        let standing = standing(true);
        let mut extensions = Extensions::new();
        extensions.insert(Peer {
            address: "127.0.0.1:1".parse().unwrap(),
            certified: Some("carl".to_owned()),
            standing: Arc::clone(&standing),
        });
        let status = authenticator
            .judge("", &HeaderMap::new(), &extensions)
            .unwrap_err();
        assert_eq!(status.code(), tonic::Code::Unauthenticated);
        assert!(
            !standing.is_known(),
            "nor is the place of one who was known kept"
        );
    }

    #[test]
    fn who_was_not_judged_may_nothing_and_who_is_no_administrator_not_that() {
        let authenticator = authenticator(true, &Token::generate());
        let mut request = Request::new(());
        let status = authenticator.caller(&request).unwrap_err();
        assert_eq!(status.code(), tonic::Code::Internal);
        let caller = judged(&authenticator, (None, Some("bob"))).unwrap();
        request.extensions_mut().insert(caller);
        assert_eq!(&*authenticator.user(&request).unwrap().user.0, "bob");
        let status = authenticator.admin(&request).unwrap_err();
        assert_eq!(status.code(), tonic::Code::PermissionDenied);
    }

    #[test]
    fn without_authentication_the_name_is_believed() {
        let authenticator = authenticator(false, &Token::generate());
        let named = |name| judged(&authenticator, (Some((USER, name)), None));
        let bob = named("bob").unwrap();
        assert_eq!((&*bob.user.0, bob.admin, bob.node), ("bob", true, true));
        let nobody = judged(&authenticator, (None, None)).unwrap();
        assert_eq!(&*nobody.user.0, "nobody");
        let spaced = named("Ann B. Smith").unwrap();
        assert_eq!(&*spaced.user.0, "Ann B. Smith");
        for wrong in ["", "a,b", "a\"b", "a\\b", "a\tb", &"a".repeat(MAX_NAME + 1)] {
            assert!(named(wrong).is_err(), "{wrong:?}");
        }
        assert!(check_name(" a").is_err() && check_name("a ").is_err());
    }
}
