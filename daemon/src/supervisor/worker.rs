//! One worker, on the supervisor's side: a process, or a session of a host process ([`hosts`](super::hosts)).

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use causeway_proto::id::{SessionId, SessionSecret};
use parking_lot::Mutex;
use rustix::net::sockopt;
use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::sync::{Notify, watch};

use super::builds::Builds;
use super::client::Client;
use super::hosts::Body;
use super::leaving::{BUILD_WITHIN, LEAVE_WITHIN, Leaving, Step};
use super::process::{Process, Processes, Role};
use super::warm::WarmDevice;
use crate::build_cache::{Name, Owner};
use crate::handover::{self, AwayTimes, Line, Restores, ToSupervisor, ToWorker, WorkerFile};

/// Number of messages of one worker that are processed in a row, before other tasks get their turn.
const MESSAGES_A_TURN: u32 = 16;
/// Number of messages in a row after which a worker is considered to flood the supervisor. The supervisor
/// then stops reading from it for [`QUIET`]. Further messages wait in the worker's own channel, and the
/// worker blocks on it.
const FLOOD: u32 = 64;
const QUIET: Duration = Duration::from_millis(10);

/// Time for a worker's contexts after which a session should rather get another worker.
const SLOW_AFTER: Duration = Duration::from_secs(5);

/// What a worker was asked to do. Later variants override earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Asked {
    Nothing = 0,
    ToEnd = 1,
    ToDie = 2,
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
    asked_more: Notify,
    builds: Option<Builds>,
    /// The session that the worker serves, and the deadline for its client to connect.
    serves: OnceLock<(SessionId, Instant)>,
    /// The user whose builds the worker gets and stores.
    user: OnceLock<Owner>,
    is_connected: AtomicBool,
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
    /// The longest time that the session waits for a client that is away. 0: it ends with its connections.
    waits: OnceLock<Duration>,
    /// Since when the client is away.
    away: watch::Sender<Option<Instant>>,
    /// Set while the worker says that it waits for longer than for a killed program.
    is_patient: AtomicBool,
    /// How often the client has come back.
    resumed: AtomicU32,
    /// The cookies of the latest connections that were passed to the worker, by which the kernel tells sockets apart.
    passed: Mutex<VecDeque<u64>>,
    /// Why the session ends, as the worker says.
    said: OnceLock<String>,
    /// Why the session ended with its host.
    loss: OnceLock<String>,
    /// How far the session was when the worker had parked it.
    parked: OnceLock<Restores>,
    /// Set when the worker was asked to park its session, until it says that it cannot.
    is_parking: watch::Sender<bool>,
    /// Why the session cannot be parked.
    not_parked: OnceLock<String>,
    warmth: Mutex<Warmth>,
}

