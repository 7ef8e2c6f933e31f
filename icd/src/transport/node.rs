//! A configured daemon: its address, its inventory, and this process's session on it.
//!
//! Invariant: at most one session per node is open at a time.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use causeway_discovery::Interfaces;
use causeway_lane::DaemonPlace;
use causeway_proto::control::{Inventory, NodeStatus, OpenSessionReply};
use causeway_proto::id::{SessionId, SessionSecret};
use causeway_proto::status::WireError;
use causeway_security::Fingerprint;
use parking_lot::Mutex;

use self::whereabouts::Whereabouts;
use super::bulk::BulkSettings;
use super::control::{self, Supervisor};
use super::events::SessionEvents;
use super::gauge::Gauge;
use super::granted::Granted;
use super::heartbeat::Rhythm;
use super::rails::{Rail, Rails};
use super::retry;
use super::session::{Location, Opening, Session};
use super::socket::{Dialer, Fault, NotOpened};
use super::{figures, speeds};
use crate::config::ServerSettings;
use crate::fork;

mod reopening;
mod whereabouts;

/// Time limit for everything that opening a session takes, unless the node's `answer_limit` is longer.
const OPEN_LIMIT: Duration = Duration::from_secs(5);

/// Number of sessions that are opened at most, if each ends before this client has come to it.
const OPENINGS: u32 = 3;

/// Called while a session is opened, if the node's devices differ from its last inventory. Returns
/// whether every device in use still means the same; otherwise no session is opened.
pub type ChangeListener = Box<dyn Fn(&Arc<Inventory>) -> bool + Send + Sync>;

/// Called when a session on the node is lost. Must not block.
pub type LossListener = Box<dyn Fn() + Send + Sync>;

/// Called when a session on the node has no connection and could not get one. Must not block.
pub type AwayListener = Box<dyn Fn(&Arc<Node>) + Send + Sync>;

/// A node to ask, and the credential to show.
#[derive(Debug, Clone)]
pub struct Target {
    /// The node's settings.
    pub server: ServerSettings,
    /// The signed lease on the node's devices; empty without one.
    pub credential: Bytes,
}

impl From<ServerSettings> for Target {
    fn from(server: ServerSettings) -> Target {
        Target {
            server,
            credential: Bytes::new(),
        }
    }
}

/// One configured daemon.
pub struct Node {
    settings: ServerSettings,
    inventory: Mutex<Option<Arc<Inventory>>>,
    available: AtomicBool,
    disconnected: AtomicBool,
    // Locked while a session is opened, so that two contexts do not open two.
    session: Mutex<Option<Arc<Session>>>,
    // The lost session that was replaced when the node was asked again. The reason of its loss may still
    // become known later.
    past: Mutex<Weak<Session>>,
    gauge: Arc<Gauge>,
    // The number of the address that answered last.
    rail: AtomicUsize,
    changed: OnceLock<ChangeListener>,
    loss: OnceLock<LossListener>,
    away: OnceLock<AwayListener>,
    // Where the devices are now. Devices and inventory stay as they were told.
    whereabouts: Mutex<Whereabouts<Session>>,
}

/// Result of asking for a session.
enum OpeningAnswer {
    Opened(Box<Credentials>),
    /// The node's devices differ from the last inventory.
    Changed(Arc<Inventory>),
}

struct Credentials {
    rail: Rail,
    session: SessionId,
    secret: SessionSecret,
    /// Fingerprint of the session's certificate, with TLS.
    fingerprint: Option<Fingerprint>,
    reply: OpenSessionReply,
    /// The server that has opened the session.
    server: ServerSettings,
    /// How often the devices had changed their place.
    changes: u64,
}

