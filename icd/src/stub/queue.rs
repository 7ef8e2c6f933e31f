//! A command queue: fixes the order of its commands.
//!
//! [`Queue::enqueue`] takes every command. In a context of one site, `send.rs` sends it at once; in others
//! the context's sequence plans it first. Enqueueing never waits for an answer.

pub(in crate::stub) mod command;
pub mod device_queue;
pub(in crate::stub) mod encoded;
mod long_lists;
mod order;
pub(in crate::stub) mod precedence;
mod recent;
mod send;
mod unobserved;
mod unreported;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use causeway_proto::command::{CreateQueue, ObjectKind, command::Kind};
use causeway_proto::id::{EventId, QueueId};
use cl_headers::types::{
    CL_DEVICE_NAME, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, CL_QUEUE_PROFILING_ENABLE,
    CL_QUEUE_PROPERTIES,
};
use parking_lot::Mutex;

use self::order::Order;
pub(super) use self::order::{OrderClass, Standing};
use self::unreported::Unreported;
use crate::error::{ClResult, Status};
use crate::stub::device::timer;
use crate::stub::event::{EventSpec, Position};
use crate::stub::queue::command::{Enqueue, Enqueued};
use crate::stub::{Binding, Context, Device, Event, Site, next_id};
use crate::trace::{self, record::Record};
use crate::transport::waiting_next;

/// A command queue; see the module.
#[derive(Debug)]
pub struct Queue {
    pub(crate) binding: Binding,
    id: QueueId,
    // Whether dropping this stub releases the node's queue.
    owned: bool,
    context: Arc<Context>,
    site: Arc<Site>,
    device: Arc<Device>,
    properties: u64,
    property_list: Vec<u64>,
    // Whether the node's queue records times: the application wants them, or the program's trace.
    records_times: bool,
    order: Mutex<Order>,
    // Number of incomplete commands whose end the application can observe: it has the event, or the command
    // writes host memory.
    visible: AtomicUsize,
    // Failures that the application has not been told, except those caused by a failed wait list.
    unreported: Mutex<Unreported>,
    // The last blocking command that returned before it was complete.
    early_return: Mutex<Weak<Event>>,
}

impl Queue {
    /// Makes a queue on `device`. `properties` are the bits of `CL_QUEUE_PROPERTIES`. `property_list` is
    /// the list as the application gave it: with the terminating 0, or empty for none.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the session is lost.
    pub fn new(
        context: Arc<Context>,
        device: Arc<Device>,
        properties: u64,
        property_list: Vec<u64>,
    ) -> ClResult<Arc<Queue>> {
        let id = QueueId(next_id());
        let traced = if trace::is_on() {
            CL_QUEUE_PROFILING_ENABLE
        } else {
            0
        };
        let wire = wire_properties(&property_list, properties | traced);
        let site = context.site_of(&device).clone();
        site.send(Kind::CreateQueue(CreateQueue {
            queue: id.0,
            context: site.context().0,
            device: device.index().0,
            properties: wire,
            traced: trace::is_on(),
        }))?;
        let mut queue = Queue::bare(id, context, site, device);
        queue.properties = properties;
        queue.records_times = (properties | traced) & CL_QUEUE_PROFILING_ENABLE != 0;
        queue.trace_name();
        queue.property_list = property_list;
        let queue = Arc::new(queue);
        // With a second queue, the application could observe that a blocking command on the first returned
        // early.
        for other in queue.context.add_queue(&queue) {
            other.settle_early_return();
        }
        Ok(queue)
    }

    fn bare(id: QueueId, context: Arc<Context>, site: Arc<Site>, device: Arc<Device>) -> Queue {
        Queue {
            binding: Binding::default(),
            id,
            owned: true,
            context,
            site,
            device,
            properties: 0,
            property_list: Vec::new(),
            records_times: false,
            order: Mutex::default(),
            visible: AtomicUsize::new(0),
            unreported: Mutex::default(),
            early_return: Mutex::default(),
        }
    }

    /// Returns a stub of the context's internal in-order queue, which runs work that belongs to no queue of
    /// the application, such as initial contents. The node's queue lives as long as the context, so this
    /// stub may be dropped at any time.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the session is lost.
    pub fn of_context(context: &Arc<Context>) -> ClResult<Arc<Queue>> {
        let device = context.devices()[0].clone();
        let is_traced = trace::is_on();
        let mut properties = Vec::new();
        if is_traced {
            properties = wire_properties(&[], CL_QUEUE_PROFILING_ENABLE);
        }
        let id = context.own_queue(|id| {
            context.site().send(Kind::CreateQueue(CreateQueue {
                queue: id.0,
                context: context.site().context().0,
                device: device.index().0,
                properties,
                traced: is_traced,
            }))
        })?;
        let mut queue = Queue::bare(id, context.clone(), context.site().clone(), device);
        queue.owned = false;
        queue.records_times = is_traced;
        queue.trace_name();
        timer::prepare(&queue);
        Ok(Arc::new(queue))
    }

    /// Returns the queue's context.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Returns the site of the queue's device.
    #[must_use]
    pub fn site(&self) -> &Arc<Site> {
        &self.site
    }

