//! Moves bulk bytes between sockets and devices.
//!
//! A large write: the session reports that the command may run. The region is mapped, or gets chunks of a
//! pinned ring ([`direct`], [`staged`]). When bytes can be received, the client gets credit. A [`lane`]
//! receives each piece directly into its place. After the last piece is enqueued, the session releases
//! the commands that follow. The driver's callback ends the command. A large read works in reverse,
//! without credit: the application's memory exists from the start.
//!
//! A write of one chunk usually needs no credit: its bytes wait for the command in host memory ([`eager`]).
//!
//! A transfer between two workers is a read on one and a write on the other. The reader offers it when
//! its command may run. The writer grants credit. The bytes use the link between the two, or the client's
//! connections if there is no link. If the other end or the link gives up, the reader's command still
//! succeeds, because its buffer is no longer read. The writer's command reports the failure.
//!
//! - [`lane`]: one connection with two threads; [`writer`]: the sending side of a lane; [`outgoing`]: a
//!   queue that several lanes send from;
//! - [`path`]: the lanes of a link; [`peers`]: the transfers with other workers and the messages about them;
//! - [`direct`], [`staged`]: the two ways through memory; [`memory`]: the raw bytes;
//! - [`eager`], [`short`]: writes and reads of one chunk;
//! - [`jobs`]: the bulk thread and its jobs;
//! - [`allowance`], [`received_ranges`], [`blocks`]: pure accounting and geometry.
//!
//! This module parses no command frames and makes no links. Invariant: bytes for which credit was granted
//! can always be read off the network, so no transfer blocks another.

mod allowance;
mod blocks;
mod direct;
mod eager;
mod jobs;
mod lane;
mod memory;
mod outgoing;
mod path;
mod peers;
mod received_ranges;
mod short;
mod staged;
mod transfer;
mod writer;

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
pub(crate) use self::path::Path;
use self::path::RouteWait;
pub(crate) use self::peers::{Far, Part};
use self::peers::{Foreign, Origin, Peers, Why};
pub(crate) use self::staged::Rings;
use self::transfer::Transfer;
use self::writer::{LaneWriter, LaneWriters, Message};
use crate::runtime::block::Blocks;
use crate::runtime::event::{Event, WaitList};
use crate::worker::objects::Memory;
use crate::worker::objects::hash::ById;
use crate::worker::session::enqueue::{Expects, Task};
use crate::worker::session::{Shared, broken};

/// How long a transfer waits for a link that is being made, and for a replacement of one that broke.
const MAKING: Duration = Duration::from_secs(60);
const REPLACING: Duration = Duration::from_secs(10);

/// The reason why nothing is sent on a link that the client has dropped.
const DROPPED: &str = "the link's other worker is gone";

/// The id of a worker's path to itself, for transfers between two platforms of a node.
const OWN: LinkId = LinkId(0);

/// A transfer whose bytes come from the client or another worker.
trait Incoming: Send + Sync {
    /// Checks that `origin` may send bytes of this transfer.
    fn from(&self, origin: Origin) -> Result<(), Foreign>;

    /// Whether the client, rather than another worker, sends the bytes.
    fn is_of_client(&self) -> bool;

    /// Reads `length` bytes off the stream. They belong at packed offset `offset`.
    fn receive(
        &self,
        stream: &Stream,
        offset: u64,
        length: u32,
        scratch: &mut Vec<u8>,
    ) -> Result<(), LaneError>;

    /// Handles a cancellation: the client will send no more bytes.
    fn cancelled(self: Arc<Self>);
}

/// The bulk transfers of a session.
#[derive(Default)]
pub(crate) struct Engine {
    // Queue to the client.
    outgoing: Outgoing,
    incoming: Mutex<HashMap<EventId, Arc<dyn Incoming>, ById>>,
    eager: EagerWrites,
    blocks: Blocks,
    peers: Peers,
    paths: Mutex<HashMap<LinkId, Arc<Path>, ById>>,
    turns: direct::Turns,
    jobs: Jobs,
    // The lane writers of the client's lanes.
    writers: LaneWriters,
    // Measures whether small commands share the network with the client's lanes.
    beside: Beside,
}

/// Starts a bulk write whose command may run. Returns the native event if the write is already enqueued.
///
/// # Errors
/// The driver's error; the transfer then has not begun.
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

/// Starts a bulk read whose command may run. Returns whether the read is already complete in its native queue.
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

/// Whether the transfer uses a mapping: the host sees the device's memory, and the bytes lie there as
/// they are sent. A driver maps an image with gaps of its own. Images therefore go through chunks, which
/// the native command packs.
fn goes_by_mapping(task: &Task, memory: &Memory) -> Result<bool, Status> {
    let sees_memory = task.queue.native()?.device().has_direct_memory();
    Ok(sees_memory && memory.native()?.raster().is_none())
}

/// Starts a send to another worker. Returns false if the other end or the link has given the transfer up;
/// then nothing is left to do.
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

/// Starts a receive from another worker.
///
/// # Errors
/// As [`write()`]; also when the other end or the link has given the transfer up.
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
        // The command is finished here, because the returned status alone carries no message.
        task.command.finish(why.status, why.message);
        return Err(why.status);
    }
    write_granted(shared, task, memory, region, waits)?;
    shared.bulk.wait_for_path(shared, task.far.as_ref());
    Ok(())
}

impl Engine {
    /// Notes that a batch of commands has come from the client.
    pub(crate) fn note_batch(&self) {
        self.beside.note_batch();
    }

