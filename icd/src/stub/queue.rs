//! A command queue: where commands get their place in the order.
//!
//! [`Queue::submit`] is the one way in. It gives the command its event, tells the session to expect
//! the completion, and appends the command to the wire, all under the queue's lock, so that the
//! order of calls is the order on the wire. It waits for nobody.

mod long_lists;
mod order;
mod unseen;
mod untold;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use causeway_proto::command::{CreateQueue, Enqueue, ObjectKind, command::Kind};
use causeway_proto::id::{EventId, QueueId};
use causeway_proto::status::WireError;
use cl_headers::types::{CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, CL_QUEUE_PROFILING_ENABLE};
use parking_lot::Mutex;

use self::order::Order;
pub(super) use self::order::{Place, Standing};
use self::untold::Untold;
use super::encoded::EncodedEnqueue;
use super::event::{Finisher, Life};
use super::work::OnWire;
use super::{Binding, Context, Device, Event, Hold, Site, Work, next_id};
use crate::error::{ClResult, Status};
use crate::transport::waiting_next;

/// See the module.
#[derive(Debug)]
pub struct Queue {
    pub(crate) binding: Binding,
    id: QueueId,
    // Whether the node's queue goes with this stub.
    owned: bool,
    context: Arc<Context>,
    site: Arc<Site>,
    device: Arc<Device>,
    properties: u64,
    property_list: Vec<u64>,
    order: Mutex<Order>,
    // Incomplete commands whose end the application can see: it has the event, or they write host memory.
    visible: AtomicUsize,
    // Failures that no wait list explains and no call has told.
    untold: Mutex<Untold>,
    // The last blocking command that returned before it was complete.
    promised: Mutex<Weak<Event>>,
}

/// A command about to be enqueued.
pub struct Submission {
    /// What it does.
    pub work: Work,
    /// `CL_EVENT_COMMAND_TYPE` of its event.
    pub command: u32,
    /// The wait list.
    pub wait: Vec<Arc<Event>>,
    /// What must live until it is done.
    pub hold: Hold,
    /// Runs when it is done, before anybody sees that.
    pub finisher: Option<Finisher>,
    /// Whether the application can see its end: it asked for the event, or host memory is written.
    pub visible: bool,
}

