//! Events: those of commands, and the application's user events.
//!
//! The worker pushes status and times, so queries and polling cause no traffic. An event passes through
//! `Phase`s, and leaves some out:
//!
//! ```text
//! Withheld ──► Sent ──► Arrived ──► Ended ──► Settled
//!                          │                    ▲
//!                          └────────────────────┘
//! ```
//!
//! Specification: "Event Objects". Invariant: phases only advance, an event ends once, and each callback runs
//! once, on a thread of [`callbacks`]. Callbacks run only after the command's effects on the client are complete.

pub mod callbacks;
mod ending;
mod sites;
mod times;
mod traced;
mod user;

use std::sync::atomic::{AtomicI32, AtomicU8, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use causeway_proto::command::ObjectKind;
use causeway_proto::id::EventId;
use cl_headers::types::{CL_COMMAND_USER, CL_COMPLETE, CL_QUEUED, CL_SUBMITTED};
use parking_lot::{Condvar, Mutex};

use ending::Arrival;
pub(super) use ending::{CommandEnd, Precedents};
pub(super) use times::Start;
pub use traced::Note;
pub(super) use traced::transfer_enqueued;

use crate::error::{ClResult, Status};
use crate::stub::memory::host_ranges::Follower;
use crate::stub::{Binding, Context, Hold, Queue, Site, device::timer, next_id};
use crate::{fork, trace};

/// Called with the status that it was registered for, or with the negative status of a failed event.
pub type EventCallback = Box<dyn FnOnce(&Arc<Event>, i32) + Send>;

/// Runs on the thread that receives the completion, before the end becomes visible. The arguments are the
/// status and the bytes of a small read.
pub type Finisher = Box<dyn FnOnce(Status, &Bytes) + Send>;

/// Returns a finisher that runs `first`, and then `then` if there is one.
pub(super) fn chained(
    first: impl FnOnce(Status, &Bytes) + Send + 'static,
    then: Option<Finisher>,
) -> Finisher {
    Box::new(move |status, contents| {
        first(status, contents);
        if let Some(then) = then {
            then(status, contents);
        }
    })
}

/// The gated commands that a gated command must follow because of its wait list or a barrier.
pub(super) type GatedBy = Box<[Weak<Event>]>;

/// An event; see the module.
pub struct Event {
    pub(crate) binding: Binding,
    id: EventId,
    context: Arc<Context>,
    // The queue of a command; `None` for an unobserved command.
    queue: Option<Arc<Queue>>,
    // The queue of an unobserved command. The queue owns this event, so the reference is weak. The session
    // keeps the queue alive until the event ends.
    kept_by: Weak<Queue>,
    // The site of an event without `queue`; `None` if only the client can end the event.
    home: Option<Arc<Site>>,
    command: u32,
    // When the command was enqueued, on the host clock. Only recorded when profiling can ask for it.
    queued_ns: u64,
    // The application cannot observe the end, and no later message names the event.
    unobserved: bool,
    // Present for an event that was gated when it was made: an unset user event, or a command that the
    // worker may hold back behind one (contexts of one site).
    gated_by: Option<GatedBy>,
    // `CL_EVENT_COMMAND_EXECUTION_STATUS`: what the application sees of the phase.
    status: AtomicI32,
    // A [`Phase`].
    phase: AtomicU8,
    state: Mutex<EventState>,
    // Signals the end to threads that wait without a session, as for user events.
    changed: Condvar,
}

/// How far an event has come. Each phase implies all that the phases before it imply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Phase {
    /// Not sent yet, because an unset user event of the application holds the command back (contexts of
    /// several sites).
    Withheld,
    /// Sent, or made by the client alone.
    Sent,
    /// The completion has arrived. The application does not see it while earlier commands are open.
    Arrived,
    /// The application sees the end: of a failed command whose queue has earlier commands that are open.
    Ended,
    /// The application sees the end, and everything that the queue's order puts before has ended, too.
    Settled,
}

