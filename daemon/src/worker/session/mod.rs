//! One session: its objects, its commands, its events.
//!
//! The path of a launch: the carrier's reading thread decodes a batch and calls [`Session::apply`];
//! [`apply`] finds the objects and [`enqueue`] makes a task of the command, with its arguments as of its
//! place in the stream; the [`graph`] says whether it may go; [`run`] sets what arguments differ,
//! enqueues it natively on this same thread and has the driver call back at its end. The driver's
//! thread makes a completion of the [`command`] and puts it into the [`outbox`], which sends it from
//! that thread. No thread is woken on the way. Small writes and reads go the same way, their bytes
//! inside command and completion; large ones end in [`crate::bulk`].
//!
//! - [`objects`], [`arguments`], [`command`]: what the client's ids name; [`leased`]: of which devices; [`sub_devices`]: and
//!   parts of these;
//! - [`graph`]: which command may go when, pure;
//! - [`apply`], [`images`], [`pipes`], [`device_queues`], [`enqueue`], [`query`], [`program`]: the verbs; builds have
//!   threads of their own;
//! - [`command_buffers`]: commands that are kept to be enqueued again and again;
//! - [`run`]: to the native queues; [`unseen`]: the shorter way of what nobody looks at; [`outbox`], [`printed`]: back to the client;
//! - [`links`], [`mirrors`]: to and from the client's sessions on other nodes.
//!
//! Threads that enter the driver: the reading thread, the builder's, the bulk lanes', the mirrors', which runs
//! what other workers' words have freed, and the keeper, which releases what ended while the reading
//! thread had nothing to do. A driver's callback thread only asks for profiling times.
//!
//! What it is not: it does not know what carries its commands. Invariants: commands are applied once
//! each, in the order of their numbers; everything that an id names is looked up; no lock of the
//! session is held while the driver may block, or while the client is told something.
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
mod unseen;

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
pub(super) use self::program::compile_for_cache;
use self::run::Runner;
use super::connection::{EventSink, SessionLimits, SessionStart};
use crate::accounting::{Counter, Slot};
use crate::build_cache;
use crate::bulk::Engine;
use crate::runtime::node::Node;
use crate::runtime::stdout;
use crate::runtime::watch::Enqueuing;

/// Objects beyond the limit that a client may name, though they were not made.
const BROKEN: usize = 1 << 20;

/// How often the keeper looks for ended commands that are not forgotten yet.
const KEEPING: Duration = Duration::from_millis(200);

/// The node's OpenCL, loaded and listed, before it is known whose session it will serve.
///
/// A spare worker makes one and waits. No context is made for it.
#[derive(Debug)]
pub struct Preloaded(Node);

impl Preloaded {
    /// Loads the OpenCL library, lists platforms and devices in the inventory's order.
    #[must_use]
    pub fn load() -> Preloaded {
        Preloaded(Node::load())
    }
}

/// The client broke the protocol; its session ends.
#[derive(Debug, thiserror::Error)]
pub enum Violation {
    /// A command's number is not the one after its predecessor's.
    #[error("command {got} came where {expected} was due")]
    Gap {
        /// The number due.
        expected: u64,
        /// The number that came.
        got: u64,
    },
    /// What is named does not exist.
    #[error("{0} does not exist")]
    Unknown(String),
    /// A new object's id is in use.
    #[error("{0} exists already")]
    Taken(String),
    /// More objects than a session may have, and far more.
    #[error(
        "the session has far more objects than the {BROKEN} beyond its limit that are kept as failed; \
         release them, or raise `[sessions] objects` on the node"
    )]
    TooMany,
    /// What no client of ours sends.
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

/// What all threads of a session share.
pub(crate) struct Shared {
    pub(crate) node: Arc<Node>,
    pub(crate) limits: SessionLimits,
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) builder: Builder,
    pub(crate) bulk: Engine,
    pub(crate) links: Links,
    pub(crate) freed: Freed,
    pub(crate) part: Part,
    /// What the session uses is counted there.
    pub(crate) account: Slot,
    pub(crate) builds: Option<Arc<build_cache::Client>>,
    // Commands in native queues whose end nobody looks at.
    pub(crate) unseen: Arc<AtomicUsize>,
    pub(crate) core: Mutex<Core>,
}

/// Tables and graph, behind one short lock.
#[derive(Default)]
pub(crate) struct Core {
    pub(crate) objects: Objects,
    pub(crate) graph: Graph<Arc<Command>, Task>,
    pub(crate) held_bytes: usize,
    // Grows with every enqueue: numbers the changes of arguments.
    pub(crate) version: u64,
    pub(crate) early: Early,
    // The largest event's id: whether an unknown one may have ended.
    newest_event: Option<EventId>,
    // Forgotten where the driver may not be entered: for the next to clean up.
    parked: Vec<Spent>,
}

