//! Bulk bytes between sockets and devices.
//!
//! The path of a large write: the session says that the command may run; the region is mapped, or
//! chunks of a pinned ring are given to it ([`direct`], [`staged`]); when bytes can be taken the client
//! is granted credit; a [`lane`] receives each piece straight into its place; the last piece enqueued,
//! the session lets the queue's successors go; the driver's callback ends the command. A large read is
//! the same backwards, without credit: the application's memory is there from the start.
//!
//! A write of one chunk mostly comes without credit and waits for its command in memory of ours ([`eager`]).
//!
//! A transfer between two workers is a read here and a write there: the reader offers it when it may run,
//! the writer grants credit, the bytes go over the link between the two, or over the client's connections
//! when there is no path. The reader's command ends without failure also when the other end or the link
//! gave the transfer up, because its buffer is no longer read; the writer's tells what happened.
//!
//! - [`lane`]: one connection, two threads; [`outlet`]: who sends on it; [`outgoing`]: a queue that several
//!   lanes send from;
//! - [`path`]: which lanes are a link's; [`peers`]: the transfers with other workers and what is said of
//!   them;
//! - [`direct`], [`staged`]: the two ways through memory; [`memory`]: the raw bytes;
//! - [`eager`], [`short`]: writes and reads of one chunk;
//! - [`jobs`]: the bulk thread, and what it is given to do;
//! - [`allowance`], [`claims`], [`blocks`]: pure accounts and shapes.
//!
//! What it is not: it knows no frame and no command but the transfers', and makes no link. Invariant: what
//! the other side was granted can always be taken off the wire, so no transfer blocks another.

mod allowance;
mod blocks;
mod claims;
mod direct;
mod eager;
mod jobs;
mod lane;
mod memory;
mod outgoing;
mod outlet;
mod path;
mod peers;
mod short;
mod staged;
mod transfer;

use std::collections::HashMap;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

use bytes::Bytes;
use causeway_lane::{Beside, Stream};
use causeway_proto::bulk::Header;
use causeway_proto::id::{EventId, LinkId};
use causeway_proto::region::Region;
use causeway_proto::status::Status;
use parking_lot::Mutex;

use self::eager::EagerWrites;
use self::jobs::Jobs;
use self::lane::{Lane, LaneError};
use self::outgoing::Outgoing;
use self::outlet::{Message, Outlet, Outlets};
pub(crate) use self::path::Path;
use self::path::Patience;
pub(crate) use self::peers::{Far, Part};
use self::peers::{Foreign, Origin, Peers, Why};
pub(crate) use self::staged::Rings;
use self::transfer::Transfer;
use crate::runtime::block::Blocks;
use crate::runtime::event::{Event, WaitList};
use crate::worker::session::enqueue::{Expects, Task};
use crate::worker::session::hash::ById;
use crate::worker::session::objects::Memory;
use crate::worker::session::{Shared, broken};

/// How long a transfer waits for a link that is being made, and for what replaces one that broke.
const MAKING: Duration = Duration::from_secs(60);
const REPLACING: Duration = Duration::from_secs(10);

/// Why nothing goes over a link that the client has dropped.
const DROPPED: &str = "its other end is gone";

/// A worker's path to itself, for transfers between two platforms of a node.
const OWN: LinkId = LinkId(0);

/// A transfer whose bytes come from the client or a peer.
trait Incoming: Send + Sync {
    /// Whether bytes may come from there.
    fn from(&self, origin: Origin) -> Result<(), Foreign>;

    /// Whether the client holds its bytes.
    fn is_of_client(&self) -> bool;

    /// Takes `length` bytes off the stream, which belong at packed offset `offset`.
    fn receive(
        &self,
        stream: &Stream,
        offset: u64,
        length: u32,
        scratch: &mut Vec<u8>,
    ) -> Result<(), LaneError>;

    /// The client will send no more of its own.
    fn cancelled(self: Arc<Self>);
}

