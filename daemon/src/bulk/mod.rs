//! Bulk bytes between sockets and devices.
//!
//! The path of a large write: the session says that the command may run; the region is mapped, or
//! chunks of a pinned ring are given to it ([`direct`], [`staged`]); when bytes can be taken the client
//! is granted credit; a [`lane`] receives each piece straight into its place; the last piece enqueued,
//! the session lets the queue's successors go; the driver's callback ends the command. A large read is
//! the same backwards, without credit: the application's memory is there from the start.
//!
//! - [`lane`]: one connection, two threads; [`outgoing`]: the one queue that all lanes send from;
//! - [`direct`], [`staged`]: the two ways through memory; [`memory`]: the raw bytes;
//! - [`claims`], [`blocks`]: pure accounts and shapes.
//!
//! The bulk thread makes the driver calls that come up where none may be made (a callback) or that
//! block (allocating a ring).
//!
//! What it is not: it knows no frame and no command but the transfers'. Invariant: what a client was
//! granted can always be taken off the wire, so no transfer blocks another.

mod blocks;
mod claims;
mod direct;
mod lane;
mod memory;
mod outgoing;
mod staged;

use std::collections::{HashMap, VecDeque};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;

use causeway_proto::id::{EventId, LinkId};
use causeway_proto::region::Region;
use causeway_proto::status::Status;
use parking_lot::{Condvar, Mutex};

use self::lane::LaneError;
use self::outgoing::Outgoing;
pub(crate) use self::staged::Rings;
use crate::runtime::event::WaitList;
use crate::worker::session::command::Command;
use crate::worker::session::enqueue::Task;
use crate::worker::session::hash::ById;
use crate::worker::session::objects::{Memory, Queue};
use crate::worker::session::run::Runner;
use crate::worker::session::{Shared, spawn};

/// A transfer whose bytes come from the client.
trait Incoming: Send + Sync {
    /// Takes `length` bytes off the socket, which belong at packed offset `offset`.
    fn receive(
        &self,
        socket: &TcpStream,
        offset: u64,
        length: u32,
        scratch: &mut Vec<u8>,
    ) -> Result<(), LaneError>;

    /// The client will send no more.
    fn cancelled(&self);
}

type Job = Box<dyn FnOnce(&Arc<Shared>) + Send>;

/// The bulk transfers of a session.
#[derive(Default)]
pub(crate) struct Engine {
    outgoing: Outgoing,
    incoming: Mutex<HashMap<EventId, Arc<dyn Incoming>, ById>>,
    jobs: Mutex<Jobs>,
    wake: Condvar,
    lanes: Mutex<Vec<TcpStream>>,
}

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Job>,
    started: bool,
}

/// Starts a bulk write that may run.
///
/// # Errors
/// What the driver says; the transfer then has not begun.
pub(crate) fn write(
    shared: &Arc<Shared>,
    task: &Task,
    memory: &Arc<Memory>,
    region: Region,
    waits: &WaitList<'_>,
) -> Result<(), Status> {
    if task.queue.native()?.device().has_direct_memory() {
        return direct::write(shared, task, memory, region, waits);
    }
    staged::write(shared, task, memory, region);
    Ok(())
}

/// Starts a bulk read that may run.
///
/// # Errors
/// As [`write()`].
pub(crate) fn read(
    shared: &Arc<Shared>,
    task: &Task,
    memory: &Arc<Memory>,
    region: Region,
    waits: &WaitList<'_>,
) -> Result<(), Status> {
    if task.queue.native()?.device().has_direct_memory() {
        return direct::read(shared, task, memory, region, waits);
    }
    staged::read(shared, task, memory, region);
    Ok(())
}

impl Engine {
    /// Takes a connection.
    pub(crate) fn attach(&self, shared: &Arc<Shared>, lane: u8, socket: TcpStream) {
        match socket.try_clone() {
            Ok(handle) => self.lanes.lock().push(handle),
            Err(error) => {
                tracing::warn!(lane, %error, "a bulk connection cannot be served");
                return;
            }
        }
        lane::start(shared, lane, socket);
    }