/// Time for a worker that has parked its session to end.
const PARKED_WITHIN: Duration = Duration::from_secs(5);

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
            asked: AtomicU8::new(Asked::Nothing as u8),
            close_reason: OnceLock::new(),
            asked_more: Notify::new(),
            builds,
            serves: OnceLock::new(),
            user: OnceLock::new(),
            is_connected: AtomicBool::new(false),
            unresponsive: AtomicBool::new(false),
            stuck: AtomicBool::new(false),
            displaced: AtomicBool::new(false),
            pid: AtomicU32::new(0),
            secret,
            is_ending: AtomicBool::new(false),
            waits: OnceLock::new(),
            away: watch::Sender::default(),
            is_patient: AtomicBool::new(false),
            resumed: AtomicU32::new(0),
            passed: Mutex::default(),
            said: OnceLock::new(),
            loss: OnceLock::new(),
            parked: OnceLock::new(),
            is_parking: watch::Sender::default(),
            not_parked: OnceLock::new(),
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
    /// `connect_limit`. The session waits for a client that is away for `waits` at most.
    pub(super) fn serve(
        &self,
        session: SessionId,
        user: Owner,
        connect_limit: Duration,
        waits: Duration,
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
    pub(super) fn was_asked(&self) -> Asked {
        match self.asked.load(Ordering::Relaxed) {
            0 => Asked::Nothing,
            1 => Asked::ToEnd,
            _ => Asked::ToDie,
        }
    }

    /// Sends a message to the worker without blocking.
    pub(super) fn send(&self, message: &ToWorker) -> io::Result<()> {
        handover::send_to_worker(&self.channel, message)
    }

    /// Asks the worker to leave. It is killed if it takes too long.
    pub(super) fn end(&self) {
        self.ask(Asked::ToEnd);
    }

    /// Asks the worker to leave, and to report the reason to its client. The first of several reasons
    /// counts.
    pub(super) fn end_because(&self, reason: &str) {
        // If the worker was already asked to leave without a reason, it does not receive this one.
        let _ = self.close_reason.set(reason.to_owned());
        self.end();
    }

    /// Kills the worker and the processes that it started.
    pub(super) fn kill(&self) {
        self.ask(Asked::ToDie);
    }

    /// Notes that the host of this session is killed.
    pub(super) fn note_kill(&self) {
        self.asked.fetch_max(Asked::ToDie as u8, Ordering::Relaxed);
    }

    /// Returns whether the session was told to end, or its client has gone.
    pub(super) fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Relaxed) || self.was_asked() != Asked::Nothing
    }

    fn ask(&self, what: Asked) {
        // A request to end never replaces an earlier kill.
        self.asked.fetch_max(what as u8, Ordering::Relaxed);
        self.asked_more.notify_one();
    }

    /// Runs until the process has ended. Carries out what was asked, and ends the worker after its client
    /// has gone.
    pub(super) async fn watch(self: &Arc<Worker>, mut body: Body) -> io::Result<ExitStatus> {
        let mut client = Client::new()?;
        let mut leaving = Leaving::default();
        let mut hearing = Hearing::default();
        let (mut speaks, mut has_come, mut is_gone) = (true, false, false);
        loop {
            tokio::select! {
                status = body.wait() => {
                    self.hear_the_rest();
                    self.tell_gone();
                    if let Some(reason) = self.loss_reason(&body, &status) {
                        let _ = self.loss.set(reason.clone());
                        // Not here, because the session has ended.
                        let secret = self.secret.clone();
                        tokio::spawn(async move { client.tell(&reason, secret.as_ref()).await });
                    }
                    return status;
                }
                message = self.receive(&mut hearing), if speaks => match message {
                    Ok(Some(ToSupervisor::Client { line, socket })) if !self.waits().is_zero() => {
                        self.meet_again(&mut client, line, socket, &mut leaving);
                    }
                    Ok(Some(ToSupervisor::Leaving { reason })) => {
                        let _ = self.said.set(reason);
                        self.is_ending.store(true, Ordering::Relaxed);
                        leaving.is_due(Instant::now());
                    }
                    Ok(Some(ToSupervisor::Client { line, socket })) => {
                        self.meet(&mut client, line, socket);
                        // The deadline for the first connection no longer applies, unless the client has
                        // already gone again.
                        if client.has_come() && !is_gone && !std::mem::replace(&mut has_come, true) {
                            leaving.may_stay();
                        }
                    }
                    Ok(Some(message @ ToSupervisor::Parked(_))) => {
                        self.hear(message);
                        self.is_ending.store(true, Ordering::Relaxed);
                        leaving.is_due(Instant::now() + PARKED_WITHIN);
                    }
                    Ok(Some(ToSupervisor::Released)) if body.is_hosted() => return Ok(ExitStatus::default()),
                    Ok(Some(ToSupervisor::Building)) if body.is_hosted() => leaving.may_take(BUILD_WITHIN),
                    Ok(Some(ToSupervisor::Waiting)) => {
                        if body.has_neighbour() {
                            leaving.waits(Instant::now());
                        }
                    }
                    Ok(Some(ToSupervisor::Spoiled)) => body.retire(),
                    Ok(Some(ToSupervisor::Away)) => self.is_waiting_for_client(&mut leaving),
                    Ok(Some(message)) => self.hear(message),
                    // Nothing of a session exists before its client has come. The host could not serve it.
                    end if body.is_hosted() && !client.has_come() && is_end(&end) => {
                        return Ok(ExitStatus::default());
                    }
                    Ok(None) => {
                        speaks = false;
                        self.lost_channel(&body, &mut leaving);
                    }
                    Err(error) => {
                        tracing::debug!(%error, worker = self.serial, "cannot read from a worker's channel");
                        speaks = false;
                        self.lost_channel(&body, &mut leaving);
                    }
                },
                () = self.asked_more.notified() => {
                    if self.was_asked() == Asked::ToEnd {
                        self.send_close_reason();
                        // The worker leaves when it sees the end of its channel. A session of a host then says
                        // when it has released everything.
                        let end = match body.is_hosted() {
                            true => rustix::net::Shutdown::Write,
                            false => rustix::net::Shutdown::Both,
                        };
                        let _ = rustix::net::shutdown(&self.channel, end);
                        speaks &= body.is_hosted();
                    }
                    self.do_as_asked(&body, &client, &mut leaving);
                }
                Ok(()) = client.has_left(self.resumes()), if !is_gone => {
                    let now = Instant::now();
                    if self.resumes() {
                        self.away.send_if_modified(|away| away.replace(away.unwrap_or(now)).is_none());
                    } else {
                        is_gone = true;
                        self.is_ending.store(true, Ordering::Relaxed);
                    }
                    // A worker that still runs sees the same end, and leaves by itself or says that it waits. The time
                    // counts from the first connection that ended, unless the client comes back.
                    leaving.is_due(now + self.waits_now());
                }
                () = until(leaving.next()) => self.step(&body, &mut leaving),
            }
        }
    }

    /// Handles that the channel has ended. A process sees the same and ends. A session of a host has then ended
    /// without saying so, so the host has a fault or has just ended.
    fn lost_channel(&self, body: &Body, leaving: &mut Leaving) {
        if body.is_hosted() {
            leaving.is_due(Instant::now());
        }
    }

    /// Returns what the client of a session is to be told that has ended with its host; `None` if it has been told
    /// another reason, or cannot be told.
    fn loss_reason(&self, body: &Body, status: &io::Result<ExitStatus>) -> Option<String> {
        let can_tell = self.was_asked() == Asked::Nothing;
        let status = status.as_ref().ok().filter(|_| can_tell)?;
        body.loss_reason(*status, self)
    }

    fn do_as_asked(&self, body: &Body, client: &Client, leaving: &mut Leaving) {
        match self.was_asked() {
            Asked::Nothing => {
                // Only `serve` notifies without asking: the client must connect by that time.
                if let Some((_, by)) = self.serves.get()
                    && !client.has_come()
                {
                    leaving.is_due_by(*by);
                }
            }
            Asked::ToEnd => leaving.is_due(Instant::now()),
            Asked::ToDie => {
                body.kill(self);
                leaving.was_killed(Instant::now());
            }
        }
    }

    /// Notes a connection of the client that the worker reports.
    fn meet(&self, client: &mut Client, line: Line, socket: Option<WorkerFile>) {
        if let Err(error) = client.show(line, socket) {
            tracing::warn!(
                %error,
                worker = self.serial,
                ?line,
                "the supervisor cannot watch a client's connection, so only the worker notices its end; if descriptors \
                 are exhausted, raise LimitNOFILE"
            );
        }
        self.is_connected
            .store(client.has_come(), Ordering::Relaxed);
    }

    /// Notes a connection of the client of a session that outlives its connections.
    fn meet_again(
        &self,
        client: &mut Client,
        line: Line,
        socket: Option<WorkerFile>,
        leaving: &mut Leaving,
    ) {
        let is_first = !client.has_come();
        // A kernel of the session could report any socket, and so make a session without a client last.
        if !is_first && !self.has_passed(socket.as_ref()) {
            tracing::debug!(
                worker = self.serial,
                ?line,
                "a worker reported an unknown connection"
            );
            return;
        }
        let shown = client.replace(line, socket);
        self.is_connected
            .store(client.has_come(), Ordering::Relaxed);
        if let Err(error) = shown {
            tracing::warn!(
                %error,
                worker = self.serial,
                ?line,
                "the supervisor cannot watch a client's connection; if descriptors are exhausted, raise LimitNOFILE"
            );
        }
        if !client.is_whole() || self.is_ending() {
            return;
        }
        self.is_patient.store(false, Ordering::Relaxed);
        let was_away = self.away.send_replace(None).is_some();
        if was_away {
            self.resumed.fetch_add(1, Ordering::Relaxed);
        }
        if was_away || is_first {
            leaving.may_stay();
        }
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
        self.waits.get().copied().unwrap_or_default()
    }

    /// Returns how long a client that leaves now is waited for.
    fn waits_now(&self) -> Duration {
        match self.is_patient.load(Ordering::Relaxed) {
            true => self.waits(),
            false => self.waits().min(AwayTimes::KILLED),
        }
    }

    /// Notes that the worker waits for its client for longer than for a killed program. A kernel may say so in its
    /// place, but cannot exceed the granted time.
    fn is_waiting_for_client(&self, leaving: &mut Leaving) {
        self.is_patient.store(true, Ordering::Relaxed);
        if let Some(since) = self.away_since()
            && !self.is_ending()
        {
            leaving.waits(since + self.waits());
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
    pub(super) fn park(&self, contents: OwnedFd) -> io::Result<()> {
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
                Some(_) => "its program was away and has not come back in time (`drain_limit`)",
                None => {
                    "its commands have not ended, or its program has not received everything, in time (`drain_limit`)"
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

    /// Returns why the session has ended, as far as the supervisor or the worker has said so.
    pub(super) fn end_reason(&self) -> Option<&str> {
        let reasons = [&self.close_reason, &self.loss, &self.said];
        reasons
            .into_iter()
            .find_map(|reason| reason.get().map(String::as_str))
    }

    /// Carries out the step that is due because the process has not ended in time.
    fn step(&self, body: &Body, leaving: &mut Leaving) {
        let session = self.serves.get().map(|(session, _)| *session);
        match leaving.step(Instant::now()) {
            Step::Wait => {}
            Step::Kill => {
                if self.was_asked() == Asked::Nothing {
                    self.unresponsive.store(true, Ordering::Relaxed);
                    let worker = self.serial;
                    tracing::warn!(
                        ?session,
                        worker,
                        "a worker has not ended after its client left or failed to connect; it is killed"
                    );
                } else {
                    let worker = self.serial;
                    tracing::warn!(
                        ?session,
                        worker,
                        "a worker has not ended in time; it is killed"
                    );
                }
                body.kill(self);
            }
            Step::TellStuck => {
                self.stuck.store(true, Ordering::Relaxed);
                tracing::error!(
                    ?session,
                    worker = self.serial,
                    pid = body.id(),
                    "a worker was killed and has not ended; the kernel may be freeing its memory, or a device driver \
                     may hang. Its session counts until the process ends. If it does not end, restart the machine"
                );
            }
        }
    }

    /// Logs that the process has ended, if the log says that it was killed and still exists.
    fn tell_gone(&self) {
        if self.is_stuck() {
            let session = self.serves.get().map(|(session, _)| *session);
            let worker = self.serial;
            tracing::warn!(?session, worker, "a killed worker has ended at last");
        }
    }

    /// Sends the reason for the end. A worker that has not read many earlier messages ends without a
    /// reason.
    fn send_close_reason(&self) {
        let Some(reason) = self.close_reason.get().cloned() else {
            return;
        };
        if let Err(error) = self.send(&ToWorker::End { reason }) {
            tracing::debug!(%error, worker = self.serial, "the reason for its end cannot be sent to a worker");
        }
    }

    fn hear(self: &Arc<Worker>, message: ToSupervisor) {
        if let ToSupervisor::Leaving { reason } = &message {
            let _ = self.said.set(reason.clone());
        }
        // Also after the end of the process, which follows at once.
        if let ToSupervisor::Parked(restores) = &message {
            let _ = self.parked.set(*restores);
        }
        if let ToSupervisor::NotParked { reason } = &message {
            self.cannot_park(reason.clone());
        }
        if let ToSupervisor::Ready = message {
            self.ready.store(true, Ordering::Relaxed);
            // The time for the contexts does not contain the time for loading OpenCL.
            if let Warmth::UnderWay { since, .. } = &mut *self.warmth.lock() {
                *since = Instant::now();
            }
        }
        if let ToSupervisor::Warmed { contexts } = message {
            let mut warmth = self.warmth.lock();
            // A later report only lowers the figure, so that a kernel of a session cannot raise it.
            match *warmth {
                Warmth::NotAsked => {}
                Warmth::UnderWay { asked: most, .. } | Warmth::Done(most) => {
                    *warmth = Warmth::Done(contexts.min(most));
                }
            }
        }
        // A worker of a daemon without a build cache knows that, and a worker without a session builds
        // nothing. Neither sends requests for builds.
        let (Some(builds), Some(&owner)) = (&self.builds, self.user.get()) else {
            return;
        };
        let named = |key| Name { owner, key };
        match message {
            ToSupervisor::LookUp { ticket, key } => builds.look_up(self, ticket, named(key)),
            ToSupervisor::Store { key, entry } => builds.store(named(key), entry),
            ToSupervisor::Refused { key } => builds.remove(named(key)),
            // `Client`, and what hosts say, is handled in `watch`.
            ToSupervisor::Ready
            | ToSupervisor::Warmed { .. }
            | ToSupervisor::Client { .. }
            | ToSupervisor::Leaving { .. }
            | ToSupervisor::Released
            | ToSupervisor::Building
            | ToSupervisor::Waiting
            | ToSupervisor::Spoiled
            | ToSupervisor::Parked(_)
            | ToSupervisor::NotParked { .. }
            | ToSupervisor::Away => {}
        }
    }

    /// Processes the messages that are left in the channel of a process that has ended. A session stores its
    /// last builds at its end.
    fn hear_the_rest(self: &Arc<Worker>) {
        for _ in 0..FLOOD {
            match handover::receive_in_supervisor(&self.channel) {
                Ok(Some(message)) => self.hear(message),
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// Receives the worker's next message. Pauses if the worker sends without end, so that other tasks can
    /// run.
    async fn receive(&self, hearing: &mut Hearing) -> io::Result<Option<ToSupervisor>> {
        loop {
            hearing.turn().await;
            self.channel.readable().await?;
            let received = self.channel.try_io(Interest::READABLE, || {
                handover::receive_in_supervisor(&self.channel)
            });
            match received {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    *hearing = Hearing::default()
                }
                received => {
                    hearing.in_a_row += 1;
                    return received;
                }
            }
        }
    }
}

/// Number of messages received from a worker without a pause between them.
#[derive(Default)]
struct Hearing {
    in_a_row: u32,
    quiet_until: Option<Instant>,
}

impl Hearing {
    /// Waits until the next message of this worker may be read. Cancel safe.
    async fn turn(&mut self) {
        if self.in_a_row >= FLOOD {
            let until = *self
                .quiet_until
                .get_or_insert_with(|| Instant::now() + QUIET);
            tokio::time::sleep_until(until.into()).await;
            *self = Hearing::default();
        } else if self.in_a_row % MESSAGES_A_TURN == MESSAGES_A_TURN - 1 {
            tokio::task::yield_now().await;
        }
    }
}

/// Whether the other end of a channel is closed. With unread messages in it, that is a reset.
fn is_end(received: &io::Result<Option<ToSupervisor>>) -> bool {
    match received {
        Ok(message) => message.is_none(),
        Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    fn worker() -> Arc<Worker> {
        let (worker, _channel) = Worker::hosted(1, None, None).unwrap();
        let (minute, owner) = (Duration::from_secs(60), Owner::of(None));
        worker.serve(SessionId([1; 16]), owner, minute, minute);
        worker
    }

    fn socket() -> OwnedFd {
        UnixStream::pair().unwrap().0.into()
    }

    #[tokio::test]
    async fn only_a_connection_that_was_passed_brings_a_client_back() {
        let worker = worker();
        let (mut client, mut leaving) = (Client::new().unwrap(), Leaving::default());
        let mut report = |socket: &OwnedFd, client: &mut Client| {
            let socket = socket.try_clone().unwrap();
            worker.meet_again(client, Line::Commands, Some(socket.into()), &mut leaving);
        };
        let (near, far) = UnixStream::pair().unwrap();
        let first = OwnedFd::from(near);
        worker.note_passed(&first);
        report(&first, &mut client);
        drop(far);
        client.has_left(true).await.unwrap();
        worker.away.send_replace(Some(Instant::now()));
        // A kernel of the session has made this one.
        report(&socket(), &mut client);
        assert!(!client.is_whole() && worker.away_since().is_some());
        let passed = socket();
        worker.note_passed(&passed);
        report(&passed, &mut client);
        assert!(client.is_whole() && worker.away_since().is_none());
        assert_eq!(worker.resumed(), 1);
    }
}
