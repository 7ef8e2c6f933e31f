//! A host: a worker that serves several sessions of one domain over common native contexts.
//!
//! Each session has a channel of its own to the supervisor, on which everything is as in a worker of its own. The
//! host's channel brings the sessions, and its end is the end of the host. A thread for each session waits
//! for the session's end, releases everything that the session has made, and then closes its channel.
//!
//! Invariant: when a session's channel is closed, nothing of the session is left in the process, except that a thread of
//! `runtime/finisher.rs` may be about to release a queue without commands. If a driver does not let go, the channel
//! stays open, and the supervisor ends the host.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::net::{Shutdown, shutdown};

use super::ending::{Ending, EndingReceiver, Endings};
use super::stage::Stage;
use super::{Loading, RunningSession, Threads, named};
use crate::handover::{self, ToSupervisor, ToWorker};
use crate::worker::confine;
use crate::worker::session::Standing;
use crate::worker::session::neighbours::{self, Commons};
use crate::worker::threads::{Over, Scope};

/// How often a session that ends reports that it waits for a neighbour. The supervisor allows several times that.
const REPORT_EVERY: Duration = Duration::from_millis(500);

/// The process's own memory, which the sessions of a host share.
#[derive(Default)]
pub(super) struct Room(Mutex<RoomState>);

#[derive(Default)]
struct RoomState {
    /// The sum of the sessions' limits, and the highest sum so far.
    sum: u64,
    most: u64,
}

impl Room {
    /// Adds a session's limit to that of the process; 0 means no limit.
    pub(super) fn limit_memory(&self, bytes: u64) -> io::Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let mut state = self.0.lock();
        state.sum = state.sum.saturating_add(bytes);
        // Never lowered: the C library keeps memory that a session has freed, and a limit below that would make
        // allocations of the neighbours fail.
        if state.sum <= state.most {
            return Ok(());
        }
        confine::limit_host_memory(state.sum).inspect_err(|_| state.sum -= bytes)?;
        state.most = state.sum;
        Ok(())
    }

    /// Subtracts the limit of a session that has ended.
    fn give_back(&self, bytes: u64) {
        let mut state = self.0.lock();
        state.sum = state.sum.saturating_sub(bytes);
    }
}

/// Serves the sessions that the supervisor passes over `channel`, until it closes the channel. Returns the exit
/// code of the process. `clears` is for [`neighbours::commons`].
pub(super) fn serve(channel: &OwnedFd, loading: &Arc<Loading>, clears: bool) -> io::Result<i32> {
    let commons = neighbours::commons(clears, &loading.warm)?;
    // A session has some twenty descriptors, and the system's usual limit is meant for one program.
    confine::raise_descriptor_limit();
    let room = Arc::new(Room::default());
    tracing::debug!("the worker is a host now");
    loop {
        match handover::receive_in_worker(channel) {
            Ok(Some(ToWorker::Session {
                channel: Some(channel),
            })) => {
                let (loading, commons) = (Arc::clone(loading), Arc::clone(&commons));
                let room = Arc::clone(&room);
                let started = named("host-session", move || {
                    if let Err(error) = session(channel, loading, commons, &room) {
                        refused(&error);
                    }
                });
                if let Err(error) = started {
                    refused(&error);
                }
            }
            Ok(Some(ToWorker::Session { channel: None })) => {
                refused(&rustix::io::Errno::MFILE.into());
            }
            Ok(None) => return Ok(0),
            Ok(Some(other)) => {
                tracing::error!(?other, "a host got a message that is for sessions");
                return Ok(1);
            }
            Err(error) => {
                tracing::error!(%error, "the supervisor's socket failed");
                return Ok(1);
            }
        }
    }
}

/// Logs that the host cannot serve a session, of which nothing exists yet. The supervisor sees that the session's
/// channel is closed before a client has come.
fn refused(error: &io::Error) {
    tracing::error!(%error, "a host cannot serve a further session; check the limits on threads and descriptors");
}