impl Node {
    /// A node that has not been asked anything yet.
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
            rail: AtomicUsize::new(0),
            changed: OnceLock::new(),
            loss: OnceLock::new(),
            away: OnceLock::new(),
            whereabouts: Mutex::default(),
        }
    }

    /// Returns this process's session on the node. Opens one if there is none or the last one is lost.
    /// `events` is used only if a session is opened now.
    ///
    /// Opening waits for the network, at most the longer of five seconds and the node's `answer_limit`.
    /// The session stays open until it is lost, the node is disconnected or the process ends, however
    /// many contexts come and go.
    pub fn session(
        self: &Arc<Self>,
        events: Arc<dyn SessionEvents>,
    ) -> Result<Arc<Session>, WireError> {
        fork::check()?;
        let mut current = self.session.lock();
        if self.is_disconnected() {
            return Err(self
                .unreachable("the program has disconnected this server; connect it again first"));
        }
        if let Some(session) = &*current
            && !session.has_failed()
        {
            return Ok(Arc::clone(session));
        }
        // Before the first session, so that every forked child recognises itself.
        fork::mark_process();
        let opened = self.open(events);
        self.available.store(opened.is_ok(), Ordering::Relaxed);
        if let Err(error) = &opened {
            // The application gets only a code. People need the text, for example to know which side to
            // upgrade.
            tracing::warn!("{error}");
        }
        let session = Arc::new(opened?);
        *current = Some(Arc::clone(&session));
        self.whereabouts.lock().enter(&session);
        // A session that ends at once calls the application.
        drop(current);
        // The devices may have changed their place meanwhile.
        self.tell_session();
        Ok(session)
    }

    // Opens a session, and another one if the node has ended it before this client came to it. Such a session has nothing
    // yet. In a process with several sessions, a neighbour may have ended it.
    fn open(self: &Arc<Self>, events: Arc<dyn SessionEvents>) -> Result<Session, WireError> {
        let deadline = Instant::now() + self.open_limit();
        let mut attempt = 1;
        loop {
            let NotOpened { error, fault, .. } = match self.open_once(deadline, events.clone()) {
                Ok(session) => return Ok(session),
                Err(not_opened) => not_opened,
            };
            if fault != Fault::UnknownSession || attempt == OPENINGS || Instant::now() >= deadline {
                return Err(error);
            }
            attempt += 1;
        }
    }

    fn open_once(
        self: &Arc<Self>,
        deadline: Instant,
        events: Arc<dyn SessionEvents>,
    ) -> Result<Session, NotOpened> {
        let Credentials {
            rail,
            session,
            secret,
            fingerprint,
            reply,
            server: settings,
            changes,
        } = self.credentials()?;
        let rhythm = Rhythm::from_wire(reply.heartbeat_interval_ms, reply.heartbeat_limit_ms);
        let location = self.location(rail.peer.address());
        let here = DaemonPlace::told(&reply.shared_memory);
        let granted = self.granted(&settings, &reply);
        let resume = granted.resume;
        let dialer = Dialer {
            rails: Arc::new(
                Rails::new(&settings, rail, &self.speeds(&settings), fingerprint)
                    .opened_after(changes),
            ),
            here,
            address: self.address().to_owned(),
            session,
            secret,
            heartbeat_limit: rhythm.limit,
            place: here.filter(|_| self.settings.shared_memory),
        };
        let opening = Opening {
            dialer,
            carrier: self.settings.carrier,
            rhythm,
            bulk: BulkSettings {
                resume,
                connections: self
                    .settings
                    .bulk_connections
                    .max(self.settings.addresses().count() as u32)
                    .min(reply.bulk_connections.max(1)),
                pacing: self.settings.pacing,
                compression: self.settings.compression,
            },
            deadline,
            gauge: Arc::clone(&self.gauge),
            location: Location { resume, ..location },
            server: settings.clone(),
            granted,
            node: Arc::downgrade(self),
        };
        let opened = Session::open(opening, events);
        let ok = opened.is_ok();
        let message = if ok {
            "session opened"
        } else {
            "session not opened"
        };
        tracing::info!(address = self.address(), ?session, ok, "{message}");
        opened
    }

    /// What the node has granted of what the settings ask for.
    fn granted(&self, settings: &ServerSettings, reply: &OpenSessionReply) -> Granted {
        let time = |milliseconds: u32| Duration::from_millis(milliseconds.into());
        let (resume, keep) = (time(reply.resume_ms), time(reply.keep_ms));
        let granted = Granted::new(settings, resume, keep, time(reply.restart_ms))
            .with_reexecution(settings, reply.reexecutes, self.is_replaceable());
        if settings.survival.reexecute && granted.reexecutes.is_none() {
            let why = match reply.not_reexecuted.as_str() {
                "" => "its daemon is too old, or `resume` is 0",
                why => why,
            };
            tracing::warn!(
                address = self.address(),
                "the program's commands are not executed again if the node's process of the session dies: {why}"
            );
        }
        granted
    }

    /// The speeds of the server's addresses; empty if they are not known.
    fn speeds(&self, settings: &ServerSettings) -> Vec<u64> {
        if settings.further.is_empty() {
            return Vec::new();
        }
        let inventory = self.inventory();
        let kept = self.uuid().map_or(&[][..], |uuid| figures::kept(&uuid));
        let theirs = inventory.as_ref().map_or(&[][..], |of| &of.link_speeds);
        // A host that cannot list its interfaces knows no speeds of them.
        let interfaces = Interfaces::of_host().unwrap_or_default();
        let own = |address, zone: Option<&str>| {
            let of = interfaces.towards(address, zone)?;
            let mbits = of.speed();
            Some(speeds::OwnInterface {
                name: &of.name,
                mbits,
            })
        };
        let addresses: Vec<_> = settings.addresses().collect();
        let speeds = speeds::of_addresses(&addresses, kept, theirs, own);
        tracing::debug!(
            address = self.address(),
            ?speeds,
            "speeds of the server's addresses"
        );
        speeds
    }

    /// The number of the address that commands try first.
    fn first_rail(&self, settings: &ServerSettings) -> usize {
        let answered = self.rail.load(Ordering::Relaxed);
        match (settings.further.is_empty(), self.uuid()) {
            (false, Some(uuid)) => {
                speeds::first(answered, settings.addresses(), figures::kept(&uuid))
            }
            _ => answered,
        }
    }

    fn location(&self, peer: std::net::SocketAddr) -> Location {
        let inventory = self.inventory();
        let told = inventory.as_deref();
        Location {
            peer,
            uuid: told.map(|told| told.node_uuid.clone()).unwrap_or_default(),
            name: self.name().to_owned(),
            addresses: told.map_or_else(Vec::new, |told| told.peer_addresses.clone()),
            speeds: told.map_or_else(Vec::new, |told| told.link_speeds.clone()),
            resume: Duration::ZERO,
        }
    }

    // Asks for a session. The devices may have changed, for example because the daemon was restarted.
    // Then the listener checks whether the devices in use are still there, and the second attempt uses
    // the new inventory.
    fn credentials(&self) -> Result<Credentials, WireError> {
        for _ in 0..2 {
            match self.ask_for_session()? {
                OpeningAnswer::Opened(credentials) => return Ok(*credentials),
                OpeningAnswer::Changed(inventory) => {
                    *self.inventory.lock() = Some(Arc::clone(&inventory));
                    let same = self.changed.get().is_some_and(|same| same(&inventory));
                    if !same {
                        break;
                    }
                }
            }
        }
        Err(self.unreachable("the node's devices have changed; call clGetDeviceIDs again"))
    }

    fn ask_for_session(&self) -> Result<OpeningAnswer, WireError> {
        let generation = self.inventory().map_or(0, |inventory| inventory.generation);
        let (Target { server, credential }, changes) = self.target_now();
        let gauge = Arc::clone(&self.gauge);
        let (limit, rail) = (self.open_limit(), self.first_rail(&server));
        let asked = control::converse(move || async move {
            let (server, credential, gauge) = (&server, &credential, &gauge);
            let converse = |attempt| async move {
                let mut supervisor = Supervisor::reach(server, OPEN_LIMIT, rail + attempt).await?;
                gauge.note_round_trip(supervisor.round_trip);
                match supervisor
                    .open_session(generation, credential.clone(), server)
                    .await
                {
                    Ok(reply) => credentials(&supervisor, reply, (server, changes))
                        .map(|opened| OpeningAnswer::Opened(Box::new(opened))),
                    Err(refused @ WireError::Refused { .. }) => {
                        let inventory = supervisor.inventory(credential.clone()).await?;
                        // With an unchanged inventory, the refusal has another cause.
                        if inventory.generation == generation {
                            return Err(refused);
                        }
                        Ok(OpeningAnswer::Changed(Arc::new(inventory)))
                    }
                    Err(error) => Err(error),
                }
            };
            control::within(limit, &server.address, retry::persistently(converse)).await
        });
        asked.unwrap_or_else(|error| {
            Err(WireError::Refused {
                address: self.address().to_owned(),
                reason: error.to_string(),
            })
        })
    }

    fn open_limit(&self) -> Duration {
        self.settings.answer_limit.max(OPEN_LIMIT)
    }

    fn unreachable(&self, reason: &str) -> WireError {
        WireError::Unreachable {
            address: self.address().to_owned(),
            reason: reason.to_owned(),
        }
    }

    /// The open session, if it is not lost. `None` while one is being opened.
    #[must_use]
    pub fn live_session(&self) -> Option<Arc<Session>> {
        if fork::is_child() {
            return None;
        }
        let session = self.session.try_lock()?;
        session.clone().filter(|session| !session.has_failed())
    }

    /// Ends the session as a loss would, and opens none until [`Node::connect`].
    pub fn disconnect(&self) {
        if let Some(session) = self.detach() {
            session.disconnect();
        }
    }

    /// Like [`Node::disconnect`], for another reason, which the session's loss reports. If the session is
    /// already lost, the reason is reported now.
    pub fn disconnect_because(&self, reason: &str) {
        if let Some(session) = self.detach()
            && !session.close(reason)
        {
            session.explain(reason);
        }
    }

    // Lets no session be opened until `connect`. Returns the current session, or the one that was lost.
    fn detach(&self) -> Option<Arc<Session>> {
        self.disconnected.store(true, Ordering::Release);
        self.gauge.forget();
        let session = self.session.lock().take();
        session.or_else(|| self.past.lock().upgrade())
    }

    /// Sets the credential for further calls: a signed lease on the node's devices.
    pub fn set_credential(&self, credential: Bytes) {
        self.whereabouts.lock().credential = credential;
    }

    /// Sets within which time the device manager has equal devices take the place of the node's if the lease loses these.
    /// Zero: it does not.
    pub fn set_replaced_within(&self, within: Duration) {
        self.whereabouts.lock().replaced_within = within;
    }

    /// Whether the device manager has equal devices take the place of the node's if the lease loses these.
    pub(super) fn is_replaceable(&self) -> bool {
        !self.replaced_within().is_zero()
    }

    /// See [`Node::set_replaced_within`].
    pub(super) fn replaced_within(&self) -> Duration {
        self.whereabouts.lock().replaced_within
    }

    /// Settings and credential for asking the node.
    #[must_use]
    pub fn target(&self) -> Target {
        self.target_now().0
    }

    // The target, and how often the devices had changed their place, of one moment.
    fn target_now(&self) -> (Target, u64) {
        let whereabouts = self.whereabouts.lock();
        let server = whereabouts.server().unwrap_or(&self.settings).clone();
        let credential = whereabouts.credential.clone();
        (Target { server, credential }, whereabouts.changes)
    }

    /// How often the devices have changed their place.
    pub(super) fn changes(&self) -> u64 {
        self.whereabouts.lock().changes
    }

    /// Handles that the lease has moved to another node, of this uuid, or that this node is at other addresses. The open
    /// session goes on there.
    pub fn move_to(&self, uuid: Bytes, server: ServerSettings) {
        self.whereabouts.lock().change(uuid, server, false);
        self.tell_session();
    }

    /// Handles a move that the device manager has told with this credential. `is_lost`: the lease has lost its devices of
    /// this node, and has equal ones of the node of this uuid, which may be the same. The open session begins anew there.
    pub fn follow(&self, uuid: Bytes, server: ServerSettings, credential: Bytes, is_lost: bool) {
        {
            let mut whereabouts = self.whereabouts.lock();
            whereabouts.change(uuid, server, is_lost);
            // At once: a session that is opened with it there is not opened once more.
            whereabouts.credential = credential;
        }
        self.tell_session();
    }

    // Tells the open session where it goes on.
    fn tell_session(&self) {
        if fork::is_child() {
            return;
        }
        let news = self.whereabouts.lock().news();
        if let Some((session, destination)) = news
            && !session.has_failed()
        {
            session.lead_to(&destination);
        }
    }

    /// Undoes [`Node::disconnect`].
    pub fn connect(&self) {
        self.disconnected.store(false, Ordering::Release);
    }

    /// Whether the node is disconnected: [`Node::disconnect`] was called later than [`Node::connect`].
    #[must_use]
    pub fn is_disconnected(&self) -> bool {
        self.disconnected.load(Ordering::Acquire)
    }

    /// Registers the listener for changed devices. Only the first one counts.
    pub fn on_change(&self, listener: ChangeListener) {
        let _ = self.changed.set(listener);
    }

    /// Registers the listener for lost sessions, which [`Node::lost`] calls. Only the first one counts.
    pub fn on_loss(&self, listener: LossListener) {
        let _ = self.loss.set(listener);
    }

    /// Registers the listener for sessions without a connection. Only the first one counts.
    pub fn on_away(&self, listener: AwayListener) {
        let _ = self.away.set(listener);
    }

    /// Calls the listener for sessions without a connection, because the node may be somewhere else.
    pub(super) fn is_away(self: &Arc<Self>) {
        if let Some(listener) = self.away.get() {
            listener(self);
        }
    }

    /// Calls the loss listener, because the manager may have news of the lease.
    pub(super) fn looks_for_news(&self) {
        self.lost();
    }

    /// Calls the loss listener. The users of the lost session have already been told.
    pub fn lost(&self) {
        if let Some(listener) = self.loss.get() {
            listener();
        }
    }

    /// Stores a new inventory, unless a session is open that relies on the old one. `apply` runs before
    /// another session can be opened. Returns whether the inventory was stored.
    pub fn renew(&self, inventory: &Arc<Inventory>, apply: impl FnOnce()) -> bool {
        // A session that is being opened right now detects changes by itself.
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

    /// Records that the node did not answer.
    pub fn set_unreachable(&self) {
        self.available.store(false, Ordering::Relaxed);
    }

    /// Measured round trip and bandwidth between this process and the node.
    #[must_use]
    pub fn gauge(&self) -> &Arc<Gauge> {
        &self.gauge
    }

    /// Records which of the server's addresses answered, and the duration of the handshake, if there was one.
    pub fn note_answer(&self, rail: usize, round_trip: Option<Duration>) {
        self.rail.store(rail, Ordering::Relaxed);
        if let Some(round_trip) = round_trip {
            self.gauge.note_round_trip(round_trip);
        }
    }

    /// The node as an end of links. `None` before it has answered once.
    #[must_use]
    pub fn link_end(&self) -> Option<figures::LinkedNode> {
        let Target { server, credential } = self.target();
        Some(figures::LinkedNode {
            uuid: self.uuid()?,
            server,
            credential,
            is_available: self.is_available(),
        })
    }

    /// The uuid of the node that has the devices now. `None` before it has answered once.
    #[must_use]
    pub fn uuid(&self) -> Option<Bytes> {
        if let Some(uuid) = self.whereabouts.lock().uuid() {
            return Some(uuid.clone());
        }
        let inventory = self.inventory.lock();
        inventory.as_ref().map(|of| of.node_uuid.clone())
    }

    /// Whether the devices are at the node of this uuid.
    #[must_use]
    pub fn is(&self, uuid: &[u8]) -> bool {
        self.uuid().is_some_and(|of| of == uuid)
    }

    /// `host:port`, as configured.
    #[must_use]
    pub fn address(&self) -> &str {
        self.settings.address.as_str()
    }

    /// The name for people: the configured one, or the address.
    #[must_use]
    pub fn name(&self) -> &str {
        self.settings.name.as_deref().unwrap_or(self.address())
    }

    /// The node's settings.
    #[must_use]
    pub fn settings(&self) -> &ServerSettings {
        &self.settings
    }

    /// Whether the node answered the last call, and no session on it was lost since:
    /// `CL_DEVICE_AVAILABLE`. Uses no network.
    #[must_use]
    pub fn is_available(&self) -> bool {
        if fork::is_child() || self.is_disconnected() {
            return false;
        }
        let lost = match self.session.try_lock() {
            Some(session) => session.as_ref().is_some_and(|session| session.has_failed()),
            // A session is being opened right now.
            None => false,
        };
        self.available.load(Ordering::Relaxed) && !lost
    }

    /// The last inventory that the node reported.
    #[must_use]
    pub fn inventory(&self) -> Option<Arc<Inventory>> {
        self.inventory.lock().clone()
    }

    pub(super) fn set_inventory(&self, inventory: Arc<Inventory>) {
        *self.inventory.lock() = Some(inventory);
        self.available.store(true, Ordering::Relaxed);
    }
}

