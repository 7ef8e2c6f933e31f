//! Events: a command's, or the application's own (user events).
//!
//! Status and times are pushed by the worker, so that queries and polling cost no traffic.
//! Specification: "Event Objects". Invariant: an event finishes once; callbacks run once each, on the
//! callback thread, after everything that the event's completion promises is in place.

mod ending;
mod sites;
mod times;
mod user;

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use causeway_proto::command::ObjectKind;
use causeway_proto::id::EventId;
use cl_headers::types::{CL_COMMAND_USER, CL_COMPLETE, CL_QUEUED, CL_SUBMITTED};
use parking_lot::{Condvar, Mutex};

use ending::Arrival;
pub(super) use ending::{End, Precedents};
pub(super) use times::Start;

use super::host_ranges::Follower;
use super::{Binding, Context, Hold, Queue, Site, callbacks, next_id, timer};
use crate::error::{ClResult, Status};
use crate::transport;

/// Called with the status it was registered for, or the negative one the event ended with.
pub type EventCallback = Box<dyn FnOnce(&Arc<Event>, i32) + Send>;

/// What happens on the reader's thread when the command is done, before anybody sees it as done:
/// the status, and what a small read brought.
pub(super) type Finisher = Box<dyn FnOnce(Status, &Bytes) + Send>;

/// What the application put before a gated command by its wait list or a barrier, as far as that is
/// gated too.
pub(super) type GatedBy = Box<[Weak<Event>]>;

/// See the module.
pub struct Event {
    pub(crate) binding: Binding,
    id: EventId,
    context: Arc<Context>,
    // Of a command; none of an unseen one.
    queue: Option<Arc<Queue>>,
    // Of an unseen command, whose queue keeps it for others: the session keeps the queue until its end.
    kept_by: Weak<Queue>,
    // Where it is of what has no `queue`; none where only the client ends it.
    home: Option<Arc<Site>>,
    command: u32,
    // When it was enqueued, on the host clock; where somebody may ask for it.
    queued_ns: u64,
    // Not sent yet, because an unset user event of the application holds it back (distributed contexts).
    withheld: AtomicBool,
    // Nobody looks at its end, and the wire does not name it again.
    unseen: bool,
    // There when an unset user event of the application may hold it back.
    gated: Option<GatedBy>,
    status: AtomicI32,
    // Ended, and so is all that its queue's order puts before it.
    settled: AtomicBool,
    state: Mutex<State>,
    // For user events, which no session wakes.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    // On the node's clock.
    times: Option<[u64; 5]>,
    // When it started, where its own times do not tell.
    starts: Vec<Start>,
    callbacks: Vec<(i32, EventCallback)>,
    finisher: Option<Finisher>,
    // Memory that the command reads or writes.
    hold: Hold,
    // The wait list, until the end: the command, once sent, names it, so no release may come earlier.
    wait: Vec<Arc<Event>>,
    // Commands of our own that it consists of (distributed contexts): they end before it, and what fails
    // one fails it.
    parts: Vec<Arc<Event>>,
    // They are all that it does.
    is_composite: bool,
    // Whether a failed event of the wait list explains the failure.
    inherited: bool,
    // Counted by the queue as one whose end the application can see.
    visible: bool,
    // Until its end has come.
    precedents: Precedents,
    // Its end has come with this status, though it may not be visible yet.
    arrived: Option<Status>,
    // Where else it is waited for, and what it is called there (distributed contexts).
    mirrors: Vec<(Arc<Site>, u64)>,
    // The same for what comes after it in order only, and does not fail with it.
    order_mirrors: Vec<(Arc<Site>, u64)>,
    // Let go of when it ends (distributed contexts).
    followers: Vec<Arc<dyn Follower>>,
    // Others whose ends have come and that stay until this one is visible or settled.
    arrivals: Vec<Arrival>,
}