    /// Returns the queue's device.
    #[must_use]
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Returns `CL_QUEUE_PROPERTIES`.
    #[must_use]
    pub fn properties(&self) -> u64 {
        self.properties
    }

    /// Returns `CL_QUEUE_PROPERTIES_ARRAY`, with the terminating 0; empty when the queue was made without a
    /// list.
    #[must_use]
    pub fn property_list(&self) -> &[u64] {
        &self.property_list
    }

    /// Whether commands run in the order in which they were enqueued.
    #[must_use]
    pub fn is_in_order(&self) -> bool {
        self.properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE == 0
    }

    /// Whether the node's queue records profiling times: for the application, or for the program's trace.
    #[must_use]
    pub fn records_times(&self) -> bool {
        self.records_times
    }

    // Reports the queue to the program's trace.
    fn trace_name(&self) {
        if trace::is_on() {
            trace::report(Record::Queue {
                queue: self.id.0,
                node: self.site.session().traced_node(),
                device: self.device.text(CL_DEVICE_NAME).to_owned(),
            });
        }
    }

    /// Whether an unset user event of the application might hold back a transfer that is enqueued now with
    /// this wait list. May return true wrongly, but never false wrongly.
    #[must_use]
    pub fn would_gate(&self, wait: &[Arc<Event>]) -> bool {
        let mut order = self.order.lock();
        order.would_gate(self.is_in_order(), OrderClass::Ordinary, wait)
    }

    /// Returns the incomplete commands that the application may hold back, oldest first.
    pub(super) fn gated_events(&self) -> Vec<Arc<Event>> {
        self.order.lock().gated.all()
    }

    /// Returns those of [`Queue::gated_events`] that the queue's order puts before an ordinary command
    /// enqueued now.
    pub(super) fn gated_before_next(&self) -> Vec<Arc<Event>> {
        let mut order = self.order.lock();
        order
            .earlier_gated(self.is_in_order(), OrderClass::Ordinary)
            .all()
    }