/// Serves one session until nothing of it is left.
fn session(
    channel: OwnedFd,
    loading: Arc<Loading>,
    commons: Arc<Commons>,
    room: &Arc<Room>,
) -> io::Result<()> {
    // Before anything of the session exists, because this needs a descriptor.
    let last = channel.try_clone()?;
    let (endings, ended) = Endings::new();
    let scope = || {
        let endings = endings.clone();
        Scope::hosted(move |what| endings.end(Ending::Broken(what)))
    };
    let threads = Threads {
        service: scope(),
        session: scope(),
        host: Some((commons, Arc::clone(room))),
    };
    let service = threads.service.clone();
    let running = RunningSession::start(channel, Arc::clone(&loading), threads, (endings, ended));
    let ended = running.map(|running| end(running, &service, room, &loading, &last));
    // If the supervisor is gone, the host ends anyway.
    let _ = handover::send_to_supervisor(&last, &ToSupervisor::Released);
    // The thread that reads the channel ends.
    let _ = shutdown(&last, Shutdown::Both);
    ended
}

/// Waits for the end of a session, and releases everything that it has made.
fn end(
    running: RunningSession,
    service: &Scope,
    room: &Room,
    loading: &Loading,
    channel: &OwnedFd,
) {
    let (_, store_within) = running.finish(running.ended.wait());
    let RunningSession { stage, ended } = running;
    drop::<EndingReceiver>(ended);
    stage.close();
    // The threads of the connection service may wait for any of these.
    loading.look_again();
    let standing = stage.session_now().and_then(|session| {
        session.leave();
        session.standing()
    });
    let is_released = Over::default();
    thread::scope(|scope| {
        if let Some(standing) = standing {
            let reporting = thread::Builder::new().name("waiting".to_owned());
            let is_released = &is_released;
            let report = move || report_waiting(&standing, channel, is_released);
            if let Err(error) = reporting.spawn_scoped(scope, report) {
                tracing::warn!(%error, "the supervisor is not told that a session waits for a neighbour");
            }
        }
        release(&stage, service, room, store_within);
        is_released.set();
    });
}

/// Reports to the supervisor, again and again, that the session may wait for a command of a neighbour, which may take
/// any time, or for other work beside it, for which the time is limited. Ends when the session is released.
fn report_waiting(standing: &Standing, channel: &OwnedFd, is_released: &Over) {
    loop {
        let report = if standing.is_behind_a_neighbour() {
            Some(ToSupervisor::Waiting)
        } else if standing.is_beside_work() {
            Some(ToSupervisor::Building)
        } else {
            None
        };
        if let Some(report) = report {
            // If the supervisor is gone, the host ends anyway.
            let _ = handover::send_to_supervisor(channel, &report);
        }
        if is_released.pause(REPORT_EVERY) {
            return;
        }
    }
}

/// Releases everything that the session has made.
fn release(stage: &Stage, service: &Scope, room: &Room, store_within: Duration) {
    service.wait_until_alone(None);
    if let Some(assignment) = stage.assignment() {
        room.give_back(assignment.limits.host_memory);
    }
    let mut taken = stage.take_session();
    while let Some(session) = taken {
        taken = match Arc::try_unwrap(session) {
            Ok(session) => {
                session.release(store_within);
                None
            }
            // A thread that has just ended has not let go of the session yet.
            Err(session) => {
                std::thread::yield_now();
                Some(session)
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_grows_with_the_sessions_and_is_used_again() {
        let room = Room::default();
        let most = |room: &Room| room.0.lock().most;
        // Beyond what the machine has, so that the test's own process keeps its room.
        const LIMIT: u64 = 1 << 50;
        room.limit_memory(0).unwrap();
        assert_eq!(most(&room), 0);
        room.limit_memory(LIMIT).unwrap();
        room.limit_memory(LIMIT).unwrap();
        room.give_back(LIMIT);
        room.limit_memory(LIMIT).unwrap();
        assert_eq!(most(&room), 2 * LIMIT);
    }
}
