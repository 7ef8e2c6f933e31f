//! One session: applies the client's commands to its objects, and runs them in order.
//!
//! The path of a launch: the carrier's reading thread decodes a batch and calls [`Session::apply`].
//! [`apply`] looks up the objects. [`commands`] turns the command into a task, with its arguments as of
//! this point of the stream. The [`graph`] decides whether the task may run. [`run`] sets the arguments
//! that differ and enqueues the task natively on the same thread. At its end, the driver's thread makes a
//! completion of the command and puts it into the outbox, which sends it on that thread. No thread has to
//! wake up on the way. Small writes and reads carry their bytes inside command and completion. Large ones
//! use [`crate::worker::bulk`].
//!
//! - [`shared`]: what all threads of the session share; [`tables`]: objects by the client's ids;
//!   [`violation`]: what ends a session;
//! - [`graph`]: the order of commands, pure;
//! - [`apply`], [`arguments`], [`sub_devices`], [`memory`], [`device_queues`], [`query`], [`program`]:
//!   applying each kind of command; builds have threads of their own;
//! - [`commands`]: what a command does, by kind; decoded from its message, and enqueued natively;
//! - [`command_buffers`]: recorded commands that are enqueued repeatedly;
//! - [`run`]: runs commands, and those that become runnable by that;
//! - [`links`], [`mirrors`]: the client's sessions on other nodes; [`early`], [`freed`]: what waits for a
//!   mirror, and what a mirror has released;
//! - [`neighbours`]: what the sessions of a host share.
//!
//! Threads that call the driver: the reading thread, the builder's, the bulk threads, the `mirrors`
//! thread and the keeper. The `mirrors` thread runs commands that other workers released; the keeper
//! releases ended commands. A driver's callback thread only asks for profiling times.
//!
//! The session does not know its carrier. Invariants: commands are applied once each, in order of their
//! numbers. Every id is looked up. No lock of the session is held while the driver may block or a message
//! is sent to the client.
#![forbid(unsafe_code)]

mod apply;
mod arguments;
mod command_buffers;
mod commands;
mod device_queues;
mod early;
mod freed;
mod graph;
pub(crate) mod links;
mod memory;
mod mirrors;
pub(crate) mod neighbours;
pub mod numbering;
pub mod parking;
mod program;
mod query;
mod run;
mod shared;
mod sub_devices;
mod tables;
mod violation;

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use causeway_lane::{Stopped, Stream};
use causeway_proto::command::{self, CommandBatch, Holder};
use causeway_proto::id::{DeviceIndex, PlatformIndex};
use causeway_security::Line;
use parking_lot::Mutex;

use self::freed::Freed;
use self::links::{LinkSeat, Links};
use self::parking::Parking;
use self::program::builder::Builder;
use self::run::Runner;
use self::shared::{Paces, Shared};
pub use self::violation::Violation;
use super::bulk::Engine;
use super::connection::{EventSink, SessionStart};
use super::objects::commons::{Alive, AllGone, Commons};
use super::objects::leased::NodeShare;
use super::objects::outbox::Outbox;
use super::objects::pace::Pace;
use super::objects::printed::Printed;
use super::objects::progress::Progress;
use super::objects::unobserved;
pub(crate) use super::objects::warm::Warm;
use super::threads::Over;
use crate::accounting::{Busy, Counter};
use crate::runtime::node::Node;
use crate::runtime::stdout;
use crate::runtime::watch::{Enqueuing, HostedSession};

/// How often the keeper looks for ended commands that are not forgotten yet.
const KEEPING: Duration = Duration::from_millis(200);

/// The node's OpenCL, loaded and listed before the worker has a session.
///
/// A spare worker loads it, makes the contexts of `[sessions] warm`, and waits.
#[derive(Clone, Debug)]
pub struct Preloaded(Arc<Node>);

impl Preloaded {
    /// Loads the OpenCL library and lists platforms and devices in the inventory's order.
    #[must_use]
    pub fn load() -> Preloaded {
        Preloaded(Arc::new(Node::load()))
    }

