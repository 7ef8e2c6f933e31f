//! One command as all modules see it: its event.
//!
//! A command is made when it is applied, gets its native event when it is enqueued, and ends once. The
//! driver's callback, a failed enqueue or a cancellation ends it. User events are commands without a
//! queue, ended by the client. Mirrors are ended by the client or another site, whichever is first. The
//! client learns of the end through the outbox. Mirrors learn of it through their workers.
//!
//! Invariant: `status` is final once it is not [`OPEN`]. After that, the native event may
//! still be in native wait lists.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use causeway_proto::command::Completion;
use causeway_proto::id::{EventId, LinkId};
use causeway_proto::limits::MAX_LIST;
use causeway_proto::status::Status;
use parking_lot::Mutex;

use super::console::Turn;
use super::outbox::Outbox;
use super::pace::Ticket;
use super::unobserved::Earlier;
use crate::accounting::Busy;
use crate::runtime::event::{Event, Listener, Times, WaitList};
use crate::runtime::listen::listen;
use crate::worker::threads::broken;

const OPEN: i32 = 1;

/// The kind of a command, which determines how it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A user event of the client.
    User,
    /// An event that stands for another site's event. The other end of this link may end it;
    /// for link 0, only this worker may.
    Mirror(LinkId),
    /// A command that returns no data.
    Plain,
    /// A replay. It fails with the status of its first part that fails.
    Replay,
    /// A read whose bytes are sent in the completion.
    Read,
    /// A bulk transfer. The bulk engine ends it when the driver and the sockets are done.
    Bulk,
}

/// A request to end a mirror together with an event.
pub(crate) struct Tell {
    /// The mirror's id in its own worker.
    pub(crate) mirror: EventId,
    /// The worker that has the mirror.
    pub(crate) to: To,
    /// Whether the mirror is notified only of success.
    pub(crate) order_only: bool,
}

/// A worker that has mirrors: this one, or the one at the other end of a link.
pub(crate) trait MirrorHost: Send + Sync {
    /// Ends a mirror. Neither blocks nor calls the driver.
    fn end_mirror(self: Arc<Self>, mirror: EventId, status: Status);
}

/// The place of a mirror.
pub(crate) enum To {
    /// In this worker.
    Here(Arc<dyn MirrorHost>),
    /// At the other end of a link.
    Peer(Arc<dyn MirrorHost>),
    /// At the other end of a link that was dropped. No notification is sent.
    Nobody,
}

impl Tell {
    /// Whether the mirror is notified of this status. After a failure of an `order_only` mirror, the
    /// client reports when all earlier commands have ended.
    pub(crate) fn is_for(&self, status: Status) -> bool {
        !(self.order_only && status.is_error())
    }

    /// Notifies the mirror, if the status is for it. Neither blocks nor calls the driver.
    pub(crate) fn say(self, status: Status) {
        if !self.is_for(status) {
            return;
        }
        match self.to {
            To::Here(host) | To::Peer(host) => host.end_mirror(self.mirror, status),
            To::Nobody => {}
        }
    }
}

/// The event already has the maximum number of mirrors.
#[derive(Debug)]
pub(crate) struct TooManyMirrors;

/// A command's event.
pub(crate) struct Command {
    id: EventId,
    kind: Kind,
    profiling: bool,
    status: AtomicI32,
    native: OnceLock<Event>,
    outbox: Arc<Outbox>,
    // The first and last native pieces of a bulk transfer, for its profiling times.
    first: OnceLock<Arc<Event>>,
    last: OnceLock<Arc<Event>>,
    // The events of a replay's commands, except the command that ends the replay. Unobserved ones have none.
    parts: OnceLock<Vec<Event>>,
    // Earlier commands of the queue that have ended when this one ends. This one reports their ends.
    earlier: OnceLock<Earlier>,
    // The mirrors to notify of the end.
    tells: Mutex<Vec<Tell>>,
    // The right to the console of a host, until the end of a command that may print.
    turn: OnceLock<Mutex<Option<Turn>>>,
    // The command's room in the driver, if the session has neighbours.
    ticket: OnceLock<Mutex<Option<Ticket>>>,
}

