//! What runs beside a worker until it has ended: reads its channel, watches its client's connections and its deadlines.
//!
//! This file starts no worker. Invariant: once the client has gone, or the worker was told to end, a deadline runs.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::io::Interest;

use super::{AwayWord, EndRequest, Warmth, Worker};
use crate::build_cache::Name;
use crate::handover::{self, SessionLine, ToSupervisor, ToWorker, WorkerFile};
use crate::supervisor::client::Client;
use crate::supervisor::hosts::Body;
use crate::supervisor::leaving::{BUILD_WITHIN, Leaving, LeavingAction};

/// Number of messages of one worker that are processed in a row, before other tasks get their turn.
const MESSAGES_A_TURN: u32 = 16;
/// Number of messages in a row after which a worker is considered to flood the supervisor. The supervisor
/// then stops reading from it for [`QUIET`]. Further messages wait in the worker's own channel, and the
/// worker blocks on it.
const FLOOD: u32 = 64;
const QUIET: Duration = Duration::from_millis(10);

/// Time for a worker that has parked its session to end.
const PARKED_WITHIN: Duration = Duration::from_secs(5);

/// What the task knows of its worker.
struct Watched {
    client: Client,
    leaving: Leaving,
    /// What the worker has said since its client is away.
    word: AwayWord,
    /// Whether the channel is read.
    speaks: bool,
    /// Whether the deadline for the client's first connection no longer applies.
    has_come: bool,
    /// Whether the client of a session that ends with its connections has gone.
    is_gone: bool,
}

impl Watched {
    fn new() -> io::Result<Watched> {
        Ok(Watched {
            client: Client::new()?,
            leaving: Leaving::default(),
            word: AwayWord::default(),
            speaks: true,
            has_come: false,
            is_gone: false,
        })
    }
}

impl Worker {
    /// Runs until the process has ended. Carries out what was asked, and ends the worker after its client
    /// has gone.
    pub(in crate::supervisor) async fn watch(
        self: &Arc<Worker>,
        mut body: Body,
    ) -> io::Result<ExitStatus> {
        let mut watched = Watched::new()?;
        let mut hearing = Hearing::default();
        loop {
            tokio::select! {
                status = body.wait() => {
                    self.on_process_end(&body, &status, watched.client);
                    return status;
                }
                message = self.receive(&mut hearing), if watched.speaks => {
                    if let Some(status) = self.on_message(message, &body, &mut watched) {
                        return Ok(status);
                    }
                }
                () = self.asked_more.notified() => {
                    if self.was_asked() == EndRequest::ToEnd {
                        watched.speaks &= self.shut_channel(&body);
                    }
                    self.do_as_asked(&body, &watched.client, &mut watched.leaving);
                }
                Ok(()) = watched.client.has_left(self.resumes()), if !watched.is_gone => {
                    self.on_client_left(&mut watched);
                }
                () = until(watched.leaving.next()) => self.step(&body, &mut watched.leaving),
            }
        }
    }

    fn on_process_end(
        self: &Arc<Worker>,
        body: &Body,
        status: &io::Result<ExitStatus>,
        client: Client,
    ) {
        self.hear_the_rest();
        self.tell_gone();
        if let Some(reason) = self.loss_reason(body, status) {
            let _ = self.loss.set(reason.clone());
            if self.reexecutes() {
                // Another worker may take the place of this one. Otherwise the client asks for the reason.
                return;
            }
            // Not here, because the session has ended.
            let secret = self.secret.clone();
            tokio::spawn(async move { client.tell(&reason, secret.as_ref()).await });
        }
    }

