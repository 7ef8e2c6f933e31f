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

use super::engine::{Engine, Reports, lost};
use super::incoming::Incoming;
use super::outgoing::{Outgoing, Unsent};
use super::path::Path;
use super::peers::{Heard, TransferInProgress, Why, credit, offer};
use crate::worker::objects::command::Command;
use crate::worker::objects::task::{Expects, Far, Task};
use crate::worker::objects::{Memory, Queue};

/// A bulk transfer of one command. See the module.
#[derive(Clone)]
pub(super) struct Transfer {
    pub(super) engine: Arc<Engine>,
    pub(super) command: Arc<Command>,
    pub(super) queue: Arc<Queue>,
    pub(super) memory: Arc<Memory>,
    pub(super) region: Region,
    pub(super) waits: Vec<Arc<Command>>,
    /// The peer's end of the transfer; `None` if the client has the other end.
    remote: Option<Remote>,
    expects: Expects,
}

/// The other worker's end of a transfer.
#[derive(Clone)]
struct Remote {
    far: Far,
    path: Arc<Path>,
}

impl Transfer {
    pub(super) fn new(
        engine: &Arc<Engine>,
        task: &Task,
        memory: &Arc<Memory>,
        region: Region,
    ) -> Transfer {
        Transfer {
            engine: Arc::clone(engine),
            command: Arc::clone(&task.command),
            queue: Arc::clone(&task.queue),
            memory: Arc::clone(memory),
            region,
            waits: task.waits.clone(),
            remote: task.far.map(|far| Remote {
                path: engine.path_of(far.link),
                far,
            }),
            expects: task.expects,
        }
    }

    /// The id that names the transfer in messages.
    pub(super) fn name(&self) -> EventId {
        match &self.remote {
            Some(remote) => remote.far.transfer,
            None => self.command.id(),
        }
    }

    /// The transfer as the other worker names it; `None` if the client has the other end.
    pub(super) fn far(&self) -> Option<&Far> {
        self.remote.as_ref().map(|remote| &remote.far)
    }

    /// The number of bytes of the transfer.
    pub(super) fn total(&self) -> u64 {
        self.region.packed_length()
    }

    /// Starts to send: offers the bytes, and passes all credit to `sender`. The client grants credit for
    /// all bytes, because the application's memory exists from the start.
    pub(super) fn start_sending(&self, sender: Arc<dyn TransferInProgress>) {
        let total = self.total();
        let Some(remote) = &self.remote else {
            return sender.heard(total);
        };
        let heard = self.start(remote, Arc::clone(&sender));
        if let Some(why) = heard.over {
            return sender.stop(why);
        }
        let credit = heard.amount(remote.far.direction).unwrap_or(0);
        if credit < total {
            self.send_header(offer(remote.far.transfer, total));
        }
        sender.heard(credit);
    }

    /// Starts to receive: passes the bytes, and the offer of them, to `receiver`. The client's command is
    /// its offer.
    pub(super) fn start_receiving(&self, receiver: &Arc<impl Incoming + 'static>) {
        self.engine.expect(self.name(), Arc::clone(receiver) as _);
        let receiver: Arc<dyn TransferInProgress> = Arc::clone(receiver) as _;
        let Some(remote) = &self.remote else {
            return receiver.heard(self.total());
        };
        let heard = self.start(remote, Arc::clone(&receiver));
        if let Some(why) = heard.over {
            receiver.stop(why);
        } else if let Some(offered) = heard.amount(remote.far.direction) {
            receiver.heard(offered);
        }
    }

    /// Passes later messages about this transfer to `running`. Returns the messages received so far.
    fn start(&self, remote: &Remote, running: Arc<dyn TransferInProgress>) -> Heard {
        let mut heard = self.engine.peers.started(&remote.far, running);
        heard.over = heard.over.or_else(|| lost(&remote.path));
        heard
    }

    /// Sends a control message to the other end.
    pub(super) fn send_header(&self, header: Header) {
        match &self.remote {
            Some(remote) => self.engine.tell_peer(&remote.path, header),
            None => self.engine.tell_client(header),
        }
    }

    /// Calls `put` with the queue on which this transfer's bytes leave.
    pub(super) fn put(&self, put: impl FnOnce(&Outgoing) -> Unsent) {
        let client = &self.engine.outgoing;
        let unsent = match &self.remote {
            Some(remote) => remote.path.put(client, put),
            None => put(client),
        };
        unsent.discard();
    }

    /// Allows the other end to send bytes up to `to`.
    pub(super) fn grant(&self, to: u64) {
        if let Some(remote) = &self.remote {
            self.engine.peers.credited(&remote.far);
        }
        self.send_header(credit(self.name(), to));
    }

    /// Ends the exchange of messages about the transfer. `early` is the reason if it did not complete.
    pub(super) fn settle(&self, early: Option<Status>) {
        match (&self.remote, early) {
            (Some(remote), _) => self.engine.end(&remote.far, early),
            (None, Some(_)) if self.expects == Expects::ByCredit => {
                self.send_header(Header::cancel(self.name(), 0))
            }
            (None, _) => {}
        }
    }

    /// Fails the transfer: informs the other end and releases the commands that follow. Calls the driver.
    pub(super) fn fail(&self, status: Status, message: String) {
        self.engine.forget(self.name());
        self.settle(Some(status));
        self.fail_command(status, message);
    }

    /// Releases the commands that follow: the last native command is enqueued, and `command` has its
    /// native event or has ended. Calls the driver.
    pub(super) fn passed(&self) {
        let tell = |session: Arc<dyn Reports>| session.passed(&self.queue, &self.command);
        self.engine.report(tell);
    }

    /// Fails the command and releases the commands that follow. Calls the driver.
    pub(super) fn fail_command(&self, status: Status, message: String) {
        self.command.finish(status, message);
        self.engine.report(|session| session.failed(&self.command));
    }

    /// Fails the transfer on the bulk thread, for callers that must not call the driver.
    pub(super) fn fail_later(&self, status: Status, message: String) {
        let transfer = self.clone();
        let fail = move || transfer.fail(status, message);
        self.engine.jobs.later(fail);
    }

    /// Logs that the other end or the link gave up a send. The command itself does not fail,
    /// so nothing else reports it.
    pub(super) fn log_stop(&self, why: &Why) {
        let (transfer, link) = (self.name(), self.far().map(|far| far.link));
        tracing::info!(
            ?transfer,
            ?link,
            status = ?why.status,
            why.message,
            "a transfer stopped before all bytes were sent"
        );
    }
}