impl Core {
    /// Whether one more object or event fits: then the driver may be asked for it. What does not fit is kept as broken
    /// with the status, so that the client may name it.
    ///
    /// # Errors
    /// [`Violation::TooMany`] when even the broken ones are too many.
    pub(crate) fn room(&mut self, shared: &Shared) -> Result<Result<(), Status>, Violation> {
        let most = shared.limits.objects;
        if self.count(shared) >= most {
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
        let unseen = shared.unseen.load(Ordering::Relaxed);
        self.objects.count() + self.graph.events() + unseen
    }

    /// Adds the event of a user event or mirror.
    pub(crate) fn add_user_event(&mut self, event: &Arc<Command>) -> Result<(), graph::Unknown> {
        self.newest_event = self.newest_event.max(Some(event.id()));
        self.graph.add_user_event(event.id(), Arc::clone(event))
    }

    /// A new command, as the graph takes it.
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

    /// An event that the client or another worker names. None: it has ended well, and is forgotten.
    ///
    /// # Errors
    /// [`Violation`] when it never was.
    pub(crate) fn named(&self, event: EventId) -> Result<Option<Arc<Command>>, Violation> {
        match self.graph.get(event) {
            Some(found) => Ok(Some(Arc::clone(found))),
            None if Some(event) <= self.newest_event => Ok(None),
            None => Err(Violation::Unknown(format!("{event:?}"))),
        }
    }

    /// A user event or mirror has ended in the graph.
    pub(crate) fn forget_if_well(&mut self, event: EventId, status: Status) {
        if !status.is_error() {
            self.graph.release(event);
        }
    }

    // What has ended well is not needed any more, whether the client releases it or not: a wait list that names it is
    // shorter by it. What has failed stays until the client releases it, because it fails what names it.
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

    /// Forgets what has ended. The calling thread may enter the driver.
    pub(crate) fn clean_up(&self) {
        let spent = self.outbox.take_spent();
        let parked = {
            let mut core = self.core.lock();
            core.forget(&spent);
            std::mem::take(&mut core.parked)
        };
        drop((spent, parked));
    }

    /// A held command is no longer held.
    pub(crate) fn let_go(&self, task: &Task) {
        if task.bytes > 0 {
            let mut core = self.core.lock();
            core.held_bytes = core.held_bytes.saturating_sub(task.bytes);
        }
    }
}

/// A session in its worker.
pub struct Session {
    shared: Arc<Shared>,
    next: Mutex<u64>,
}

impl Session {
    /// Begins: captures the process's standard output for kernels' `printf` (until then it is
    /// `/dev/null`), starts the session's threads.
    #[must_use]
    pub fn start(start: SessionStart, node: Preloaded, events: Arc<dyn EventSink>) -> Session {
        let captured = stdout::capture();
        if let Err(error) = &captured {
            tracing::warn!(%error, "kernels' printf will not be shown");
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
            unseen: Arc::default(),
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

    /// Applies a batch and empties it, so that its memory can be used again. Called by one thread at a time, in the
    /// order of arrival.
    ///
    /// # Errors
    /// [`Violation`] ends the session: the service logs it and the process exits.
    pub fn apply(&self, batch: &mut CommandBatch) -> Result<(), Violation> {
        let mut next = self.next.lock();
        if batch.first != *next && !batch.commands.is_empty() {
            return Err(Violation::Gap {
                expected: *next,
                got: batch.first,
            });
        }
        self.shared.bulk.note_batch();
        let count = batch.commands.len() as u64;
        let mut runner = Runner::of_batch(&self.shared, batch.commands.len());
        let enqueuing = Enqueuing::begin();
        let mut commands = batch.commands.drain(..).peekable();
        while let Some(command) = commands.next() {
            let followed = commands
                .peek()
                .is_some_and(|behind| unseen::follows(&command, behind));
            apply::apply(&self.shared, command, followed, &mut runner)?;
            *next += 1;
        }
        drop(runner);
        drop(enqueuing);
        self.shared.account.add(Counter::Commands, count);
        self.shared.outbox.applied(*next - 1);
        self.shared.clean_up();
        Ok(())
    }

    /// Takes a further bulk connection; the session reads and writes it from threads of its own.
    pub fn attach_bulk(&self, lane: u8, stream: Stream) {
        self.shared.bulk.attach(&self.shared, lane, stream);
    }

    /// The links to other workers, for the connections that those open.
    pub(crate) fn links(&self) -> &Links {
        &self.shared.links
    }

    /// Takes a connection of another worker, which has proved its link's secret.
    pub(crate) fn attach_peer(&self, place: Place, line: Line) {
        place.take(&self.shared, line);
    }

    /// Tells the client why its session ends. What is said later, it does not look at.
    pub fn say_farewell(&self, reason: &str) {
        self.shared.outbox.farewell(reason);
    }

    /// The client is gone or said goodbye: stop what can be stopped, within `limit`. The process exits
    /// afterwards in any case, without running destructors.
    pub fn end(&self, _limit: Duration) {
        // Nothing outlives the process: the driver's own memory, buffers and kernels go with it.
        self.shared.bulk.stop();
        self.shared.links.stop();
    }
}

/// Ends the process, which serves only this session: something is missing that the client would wait for
/// in vain. Without destructors, because a driver's may wait as well.
pub(crate) fn broken(what: &str) -> ! {
    tracing::error!(what, "the session cannot go on");
    std::process::abort()
}

/// Starts a thread that the session cannot do without; if there is none to be had, the session ends.
pub(crate) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) {
    let started = std::thread::Builder::new().name(name.into()).spawn(work);
    if let Err(error) = started {
        broken(&format!(
            "the thread {name:?} could not be started: {error}"
        ));
    }
}
