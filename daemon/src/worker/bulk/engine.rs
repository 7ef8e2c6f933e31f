//! What all transfers of a session share: the queues, the tables and the lanes.
//!
//! This file begins no transfer and serves no lane; the files above it do. Invariant: the engine calls
//! the session only through [`Reports`], at most twice per transfer and never per chunk. It holds no lock
//! meanwhile.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use causeway_lane::Beside;
use causeway_proto::bulk::Header;
use causeway_proto::id::{EventId, LinkId};
use causeway_proto::status::Status;
use parking_lot::Mutex;

use super::early::EagerWrites;
use super::incoming::Incoming;
use super::jobs::Jobs;
use super::message::Message;
use super::outgoing::Outgoing;
use super::path::{Path, RouteWait};
use super::peers::{Peers, Why};
use super::turns::Turns;
use super::writer::LaneWriters;
use crate::accounting::LedgerSlot;
use crate::runtime::block::Blocks;
use crate::worker::objects::Queue;
use crate::worker::objects::command::Command;
use crate::worker::objects::hash::ById;
use crate::worker::objects::task::Far;
use crate::worker::threads::Scope;

/// How long a transfer waits for a link that is being made, and for a replacement of one that broke.
const MAKING: Duration = Duration::from_secs(60);
const REPLACING: Duration = Duration::from_secs(10);

/// What the engine tells the session.
pub(crate) trait Reports: Send + Sync {
    /// The last native command of a transfer is in `queue`, so the commands that follow may run.
    /// `command` has its native event, or has ended. Calls the driver.
    fn passed(self: Arc<Self>, queue: &Arc<Queue>, command: &Command);

    /// A transfer has failed, and its command with it. Calls the driver.
    fn failed(self: Arc<Self>, command: &Command);

    /// The connection of a lane of this incarnation of a link is broken, and can be replaced. The caller may hold
    /// the lane's writing lock.
    fn lane_lost(self: Arc<Self>, link: LinkId, incarnation: u64, lane: u8, connection: u64);

    /// The client violated the protocol on a bulk connection that it could open again.
    fn violated(self: Arc<Self>, what: String);

    /// A lane of this incarnation of a link has ended.
    fn lane_broke(self: Arc<Self>, link: LinkId, incarnation: u64, reason: String);
}

/// The bulk transfers of a session.
pub(crate) struct Engine {
    // Weak, because the session owns the engine.
    session: Weak<dyn Reports>,
    pub(super) scope: Scope,
    /// How long lanes and links wait for their next connection; zero: they end with their connections.
    pub(super) resume: Duration,
    /// Where the session counts its usage.
    pub(super) account: LedgerSlot,
    /// Queue to the client.
    pub(super) outgoing: Outgoing,
    incoming: Mutex<HashMap<EventId, Arc<dyn Incoming>, ById>>,
    pub(super) eager: EagerWrites,
    pub(super) blocks: Blocks,
    /// Number of short reads that have begun and whose bytes were not handed on.
    pub(super) short_reads: AtomicUsize,
    pub(super) peers: Peers,
    pub(super) paths: Mutex<HashMap<LinkId, Arc<Path>, ById>>,
    pub(super) turns: Turns,
    pub(super) jobs: Jobs,
    /// The lane writers of the client's lanes.
    pub(super) writers: LaneWriters,
    /// Measures whether small commands share the network with the client's lanes.
    pub(super) beside: Beside,
}

impl Engine {
    /// Makes the engine of a session, which counts in `account`. Unless `resume` is zero, the client's lanes outlive their
    /// connections.
    pub(crate) fn new(
        session: Weak<dyn Reports>,
        account: LedgerSlot,
        scope: Scope,
        resume: Duration,
    ) -> Engine {
        Engine {
            session,
            eager: EagerWrites::new(scope.clone()),
            jobs: Jobs::new(scope.clone()),
            scope,
            resume,
            account,
            outgoing: Outgoing::default(),
            incoming: Mutex::default(),
            blocks: Blocks::default(),
            short_reads: AtomicUsize::new(0),
            peers: Peers::default(),
            paths: Mutex::default(),
            turns: Turns::default(),
            writers: LaneWriters::default(),
            beside: Beside::default(),
        }
    }

    /// Tells the session something, unless it has ended.
    pub(super) fn report(&self, tell: impl FnOnce(Arc<dyn Reports>)) {
        if let Some(session) = self.session.upgrade() {
            tell(session);
        }
    }

    /// Sends a message to the client if the queue is empty and a lane is free. Does not wait.
    pub(super) fn send_at_once(&self, message: Message) -> Result<(), Message> {
        self.writers.send_at_once(&self.outgoing, message)
    }

    pub(super) fn tell_client(&self, header: Header) {
        let message = Message {
            header,
            bytes: Bytes::new(),
        };
        if self.send_at_once(message).is_err() && !self.outgoing.push(header) {
            // On any thread, also a driver's, which must not unwind.
            self.scope
                .fail("the client reads nothing from its bulk connections");
        }
    }

