//! What all threads of a session share: its parts, and its tables and graph behind one lock.
//!
//! Invariant: no thread holds the lock while the driver may block or a message is sent.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use causeway_proto::id::{EventId, QueueId};
use causeway_proto::status::Status;
use parking_lot::Mutex;

use super::commands::Submitted;
use super::early::Early;
use super::freed::Freed;
use super::graph::{self, Graph, Role};
use super::links::Links;
use super::parking::Parking;
use super::program::builder::Builder;
use super::tables::Objects;
use super::violation::{BROKEN, Violation};
use crate::accounting::LedgerSlot;
use crate::build_cache;
use crate::runtime::node::Node;
use crate::worker::bulk::Engine;
use crate::worker::connection::SessionLimits;
use crate::worker::objects::command::Command;
use crate::worker::objects::commons::{Alive, Commons};
use crate::worker::objects::leased::NodeShare;
use crate::worker::objects::outbox::{Outbox, Spent};
use crate::worker::objects::pace::{DeviceKey, Devices, Pace};
use crate::worker::objects::warm::Warm;
use crate::worker::objects::{Context, Memory};
use crate::worker::threads::{Over, Scope};

/// The session's paces on its devices.
#[derive(Default)]
pub(crate) struct Paces(Mutex<HashMap<DeviceKey, Arc<Pace>>>);

impl Paces {
    /// Calls `each` with every pace.
    pub(crate) fn each(&self, each: impl Fn(&Pace)) {
        self.0.lock().values().for_each(|pace| each(pace));
    }
}

/// The data that all threads of a session share.
pub(crate) struct Shared {
    pub(crate) node: Arc<Node>,
    pub(crate) limits: SessionLimits,
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) builder: Builder,
    pub(crate) bulk: Arc<Engine>,
    pub(crate) links: Arc<Links>,
    pub(crate) freed: Freed,
    pub(crate) share: NodeShare,
    /// Where the session counts its usage.
    pub(crate) account: LedgerSlot,
    pub(crate) builds: Option<Arc<build_cache::Client>>,
    /// The threads of the session.
    pub(crate) scope: Scope,
    /// What the session shares with its neighbours; `None` outside of a host.
    pub(crate) commons: Option<Arc<Commons>>,
    /// The contexts that were made before the session.
    pub(crate) warm: Arc<Warm>,
    /// Whether another worker may execute the session's commands again.
    pub(crate) reexecutes: bool,
    /// The contexts that the session has made in a host, whose staging memory its end releases.
    pub(crate) contexts: Mutex<Vec<Weak<Context>>>,
    /// The session's paces on its devices, as far as it may have neighbours there.
    pub(crate) paces: Paces,
    /// Whether and how far the session is parked or put together again.
    pub(crate) parking: Parking,
    /// Set when the session has ended in its host.
    pub(crate) over: Over,
    pub(crate) core: Mutex<Core>,
    /// Dropped after everything else.
    pub(crate) alive: Alive,
    pub(crate) _ended: Alive,
}

/// The session's tables and graph, behind one short lock.
#[derive(Default)]
pub(crate) struct Core {
    pub(crate) objects: Objects,
    pub(crate) graph: Graph<Arc<Command>, Submitted>,
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
        let unobserved = shared.outbox.unobserved();
        self.objects.count() + self.graph.events() + unobserved
    }

    /// Adds a user event or a mirror.
    pub(crate) fn add_user_event(&mut self, event: &Arc<Command>) -> Result<(), graph::GraphError> {
        self.newest_event = self.newest_event.max(Some(event.id()));
        self.graph.add_user_event(event.id(), Arc::clone(event))
    }

    /// Adds a command to the graph. Returns the command if it may run now.
    pub(crate) fn submit(
        &mut self,
        event: Arc<Command>,
        queue: QueueId,
        waits: &[EventId],
        role: Role,
        submitted: Submitted,
    ) -> Result<Option<Submitted>, graph::GraphError> {
        self.newest_event = self.newest_event.max(Some(event.id()));
        let id = event.id();
        self.graph.submit(id, event, queue, waits, role, submitted)
    }

    /// The largest event id so far.
    pub(super) fn newest_event(&self) -> Option<EventId> {
        self.newest_event
    }

    /// Takes the events up to `newest` for ended, unless they are added.
    pub(super) fn begin_behind(&mut self, newest: Option<EventId>) {
        self.newest_event = self.newest_event.max(newest);
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

    /// Returns the session's pace on a root device, if it may have neighbours there or its share has a `time`.
    pub(crate) fn pace(&self, device: DeviceKey) -> Option<Arc<Pace>> {
        let turn = self.share.turn(device.0, device.1);
        let devices = self.commons.as_ref().map(|commons| &commons.devices);
        if devices.is_none() && turn.is_none() {
            return None;
        }
        let mut paces = self.paces.0.lock();
        let pace = paces.entry(device).or_insert_with(|| match devices {
            Some(devices) => devices.pace(device, turn),
            None => Devices::default().pace(device, turn),
        });
        Some(Arc::clone(pace))
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

    /// Releases all objects, because the client is gone. Late commands of the client then find none of them.
    pub(crate) fn release_objects(&self) {
        let core = std::mem::take(&mut *self.core.lock());
        // `clSVMFree` waits for no command, so only the exit frees this memory.
        for memory in core.objects.memory.values() {
            if memory
                .native()
                .is_ok_and(|native| native.svm_address().is_some())
            {
                std::mem::forget(Arc::clone(memory));
            }
        }
        // Dropped outside the lock, because the drop calls the driver.
        drop((core, self.outbox.take_spent()));
    }

    /// Takes all objects out of the tables, to be dropped by the caller. Shared virtual memory is apart,
    /// because `clSVMFree` waits for no command.
    pub(crate) fn take_objects(&self) -> (Box<dyn Send>, Vec<Arc<Memory>>) {
        let core = std::mem::take(&mut *self.core.lock());
        let memory = core.objects.memory.values();
        let is_svm = |memory: &&Arc<Memory>| {
            let native = memory.native();
            native.is_ok_and(|native| native.svm_address().is_some())
        };
        let svm = memory.filter(is_svm).map(Arc::clone).collect();
        (Box::new((core, self.outbox.take_spent())), svm)
    }

    /// Subtracts the bytes of a command that is no longer held back.
    pub(crate) fn let_go(&self, submitted: &Submitted) {
        if submitted.bytes > 0 {
            let mut core = self.core.lock();
            core.held_bytes = core.held_bytes.saturating_sub(submitted.bytes);
        }
    }
}
