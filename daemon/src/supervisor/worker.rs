//! One worker process, seen from the supervisor.

use std::io;
use std::os::fd::OwnedFd;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use causeway_proto::id::SessionId;
use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::sync::Notify;

use super::builds::Builds;
use super::client::Client;
use super::leaving::{LEAVE_WITHIN, Leaving, Step};
use super::process::{Process, Processes, Role};
use crate::handover::{self, Line, ToSupervisor, ToWorker};

/// Of a worker's messages so many are heard in a turn; then others have theirs.
const MESSAGES_A_TURN: u32 = 16;
/// After so many messages in a row a worker is heard no more for a moment: it floods its supervisor. What it sends
/// waits in its own channel, and it with that.
const FLOOD: u32 = 64;
const QUIET: Duration = Duration::from_millis(10);

/// What a worker was asked to do about its end.
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
    /// Names it in the log.
    pub(super) serial: u64,
    channel: UnixDatagram,
    ready: AtomicBool,
    asked: AtomicU8,
    /// Why it is to leave, as its client is to be told.
    farewell: OnceLock<String>,
    asked_more: Notify,
    builds: Option<Builds>,
    /// What it serves, and when the supervisor no longer waits for its client.
    serves: OnceLock<(SessionId, Instant)>,
    is_connected: AtomicBool,
    /// It had to be killed, because it did not see that its client had gone.
    unresponsive: AtomicBool,
    stuck: AtomicBool,
    /// Its session makes room for another, because its client has not come.
    displaced: AtomicBool,
}

impl Worker {
    /// Starts the process. Whoever gets it must [`watch`](Worker::watch) it.
    pub(super) fn start(
        serial: u64,
        processes: &Processes,
        builds: Option<Builds>,
    ) -> io::Result<(Arc<Worker>, Process)> {
        let (ours, theirs) = handover::pair()?;
        // tokio knows no SOCK_SEQPACKET; a datagram socket is the same to it: messages and readiness.
        let channel = UnixDatagram::from_std(std::os::unix::net::UnixDatagram::from(ours))?;
        let process = processes.start(Role::Worker, theirs)?;
        let worker = Worker {
            serial,
            channel,
            ready: AtomicBool::new(false),
            asked: AtomicU8::new(Asked::Nothing as u8),
            farewell: OnceLock::new(),
            asked_more: Notify::new(),
            builds,
            serves: OnceLock::new(),
            is_connected: AtomicBool::new(false),
            unresponsive: AtomicBool::new(false),
            stuck: AtomicBool::new(false),
            displaced: AtomicBool::new(false),
        };
        Ok((Arc::new(worker), process))
    }

