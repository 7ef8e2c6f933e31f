//! The data that a worker's threads share: the assignment, the running session, and which connections exist.
//!
//! Invariant: only a connection that has proved the secret claims the place for its purpose, and each
//! place is claimed once.

use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};
use std::time::Instant;

use causeway_proto::id::SessionId;
use causeway_proto::preamble::{Introduction, Purpose, Verdict};
use causeway_security::{ServerTls, SessionCertificate};
use parking_lot::{Condvar, Mutex};

use super::ending::{Ending, Endings};
use crate::accounting::Slot;
use crate::handover::{self, Assignment, Line, ToSupervisor};
use crate::worker::connection::Connection;
use crate::worker::session::Session;
use crate::worker::threads::Scope;

/// Limit on connections that have not proved the secret yet. A new connection replaces the oldest of
/// them, because a client proves the secret within a round trip.
const MAX_PROVING: usize = 32;
/// Limit on such connections of other workers, which may wait until the client has added their link.
const MAX_PEERS_PROVING: usize = 64;
/// Limit on threads, as a multiple of the connections. The threads of replaced connections end soon.
const LEAVING: usize = 4;

pub(super) struct Stage {
    state: Mutex<StageState>,
    changed: Condvar,
    /// Where threads that hold the stage report a reason to end.
    pub(super) endings: Endings,
    /// The threads of the connection service for this session.
    pub(super) scope: Scope,
    to_supervisor: OwnedFd,
}

#[derive(Default)]
struct StageState {
    account: Option<Slot>,
    assignment: Option<Arc<Assignment>>,
    tls: Option<ServerTls>,
    session: Option<Arc<Session>>,
    commands: bool,
    heartbeat: bool,
    lanes: u64,
    // Counted separately, so that a client that fails to share memory can use the ordinary lanes at once.
    shared_lanes: u64,
    proving: Proofs,
    peers_proving: Proofs,
    last_proof: u64,
    /// Where the command connection goes.
    arrivals: Option<mpsc::Sender<Connection>>,
    /// Sockets that threads wait for, to be shut down when the session ends and its host goes on.
    waited_for: Vec<TcpStream>,
    is_closed: bool,
}

/// The connections that are proving a secret.
#[derive(Default)]
struct Proofs {
    /// The connections that were not replaced, by their numbers.
    open: BTreeMap<u64, TcpStream>,
    threads: usize,
}

impl StageState {
    /// Returns the unproved connections of this purpose, and the limit on them.
    fn proving(&mut self, purpose: Purpose) -> (&mut Proofs, usize) {
        match purpose {
            Purpose::Peer => (&mut self.peers_proving, MAX_PEERS_PROVING),
            _ => (&mut self.proving, MAX_PROVING),
        }
    }
}

impl Stage {
    pub(super) fn new(
        endings: Endings,
        to_supervisor: OwnedFd,
        arrivals: mpsc::Sender<Connection>,
        scope: Scope,
    ) -> Stage {
        Stage {
            state: Mutex::new(StageState {
                arrivals: Some(arrivals),
                ..StageState::default()
            }),
            scope,
            changed: Condvar::new(),
            endings,
            to_supervisor,
        }
    }

    /// Sends the supervisor a descriptor of a connection whose end is the session's end. So the
    /// supervisor sees that end even while this process is stopped.
    pub(super) fn show_client(&self, line: Line, socket: &TcpStream) {
        if let Err(error) = self.wait_for(socket) {
            let _ = socket.shutdown(Shutdown::Both);
            tracing::debug!(%error, "a connection came too late for its session");
        }
        let show = |socket: Option<TcpStream>| {
            let socket = socket.map(|socket| OwnedFd::from(socket).into());
            let message = ToSupervisor::Client { line, socket };
            handover::send_to_supervisor(&self.to_supervisor, &message)
        };
        // Without the descriptor, the supervisor at least learns that the client has connected.
        let shown = socket.try_clone().and_then(|socket| show(Some(socket)));
        if let Err(error) = shown.or_else(|_| show(None)) {
            // The supervisor is gone, which another thread notices.
            tracing::debug!(%error, "cannot report the client's connection to the supervisor");
        }
    }

