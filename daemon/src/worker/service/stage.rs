//! What a worker's threads share: the assignment, the session once it runs, who is connected.
//!
//! Invariant: a purpose's place is claimed only by a connection that proved the secret, and is not
//! claimed twice.

use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use causeway_proto::id::SessionId;
use causeway_proto::preamble::{Introduction, Purpose, Verdict};
use causeway_security::{SessionCertificate, SessionTls};
use parking_lot::{Condvar, Mutex};

use super::ending::{Ending, Endings};
use crate::accounting::Slot;
use crate::handover::{self, Assignment, Line, ToSupervisor};
use crate::worker::session::Session;

/// Connections at once that have not proved the secret yet. The one that has not proved it for longest leaves for a
/// newcomer: a client proves it within a round trip.
const MAX_PROVING: usize = 32;
/// The same, of other workers: each may wait for the client's word of its link.
const MAX_PEERS_PROVING: usize = 64;
/// Threads of connections that had to leave end soon; there are no more of them than so many times the others.
const LEAVING: usize = 4;

pub(super) struct Stage {
    state: Mutex<State>,
    changed: Condvar,
    /// For threads that have a stage and find a reason to end.
    pub(super) endings: Endings,
    to_supervisor: OwnedFd,
}

#[derive(Default)]
struct State {
    account: Option<Slot>,
    assignment: Option<Arc<Assignment>>,
    tls: Option<SessionTls>,
    session: Option<Arc<Session>>,
    commands: bool,
    pulse: bool,
    lanes: u64,
    // Of their own, so that a client which fails to share memory finds the others free at once.
    shared_lanes: u64,
    proving: Proofs,
    peers_proving: Proofs,
    last_proof: u64,
}

/// The connections that are proving a secret.
#[derive(Default)]
struct Proofs {
    /// Those that have not been told to leave, by their numbers.
    open: BTreeMap<u64, TcpStream>,
    threads: usize,
}

impl State {
    /// The connections of the purpose that are proving the secret, and how many may.
    fn proving(&mut self, purpose: Purpose) -> (&mut Proofs, usize) {
        match purpose {
            Purpose::Peer => (&mut self.peers_proving, MAX_PEERS_PROVING),
            _ => (&mut self.proving, MAX_PROVING),
        }
    }
}

impl Stage {
    pub(super) fn new(endings: Endings, to_supervisor: OwnedFd) -> Stage {
        Stage {
            state: Mutex::default(),
            changed: Condvar::new(),
            endings,
            to_supervisor,
        }
    }

    /// Shows the supervisor a connection of the client whose end is the session's end: the supervisor sees that end
    /// even where this process no longer runs.
    pub(super) fn show_client(&self, line: Line, socket: &TcpStream) {
        let show = |socket: Option<TcpStream>| {
            let socket = socket.map(OwnedFd::from);
            let message = ToSupervisor::Client { line, socket };
            handover::send_to_supervisor(&self.to_supervisor, &message)
        };
        // Without the descriptor the supervisor still knows that the client has come.
        let shown = socket.try_clone().and_then(|socket| show(Some(socket)));
        if let Err(error) = shown.or_else(|_| show(None)) {
            // The supervisor is gone, and another thread sees that.
            tracing::debug!(%error, "the supervisor does not see the client's connection");
        }
    }

    /// The session to serve.
    ///
    /// # Errors
    /// When its certificate is of no use.
    pub(super) fn assign(&self, assignment: Assignment) -> io::Result<()> {
        let certificate = assignment.certificate.as_ref();
        let tls = certificate.map(SessionCertificate::server).transpose()?;
        let mut state = self.state.lock();
        state.tls = tls;
        state.assignment = Some(Arc::new(assignment));
        Ok(())
    }

    /// What the session's connections are secured with, if they are.
    pub(super) fn tls(&self) -> Option<SessionTls> {
        self.state.lock().tls.clone()
    }

    /// Where the session counts what it uses. Comes before the assignment.
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

    /// Starts the session and wakes who waits for it. The state is not locked while it starts.
    pub(super) fn begin(&self, start: impl FnOnce() -> Session) -> Arc<Session> {
        let session = Arc::new(start());
        self.state.lock().session = Some(Arc::clone(&session));
        self.changed.notify_all();
        session
    }