    pub(super) fn tell_peer(&self, path: &Path, header: Header) {
        if !path.send_header(&self.outgoing, header) {
            tracing::warn!(link = ?path.id(), "the other worker reads no messages from the link");
        }
    }

    /// Returns the path of a link. A link that the client has dropped has a closed path.
    pub(super) fn path_of(&self, link: LinkId) -> Arc<Path> {
        let known = self.paths.lock().get(&link).map(Arc::clone);
        known.unwrap_or_else(|| Arc::new(Path::dropped(link)))
    }

    /// Ends this side of a transfer. Cancels the transfer at the other end if `early` is set, or if the other end has more bytes.
    pub(super) fn end(&self, far: &Far, early: Option<Status>) {
        if let Some(status) = self.peers.end(far, early) {
            let cancel = Header::cancel(far.transfer, status.0);
            self.tell_peer(&self.path_of(far.link), cancel);
        }
    }

    /// Returns why a registered transfer need not begin.
    pub(super) fn over(&self, far: &Far) -> Option<Why> {
        let heard = self.peers.heard(far).over;
        heard.or_else(|| lost(&self.path_of(far.link)))
    }

    /// Starts the timeout for a path on which transfers have begun, if the path has no route.
    pub(super) fn wait_for_route(self: &Arc<Self>, path: &Arc<Path>) {
        let Some((cause, turn)) = path.count() else {
            return;
        };
        let limit = match cause {
            RouteWait::Making => MAKING,
            // A client that is away cannot give another route before it is back.
            RouteWait::Broken => REPLACING + self.resume,
        };
        // The job must not keep the engine, which owns it.
        let (path, engine) = (Arc::clone(path), Arc::downgrade(self));
        self.jobs.at(Instant::now() + limit, move || {
            let (Some(engine), Some(message)) = (engine.upgrade(), path.give_up(turn)) else {
                return;
            };
            tracing::warn!(link = ?path.id(), message, "the transfers of this link fail");
            let why = Why {
                status: Status::DEVICE_NOT_AVAILABLE,
                message,
            };
            for running in engine.peers.lost(path.id(), &why) {
                running.stop(why.clone());
            }
            path.own().unwanted().discard();
        });
    }

    pub(super) fn incoming(&self, transfer: EventId) -> Option<Arc<dyn Incoming>> {
        self.incoming.lock().get(&transfer).map(Arc::clone)
    }

    pub(super) fn expect(&self, transfer: EventId, incoming: Arc<dyn Incoming>) {
        self.incoming.lock().insert(transfer, incoming);
    }

    /// Stops all transfers, because the session ends. Mappings are given back by jobs of the bulk thread.
    pub(super) fn stop_transfers(&self) {
        // Each list is taken before a transfer is stopped, because a transfer then leaves the tables.
        let incoming: Vec<_> = self.incoming.lock().drain().map(|(_, of)| of).collect();
        for transfer in incoming {
            transfer.stop(Why::client());
        }
        for running in self.peers.all(&Why::client()) {
            running.stop(Why::client());
        }
        self.eager.clear();
    }

    pub(super) fn forget(&self, transfer: EventId) {
        let gone = self.incoming.lock().remove(&transfer);
        drop(gone);
    }
}

/// Returns why a path was given up.
pub(super) fn lost(path: &Path) -> Option<Why> {
    path.lost().map(|message| Why {
        status: Status::DEVICE_NOT_AVAILABLE,
        message,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::objects::task::Direction;

    struct Nobody;

    impl Reports for Nobody {
        fn passed(self: Arc<Self>, _: &Arc<Queue>, _: &Command) {}
        fn failed(self: Arc<Self>, _: &Command) {}
        fn lane_lost(self: Arc<Self>, _: LinkId, _: u64, _: u8, _: u64) {}
        fn violated(self: Arc<Self>, _: String) {}
        fn lane_broke(self: Arc<Self>, _: LinkId, _: u64, _: String) {}
    }

    #[test]
    fn a_transfer_over_a_dropped_link_need_not_begin() {
        let engine = Arc::new(Engine::new(
            Weak::<Nobody>::new(),
            LedgerSlot::alone(),
            Scope::default(),
            Duration::ZERO,
        ));
        let far = Far {
            transfer: EventId(1),
            direction: Direction::Receive,
            link: LinkId(3),
        };
        engine.open_path(far.link);
        assert!(engine.register(&far, 10));
        assert!(engine.over(&far).is_none());
        // A transfer that has begun keeps its path, and learns of the drop from it.
        let path = engine.path_of(far.link);
        engine.drop_path(far.link);
        assert!(lost(&path).is_some());
        let why = engine.over(&far).unwrap();
        assert_eq!(why.status, Status::DEVICE_NOT_AVAILABLE);
    }
}
