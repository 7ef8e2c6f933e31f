//! The data that a worker's threads share: the assignment, the running session, and which connections exist.
//!
//! Invariant: only a connection that has proved the secret claims the place for its purpose. If the session outlives
//! its connections, a later connection takes the place from the one before. Otherwise, each place is claimed once.

mod places;
mod proving;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak, mpsc};
use std::time::{Duration, Instant};

use causeway_proto::frame::COMES_BACK;
use causeway_proto::id::SessionId;
use causeway_proto::preamble::{ClientWord, Introduction, REEXECUTES, Verdict, WANTS_RECORD};
use causeway_security::ServerTls;
use parking_lot::{Condvar, Mutex, MutexGuard};

use self::places::{Claimed, ConnectionPlace, Taken, how, is_direct, place};
use self::proving::Proofs;
use super::carrier::{Arrived, Carrier, Losses};
use super::ending::{Ending, Endings};
use super::presence::{Change, Presence};
use super::window::BadNumber;
use crate::accounting::LedgerSlot;
use crate::handover::{self, Assignment, Restores, SessionLine, ToSupervisor};
use crate::takeovers::Takeovers;
use crate::worker::session::Session;
use crate::worker::threads::Scope;

/// Time after which it is logged that a session is away.
const LOGGED_AFTER: Duration = Duration::from_secs(1);
pub(super) struct Stage {
    state: Mutex<StageState>,
    changed: Condvar,
    /// Where threads that hold the stage report a reason to end.
    pub(super) endings: Endings,
    /// The threads of the connection service for this session.
    pub(super) scope: Scope,
    to_supervisor: OwnedFd,
    /// Tells this worker from another one of the same session; not 0.
    incarnation: u64,
    /// Locked while a connection is reported, so that the supervisor learns of the newest one last.
    reporting: Mutex<()>,
    /// Locked while the supervisor is told how the session waits for its client.
    telling: Mutex<()>,
}

#[derive(Default)]
struct StageState {
    account: Option<LedgerSlot>,
    assignment: Option<Arc<Assignment>>,
    tls: Option<ServerTls>,
    session: Option<Arc<Session>>,
    commands: Taken,
    heartbeat: Taken,
    presence: Presence,
    /// The way of commands and events, once the session begins.
    carrier: Option<Arc<dyn Carrier>>,
    /// How the connection ended whose end made the session away.
    loss: Option<Ending>,
    /// Whether a thread waits for the client to come back, and whether it has logged that.
    is_waiting: bool,
    is_logged: bool,
    lanes: u64,
    /// The latest connections of each lane that replaced another.
    lane_takeovers: BTreeMap<u8, Takeovers>,
    // Counted separately, so that a client that fails to share memory can use the ordinary lanes at once.
    shared_lanes: u64,
    proving: Proofs,
    peers_proving: Proofs,
    last_proof: u64,
    /// Where the command connection goes.
    arrivals: Option<mpsc::Sender<Commands>>,
    is_closed: bool,
    /// Whether the client was away for too long, so that the session ends.
    is_over: bool,
    /// Of a session that was parked.
    contents: Option<Arc<[File]>>,
    /// The generation of the client's lanes, if the session was parked and its command connection has come.
    generation: Option<u64>,
    is_parked: bool,
    /// Whether another worker takes the place of this one.
    is_elsewhere: bool,
    makes_checkpoint: bool,
}

/// A command connection, and its carrier.
#[derive(Debug)]
pub(super) struct Commands {
    pub(super) arrived: Arrived,
    pub(super) is_grpc: bool,
}