    /// Makes contexts before a session asks for them. Returns how many are ready.
    pub(crate) fn warm(&self, warm: &Warm, devices: &[(PlatformIndex, DeviceIndex)]) -> u32 {
        warm.make(&self.0, devices)
    }
}

/// A session in its worker process.
pub struct Session {
    shared: Arc<Shared>,
    next: Mutex<u64>,
    /// Whether the client may send commands again that were applied.
    skips: AtomicBool,
    // Tells when a session in a host has released what it made.
    gone: Gone,
    _counted: Option<HostedSession>,
}

/// See [`Session::standing`]. Keeps nothing of the session but this.
pub struct Standing {
    commons: Arc<Commons>,
    own: Arc<Progress>,
    /// When the session began to end.
    left: Instant,
}

impl Standing {
    /// Whether a neighbour has waited longer for the end of a command than this session has. The end of this session
    /// may then have to wait for that command.
    #[must_use]
    pub fn is_behind_a_neighbour(&self) -> bool {
        self.commons.progresses.any_older(&self.own, self.left)
    }

    /// Whether releases may have to wait for a neighbour for a while: for its compiler, because compilers such as PoCL's
    /// hold locks of the driver, or for commands that began after this session's last one had ended.
    #[must_use]
    pub fn is_beside_work(&self) -> bool {
        self.commons.progresses.any_other_works(&self.own)
    }
}

/// Tells when the parts of a session are gone.
struct Gone {
    commands: AllGone,
    contexts: AllGone,
}

impl Session {
    /// Starts a session and its threads. In a worker of its own, captures the process's standard output,
    /// which is `/dev/null` until then, for kernels' `printf`. In a host, uses the host's console.
    #[must_use]
    pub fn start(start: SessionStart, node: Preloaded, events: Arc<dyn EventSink>) -> Session {
        let ((ended, commands), (alive, contexts)) = (Alive::counted(), Alive::counted());
        let outbox = outbox(&start, &node, events, ended.clone());
        let counted = start.commons.as_ref().map(|_| HostedSession::begin());
        let scope = start.scope;
        let shared = Arc::new_cyclic(|shared: &Weak<Shared>| {
            let bulk = Engine::new(
                shared.clone(),
                start.account.clone(),
                scope.clone(),
                start.resume,
            );
            let bulk = Arc::new(bulk);
            Shared {
                node: node.0,
                limits: start.limits,
                outbox: Arc::clone(&outbox),
                builder: Builder::new(scope.clone()),
                links: Links::new(
                    start.id,
                    &bulk,
                    &outbox,
                    scope.clone(),
                    shared.clone(),
                    start.resume,
                ),
                bulk,
                freed: Freed::default(),
                share: NodeShare::new(
                    start.limits.device_memory,
                    start.leased.as_deref(),
                    &start.account,
                ),
                account: start.account,
                builds: start.builds,
                scope: scope.clone(),
                commons: start.commons,
                warm: start.warm,
                reexecutes: start.reexecutes,
                contexts: Mutex::default(),
                paces: Paces::default(),
                parking: Parking::new(
                    start.restores.as_ref().map(|(_, source)| source.clone()),
                    start.most_contents,
                ),
                over: Over::default(),
                core: Mutex::default(),
                alive,
                _ended: ended,
            }
        });
        let applied = start.restores.map_or(0, |(restores, _)| restores.applied);
        shared.outbox.begin_behind(applied);
        start_threads(&shared);
        Session {
            shared,
            next: Mutex::new(applied + 1),
            skips: AtomicBool::new(false),
            gone: Gone { commands, contexts },
            _counted: counted,
        }
    }

