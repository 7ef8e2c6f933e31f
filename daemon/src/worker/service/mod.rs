//! The connection service: sockets from the supervisor, greeting and proof, carriers.
//!
//! Threads of a worker: `sockets` hears the supervisor; a short-lived `proof` for each new connection;
//! `session` loads OpenCL, then reads commands and applies them; `events` writes what a slow client
//! left over; `pulse` sends heartbeats and never enters a driver. The main thread waits for the first
//! reason to end.
//!
//! What it is not: it knows no command. Invariant: nothing that a socket says reaches the session
//! before the session's secret, or the link's for another worker's connection, was proved on it.
#![forbid(unsafe_code)]

pub mod batch;
mod direct;
mod direct_events;
mod ending;
mod grpc;
mod grpc_service;
mod peer;
mod proof;
mod pulse;
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
use ending::{Ending, Endings};
use stage::Stage;

/// What the session gets to stop what can be stopped.
const TIDY_UP: Duration = Duration::from_millis(500);

/// For the client to hear why its session ends.
const FAREWELL: Duration = Duration::from_millis(500);

/// The process's `main`.
#[must_use]
pub fn main() -> ExitCode {
    Logging::inherited().start();
    end_on_panic();
    let begin = || -> Result<OwnedFd, confine::NotConfined> {
        // What the kernel lacks of it, the probing worker has told.
        confine::confine()?;
        Ok(confine::take_channel()?)
    };
    match begin() {
        Ok(channel) => serve(channel),
        Err(error) => {
            tracing::error!(%error, "a worker cannot start");
            ExitCode::FAILURE
        }
    }
}

/// Serves the session that the supervisor will name over `channel`; returns only if threads fail.
fn serve(channel: OwnedFd) -> ExitCode {
    let (endings, ended) = Endings::new();
    let stage = match channel.try_clone() {
        Ok(to_supervisor) => Arc::new(Stage::new(endings.clone(), to_supervisor)),
        Err(error) => {
            tracing::error!(%error, "a worker cannot start");
            return ExitCode::FAILURE;
        }
    };
    let (commands, arrivals) = mpsc::channel();
    let started = start_threads(channel, &stage, commands, arrivals, &endings);
    if let Err(error) = started {
        tracing::error!(%error, "a worker cannot start its threads");
        return ExitCode::FAILURE;
    }
    let ending = ended.wait();
    ending.log(stage.id().is_some());
    if let Some(account) = stage.account() {
        account.note_ending(ending.cause());
    }
    if let Some(session) = stage.session_now() {
        if let Ending::ToldToEnd(reason) = &ending {
            session.say_farewell(reason);
            // Who has heard it closes his connections. Were ours closed first, with bytes of his unread, it might
            // be lost on its way.
            ended.wait_for_another(FAREWELL);
        }
        tidy_up(session);
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

/// The `session` thread: load, wait for the command connection, carry commands to the session.
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
    // Nobody sends any more: the supervisor is gone, and that is being said.
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
        // `sockets` sends only command connections here.
        other @ (Connection::Bulk { .. } | Connection::Pulse(_)) => {
            Ending::Broken(format!("{other:?} where a command connection belongs"))
        }
    }
}

/// Lets the session stop what it can. A driver that does not return is left behind.
fn tidy_up(session: Arc<Session>) {
    let (done, wait) = mpsc::channel();
    let started = named("tidy-up", move || {
        session.end(TIDY_UP);
        let _ = done.send(());
    });
    if started.is_ok() {
        let _ = wait.recv_timeout(2 * TIDY_UP);
    }
}

fn named(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(body)
        .map(drop)
}

/// A worker has one session and no way to go on without one of its threads.
fn end_on_panic() {
    std::panic::set_hook(Box::new(|panic| {
        tracing::error!(%panic, thread = thread::current().name(), "a worker panicked");
        sys::exit_now(101);
    }));
}