    /// Whether it has loaded OpenCL.
    pub(super) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }

    /// It was given a session, whose client comes within this time.
    pub(super) fn serve(&self, session: SessionId, connect_limit: Duration) {
        // The worker has the same limit, and time to end by itself.
        let by = Instant::now() + connect_limit + LEAVE_WITHIN;
        let _ = self.serves.set((session, by));
        self.asked_more.notify_one();
    }

    /// Whether its client has opened the connection for commands.
    pub(super) fn is_connected(&self) -> bool {
        self.is_connected.load(Ordering::Relaxed)
    }

    /// Kills it: its session makes room for another.
    pub(super) fn displace(&self) {
        self.displaced.store(true, Ordering::Relaxed);
        self.kill();
    }

    /// Whether its session makes room for another.
    pub(super) fn is_displaced(&self) -> bool {
        self.displaced.load(Ordering::Relaxed)
    }

    /// Whether it was killed because it did not end after its client.
    pub(super) fn is_unresponsive(&self) -> bool {
        self.unresponsive.load(Ordering::Relaxed)
    }

    /// Whether it was killed and is still there.
    pub(super) fn is_stuck(&self) -> bool {
        self.stuck.load(Ordering::Relaxed)
    }

    /// What it was asked last.
    pub(super) fn was_asked(&self) -> Asked {
        match self.asked.load(Ordering::Relaxed) {
            0 => Asked::Nothing,
            1 => Asked::ToEnd,
            _ => Asked::ToDie,
        }
    }

    /// Sends it a message, never waiting.
    pub(super) fn send(&self, message: &ToWorker) -> io::Result<()> {
        handover::send_to_worker(&self.channel, message)
    }

    /// Tells it to leave; it is killed when it takes too long.
    pub(super) fn end(&self) {
        self.ask(Asked::ToEnd);
    }

    /// The same, and its client is told why. Of several reasons the first counts.
    pub(super) fn end_because(&self, reason: &str) {
        // Who was told to leave before has heard no reason, and hears none.
        let _ = self.farewell.set(reason.to_owned());
        self.end();
    }

    /// Kills it and what it started.
    pub(super) fn kill(&self) {
        self.ask(Asked::ToDie);
    }

    fn ask(&self, what: Asked) {
        self.asked.fetch_max(what as u8, Ordering::Relaxed);
        self.asked_more.notify_one();
    }

    /// Stays with the process until it has ended; does to it what was asked, and what its client's end asks for.
    pub(super) async fn watch(self: &Arc<Worker>, mut process: Process) -> io::Result<ExitStatus> {
        let mut client = Client::new()?;
        let mut leaving = Leaving::default();
        let mut hearing = Hearing::default();
        let (mut speaks, mut has_come, mut is_gone) = (true, false, false);
        loop {
            tokio::select! {
                status = process.wait() => {
                    self.tell_gone();
                    return status;
                }
                message = self.receive(&mut hearing), if speaks => match message {
                    Ok(Some(ToSupervisor::Client { line, socket })) => {
                        self.meet(&mut client, line, socket);
                        if client.has_come() && !is_gone && !std::mem::replace(&mut has_come, true) {
                            leaving.may_stay();
                        }
                    }
                    Ok(Some(message)) => self.hear(message),
                    Ok(None) => speaks = false,
                    Err(error) => {
                        tracing::debug!(%error, worker = self.serial, "a worker's socket");
                        speaks = false;
                    }
                },
                () = self.asked_more.notified() => {
                    if self.was_asked() == Asked::ToEnd {
                        self.say_farewell();
                        // The worker takes the end of its channel as the word to leave.
                        let both = rustix::net::Shutdown::Both;
                        let _ = rustix::net::shutdown(&self.channel, both);
                        speaks = false;
                    }
                    self.do_as_asked(&process, &client, &mut leaving);
                }
                Ok(()) = client.gone(), if !is_gone => {
                    is_gone = true;
                    leaving.is_due(Instant::now());
                }
                () = until(leaving.next()) => self.step(&process, &mut leaving),
            }
        }
    }

    fn do_as_asked(&self, process: &Process, client: &Client, leaving: &mut Leaving) {
        match self.was_asked() {
            Asked::Nothing => {
                if let Some((_, by)) = self.serves.get()
                    && !client.has_come()
                {
                    leaving.is_due_by(*by);
                }
            }
            Asked::ToEnd => leaving.is_due(Instant::now()),
            Asked::ToDie => {
                process.kill();
                leaving.was_killed(Instant::now());
            }
        }
    }

    /// Its client has come.
    fn meet(&self, client: &mut Client, line: Line, socket: Option<OwnedFd>) {
        if let Err(error) = client.show(line, socket) {
            tracing::warn!(
                %error,
                worker = self.serial,
                ?line,
                "the daemon does not watch a connection of a client: only the worker sees its end. \
                 Where descriptors are short, raise LimitNOFILE"
            );
        }
        self.is_connected
            .store(client.has_come(), Ordering::Relaxed);
    }

    /// It has not ended in time, or is not gone although it was killed.
    fn step(&self, process: &Process, leaving: &mut Leaving) {
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
                        "a worker does not end although its client has gone, or never came: it is killed"
                    );
                } else {
                    let worker = self.serial;
                    tracing::warn!(?session, worker, "a worker does not leave, it is killed");
                }
                process.kill();
            }
            Step::TellStuck => {
                self.stuck.store(true, Ordering::Relaxed);
                tracing::error!(
                    ?session,
                    worker = self.serial,
                    pid = process.id(),
                    "a worker was killed and is not gone: the kernel may be freeing its memory, or be inside a \
                     device's driver. The session keeps its place until the process ends. If it does not end, \
                     restart the machine"
                );
            }
        }
    }

    /// The log has said that it was killed and is not gone.
    fn tell_gone(&self) {
        if self.is_stuck() {
            let session = self.serves.get().map(|(session, _)| *session);
            let worker = self.serial;
            tracing::warn!(
                ?session,
                worker,
                "a worker that was killed long ago is gone now"
            );
        }
    }

    /// Who has not taken many earlier messages ends without a reason.
    fn say_farewell(&self) {
        let Some(reason) = self.farewell.get().cloned() else {
            return;
        };
        if let Err(error) = self.send(&ToWorker::End { reason }) {
            tracing::debug!(%error, worker = self.serial, "a worker is not told why it ends");
        }
    }

    fn hear(self: &Arc<Worker>, message: ToSupervisor) {
        match (message, &self.builds) {
            (ToSupervisor::Ready, _) => self.ready.store(true, Ordering::Relaxed),
            (ToSupervisor::LookUp { ticket, key }, Some(builds)) => {
                builds.look_up(self, ticket, key);
            }
            (ToSupervisor::Learn { key, job }, Some(builds)) => builds.learn(key, job),
            (ToSupervisor::Refused { key }, Some(builds)) => builds.refused(key),
            (ToSupervisor::Outdated { key }, Some(builds)) => builds.outdated(key),
            // Told above; and a worker of a daemon without a cache was told so.
            (ToSupervisor::Client { .. }, _) | (_, None) => {}
        }
    }

    /// Its next message. A worker that sends without end does not keep the supervisor from others.
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

/// How many messages of a worker were heard, each while the next one waited.
#[derive(Default)]
struct Hearing {
    in_a_row: u32,
    quiet_until: Option<Instant>,
}

impl Hearing {
    /// Waits until it is this worker's turn. Can be given up and called again.
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

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}