impl Command {
    /// Makes an open event.
    pub(crate) fn new(
        id: EventId,
        kind: Kind,
        profiling: bool,
        outbox: &Arc<Outbox>,
    ) -> Arc<Command> {
        Arc::new(Command {
            id,
            kind,
            profiling,
            status: AtomicI32::new(OPEN),
            native: OnceLock::new(),
            outbox: Arc::clone(outbox),
            first: OnceLock::new(),
            last: OnceLock::new(),
            parts: OnceLock::new(),
            earlier: OnceLock::new(),
            tells: Mutex::default(),
            turn: OnceLock::new(),
            ticket: OnceLock::new(),
        })
    }

    /// The id of the event.
    pub(crate) fn id(&self) -> EventId {
        self.id
    }

    /// Whether the client ends the event: a user event or mirror.
    pub(crate) fn is_user_event(&self) -> bool {
        matches!(self.kind, Kind::User | Kind::Mirror(_))
    }

    /// Whether another party than the client may end the event, too.
    pub(crate) fn is_mirror(&self) -> bool {
        matches!(self.kind, Kind::Mirror(_))
    }

    /// Whether the event is a mirror that the other end of `link` may end. Link 0 is this worker itself.
    pub(crate) fn is_mirror_of(&self, link: LinkId) -> bool {
        matches!(self.kind, Kind::Mirror(of) if of == link || link.0 == 0)
    }

    /// Notifies a mirror of the end, at once if the event has ended.
    ///
    /// # Errors
    /// [`TooManyMirrors`].
    pub(crate) fn tell(&self, tell: Tell) -> Result<(), TooManyMirrors> {
        let mut tells = self.tells.lock();
        // Checked under the lock, because the thread that ends the event takes the list afterwards.
        let Some(status) = self.status() else {
            if tells.len() >= MAX_LIST {
                return Err(TooManyMirrors);
            }
            tells.push(tell);
            return Ok(());
        };
        drop(tells);
        tell.say(status);
        Ok(())
    }

    /// The final status; `None` while the event is open.
    pub(crate) fn status(&self) -> Option<Status> {
        match self.status.load(Ordering::Acquire) {
            OPEN => None,
            status => Some(Status(status)),
        }
    }

    /// The native event, once the command was enqueued.
    pub(crate) fn native(&self) -> Option<&Event> {
        self.native.get()
    }

    /// Stores the native event of the enqueued command.
    pub(crate) fn enqueued(&self, event: Event) {
        let _ = self.native.set(event);
    }

    /// Sets the native event with which a bulk transfer's profiling times begin.
    pub(crate) fn began(&self, event: Arc<Event>) {
        let _ = self.first.set(event);
    }

    /// Sets the native event with which a bulk transfer's profiling times end.
    pub(crate) fn closed(&self, event: Arc<Event>) {
        let _ = self.last.set(event);
    }

    /// Adds the other native events of a replay. The native event of the command ends after them.
    pub(crate) fn consists_of(&self, parts: Vec<Event>) {
        let _ = self.parts.set(parts);
    }

    /// Has this command's native end report the ends of `earlier` commands as well.
    pub(crate) fn comes_after(&self, mut earlier: Earlier) {
        if let Some(ticket) = earlier.ticket.take() {
            self.keep(ticket);
        }
        let _ = self.earlier.set(earlier);
    }

    /// Keeps the command's room in the driver until the command has ended.
    pub(crate) fn keep(&self, ticket: Ticket) {
        let mut kept = self.ticket.get_or_init(Mutex::default).lock();
        match &mut *kept {
            Some(kept) => kept.add(ticket),
            None => *kept = Some(ticket),
        }
    }

    /// Keeps the right to the console of a host until the command has ended.
    pub(crate) fn prints(&self, turn: Turn) {
        let _ = self.turn.set(Mutex::new(Some(turn)));
    }

    /// Has the command notified of its native end. The outbox then expects its completion.
    pub(crate) fn watch_end(self: &Arc<Self>) {
        self.outbox.begin(1);
        watch(self);
    }

    fn parts(&self) -> &[Event] {
        self.parts.get().map_or(&[], Vec::as_slice)
    }

