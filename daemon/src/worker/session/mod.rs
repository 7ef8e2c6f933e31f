//! One session: its objects, its commands, its events.
//!
//! The path of a launch: the carrier's reading thread decodes a batch and calls [`Session::apply`].
//! [`apply`] looks up the objects. [`enqueue`] turns the command into a task, with its arguments as of
//! this point of the stream. The [`graph`] decides whether the task may run. [`run`] sets the arguments
//! that differ and enqueues the task natively on the same thread. At its end, the driver's thread makes a
//! completion of the [`command`] and puts it into the [`outbox`], which sends it on that thread. No
//! thread has to wake up on the way. Small writes and reads carry their bytes inside command and
//! completion. Large ones use [`crate::bulk`].
//!
//! - [`objects`], [`arguments`], [`command`]: the objects behind the client's ids; [`leased`],
//!   [`sub_devices`]: their devices and sub-devices;
//! - [`graph`]: the order of commands, pure;
//! - [`apply`], [`images`], [`pipes`], [`device_queues`], [`enqueue`], [`query`], [`program`]: applying
//!   each kind of command; builds have threads of their own;
//! - [`command_buffers`]: recorded commands that are enqueued repeatedly;
//! - [`run`]: native enqueues; [`unobserved`]: the shorter path of unobserved commands; [`outbox`],
//!   [`printed`]: sending to the client;
//! - [`links`], [`mirrors`]: the client's sessions on other nodes.
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
pub(crate) mod command;
mod command_buffers;
mod device_queues;
pub(crate) mod enqueue;
mod graph;
pub(crate) mod hash;
mod images;
mod leased;
pub(crate) mod links;
mod mirrors;
pub(crate) mod objects;
mod outbox;
mod pipes;
mod printed;
mod program;
mod query;
pub(crate) mod run;
pub(crate) mod sub_devices;
mod svm;
mod unobserved;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use causeway_lane::Stream;
use causeway_proto::command::CommandBatch;
use causeway_proto::id::{EventId, QueueId};
use causeway_proto::status::Status;
use causeway_security::Line;
use parking_lot::Mutex;

use self::command::Command;
use self::enqueue::Task;
use self::graph::{Graph, Role};
use self::leased::Part;
use self::links::{Links, Place};
use self::mirrors::{Early, Freed};
use self::objects::Objects;
use self::outbox::{Outbox, Spent};
use self::printed::Printed;
use self::program::builder::Builder;
use self::run::Runner;
use super::connection::{EventSink, SessionLimits, SessionStart};
use crate::accounting::{Counter, Slot};
use crate::build_cache;
use crate::bulk::Engine;
use crate::runtime::node::Node;
use crate::runtime::stdout;
use crate::runtime::watch::Enqueuing;

/// Number of objects beyond the limit that a client may name. The node does not make these;
/// they are kept as failed.
const BROKEN: usize = 1 << 20;

/// How often the keeper looks for ended commands that are not forgotten yet.
const KEEPING: Duration = Duration::from_millis(200);

/// The node's OpenCL, loaded and listed before the worker has a session.
///
/// A spare worker loads it and waits. No context is made before a session starts.
#[derive(Debug)]
pub struct Preloaded(Node);

impl Preloaded {
    /// Loads the OpenCL library and lists platforms and devices in the inventory's order.
    #[must_use]
    pub fn load() -> Preloaded {
        Preloaded(Node::load())
    }
}

/// The client violated the protocol; its session ends.
#[derive(Debug, thiserror::Error)]
pub enum Violation {
    /// A command's number is not its predecessor's plus one.
    #[error("the client sent command {got}, but command {expected} was expected")]
    Gap {
        /// The expected number.
        expected: u64,
        /// The received number.
        got: u64,
    },
    /// The client named an object or event that does not exist.
    #[error("the client named {0}, which does not exist")]
    Unknown(String),
    /// The id of a new object is in use.
    #[error("the client created {0}, which exists already")]
    Taken(String),
    /// The client made far more objects than a session may have.
    #[error(
        "the session has far more objects than the {BROKEN} beyond its limit that are kept as failed; \
         release them, or raise `[sessions] objects` on the node"
    )]
    TooMany,
    /// A message that no Causeway client sends.
    #[error("{0}")]
    Malformed(&'static str),
}

