//! One command as everybody sees it: its event.
//!
//! Its life: made when the command is applied; given its native event when it was enqueued; ended
//! once, by the driver's callback, by a failed enqueue or by a cancellation. User events are commands
//! without a queue, ended by the client. What the client hears of the end goes to the outbox.
//!
//! Invariant: `status` is final once it is not [`OPEN`], and then the native event, if any, may still
//! stand in native wait lists.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use causeway_proto::command::Completion;
use causeway_proto::id::EventId;
use causeway_proto::status::Status;

use super::outbox::Outbox;
use crate::runtime::event::{Event, Listener, Times};

const OPEN: i32 = 1;

/// What ends with the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The client's own event.
    User,
    /// A command that brings nothing back.
    Plain,
    /// A read whose bytes ride in the completion.
    Read,
    /// A bulk transfer: the bulk engine ends it when the driver and the sockets are done.
    Bulk,
}

/// A command's event.
pub(crate) struct Command {
    id: EventId,
    kind: Kind,
    profiling: bool,
    status: AtomicI32,
    native: OnceLock<Event>,
    outbox: Arc<Outbox>,
    // A bulk transfer's first and last native pieces, for its times.
    first: OnceLock<Arc<Event>>,
    last: OnceLock<Arc<Event>>,
}

impl Command {
    /// A new event, open.
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
        })
    }

    /// Its name.
    pub(crate) fn id(&self) -> EventId {
        self.id
    }

    /// Whether the client ends it.
    pub(crate) fn is_user_event(&self) -> bool {
        self.kind == Kind::User
    }

    /// Its final status; `None` while it is open.
    pub(crate) fn status(&self) -> Option<Status> {
        match self.status.load(Ordering::Acquire) {
            OPEN => None,
            status => Some(Status(status)),
        }
    }

    /// Its native event, once it was enqueued.
    pub(crate) fn native(&self) -> Option<&Event> {
        self.native.get()
    }

    /// It was enqueued.
    pub(crate) fn enqueued(&self, event: Event) {
        let _ = self.native.set(event);
    }

    /// A bulk transfer's time begins with `event`.
    pub(crate) fn began(&self, event: Arc<Event>) {
        let _ = self.first.set(event);
    }

    /// A bulk transfer's time ends with `event`.
    pub(crate) fn closed(&self, event: Arc<Event>) {
        let _ = self.last.set(event);
    }

    /// The client set its user event; `false` when it was set before.
    pub(crate) fn set_status(&self, status: Status) -> bool {
        self.status
            .compare_exchange(OPEN, status.0, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// It ended: tells the client, once.
    pub(crate) fn finish(self: &Arc<Self>, status: Status, message: String) {
        if !self.set_status(status) {
            return;
        }
        let failed = status.is_error();
        let times = if self.profiling && !failed {
            self.times()
        } else {
            None
        };
        let Times {
            queued,
            submitted,
            started,
            ended,
        } = times.unwrap_or_default();
        let completion = Completion {
            event: self.id.0,
            status: status.0,
            queued,
            submitted,
            started,
            ended,
            contents: self.contents(failed),
            message,
        };
        self.outbox.complete(completion, Some(Arc::clone(self)));
    }

    fn times(&self) -> Option<Times> {
        let last = self.last.get().map(|e| &**e).or(self.native())?.times()?;
        match self.first.get() {
            Some(first) => Some(Times {
                ended: last.ended,
                ..first.times()?
            }),
            None => Some(last),
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

    fn ended(self: Arc<Self>, status: Status) {
        self.outbox.end(1);
        self.finish(status, String::new());
    }
}
