//! The data that every transfer holds, and how a transfer ends.
//!
//! Invariant: the side that ends a transfer informs the other end, unless that end has ended
//! it or has all bytes.
#![forbid(unsafe_code)]

use std::sync::Arc;

use causeway_proto::bulk::Header;
use causeway_proto::id::EventId;
use causeway_proto::region::Region;
use causeway_proto::status::Status;

use super::outgoing::{Outgoing, Unsent};
use super::peers::{Far, Foreign, Heard, Origin, Running, Why, credit};
use crate::worker::objects::command::Command;
use crate::worker::objects::{Memory, Queue};
use crate::worker::session::Shared;
use crate::worker::session::enqueue::{Expects, Task};
use crate::worker::session::run::Runner;

/// A bulk transfer of one command. See the module.
#[derive(Clone)]
pub(super) struct Transfer {
    pub(super) shared: Arc<Shared>,
    pub(super) command: Arc<Command>,
    pub(super) queue: Arc<Queue>,
    pub(super) memory: Arc<Memory>,
    pub(super) region: Region,
    pub(super) waits: Vec<Arc<Command>>,
    /// The peer's end of the transfer; `None` if the client has the other end.
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

    /// The id that names the transfer in messages.
    pub(super) fn name(&self) -> EventId {
        match &self.far {
            Some(far) => far.transfer,
            None => self.command.id(),
        }
    }

    /// Checks that `origin` may send bytes for this transfer.
    pub(super) fn takes_from(&self, origin: Origin) -> Result<(), Foreign> {
        match (&self.far, origin) {
            (Some(far), _) => far.speaks(origin),
            (None, Origin::Client) => Ok(()),
            (None, Origin::Peer(_)) => Err(Foreign(self.name())),
        }
    }

    /// Passes later messages about this transfer to `running`. Returns the messages received so far.
    pub(super) fn start(&self, far: &Far, running: Arc<dyn Running>) -> Heard {
        let bulk = &self.shared.bulk;
        let mut heard = bulk.peers.started(far, running);
        heard.over = heard.over.or_else(|| bulk.lost(far));
        heard
    }

    /// Sends a control message to the other end.
    pub(super) fn send_header(&self, word: Header) {
        match &self.far {
            Some(far) => self.shared.bulk.tell_peer(&far.path, word),
            None => self.shared.bulk.tell_client(word),
        }
    }

    /// Calls `put` with the queue on which this transfer's bytes leave.
    pub(super) fn put(&self, put: impl FnOnce(&Outgoing) -> Unsent) {
        let client = &self.shared.bulk.outgoing;
        let unsent = match &self.far {
            Some(far) => far.path.put(client, put),
            None => put(client),
        };
        unsent.discard();
    }

    /// Allows the other end to send bytes up to `to`.
    pub(super) fn grant(&self, to: u64) {
        if let Some(far) = &self.far {
            self.shared.bulk.peers.credited(far);
        }
        self.send_header(credit(self.name(), to));
    }

    /// Ends the exchange of messages about the transfer. `early` is the reason if it did not complete.
    pub(super) fn settle(&self, early: Option<Status>) {
        match (&self.far, early) {
            (Some(far), _) => self.shared.bulk.end(far, early),
            (None, Some(_)) if self.expects == Expects::ByCredit => {
                self.send_header(Header::cancel(self.name(), 0))
            }
            (None, _) => {}
        }
    }

    /// Fails the transfer: informs the other end and releases the commands that follow. Calls the driver.
    pub(super) fn fail(&self, status: Status, message: String) {
        self.shared.bulk.forget(self.name());
        self.settle(Some(status));
        self.command.finish(status, message);
        Runner::new(&self.shared).failed(&self.command);
    }

    /// Fails the transfer on the bulk thread, for callers that must not call the driver.
    pub(super) fn fail_later(&self, status: Status, message: String) {
        let transfer = self.clone();
        let fail = move |_: &_| transfer.fail(status, message);
        self.shared.bulk.later(&self.shared, fail);
    }

    /// Logs that the other end or the link gave up a send. The command itself does not fail,
    /// so nothing else reports it.
    pub(super) fn log_stop(&self, why: &Why) {
        let (transfer, link) = (self.name(), self.far.as_ref().map(|far| far.path.id()));
        tracing::info!(
            ?transfer,
            ?link,
            status = ?why.status,
            why.message,
            "a transfer stopped before all bytes were sent"
        );
    }
}