/// What a command's event is made from.
pub(super) struct Life {
    /// `CL_EVENT_COMMAND_TYPE`.
    pub(super) command: u32,
    /// There when an unset user event of the application may hold it back.
    pub(super) gated: Option<GatedBy>,
    /// What its queue's order puts before it.
    pub(super) precedents: Precedents,
    /// The wait list.
    pub(super) wait: Vec<Arc<Event>>,
    /// Memory that the command reads or writes.
    pub(super) hold: Hold,
    /// Runs before anybody sees the end.
    pub(super) finisher: Option<Finisher>,
    /// Whether the queue counts it as one whose end the application can see.
    pub(super) visible: bool,
    /// Whether the wire says that nobody looks at its end: then nothing ever names it there again.
    pub(super) unseen: bool,
}

impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Event")
            .field("id", &self.id)
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}

impl Event {
    /// The event of a command that is about to be sent.
    pub(super) fn of_command(queue: &Arc<Queue>, life: Life) -> Arc<Event> {
        Arc::new(Event::new(queue, life))
    }

    /// The same in the place of one that nobody refers to any more, if that is so.
    pub(super) fn again(mut spent: Arc<Event>, queue: &Arc<Queue>, life: Life) -> Arc<Event> {
        let event = Event::new(queue, life);
        match Arc::get_mut(&mut spent) {
            Some(place) => {
                *place = event;
                spent
            }
            None => Arc::new(event),
        }
    }

    fn new(queue: &Arc<Queue>, life: Life) -> Event {
        let Life {
            command,
            gated,
            precedents,
            wait,
            hold,
            finisher,
            visible,
            unseen,
        } = life;
        let (seen_in, kept_by, home) = if unseen {
            (None, Arc::downgrade(queue), Some(queue.site().clone()))
        } else {
            (Some(queue.clone()), Weak::new(), None)
        };
        Event {
            binding: Binding::default(),
            id: EventId(next_id()),
            context: queue.context().clone(),
            queue: seen_in,
            kept_by,
            home,
            command,
            queued_ns: timer::stamp(queue),
            withheld: AtomicBool::new(false),
            unseen,
            gated,
            status: AtomicI32::new(CL_QUEUED),
            settled: AtomicBool::new(false),
            state: Mutex::new(State {
                finisher,
                hold,
                wait,
                visible,
                precedents,
                ..State::default()
            }),
            changed: Condvar::new(),
        }
    }

    /// The event of a command of our own on a site: a transfer, or a part of the application's command.
    pub(super) fn of_part(context: &Arc<Context>, site: &Arc<Site>, hold: Hold) -> Arc<Event> {
        let state = State {
            hold,
            ..State::default()
        };
        Event::bare(context, Some(site.clone()), false, state)
    }

    fn bare(
        context: &Arc<Context>,
        home: Option<Arc<Site>>,
        gated: bool,
        state: State,
    ) -> Arc<Event> {
        Arc::new(Event {
            binding: Binding::default(),
            id: EventId(next_id()),
            context: context.clone(),
            queue: None,
            kept_by: Weak::new(),
            home,
            command: CL_COMMAND_USER,
            queued_ns: 0,
            withheld: AtomicBool::new(false),
            unseen: false,
            gated: gated.then(GatedBy::default),
            status: AtomicI32::new(CL_SUBMITTED),
            settled: AtomicBool::new(false),
            state: Mutex::new(state),
            changed: Condvar::new(),
        })
    }

    /// Its name on the wire.
    #[must_use]
    pub fn id(&self) -> EventId {
        self.id
    }

    /// Its context.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Its queue; none for a user event, and for a command that nobody looks at.
    #[must_use]
    pub fn queue(&self) -> Option<&Arc<Queue>> {
        self.queue.as_ref()
    }

    // The queue of any command, whether somebody looks at it or not.
    fn any_queue(&self) -> Option<Arc<Queue>> {
        self.queue.clone().or_else(|| self.kept_by.upgrade())
    }

    /// `CL_EVENT_COMMAND_TYPE`.
    #[must_use]
    pub fn command(&self) -> u32 {
        self.command
    }

