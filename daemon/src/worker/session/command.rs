//! One command as everybody sees it: its event.
//!
//! Its life: made when the command is applied; given its native event when it was enqueued; ended
//! once, by the driver's callback, by a failed enqueue or by a cancellation. User events are commands
//! without a queue, ended by the client; mirrors too, ended by the client or another site, whichever is
//! first. What the client hears of the end goes to the outbox, what mirrors hear of it to their workers.
//!
//! Invariant: `status` is final once it is not [`OPEN`], and then the native event, if any, may still
//! stand in native wait lists.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use causeway_proto::bulk::Header;
use causeway_proto::command::Completion;
use causeway_proto::id::{EventId, LinkId};
use causeway_proto::limits::MAX_LIST;
use causeway_proto::status::Status;
use parking_lot::Mutex;

use super::links::Link;
use super::outbox::Outbox;
use super::unseen::Earlier;
use super::{Shared, mirrors};
use crate::runtime::event::{Event, Listener, Times};

const OPEN: i32 = 1;

/// What ends with the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The client's own event.
    User,
    /// Stands for an event of another site, whose worker speaks over this link; 0: no other one may.
    Mirror(LinkId),
    /// A command that brings nothing back.
    Plain,
    /// A replay, which fails with the first of its parts that does.
    Replay,
    /// A read whose bytes ride in the completion.
    Read,
    /// A bulk transfer: the bulk engine ends it when the driver and the sockets are done.
    Bulk,
}

/// A mirror that is to be ended with an event.
pub(crate) struct Tell {
    /// Its id, where it is.
    pub(crate) mirror: EventId,
    /// Where it is.
    pub(crate) to: To,
    /// Whether it hears of a good end only.
    pub(crate) order_only: bool,
}

/// Where a mirror is.
pub(crate) enum To {
    /// In this worker.
    Here(Arc<Shared>),
    /// At the other end of a link.
    Peer(Arc<Link>),
    /// At the other end of a link that was dropped: nobody hears of it.
    Nobody,
}

impl Tell {
    /// Whether it is told of such an end. After a failure the client says when what came before is over too.
    pub(crate) fn is_for(&self, status: Status) -> bool {
        !(self.order_only && status.is_error())
    }

    /// Tells it, if the end is for it. Neither blocks nor calls the driver.
    pub(crate) fn say(self, status: Status) {
        if !self.is_for(status) {
            return;
        }
        match self.to {
            To::Here(shared) => mirrors::resolve(&shared, self.mirror, status),
            To::Peer(link) => link.say(Header::event(self.mirror, status.0)),
            To::Nobody => {}
        }
    }
}

/// One event has its full number of mirrors.
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
    // A bulk transfer's first and last native pieces, for its times.
    first: OnceLock<Arc<Event>>,
    last: OnceLock<Arc<Event>>,
    // A replay's commands before the one that ends it, as far as they have events.
    parts: OnceLock<Vec<Event>>,
    // Commands of its queue that have ended when it ends, and whose ends it tells.
    earlier: OnceLock<Earlier>,
    // Whom to tell of the end.
    tells: Mutex<Vec<Tell>>,
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
            parts: OnceLock::new(),
            earlier: OnceLock::new(),
            tells: Mutex::default(),
        })
    }

    /// Its name.
    pub(crate) fn id(&self) -> EventId {
        self.id
    }

    /// Whether the client ends it.
    pub(crate) fn is_user_event(&self) -> bool {
        matches!(self.kind, Kind::User | Kind::Mirror(_))
    }

    /// Whether others than the client may end it, too.
    pub(crate) fn is_mirror(&self) -> bool {
        matches!(self.kind, Kind::Mirror(_))
    }

    /// Whether it is one of which the other end of this link may speak; of 0, this worker itself.
    pub(crate) fn is_mirror_of(&self, link: LinkId) -> bool {
        matches!(self.kind, Kind::Mirror(of) if of == link || link.0 == 0)
    }

    /// Has a mirror told of the end, at once if it has come.
    ///
    /// # Errors
    /// [`TooManyMirrors`].
    pub(crate) fn tell(&self, tell: Tell) -> Result<(), TooManyMirrors> {
        let mut tells = self.tells.lock();
        // Looked at under the lock: whoever ends the event takes the list afterwards.
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

    /// These come with its native event, which ends after them.
    pub(crate) fn consists_of(&self, parts: Vec<Event>) {
        let _ = self.parts.set(parts);
    }

    /// The native end of this command tells of these as well.
    pub(crate) fn comes_after(&self, earlier: Earlier) {
        let _ = self.earlier.set(earlier);
    }

    fn parts(&self) -> &[Event] {
        self.parts.get().map_or(&[], Vec::as_slice)
    }

    /// It ended; whom to tell. `None` when it had ended before.
    pub(crate) fn close(&self, status: Status) -> Option<Vec<Tell>> {
        self.status
            .compare_exchange(OPEN, status.0, Ordering::AcqRel, Ordering::Acquire)
            .ok()?;
        Some(std::mem::take(&mut *self.tells.lock()))
    }

    /// It ended: tells its mirrors and the client, once.
    pub(crate) fn finish(self: &Arc<Self>, status: Status, message: String) {
        let Some(told) = self.close(status) else {
            // What `ended` has gathered leaves with this command's completion, which another thread has put out.
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
        let Times {
            queued,
            submitted,
            started,
            ended,
            completed,
        } = times.unwrap_or_default();
        let completion = Completion {
            event: self.id.0,
            status: status.0,
            queued,
            submitted,
            started,
            ended,
            completed: if completed > ended { completed } else { 0 },
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

    fn ended(self: Arc<Self>, status: Status) {
        let failed = || self.parts().iter().find_map(Event::failure);
        let status = if status.is_error() {
            status
        } else {
            failed().unwrap_or(status)
        };
        self.outbox.end(1);
        if let Some(earlier) = self.earlier.get() {
            self.outbox.gather(earlier.completions());
        }
        self.finish(status, String::new());
    }
}