impl Stage {
    pub(super) fn new(
        endings: Endings,
        to_supervisor: OwnedFd,
        arrivals: mpsc::Sender<Commands>,
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
            incarnation: rand::random::<u64>() | 1,
            reporting: Mutex::default(),
            telling: Mutex::default(),
        }
    }

    /// Notes that the client has come on the connection with this number in its place, and sends the supervisor a
    /// descriptor of it. So the supervisor sees the connection's end even while this process is stopped. Returns
    /// false if a later connection has the place now, or the session has ended.
    pub(super) fn show_client(
        self: &Arc<Self>,
        line: SessionLine,
        number: u64,
        socket: &TcpStream,
        word: &ClientWord,
    ) -> bool {
        let _reporting = self.reporting.lock();
        match self.meet(line, number, socket, word) {
            Ok(true) => {}
            refused => {
                let _ = socket.shutdown(Shutdown::Both);
                tracing::debug!(?refused, "a connection came too late for its session");
                return false;
            }
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
        self.tell_away(self.state.lock());
        true
    }

    fn meet(
        &self,
        line: SessionLine,
        number: u64,
        socket: &TcpStream,
        word: &ClientWord,
    ) -> io::Result<bool> {
        let is_direct = is_direct(socket, word);
        let own = socket.try_clone();
        let mut state = self.state.lock();
        let may_wait = self.scope.is_hosted() || state.presence.resumes();
        let place = state.place(line);
        if place.number != number {
            return Ok(false);
        }
        // Without the duplicate, nothing could end a thread's wait for the connection.
        place.socket = match may_wait {
            true => Some(own?),
            false => None,
        };
        if state.is_closed || state.is_over {
            return Ok(false);
        }
        if let Change::Returns(time) = state.presence.came(line, is_direct, Instant::now()) {
            state.loss = None;
            if std::mem::take(&mut state.is_logged) {
                tracing::info!(away = ?time, "the client is back, and its session goes on");
            }
            drop(state);
            self.changed.notify_all();
        }
        Ok(true)
    }

    /// Of a session that was parked: how far its worker before has come.
    pub(super) fn restores(&self) -> Option<Restores> {
        self.assignment()?.restores
    }

    /// Sets the contents of a session that was parked.
    pub(super) fn set_contents(&self, contents: Vec<OwnedFd>) {
        let files = contents.into_iter().map(File::from);
        self.state.lock().contents = Some(files.collect());
    }

    /// Takes the contents of a session that was parked. The files are deleted, and leave the disk when they are closed.
    pub(super) fn take_contents(&self) -> Option<Arc<[File]>> {
        self.state.lock().contents.take()
    }

    /// The session's carrier, once there is one.
    pub(super) fn carrier(&self) -> Option<Arc<dyn Carrier>> {
        self.state.lock().carrier.clone()
    }

    /// Sends the supervisor a message. If the supervisor is gone, another thread notices.
    pub(super) fn report(&self, message: &ToSupervisor) {
        let _ = handover::send_to_supervisor(&self.to_supervisor, message);
    }

    /// Accepts no further connection, because the session is parked.
    pub(super) fn note_parked(&self) {
        self.state.lock().is_parked = true;
    }

    /// Notes that a checkpoint is begun. Returns false if one is being made.
    pub(super) fn begins_checkpoint(&self) -> bool {
        !std::mem::replace(&mut self.state.lock().makes_checkpoint, true)
    }

    /// Notes that a checkpoint is made, or is not.
    pub(super) fn ends_checkpoint(&self) {
        self.state.lock().makes_checkpoint = false;
    }

    /// Tells the supervisor that the session cannot go on in its host. Its client has to try again.
    pub(super) fn leave_host(&self) {
        self.state.lock().is_elsewhere = true;
        self.report(&ToSupervisor::LeavesHost);
    }

    /// Whether another worker has the session now, or soon.
    pub(super) fn is_elsewhere(&self) -> bool {
        let state = self.state.lock();
        state.is_parked || state.is_elsewhere
    }

    /// Whether the session is parked.
    pub(super) fn is_parked(&self) -> bool {
        self.state.lock().is_parked
    }

    /// Tells the supervisor that the session begins to end, and why.
    pub(super) fn leaves(&self, reason: &str) {
        let reason = reason.to_owned();
        // If the supervisor is gone, another thread notices.
        let _ =
            handover::send_to_supervisor(&self.to_supervisor, &ToSupervisor::Leaving { reason });
    }

    /// Whether the session outlives its connections.
    pub(super) fn resumes(&self) -> bool {
        self.state.lock().presence.resumes()
    }

    /// Whether the session waits for its client.
    pub(super) fn is_away(&self) -> bool {
        self.state.lock().presence.away_since().is_some()
    }

    /// Where the session's carrier reports losses of its connections.
    pub(super) fn losses(self: &Arc<Self>) -> impl Losses + use<> {
        LostCommands(Arc::downgrade(self))
    }

    /// Sets the way of commands and events, which later command connections go to at once.
    pub(super) fn carries(&self, carrier: Arc<dyn Carrier>) {
        let mut state = self.state.lock();
        if state.is_closed {
            drop(state);
            carrier.close();
        } else {
            state.carrier = Some(carrier);
        }
    }

    /// Hands a command connection to the session's carrier, or to the thread that starts it.
    pub(super) fn carry(&self, commands: Commands) {
        let (carrier, arrivals) = {
            let state = self.state.lock();
            if state.carrier.is_none()
                && let Some(arrivals) = &state.arrivals
            {
                // Under the lock, so that the carrier's thread finds it. This fails only when that thread is gone,
                // and then the session ends.
                let _ = arrivals.send(commands);
                return;
            }
            (state.carrier.clone(), commands)
        };
        if let Some(carrier) = carrier {
            carrier.switch(arrivals.arrived);
        }
    }

    /// Handles that the client has handled all event batches up to `number`, as it says on the heartbeat connection
    /// with the number `from` in its place. [`COMES_BACK`] says that the client comes back.
    pub(super) fn acknowledge(&self, from: u64, number: u64) -> Result<(), BadNumber> {
        let mut state = self.state.lock();
        if state.heartbeat.number != from {
            // A later connection has said more.
            return Ok(());
        }
        if number == COMES_BACK {
            state.presence.comes_back(Instant::now());
            self.tell_away(state);
            return Ok(());
        }
        let restores = state.assignment.as_ref().and_then(|of| of.restores);
        match &state.carrier {
            // Under the lock, so that acknowledgements of two connections keep their order.
            Some(carrier) => carrier.acknowledge(number),
            // The client has handled what another worker has sent.
            None if restores.is_some_and(|of| of.reexecutes || number <= of.events) => Ok(()),
            None if number == 0 => Ok(()),
            None => Err(BadNumber::Unsent {
                got: number,
                last: 0,
            }),
        }
    }

    /// Handles that the client tries to come back with the connection with this number in its place.
    fn comes_back(&self, line: SessionLine, number: u64) {
        let mut state = self.state.lock();
        if state.place(line).number == number {
            state.presence.comes_back(Instant::now());
            self.tell_away(state);
        }
    }

    /// Handles that the connection with this number in its place has ended. The session ends too, or is away.
    pub(super) fn ended(self: &Arc<Self>, line: SessionLine, number: u64, ending: Ending) {
        let mut state = self.state.lock();
        if state.is_closed {
            return;
        }
        if !state.presence.resumes() {
            drop(state);
            self.endings.end(ending);
            return;
        }
        if state.place(line).number != number {
            return;
        }
        let change = state.presence.ended(line, how(&ending), Instant::now());
        let Change::Leaves { alone } = change else {
            return;
        };
        tracing::debug!(?line, reason = %ending, "a connection to the client ended, so the session is away");
        state.place(line).shut_down();
        if !alone {
            state.commands.shut_down();
            state.heartbeat.shut_down();
        }
        state.loss = Some(ending);
        let waits = std::mem::replace(&mut state.is_waiting, true);
        self.tell_away(state);
        self.changed.notify_all();
        if waits {
            return;
        }
        let stage = Arc::clone(self);
        if let Err(error) = self
            .scope
            .try_spawn("away", move || stage.wait_while_away())
        {
            let what = format!("cannot start a thread that waits for the client: {error}");
            self.endings.end(Ending::Broken(what));
        }
    }

    /// Tells the supervisor how the session waits for its client, if it is away.
    fn tell_away(&self, state: MutexGuard<'_, StageState>) {
        if state.presence.away_since().is_none() {
            return;
        }
        let soon = !state.presence.is_patient(Instant::now());
        // Before the state is unlocked, so that the supervisor learns the latest last.
        let _telling = self.telling.lock();
        drop(state);
        // If the supervisor is gone, another thread notices.
        let _ = handover::send_to_supervisor(&self.to_supervisor, &ToSupervisor::Away { soon });
    }

    /// The body of the `away` thread: ends the session if its client does not come back in time.
    fn wait_while_away(&self) {
        let mut state = self.state.lock();
        loop {
            let away = state.presence.away_since().zip(state.presence.deadline());
            let (false, Some((since, until))) = (state.is_closed, away) else {
                state.is_waiting = false;
                return;
            };
            let now = Instant::now();
            if now >= until {
                state.is_over = true;
                let broken = state.loss.take().unwrap_or(Ending::ClientClosed);
                drop(state);
                self.endings.end(Ending::NotBack {
                    away: now.saturating_duration_since(since),
                    broken: Box::new(broken),
                });
                return;
            }
            let mut next = until;
            if !state.is_logged {
                if now >= since + LOGGED_AFTER {
                    state.is_logged = true;
                    tracing::info!(
                        reason = state.loss.as_ref().map(tracing::field::display),
                        waits = ?until.saturating_duration_since(now),
                        "the client is away; its session waits for it"
                    );
                } else {
                    next = next.min(since + LOGGED_AFTER);
                }
            }
            self.changed.wait_until(&mut state, next);
        }
    }

    /// Ends the waits of the connection service's threads, because the session ends and its host goes on.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.arrivals = None;
        let proofs = [&state.proving, &state.peers_proving];
        let proving = proofs.into_iter().flat_map(|proofs| proofs.open.values());
        for socket in proving {
            let _ = socket.shutdown(Shutdown::Both);
        }
        state.commands.shut_down();
        state.heartbeat.shut_down();
        let carrier = state.carrier.take();
        drop(state);
        self.changed.notify_all();
        if let Some(carrier) = carrier {
            carrier.close();
        }
    }

    /// Whether [`Stage::close`] was called.
    pub(super) fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }

    /// Takes the session, to release it. Called after [`Stage::close`].
    pub(super) fn take_session(&self) -> Option<Arc<Session>> {
        self.state.lock().session.take()
    }

    /// Sets the session to serve, and the TLS settings from its certificate.
    pub(super) fn assign(&self, assignment: Assignment, tls: Option<ServerTls>) {
        let mut state = self.state.lock();
        state.tls = tls;
        state.presence = Presence::new(assignment.away, assignment.heartbeat_limit);
        state.assignment = Some(Arc::new(assignment));
    }

    /// The TLS settings of the session's connections; `None` without TLS.
    pub(super) fn tls(&self) -> Option<ServerTls> {
        self.state.lock().tls.clone()
    }

    /// Sets the slot in which the session counts its usage. Called before [`Stage::assign`].
    pub(super) fn count_in(&self, account: LedgerSlot) {
        self.state.lock().account = Some(account);
    }

    pub(super) fn account(&self) -> Option<LedgerSlot> {
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
        state.commands.is_taken && state.session.is_none() && !state.is_closed
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
        !state.commands.is_taken && !state.is_closed
    }

    /// Checks whether a connection for this purpose could be accepted now.
    pub(super) fn has_place(&self, preamble: &Introduction) -> Result<(), Verdict> {
        place(&self.state.lock(), preamble).map(drop)
    }

    /// Claims the place for a connection that has proved the secret. Takes it from the connection before, which is
    /// shut down. `word` is the client's. Returns how much of what the client sends for this place the session has, too, or
    /// for heartbeats the incarnation.
    pub(super) fn claim(
        self: &Arc<Self>,
        preamble: &Introduction,
        word: &ClientWord,
    ) -> Result<(Claimed, u64), Verdict> {
        // The client's heartbeat connection leads to a worker that has ended since.
        if word.worker != 0 && word.worker != self.incarnation {
            return Err(Verdict::OtherWorker);
        }
        let (place, number, was_taken, session) = {
            let mut state = self.state.lock();
            let place = place(&state, preamble)?;
            if place.is_of_lane() && !state.has_lanes_of(word.generation) {
                return Err(Verdict::TooMany);
            }
            let (number, was_taken) = place.take(&mut state, preamble);
            (place, number, was_taken, state.session.clone())
        };
        let session = session.as_deref();
        let mut claimed = Claimed {
            stage: Arc::clone(self),
            place,
            number,
            was_taken,
            stopped: None,
            is_kept: false,
        };
        let restores = self.restores();
        let wants = match restores.is_some_and(|of| of.reexecutes) {
            true => WANTS_RECORD | REEXECUTES,
            false => WANTS_RECORD,
        };
        let position = match place {
            ConnectionPlace::Commands => match session {
                Some(session) if session.wants_record() => session.applied() | wants,
                Some(session) => session.applied(),
                None => restores.map_or(0, |restores| restores.applied | wants),
            },
            // May wait a little. If another connection of the lane is faster, or the lane's thread is busy, the
            // client tries again.
            ConnectionPlace::Lane(_) if was_taken => {
                let stopped = session.and_then(|of| of.stop_lane(preamble.lane));
                claimed.stopped = stopped;
                stopped.ok_or(Verdict::TooMany)?.position
            }
            ConnectionPlace::Heartbeat => self.incarnation,
            _ => 0,
        };
        if matches!(place, ConnectionPlace::Commands) && position & WANTS_RECORD != 0 {
            self.state.lock().generation = Some(word.generation);
        }
        Ok((claimed, position))
    }
}