    /// Takes a lane of a link that has come up.
    pub(crate) fn attach_peer(
        &self,
        _shared: &Arc<Shared>,
        link: LinkId,
        incarnation: u64,
        lane: u8,
        socket: TcpStream,
    ) {
        tracing::debug!(?link, incarnation, lane, "a lane that nothing uses");
        self.lanes.lock().push(socket);
    }

    /// A link that was up is not any more.
    pub(crate) fn link_failed(&self, _shared: &Arc<Shared>, link: LinkId, reason: &str) {
        tracing::debug!(?link, reason, "nothing used it");
    }

    /// What belongs to the link goes over the client's connections.
    pub(crate) fn route_via_client(&self, _shared: &Arc<Shared>, link: LinkId) {
        tracing::debug!(?link, "nothing to route");
    }

    /// A command that will not run: if the client holds bytes for it, they are not wanted.
    pub(crate) fn give_up(&self, task: &Task) {
        if task.expects_bytes {
            self.outgoing.cancel(task.command.id());
        }
    }

    /// Ends all lanes.
    pub(crate) fn stop(&self) {
        self.outgoing.stop();
        for socket in self.lanes.lock().drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    fn outgoing(&self) -> &Outgoing {
        &self.outgoing
    }

    fn incoming(&self, transfer: EventId) -> Option<Arc<dyn Incoming>> {
        self.incoming.lock().get(&transfer).map(Arc::clone)
    }

    fn expect(&self, transfer: EventId, incoming: Arc<dyn Incoming>) {
        self.incoming.lock().insert(transfer, incoming);
    }

    fn forget(&self, transfer: EventId) {
        let gone = self.incoming.lock().remove(&transfer);
        drop(gone);
    }

    /// Has the bulk thread do something that enters the driver.
    fn later(&self, shared: &Arc<Shared>, work: impl FnOnce(&Arc<Shared>) + Send + 'static) {
        let mut jobs = self.jobs.lock();
        jobs.waiting.push_back(Box::new(work));
        if !std::mem::replace(&mut jobs.started, true) {
            let shared = Arc::clone(shared);
            spawn("bulk", move || shared.bulk.serve(&shared));
        }
        drop(jobs);
        self.wake.notify_one();
    }

    fn serve(&self, shared: &Arc<Shared>) {
        let mut jobs = self.jobs.lock();
        loop {
            match jobs.waiting.pop_front() {
                Some(job) => {
                    drop(jobs);
                    job(shared);
                    jobs = self.jobs.lock();
                }
                None => self.wake.wait(&mut jobs),
            }
        }
    }
}

/// What every transfer holds.
struct Transfer {
    shared: Arc<Shared>,
    command: Arc<Command>,
    queue: Arc<Queue>,
    memory: Arc<Memory>,
    region: Region,
    waits: Vec<Arc<Command>>,
    expects_bytes: bool,
}

impl Transfer {
    fn new(shared: &Arc<Shared>, task: &Task, memory: &Arc<Memory>, region: Region) -> Transfer {
        Transfer {
            shared: Arc::clone(shared),
            command: Arc::clone(&task.command),
            queue: Arc::clone(&task.queue),
            memory: Arc::clone(memory),
            region,
            waits: task.waits.clone(),
            expects_bytes: task.expects_bytes,
        }
    }

    fn id(&self) -> EventId {
        self.command.id()
    }

    /// The transfer ends early: tells the client, and lets the queue's successors go. Enters the driver.
    fn fail(&self, status: Status) {
        fail(&self.shared, &self.command, self.expects_bytes, status);
    }

    /// The same from where the driver must not be entered.
    fn fail_later(&self, status: Status) {
        let (command, expects_bytes) = (Arc::clone(&self.command), self.expects_bytes);
        self.shared.bulk.later(&self.shared, move |shared| {
            fail(shared, &command, expects_bytes, status);
        });
    }
}

fn fail(shared: &Arc<Shared>, command: &Arc<Command>, expects_bytes: bool, status: Status) {
    shared.bulk.forget(command.id());
    if expects_bytes {
        shared.bulk.outgoing.cancel(command.id());
    }
    command.finish(status, String::new());
    Runner::new(shared).failed(command);
}