    /// `CL_EVENT_COMMAND_EXECUTION_STATUS`.
    #[must_use]
    pub fn status(&self) -> i32 {
        self.status.load(Ordering::Acquire)
    }

    /// Complete or failed.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.status() <= CL_COMPLETE
    }

    /// Whether it is incomplete and may wait for the application itself.
    #[must_use]
    pub fn is_gated(&self) -> bool {
        // In a distributed context a command has been sent once nothing of the application's holds it.
        let held = self.withheld.load(Ordering::Acquire)
            || (self.gated.is_some() && (self.queue.is_none() || !self.context.is_distributed()));
        held && !self.is_done()
    }

    /// What its wait list and barriers put before it, as far as that was gated and still exists.
    pub(super) fn gated_by(&self) -> impl Iterator<Item = Arc<Event>> + '_ {
        self.gated.iter().flatten().filter_map(Weak::upgrade)
    }

    /// The command has left the client.
    pub(super) fn submitted(&self) {
        let _ = self.status.compare_exchange(
            CL_QUEUED,
            CL_SUBMITTED,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
    }

    /// Calls back when the event has reached `status` (at once if it has), each callback once; an
    /// event that fails calls all with its error.
    pub fn on_status(self: &Arc<Self>, status: i32, callback: EventCallback) {
        let mut state = self.state.lock();
        let now = self.status();
        if now > status {
            state.callbacks.push((status, callback));
            return;
        }
        drop(state);
        self.call_back(now, status, callback);
    }

    fn call_back(self: &Arc<Self>, now: i32, registered: i32, callback: EventCallback) {
        let event = self.clone();
        let told = if now < 0 { now } else { registered };
        callbacks::run(move || callback(&event, told));
    }

    // Makes the end visible, and gives what stayed for that; none if it had ended before. The finisher
    // runs first, so that whoever sees the end finds the bytes in place.
    fn conclude(self: &Arc<Self>, end: End, settled: bool) -> Option<Vec<Arrival>> {
        let End {
            status,
            times,
            contents,
        } = end;
        let finisher = self.state.lock().finisher.take();
        if let Some(finisher) = finisher {
            finisher(status, &contents);
        }
        let starts = if times.is_some() {
            self.starts_of_parts()
        } else {
            Vec::new()
        };
        let (status, mut callbacks, (held, order_mirrors), arrivals) = {
            let mut state = self.state.lock();
            if self.is_done() {
                return None;
            }
            let status = cause(status, &state.parts);
            state.inherited = is_inherited(status, &state.wait);
            if status.is_error()
                && !state.inherited
                && let Some(queue) = self.any_queue()
            {
                // Before clFinish, which tells it, can see the end.
                queue.finished(self.id, status);
            }
            state.times = times.filter(|times| times[3] != 0);
            state.starts.extend(starts);
            self.settled.store(settled, Ordering::Release);
            let order_mirrors = if settled {
                state.order_mirrors.clone()
            } else {
                Vec::new()
            };
            self.status.store(status.0.min(0), Ordering::Release);
            self.count_out(&mut state);
            let held = (
                std::mem::take(&mut state.hold),
                std::mem::take(&mut state.wait),
                std::mem::take(&mut state.parts),
                std::mem::take(&mut state.followers),
            );
            let callbacks = std::mem::take(&mut state.callbacks);
            let arrivals = std::mem::take(&mut state.arrivals);
            (status, callbacks, (held, order_mirrors), arrivals)
        };
        self.changed.notify_all();
        tell_order_mirrors(&order_mirrors);
        // As the command went through them: submitted, running, complete.
        callbacks.sort_by_key(|(registered, _)| std::cmp::Reverse(*registered));
        for (registered, callback) in callbacks {
            self.call_back(status.0, registered, callback);
        }
        // Dropping what it held may run destructor callbacks: those only queue on the callback thread.
        drop(held);
        Some(arrivals)
    }

    // Only once the end is visible may a call return because nothing visible is under way.
    fn count_out(&self, state: &mut State) {
        if std::mem::take(&mut state.visible)
            && let Some(queue) = &self.queue
        {
            queue.count_out();
        }
    }

    /// The command was never sent: its finisher runs, nobody else hears of it.
    pub(super) fn discard(&self) {
        let finisher = {
            let mut state = self.state.lock();
            self.count_out(&mut state);
            state.finisher.take()
        };
        if let Some(finisher) = finisher {
            finisher(Status::OUT_OF_RESOURCES, &Bytes::new());
        }
    }

    /// Waits until it is done. The caller has flushed what it depends on.
    ///
    /// # Errors
    /// `CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST` when it failed. In a child of `fork`, where nothing ends it,
    /// what the session says.
    pub fn wait(&self) -> ClResult {
        let waited = match self.any_queue() {
            Some(queue) => {
                if self.context.is_distributed() {
                    // What it waits for may still stand in another session's outbox.
                    let _ = self.context.flush();
                }
                let session = queue.site().session();
                session.wait_for(self.id, &|| self.is_done())
            }
            None => Ok(()),
        };
        // The session is over, or has no part in it. Another thread may still be ending the event: one that enqueued
        // while the session was lost, or one of another site.
        if !self.is_done() && (waited.is_ok() || transport::check_not_forked().is_ok()) {
            self.wait_changed();
        }
        match self.status() {
            status if status < 0 => Err(Status::WAIT_LIST_FAILED),
            CL_COMPLETE => Ok(()),
            _ => Ok(waited?),
        }
    }

    fn wait_changed(&self) {
        let mut state = self.state.lock();
        while !self.is_done() {
            self.changed.wait(&mut state);
        }
    }

    /// Waits until it is done; what a blocking call returns.
    ///
    /// # Errors
    /// `CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST` when its wait list's failure is its own, whatever
    /// code the node gave the command for that; otherwise the status it failed with.
    pub fn outcome(&self) -> ClResult {
        let waited = self.wait();
        if waited.is_err()
            && let Some(queue) = self.any_queue()
        {
            queue.told(self.id);
        }
        match self.status() {
            status if status < 0 && self.state.lock().inherited => Err(Status::WAIT_LIST_FAILED),
            status if status < 0 => Err(Status(status)),
            _ => waited,
        }
    }

    /// Whose error callback hears of its failure.
    pub(super) fn context_of_notice(&self) -> Option<&Arc<Context>> {
        Some(&self.context)
    }
}