    /// Handles what was read from the worker's channel. Returns how a session of a host has ended.
    fn on_message(
        self: &Arc<Worker>,
        message: io::Result<Option<ToSupervisor>>,
        body: &Body,
        watched: &mut Watched,
    ) -> Option<ExitStatus> {
        let leaving = &mut watched.leaving;
        match message {
            Ok(Some(ToSupervisor::Client { line, socket })) if !self.waits().is_zero() => {
                self.meet_again(watched, line, socket);
            }
            Ok(Some(ToSupervisor::Leaving { reason })) => {
                let _ = self.said.set(reason);
                self.is_ending.store(true, Ordering::Relaxed);
                leaving.is_due(Instant::now());
            }
            Ok(Some(ToSupervisor::Client { line, socket })) => {
                self.meet(&mut watched.client, line, socket);
                // The deadline for the first connection no longer applies, unless the client has
                // already gone again.
                if watched.client.has_come()
                    && !watched.is_gone
                    && !std::mem::replace(&mut watched.has_come, true)
                {
                    leaving.may_stay();
                }
            }
            Ok(Some(message @ ToSupervisor::Parked(_))) => {
                self.hear(message);
                self.is_ending.store(true, Ordering::Relaxed);
                leaving.is_due(Instant::now() + PARKED_WITHIN);
            }
            Ok(Some(ToSupervisor::Released)) if body.is_hosted() => {
                // The host could not serve the session. A process of its own may.
                if !watched.client.has_come() && self.said.get().is_none() {
                    self.may_leave_host();
                }
                return Some(ended(self.leaves_host()));
            }
            Ok(Some(ToSupervisor::Building)) if body.is_hosted() => leaving.may_take(BUILD_WITHIN),
            Ok(Some(ToSupervisor::Waiting)) => {
                if body.has_neighbour(self) {
                    leaving.waits(Instant::now());
                }
            }
            Ok(Some(ToSupervisor::Spoiled)) => body.retire(),
            Ok(Some(ToSupervisor::LeavesHost)) => self.leave_host(body, leaving),
            Ok(Some(ToSupervisor::Away { soon })) => self.on_away(soon, watched),
            Ok(Some(message)) => self.hear(message),
            // Nothing of a session exists before its client has come. The host could not serve it, or has died.
            Ok(None) if body.is_hosted() && !watched.client.has_come() => {
                return Some(ended(self.reexecutes()));
            }
            Ok(None) => {
                watched.speaks = false;
                self.lost_channel(body, leaving);
            }
            Err(error) => {
                tracing::debug!(%error, worker = self.serial, "cannot read from a worker's channel");
                watched.speaks = false;
                self.lost_channel(body, leaving);
            }
        }
        None
    }

    /// Sends the reason for the end, and shuts the channel. Returns whether the worker may still say something.
    fn shut_channel(&self, body: &Body) -> bool {
        self.send_close_reason();
        // The worker leaves when it sees the end of its channel. A session of a host then says
        // when it has released everything.
        let end = match body.is_hosted() {
            true => rustix::net::Shutdown::Write,
            false => rustix::net::Shutdown::Both,
        };
        let _ = rustix::net::shutdown(&self.channel, end);
        body.is_hosted()
    }

    /// Ends a session that cannot go on in its host, so that another worker can take its place.
    fn leave_host(&self, body: &Body, leaving: &mut Leaving) {
        if !body.is_hosted() || !self.reexecutes() || self.is_ending() {
            return;
        }
        let reason = "the session cannot go on in the process that it shares with others on the node; its log says why";
        let _ = self.loss.set(reason.to_owned());
        self.may_leave_host();
        self.is_ending.store(true, Ordering::Relaxed);
        self.shut_channel(body);
        leaving.is_due(Instant::now());
    }

    fn on_client_left(&self, watched: &mut Watched) {
        let now = Instant::now();
        if self.resumes() {
            self.away
                .send_if_modified(|away| away.replace(away.unwrap_or(now)).is_none());
        } else {
            watched.is_gone = true;
            self.is_ending.store(true, Ordering::Relaxed);
        }
        // A worker that still runs sees the same end, and leaves by itself or says how long it waits. The time
        // counts from the first connection that ended, unless the client comes back.
        watched.leaving.is_due(now + self.waits_after(watched.word));
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
        let can_tell = self.was_asked() == EndRequest::Nothing;
        let status = status.as_ref().ok().filter(|_| can_tell)?;
        body.loss_reason(*status, self)
    }

    fn do_as_asked(&self, body: &Body, client: &Client, leaving: &mut Leaving) {
        match self.was_asked() {
            EndRequest::Nothing => {
                // Only `serve` notifies without asking: the client must connect by that time.
                if let Some((_, by)) = self.serves.get()
                    && !client.has_come()
                {
                    leaving.is_due_by(*by);
                }
            }
            EndRequest::ToEnd => leaving.is_due(Instant::now()),
            EndRequest::ToDie => {
                body.kill(self);
                leaving.was_killed(Instant::now());
            }
        }
    }

    /// Notes a connection of the client that the worker reports.
    fn meet(&self, client: &mut Client, line: SessionLine, socket: Option<WorkerFile>) {
        if let Err(error) = client.show(line, socket) {
            tracing::warn!(
                %error,
                worker = self.serial,
                ?line,
                "the supervisor cannot watch a client's connection, so only the worker notices its end; if descriptors \
                 are exhausted, raise LimitNOFILE"
            );
        }
        if client.has_come() {
            self.connected();
        }
    }

