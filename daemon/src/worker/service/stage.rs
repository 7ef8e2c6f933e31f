//! What a worker's threads share: the assignment, the session once it runs, who is connected.
//!
//! Invariant: a purpose's place is claimed only by a connection that proved the secret, and is not
//! claimed twice.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use causeway_proto::id::SessionId;
use causeway_proto::preamble::{Preamble, Purpose, Verdict};
use causeway_security::{SessionCertificate, SessionTls};
use parking_lot::{Condvar, Mutex};

use super::ending::{Ending, Endings};
use crate::accounting::Slot;
use crate::handover::Assignment;
use crate::worker::session::Session;

/// Connections at once that have not proved the secret yet.
const MAX_PROVING: usize = 32;
/// The same, of other workers: each may wait for the client's word of its link.
const MAX_PEERS_PROVING: usize = 64;

pub(super) struct Stage {
    state: Mutex<State>,
    changed: Condvar,
    /// For threads that have a stage and find a reason to end.
    pub(super) endings: Endings,
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
    proving: usize,
    peers_proving: usize,
}

impl State {
    /// How many connections of the purpose are proving the secret, and the most that may.
    fn proving(&mut self, purpose: Purpose) -> (&mut usize, usize) {
        match purpose {
            Purpose::Peer => (&mut self.peers_proving, MAX_PEERS_PROVING),
            _ => (&mut self.proving, MAX_PROVING),
        }
    }
}

impl Stage {
    pub(super) fn new(endings: Endings) -> Stage {
        Stage {
            state: Mutex::default(),
            changed: Condvar::new(),
            endings,
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

    /// Room for one more connection that is about to prove the secret.
    pub(super) fn begin_proof(self: &Arc<Self>, purpose: Purpose) -> Option<Proving> {
        let mut state = self.state.lock();
        let (proving, most) = state.proving(purpose);
        if *proving == most {
            return None;
        }
        *proving += 1;
        Some(Proving(Arc::clone(self), purpose))
    }

    /// Whether a connection for this purpose could be taken now.
    pub(super) fn has_place(&self, preamble: &Preamble) -> Result<(), Verdict> {
        place(&self.state.lock(), preamble).map(drop)
    }

    /// Takes the place; for a connection that has proved the secret.
    pub(super) fn claim(self: &Arc<Self>, preamble: &Preamble) -> Result<Claimed, Verdict> {
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

fn place(state: &State, preamble: &Preamble) -> Result<Place, Verdict> {
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
pub(super) struct Proving(Arc<Stage>, Purpose);

impl Drop for Proving {
    fn drop(&mut self) {
        *self.0.state.lock().proving(self.1).0 -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handover::Owner;
    use crate::worker::connection::SessionLimits;
    use causeway_proto::id::SessionSecret;
    use std::time::Duration;

    fn stage() -> Arc<Stage> {
        let stage = Stage::new(Endings::new().0);
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

    fn preamble(purpose: Purpose, lane: u8) -> Preamble {
        Preamble {
            purpose,
            lane,
            session: SessionId([1; 16]),
            link: 0,
        }
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
        let begin = || stage.begin_proof(Purpose::Bulk);
        let all: Vec<_> = (0..MAX_PROVING).map(|_| begin()).collect();
        assert!(all.iter().all(Option::is_some));
        assert!(begin().is_none());
        assert!(stage.begin_proof(Purpose::Peer).is_some());
        drop(all);
        assert!(begin().is_some());
    }
}