/// Asks a node's supervisor for its load and health. For tools.
pub fn node_status(server: &ServerSettings, limit: Duration) -> Result<NodeStatus, WireError> {
    let asked = server.clone();
    control::converse(move || async move {
        let asked = &asked;
        let converse = |attempt| async move {
            let mut supervisor = Supervisor::reach(asked, limit, attempt).await?;
            supervisor.status().await
        };
        control::within(limit, &asked.address, retry::persistently(converse)).await
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

fn credentials(
    supervisor: &Supervisor,
    reply: OpenSessionReply,
    (server, changes): (&ServerSettings, u64),
) -> Result<Credentials, WireError> {
    let session = <[u8; 16]>::try_from(&reply.session_id[..]);
    let secret = <[u8; 32]>::try_from(&reply.session_secret[..]);
    let fingerprint = Fingerprint::from_wire(&reply.certificate_sha256);
    if supervisor.caller.is_secured && fingerprint.is_none() {
        return Err(
            supervisor.nonsense("the node opened a session without a certificate".to_owned())
        );
    }
    match (session, secret) {
        (Ok(session), Ok(secret)) => Ok(Credentials {
            fingerprint,
            rail: supervisor.rail.clone(),
            session: SessionId(session),
            secret: SessionSecret(secret),
            reply,
            server: server.clone(),
            changes,
        }),
        _ => Err(supervisor
            .nonsense("the node opened a session without a valid id or secret".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_has_moved_is_another_end_of_links() {
        let settings = |text: &str| ServerSettings::at(text.parse().unwrap());
        let node = Node::new(settings("a:1"));
        assert!(node.link_end().is_none());
        let inventory = Inventory {
            node_uuid: vec![1; 16].into(),
            ..Inventory::default()
        };
        node.set_inventory(Arc::new(inventory));
        assert_eq!(node.link_end().unwrap().uuid[..], [1; 16]);
        node.move_to(vec![2; 16].into(), settings("b:1"));
        let end = node.link_end().unwrap();
        assert_eq!(end.uuid[..], [2; 16]);
        assert_eq!(end.server.address.to_string(), "b:1");
        assert!(node.is(&[2; 16]) && !node.is(&[1; 16]));
    }
}