    /// Applies a batch and empties it, so that its memory can be reused. Only one thread at a time may
    /// call this, in the order of arrival.
    ///
    /// # Errors
    /// [`Violation`]: the service logs it and the process exits.
    pub fn apply(&self, batch: &mut CommandBatch) -> Result<(), Violation> {
        let is_restoring = self.shared.parking.is_restoring();
        if is_restoring || batch.recorded != 0 {
            parking::restore::restore(&self.shared, batch)?;
            if is_restoring && !self.shared.parking.is_restoring() {
                // A checkpoint of the client says itself which commands it covers.
                *self.next.lock() = self.applied() + 1;
            }
            return Ok(());
        }
        let mut next = self.next.lock();
        if self.skips.load(Ordering::Relaxed) {
            numbering::skip_applied(batch, *next);
        }
        if batch.first != *next && !batch.commands.is_empty() {
            return Err(Violation::Gap {
                expected: *next,
                got: batch.first,
            });
        }
        self.shared.bulk.note_batch();
        self.shared.builder.put_off();
        let count = batch.commands.len() as u64;
        let mut runner = Runner::of_batch(&self.shared, batch.commands.len());
        let enqueuing = Enqueuing::begin();
        let mut commands = batch.commands.drain(..).peekable();
        while let Some(command) = commands.next() {
            if self.shared.over.is_set() {
                break;
            }
            let followed = commands
                .peek()
                .is_some_and(|behind| unobserved::follows(&command, behind));
            apply::apply(&self.shared, command, followed, &mut runner)?;
            *next += 1;
        }
        // The drop of the runner flushes the queues that the batch has touched.
        drop(runner);
        drop(enqueuing);
        self.shared.account.add(Counter::Commands, count);
        self.shared.outbox.applied(*next - 1);
        self.shared.clean_up();
        Ok(())
    }

    /// Expects that the client, which has a new connection, sends commands again. Those that were applied are skipped.
    pub fn skip_applied(&self) {
        self.skips.store(true, Ordering::Relaxed);
    }

    /// Whether the client must send its record, because the session was parked.
    pub fn wants_record(&self) -> bool {
        self.shared.parking.is_restoring()
    }

    /// Handles that the client sends nothing until it is told to go on.
    pub fn client_stands(&self) {
        self.shared.parking.client_stands();
    }