    /// Hands the command connection to the thread that carries the session's commands.
    pub(super) fn carry(&self, connection: Connection) {
        let arrivals = self.state.lock().arrivals.clone();
        if let Some(arrivals) = arrivals {
            // This fails only when that thread is gone, and then the session ends.
            let _ = arrivals.send(connection);
        }
    }

    /// Ends the waits of the connection service's threads, because the session ends and its host goes on.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.arrivals = None;
        let proofs = [&state.proving, &state.peers_proving];
        let proving = proofs.into_iter().flat_map(|proofs| proofs.open.values());
        for socket in proving.chain(&state.waited_for) {
            let _ = socket.shutdown(Shutdown::Both);
        }
        state.waited_for.clear();
        drop(state);
        self.changed.notify_all();
    }

    /// Whether [`Stage::close`] was called.
    pub(super) fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }

    /// Takes the session, to release it. Called after [`Stage::close`].
    pub(super) fn take_session(&self) -> Option<Arc<Session>> {
        self.state.lock().session.take()
    }

    /// Keeps a socket of a hosted session that a thread is about to wait for, so that [`Stage::close`] ends the
    /// wait.
    ///
    /// # Errors
    /// The system's error, or that the session has ended.
    fn wait_for(&self, socket: &TcpStream) -> io::Result<()> {
        if !self.scope.is_hosted() {
            return Ok(());
        }
        let socket = socket.try_clone()?;
        let mut state = self.state.lock();
        if state.is_closed {
            return Err(io::ErrorKind::NotConnected.into());
        }
        state.waited_for.push(socket);
        Ok(())
    }

    /// Sets the session to serve.
    ///
    /// # Errors
    /// When the session's certificate is unusable.
    pub(super) fn assign(&self, assignment: Assignment) -> io::Result<()> {
        let certificate = assignment.certificate.as_ref();
        let tls = certificate.map(SessionCertificate::server).transpose()?;
        let mut state = self.state.lock();
        state.tls = tls;
        state.assignment = Some(Arc::new(assignment));
        Ok(())
    }

    /// The TLS settings of the session's connections; `None` without TLS.
    pub(super) fn tls(&self) -> Option<ServerTls> {
        self.state.lock().tls.clone()
    }

    /// Sets the slot in which the session counts its usage. Called before [`Stage::assign`].
    pub(super) fn count_in(&self, account: Slot) {
        self.state.lock().account = Some(account);
    }

    pub(super) fn account(&self) -> Option<Slot> {
        self.state.lock().account.clone()
    }

    pub(super) fn assignment(&self) -> Option<Arc<Assignment>> {
        self.state.lock().assignment.clone()
    }

    pub(super) fn id(&self) -> Option<SessionId> {
        self.assignment().map(|assignment| assignment.id)
    }

    /// Starts the session and wakes the threads that wait for it. The state is not locked during the start.
    pub(super) fn begin(&self, start: impl FnOnce() -> Session) -> Arc<Session> {
        let session = Arc::new(start());
        // Also after `close`: whoever closes the stage waits for this thread, and then releases the session.
        let is_closed = {
            let mut state = self.state.lock();
            state.session = Some(Arc::clone(&session));
            state.is_closed
        };
        if is_closed {
            session.leave();
        }
        self.changed.notify_all();
        session
    }

    /// The session, if it has begun.
    pub(super) fn session_now(&self) -> Option<Arc<Session>> {
        self.state.lock().session.clone()
    }

    /// Whether the command connection has arrived, and the session has still to begin.
    pub(super) fn awaits_session(&self) -> bool {
        let state = self.state.lock();
        state.commands && state.session.is_none() && !state.is_closed
    }

    /// Waits for the session to begin. Returns `None` if it ends before. A session without a command
    /// connection has a deadline.
    pub(super) fn session(&self) -> Option<Arc<Session>> {
        let mut state = self.state.lock();
        while state.session.is_none() && !state.is_closed {
            self.changed.wait(&mut state);
        }
        state.session.clone()
    }

    /// Waits for the session to begin, until `deadline`.
    pub(super) fn session_by(&self, deadline: Instant) -> Option<Arc<Session>> {
        let mut state = self.state.lock();
        while state.session.is_none()
            && !state.is_closed
            && !self.changed.wait_until(&mut state, deadline).timed_out()
        {}
        state.session.clone()
    }

    /// Whether the command connection has still to arrive.
    pub(super) fn awaits_commands(&self) -> bool {
        let state = self.state.lock();
        !state.commands && !state.is_closed
    }

    /// Registers a connection that is about to prove the secret; closes the oldest if there are too many.
    /// Returns `None` if there are too many threads.
    pub(super) fn begin_proof(
        self: &Arc<Self>,
        purpose: Purpose,
        socket: &TcpStream,
    ) -> Option<Proving> {
        let socket = socket.try_clone().ok()?;
        let mut state = self.state.lock();
        if state.is_closed {
            return None;
        }
        state.last_proof += 1;
        let number = state.last_proof;
        let (proofs, most) = state.proving(purpose);
        if proofs.threads == LEAVING * most {
            return None;
        }
        if proofs.open.len() == most
            && let Some((_, oldest)) = proofs.open.pop_first()
        {
            // The thread of that connection sees the end.
            let _ = oldest.shutdown(Shutdown::Both);
        }
        proofs.open.insert(number, socket);
        proofs.threads += 1;
        Some(Proving {
            stage: Arc::clone(self),
            purpose,
            number,
        })
    }

    /// Checks whether a connection for this purpose could be accepted now.
    pub(super) fn has_place(&self, preamble: &Introduction) -> Result<(), Verdict> {
        place(&self.state.lock(), preamble).map(drop)
    }

    /// Claims the place for a connection that has proved the secret.
    pub(super) fn claim(self: &Arc<Self>, preamble: &Introduction) -> Result<Claimed, Verdict> {
        let mut state = self.state.lock();
        let place = place(&state, preamble)?;
        place.set(&mut state, true);
        Ok(Claimed(Some((Arc::clone(self), place))))
    }
}

