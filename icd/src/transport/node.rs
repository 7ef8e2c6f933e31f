//! A configured daemon: where it is, what it has, and the process's session on it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use causeway_lane::Place;
use causeway_proto::control::{Inventory, NodeStatus, OpenSessionReply};
use causeway_proto::id::{SessionId, SessionSecret};
use causeway_proto::status::WireError;
use causeway_security::Fingerprint;
use parking_lot::Mutex;

use super::bulk::Wishes;
use super::control::{self, Supervisor};
use super::discover::Target;
use super::events::SessionEvents;
use super::fork;
use super::gauge::Gauge;
use super::local::Peer;
use super::pulse::Rhythm;
use super::session::{Location, Opening, Session};
use super::socket::Door;
use crate::config::ServerSettings;

/// For everything that opening a session takes.
const OPEN_LIMIT: Duration = Duration::from_secs(5);

/// Why a session is lost that [`Node::disconnect`] has ended: nobody needs to be warned of it.
pub const DISCONNECTED: &str = "the program has disconnected the server";

/// Hears, while a session is opened, that the node has other devices than the inventory told. Says whether
/// every device that was told still means the same; otherwise no session is opened now.
pub type ChangeListener = Box<dyn Fn(&Arc<Inventory>) -> bool + Send + Sync>;

/// Hears that a session on the node is lost. It waits for nobody.
pub type LossListener = Box<dyn Fn() + Send + Sync>;

/// One configured daemon.
pub struct Node {
    settings: ServerSettings,
    inventory: Mutex<Option<Arc<Inventory>>>,
    available: AtomicBool,
    disconnected: AtomicBool,
    // Held while a session is opened, so that two contexts do not open two.
    session: Mutex<Option<Arc<Session>>>,
    // Lost, and in use no more when the node was asked again: why it was lost may become known later still.
    past: Mutex<Weak<Session>>,
    gauge: Arc<Gauge>,
    changed: OnceLock<ChangeListener>,
    loss: OnceLock<LossListener>,
    // The signed lease on its devices; a renewed one replaces it.
    credential: Mutex<Bytes>,
}

/// What the wish for a session has brought.
enum Asked {
    Opened(Credentials),
    /// The devices are others than we know.
    Changed(Inventory),
}

struct Credentials {
    peer: Peer,
    session: SessionId,
    secret: SessionSecret,
    /// Of the session's certificate, where TLS is spoken.
    fingerprint: Option<Fingerprint>,
    reply: OpenSessionReply,
}

impl Node {
    /// A node that nobody has asked anything yet.
    #[must_use]
    pub fn new(settings: ServerSettings) -> Node {
        Node {
            settings,
            inventory: Mutex::new(None),
            available: AtomicBool::new(false),
            disconnected: AtomicBool::new(false),
            session: Mutex::new(None),
            past: Mutex::default(),
            gauge: Arc::default(),
            changed: OnceLock::new(),
            loss: OnceLock::new(),
            credential: Mutex::default(),
        }
    }