impl From<graph::Unknown> for Violation {
    fn from(unknown: graph::Unknown) -> Violation {
        match unknown {
            graph::Unknown::Event(id) => Violation::Unknown(format!("{id:?}")),
            graph::Unknown::Queue(id) => Violation::Unknown(format!("{id:?}")),
            graph::Unknown::Taken(id) => Violation::Taken(format!("{id:?}")),
        }
    }
}

/// The data that all threads of a session share.
pub(crate) struct Shared {
    pub(crate) node: Arc<Node>,
    pub(crate) limits: SessionLimits,
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) builder: Builder,
    pub(crate) bulk: Engine,
    pub(crate) links: Links,
    pub(crate) freed: Freed,
    pub(crate) part: Part,
    /// Where the session counts its usage.
    pub(crate) account: Slot,
    pub(crate) builds: Option<Arc<build_cache::Client>>,
    // Number of unobserved commands in native queues.
    pub(crate) unobserved: Arc<AtomicUsize>,
    pub(crate) core: Mutex<Core>,
}

/// The session's tables and graph, behind one short lock.
#[derive(Default)]
pub(crate) struct Core {
    pub(crate) objects: Objects,
    pub(crate) graph: Graph<Arc<Command>, Task>,
    pub(crate) held_bytes: usize,
    // Grows with every enqueue; numbers the changes of arguments.
    pub(crate) version: u64,
    pub(crate) early: Early,
    // The largest event id so far. An unknown event up to this id has ended.
    newest_event: Option<EventId>,
    // Ended commands that were forgotten where the driver must not be called. The next clean-up drops them.
    parked: Vec<Spent>,
}

impl Core {
    /// Checks whether one more object or event fits, before the driver is asked for it. If not, returns
    /// the status with which the caller keeps the object as broken, because the client may name it.
    ///
    /// # Errors
    /// [`Violation::TooMany`] when there are too many broken objects as well.
    pub(crate) fn room(&mut self, shared: &Shared) -> Result<Result<(), Status>, Violation> {
        let most = shared.limits.objects;
        if self.count(shared) >= most {
            // Ended commands that are not forgotten yet still count, so forget them first.
            let spent = shared.outbox.take_spent();
            self.forget(&spent);
            self.parked.push(spent);
        }
        match self.count(shared) {
            count if count < most => Ok(Ok(())),
            count if count < most + BROKEN => Ok(Err(Status::OUT_OF_HOST_MEMORY)),
            _ => Err(Violation::TooMany),
        }
    }

    fn count(&self, shared: &Shared) -> usize {
        let unobserved = shared.unobserved.load(Ordering::Relaxed);
        self.objects.count() + self.graph.events() + unobserved
    }

    /// Adds a user event or a mirror.
    pub(crate) fn add_user_event(&mut self, event: &Arc<Command>) -> Result<(), graph::Unknown> {
        self.newest_event = self.newest_event.max(Some(event.id()));
        self.graph.add_user_event(event.id(), Arc::clone(event))
    }

    /// Adds a command to the graph. Returns its task if it may run now.
    pub(crate) fn submit(
        &mut self,
        event: Arc<Command>,
        queue: QueueId,
        waits: &[EventId],
        role: Role,
        task: Task,
    ) -> Result<Option<Task>, graph::Unknown> {
        self.newest_event = self.newest_event.max(Some(event.id()));
        let id = event.id();
        self.graph.submit(id, event, queue, waits, role, task)
    }

    /// Finds an event that the client or another worker names. Returns `None` if it has ended
    /// well and is forgotten.
    ///
    /// # Errors
    /// [`Violation`] when the event never existed.
    pub(crate) fn named(&self, event: EventId) -> Result<Option<Arc<Command>>, Violation> {
        match self.graph.get(event) {
            Some(found) => Ok(Some(Arc::clone(found))),
            None if Some(event) <= self.newest_event => Ok(None),
            None => Err(Violation::Unknown(format!("{event:?}"))),
        }
    }

    /// Forgets a user event or mirror that has ended well.
    pub(crate) fn forget_if_well(&mut self, event: EventId, status: Status) {
        if !status.is_error() {
            self.graph.release(event);
        }
    }

    // Forgets commands that have ended well, whether the client has released them or not:
    // wait lists just omit them. A failed command stays until the client releases it, because
    // it fails the commands that wait for it.
    fn forget(&mut self, spent: &Spent) {
        for command in &spent.commands {
            if command.status() == Some(Status::SUCCESS) {
                self.graph.release(command.id());
            }
        }
    }
}

impl Shared {
    /// As [`Core::room`].
    ///
    /// # Errors
    /// As [`Core::room`].
    pub(crate) fn room(&self) -> Result<Result<(), Status>, Violation> {
        self.core.lock().room(self)
    }