// A command whose part has failed says why that was, not that something it waits for has.
fn cause(status: Status, parts: &[Arc<Event>]) -> Status {
    let mut codes = parts.iter().map(|part| Status(part.status()));
    let of_part = codes.find(|code| code.is_error() && *code != Status::WAIT_LIST_FAILED);
    match of_part {
        Some(code) if status == Status::WAIT_LIST_FAILED => code,
        _ => status,
    }
}

fn tell_order_mirrors(mirrors: &[(Arc<Site>, u64)]) {
    for (site, mirror) in mirrors {
        sites::tell_mirror(site, *mirror, Status::SUCCESS);
    }
}

// A lost session says more than that a wait list was lost with it.
fn is_inherited(status: Status, wait: &[Arc<Event>]) -> bool {
    status == Status::WAIT_LIST_FAILED
        || (status.is_error()
            && status != Status::DEVICE_NOT_AVAILABLE
            && wait.iter().any(|on| on.status() < 0))
}

impl Drop for Event {
    fn drop(&mut self) {
        // The worker forgets by itself what has ended well. The rest it keeps until told: a wait list may name it up to
        // here.
        let is_kept = !self.unseen && self.status() != CL_COMPLETE;
        if let Some(site) = self.site().filter(|_| is_kept) {
            site.release(ObjectKind::Event, self.id.0);
        }
        let state = self.state.get_mut();
        for (site, mirror) in state.mirrors.iter().chain(&state.order_mirrors) {
            site.release(ObjectKind::Event, *mirror);
        }
    }
}
