//! What every transfer holds, and how it ends.
//!
//! Invariant: whoever ends a transfer tells the other end, unless that has ended it or has everything.
#![forbid(unsafe_code)]

use std::sync::Arc;

use causeway_proto::bulk::Header;
use causeway_proto::id::EventId;
use causeway_proto::region::Region;
use causeway_proto::status::Status;

use super::outgoing::{Outgoing, Unsent};
use super::peers::{Far, Foreign, Heard, Origin, Running, Why, credit};
use crate::worker::session::Shared;
use crate::worker::session::command::Command;
use crate::worker::session::enqueue::{Expects, Task};
use crate::worker::session::objects::{Memory, Queue};
use crate::worker::session::run::Runner;

/// See the module.
#[derive(Clone)]
pub(super) struct Transfer {
    pub(super) shared: Arc<Shared>,
    pub(super) command: Arc<Command>,
    pub(super) queue: Arc<Queue>,
    pub(super) memory: Arc<Memory>,
    pub(super) region: Region,
    pub(super) waits: Vec<Arc<Command>>,
    /// The other worker; `None`: the client.
    pub(super) far: Option<Far>,
    expects: Expects,
}

impl Transfer {
    pub(super) fn new(
        shared: &Arc<Shared>,
        task: &Task,
        memory: &Arc<Memory>,
        region: Region,
    ) -> Transfer {
        Transfer {
            shared: Arc::clone(shared),
            command: Arc::clone(&task.command),
            queue: Arc::clone(&task.queue),
            memory: Arc::clone(memory),
            region,
            waits: task.waits.clone(),
            far: task.far.clone(),
            expects: task.expects,
        }
    }

    /// Its name on the wire.
    pub(super) fn name(&self) -> EventId {
        match &self.far {
            Some(far) => far.transfer,
            None => self.command.id(),
        }
    }

    /// Whether bytes for it may come from there.
    pub(super) fn takes_from(&self, origin: Origin) -> Result<(), Foreign> {
        match (&self.far, origin) {
            (Some(far), _) => far.speaks(origin),
            (None, Origin::Client) => Ok(()),
            (None, Origin::Peer(_)) => Err(Foreign(self.name())),
        }
    }

    /// From now on `running` hears what is said of this transfer with a peer; what was said so far.
    pub(super) fn start(&self, far: &Far, running: Arc<dyn Running>) -> Heard {
        let bulk = &self.shared.bulk;
        let mut heard = bulk.peers.started(far, running);
        heard.over = heard.over.or_else(|| bulk.lost(far));
        heard
    }

    /// Something to say to the other end.
    pub(super) fn say(&self, word: Header) {
        match &self.far {
            Some(far) => self.shared.bulk.tell_peer(&far.path, word),
            None => self.shared.bulk.tell_client(word),
        }
    }

    /// Something for the queue by which its bytes leave.
    pub(super) fn put(&self, put: impl FnOnce(&Outgoing) -> Unsent) {
        let client = &self.shared.bulk.outgoing;
        let unsent = match &self.far {
            Some(far) => far.path.put(client, put),
            None => put(client),
        };
        unsent.discard();
    }

    /// The other end may send bytes up to `to`.
    pub(super) fn grant(&self, to: u64) {
        if let Some(far) = &self.far {
            self.shared.bulk.peers.credited(far);
        }
        self.say(credit(self.name(), to));
    }

    /// Nothing more is to be said or heard of it; `early` is why, if it ends before its time.
    pub(super) fn settle(&self, early: Option<Status>) {
        match (&self.far, early) {
            (Some(far), _) => self.shared.bulk.end(far, early),
            (None, Some(_)) if self.expects == Expects::ByCredit => {
                self.say(Header::cancel(self.name(), 0))
            }
            (None, _) => {}
        }
    }

    /// The transfer fails: tells the other end, and lets the queue's successors go. Enters the driver.
    pub(super) fn fail(&self, status: Status, message: String) {
        self.shared.bulk.forget(self.name());
        self.settle(Some(status));
        self.command.finish(status, message);
        Runner::new(&self.shared).failed(&self.command);
    }

    /// The same from where the driver must not be entered.
    pub(super) fn fail_later(&self, status: Status, message: String) {
        let transfer = self.clone();
        let fail = move |_: &_| transfer.fail(status, message);
        self.shared.bulk.later(&self.shared, fail);
    }

    /// A send was given up by the other end or the link. The command does not fail of it, so it is said here.
    pub(super) fn log_stop(&self, why: &Why) {
        let (transfer, link) = (self.name(), self.far.as_ref().map(|far| far.path.id()));
        tracing::info!(?transfer, ?link, status = ?why.status, why.message, "not all was sent");
    }
}
