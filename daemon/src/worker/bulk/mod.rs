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
//! The files from the ground up. Each names files of its own line or of earlier lines (`LAYERS` in `.ci/dependencies.py`):
//!
//! - [`allowance`], [`received_ranges`], [`blocks`], [`turns`]: pure accounting and geometry; [`peers`]: the transfers with
//!   other workers and the messages about them; [`memory`]: the raw bytes; [`jobs`]: the bulk thread;
//! - [`message`]: what lanes send; [`incoming`]: what a lane asks of a transfer;
//! - [`outgoing`]: a queue that several lanes send from; [`early`]: the bytes of eager writes;
//! - [`writer`]: the sending side of a lane;
//! - [`path`]: the lanes of a link;
//! - [`engine`]: what all transfers share, and [`Reports`], which tells the session what passed or failed;
//! - [`transfer`]: what every transfer holds; [`lane`]: one connection with two threads;
//! - [`direct`], [`staged`]: the two ways through memory; [`eager`]: writes of one chunk; [`short`]: short reads;
//!   [`checkpoint`]: checkpoints for the client.
//!
//! This folder parses no command frames, makes no links and does not know the session. Invariant: bytes for
//! which credit was granted can always be read off the network, so no transfer blocks another.

mod allowance;
mod blocks;
mod checkpoint;
mod direct;
mod eager;
mod early;
mod engine;
mod incoming;
mod jobs;
mod lane;
mod memory;
mod message;
mod outgoing;
mod path;
mod peers;
mod received_ranges;
mod short;
mod staged;
mod transfer;
mod turns;
mod writer;

use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use causeway_lane::{Resumed, Stopped, Stream};
use causeway_proto::bulk::Header;
use causeway_proto::id::{EventId, LinkId};
use causeway_proto::region::Region;
use causeway_proto::status::Status;

pub(crate) use self::engine::{Engine, Reports};
use self::lane::Lane;
use self::path::{DROPPED, Path};
use self::peers::{OWN, Why};
use self::transfer::Transfer;
use self::writer::LaneWriter;
use crate::runtime::event::{Event, WaitList};
use crate::worker::objects::Memory;
use crate::worker::objects::task::{Expects, Far, Task};

/// Time limit for a reading thread to leave a connection that was shut.
const STAND_STILL: Duration = Duration::from_secs(4);

impl Engine {
    /// Starts a bulk write whose command may run. Returns the native event if the write is already enqueued.
    ///
    /// # Errors
    /// The driver's error; the transfer then has not begun.
    pub(crate) fn write(
        self: &Arc<Self>,
        task: &Task,
        memory: &Arc<Memory>,
        region: Region,
        waits: &WaitList<'_>,
    ) -> Result<Option<Event>, Status> {
        self.beside.note_transfer();
        if task.expects == Expects::Eagerly {
            let transfer = Transfer::new(self, task, memory, region);
            return eager::begin(&self.eager, transfer, waits);
        }
        self.write_granted(task, memory, region, waits)
            .map(|()| None)
    }

    fn write_granted(
        self: &Arc<Self>,
        task: &Task,
        memory: &Arc<Memory>,
        region: Region,
        waits: &WaitList<'_>,
    ) -> Result<(), Status> {
        let transfer = Transfer::new(self, task, memory, region);
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
        self: &Arc<Self>,
        task: &Task,
        memory: &Arc<Memory>,
        region: Region,
        waits: &WaitList<'_>,
    ) -> Result<bool, Status> {
        self.beside.note_transfer();
        let transfer = Transfer::new(self, task, memory, region);
        let sees_memory = task.queue.native()?.device().has_direct_memory();
        if sees_memory
            && transfer.far().is_none()
            && let Some(room) = short::room(&self.blocks, &region)
        {
            return short::read(transfer, room, waits).map(|()| true);
        }
        if !goes_by_mapping(task, memory)? {
            staged::read(transfer);
            return Ok(false);
        }
        direct::read(transfer, waits).map(|()| false)
    }

    /// Starts a send to another worker. Returns false if the other end or the link has given the transfer up;
    /// then nothing is left to do.
    ///
    /// # Errors
    /// As [`write()`].
    pub(crate) fn send(
        self: &Arc<Self>,
        task: &Task,
        memory: &Arc<Memory>,
        region: Region,
        waits: &WaitList<'_>,
    ) -> Result<bool, Status> {
        if let Some(far) = &task.far
            && let Some(why) = self.over(far)
        {
            self.end(far, Some(why.status));
            return Ok(false);
        }
        self.read(task, memory, region, waits)?;
        self.wait_for_far(task.far.as_ref());
        Ok(true)
    }

