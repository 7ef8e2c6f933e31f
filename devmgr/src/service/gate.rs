//! Who is let in, and as whom.
//!
//! A manager that authenticates takes a client certificate or a token, and nothing else. One that does not
//! believes the name that a client says and lets everyone administrate: it serves loopback, or was told
//! `--insecure`. Invariant: what a caller may do is judged by the directory as it is when he calls.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use causeway_security::Token;
use parking_lot::RwLock;
use tonic::{Request, Status};

use crate::identity::{Caller, Directory, NotKnown};
use crate::lease::Wall;

/// The header with a token, as everywhere.
const AUTHORIZATION: &str = "authorization";
const BEARER: &str = "Bearer ";
/// The header that a manager without authentication believes.
const USER: &str = "causeway-user";
/// Names longer than this are no names.
pub(crate) const MAX_NAME: usize = 128;

/// The other end of a connection, known since it was accepted.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    /// The name in its client certificate, which was checked.
    pub(crate) certified: Option<String>,
}

/// See the module.
#[derive(Clone)]
pub(crate) struct Gate {
    authenticate: bool,
    directory: SharedDirectory,
}

/// The directory, replaced as a whole when something in it has changed.
pub(crate) type SharedDirectory = Arc<RwLock<Arc<Directory>>>;

impl Gate {
    pub(crate) fn new(authenticate: bool, directory: SharedDirectory) -> Gate {
        Gate {
            authenticate,
            directory,
        }
    }

    /// Who calls.
    ///
    /// # Errors
    /// `UNAUTHENTICATED`, which says what is missing.
    pub(crate) fn caller<T>(&self, request: &Request<T>) -> Result<Caller, Status> {
        let caller = if self.authenticate {
            self.authenticated(request)
                .map_err(|error| Status::unauthenticated(error.to_string()))?
        } else {
            Caller {
                admin: true,
                node: true,
                ..self.directory().by_certificate(said(request)?)
            }
        };
        Ok(caller)
    }

    /// [`Gate::caller`] of one who may administrate.
    ///
    /// # Errors
    /// `PERMISSION_DENIED` beside that.
    pub(crate) fn admin<T>(&self, request: &Request<T>) -> Result<Caller, Status> {
        let caller = self.caller(request)?;
        if caller.admin {
            Ok(caller)
        } else {
            Err(Status::permission_denied(
                "that is for administrators of the device manager",
            ))
        }
    }

    /// The directory as it is.
    pub(crate) fn directory(&self) -> Arc<Directory> {
        Arc::clone(&self.directory.read())
    }

    fn authenticated<T>(&self, request: &Request<T>) -> Result<Caller, NotKnown> {
        let directory = self.directory();
        if let Some(header) = request.metadata().get(AUTHORIZATION) {
            let said = header.to_str().ok().and_then(|h| h.strip_prefix(BEARER));
            let token = said.and_then(|text| Token::parse(text.as_bytes()).ok());
            let token = token.ok_or(NotKnown::Token)?;
            return directory.by_token(&token.hash(), wall_now());
        }
        let peer = request.extensions().get::<Peer>();
        match peer.and_then(|peer| peer.certified.as_deref()) {
            Some(name) => Ok(directory.by_certificate(name)),
            None => Err(NotKnown::Nothing),
        }
    }
}

fn said<T>(request: &Request<T>) -> Result<&str, Status> {
    let Some(header) = request.metadata().get(USER) else {
        return Ok("nobody");
    };
    let name = header.to_str().unwrap_or_default();
    check_name(name).map_err(Status::invalid_argument)?;
    Ok(name)
}

/// Whether it can name a user, a group or a node.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let is_good = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\\' | ',');
    if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(is_good) {
        return Err(format!(
            "a name has 1 to {MAX_NAME} printable ASCII characters without space, comma, quote or backslash"
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
    use super::*;
    use crate::identity::{TokenId, TokenRow, User};

    fn gate(authenticate: bool, token: &Token) -> Gate {
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
        let directory = Directory::new(vec![user], vec![row]);
        Gate::new(authenticate, Arc::new(RwLock::new(Arc::new(directory))))
    }

    fn request(header: &'static str, value: &str) -> Request<()> {
        let mut request = Request::new(());
        let metadata = request.metadata_mut();
        metadata.insert(header, value.parse().unwrap());
        request
    }

    #[test]
    fn only_a_token_or_a_certificate_is_believed() {
        let token = Token::generate();
        let gate = gate(true, &token);
        let bearer = format!("Bearer {}", token.reveal());
        let caller = gate.caller(&request(AUTHORIZATION, &bearer)).unwrap();
        assert_eq!(&*caller.user.0, "ann");
        for wrong in [
            request(AUTHORIZATION, "Bearer nonsense"),
            request(AUTHORIZATION, token.reveal()),
            request(AUTHORIZATION, "Bearer "),
            request(USER, "ann"),
            Request::new(()),
        ] {
            let status = gate.caller(&wrong).unwrap_err();
            assert_eq!(status.code(), tonic::Code::Unauthenticated);
            assert!(!status.message().contains(token.reveal()));
        }
        let mut certified = Request::new(());
        certified.extensions_mut().insert(Peer {
            address: "127.0.0.1:1".parse().unwrap(),
            certified: Some("bob".to_owned()),
        });
        assert_eq!(&*gate.caller(&certified).unwrap().user.0, "bob");
        assert_eq!(
            gate.admin(&certified).unwrap_err().code(),
            tonic::Code::PermissionDenied
        );
        // A bad token is not made good by a certificate.
        let metadata = certified.metadata_mut();
        metadata.insert(AUTHORIZATION, "Bearer nonsense".parse().unwrap());
        assert!(gate.caller(&certified).is_err());
    }

    #[test]
    fn without_authentication_the_name_is_believed() {
        let gate = gate(false, &Token::generate());
        let caller = gate.admin(&request(USER, "bob")).unwrap();
        assert_eq!(&*caller.user.0, "bob");
        assert_eq!(&*gate.caller(&Request::new(())).unwrap().user.0, "nobody");
        assert!(gate.caller(&request(USER, "a b")).is_err());
    }
}