#[derive(Default)]
struct EventState {
    // Profiling times, on the node's clock.
    times: Option<[u64; 5]>,
    // Start times of parts, used when the command's own times do not tell when it started.
    starts: Vec<Start>,
    callbacks: Vec<(i32, EventCallback)>,
    finisher: Option<Finisher>,
    // Memory that the command reads or writes.
    hold: Hold,
    // The wait list, kept until the end. The sent command names these events, so they must not be released
    // earlier.
    wait: Vec<Arc<Event>>,
    // Internal commands that this command consists of (distributed contexts). They end before this command,
    // and the failure of one fails it.
    parts: Vec<Arc<Event>>,
    // Whether the command does nothing but its parts.
    is_composite: bool,
    // Whether a failed event of the wait list explains the failure.
    inherited: bool,
    // Whether the queue counts this event as one whose end the application can observe.
    counted: bool,
    // Kept until the completion arrives.
    precedents: Precedents,
    // The status that the completion brought; present from `Phase::Arrived` on.
    arrived: Option<Status>,
    // Other sites whose commands wait for this event, and its mirror ids there (distributed contexts).
    mirrors: Vec<(Arc<Site>, u64)>,
    // Mirrors like the above for commands that only follow in order, and do not fail with this event.
    order_mirrors: Vec<(Arc<Site>, u64)>,
    // Followers to notify when the event ends (distributed contexts).
    followers: Vec<Arc<dyn Follower>>,
    // Completions of other events that must stay hidden until this event is visible or settled.
    arrivals: Vec<Arrival>,
}

/// What a command's event is made from.
pub struct EventSpec {
    /// `CL_EVENT_COMMAND_TYPE`.
    pub event_type: u32,
    /// The wait list.
    pub wait: Vec<Arc<Event>>,
    /// Buffers and images that must stay alive until the command is done.
    pub hold: Hold,
    /// Runs when the command is done, before the end becomes visible.
    pub finisher: Option<Finisher>,
    /// Whether the application can observe the end: it asked for the event, or the command writes host memory, or reads it
    /// after the enqueue.
    pub visible: bool,
    /// What the program's trace says of the command; `None` without a trace.
    pub note: Option<Box<Note>>,
}

/// Where the queue's order puts an event.
#[derive(Default)]
pub(super) struct Position {
    /// Present when an unset user event of the application may hold the command back.
    pub(super) gated: Option<GatedBy>,
    /// The commands that the queue's order puts before this one.
    pub(super) precedents: Precedents,
    /// Whether the command is sent as unobserved; then no later message names the event.
    pub(super) unobserved: bool,
    /// Whether the command is not sent yet; see [`Phase::Withheld`].
    pub(super) withheld: bool,
}

