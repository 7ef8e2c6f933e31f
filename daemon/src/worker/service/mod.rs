//! The connection service: sockets from the supervisor, greeting and proof, carriers.
//!
//! Threads of a worker: `load` loads OpenCL. `warm` makes contexts before a session asks for them, and releases
//! those that it does not take. `sockets` reads the supervisor's messages. A short-lived `proof` thread serves each
//! new connection. `session` reads and applies commands. `events` writes what a slow client left over. `heartbeat`
//! sends heartbeats and never calls a driver. While the client of a session that outlives its connections is away, `away`
//! waits for it. The main thread waits for the first reason to end. In a [`host`], each session has these threads, but `load` and `warm`.
//!
//! This module knows no commands. Invariant: no byte of a connection reaches the session before the peer
//! has proved the session's secret, or the link's for another worker's connection.
#![forbid(unsafe_code)]

pub mod acknowledgements;
pub mod batch;
mod carrier;
mod direct;
mod direct_events;
mod ending;
mod grpc;
mod grpc_service;
mod heartbeat;
mod host;
mod parking;
mod peer;
mod presence;
pub(in crate::worker) mod proof;
mod sockets;
mod stage;
pub mod window;

use std::io;
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::confine;
use super::connection::{SessionStart, Source};
use super::session::neighbours::Commons;
use super::session::{Preloaded, Session, Warm};
use super::threads::{self, Scope};
use crate::build_cache::Client;
use crate::handover::{self, Restores, ToSupervisor};
use crate::sys;
use causeway_proto::id::{DeviceIndex, PlatformIndex};
use causeway_serving::logging::{Logging, Name};
use ending::{Ending, EndingReceiver, Endings};
use host::Room;
use stage::{Commands, Stage};

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
    // The probing worker has already reported what the kernel lacks.
    match confine::begin("the worker") {
        Some((channel, _)) => serve(channel),
        None => ExitCode::FAILURE,
    }
}

/// Serves the session that the supervisor assigns over `channel`, or the sessions if it makes this worker a
/// host. Returns only if threads cannot be started.
fn serve(channel: OwnedFd) -> ExitCode {
    match serve_first(channel) {
        Ok(code) => sys::exit_now(code),
        Err(error) => {
            tracing::error!(%error, "the worker cannot start its threads; check the limits on threads and memory");
            ExitCode::FAILURE
        }
    }
}

/// Serves one session, with which the process ends. A spare worker has its threads before it has a session. If
/// the first message makes it a host, these threads end. Returns the exit code.
fn serve_first(channel: OwnedFd) -> io::Result<i32> {
    let loading = Loading::start(&channel)?;
    let of_host = channel.try_clone()?;
    let (threads, endings) = (Threads::default(), Endings::new());
    let running = RunningSession::start(channel, Arc::clone(&loading), threads, endings)?;
    let ending = running.ended.wait();
    if let Ending::IsHost { clears } = ending {
        running.stage.close();
        drop(running);
        return host::serve(&of_host, &loading, clears);
    }
    let (ending, store_within) = running.finish(ending);
    if let Some(session) = running.stage.session_now() {
        tidy_up(session, store_within, &running.ended);
    }
    Ok(ending.exit_code())
}

/// The node's OpenCL, which a thread loads.
#[derive(Default)]
struct Loading {
    node: Mutex<Option<Preloaded>>,
    loaded: Condvar,
    /// The contexts that are made before a session asks for them.
    warm: Arc<Warm>,
}

impl Loading {
    /// Starts the thread. Tells the supervisor when it is done.
    fn start(channel: &OwnedFd) -> io::Result<Arc<Loading>> {
        let (loading, channel) = (Arc::new(Loading::default()), channel.try_clone()?);
        let own = Arc::clone(&loading);
        named("load", move || {
            let node = Preloaded::load();
            // If the supervisor is gone, another thread notices.
            let _ = handover::send_to_supervisor(&channel, &ToSupervisor::Ready);
            *own.node.lock() = Some(node);
            own.loaded.notify_all();
        })?;
        Ok(loading)
    }