    /// Starts a receive from another worker.
    ///
    /// # Errors
    /// As [`write()`]; also when the other end or the link has given the transfer up.
    pub(crate) fn receive(
        self: &Arc<Self>,
        task: &Task,
        memory: &Arc<Memory>,
        region: Region,
        waits: &WaitList<'_>,
    ) -> Result<(), Status> {
        if let Some(far) = &task.far
            && let Some(why) = self.over(far)
        {
            // The command is finished here, because the returned status alone carries no message.
            task.command.finish(why.status, why.message);
            return Err(why.status);
        }
        self.write_granted(task, memory, region, waits)?;
        self.wait_for_far(task.far.as_ref());
        Ok(())
    }

    /// Notes that a batch of commands has come from the client.
    pub(crate) fn note_batch(&self) {
        self.beside.note_batch();
    }

    /// Takes over the connection of a client's lane that follows [`Engine::stop_lane`]. The client has received
    /// `position` bytes over the lane.
    pub(crate) fn resume_lane(&self, lane: u8, after: Stopped, stream: Stream, position: u64) {
        let writer = self.writers.resumed(lane);
        let resumed = writer.as_ref().and_then(|of| of.stream().resumed());
        if resumed.is_some_and(|resumed| resumed.install(after, stream, position)) {
            tracing::debug!(lane, position, "a bulk connection is resumed");
            // The lane's thread sends what is missing.
            self.outgoing.look();
        }
    }

    /// Takes over the first connection of a client's lane.
    pub(crate) fn attach(self: &Arc<Self>, lane: u8, stream: Stream) {
        let is_shared = stream.is_shared();
        tracing::debug!(lane, is_shared, "a bulk connection");
        let stream = if !self.resume.is_zero() && !is_shared {
            let broke = move |_| tracing::info!(lane, "a bulk connection broke");
            Stream::Resumed(Box::new(Resumed::new(stream, broke)))
        } else {
            stream
        };
        let writer = Arc::new(LaneWriter::new(lane, Arc::new(stream)));
        self.writers.add(Arc::clone(&writer));
        let lane = Lane {
            number: lane,
            path: None,
            most: AtomicU64::new(0),
            compress: AtomicBool::new(false),
        };
        lane::start(self, lane, writer);
    }

    /// Breaks the connection of a client's lane that can be resumed. `None` if there is no such lane, or a thread still
    /// reads after a time limit.
    pub(crate) fn stop_lane(&self, lane: u8) -> Option<Stopped> {
        let writer = self.writers.resumed(lane)?;
        writer.stream().resumed()?.stop_receiving(STAND_STILL)
    }

    /// Whether a client's lane that can be resumed has a connection. `None` if there is no such lane.
    pub(crate) fn is_lane_up(&self, lane: u8) -> Option<bool> {
        let writer = self.writers.resumed(lane)?;
        let resumed = writer.stream().resumed()?;
        Some(resumed.present().is_some())
    }

    /// Takes over a lane of a link that has come up.
    pub(crate) fn attach_peer(
        self: &Arc<Self>,
        link: LinkId,
        incarnation: u64,
        lane: u8,
        stream: Stream,
    ) {
        let path = self.open_path(link);
        let stream = if !self.resume.is_zero() && link != OWN {
            let engine = Arc::downgrade(self);
            let broke = move |connection| {
                if let Some(engine) = engine.upgrade() {
                    engine.report(|session| session.lane_lost(link, incarnation, lane, connection));
                }
            };
            Stream::Resumed(Box::new(Resumed::new(stream, broke)))
        } else {
            stream
        };
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
        let writer = Arc::new(LaneWriter::new(lane.number, stream));
        path.writers().add(Arc::clone(&writer));
        lane::start(self, lane, writer);
        if again {
            self.say_again(&path);
        }
    }

    /// Breaks the connection of a lane of this incarnation of a link, if it can be resumed. `None` if there is no such
    /// lane, or a thread still reads after a time limit.
    pub(crate) fn stop_peer_lane(
        &self,
        link: LinkId,
        incarnation: u64,
        lane: u8,
    ) -> Option<Stopped> {
        let path = self.paths.lock().get(&link).map(Arc::clone)?;
        if !path.is_present(incarnation) {
            return None;
        }
        let writer = path.writers().resumed(lane)?;
        writer.stream().resumed()?.stop_receiving(STAND_STILL)
    }