    /// Whether all commands whose end the application can observe have ended.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.visible.load(Ordering::Acquire) == 0
    }

    /// Whether a blocking command may return before it is complete, because the application cannot observe
    /// the difference. That needs an in-order queue, the only one of its context, without incomplete
    /// commands that the application can observe.
    #[must_use]
    pub fn is_private(&self) -> bool {
        self.is_in_order() && self.is_quiet() && self.context.has_one_queue()
    }

    /// Whether wait list and session allow to leave out a command that moves no bytes and has no event: all
    /// events of the wait list have succeeded, and the session is alive. The queue must also be idle
    /// ([`Queue::is_idle`]), because the command keeps mapped memory alive that earlier commands may still
    /// use.
    #[must_use]
    pub fn may_leave_out(&self, wait: &[Arc<Event>]) -> bool {
        !self.context.is_distributed()
            && wait.iter().all(|on| on.status() == 0)
            && self.site.session().is_lost().is_none()
    }

    /// Whether a command enqueued now would find no incomplete command before it in the queue's order.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.order.lock().is_first(self.is_in_order())
    }

    /// Records that a blocking command, the last of this queue, returns before it is complete. Returns
    /// false when the command has to wait after all, because the context has a second queue by now.
    #[must_use]
    pub fn note_early_return(&self, event: &Arc<Event>) -> bool {
        *self.early_return.lock() = Arc::downgrade(event);
        // A queue made concurrently either finds this event in `settle_early_return`, or is counted here.
        self.context.has_one_queue()
    }

    // Waits for a blocking command that returned early, because commands of another queue may depend on it.
    fn settle_early_return(&self) {
        let early_return = self.early_return.lock().upgrade();
        if let Some(event) = early_return {
            // `clFinish` reports the failure, like that of every early return.
            let _ = event.wait();
        }
    }

    /// Enqueues a command: the only way for all commands but launches, which have a fast path of their own
    /// (`Queue::send_launch`).
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the session is lost, `CL_OUT_OF_HOST_MEMORY` when the command is too
    /// large for the wire. In contexts of several sites, `CL_OUT_OF_RESOURCES` when bytes that the command
    /// needs are lost. Nothing is enqueued then.
    pub fn enqueue(self: &Arc<Self>, mut enqueue: Enqueue) -> ClResult<Enqueued> {
        enqueue.event.visible |= enqueue.command.writes_host();
        if trace::is_on() {
            enqueue.event.note = Some(Box::new(enqueue.command.note()));
        }
        let mut enqueue = self.split_migration(enqueue)?;
        let Some(distributed) = self.context.distributed() else {
            return self.send(enqueue);
        };
        enqueue.event.wait = self.fold(enqueue.event.wait)?;
        let event = distributed.enqueue(self, enqueue)?;
        Ok(Enqueued {
            event,
            taken: false,
        })
    }

    /// Runs `enqueue`, which enqueues on this queue the command that the caller waits for next. The sender
    /// thread is then not woken. When `enqueue` fails, commands that it did enqueue are flushed. In a
    /// context of several sites, the wait flushes all of them.
    ///
    /// # Errors
    /// Those of `enqueue`.
    pub fn before_waiting<T>(&self, enqueue: impl FnOnce() -> ClResult<T>) -> ClResult<T> {
        if self.context.is_distributed() {
            return enqueue();
        }
        waiting_next(enqueue).inspect_err(|_| {
            let _ = self.flush();
        })
    }

    /// Enqueues a command of a distributed context. The caller holds the lock of the context's sequence.
    /// Makes the event, lets `send` either send the command or withhold it, and records the command in the
    /// queue's order.
    ///
    /// # Errors
    /// Those of `send`; nothing is enqueued then.
    pub(super) fn admit(
        self: &Arc<Self>,
        place: OrderClass,
        spec: EventSpec,
        send: impl FnOnce(&Arc<Event>, Standing) -> ClResult,
    ) -> ClResult<Arc<Event>> {
        let in_order = self.is_in_order();
        let mut order = self.order.lock();
        let is_gated = order.would_gate(in_order, place, &spec.wait);
        let standing = Standing {
            is_gated,
            is_first: order.is_first(in_order) && spec.wait.iter().all(|on| on.is_done()),
            behind: order
                .earlier_gated(in_order, place)
                .newest()
                .map(|newest| newest.id()),
        };
        if spec.visible {
            self.count_in();
        }
        let position = Position {
            precedents: order.precedents(in_order, place),
            withheld: is_gated,
            ..Position::default()
        };
        let event = Event::of_command(self, spec, position);
        send(&event, standing).inspect_err(|_| event.discard())?;
        order.push(&event, in_order, is_gated, place);
        Ok(event)
    }

    /// Returns the oldest withheld command that the queue's order puts before `event`, a withheld command
    /// itself.
    pub(super) fn withholds(&self, event: &Event, place: OrderClass) -> Option<EventId> {
        let mut order = self.order.lock();
        let first = order.earlier_gated(self.is_in_order(), place).first();
        let first = first.map(|first| first.id());
        first.filter(|first| *first < event.id())
    }

    // Counts the visible commands: one is about to be sent.
    fn count_in(&self) {
        self.visible.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts down the visible commands: one has ended, or was never sent.
    pub(super) fn count_out(&self) {
        self.visible.fetch_sub(1, Ordering::AcqRel);
    }

    /// Records how a command ended. Not called when the failure came from the wait list.
    pub(super) fn finished(&self, event: EventId, status: Status) {
        if status.is_error() {
            self.unreported.lock().note(event, status);
        }
    }

    /// Marks the failure of a command as reported, because the command's own blocking call returns it.
    pub(super) fn told(&self, event: EventId) {
        self.unreported.lock().strike_out(event);
    }

    /// `clFlush`: sends everything that is still in the outbox.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the session is lost.
    pub fn flush(&self) -> ClResult {
        self.context.flush()?;
        Ok(self.site.session().flush()?)
    }

    /// `clFinish`: waits until everything enqueued before has ended.
    ///
    /// # Errors
    /// The code with which a command failed, once, unless the command's own blocking call has returned it.
    /// Failures caused by a wait list are not reported here. `CL_DEVICE_NOT_AVAILABLE` when the session is
    /// lost.
    pub fn finish(&self) -> ClResult {
        let flushed = self.flush();
        let pending = self.order.lock().pending.all();
        for event in pending {
            // Only the events report a failed wait list. Other failures are taken from `unreported` below.
            let _ = event.wait();
        }
        // Checked after the waits: until a lost session has failed its events, bytes may still arrive in
        // host memory.
        flushed?;
        match self.unreported.lock().take() {
            Some(status) => Err(status),
            None => Ok(()),
        }
    }

    /// Returns the queue's id on the wire.
    #[must_use]
    pub fn id(&self) -> QueueId {
        self.id
    }
}

// The properties of the node's queue: the application's list without its 0, with these bits.
fn wire_properties(list: &[u64], bits: u64) -> Vec<u64> {
    let name = u64::from(CL_QUEUE_PROPERTIES);
    let mut wire = list
        .split_last()
        .map_or_else(Vec::new, |(_, pairs)| pairs.to_vec());
    let given = wire.chunks_exact_mut(2).rfind(|pair| pair[0] == name);
    match given {
        Some(pair) => pair[1] = bits,
        None if bits != 0 => wire.extend([name, bits]),
        None => {}
    }
    wire
}

// A successful event delays nobody, so its id is left out. A failed event must be named, because it cancels
// the command. At least one id stays: for a marker, an empty list would mean "everything before".
fn wait_ids(wait: &[Arc<Event>]) -> Vec<u64> {
    let mut ids: Vec<u64> = wait
        .iter()
        .filter(|on| on.status() != 0)
        .map(|on| on.id().0)
        .collect();
    if ids.is_empty() {
        ids.extend(wait.first().map(|on| on.id().0));
    }
    ids
}

impl Drop for Queue {
    fn drop(&mut self) {
        if !self.owned {
            return;
        }
        self.site.release(ObjectKind::Queue, self.id.0);
        // `clReleaseCommandQueue` flushes implicitly.
        let _ = self.site.session().flush();
    }
}
