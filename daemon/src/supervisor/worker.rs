//! One worker process, seen from the supervisor.

use std::io;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::sync::Notify;

use super::builds::Builds;
use super::process::{Process, Processes, Role};
use crate::handover::{self, ToSupervisor, ToWorker};

/// For a worker that was told to leave. It may be inside a driver that does not return.
const LEAVE_WITHIN: Duration = Duration::from_secs(3);

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
        };
        Ok((Arc::new(worker), process))
    }

    /// Whether it has loaded OpenCL.
    pub(super) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
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

    /// Stays with the process until it has ended; does to it what was asked.
    pub(super) async fn watch(self: &Arc<Worker>, mut process: Process) -> io::Result<ExitStatus> {
        let mut speaks = true;
        let mut deadline = None;
        loop {
            tokio::select! {
                status = process.wait() => return status,
                message = self.receive(), if speaks => match message {
                    Ok(Some(message)) => self.hear(message),
                    Ok(None) => speaks = false,
                    Err(error) => {
                        tracing::debug!(%error, worker = self.serial, "a worker's socket");
                        speaks = false;
                    }
                },
                () = self.asked_more.notified() => match self.was_asked() {
                    Asked::Nothing => {}
                    Asked::ToEnd => {
                        self.say_farewell();
                        // The worker takes the end of its channel as the word to leave.
                        let both = rustix::net::Shutdown::Both;
                        let _ = rustix::net::shutdown(&self.channel, both);
                        speaks = false;
                        deadline.get_or_insert(tokio::time::Instant::now() + LEAVE_WITHIN);
                    }
                    Asked::ToDie => process.kill(),
                },
                () = until(deadline) => {
                    tracing::warn!(worker = self.serial, "a worker does not leave, it is killed");
                    process.kill();
                    deadline = None;
                }
            }
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
            // It was told that there is no cache.
            (_, None) => {}
        }
    }

    async fn receive(&self) -> io::Result<Option<ToSupervisor>> {
        loop {
            self.channel.readable().await?;
            let received = self.channel.try_io(Interest::READABLE, || {
                handover::receive_in_supervisor(&self.channel)
            });
            match received {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                received => return received,
            }
        }
    }
}

async fn until(deadline: Option<tokio::time::Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