    /// Breaks the connections of a link's lanes, which can be replaced.
    pub(crate) fn break_peer_lanes(&self, link: LinkId) {
        if let Some(path) = self.paths.lock().get(&link).map(Arc::clone) {
            path.break_lanes();
        }
    }

    /// Takes over the connection of a link's lane that follows [`Engine::stop_peer_lane`]. The other end has received
    /// `position` bytes over the lane. Returns false if the lane was stopped again, or has ended.
    pub(crate) fn resume_peer_lane(
        &self,
        link: LinkId,
        lane: u8,
        after: Stopped,
        stream: Stream,
        position: u64,
    ) -> bool {
        let path = self.paths.lock().get(&link).map(Arc::clone);
        let Some((path, writer)) = path.and_then(|path| {
            let writer = path.writers().resumed(lane)?;
            Some((path, writer))
        }) else {
            stream.shut_down();
            return false;
        };
        let resumed = writer.stream().resumed();
        let is_installed = resumed.is_some_and(|of| of.install(after, stream, position));
        if is_installed {
            // The lane's thread sends what is missing.
            path.own().look();
        }
        is_installed
    }

    /// Handles the break of a link that was up. Transfers in progress on it end; the others
    /// wait for another route.
    pub(crate) fn link_failed(self: &Arc<Self>, link: LinkId, reason: &str) {
        let path = self.open_path(link);
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
        self.wait_for_route(&path);
    }

    /// Sends a link's transfers over the client's connections from now on.
    pub(crate) fn route_via_client(self: &Arc<Self>, link: LinkId) {
        // The link may be up on this side only: the other end no longer uses it.
        self.link_failed(
            link,
            "the client routes the link's transfers through itself",
        );
        let path = self.open_path(link);
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
    pub(crate) fn open_path(self: &Arc<Self>, link: LinkId) -> Arc<Path> {
        let mut paths = self.paths.lock();
        if let Some(path) = paths.get(&link) {
            return Arc::clone(path);
        }
        let path = Arc::new(Path::new(link));
        paths.insert(link, Arc::clone(&path));
        drop(paths);
        if link == OWN {
            self.attach_own();
        }
        path
    }

    /// Attaches the two ends of one socket pair, so that bytes sent on one arrive on the other.
    fn attach_own(self: &Arc<Self>) {
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
                    self.attach_peer(OWN, 0, lane, TcpStream::from(end).into());
                };
                attach(0, one);
                attach(1, other);
            }
            Err(error) => self.scope.broken(&format!(
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

    /// Gives up all transfers, because the session ends and its host goes on. Called after [`Engine::stop`], and
    /// again until no command is left, because a thread of the session may just begin a transfer. The bulk thread
    /// then gives mappings back.
    pub(crate) fn give_up_all(self: &Arc<Self>) {
        self.outgoing.break_off().discard();
        let paths = std::mem::take(&mut *self.paths.lock());
        for path in paths.values() {
            path.give_up_for_good(DROPPED).discard();
        }
        self.stop_transfers();
    }

    /// Runs the jobs of a session whose bulk thread could not be started, so that they let go of their transfers.
    pub(crate) fn run_left_jobs(&self) {
        self.jobs.run_left();
    }

    /// Ends the bulk thread, when no command of the session is left.
    pub(crate) fn end_jobs(&self) {
        self.jobs.end();
    }

    fn say_again(&self, path: &Path) {
        for header in self.peers.again(path.id()) {
            self.tell_peer(path, header);
        }
    }

    /// Starts the timeout for the path of a transfer that has begun.
    fn wait_for_far(self: &Arc<Self>, far: Option<&Far>) {
        if let Some(far) = far {
            self.wait_for_route(&self.path_of(far.link));
        }
    }
}

/// Whether the transfer uses a mapping: the host sees the device's memory, and the bytes lie there as
/// they are sent. A driver maps an image with gaps of its own. Images therefore go through chunks, which
/// the native command packs.
fn goes_by_mapping(task: &Task, memory: &Memory) -> Result<bool, Status> {
    let sees_memory = task.queue.native()?.device().has_direct_memory();
    Ok(sees_memory && memory.native()?.raster().is_none())
}