    /// Waits for the turn to park the session or to make a checkpoint.
    pub(crate) fn parking_turn(&self) -> parking::Turn<'_> {
        self.shared.parking.turn()
    }

    /// Parks the session; see [`parking`].
    pub(crate) fn park(
        &self,
        _turn: &parking::Turn<'_>,
        contents: &[File],
        client: &dyn parking::ParkingClient,
    ) -> parking::Outcome {
        parking::park::park(&self.shared, contents, client)
    }

    /// Makes a checkpoint of at most `most` bytes; see [`parking`]. [`Session::tell_parking`] must follow, unless the
    /// session is over, in the same turn.
    pub(crate) fn checkpoint(
        &self,
        _turn: &parking::Turn<'_>,
        contents: &[File],
        most: u64,
        client: &dyn parking::ParkingClient,
    ) -> parking::Outcome {
        parking::park::checkpoint(&self.shared, contents, most, client)
    }

    /// Tells the client whether a checkpoint is made, and that it may send commands again.
    pub(crate) fn tell_parking(&self, parking: command::Parking) {
        self.shared.outbox.parking(parking);
    }

    /// Tells the client that a checkpoint of `bytes` bytes is copied, and waits until the client says who holds it. `None`
    /// if the session ends before.
    pub(crate) fn ask_holder(
        &self,
        _turn: &parking::Turn<'_>,
        bytes: u64,
        client: &dyn parking::ParkingClient,
    ) -> Option<Holder> {
        let tell = || self.shared.outbox.copied(bytes);
        self.shared.parking.ask_holder(client, tell)
    }

    /// Handles that the client has said who holds its checkpoint.
    pub fn client_decides(&self, holder: Holder) {
        self.shared.parking.client_decides(holder);
    }

    /// Sends the bytes of a checkpoint to the client. `done` is called when they have left.
    pub(crate) fn send_checkpoint(
        &self,
        contents: File,
        bytes: u64,
        done: impl Fn() + Send + Sync + 'static,
    ) {
        let outbox = Arc::downgrade(&self.shared.outbox);
        let sent = move || {
            // First: a client that has all bytes may ask for the next checkpoint at once.
            done();
            if let Some(outbox) = outbox.upgrade() {
                outbox.checkpoint_sent();
            }
        };
        (self.shared.bulk).send_checkpoint(contents, bytes, Box::new(sent));
    }

    /// Counts the bytes of a batch that is about to be applied.
    pub fn received(&self, bytes: usize) {
        self.shared.outbox.received(bytes);
    }

    /// Returns the number of a command up to which all commands have been applied. There may be later ones.
    pub fn applied(&self) -> u64 {
        self.shared.outbox.last_applied()
    }

    /// Takes the first bulk connection of a lane. The session reads and writes it on its own threads.
    pub fn attach_bulk(&self, lane: u8, stream: Stream) {
        self.shared.bulk.attach(lane, stream);
    }

    /// Takes the connection of a lane that follows [`Session::stop_lane`]. `received`: the bytes that the client has
    /// received over earlier connections of this lane.
    pub fn resume_lane(&self, lane: u8, after: Stopped, stream: Stream, received: u64) {
        self.shared.bulk.resume_lane(lane, after, stream, received);
    }

    /// Returns whether a new connection may replace the one of this lane.
    pub fn may_resume_lane(&self, lane: u8) -> bool {
        self.shared.bulk.is_lane_up(lane).is_some()
    }

    /// Returns whether the connection of this lane has not ended.
    pub fn is_lane_up(&self, lane: u8) -> bool {
        self.shared.bulk.is_lane_up(lane).unwrap_or(true)
    }

    /// Breaks the connection of a lane. `None` if there is no such lane, or its bytes cannot be counted now. Waits for
    /// the thread that reads it.
    pub fn stop_lane(&self, lane: u8) -> Option<Stopped> {
        self.shared.bulk.stop_lane(lane)
    }

    /// The links to other workers, for accepting their connections.
    pub(crate) fn links(&self) -> &Links {
        &self.shared.links
    }

    /// Takes a connection of another worker that has proved its link's secret. `received`: the bytes that the other end
    /// has received over earlier connections of its lane.
    pub(crate) fn attach_peer(&self, place: LinkSeat, line: Line, received: u64) {
        place.take(&self.shared.links, line, received);
    }

    /// Tells the client why its session ends. The client ignores all later messages.
    pub fn send_close_reason(&self, reason: &str) {
        self.shared.outbox.close_reason(reason);
    }

    /// Stops the transfers and links, because the client is gone or has ended the session. If there are
    /// builds that are not in the cache yet, releases the objects and stores the builds, for `store_within` at
    /// most. The process then exits without running destructors.
    pub fn end(&self, store_within: Duration) {
        let until = Instant::now() + store_within;
        self.shared.bulk.stop();
        self.shared.links.stop();
        if store_within.is_zero() || !self.shared.builder.end() {
            // The exit frees the driver's memory, buffers and kernels.
            return;
        }
        // Other sessions may need the memory and the queues while the driver makes the binaries. The builds
        // keep their programs and contexts. A driver's release may wait for a kernel, and the stores must not.
        let shared = Arc::clone(&self.shared);
        let release = std::thread::Builder::new().name("release".into());
        drop(release.spawn(move || shared.release_objects()));
        self.shared.builder.finish(until);
    }

    /// Ends the waits of the thread that applies commands, because the session ends and its host goes on. The
    /// client's further commands are not applied.
    pub fn leave(&self) {
        self.shared.over.set();
        if let Some(seat) = self.shared.outbox.printed().seat() {
            seat.leave();
        }
        self.shared.paces.each(Pace::leave);
    }

    /// How the session, which begins to end, gets on beside its neighbours; `None` in a worker of its own.
    pub fn standing(&self) -> Option<Standing> {
        let commons = Arc::clone(self.shared.commons.as_ref()?);
        let own = Arc::clone(self.shared.outbox.progress());
        let left = Instant::now();
        Some(Standing { commons, own, left })
    }

    /// Releases everything that the session has made, because its host goes on. Stores its builds in the cache, for
    /// `store_within` at most. Called after [`Session::leave`], when the session's connections are shut down and
    /// nothing applies its commands any more.
    ///
    /// Waits until the driver has ended the session's commands and nothing native is left. So this does not
    /// return if a kernel never ends. The supervisor then ends the host.
    pub fn release(self, store_within: Duration) {
        let Session { shared, gone, .. } = self;
        let until = Instant::now() + store_within;
        let (bulk, scope) = (Arc::clone(&shared.bulk), shared.scope.clone());
        bulk.stop();
        shared.links.drop_all();
        shared.freed.stop();
        shared.outbox.stop();
        let has_builds = shared.builder.end() && !store_within.is_zero();
        // Before the transfers are given up, because the end of one lets the graph begin the next.
        let (objects, svm) = shared.take_objects();
        let contexts = std::mem::take(&mut *shared.contexts.lock());
        let give_up = || {
            bulk.give_up_all();
            for context in contexts.iter().filter_map(Weak::upgrade) {
                context.drop_staging();
            }
        };
        give_up();
        drop(objects);
        if has_builds {
            shared.builder.finish(until);
        }
        shared.builder.stop();
        if shared.builder.is_busy()
            && let Some(builds) = &shared.builds
        {
            builds.note_building();
        }
        let outbox = Arc::downgrade(&shared.outbox);
        drop(shared);
        gone.commands.wait_with(|| {
            // A thread may have begun a transfer just before the graph was taken away.
            give_up();
            bulk.run_left_jobs();
            // The outbox keeps ended commands for a thread that may call the driver, and each keeps the outbox.
            drop(outbox.upgrade().map(|outbox| outbox.take_spent()));
        });
        // The driver has ended all commands, and no thread can begin another.
        drop(svm);
        gone.contexts.wait();
        bulk.end_jobs();
        drop(bulk);
        scope.wait_until_alone(None);
    }
}