impl Queue {
    /// `properties`: the bits of `CL_QUEUE_PROPERTIES`; `property_list`: as the application gave it, with
    /// its 0, empty for none.
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
        let mut wire: Vec<u64> = property_list.clone();
        wire.pop();
        if wire.is_empty() && properties != 0 {
            wire = vec![
                u64::from(cl_headers::types::CL_QUEUE_PROPERTIES),
                properties,
            ];
        }
        let site = context.site_of(&device).clone();
        site.send(Kind::CreateQueue(CreateQueue {
            queue: id.0,
            context: site.context().0,
            device: device.index().0,
            properties: wire,
        }))?;
        let mut queue = Queue::bare(id, context, site, device);
        queue.properties = properties;
        queue.property_list = property_list;
        let queue = Arc::new(queue);
        for other in queue.context.add_queue(&queue) {
            other.keep_promise();
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
            order: Mutex::default(),
            visible: AtomicUsize::new(0),
            untold: Mutex::default(),
            promised: Mutex::default(),
        }
    }

    /// The context's own in-order queue, for work that no queue of the application orders: initial
    /// contents. The node's queue lives with the context, so the stub may come and go.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the session is lost.
    pub fn of_context(context: &Arc<Context>) -> ClResult<Arc<Queue>> {
        let device = context.devices()[0].clone();
        let id = context.own_queue(|id| {
            context.site().send(Kind::CreateQueue(CreateQueue {
                queue: id.0,
                context: context.site().context().0,
                device: device.index().0,
                properties: Vec::new(),
            }))
        })?;
        let mut queue = Queue::bare(id, context.clone(), context.site().clone(), device);
        queue.owned = false;
        Ok(Arc::new(queue))
    }

    /// Its context.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Where its device is.
    #[must_use]
    pub fn site(&self) -> &Arc<Site> {
        &self.site
    }

    /// Its device.
    #[must_use]
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// `CL_QUEUE_PROPERTIES`.
    #[must_use]
    pub fn properties(&self) -> u64 {
        self.properties
    }

    /// `CL_QUEUE_PROPERTIES_ARRAY`, with its 0; empty when made without a list.
    #[must_use]
    pub fn property_list(&self) -> &[u64] {
        &self.property_list
    }

    /// Whether commands run in the order they were enqueued.
    #[must_use]
    pub fn is_in_order(&self) -> bool {
        self.properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE == 0
    }

    /// Whether somebody may ask for the times of its commands.
    #[must_use]
    pub fn is_profiling(&self) -> bool {
        self.properties & CL_QUEUE_PROFILING_ENABLE != 0
    }

    /// Whether a transfer enqueued now with this wait list might be held back by an unset user event
    /// of the application. May say yes too often, never no too often.
    #[must_use]
    pub fn would_gate(&self, wait: &[Arc<Event>]) -> bool {
        let mut order = self.order.lock();
        order.would_gate(self.is_in_order(), Place::Ordinary, wait)
    }

    /// The incomplete commands that the application may hold back, oldest first.
    pub(super) fn gated_events(&self) -> Vec<Arc<Event>> {
        self.order.lock().gated.all()
    }

    /// Those of them that the queue's order puts before an ordinary command enqueued now.
    pub(super) fn gated_before_next(&self) -> Vec<Arc<Event>> {
        let mut order = self.order.lock();
        order
            .earlier_gated(self.is_in_order(), Place::Ordinary)
            .all()
    }

    /// Whether everything enqueued so far whose end the application can see has ended.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.visible.load(Ordering::Acquire) == 0
    }

    /// Whether a blocking command may return before it is complete because the application cannot tell:
    /// this is the context's only queue, in order, and nothing whose end one could see is under way.
    #[must_use]
    pub fn is_private(&self) -> bool {
        self.is_in_order() && self.is_quiet() && self.context.has_one_queue()
    }

    /// Whether a command that moves nothing and has no event may be left out, as far as its wait list and the session
    /// tell: all that it waits for has ended well. The queue must be idle besides ([`Queue::is_idle`]), because the
    /// command keeps mapped memory that commands before it may still use.
    #[must_use]
    pub fn may_leave_out(&self, wait: &[Arc<Event>]) -> bool {
        !self.context.is_distributed()
            && wait.iter().all(|on| on.status() == 0)
            && self.site.session().is_lost().is_none()
    }

    /// Whether such a command has ended as soon as it is enqueued.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.order.lock().is_first(self.is_in_order())
    }

    /// Notes that a blocking command, the last of this queue, returns before it is complete; false
    /// when it may not, since a second queue has come.
    #[must_use]
    pub fn promise(&self, event: &Arc<Event>) -> bool {
        *self.promised.lock() = Arc::downgrade(event);
        // A queue made meanwhile has either seen this promise or is seen here.
        self.context.has_one_queue()
    }

    // Waits for what a blocking command has promised: another queue's commands may build on it.
    fn keep_promise(&self) {
        let promised = self.promised.lock().upgrade();
        if let Some(event) = promised {
            // Its failure is told by clFinish, as that of every early return.
            let _ = event.wait();
        }
    }

    /// Enqueues. `prepare` sees the event before anything is sent (to register a transfer).
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the session is lost, `CL_OUT_OF_HOST_MEMORY` when a command is too
    /// large; what `prepare` says. Then nothing was enqueued.
    pub fn submit(
        self: &Arc<Self>,
        submission: Submission,
        prepare: impl FnOnce(&Arc<Event>) -> ClResult,
    ) -> ClResult<Arc<Event>> {
        let submission = self.shortened(submission)?;
        if let Some(distributed) = self.context.distributed() {
            return distributed.submit(self, submission);
        }
        let place = Place::of(&submission.work, submission.wait.is_empty());
        let on = wait_ids(&submission.wait);
        let operation = OnWire::of(submission.work, &self.site)?;
        let mut order = self.order.lock();
        let gated = order
            .would_gate(self.is_in_order(), place, &submission.wait)
            .then(|| order.gated_by(self.is_in_order(), place, &submission.wait));
        let is_gated = gated.is_some();
        let unseen = self.is_in_order()
            && !submission.visible
            && !is_gated
            && on.is_empty()
            && submission.finisher.is_none()
            && operation.is_plain();
        if submission.visible {
            self.visible.fetch_add(1, Ordering::AcqRel);
        }
        let life = Life {
            command: submission.command,
            gated,
            precedents: order.precedents(self.is_in_order(), place),
            wait: submission.wait,
            hold: submission.hold,
            finisher: submission.finisher,
            visible: submission.visible,
            unseen,
        };
        let event = if unseen {
            order.unseen_event(self, life)
        } else {
            Event::of_command(self, life)
        };
        let link = self.site.link();
        prepare(&event).inspect_err(|_| event.discard())?;
        link.expect(event.clone(), unseen.then(|| self.clone()));
        if let Err(error) = self.send(event.id(), on, unseen, operation) {
            // The withdrawal may wait for a lane.
            drop(order);
            link.forget(event.id());
            link.session().withdraw(event.id());
            event.discard();
            return Err(error.into());
        }
        event.submitted();
        order.push(&event, self.is_in_order(), is_gated, place);
        if unseen {
            order.unseen.keep(&event);
        }
        Ok(event)
    }

    fn send(
        &self,
        event: EventId,
        wait: Vec<u64>,
        unseen: bool,
        operation: OnWire,
    ) -> Result<(), WireError> {
        let session = self.site.session();
        match operation {
            OnWire::Message(operation) => session.send(&Kind::Enqueue(Enqueue {
                event: event.0,
                queue: self.id.0,
                wait,
                unseen,
                operation: Some(operation),
            })),
            OnWire::Encoded(operation) => session.send(&EncodedEnqueue {
                event,
                queue: self.id,
                wait: &wait,
                unseen,
                operation: &operation,
            }),
        }
    }

    /// Runs `enqueue`, which enqueues here what the caller waits for next: so nobody need be woken to send it.
    /// What is left of it when it fails leaves at once. Not for distributed contexts.
    ///
    /// # Errors
    /// Those of `enqueue`.
    pub fn before_waiting<T>(&self, enqueue: impl FnOnce() -> ClResult<T>) -> ClResult<T> {
        waiting_next(enqueue).inspect_err(|_| {
            let _ = self.flush();
        })
    }

    /// A distributed context's way in, under the lock of its sequence: makes the event, has `send` send the
    /// command or keep it, and gives it its place in the order.
    ///
    /// # Errors
    /// What `send` says; then nothing was enqueued.
    pub(super) fn admit(
        self: &Arc<Self>,
        place: Place,
        life: Life,
        send: impl FnOnce(&Arc<Event>, Standing) -> ClResult,
    ) -> ClResult<Arc<Event>> {
        let in_order = self.is_in_order();
        let mut order = self.order.lock();
        let is_gated = order.would_gate(in_order, place, &life.wait);
        let standing = Standing {
            is_gated,
            is_first: order.is_first(in_order) && life.wait.iter().all(|on| on.is_done()),
            behind: order
                .earlier_gated(in_order, place)
                .newest()
                .map(|newest| newest.id()),
        };
        if life.visible {
            self.visible.fetch_add(1, Ordering::AcqRel);
        }
        let life = Life {
            precedents: order.precedents(in_order, place),
            ..life
        };
        let event = Event::of_command(self, life);
        event.set_withheld(is_gated);
        send(&event, standing).inspect_err(|_| event.discard())?;
        order.push(&event, in_order, is_gated, place);
        Ok(event)
    }

    /// The oldest of what the queue's order puts before this withheld command that is withheld too.
    pub(super) fn withholds(&self, event: &Event, place: Place) -> Option<EventId> {
        let mut order = self.order.lock();
        let first = order.earlier_gated(self.is_in_order(), place).first();
        let first = first.map(|first| first.id());
        first.filter(|first| *first < event.id())
    }

    /// One that was counted as visible has ended, or was never sent.
    pub(super) fn count_out(&self) {
        self.visible.fetch_sub(1, Ordering::AcqRel);
    }

    /// A command has ended thus, and not because its wait list failed.
    pub(super) fn finished(&self, event: EventId, status: Status) {
        if status.is_error() {
            self.untold.lock().note(event, status);
        }
    }

    /// A blocking call returns with the failure of its command.
    pub(super) fn told(&self, event: EventId) {
        self.untold.lock().strike_out(event);
    }

    /// `clFlush`: what was enqueued leaves now.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the session is lost.
    pub fn flush(&self) -> ClResult {
        self.context.flush()?;
        Ok(self.site.session().flush()?)
    }

    /// `clFinish`: everything enqueued before has ended.
    ///
    /// # Errors
    /// The code with which a command failed by itself, once, unless the command's own blocking call has told it;
    /// `CL_DEVICE_NOT_AVAILABLE` when the session is lost.
    pub fn finish(&self) -> ClResult {
        let flushed = self.flush();
        let pending = self.order.lock().pending.all();
        for event in pending {
            // Its failure is not this call's: a wait list's failure is told by the events alone.
            let _ = event.wait();
        }
        // Not before: until a lost session has failed its events, their bytes may still be landing.
        flushed?;
        match self.untold.lock().take() {
            Some(status) => Err(status),
            None => Ok(()),
        }
    }

    /// Its name on the wire.
    #[must_use]
    pub fn id(&self) -> QueueId {
        self.id
    }
}

// What has succeeded holds nobody back; what has failed must be named, to cancel. A list is never
// emptied, though: to a marker an empty one means "everything before".
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
        // clReleaseCommandQueue flushes.
        let _ = self.site.session().flush();
    }
}