    /// Starts the thread that makes contexts before a session asks for them, and releases those that it has not
    /// taken. Tells the supervisor how many there are.
    fn make_warm(
        self: &Arc<Loading>,
        channel: &OwnedFd,
        devices: Vec<(PlatformIndex, DeviceIndex)>,
    ) {
        let loading = Arc::clone(self);
        let started = channel.try_clone().and_then(|channel| {
            named("warm", move || {
                let Some(node) = loading.wait(|| false) else {
                    return;
                };
                let contexts = node.warm(&loading.warm, &devices);
                let tell = |contexts| {
                    // If the supervisor is gone, another thread notices.
                    let _ =
                        handover::send_to_supervisor(&channel, &ToSupervisor::Warmed { contexts });
                };
                tell(contexts);
                loading.warm.release_rest();
                tell(0);
            })
        });
        if let Err(error) = started {
            tracing::warn!(%error, "no contexts can be made ready for [sessions] warm; sessions make their own");
        }
    }

    /// Waits until the node's OpenCL is loaded. The session has a deadline for that. Returns `None` if `is_over`
    /// says that the session has ended meanwhile.
    fn wait(&self, is_over: impl Fn() -> bool) -> Option<Preloaded> {
        let mut node = self.node.lock();
        loop {
            match &*node {
                _ if is_over() => return None,
                Some(node) => return Some(node.clone()),
                None => self.loaded.wait(&mut node),
            }
        }
    }

    /// Has the sessions that wait see whether they have ended.
    fn look_again(&self) {
        // Locked, so that no session is between its look and its wait.
        let _node = self.node.lock();
        self.loaded.notify_all();
    }
}

/// Whose the threads of a session are, and the room that it has in its process.
#[derive(Clone, Default)]
struct Threads {
    /// The threads of the connection service, which end before the session is released.
    service: Scope,
    /// The threads of the session.
    session: Scope,
    /// In a host: what the session shares with its neighbours, and its room there.
    host: Option<(Arc<Commons>, Arc<Room>)>,
}

impl Threads {
    fn name_in_log(&self, names: Vec<Name>) {
        if self.session.is_hosted() {
            self.session.name_in_log(names.clone());
        }
        self.service.name_in_log(names);
    }

    fn limit_memory(&self, bytes: u64) -> io::Result<()> {
        match &self.host {
            None => causeway_confine::limit_memory(bytes),
            Some((_, room)) => room.limit_memory(bytes),
        }
    }
}

/// A session whose threads run.
struct RunningSession {
    stage: Arc<Stage>,
    ended: EndingReceiver,
}

impl RunningSession {
    /// Starts the threads that serve a session over its channel.
    fn start(
        channel: OwnedFd,
        loading: Arc<Loading>,
        threads: Threads,
        (endings, ended): (Endings, EndingReceiver),
    ) -> io::Result<RunningSession> {
        let (commands, arrivals) = mpsc::channel();
        let service = threads.service.clone();
        let stage = Stage::new(
            endings.clone(),
            channel.try_clone()?,
            commands,
            service.clone(),
        );
        let stage = Arc::new(stage);
        let builds = Arc::new(Client::new(channel.try_clone()?));
        let (for_sockets, for_session) = (Arc::clone(&stage), Arc::clone(&stage));
        let (answered, warmed) = (Arc::clone(&builds), Arc::clone(&loading));
        let of_sockets = threads.clone();
        // In a host, this thread outlives the others of the session, which may still wait for its messages.
        named("sockets", move || {
            of_sockets.service.clone().enter(move || {
                sockets::receive(&channel, &for_sockets, &of_sockets, &warmed, &answered);
            });
        })?;
        service.try_spawn("session", move || {
            let ending = run_session(&for_session, &arrivals, &loading, &threads, builds);
            for_session.endings.end(ending);
        })?;
        Ok(RunningSession { stage, ended })
    }