    /// The session of this process on the node: opened now if there is none or the last is lost,
    /// otherwise the one there is. `events` counts only when it is opened now.
    ///
    /// Waits for the network when it opens: at most five seconds. The session stays open until it is
    /// lost, the node is disconnected or the process ends, however many contexts come and go.
    ///
    /// # Errors
    /// [`WireError::Unreachable`], [`WireError::Protocol`], [`WireError::Refused`], [`WireError::Forked`].
    pub fn session(
        self: &Arc<Self>,
        events: Arc<dyn SessionEvents>,
    ) -> Result<Arc<Session>, WireError> {
        fork::check()?;
        let mut current = self.session.lock();
        if self.is_disconnected() {
            return Err(self.unreachable("the program has disconnected it"));
        }
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
        let Credentials {
            peer,
            session,
            secret,
            fingerprint,
            reply,
        } = self.credentials()?;
        let rhythm = Rhythm::from_wire(reply.heartbeat_interval_ms, reply.heartbeat_limit_ms);
        let location = self.location(peer.address());
        let door = Door {
            peer,
            address: self.address().to_owned(),
            session,
            secret,
            fingerprint,
            heartbeat_limit: rhythm.limit,
            place: self
                .settings
                .shared_memory
                .then(|| Place::told(&reply.shared_memory))
                .flatten(),
        };
        let opening = Opening {
            door,
            carrier: self.settings.carrier,
            rhythm,
            bulk: Wishes {
                connections: self
                    .settings
                    .bulk_connections
                    .min(reply.bulk_connections.max(1)),
                pacing: self.settings.pacing,
                compression: self.settings.compression,
            },
            deadline,
            gauge: Arc::clone(&self.gauge),
            location: Location {
                certificate: fingerprint,
                ..location
            },
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

    fn location(&self, peer: std::net::SocketAddr) -> Location {
        let inventory = self.inventory();
        let told = inventory.as_deref();
        Location {
            peer,
            uuid: told.map(|told| told.node_uuid.clone()).unwrap_or_default(),
            name: self.name().to_owned(),
            addresses: told.map_or_else(Vec::new, |told| told.peer_addresses.clone()),
            certificate: None,
        }
    }

    // Asks for a session. A node that has been started anew, say, may have other devices than it told:
    // then whoever knows them looks whether those that are in use are still there.
    fn credentials(&self) -> Result<Credentials, WireError> {
        for _ in 0..2 {
            match self.ask_for_session()? {
                Asked::Opened(credentials) => return Ok(credentials),
                Asked::Changed(inventory) => {
                    let inventory = Arc::new(inventory);
                    *self.inventory.lock() = Some(Arc::clone(&inventory));
                    let same = self.changed.get().is_some_and(|same| same(&inventory));
                    if !same {
                        break;
                    }
                }
            }
        }
        Err(self.unreachable("its devices have changed; ask for them again"))
    }

    fn ask_for_session(&self) -> Result<Asked, WireError> {
        let generation = self.inventory().map_or(0, |inventory| inventory.generation);
        let server = self.settings.clone();
        let credential = self.credential.lock().clone();
        let gauge = Arc::clone(&self.gauge);
        let asked = control::converse(move || async move {
            control::within(OPEN_LIMIT, &server.address, async {
                let mut supervisor = Supervisor::reach(&server).await?;
                gauge.note_round_trip(supervisor.round_trip);
                match supervisor
                    .open_session(generation, credential.clone())
                    .await
                {
                    Ok(reply) => credentials(&supervisor, reply).map(Asked::Opened),
                    Err(refused @ WireError::Refused { .. }) => {
                        let inventory = supervisor.inventory(credential).await?;
                        if inventory.generation == generation {
                            return Err(refused);
                        }
                        Ok(Asked::Changed(inventory))
                    }
                    Err(error) => Err(error),
                }
            })
            .await
        });
        asked.unwrap_or_else(|error| {
            Err(WireError::Refused {
                address: self.address().to_owned(),
                reason: error.to_string(),
            })
        })
    }

    fn unreachable(&self, reason: &str) -> WireError {
        WireError::Unreachable {
            address: self.address().to_owned(),
            reason: reason.to_owned(),
        }
    }

    /// The session that there is, if it is not lost; none while one is being opened.
    #[must_use]
    pub fn live_session(&self) -> Option<Arc<Session>> {
        if fork::is_child() {
            return None;
        }
        let session = self.session.try_lock()?;
        session.clone().filter(|session| !session.has_failed())
    }

    /// Ends the session, as a loss would, and opens none until [`Node::connect`].
    pub fn disconnect(&self) {
        self.disconnect_because(DISCONNECTED);
    }

    /// The same, for another reason, which the session's loss tells. Of a session that is lost already, it is told now.
    pub fn disconnect_because(&self, reason: &str) {
        self.disconnected.store(true, Ordering::Release);
        self.gauge.forget();
        let session = self.session.lock().take();
        if let Some(session) = session.or_else(|| self.past.lock().upgrade())
            && !session.close(reason)
            && reason != DISCONNECTED
        {
            session.explain(reason);
        }
    }

    /// What to show it from now on: a signed lease on its devices.
    pub fn set_credential(&self, credential: Bytes) {
        *self.credential.lock() = credential;
    }

    /// How to ask it.
    #[must_use]
    pub fn target(&self) -> Target {
        Target {
            server: self.settings.clone(),
            credential: self.credential.lock().clone(),
        }
    }

    /// Undoes [`Node::disconnect`].
    pub fn connect(&self) {
        self.disconnected.store(false, Ordering::Release);
    }

    /// Whether [`Node::disconnect`] was the last word.
    #[must_use]
    pub fn is_disconnected(&self) -> bool {
        self.disconnected.load(Ordering::Acquire)
    }

    /// Who hears of other devices. The first counts.
    pub fn on_change(&self, listener: ChangeListener) {
        let _ = self.changed.set(listener);
    }

    /// Who hears of sessions that are lost, by [`Node::lost`]. The first counts.
    pub fn on_loss(&self, listener: LossListener) {
        let _ = self.loss.set(listener);
    }

    /// A session on it is lost, and those who used it have been told.
    pub fn lost(&self) {
        if let Some(listener) = self.loss.get() {
            listener();
        }
    }

    /// Takes what the node has just said about itself, unless a session runs on what it said before.
    /// `apply` runs before another session can be opened. Says whether it was taken.
    pub fn renew(&self, inventory: &Arc<Inventory>, apply: impl FnOnce()) -> bool {
        // Where a session is being opened just now, that learns of changes by itself.
        let Some(mut session) = self.session.try_lock() else {
            return false;
        };
        if session
            .as_ref()
            .is_some_and(|session| !session.has_failed())
        {
            return false;
        }
        if let Some(lost) = session.take() {
            *self.past.lock() = Arc::downgrade(&lost);
        }
        self.set_inventory(Arc::clone(inventory));
        apply();
        true
    }

    /// It did not answer.
    pub fn set_unreachable(&self) {
        self.available.store(false, Ordering::Relaxed);
    }

    /// Round trip and bandwidth between here and there.
    #[must_use]
    pub fn gauge(&self) -> &Arc<Gauge> {
        &self.gauge
    }

    /// A handshake with it took so long, if there was one.
    pub fn note_round_trip(&self, round_trip: Option<Duration>) {
        if let Some(round_trip) = round_trip {
            self.gauge.note_round_trip(round_trip);
        }
    }

    /// Whether it has said that this is its uuid.
    #[must_use]
    pub fn is(&self, uuid: &[u8]) -> bool {
        let inventory = self.inventory.lock();
        inventory.as_ref().is_some_and(|of| of.node_uuid == uuid)
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
        if fork::is_child() || self.is_disconnected() {
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
pub fn node_status(server: &ServerSettings, limit: Duration) -> Result<NodeStatus, WireError> {
    let asked = server.clone();
    control::converse(move || async move {
        control::within(limit, &asked.address, async {
            Supervisor::reach(&asked).await?.status().await
        })
        .await
    })
    .unwrap_or_else(|error| {
        Err(WireError::Unreachable {
            address: server.address.to_string(),
            reason: error.to_string(),
        })
    })
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node")
            .field("address", &self.address())
            .field("available", &self.is_available())
            .finish_non_exhaustive()
    }
}

fn credentials(supervisor: &Supervisor, reply: OpenSessionReply) -> Result<Credentials, WireError> {
    let session = <[u8; 16]>::try_from(&reply.session_id[..]);
    let secret = <[u8; 32]>::try_from(&reply.session_secret[..]);
    let fingerprint = Fingerprint::from_wire(&reply.certificate_sha256);
    if supervisor.is_secured && fingerprint.is_none() {
        return Err(supervisor.nonsense("a session without a certificate of its own".to_owned()));
    }
    match (session, secret) {
        (Ok(session), Ok(secret)) => Ok(Credentials {
            fingerprint,
            peer: supervisor.peer.clone(),
            session: SessionId(session),
            secret: SessionSecret(secret),
            reply,
        }),
        _ => Err(supervisor.nonsense("a session without id or secret".to_owned())),
    }
}