#[derive(Clone, Copy)]
enum Place {
    Commands,
    Heartbeat,
    Lane(u64),
    SharedLane(u64),
}

impl Place {
    fn set(self, state: &mut StageState, taken: bool) {
        match self {
            Place::Commands => state.commands = taken,
            Place::Heartbeat => state.heartbeat = taken,
            Place::Lane(bit) if taken => state.lanes |= bit,
            Place::Lane(bit) => state.lanes &= !bit,
            Place::SharedLane(bit) if taken => state.shared_lanes |= bit,
            Place::SharedLane(bit) => state.shared_lanes &= !bit,
        }
    }
}

/// A claimed place, which is free again if the connection breaks before its use.
pub(super) struct Claimed(Option<(Arc<Stage>, Place)>);

impl Claimed {
    /// Keeps the place claimed, because the connection is in use.
    pub(super) fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        if let Some((stage, place)) = self.0.take() {
            place.set(&mut stage.state.lock(), false);
            if matches!(place, Place::Commands) {
                // Nothing waits for a second command connection, and the client of this one is gone.
                stage.endings.end(Ending::ClientClosed);
            }
        }
    }
}

fn place(state: &StageState, preamble: &Introduction) -> Result<Place, Verdict> {
    let assignment = state.assignment.as_ref().ok_or(Verdict::UnknownSession)?;
    let free = |free: bool, place| {
        if free {
            Ok(place)
        } else {
            Err(Verdict::TooMany)
        }
    };
    match preamble.purpose {
        Purpose::Commands | Purpose::CommandsGrpc => free(!state.commands, Place::Commands),
        Purpose::Heartbeat => free(!state.heartbeat, Place::Heartbeat),
        purpose @ (Purpose::Bulk | Purpose::SharedBulk) => {
            let lane = u32::from(preamble.lane);
            let bit = 1u64.checked_shl(lane).unwrap_or(0);
            let known = lane < assignment.bulk_connections;
            if purpose == Purpose::Bulk {
                free(known && state.lanes & bit == 0, Place::Lane(bit))
            } else {
                free(
                    known && state.shared_lanes & bit == 0,
                    Place::SharedLane(bit),
                )
            }
        }
        // Connections of other workers have no place here: each link keeps its own.
        Purpose::Peer => Err(Verdict::Malformed),
    }
}

/// A connection that is proving the secret.
pub(super) struct Proving {
    stage: Arc<Stage>,
    purpose: Purpose,
    number: u64,
}