/// The bulk transfers of a session.
#[derive(Default)]
pub(crate) struct Engine {
    // To the client.
    outgoing: Outgoing,
    incoming: Mutex<HashMap<EventId, Arc<dyn Incoming>, ById>>,
    eager: EagerWrites,
    blocks: Blocks,
    peers: Peers,
    paths: Mutex<HashMap<LinkId, Arc<Path>, ById>>,
    turns: direct::Turns,
    jobs: Jobs,
    // Of the client's lanes.
    outlets: Outlets,
    // What says whether small commands share the link with the client's lanes.
    beside: Beside,
}

/// Starts a bulk write that may run. Its native event, if it is enqueued already.
///
/// # Errors
/// What the driver says; the transfer then has not begun.
pub(crate) fn write(
    shared: &Arc<Shared>,
    task: &Task,
    memory: &Arc<Memory>,
    region: Region,
    waits: &WaitList<'_>,
) -> Result<Option<Event>, Status> {
    shared.bulk.beside.note_transfer();
    if task.expects == Expects::Eagerly {
        return shared.bulk.eager.begin(shared, task, memory, region, waits);
    }
    write_granted(shared, task, memory, region, waits).map(|()| None)
}

fn write_granted(
    shared: &Arc<Shared>,
    task: &Task,
    memory: &Arc<Memory>,
    region: Region,
    waits: &WaitList<'_>,
) -> Result<(), Status> {
    let transfer = Transfer::new(shared, task, memory, region);
    if goes_by_mapping(task, memory)? {
        return direct::write(transfer, waits);
    }
    staged::write(transfer);
    Ok(())
}

/// Starts a bulk read that may run. Whether it is wholly in its native queue already.
///
/// # Errors
/// As [`write()`].
pub(crate) fn read(
    shared: &Arc<Shared>,
    task: &Task,
    memory: &Arc<Memory>,
    region: Region,
    waits: &WaitList<'_>,
) -> Result<bool, Status> {
    shared.bulk.beside.note_transfer();
    let transfer = Transfer::new(shared, task, memory, region);
    let sees_memory = task.queue.native()?.device().has_direct_memory();
    if sees_memory
        && transfer.far.is_none()
        && let Some(room) = short::room(&shared.bulk.blocks, &region)
    {
        return short::read(transfer, room, waits).map(|()| true);
    }
    if !goes_by_mapping(task, memory)? {
        staged::read(transfer);
        return Ok(false);
    }
    direct::read(transfer, waits).map(|()| false)
}

/// Whether the host sees the device's memory, and bytes lie there as they travel. A driver maps an image with gaps
/// of its own: its bytes go through chunks, packed by the native command.
fn goes_by_mapping(task: &Task, memory: &Memory) -> Result<bool, Status> {
    let sees_memory = task.queue.native()?.device().has_direct_memory();
    Ok(sees_memory && memory.native()?.raster().is_none())
}

/// Starts a transfer to another worker that may run. `false`: the other end or the link has given it up,
/// and nothing is left to do.
///
/// # Errors
/// As [`write()`].
pub(crate) fn send(
    shared: &Arc<Shared>,
    task: &Task,
    memory: &Arc<Memory>,
    region: Region,
    waits: &WaitList<'_>,
) -> Result<bool, Status> {
    if let Some(far) = &task.far
        && let Some(why) = shared.bulk.over(far)
    {
        shared.bulk.end(far, Some(why.status));
        return Ok(false);
    }
    read(shared, task, memory, region, waits)?;
    shared.bulk.wait_for_path(shared, task.far.as_ref());
    Ok(true)
}

/// Starts a transfer from another worker that may run.
///
/// # Errors
/// As [`write()`], and when the other end or the link has given it up.
pub(crate) fn receive(
    shared: &Arc<Shared>,
    task: &Task,
    memory: &Arc<Memory>,
    region: Region,
    waits: &WaitList<'_>,
) -> Result<(), Status> {
    if let Some(far) = &task.far
        && let Some(why) = shared.bulk.over(far)
    {
        // Said here, because a status says too little.
        task.command.finish(why.status, why.message);
        return Err(why.status);
    }
    write_granted(shared, task, memory, region, waits)?;
    shared.bulk.wait_for_path(shared, task.far.as_ref());
    Ok(())
}

