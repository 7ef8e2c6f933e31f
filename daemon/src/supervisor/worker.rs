//! One worker, on the supervisor's side: a process, or a session of a host process ([`hosts`](super::hosts)).
//!
//! This file has a worker's state, and what others ask of it. [`watching`] has the task that runs beside it. Invariant:
//! a request never replaces a stronger one.

mod checkpoint;
mod watching;

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use causeway_proto::id::{SessionId, SessionSecret};
use causeway_serving::exposition::Histogram;
use checkpoint::CheckpointOfWorker;
pub(super) use checkpoint::KeptCheckpoint;
use parking_lot::Mutex;
use rustix::net::sockopt;
use tokio::net::UnixDatagram;
use tokio::sync::{Notify, watch};

use super::builds::Builds;
use super::leaving::LEAVE_WITHIN;
use super::process::{Process, Processes, Role};
use super::warm::WarmDevice;
use crate::build_cache::Owner;
use crate::handover::{self, AwayTimes, Restores, ToWorker, WorkerFile};

/// Time for a worker's contexts after which a session should rather get another worker.
const SLOW_AFTER: Duration = Duration::from_secs(5);

/// What a worker was asked to do. Later variants override earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum EndRequest {
    Nothing = 0,
    ToEnd = 1,
    ToDie = 2,
}

/// What a worker has said of how long its session waits for a client that is away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum AwayWord {
    #[default]
    Nothing,
    /// For [`AwayTimes::KILLED`] at most.
    Soon,
    /// For longer.
    Long,
}

/// A worker process that has not been reaped.
#[derive(Debug)]
pub(super) struct Worker {
    /// Number of the worker in the log.
    pub(super) serial: u64,
    channel: UnixDatagram,
    ready: AtomicBool,
    asked: AtomicU8,
    /// Reason for the end, as it is reported to the client.
    close_reason: OnceLock<String>,
    /// Set when the session ends because the node has ended its lease by itself.
    has_lost_lease: AtomicBool,
    asked_more: Notify,
    builds: Option<Builds>,
    /// The session that the worker serves, and the deadline for its client to connect.
    serves: OnceLock<(SessionId, Instant)>,
    /// The user whose builds the worker gets and stores.
    user: OnceLock<Owner>,
    is_connected: AtomicBool,
    /// When the session was requested, and where the time from then on is counted once its client has connected.
    opening: Mutex<Option<(Instant, Histogram)>>,
    /// Set when the worker was killed because it did not end after its client.
    unresponsive: AtomicBool,
    stuck: AtomicBool,
    /// Set when the session is ended to make room for another, because its client has not connected.
    displaced: AtomicBool,
    /// The process's id; 0 for a session of a host.
    pid: AtomicU32,
    /// The secret of a session of a host whose connections use TLS, of which the supervisor has no keys.
    secret: Option<SessionSecret>,
    /// Set when the session was told to end, or its client has gone.
    is_ending: AtomicBool,
    /// How long the session waits for a client that is away. Default: it ends with its connections.
    waits: OnceLock<AwayTimes>,
    /// Since when the client is away.
    away: watch::Sender<Option<Instant>>,
    /// How often the client has come back.
    resumed: AtomicU32,
    /// The cookies of the latest connections that were passed to the worker, by which the kernel tells sockets apart.
    passed: Mutex<VecDeque<u64>>,
    /// Why the session ends, as the worker says.
    said: OnceLock<String>,
    /// Why the session ended with its host, or could not go on in it.
    loss: OnceLock<String>,
    /// Set when the session cannot go on in its host, and another worker may take the place of this one.
    leaves_host: AtomicBool,
    /// How far the session was when the worker had parked it.
    parked: OnceLock<Restores>,
    /// Set when the worker was asked to park its session, until it says that it cannot.
    is_parking: watch::Sender<bool>,
    /// Why the session cannot be parked.
    not_parked: OnceLock<String>,
    checkpoint: CheckpointOfWorker,
    warmth: Mutex<Warmth>,
}

/// Number of connections of which a worker may report one later.
const PASSED: usize = 256;

/// How far a worker is with the contexts of `[sessions] warm`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Warmth {
    /// The worker was not asked to make any.
    #[default]
    NotAsked,
    /// The worker makes contexts since this time, or will when it has loaded OpenCL.
    UnderWay { since: Instant, asked: u32 },
    /// The number of contexts that it has made, less those that it has released.
    Done(u32),
}