    /// Forgets ended commands. The calling thread must be one that may call the driver.
    pub(crate) fn clean_up(&self) {
        let spent = self.outbox.take_spent();
        let parked = {
            let mut core = self.core.lock();
            core.forget(&spent);
            std::mem::take(&mut core.parked)
        };
        // Dropped outside the lock, because the drop calls the driver.
        drop((spent, parked));
    }

    /// Subtracts the bytes of a command that is no longer held back.
    pub(crate) fn let_go(&self, task: &Task) {
        if task.bytes > 0 {
            let mut core = self.core.lock();
            core.held_bytes = core.held_bytes.saturating_sub(task.bytes);
        }
    }
}

/// A session in its worker process.
pub struct Session {
    shared: Arc<Shared>,
    next: Mutex<u64>,
}

impl Session {
    /// Starts a session and its threads. Captures the process's standard output, which is `/dev/null`
    /// until then, for kernels' `printf`.
    #[must_use]
    pub fn start(start: SessionStart, node: Preloaded, events: Arc<dyn EventSink>) -> Session {
        let captured = stdout::capture();
        if let Err(error) = &captured {
            tracing::warn!(%error, "cannot capture standard output, so the output of kernels' printf is lost");
        }
        let outbox = Arc::new(Outbox::new(events, Printed::new(captured.ok())));
        let shared = Arc::new(Shared {
            node: Arc::new(node.0),
            limits: start.limits,
            outbox: Arc::clone(&outbox),
            builder: Builder::default(),
            bulk: Engine::default(),
            links: Links::new(start.id),
            freed: Freed::default(),
            part: Part::new(
                start.limits.device_memory,
                start.leased.as_deref(),
                &start.account,
            ),
            account: start.account,
            builds: start.builds,
            unobserved: Arc::default(),
            core: Mutex::default(),
        });
        spawn("printf", {
            let outbox = Arc::clone(&outbox);
            move || {
                while outbox.printed().wait() {
                    outbox.text_waits();
                }
            }
        });
        spawn("flusher", {
            let outbox = Arc::clone(&outbox);
            move || outbox.tick()
        });
        spawn("keeper", {
            let shared = Arc::clone(&shared);
            move || {
                loop {
                    std::thread::sleep(KEEPING);
                    shared.clean_up();
                }
            }
        });
        Session {
            shared,
            next: Mutex::new(1),
        }
    }

    /// Applies a batch and empties it, so that its memory can be reused. Only one thread at a time may
    /// call this, in the order of arrival.
    ///
    /// # Errors
    /// [`Violation`]: the service logs it and the process exits.
    pub fn apply(&self, batch: &mut CommandBatch) -> Result<(), Violation> {
        let mut next = self.next.lock();
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

    /// Takes a further bulk connection. The session reads and writes it on its own threads.
    pub fn attach_bulk(&self, lane: u8, stream: Stream) {
        self.shared.bulk.attach(&self.shared, lane, stream);
    }

    /// The links to other workers, for accepting their connections.
    pub(crate) fn links(&self) -> &Links {
        &self.shared.links
    }

    /// Takes a connection of another worker that has proved its link's secret.
    pub(crate) fn attach_peer(&self, place: Place, line: Line) {
        place.take(&self.shared, line);
    }

    /// Tells the client why its session ends. The client ignores all later messages.
    pub fn send_close_reason(&self, reason: &str) {
        self.shared.outbox.close_reason(reason);
    }

    /// Stops the transfers and links, because the client is gone or has ended the session. Then stores the
    /// builds that are not in the cache yet, for `store_within` at most. The process then exits without
    /// running destructors.
    pub fn end(&self, store_within: Duration) {
        // The exit frees the driver's memory, buffers and kernels.
        self.shared.bulk.stop();
        self.shared.links.stop();
        self.shared.builder.finish(store_within);
    }
}

/// Ends the process, which serves only this session, because the client would otherwise wait for ever.
/// Runs no destructors, because a driver's may block too.
pub(crate) fn broken(what: &str) -> ! {
    tracing::error!(what, "the session cannot continue, so its worker aborts");
    std::process::abort()
}

/// Starts a thread that the session needs. If the system cannot start it, the session ends.
pub(crate) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) {
    let started = std::thread::Builder::new().name(name.into()).spawn(work);
    if let Err(error) = started {
        broken(&format!("cannot start the thread {name:?}: {error}"));
    }
}