impl Drop for Proving {
    fn drop(&mut self) {
        let mut state = self.stage.state.lock();
        let (proofs, _) = state.proving(self.purpose);
        proofs.open.remove(&self.number);
        proofs.threads -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handover::Owner;
    use crate::worker::connection::SessionLimits;
    use causeway_proto::id::SessionSecret;
    use causeway_proto::preamble::Preamble;
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    fn stage() -> Arc<Stage> {
        let (_, channel) = handover::pair().unwrap();
        let (arrivals, _) = mpsc::channel();
        let stage = Stage::new(Endings::new().0, channel, arrivals, Scope::default());
        let assigned = stage.assign(Assignment {
            id: SessionId([1; 16]),
            secret: SessionSecret([2; 32]),
            limits: SessionLimits {
                objects: 1,
                held_commands: 1,
                held_bytes: 1,
                device_memory: 0,
                host_memory: 0,
            },
            bulk_connections: 2,
            connect_limit: Duration::from_secs(10),
            load_limit: Duration::from_secs(60),
            heartbeat_interval: Duration::from_millis(500),
            heartbeat_limit: Duration::from_secs(4),
            build_cache: false,
            certificate: None,
            leased: None,
            slot: 0,
            owner: Owner::default(),
        });
        assigned.unwrap();
        Arc::new(stage)
    }

    fn preamble(purpose: Purpose, lane: u8) -> Introduction {
        let preamble = Preamble {
            purpose,
            lane,
            session: SessionId([1; 16]),
            link: 0,
        };
        Preamble::decode(&preamble.encode()).unwrap()
    }

    #[test]
    fn every_place_is_taken_once() {
        let stage = stage();
        let bulk = |lane| preamble(Purpose::Bulk, lane);
        for (preamble, expected) in [
            (preamble(Purpose::Commands, 0), Ok(())),
            (preamble(Purpose::CommandsGrpc, 0), Err(Verdict::TooMany)),
            (preamble(Purpose::Heartbeat, 0), Ok(())),
            (preamble(Purpose::Heartbeat, 1), Err(Verdict::TooMany)),
            (bulk(1), Ok(())),
            (bulk(1), Err(Verdict::TooMany)),
            (bulk(0), Ok(())),
            (bulk(2), Err(Verdict::TooMany)),
            (bulk(255), Err(Verdict::TooMany)),
            (preamble(Purpose::SharedBulk, 1), Ok(())),
            (preamble(Purpose::SharedBulk, 1), Err(Verdict::TooMany)),
            (preamble(Purpose::SharedBulk, 2), Err(Verdict::TooMany)),
            (preamble(Purpose::Peer, 0), Err(Verdict::Malformed)),
        ] {
            assert_eq!(stage.has_place(&preamble), expected, "{preamble:?}");
            let claimed = stage.claim(&preamble).map(Claimed::keep);
            assert_eq!(claimed, expected, "{preamble:?}");
        }
    }

    #[test]
    fn a_place_that_was_not_used_is_free_again() {
        let stage = stage();
        for preamble in [preamble(Purpose::Commands, 0), preamble(Purpose::Bulk, 1)] {
            drop(stage.claim(&preamble));
            assert_eq!(stage.has_place(&preamble), Ok(()));
        }
    }

    #[test]
    fn proofs_at_once_are_limited() {
        let stage = stage();
        let mut ends = Vec::new();
        let mut begin = |purpose| {
            let (near, far) = UnixStream::pair().unwrap();
            far.set_nonblocking(true).unwrap();
            ends.push(far);
            // `TcpStream` stands for all stream sockets here; nothing specific to TCP is used.
            stage.begin_proof(purpose, &TcpStream::from(OwnedFd::from(near)))
        };
        let mut all: Vec<_> = (0..=MAX_PROVING).map(|_| begin(Purpose::Bulk)).collect();
        assert!(all.iter().all(Option::is_some));
        assert!(begin(Purpose::Peer).is_some());
        all.extend((all.len()..LEAVING * MAX_PROVING).map(|_| begin(Purpose::Bulk)));
        assert!(begin(Purpose::Bulk).is_none());
        drop(all);
        assert!(begin(Purpose::Bulk).is_some());
        // The first connection was closed for the thirty-third.
        assert_eq!(ends[0].read(&mut [0]).unwrap(), 0);
    }
}