impl Worker {
    /// Starts the process. The caller must run [`watch`](Worker::watch) for it.
    pub(super) fn start(
        serial: u64,
        processes: &Processes,
        builds: Option<Builds>,
    ) -> io::Result<(Arc<Worker>, Process)> {
        let (ours, theirs) = handover::pair()?;
        // tokio does not support SOCK_SEQPACKET. A datagram socket behaves the same for it: messages and
        // readiness.
        let channel = UnixDatagram::from_std(std::os::unix::net::UnixDatagram::from(ours))?;
        let process = processes.start(Role::Worker, theirs)?;
        let worker = Worker::new(serial, channel, builds, None);
        let pid = process.id().unwrap_or(0);
        worker.pid.store(pid, Ordering::Relaxed);
        Ok((Arc::new(worker), process))
    }

    /// Makes the worker of a session in a host. The caller passes the channel's end to the host, and must run
    /// [`watch`](Worker::watch) for the worker. `secret` is the session's if its connections use TLS.
    pub(super) fn hosted(
        serial: u64,
        builds: Option<Builds>,
        secret: Option<SessionSecret>,
    ) -> io::Result<(Arc<Worker>, OwnedFd)> {
        let (ours, theirs) = handover::pair()?;
        let channel = UnixDatagram::from_std(std::os::unix::net::UnixDatagram::from(ours))?;
        let worker = Worker::new(serial, channel, builds, secret);
        Ok((Arc::new(worker), theirs))
    }

    fn new(
        serial: u64,
        channel: UnixDatagram,
        builds: Option<Builds>,
        secret: Option<SessionSecret>,
    ) -> Worker {
        Worker {
            serial,
            channel,
            ready: AtomicBool::new(false),
            asked: AtomicU8::new(EndRequest::Nothing as u8),
            close_reason: OnceLock::new(),
            has_lost_lease: AtomicBool::new(false),
            asked_more: Notify::new(),
            builds,
            serves: OnceLock::new(),
            user: OnceLock::new(),
            is_connected: AtomicBool::new(false),
            opening: Mutex::default(),
            unresponsive: AtomicBool::new(false),
            stuck: AtomicBool::new(false),
            displaced: AtomicBool::new(false),
            pid: AtomicU32::new(0),
            secret,
            is_ending: AtomicBool::new(false),
            waits: OnceLock::new(),
            away: watch::Sender::default(),
            resumed: AtomicU32::new(0),
            passed: Mutex::default(),
            said: OnceLock::new(),
            loss: OnceLock::new(),
            leaves_host: AtomicBool::new(false),
            parked: OnceLock::new(),
            is_parking: watch::Sender::default(),
            not_parked: OnceLock::new(),
            checkpoint: CheckpointOfWorker::default(),
            warmth: Mutex::default(),
        }
    }

    /// Returns the process id; `None` for a session of a host.
    pub(super) fn process_id(&self) -> Option<u32> {
        Some(self.pid.load(Ordering::Relaxed)).filter(|pid| *pid > 0)
    }