impl Engine {
    /// A batch of commands has come from the client.
    pub(crate) fn note_batch(&self) {
        self.beside.note_batch();
    }

    /// Takes a connection.
    pub(crate) fn attach(&self, shared: &Arc<Shared>, lane: u8, stream: Stream) {
        let is_shared = stream.is_shared();
        tracing::debug!(lane, is_shared, "a bulk connection");
        let outlet = Arc::new(Outlet::new(Arc::new(stream)));
        self.outlets.add(Arc::clone(&outlet));
        let lane = Lane {
            number: lane,
            path: None,
            most: AtomicU64::new(0),
            compress: AtomicBool::new(false),
        };
        lane::start(shared, lane, outlet);
    }

    /// Takes a lane of a link that has come up.
    pub(crate) fn attach_peer(
        &self,
        shared: &Arc<Shared>,
        link: LinkId,
        incarnation: u64,
        lane: u8,
        stream: Stream,
    ) {
        let path = self.path(shared, link);
        let stream = Arc::new(stream);
        let Some(again) = path.attached(incarnation, Arc::clone(&stream)) else {
            // The other end sees it, and hears of the way that is taken instead.
            stream.shut_down();
            return;
        };
        let lane = Lane {
            number: lane,
            path: Some((Arc::clone(&path), incarnation)),
            most: AtomicU64::new(0),
            compress: AtomicBool::new(false),
        };
        lane::start(shared, lane, Arc::new(Outlet::new(stream)));
        if again {
            self.say_again(&path);
        }
    }

    /// A link that was up is not any more: what is in progress on it ends, the rest waits for another way.
    pub(crate) fn link_failed(&self, shared: &Arc<Shared>, link: LinkId, reason: &str) {
        let path = self.path(shared, link);
        let Some(unsent) = path.broken() else { return };
        unsent.discard();
        let why = Why {
            status: Status::DEVICE_NOT_AVAILABLE,
            message: format!("link {} broke: {reason}", link.0),
        };
        for running in self.peers.broke(link, &why) {
            running.stop(why.clone());
        }
        path.own().unwanted().discard();
        self.count(shared, &path);
    }

    /// What belongs to the link goes over the client's connections from now on.
    pub(crate) fn route_via_client(&self, shared: &Arc<Shared>, link: LinkId) {
        // Should it be up: the other end uses it no longer.
        self.link_failed(shared, link, "the client has found another way");
        let path = self.path(shared, link);
        if path.via_client(&self.outgoing) {
            self.say_again(&path);
        }
    }

    /// The client has dropped a link: its transfers end, those that are still to come too.
    pub(crate) fn drop_path(&self, link: LinkId) {
        let Some(path) = self.paths.lock().remove(&link) else {
            return;
        };
        let unsent = path.give_up_for_good(DROPPED);
        let why = Why {
            status: Status::DEVICE_NOT_AVAILABLE,
            message: DROPPED.to_owned(),
        };
        for running in self.peers.lost(link, &why) {
            running.stop(why.clone());
        }
        unsent.discard();
    }

    /// A command that will not run: if somebody holds bytes for it, or waits for them, they hear of it.
    pub(crate) fn give_up(&self, task: &Task, status: Status) {
        match (&task.far, task.expects) {
            (Some(far), _) => self.end(far, Some(status)),
            (None, Expects::ByCredit) => self.tell_client(Header::cancel(task.command.id(), 0)),
            (None, Expects::Eagerly) => self.eager.give_up(task.command.id()),
            (None, Expects::Nothing) => {}
        }
    }

    /// The client says that the bytes of a write come eagerly; `false` when it did before.
    pub(crate) fn announce(&self, event: EventId) -> bool {
        self.eager.announce(event)
    }

    /// An announced write that there was no room for.
    pub(crate) fn renounce(&self, event: EventId) {
        self.eager.give_up(event);
    }