    /// The session, if it has begun.
    pub(super) fn session_now(&self) -> Option<Arc<Session>> {
        self.state.lock().session.clone()
    }

    /// The session, once it has begun. The wait ends with the process at the latest: a session without
    /// a command connection has a deadline.
    pub(super) fn session(&self) -> Arc<Session> {
        let mut state = self.state.lock();
        loop {
            match &state.session {
                Some(session) => return Arc::clone(session),
                None => self.changed.wait(&mut state),
            }
        }
    }

    /// The same with a limit.
    pub(super) fn session_by(&self, deadline: Instant) -> Option<Arc<Session>> {
        let mut state = self.state.lock();
        while state.session.is_none() && !self.changed.wait_until(&mut state, deadline).timed_out()
        {
        }
        state.session.clone()
    }

    /// Whether the command connection has come.
    pub(super) fn has_commands(&self) -> bool {
        self.state.lock().commands
    }

    /// Room for one more connection that is about to prove the secret; another may have to leave for it.
    pub(super) fn begin_proof(
        self: &Arc<Self>,
        purpose: Purpose,
        socket: &TcpStream,
    ) -> Option<Proving> {
        let socket = socket.try_clone().ok()?;
        let mut state = self.state.lock();
        state.last_proof += 1;
        let number = state.last_proof;
        let (proofs, most) = state.proving(purpose);
        if proofs.threads == LEAVING * most {
            return None;
        }
        if proofs.open.len() == most
            && let Some((_, oldest)) = proofs.open.pop_first()
        {
            // Its thread sees the end.
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

    /// Whether a connection for this purpose could be taken now.
    pub(super) fn has_place(&self, preamble: &Introduction) -> Result<(), Verdict> {
        place(&self.state.lock(), preamble).map(drop)
    }

    /// Takes the place; for a connection that has proved the secret.
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
    Pulse,
    Lane(u64),
    SharedLane(u64),
}

impl Place {
    fn set(self, state: &mut State, taken: bool) {
        match self {
            Place::Commands => state.commands = taken,
            Place::Pulse => state.pulse = taken,
            Place::Lane(bit) if taken => state.lanes |= bit,
            Place::Lane(bit) => state.lanes &= !bit,
            Place::SharedLane(bit) if taken => state.shared_lanes |= bit,
            Place::SharedLane(bit) => state.shared_lanes &= !bit,
        }
    }
}

/// A place that is given back if the connection breaks before it is in use.
pub(super) struct Claimed(Option<(Arc<Stage>, Place)>);

impl Claimed {
    /// The connection is in use.
    pub(super) fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        if let Some((stage, place)) = self.0.take() {
            place.set(&mut stage.state.lock(), false);
            if matches!(place, Place::Commands) {
                // Nobody waits for the command connection any more, and its client is gone.
                stage.endings.end(Ending::ClientClosed);
            }
        }
    }
}

fn place(state: &State, preamble: &Introduction) -> Result<Place, Verdict> {
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
        Purpose::Pulse => free(!state.pulse, Place::Pulse),
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
        // Other workers have no place here; each link of the session has places of its own.
        Purpose::Peer => Err(Verdict::Malformed),
    }
}

/// One connection is proving the secret.
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
        let stage = Stage::new(Endings::new().0, channel);
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
            (preamble(Purpose::Pulse, 0), Ok(())),
            (preamble(Purpose::Pulse, 1), Err(Verdict::TooMany)),
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
            // One type for all stream sockets; nothing is asked of it that is TCP's alone.
            stage.begin_proof(purpose, &TcpStream::from(OwnedFd::from(near)))
        };
        let mut all: Vec<_> = (0..=MAX_PROVING).map(|_| begin(Purpose::Bulk)).collect();
        assert!(all.iter().all(Option::is_some));
        assert!(begin(Purpose::Peer).is_some());
        all.extend((all.len()..LEAVING * MAX_PROVING).map(|_| begin(Purpose::Bulk)));
        assert!(begin(Purpose::Bulk).is_none());
        drop(all);
        assert!(begin(Purpose::Bulk).is_some());
        // The first one has left for the thirty-third.
        assert_eq!(ends[0].read(&mut [0]).unwrap(), 0);
    }
}