    /// Returns whether the worker has loaded OpenCL.
    pub(super) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }

    /// Asks a spare worker to make contexts on these devices, unless it was asked before.
    pub(super) fn warm(&self, devices: &[WarmDevice]) {
        let mut warmth = self.warmth.lock();
        if devices.is_empty() || *warmth != Warmth::NotAsked {
            return;
        }
        let (devices, asked) = (devices.to_vec(), devices.len() as u32);
        match self.send(&ToWorker::Warm { devices }) {
            Ok(()) => {
                let since = Instant::now();
                *warmth = Warmth::UnderWay { since, asked };
            }
            Err(error) => {
                tracing::debug!(%error, worker = self.serial, "a spare worker cannot be asked to make contexts");
            }
        }
    }

    /// Returns since when the worker makes contexts; `None` if it makes none now.
    pub(super) fn warming_since(&self) -> Option<Instant> {
        match *self.warmth.lock() {
            Warmth::UnderWay { since, .. } => Some(since),
            Warmth::NotAsked | Warmth::Done(_) => None,
        }
    }

    /// Returns whether the driver takes long for the contexts, so that it may hang.
    pub(super) fn is_slow_to_warm(&self) -> bool {
        let since = self.warming_since();
        self.is_ready() && since.is_some_and(|since| since.elapsed() > SLOW_AFTER)
    }

    /// Returns the number of contexts that the worker has made before any session, and has not released.
    pub(super) fn warm_contexts(&self) -> u32 {
        match *self.warmth.lock() {
            Warmth::Done(contexts) => contexts,
            Warmth::NotAsked | Warmth::UnderWay { .. } => 0,
        }
    }

    /// Notes that the worker was assigned a session of `user`. Its client must connect within
    /// `connect_limit`. The session waits for a client that is away for as long as `waits` says.
    pub(super) fn serve(
        &self,
        session: SessionId,
        user: Owner,
        connect_limit: Duration,
        waits: AwayTimes,
    ) {
        // The worker has the same limit and ends by itself. The supervisor's deadline leaves it time for
        // that.
        let by = Instant::now() + connect_limit + LEAVE_WITHIN;
        // A worker serves one session, so this is set once. The notification makes `watch` set the
        // deadline.
        let _ = self.serves.set((session, by));
        let _ = self.waits.set(waits);
        let _ = self.user.set(user);
        self.asked_more.notify_one();
    }

    /// Counts in `times` how long the opening of the session takes, from `begun` until the worker has the client's
    /// command connection.
    pub(super) fn time_opening(&self, begun: Instant, times: Histogram) {
        *self.opening.lock() = Some((begun, times));
    }

    fn connected(&self) {
        self.is_connected.store(true, Ordering::Relaxed);
        if let Some((begun, times)) = self.opening.lock().take() {
            times.observe(begun.elapsed().as_secs_f64());
        }
    }

    /// Returns whether the client has opened the command connection.
    pub(super) fn is_connected(&self) -> bool {
        self.is_connected.load(Ordering::Relaxed)
    }

    /// Ends the worker, because its session makes room for another. A process is killed. A session of a host has
    /// nothing to release before its client connects.
    pub(super) fn displace(&self) {
        self.displaced.store(true, Ordering::Relaxed);
        match self.process_id() {
            Some(_) => self.kill(),
            None => self.end(),
        }
    }

    /// Returns whether the session makes room for another.
    pub(super) fn is_displaced(&self) -> bool {
        self.displaced.load(Ordering::Relaxed)
    }

    /// Returns whether the worker was killed because it did not end after its client.
    pub(super) fn is_unresponsive(&self) -> bool {
        self.unresponsive.load(Ordering::Relaxed)
    }

    /// Returns whether the worker was killed and still exists.
    pub(super) fn is_stuck(&self) -> bool {
        self.stuck.load(Ordering::Relaxed)
    }

    /// Returns the strongest request so far.
    pub(super) fn was_asked(&self) -> EndRequest {
        match self.asked.load(Ordering::Relaxed) {
            0 => EndRequest::Nothing,
            1 => EndRequest::ToEnd,
            _ => EndRequest::ToDie,
        }
    }

    /// Sends a message to the worker without blocking.
    pub(super) fn send(&self, message: &ToWorker) -> io::Result<()> {
        handover::send_to_worker(&self.channel, message)
    }

    /// Asks the worker to leave. It is killed if it takes too long.
    pub(super) fn end(&self) {
        self.ask(EndRequest::ToEnd);
    }

    /// Asks the worker to leave, and to report the reason to its client. The first of several reasons
    /// counts.
    pub(super) fn end_because(&self, reason: &str) {
        // If the worker was already asked to leave without a reason, it does not receive this one.
        let _ = self.close_reason.set(reason.to_owned());
        self.end();
    }

    /// Notes that the session ends because the node has ended its lease by itself.
    pub(super) fn note_lost_lease(&self) {
        self.has_lost_lease.store(true, Ordering::Relaxed);
    }

    /// Returns whether the session ends because the node has ended its lease by itself.
    pub(super) fn has_lost_lease(&self) -> bool {
        self.has_lost_lease.load(Ordering::Relaxed)
    }

    /// Kills the worker and the processes that it started.
    pub(super) fn kill(&self) {
        self.ask(EndRequest::ToDie);
    }

    /// Notes that the host of this session is killed.
    pub(super) fn note_kill(&self) {
        self.asked
            .fetch_max(EndRequest::ToDie as u8, Ordering::Relaxed);
    }

    /// Returns whether the session was told to end, or its client has gone.
    pub(super) fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Relaxed) || self.was_asked() != EndRequest::Nothing
    }

    fn ask(&self, what: EndRequest) {
        // A request to end never replaces an earlier kill.
        self.asked.fetch_max(what as u8, Ordering::Relaxed);
        self.asked_more.notify_one();
    }

    /// Notes a connection that is passed to the worker.
    pub(super) fn note_passed(&self, socket: &OwnedFd) {
        if let Ok(cookie) = sockopt::socket_cookie(socket)
            && !self.waits().is_zero()
        {
            let mut passed = self.passed.lock();
            if passed.len() == PASSED {
                passed.pop_front();
            }
            passed.push_back(cookie);
        }
    }

    fn has_passed(&self, socket: Option<&WorkerFile>) -> bool {
        let cookie = socket.and_then(|socket| sockopt::socket_cookie(socket).ok());
        cookie.is_some_and(|cookie| self.passed.lock().contains(&cookie))
    }

    /// Returns the longest time that the session waits for a client that is away.
    fn waits(&self) -> Duration {
        self.away_times().longest()
    }

    fn away_times(&self) -> AwayTimes {
        self.waits.get().copied().unwrap_or_default()
    }

    /// Returns how long a client that leaves now is waited for, after this word of the worker.
    fn waits_after(&self, word: AwayWord) -> Duration {
        let resume = self.away_times().resume;
        match word {
            AwayWord::Nothing => resume.min(AwayTimes::SILENT),
            AwayWord::Soon => resume.min(AwayTimes::KILLED),
            AwayWord::Long => self.waits(),
        }
    }

    /// Returns whether the session outlives its connections.
    pub(super) fn resumes(&self) -> bool {
        !self.waits().is_zero()
    }

    /// Returns since when the client is away.
    pub(super) fn away_since(&self) -> Option<Instant> {
        *self.away.borrow()
    }

    /// Returns whether the daemon has a reason to wait: the client is here, or the worker parks the session.
    pub(super) fn is_worth_waiting_for(&self) -> bool {
        self.away_since().is_none() || self.is_parking()
    }

    /// Waits until [`Self::is_worth_waiting_for`] may have changed to false.
    pub(super) async fn leaves(&self) {
        // The senders are here, so this cannot fail.
        let _ = self.away.subscribe().wait_for(Option::is_some).await;
        let _ = self.is_parking.subscribe().wait_for(|parks| !parks).await;
    }

    /// Asks the worker to park its session.
    pub(super) fn park(&self, contents: Vec<OwnedFd>) -> io::Result<()> {
        self.is_parking.send_replace(true);
        self.send(&ToWorker::Park { contents })
    }

    /// Notes why the session cannot be parked.
    pub(super) fn cannot_park(&self, reason: String) {
        self.is_parking.send_replace(false);
        tracing::warn!(
            session = ?self.serves.get().map(|(session, _)| *session),
            worker = self.serial,
            reason,
            "a session cannot be parked; it ends when the drain limit is reached"
        );
        let _ = self.not_parked.set(reason);
    }

    /// Returns why the session is not parked, if the worker was asked to park it.
    pub(super) fn not_parked(&self) -> Option<&str> {
        if self.is_parking() {
            return Some(match self.away_since() {
                Some(_) => "its program was away and has not come back in time (`resume`)",
                None => {
                    "its commands have not ended, or its program has not received everything in time (`drain_limit`), for \
                     example because the program is suspended"
                }
            });
        }
        self.not_parked.get().map(String::as_str)
    }

    /// Returns whether the worker parks its session, or has done so.
    pub(super) fn is_parking(&self) -> bool {
        *self.is_parking.borrow()
    }

    /// Returns how far the session was when the worker had parked it; `None` if it has not.
    pub(super) fn parked(&self) -> Option<Restores> {
        self.parked.get().copied()
    }

    /// Returns how often the client has come back.
    pub(super) fn resumed(&self) -> u64 {
        self.resumed.load(Ordering::Relaxed).into()
    }

    /// Whether the supervisor or the worker has said why the session ends for good.
    pub(super) fn has_reason_to_end(&self) -> bool {
        let said = self.said.get().filter(|_| !self.leaves_host());
        self.close_reason.get().or(said).is_some()
    }

    /// Notes that the session cannot go on in its host, if another worker may take the place of this one.
    fn may_leave_host(&self) {
        if self.reexecutes() {
            self.leaves_host.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the session cannot go on in its host, and another worker may take the place of this one.
    pub(super) fn leaves_host(&self) -> bool {
        self.leaves_host.load(Ordering::Relaxed)
    }

    /// Returns why the session has ended, as far as the supervisor or the worker has said so, or its host's end says it.
    pub(super) fn end_reason(&self) -> Option<&str> {
        let reasons = [&self.close_reason, &self.loss, &self.said];
        reasons
            .into_iter()
            .find_map(|reason| reason.get().map(String::as_str))
    }
}