    /// A transfer with another worker that there was no room for.
    pub(crate) fn refuse(&self, far: &Far, status: Status) {
        self.end(far, Some(status));
    }

    /// A transfer with another worker that the client names; `false` when it did before.
    pub(crate) fn register(&self, far: &Far, total: u64) -> bool {
        self.peers.register(far, total)
    }

    /// The way of a link that the client has told of.
    pub(crate) fn path(&self, shared: &Arc<Shared>, link: LinkId) -> Arc<Path> {
        let mut paths = self.paths.lock();
        if let Some(path) = paths.get(&link) {
            return Arc::clone(path);
        }
        let path = Arc::new(Path::new(link));
        paths.insert(link, Arc::clone(&path));
        drop(paths);
        if link == OWN {
            self.attach_own(shared);
        }
        path
    }

    /// Two ends of one pair, so that what is sent on one comes in on the other.
    fn attach_own(&self, shared: &Arc<Shared>) {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
        let pair = socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        );
        match pair {
            Ok((one, other)) => {
                let attach = |lane, end: OwnedFd| {
                    self.attach_peer(shared, OWN, 0, lane, TcpStream::from(end).into());
                };
                attach(0, one);
                attach(1, other);
            }
            Err(error) => broken(&format!("no pair of sockets for the node itself: {error}")),
        }
    }

    /// Ends all lanes.
    pub(crate) fn stop(&self) {
        self.outgoing.stop();
        self.outlets.shut_down();
        for path in self.paths.lock().values() {
            path.stop();
        }
    }

    /// Sends the client something if nothing waits before it, and a lane is free. Does not wait.
    fn send_at_once(&self, message: Message) -> Result<(), Message> {
        self.outlets.send_at_once(&self.outgoing, message)
    }

    fn tell_client(&self, word: Header) {
        let message = Message {
            header: word,
            bytes: Bytes::new(),
        };
        if self.send_at_once(message).is_err() && !self.outgoing.push(word) {
            broken("the client takes nothing from its bulk connections");
        }
    }

    fn tell_peer(&self, path: &Path, word: Header) {
        if !path.say(&self.outgoing, word) {
            tracing::warn!(link = ?path.id(), "a peer takes nothing that is said to it");
        }
    }

    fn say_again(&self, path: &Path) {
        for word in self.peers.again(path.id()) {
            self.tell_peer(path, word);
        }
    }

    /// Ends this side of a transfer, and says so to the other if it is before its time.
    fn end(&self, far: &Far, early: Option<Status>) {
        if self.peers.end(far, early)
            && let Some(status) = early
        {
            self.tell_peer(&far.path, Header::cancel(far.transfer, status.0));
        }
    }

    /// Why a registered transfer need not begin.
    fn over(&self, far: &Far) -> Option<Why> {
        self.peers.heard(far).over.or_else(|| self.lost(far))
    }

    fn lost(&self, far: &Far) -> Option<Why> {
        far.path.lost().map(|message| Why {
            status: Status::DEVICE_NOT_AVAILABLE,
            message,
        })
    }

    /// A transfer has begun: it does not wait for its path for ever.
    fn wait_for_path(&self, shared: &Arc<Shared>, far: Option<&Far>) {
        if let Some(far) = far {
            self.count(shared, &far.path);
        }
    }

    fn count(&self, shared: &Arc<Shared>, path: &Arc<Path>) {
        let Some((patience, turn)) = path.count() else {
            return;
        };
        let limit = match patience {
            Patience::Making => MAKING,
            Patience::Broken => REPLACING,
        };
        let path = Arc::clone(path);
        self.at(shared, Instant::now() + limit, move |shared| {
            let Some(message) = path.give_up(turn) else {
                return;
            };
            tracing::warn!(link = ?path.id(), message, "its transfers fail");
            let why = Why {
                status: Status::DEVICE_NOT_AVAILABLE,
                message,
            };
            for running in shared.bulk.peers.lost(path.id(), &why) {
                running.stop(why.clone());
            }
            path.own().unwanted().discard();
        });
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
}