impl StageState {
    /// Whether lanes of this generation are for this worker. A client that is slow to notice the end of the worker before
    /// may still open that worker's lanes again, whose positions mean nothing here.
    fn has_lanes_of(&self, generation: u64) -> bool {
        let assignment = self.assignment.as_ref();
        let restores = assignment.is_some_and(|assignment| assignment.restores.is_some());
        !restores || self.generation == Some(generation)
    }

    fn place(&mut self, line: SessionLine) -> &mut Taken {
        match line {
            SessionLine::Commands => &mut self.commands,
            SessionLine::Heartbeat => &mut self.heartbeat,
        }
    }
}

/// Reports losses of command connections. The carrier belongs to the stage, so this does not keep the stage.
struct LostCommands(Weak<Stage>);

impl Losses for LostCommands {
    fn lost(&self, number: u64, ending: Ending) {
        if let Some(stage) = self.0.upgrade() {
            stage.ended(SessionLine::Commands, number, ending);
        }
    }

    fn end(&self, ending: Ending) {
        if let Some(stage) = self.0.upgrade() {
            stage.endings.end(ending);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handover::AwayTimes;
    use causeway_proto::preamble::{Preamble, Purpose};
    use std::os::unix::net::UnixStream;

    const AWAY: AwayTimes = AwayTimes {
        resume: Duration::from_secs(60),
        keep: Duration::from_secs(600),
    };

    const ANY: ClientWord = ClientWord {
        position: 0,
        origin: None,
        generation: 0,
        worker: 0,
    };

    pub(super) fn stage() -> Arc<Stage> {
        assigned(Assignment::of_test(SessionId([1; 16])))
    }

    fn assigned(assignment: Assignment) -> Arc<Stage> {
        let (_, channel) = handover::pair().unwrap();
        let (arrivals, _) = mpsc::channel();
        let stage = Stage::new(Endings::new().0, channel, arrivals, Scope::default());
        stage.assign(assignment, None);
        Arc::new(stage)
    }

    fn resumed() -> Arc<Stage> {
        assigned(Assignment {
            away: AWAY,
            ..Assignment::of_test(SessionId([1; 16]))
        })
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
            let claimed = stage.claim(&preamble, &ANY).map(|(claimed, _)| {
                let _ = claimed.keep();
            });
            assert_eq!(claimed, expected, "{preamble:?}");
        }
    }

    #[test]
    fn a_session_that_was_parked_takes_no_lane_of_the_worker_before() {
        let stage = assigned(Assignment {
            restores: Some(Restores::default()),
            ..Assignment::of_test(SessionId([1; 16]))
        });
        let lane = preamble(Purpose::Bulk, 0);
        let claim = |preamble: &Introduction, generation| {
            let word = ClientWord { generation, ..ANY };
            let claimed = stage.claim(preamble, &word);
            claimed.map(|(claimed, position)| {
                let _ = claimed.keep();
                position
            })
        };
        for generation in [0, 1] {
            assert_eq!(claim(&lane, generation), Err(Verdict::TooMany));
        }
        let commands = preamble(Purpose::Commands, 0);
        assert_eq!(claim(&commands, 1), Ok(WANTS_RECORD));
        assert_eq!(claim(&lane, 0), Err(Verdict::TooMany));
        assert_eq!(claim(&lane, 1), Ok(0));
    }

    #[test]
    fn a_connection_for_another_worker_takes_no_place() {
        let stage = resumed();
        let (heartbeat, own) = stage.claim(&preamble(Purpose::Heartbeat, 0), &ANY).unwrap();
        let _ = heartbeat.keep();
        let commands = preamble(Purpose::Commands, 0);
        let claim = |worker| {
            let claimed = stage.claim(&commands, &ClientWord { worker, ..ANY });
            claimed.map(|(claimed, _)| {
                let _ = claimed.keep();
            })
        };
        assert_eq!(claim(own.wrapping_add(2)), Err(Verdict::OtherWorker));
        assert!(stage.awaits_commands());
        assert_eq!(claim(own), Ok(()));
        assert!(!stage.awaits_commands());
    }

    #[test]
    fn a_place_that_was_not_used_is_free_again() {
        let stage = stage();
        for preamble in [preamble(Purpose::Commands, 0), preamble(Purpose::Bulk, 1)] {
            drop(stage.claim(&preamble, &ANY));
            assert_eq!(stage.has_place(&preamble), Ok(()));
        }
    }

    #[test]
    fn a_takeover_that_breaks_is_no_killed_program() {
        let stage = resumed();
        let heartbeat = preamble(Purpose::Heartbeat, 0);
        let (near, _far) = UnixStream::pair().unwrap();
        let socket = TcpStream::from(OwnedFd::from(near));
        let (number, _) = stage.claim(&heartbeat, &ANY).unwrap().0.keep();
        assert!(stage.show_client(
            SessionLine::Heartbeat,
            number,
            &socket,
            &ClientWord::default()
        ));
        let begun = Instant::now();
        drop(stage.claim(&heartbeat, &ANY));
        let deadline = stage.state.lock().presence.deadline();
        assert!(deadline.is_some_and(|deadline| deadline >= begun + AWAY.resume));
        stage.close();
    }

    #[test]
    fn a_later_connection_keeps_the_place_of_one_that_broke() {
        let stage = resumed();
        let commands = preamble(Purpose::Commands, 0);
        let (first, _) = stage.claim(&commands, &ANY).unwrap();
        let (second, _) = stage.claim(&commands, &ANY).unwrap();
        drop(first);
        assert!(!stage.awaits_commands());
        let _ = second.keep();
    }
}