    /// Notes a connection of the client of a session that outlives its connections.
    fn meet_again(&self, watched: &mut Watched, line: SessionLine, socket: Option<WorkerFile>) {
        let client = &mut watched.client;
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
        if client.has_come() {
            self.connected();
        }
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
        watched.word = AwayWord::Nothing;
        let was_away = self.away.send_replace(None).is_some();
        if was_away {
            self.resumed.fetch_add(1, Ordering::Relaxed);
        }
        if was_away || is_first {
            watched.leaving.may_stay();
        }
    }

    /// Notes that the worker waits for its client, and whether for no longer than for a killed program. A kernel may say so
    /// in its place, but cannot exceed the granted time.
    fn on_away(&self, soon: bool, watched: &mut Watched) {
        let since = self.away_since();
        // The supervisor may see the end of a connection after the worker has. But the word that a session ends soon may
        // be older than the client's return, and must not hold for its next absence.
        if soon && since.is_none() {
            return;
        }
        watched.word = match soon {
            true => AwayWord::Soon,
            false => AwayWord::Long,
        };
        let Some(since) = since.filter(|_| !self.is_ending()) else {
            return;
        };
        let waits = self.waits_after(watched.word);
        match soon {
            true => watched.leaving.is_due(Instant::now() + waits),
            false => watched.leaving.waits(since + waits),
        }
    }

    /// Carries out the step that is due because the process has not ended in time.
    fn step(&self, body: &Body, leaving: &mut Leaving) {
        let session = self.serves.get().map(|(session, _)| *session);
        match leaving.step(Instant::now()) {
            LeavingAction::Wait => {}
            LeavingAction::Kill => {
                if self.was_asked() == EndRequest::Nothing {
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
            LeavingAction::TellStuck => {
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
        // Also after the end of the host, in whose channel this was left.
        if let ToSupervisor::LeavesHost = message
            && self.process_id().is_none()
        {
            self.may_leave_host();
        }
        if let ToSupervisor::Checkpoint { restores, contents } = message {
            return self.keep_checkpoint(restores, &contents);
        }
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
            | ToSupervisor::LeavesHost
            | ToSupervisor::Parked(_)
            | ToSupervisor::NotParked { .. }
            | ToSupervisor::Checkpoint { .. }
            | ToSupervisor::Away { .. } => {}
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

/// How a session of a host has ended: as if its process had failed, or well.
fn ended(has_failed: bool) -> ExitStatus {
    ExitStatus::from_raw(i32::from(has_failed) << 8)
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
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use causeway_proto::id::SessionId;

    use crate::build_cache::Owner;
    use crate::handover::AwayTimes;

    const MINUTE: Duration = Duration::from_secs(60);

    fn worker() -> Arc<Worker> {
        let (worker, _channel) = Worker::hosted(1, None, None).unwrap();
        let waits = AwayTimes {
            resume: MINUTE,
            keep: MINUTE,
        };
        worker.serve(SessionId([1; 16]), Owner::of(None), MINUTE, waits);
        worker
    }

    fn socket() -> OwnedFd {
        UnixStream::pair().unwrap().0.into()
    }

    #[tokio::test]
    async fn only_a_connection_that_was_passed_brings_a_client_back() {
        let worker = worker();
        let mut watched = Watched::new().unwrap();
        let report = |socket: &OwnedFd, watched: &mut Watched| {
            let socket = socket.try_clone().unwrap();
            worker.meet_again(watched, SessionLine::Commands, Some(socket.into()));
        };
        let (near, far) = UnixStream::pair().unwrap();
        let first = OwnedFd::from(near);
        worker.note_passed(&first);
        report(&first, &mut watched);
        drop(far);
        watched.client.has_left(true).await.unwrap();
        worker.away.send_replace(Some(Instant::now()));
        // A kernel of the session has made this one.
        report(&socket(), &mut watched);
        assert!(!watched.client.is_whole() && worker.away_since().is_some());
        let passed = socket();
        worker.note_passed(&passed);
        report(&passed, &mut watched);
        assert!(watched.client.is_whole() && worker.away_since().is_none());
        assert_eq!(worker.resumed(), 1);
    }

    #[tokio::test]
    async fn a_worker_that_says_nothing_has_more_time_than_for_a_killed_program() {
        let worker = worker();
        let mut watched = Watched::new().unwrap();
        // From before the client has left.
        worker.on_away(true, &mut watched);
        let begun = Instant::now();
        worker.on_client_left(&mut watched);
        assert!(watched.leaving.next() >= Some(begun + AwayTimes::SILENT));
        worker.on_away(true, &mut watched);
        assert!(watched.leaving.next() < Some(begun + AwayTimes::SILENT));
        // The other connection says that the client comes back.
        worker.on_away(false, &mut watched);
        assert!(watched.leaving.next() >= Some(begun + MINUTE));
    }
}
