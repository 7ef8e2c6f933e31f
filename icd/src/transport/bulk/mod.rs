//! Bulk transfers: raw bytes between the application's memory and the worker.
//!
//! A session opens its lanes (connections) with its first bulk transfer, on a thread of their own, so
//! that no enqueue waits for them. Each lane has a reader and a writer. Writers pull chunks from one
//! shared table, up to the credit that the worker has granted; readers put what arrives into the
//! application's memory at once. No byte is copied on the way, but for rows too short to be worth a
//! system call's description.

mod lane;
pub mod memory;
mod table;

use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use causeway_proto::command::Completion;
use causeway_proto::id::EventId;
use parking_lot::{Condvar, Mutex, MutexGuard};

use self::memory::HostRegion;
use self::table::{Keep, Table};
use super::core::Core;
use super::gauge::Gauge;
use super::socket::Door;

/// How long a lane may need to leave the application's memory once its socket is shut: it only has to
/// return from a system call that the shutting ends.
const LEAVE_LIMIT: Duration = Duration::from_secs(5);

/// The bulk side of a session.
pub(super) struct Bulk {
    door: Door,
    lane_count: u32,
    gauge: Arc<Gauge>,
    state: Mutex<State>,
    work: Condvar,
    quiet: Condvar,
}

#[derive(Default)]
struct State {
    table: Table,
    opened: bool,
    lanes: Vec<Arc<TcpStream>>,
}

impl Bulk {
    pub(super) fn new(door: Door, lane_count: u32, gauge: Arc<Gauge>) -> Bulk {
        Bulk {
            door,
            gauge,
            lane_count: lane_count.clamp(1, causeway_proto::limits::MAX_BULK_CONNECTIONS),
            state: Mutex::default(),
            work: Condvar::new(),
            quiet: Condvar::new(),
        }
    }

    /// Registers an upload. False when the session is over.
    pub(super) fn upload(
        &self,
        core: &Arc<Core>,
        event: EventId,
        source: HostRegion,
        keep: Keep,
    ) -> bool {
        let mut state = self.state.lock();
        let added = state.table.add_upload(event, source, keep);
        let first = added && !std::mem::replace(&mut state.opened, true);
        drop(state);
        if first {
            lane::open_all(core);
        }
        added
    }

    /// Registers a download. False when the session is over.
    pub(super) fn download(&self, core: &Arc<Core>, event: EventId, target: HostRegion) -> bool {
        let mut state = self.state.lock();
        let added = state.table.add_download(event, target);
        let first = added && !std::mem::replace(&mut state.opened, true);
        drop(state);
        if first {
            lane::open_all(core);
        }
        added
    }

    /// Forgets a transfer whose command was not sent after all. Sending may have failed behind part of
    /// it; then a lane may be in its memory, and this waits until it has left. Short: only a session
    /// that has failed fails so, and that shuts the lanes' sockets.
    pub(super) fn withdraw(&self, event: EventId) {
        let mut state = self.state.lock();
        let (inside, keep) = state.table.withdraw(event);
        if inside {
            self.wait_while_touched(&mut state);
        }
        drop(state);
        // Letting go may send: not under the lock.
        drop(keep);
    }

    /// A completion has come: gives it back if the application may hear of it now.
    pub(super) fn completed(&self, event: EventId, completion: Completion) -> Option<Completion> {
        let outcome = {
            let mut state = self.state.lock();
            if !state.opened {
                return Some(completion);
            }
            state.table.handle_completion(event, completion)
        };
        outcome.completion
    }

    /// Shuts the lanes; nothing begins any more. May be called again.
    pub(super) fn shut_down(&self) {
        let mut state = self.state.lock();
        state.table.close();
        for lane in &state.lanes {
            let _ = lane.shutdown(Shutdown::Both);
        }
        self.work.notify_all();
    }

    /// After [`Bulk::shut_down`]: waits until no lane is in the application's memory.
    pub(super) fn wait_until_quiet(&self) {
        self.wait_while_touched(&mut self.state.lock());
    }

    fn wait_while_touched(&self, state: &mut MutexGuard<'_, State>) {
        let touched = |state: &mut State| !state.table.is_quiet();
        if self
            .quiet
            .wait_while_for(state, touched, LEAVE_LIMIT)
            .timed_out()
        {
            tracing::error!(
                address = self.door.address,
                "a bulk lane does not leave the application's memory"
            );
        }
    }
}