    /// Takes over a bulk connection of the client.
    pub(crate) fn attach(&self, shared: &Arc<Shared>, lane: u8, stream: Stream) {
        let is_shared = stream.is_shared();
        tracing::debug!(lane, is_shared, "a bulk connection");
        let writer = Arc::new(LaneWriter::new(Arc::new(stream)));
        self.writers.add(Arc::clone(&writer));
        let lane = Lane {
            number: lane,
            path: None,
            most: AtomicU64::new(0),
            compress: AtomicBool::new(false),
        };
        lane::start(shared, lane, writer);
    }

    /// Takes over a lane of a link that has come up.
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
            // The path no longer takes lanes. The other end sees the close, and learns of the
            // route that is used instead.
            stream.shut_down();
            return;
        };
        let lane = Lane {
            number: lane,
            path: Some((Arc::clone(&path), incarnation)),
            most: AtomicU64::new(0),
            compress: AtomicBool::new(false),
        };
        lane::start(shared, lane, Arc::new(LaneWriter::new(stream)));
        if again {
            self.say_again(&path);
        }
    }

    /// Handles the break of a link that was up. Transfers in progress on it end; the others
    /// wait for another route.
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

    /// Sends a link's transfers over the client's connections from now on.
    pub(crate) fn route_via_client(&self, shared: &Arc<Shared>, link: LinkId) {
        // The link may be up on this side only: the other end no longer uses it.
        self.link_failed(
            shared,
            link,
            "the client routes the link's transfers through itself",
        );
        let path = self.path(shared, link);
        if path.via_client(&self.outgoing) {
            self.say_again(&path);
        }
    }

    /// Drops a link at the client's request. Its transfers end, including those that have not begun.
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

    /// Gives up a command that will not run. Informs whichever end holds or expects its bytes.
    pub(crate) fn give_up(&self, task: &Task, status: Status) {
        match (&task.far, task.expects) {
            (Some(far), _) => self.end(far, Some(status)),
            (None, Expects::ByCredit) => self.tell_client(Header::cancel(task.command.id(), 0)),
            (None, Expects::Eagerly) => self.eager.give_up(task.command.id()),
            (None, Expects::Nothing) => {}
        }
    }

    /// Registers a write whose bytes come eagerly. Returns false if the event id was registered before.
    pub(crate) fn announce(&self, event: EventId) -> bool {
        self.eager.announce(event)
    }

    /// Gives up an announced write that exceeded a limit.
    pub(crate) fn renounce(&self, event: EventId) {
        self.eager.give_up(event);
    }

    /// Gives up a transfer with another worker that exceeded a limit.
    pub(crate) fn refuse(&self, far: &Far, status: Status) {
        self.end(far, Some(status));
    }

    /// Registers a transfer with another worker. Returns false if it was registered before.
    pub(crate) fn register(&self, far: &Far, total: u64) -> bool {
        self.peers.register(far, total)
    }

    /// Returns the path of a link that the client has added.
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

    /// Attaches the two ends of one socket pair, so that bytes sent on one arrive on the other.
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
            Err(error) => broken(&format!(
                "cannot create a socket pair for transfers within the node: {error}"
            )),
        }
    }

    /// Ends all lanes.
    pub(crate) fn stop(&self) {
        self.outgoing.stop();
        self.writers.shut_down();
        for path in self.paths.lock().values() {
            path.stop();
        }
    }

    /// Sends a message to the client if the queue is empty and a lane is free. Does not wait.
    fn send_at_once(&self, message: Message) -> Result<(), Message> {
        self.writers.send_at_once(&self.outgoing, message)
    }

    fn tell_client(&self, word: Header) {
        let message = Message {
            header: word,
            bytes: Bytes::new(),
        };
        if self.send_at_once(message).is_err() && !self.outgoing.push(word) {
            broken("the client reads nothing from its bulk connections");
        }
    }

    fn tell_peer(&self, path: &Path, word: Header) {
        if !path.send_header(&self.outgoing, word) {
            tracing::warn!(link = ?path.id(), "the other worker reads no messages from the link");
        }
    }

    fn say_again(&self, path: &Path) {
        for word in self.peers.again(path.id()) {
            self.tell_peer(path, word);
        }
    }

    /// Ends this side of a transfer. If `early` is set, also cancels the transfer at the other end.
    fn end(&self, far: &Far, early: Option<Status>) {
        if self.peers.end(far, early)
            && let Some(status) = early
        {
            self.tell_peer(&far.path, Header::cancel(far.transfer, status.0));
        }
    }

    /// Returns why a registered transfer need not begin.
    fn over(&self, far: &Far) -> Option<Why> {
        self.peers.heard(far).over.or_else(|| self.lost(far))
    }

    fn lost(&self, far: &Far) -> Option<Why> {
        far.path.lost().map(|message| Why {
            status: Status::DEVICE_NOT_AVAILABLE,
            message,
        })
    }

    /// Starts the timeout for the path of a transfer that has begun.
    fn wait_for_path(&self, shared: &Arc<Shared>, far: Option<&Far>) {
        if let Some(far) = far {
            self.count(shared, &far.path);
        }
    }

    fn count(&self, shared: &Arc<Shared>, path: &Arc<Path>) {
        let Some((cause, turn)) = path.count() else {
            return;
        };
        let limit = match cause {
            RouteWait::Making => MAKING,
            RouteWait::Broken => REPLACING,
        };
        let path = Arc::clone(path);
        self.at(shared, Instant::now() + limit, move |shared| {
            let Some(message) = path.give_up(turn) else {
                return;
            };
            tracing::warn!(link = ?path.id(), message, "the transfers of this link fail");
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
