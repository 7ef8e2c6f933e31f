//! The connection service: sockets from the supervisor, greeting and proof, carriers.
//!
//! Threads of a worker: `sockets` reads the supervisor's messages. A short-lived `proof` thread serves
//! each new connection. `session` loads OpenCL, then reads and applies commands. `events` writes what a
//! slow client left over. `heartbeat` sends heartbeats and never calls a driver. The main thread waits for
//! the first reason to end.
//!
//! This module knows no commands. Invariant: no byte of a connection reaches the session before the peer
//! has proved the session's secret, or the link's for another worker's connection.
#![forbid(unsafe_code)]

pub mod batch;
mod direct;
mod direct_events;
mod ending;
mod grpc;
mod grpc_service;
mod heartbeat;
mod peer;
mod proof;
mod sockets;
mod stage;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use super::confine;
use super::connection::{Connection, SessionStart};
use super::session::{Preloaded, Session};
use crate::build_cache::Client;
use crate::handover::{self, ToSupervisor};
use crate::sys;
use causeway_serving::logging::Logging;
use ending::{Ended, Ending, Endings};
use stage::Stage;

/// Time limit for the session to stop its transfers and links.
const TIDY_UP: Duration = Duration::from_secs(1);

/// Time limit for the end of a session whose client has left, which also stores its builds in the cache.
/// The worker still ends before the supervisor kills it.
const STORE_WITHIN: Duration = Duration::from_secs(2);

/// Time for the client to read why its session ends.
const CLOSE_REASON_LIMIT: Duration = Duration::from_millis(500);

/// Runs a worker; the entry point of its process.
#[must_use]
pub fn main() -> ExitCode {
    Logging::inherited().start();
    end_on_panic();
    let begin = || -> Result<OwnedFd, confine::NotConfined> {
        // The probing worker has already reported what the kernel lacks.
        confine::confine()?;
        Ok(confine::take_channel()?)
    };
    match begin() {
        Ok(channel) => serve(channel),
        Err(error) => {
            tracing::error!(%error, "the worker cannot start");
            ExitCode::FAILURE
        }
    }
}

/// Serves the session that the supervisor will assign over `channel`. Returns only if threads
/// cannot be started.
fn serve(channel: OwnedFd) -> ExitCode {
    let (endings, ended) = Endings::new();
    let stage = match channel.try_clone() {
        Ok(to_supervisor) => Arc::new(Stage::new(endings.clone(), to_supervisor)),
        Err(error) => {
            tracing::error!(%error, "the worker cannot start");
            return ExitCode::FAILURE;
        }
    };
    let (commands, arrivals) = mpsc::channel();
    let started = start_threads(channel, &stage, commands, arrivals, &endings);
    if let Err(error) = started {
        tracing::error!(%error, "the worker cannot start its threads; check the limits on threads and memory");
        return ExitCode::FAILURE;
    }
    let ending = ended.wait();
    // In all other cases the channel to the supervisor is closed, or the session cannot be relied on.
    let store_within = match ending {
        Ending::ClientClosed | Ending::ClientLost { .. } => STORE_WITHIN,
        _ => Duration::ZERO,
    };
    ending.log(stage.id().is_some());
    if let Some(account) = stage.account() {
        account.note_ending(ending.cause());
    }
    if let Some(session) = stage.session_now() {
        if let Ending::ToldToEnd(reason) = &ending {
            session.send_close_reason(reason);
            // A client that has read the reason closes its connections. If this end closed first, with
            // unread bytes of the client, the reason might be lost on its way.
            ended.wait_for_another(CLOSE_REASON_LIMIT);
        }
        tidy_up(session, store_within, &ended);
    }
    sys::exit_now(ending.exit_code())
}

fn start_threads(
    channel: OwnedFd,
    stage: &Arc<Stage>,
    commands: mpsc::Sender<Connection>,
    arrivals: mpsc::Receiver<Connection>,
    endings: &Endings,
) -> io::Result<()> {
    let ready = channel.try_clone()?;
    let builds = Arc::new(Client::new(channel.try_clone()?));
    let (for_sockets, for_session) = (Arc::clone(stage), Arc::clone(stage));
    let endings = endings.clone();
    let answered = Arc::clone(&builds);
    named("sockets", move || {
        sockets::receive(&channel, &for_sockets, &commands, &answered);
    })?;
    named("session", move || {
        let ending = run_session(ready.as_fd(), &for_session, &arrivals, &endings, builds);
        endings.end(ending);
    })
}

/// The body of the `session` thread: loads OpenCL, waits for the command connection and carries its
/// commands to the session.
fn run_session(
    ready: impl AsFd,
    stage: &Stage,
    arrivals: &mpsc::Receiver<Connection>,
    endings: &Endings,
    builds: Arc<Client>,
) -> Ending {
    let node = Preloaded::load();
    if handover::send_to_supervisor(ready, &ToSupervisor::Ready).is_err() {
        return Ending::SupervisorGone;
    }
    // The channel is closed because the supervisor is gone, which another thread reports.
    let Ok(connection) = arrivals.recv() else {
        return Ending::SupervisorGone;
    };
    let (Some(assignment), Some(account)) = (stage.assignment(), stage.account()) else {
        return Ending::SupervisorGone;
    };
    let start = SessionStart {
        id: assignment.id,
        limits: assignment.limits,
        leased: assignment.leased.clone(),
        account,
        builds: Some(builds),
    };
    let begin = |events| stage.begin(|| Session::start(start, node, events));
    match connection {
        Connection::Commands(socket) => direct::carry(socket, endings, begin),
        Connection::CommandsGrpc(socket) => grpc::carry(socket, endings, begin),
        // The `sockets` thread sends only command connections here.
        other @ (Connection::Bulk { .. } | Connection::Heartbeat(_)) => Ending::Broken(format!(
            "the worker got {other:?} instead of a command connection"
        )),
    }
}

/// Lets the session stop its transfers and links, and store its builds. Does not wait for a driver that does
/// not return, and no longer than the supervisor wants the session.
fn tidy_up(session: Arc<Session>, store_within: Duration, ended: &Ended) {
    let (done, wait) = mpsc::channel();
    let started = named("tidy-up", move || {
        session.end(store_within);
        let _ = done.send(());
    });
    if started.is_ok() {
        ended.wait_for(&wait, TIDY_UP.max(store_within));
    }
}

fn named(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(body)
        .map(drop)
}

/// Ends the process on any panic, because a worker has one session and needs all of its threads.
fn end_on_panic() {
    std::panic::set_hook(Box::new(|panic| {
        tracing::error!(%panic, thread = thread::current().name(), "the worker panicked; please report this bug");
        sys::exit_now(101);
    }));
}