/// Starts the threads that every session has.
fn start_threads(shared: &Arc<Shared>) {
    let (scope, outbox) = (&shared.scope, &shared.outbox);
    if shared.commons.is_none() {
        let outbox = Arc::clone(outbox);
        scope.spawn("printf", move || {
            while outbox.printed().wait() {
                outbox.wait_for_room();
                outbox.text_waits();
            }
        });
    }
    scope.spawn("flusher", {
        let outbox = Arc::clone(outbox);
        move || outbox.tick()
    });
    scope.spawn("keeper", {
        let shared = Arc::clone(shared);
        move || {
            while !shared.over.pause(KEEPING) {
                // First, because messages may wait for it.
                neighbours::look_for_spoiled_contexts(&shared);
                shared.clean_up();
            }
            neighbours::leave_suspicion(&shared);
        }
    });
}

/// Makes the outbox, and tells the neighbours of it.
fn outbox(
    start: &SessionStart,
    node: &Preloaded,
    events: Arc<dyn EventSink>,
    ended: Alive,
) -> Arc<Outbox> {
    let printed = printed(start.commons.as_deref());
    let account = start.account.clone();
    let busy = Busy::new(account.clone(), node.0.names());
    let outbox = Arc::new(Outbox::new(events, printed, account, busy, ended));
    if let Some(commons) = &start.commons {
        commons.progresses.add(outbox.progress());
        if start.reexecutes {
            outbox.withhold_suspects();
        }
    }
    if let Some(seat) = outbox.printed().seat() {
        let wake = Arc::downgrade(&outbox);
        seat.wakes(wake);
    }
    outbox
}

/// Returns where the text of a session's kernels comes from.
fn printed(commons: Option<&Commons>) -> Printed {
    if let Some(commons) = commons {
        let console = commons.console.as_ref();
        return console.map_or_else(|| Printed::new(None), |console| Printed::at(console.seat()));
    }
    let captured = stdout::capture();
    if let Err(error) = &captured {
        tracing::warn!(%error, "cannot capture standard output, so the output of kernels' printf is lost");
    }
    Printed::new(captured.ok())
}