    /// Handles that the session ends, and tells its client the reason. Returns how it ends, and how long its
    /// builds may take to be stored.
    fn finish(&self, ending: Ending) -> (Ending, Duration) {
        self.stage.scope.name_thread();
        // In all other cases the channel to the supervisor is closed, or the session cannot be relied on.
        let store_within = match ending {
            Ending::ClientClosed
            | Ending::Farewell
            | Ending::ClientLost { .. }
            | Ending::NotBack { .. } => STORE_WITHIN,
            _ => Duration::ZERO,
        };
        ending.log(self.stage.id().is_some());
        if self.stage.resumes() && !self.stage.is_parked() {
            if let Ending::Broken(_) = ending
                && self.stage.scope.is_hosted()
                && self.stage.assignment().is_some_and(|of| of.reexecutes)
            {
                self.stage.leave_host();
            }
            self.stage.leaves(&ending.to_string());
        }
        if let Some(account) = self.stage.account() {
            account.note_ending(ending.cause());
        }
        if let Some(session) = self.stage.session_now()
            && let Ending::ToldToEnd(reason) = &ending
            // A client that is away asks the supervisor.
            && !self.stage.is_away()
        {
            session.send_close_reason(reason);
            // A client that has read the reason closes its connections. If this end closed first, with
            // unread bytes of the client, the reason might be lost on its way.
            self.ended
                .wait_until_left(|| self.stage.is_away(), CLOSE_REASON_LIMIT);
        }
        (ending, store_within)
    }
}

/// The body of the `session` thread: waits for OpenCL and the command connection, and carries its commands to
/// the session.
fn run_session(
    stage: &Arc<Stage>,
    arrivals: &mpsc::Receiver<Commands>,
    loading: &Loading,
    threads: &Threads,
    builds: Arc<Client>,
) -> Ending {
    let Some(node) = loading.wait(|| stage.is_closed()) else {
        return Ending::SupervisorGone;
    };
    // The channel is closed because the session has ended, which another thread reports.
    let Ok(mut first) = arrivals.recv() else {
        return Ending::SupervisorGone;
    };
    let (Some(assignment), Some(account)) = (stage.assignment(), stage.account()) else {
        return Ending::SupervisorGone;
    };
    threads.service.name_thread();
    let start = SessionStart {
        resume: assignment.away.resume,
        reexecutes: assignment.reexecutes,
        most_contents: assignment.checkpoint_bytes,
        restores: restores(stage, assignment.restores),
        id: assignment.id,
        limits: assignment.limits,
        leased: assignment.leased.clone(),
        account,
        builds: Some(builds),
        scope: threads.session.clone(),
        commons: threads
            .host
            .as_ref()
            .map(|(commons, _)| Arc::clone(commons)),
        warm: Arc::clone(&loading.warm),
    };
    let begin = |events| stage.begin(|| Session::start(start, node, events));
    // The client may have come back before OpenCL was loaded. The carrier has to come first for later ones.
    if let Some(last) = arrivals.try_iter().last() {
        first = last;
    }
    let scope = &threads.service;
    match first.is_grpc {
        false => direct::carry(first.arrived, stage, arrivals, scope, begin),
        true => grpc::carry(first.arrived, stage, arrivals, scope, begin),
    }
}

// What a session is put together from that another worker had before.
fn restores(stage: &Stage, restores: Option<Restores>) -> Option<(Restores, Source)> {
    let contents = stage.take_contents().map(Source::Files);
    let nothing = || restores.filter(|of| of.reexecutes).map(|_| Source::Nothing);
    restores.zip(contents.or_else(nothing))
}

/// Lets the session stop its transfers and links, and store its builds. Does not wait for a driver that does
/// not return, and no longer than the supervisor wants the session.
fn tidy_up(session: Arc<Session>, store_within: Duration, ended: &EndingReceiver) {
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

/// Ends the process on a panic, because its session needs all of its threads. In a host, a panic on a thread of
/// a session ends that session.
fn end_on_panic() {
    std::panic::set_hook(Box::new(|panic| {
        if threads::confines_panics() {
            tracing::error!(%panic, thread = thread::current().name(),
                "a session in a host panicked, and ends; please report this bug");
            return;
        }
        tracing::error!(%panic, thread = thread::current().name(), "the worker panicked; please report this bug");
        sys::exit_now(101);
    }));
}
