//! A configured daemon: where it is, what it has, and the process's session on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use causeway_proto::control::{Inventory, NodeStatus, OpenSessionReply};
use causeway_proto::id::{SessionId, SessionSecret};
use causeway_proto::status::WireError;
use parking_lot::Mutex;

use super::control::{self, Supervisor};
use super::fork;
use super::pulse::Rhythm;
use super::session::{Opening, Session, SessionEvents};
use super::socket::Door;
use crate::config::{Address, ServerSettings};

/// For everything that opening a session takes.
const OPEN_LIMIT: Duration = Duration::from_secs(5);

/// One configured daemon.
#[derive(Debug)]
pub struct Node {
    settings: ServerSettings,
    inventory: Mutex<Option<Arc<Inventory>>>,
    available: AtomicBool,
    // Held while a session is opened, so that two contexts do not open two.
    session: Mutex<Option<Arc<Session>>>,
}

impl Node {
    pub(super) fn new(settings: ServerSettings) -> Node {
        Node {
            settings,
            inventory: Mutex::new(None),
            available: AtomicBool::new(false),
            session: Mutex::new(None),
        }
    }

    /// The session of this process on the node: opened now if there is none or the last is lost,
    /// otherwise the one there is. `events` counts only when it is opened now.
    ///
    /// Waits for the network when it opens: at most five seconds. The session stays open until it is
    /// lost or the process ends, however many contexts come and go.
    ///
    /// # Errors
    /// [`WireError::Unreachable`], [`WireError::Protocol`], [`WireError::Refused`], [`WireError::Forked`].
    pub fn session(
        self: &Arc<Self>,
        events: Arc<dyn SessionEvents>,
    ) -> Result<Arc<Session>, WireError> {
        fork::check()?;
        let mut current = self.session.lock();
        if let Some(session) = &*current
            && !session.has_failed()
        {
            return Ok(Arc::clone(session));
        }
        fork::mark_process();
        let opened = self.open(events);
        self.available.store(opened.is_ok(), Ordering::Relaxed);
        if let Err(error) = &opened {
            // The program gets a code only; which side to upgrade, say, is for a person.
            tracing::warn!("{error}");
        }
        let session = Arc::new(opened?);
        *current = Some(Arc::clone(&session));
        Ok(session)
    }

    fn open(&self, events: Arc<dyn SessionEvents>) -> Result<Session, WireError> {
        let deadline = Instant::now() + OPEN_LIMIT;
        let generation = self.inventory().map_or(0, |inventory| inventory.generation);
        let address = self.settings.address.clone();
        let asked = control::converse(move || async move {
            control::within(OPEN_LIMIT, &address, async {
                let mut supervisor = Supervisor::reach(&address).await?;
                let reply = supervisor.open_session(generation).await?;
                let (session, secret) = credentials(&supervisor, &reply)?;
                Ok((supervisor.peer, session, secret, reply))
            })
            .await
        });
        let (peer, session, secret, reply) = asked.unwrap_or_else(|error| {
            Err(WireError::Refused {
                address: self.address().to_owned(),
                reason: error.to_string(),
            })
        })?;
        let rhythm = Rhythm::from_wire(reply.heartbeat_interval_ms, reply.heartbeat_limit_ms);
        let door = Door {
            peer,
            address: self.address().to_owned(),
            session,
            secret,
            heartbeat_limit: rhythm.limit,
        };
        let opening = Opening {
            door,
            carrier: self.settings.carrier,
            rhythm,
            bulk_connections: self
                .settings
                .bulk_connections
                .min(reply.bulk_connections.max(1)),
            deadline,
        };
        let opened = Session::open(opening, events);
        tracing::info!(
            address = self.address(),
            ?session,
            ok = opened.is_ok(),
            "session opened"
        );
        opened
    }

    /// `host:port`, as configured.
    #[must_use]
    pub fn address(&self) -> &str {
        self.settings.address.as_str()
    }

    /// The name for people: the configured one, else the address.
    #[must_use]
    pub fn name(&self) -> &str {
        self.settings.name.as_deref().unwrap_or(self.address())
    }

    /// Its settings.
    #[must_use]
    pub fn settings(&self) -> &ServerSettings {
        &self.settings
    }

    /// Whether the node answered when it was last spoken to, and no session on it was lost since:
    /// `CL_DEVICE_AVAILABLE`. Asks nobody.
    #[must_use]
    pub fn is_available(&self) -> bool {
        if fork::is_child() {
            return false;
        }
        let lost = match self.session.try_lock() {
            Some(session) => session.as_ref().is_some_and(|session| session.has_failed()),
            // A session is being opened just now.
            None => false,
        };
        self.available.load(Ordering::Relaxed) && !lost
    }

    /// What it has, as last heard.
    #[must_use]
    pub fn inventory(&self) -> Option<Arc<Inventory>> {
        self.inventory.lock().clone()
    }

    pub(super) fn set_inventory(&self, inventory: Arc<Inventory>) {
        *self.inventory.lock() = Some(inventory);
        self.available.store(true, Ordering::Relaxed);
    }
}

/// Asks a node's supervisor for its load and health; for tools.
///
/// # Errors
/// [`WireError::Unreachable`], [`WireError::Protocol`], [`WireError::Refused`].
pub fn node_status(address: &Address, limit: Duration) -> Result<NodeStatus, WireError> {
    let asked = address.clone();
    control::converse(move || async move {
        control::within(limit, &asked, async {
            Supervisor::reach(&asked).await?.status().await
        })
        .await
    })
    .unwrap_or_else(|error| {
        Err(WireError::Unreachable {
            address: address.to_string(),
            reason: error.to_string(),
        })
    })
}

fn credentials(
    supervisor: &Supervisor,
    reply: &OpenSessionReply,
) -> Result<(SessionId, SessionSecret), WireError> {
    let session = <[u8; 16]>::try_from(&reply.session_id[..]);
    let secret = <[u8; 32]>::try_from(&reply.session_secret[..]);
    match (session, secret) {
        (Ok(session), Ok(secret)) => Ok((SessionId(session), SessionSecret(secret))),
        _ => Err(supervisor.nonsense("a session without id or secret".to_owned())),
    }
}