    /// Ends the event. Returns the mirrors to notify, or `None` if the event had ended before.
    pub(crate) fn close(&self, status: Status) -> Option<Vec<Tell>> {
        self.status
            .compare_exchange(OPEN, status.0, Ordering::AcqRel, Ordering::Acquire)
            .ok()?;
        Some(std::mem::take(&mut *self.tells.lock()))
    }

    /// Ends the event and notifies its mirrors and the client, once.
    pub(crate) fn finish(self: &Arc<Self>, status: Status, message: String) {
        if let Some(turn) = self.turn.get() {
            // Before the completion, so that the command's text goes before it.
            drop(turn.lock().take());
        }
        let Some(told) = self.close(status) else {
            // Another thread has queued this command's completion. The flush sends it, and the
            // completions that `ended` has gathered.
            self.outbox.flush();
            return;
        };
        for tell in told {
            tell.say(status);
        }
        let failed = status.is_error();
        let times = if self.profiling && !failed {
            self.times()
        } else {
            None
        };
        let completion = Completion {
            event: self.id.0,
            status: status.0,
            contents: self.contents(failed),
            message,
            ..Completion::default()
        };
        let completion = with_times(completion, times.unwrap_or_default());
        self.outbox.complete(completion, Some(Arc::clone(self)));
    }

    fn times(&self) -> Option<Times> {
        let last = self.last.get().map(|e| &**e).or(self.native())?.times()?;
        match self.first.get() {
            Some(first) => Some(Times {
                ended: last.ended,
                completed: last.completed,
                ..first.times()?
            }),
            None => {
                let parts = self.parts().iter().filter_map(Event::times);
                Some(parts.fold(last, Times::around))
            }
        }
    }

    fn contents(&self, failed: bool) -> Bytes {
        let Some(event) = self.native() else {
            return Bytes::new();
        };
        if self.kind == Kind::Read && !failed {
            return event.take_contents();
        }
        event.drop_host();
        Bytes::new()
    }
}

impl Listener for Command {
    fn event(&self) -> Option<&Event> {
        self.native()
    }

    fn busy(&self) -> &Busy {
        self.outbox.busy()
    }

    fn ended(self: Arc<Self>, status: Status) {
        let failed = || self.parts().iter().find_map(Event::failure);
        let status = if status.is_error() {
            status
        } else {
            failed().unwrap_or(status)
        };
        if let Some(ticket) = self.ticket.get().and_then(|kept| kept.lock().take()) {
            ticket.end();
        }
        self.outbox.end(1);
        if let Some(earlier) = self.earlier.get() {
            if earlier.is_timed() {
                // The first times of a device may set its clock, by a command that has just ended. The earlier ones may
                // have ended long ago.
                let _ = self.native().and_then(Event::times);
            }
            let completions = earlier.completions();
            self.outbox.end_unobserved(completions.len());
            self.outbox.gather(completions);
        }
        self.finish(status, String::new());
    }
}

/// Sets the times of a completion.
pub(super) fn with_times(completion: Completion, times: Times) -> Completion {
    let Times {
        queued,
        submitted,
        started,
        ended,
        completed,
    } = times;
    Completion {
        queued,
        submitted,
        started,
        ended,
        completed: if completed > ended { completed } else { 0 },
        ..completion
    }
}

/// Has `listener` notified of its native event's end. Ends the session if that is impossible.
pub(crate) fn watch<L: Listener>(listener: &Arc<L>) {
    if let Err(status) = listen(listener) {
        broken(&format!(
            "the driver refuses a callback for a command's end: {status:?}"
        ));
    }
}

/// Returns the native events that a command has to wait for. An event that has ended well is omitted.
///
/// # Errors
/// [`Status::WAIT_LIST_FAILED`] when an event has failed.
pub(crate) fn native_waits(waits: &[Arc<Command>]) -> Result<WaitList<'_>, Status> {
    let mut list = WaitList::default();
    for wait in waits {
        match wait.status() {
            Some(status) if status.is_error() => return Err(Status::WAIT_LIST_FAILED),
            Some(_) => {}
            None => match wait.native() {
                Some(event) => list.push(event),
                // A runnable command waits for no undecided event. So another thread has just cancelled
                // this one, and is about to set its status.
                None => return Err(Status::WAIT_LIST_FAILED),
            },
        }
    }
    Ok(list)
}