impl std::fmt::Debug for EventSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventSpec")
            .field("event_type", &self.event_type)
            .finish_non_exhaustive()
    }
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
    /// Makes the event of a command that is about to be sent.
    pub(super) fn of_command(
        queue: &Arc<Queue>,
        spec: EventSpec,
        position: Position,
    ) -> Arc<Event> {
        Arc::new(Event::new(queue, spec, position))
    }

    /// Makes an event like [`Event::of_command`], in the allocation of `spent` if nobody else refers to
    /// that.
    pub(super) fn again(
        mut spent: Arc<Event>,
        queue: &Arc<Queue>,
        spec: EventSpec,
        position: Position,
    ) -> Arc<Event> {
        let event = Event::new(queue, spec, position);
        match Arc::get_mut(&mut spent) {
            Some(place) => {
                *place = event;
                spent
            }
            None => Arc::new(event),
        }
    }

    fn new(queue: &Arc<Queue>, spec: EventSpec, position: Position) -> Event {
        let EventSpec {
            event_type,
            wait,
            hold,
            finisher,
            visible,
            note,
        } = spec;
        let Position {
            gated,
            precedents,
            unobserved,
            withheld,
        } = position;
        let phase = if withheld {
            Phase::Withheld
        } else {
            Phase::Sent
        };
        // An unobserved event holds its queue weakly: the queue keeps the event for reuse, and a strong
        // reference would be a cycle.
        let (seen_in, kept_by, home) = if unobserved {
            (None, Arc::downgrade(queue), Some(queue.site().clone()))
        } else {
            (Some(queue.clone()), Weak::new(), None)
        };
        let id = EventId(next_id());
        if trace::is_on() {
            traced::enqueued(id, queue, event_type, note, &wait);
        }
        Event {
            binding: Binding::default(),
            id,
            context: queue.context().clone(),
            queue: seen_in,
            kept_by,
            home,
            command: event_type,
            queued_ns: timer::stamp(queue),
            unobserved,
            phase: AtomicU8::new(phase as u8),
            gated_by: gated,
            status: AtomicI32::new(CL_QUEUED),
            state: Mutex::new(EventState {
                finisher,
                hold,
                wait,
                counted: visible,
                precedents,
                ..EventState::default()
            }),
            changed: Condvar::new(),
        }
    }

    /// Makes the event of an internal command on a site: a transfer, or a part of the application's
    /// command.
    pub(super) fn of_part(context: &Arc<Context>, site: &Arc<Site>, hold: Hold) -> Arc<Event> {
        let state = EventState {
            hold,
            ..EventState::default()
        };
        Event::bare(context, Some(site.clone()), false, state)
    }

    fn bare(
        context: &Arc<Context>,
        home: Option<Arc<Site>>,
        gated: bool,
        state: EventState,
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
            unobserved: false,
            phase: AtomicU8::new(Phase::Sent as u8),
            gated_by: gated.then(GatedBy::default),
            status: AtomicI32::new(CL_SUBMITTED),
            state: Mutex::new(state),
            changed: Condvar::new(),
        })
    }

    /// Returns the event's id on the wire.
    #[must_use]
    pub fn id(&self) -> EventId {
        self.id
    }

    /// Returns the event's context.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Returns the event's queue; `None` for a user event and for an unobserved command.
    #[must_use]
    pub fn queue(&self) -> Option<&Arc<Queue>> {
        self.queue.as_ref()
    }

    // The queue of any command, observed or not.
    fn any_queue(&self) -> Option<Arc<Queue>> {
        self.queue.clone().or_else(|| self.kept_by.upgrade())
    }

    /// Returns `CL_EVENT_COMMAND_TYPE`.
    #[must_use]
    pub fn command(&self) -> u32 {
        self.command
    }

    /// Returns `CL_EVENT_COMMAND_EXECUTION_STATUS`.
    #[must_use]
    pub fn status(&self) -> i32 {
        self.status.load(Ordering::Acquire)
    }

    /// Whether the command is complete or has failed.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.status() <= CL_COMPLETE
    }

    /// Whether the event is incomplete and may depend on an action of the application.
    #[must_use]
    pub fn is_gated(&self) -> bool {
        // An end that has arrived and is hidden counts as gated, too: what it hides behind is still open,
        // and later commands find that through this event.
        let is_held = self.gated_by.is_some() || !self.has_reached(Phase::Sent);
        is_held && !self.is_done()
    }

    fn has_reached(&self, phase: Phase) -> bool {
        self.phase.load(Ordering::Acquire) >= phase as u8
    }

    fn advance(&self, phase: Phase) {
        self.phase.fetch_max(phase as u8, Ordering::AcqRel);
    }

    /// Returns the gated events that wait list and barriers put before this command, if they still exist.
    pub(super) fn gated_by(&self) -> impl Iterator<Item = Arc<Event>> + '_ {
        self.gated_by.iter().flatten().filter_map(Weak::upgrade)
    }

    /// Marks the command as submitted: it has left the client.
    pub(super) fn submitted(&self) {
        let _ = self.status.compare_exchange(
            CL_QUEUED,
            CL_SUBMITTED,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
    }

    /// Calls `callback` once when the event reaches `status`, or at once if it already has. If the event
    /// fails, all callbacks get the error code.
    pub fn on_status(self: &Arc<Self>, status: i32, callback: EventCallback) {
        let mut state = self.state.lock();
        // Read under the lock, which `conclude` holds when it sets the status.
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

    // Makes the end visible, and returns the completions that were hidden until then; `None` if the event
    // had ended before. The finisher runs first, so that the bytes are in place when anybody can see the
    // end.
    fn conclude(self: &Arc<Self>, end: CommandEnd, settled: bool) -> Option<Vec<Arrival>> {
        let CommandEnd {
            status,
            times,
            contents,
        } = end;
        // Runs without the lock: a finisher copies bytes, and may open gates, which sends.
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
            let status = self.note_cause(&mut state, status);
            state.times = times.filter(|times| times[3] != 0);
            state.starts.extend(starts);
            self.advance(if settled {
                Phase::Settled
            } else {
                Phase::Ended
            });
            let order_mirrors = if settled {
                state.order_mirrors.clone()
            } else {
                Vec::new()
            };
            self.status.store(status.0.min(0), Ordering::Release);
            if trace::is_on() {
                self.trace_end(status, &state);
            }
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
        // In the order of the command's states: submitted, running, complete.
        callbacks.sort_by_key(|(registered, _)| std::cmp::Reverse(*registered));
        for (registered, callback) in callbacks {
            self.call_back(status.0, registered, callback);
        }
        // Dropping these objects may queue destructor callbacks. A thread of `callbacks` runs them,
        // so no lock problem arises here.
        drop(held);
        Some(arrivals)
    }

    // Returns the command's own status, and notes a failure for the queue.
    fn note_cause(&self, state: &mut EventState, status: Status) -> Status {
        let status = cause(status, &state.parts);
        state.inherited = is_inherited(status, &state.wait);
        if status.is_error()
            && !state.inherited
            && let Some(queue) = self.any_queue()
        {
            // Noted before the end is visible, so that `clFinish` cannot miss the failure.
            queue.finished(self.id, status);
        }
        status
    }

    // Called only once the end is visible: a blocking call may return early as soon as the count is 0.
    fn count_out(&self, state: &mut EventState) {
        if std::mem::take(&mut state.counted)
            && let Some(queue) = &self.queue
        {
            queue.count_out();
        }
    }

    /// Drops a command that was never sent. Runs its finisher; nobody else is notified.
    pub(super) fn discard(&self) {
        if trace::is_on() {
            self.trace_discarded();
        }
        let finisher = {
            let mut state = self.state.lock();
            self.count_out(&mut state);
            state.finisher.take()
        };
        if let Some(finisher) = finisher {
            finisher(Status::OUT_OF_RESOURCES, &Bytes::new());
        }
    }

    /// Waits until the event is done. The caller has flushed the commands that the event depends on.
    ///
    /// # Errors
    /// `CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST` when the event failed. In a child of `fork`, where
    /// nothing can end the event, the error of the session.
    pub fn wait(&self) -> ClResult {
        let waited = match self.any_queue() {
            Some(queue) => {
                if self.context.is_distributed() {
                    // Commands that this one waits for may still be in another session's outbox.
                    let _ = self.context.flush();
                }
                let session = queue.site().session();
                session.wait_for(self.id, &|| self.is_done())
            }
            None => Ok(()),
        };
        // The session is lost, or does not know the event. Another thread may still be about to end it: one
        // that enqueued while the session was lost, or one of another site.
        if !self.is_done() && (waited.is_ok() || fork::check().is_ok()) {
            self.wait_changed();
        }
        match self.status() {
            // clWaitForEvents: CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST when an event has failed.
            status if status < 0 => Err(Status::WAIT_LIST_FAILED),
            CL_COMPLETE => Ok(()),
            _ => Ok(waited?),
        }
    }

    fn wait_changed(&self) {
        let _waiting = trace::waiting();
        let mut state = self.state.lock();
        while !self.is_done() {
            self.changed.wait(&mut state);
        }
    }

    /// Waits until the event is done, and returns what a blocking call returns.
    ///
    /// # Errors
    /// `CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST` when the failure comes from the wait list, whatever
    /// code the node reports. Otherwise the status that the command failed with.
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
}

// When a part has failed, the command reports the part's own error instead of a failed wait list.
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

// The loss of a session is reported as such, even if a wait list failed with it.
fn is_inherited(status: Status, wait: &[Arc<Event>]) -> bool {
    status == Status::WAIT_LIST_FAILED
        || (status.is_error()
            && status != Status::DEVICE_NOT_AVAILABLE
            && wait.iter().any(|on| on.status() < 0))
}

impl Drop for Event {
    fn drop(&mut self) {
        // The worker forgets successful events by itself. Others it keeps until released, because a wait
        // list may name them until now.
        let is_kept = !self.unobserved && self.status() != CL_COMPLETE;
        if let Some(site) = self.site().filter(|_| is_kept) {
            site.release(ObjectKind::Event, self.id.0);
        }
        let state = self.state.get_mut();
        for (site, mirror) in state.mirrors.iter().chain(&state.order_mirrors) {
            site.release(ObjectKind::Event, *mirror);
        }
    }
}
