//! The table of transfers with other workers, and the messages received about them.
//!
//! A message may arrive long before its command or after its end, and on another route than the bytes. An
//! early message is kept for the command. A late one is dropped. But if the transfer ended early here, a
//! peer that still sends messages about it gets a cancellation.
//!
//! This module moves no bytes and sends no messages. Invariant: each end is registered once and ended
//! once. [`TransferInProgress`] is never called with the table locked. The number of early messages and of
//! remembered ends is bounded.
#![forbid(unsafe_code)]

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use causeway_proto::bulk::{Header, Kind};
use causeway_proto::id::{EventId, LinkId};
use causeway_proto::status::Status;
use parking_lot::Mutex;

use crate::worker::objects::task::{Direction, Far};

/// The id of a worker's path to itself, for transfers between two platforms of a node.
pub(super) const OWN: LinkId = LinkId(0);

/// Limits on early messages that are kept, and on ended transfers that are remembered.
const MOST_EARLY: usize = 1 << 17;
const MOST_ENDED: usize = 1 << 16;

/// The party at the other end of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Origin {
    /// The client, which may speak for every peer.
    Client,
    /// The peer of this link, which may speak only for its own transfers.
    Peer(LinkId),
}

/// Why a transfer ends early.
#[derive(Clone, Debug)]
pub(super) struct Why {
    pub(super) status: Status,
    pub(super) message: String,
}

impl Why {
    /// The client will not send the bytes of its write.
    pub(super) fn client() -> Why {
        Why {
            status: Status::OUT_OF_RESOURCES,
            message: String::new(),
        }
    }

    /// The two ends have different lengths.
    pub(super) fn mismatch() -> Why {
        Why {
            status: Status::INVALID_OPERATION,
            message: "the two ends of a transfer have different lengths".into(),
        }
    }
}

/// A transfer in progress. Lanes call it, so it must not block.
pub(super) trait TransferInProgress: Send + Sync {
    /// Handles an amount from the other end: the credit for a sender, or the offer to a receiver. In bytes.
    fn heard(self: Arc<Self>, amount: u64);

    /// Ends the transfer now, because the other end or the link gave it up. The other end is not informed.
    fn stop(self: Arc<Self>, why: Why);
}

/// Messages received about a transfer, before it began or since.
#[derive(Clone, Debug, Default)]
pub(super) struct Heard {
    credit: Option<u64>,
    offer: Option<u64>,
    pub(super) over: Option<Why>,
}

impl Heard {
    /// The amount that the other end has sent to a worker that sends or receives.
    pub(super) fn amount(&self, direction: Direction) -> Option<u64> {
        match direction {
            Direction::Send => self.credit,
            Direction::Receive => self.offer,
        }
    }

    fn note(&mut self, direction: Direction, amount: u64) {
        let place = match direction {
            Direction::Send => &mut self.credit,
            Direction::Receive => &mut self.offer,
        };
        *place = Some(place.unwrap_or(0).max(amount));
    }
}

type Key = (Direction, EventId);

fn key(far: &Far) -> Key {
    (far.direction, far.transfer)
}

struct PeerTransfer {
    far: Far,
    total: u64,
    heard: Heard,
    // The receiver has granted credit, so bytes may be in flight.
    credited: bool,
    running: Option<Arc<dyn TransferInProgress>>,
}

/// The table.
#[derive(Default)]
pub(super) struct Peers(Mutex<PeersState>);

#[derive(Default)]
struct PeersState {
    ends: HashMap<Key, PeerTransfer>,
    early: HashMap<(Origin, EventId), Heard>,
    early_order: VecDeque<(Origin, EventId)>,
    ended: HashMap<Key, PastTransfer>,
    ended_order: VecDeque<Key>,
}

#[derive(Clone, Copy)]
enum PastTransfer {
    /// Completed; the value is the number of bytes transferred.
    Whole(u64),
    Early(Status),
}

/// A peer sent a message about a transfer that is not its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the other worker named transfer {0:?}, which is not one of its own")]
pub(super) struct Foreign(pub(super) EventId);

impl Peers {
    /// Registers a transfer that a command names. Returns false if it was registered before.
    pub(super) fn register(&self, far: &Far, total: u64) -> bool {
        let mut state = self.0.lock();
        if state.ends.contains_key(&key(far)) || state.ended.contains_key(&key(far)) {
            return false;
        }
        let mut heard = Heard::default();
        for origin in [Origin::Client, Origin::Peer(far.link)] {
            if let Some(early) = state.early.remove(&(origin, far.transfer)) {
                if let Some(amount) = early.amount(far.direction) {
                    heard.note(far.direction, amount);
                }
                heard.over = heard.over.or(early.over);
            }
        }
        let end = PeerTransfer {
            far: *far,
            total,
            credited: far.direction == Direction::Send && heard.credit.is_some_and(|c| c > 0),
            heard,
            running: None,
        };
        state.ends.insert(key(far), end);
        true
    }

    /// Returns the messages received so far for a registered transfer.
    pub(super) fn heard(&self, far: &Far) -> Heard {
        let state = self.0.lock();
        let end = state.ends.get(&key(far));
        end.map(|end| end.heard.clone()).unwrap_or_default()
    }

    /// Notes that a transfer is in progress: `running` gets all later messages. Returns the earlier ones.
    pub(super) fn started(&self, far: &Far, running: Arc<dyn TransferInProgress>) -> Heard {
        match self.0.lock().ends.get_mut(&key(far)) {
            Some(end) => {
                end.running = Some(running);
                end.heard.clone()
            }
            None => Heard::default(),
        }
    }

    /// Notes that this receiver has granted credit. From now on a break of the link may lose bytes.
    pub(super) fn credited(&self, far: &Far) {
        if let Some(end) = self.0.lock().ends.get_mut(&key(far)) {
            end.credited = true;
        }
    }

    /// Ends a transfer here; `early` is the reason if it did not complete. Returns the status with which the other end has
    /// to be cancelled, if any.
    pub(super) fn end(&self, far: &Far, early: Option<Status>) -> Option<Status> {
        let key = key(far);
        let mut state = self.0.lock();
        let gone = state.ends.remove(&key);
        let first = !state.ended.contains_key(&key);
        let mut cancel = None;
        if first {
            let total = gone.as_ref().map_or(0, |end| end.total);
            // The last byte may arrive on one lane while another lane reads the offer of more bytes.
            let offer = gone.as_ref().and_then(|end| end.heard.offer);
            let has_more = offer.is_some_and(|offer| offer != total);
            cancel = early.or(has_more.then(|| Why::mismatch().status));
            let how = early.map_or(PastTransfer::Whole(total), PastTransfer::Early);
            state.ended.insert(key, how);
            state.ended_order.push_back(key);
            if state.ended_order.len() > MOST_ENDED
                && let Some(oldest) = state.ended_order.pop_front()
            {
                state.ended.remove(&oldest);
            }
        }
        drop(state);
        drop(gone);
        cancel
    }

    /// Handles credit or an offer. Returns a reply, a cancellation, if the transfer has been given up here.
    ///
    /// # Errors
    /// [`Foreign`] if the message is not about the sender's own transfer.
    pub(super) fn message(&self, from: Origin, header: &Header) -> Result<Option<Header>, Foreign> {
        let direction = match header.kind {
            Kind::Credit => Direction::Send,
            _ => Direction::Receive,
        };
        let key = (direction, header.transfer);
        let mut state = self.0.lock();
        if let Some(end) = state.ends.get_mut(&key) {
            end.far.speaks(from)?;
            end.heard.note(direction, header.offset);
            end.credited |= direction == Direction::Send && header.offset > 0;
            let running = end.running.clone();
            // Unlocked before the call, as the module's invariant demands.
            drop(state);
            if let Some(running) = running {
                running.heard(header.offset);
            }
            return Ok(None);
        }
        if let Some(ended) = state.ended.get(&key) {
            let status = match *ended {
                PastTransfer::Early(status) => Some(status),
                // The sender has more bytes, which no command will take.
                PastTransfer::Whole(total)
                    if direction == Direction::Receive && header.offset != total =>
                {
                    Some(Why::mismatch().status)
                }
                PastTransfer::Whole(_) => None,
            };
            return Ok(status.map(|status| Header::cancel(header.transfer, status.0)));
        }
        state
            .early(from, header.transfer)
            .note(direction, header.offset);
        Ok(None)
    }

    /// Handles a cancellation by the other end.
    ///
    /// # Errors
    /// [`Foreign`] if the message is not about the sender's own transfer.
    pub(super) fn cancel(&self, from: Origin, header: &Header) -> Result<(), Foreign> {
        let why = Why {
            status: match header.status() {
                status if status < 0 => Status(status),
                _ => Status::OUT_OF_RESOURCES,
            },
            message: "the other worker cancelled the transfer".into(),
        };
        let keys =
            [Direction::Receive, Direction::Send].map(|direction| (direction, header.transfer));
        let mut state = self.0.lock();
        // In a transfer within one worker, the cancelling end is already gone from the table.
        if let Some(key) = keys.iter().find(|key| state.ends.contains_key(key))
            && let Some(end) = state.ends.get_mut(key)
        {
            end.far.speaks(from)?;
            let running = end.running.clone();
            end.heard.over.get_or_insert_with(|| why.clone());
            drop(state);
            if let Some(running) = running {
                running.stop(why);
            }
            return Ok(());
        }
        // A transfer within one worker has both of its ends in this table.
        let ended = keys.iter().filter(|key| state.ended.contains_key(key));
        let ends_here = if from == Origin::Peer(OWN) { 2 } else { 1 };
        if ended.count() < ends_here {
            let early = state.early(from, header.transfer);
            early.over.get_or_insert(why);
        }
        Ok(())
    }

    /// Ends the transfers that had credit on a broken link, also those that have not begun here. Returns
    /// those in progress, which the caller stops.
    pub(super) fn broke(&self, link: LinkId, why: &Why) -> Vec<Arc<dyn TransferInProgress>> {
        let mut state = self.0.lock();
        for ((from, _), heard) in &mut state.early {
            if *from == Origin::Peer(link) && heard.credit.is_some_and(|c| c > 0) {
                heard.over.get_or_insert_with(|| why.clone());
            }
        }
        state.stop(link, why, |end| end.credited)
    }

    /// Ends the transfers in progress on a link that will not come up. The others learn of it when they
    /// begin. Returns those in progress.
    pub(super) fn lost(&self, link: LinkId, why: &Why) -> Vec<Arc<dyn TransferInProgress>> {
        self.0.lock().stop(link, why, |end| end.running.is_some())
    }

    /// Ends all transfers, because the session ends. Returns those in progress.
    pub(super) fn all(&self, why: &Why) -> Vec<Arc<dyn TransferInProgress>> {
        let mut state = self.0.lock();
        let running = |end: &mut PeerTransfer| {
            end.heard.over.get_or_insert_with(|| why.clone());
            end.running.take()
        };
        state.ends.values_mut().filter_map(running).collect()
    }

    /// Returns the messages to repeat on a new route, because the old route may have lost them.
    pub(super) fn again(&self, link: LinkId) -> Vec<Header> {
        let state = self.0.lock();
        let ends = state.ends.values().filter(|end| {
            end.far.link == link && end.running.is_some() && end.heard.over.is_none()
        });
        let said = ends.map(|end| match end.far.direction {
            Direction::Send => offer(end.far.transfer, end.total),
            // Credit for 0 bytes asks whether the sender still exists: a sender that has ended early
            // replies with a cancellation.
            Direction::Receive => credit(end.far.transfer, 0),
        });
        said.collect()
    }
}

impl PeersState {
    fn early(&mut self, from: Origin, transfer: EventId) -> &mut Heard {
        let key = (from, transfer);
        if !self.early.contains_key(&key) {
            self.early_order.push_back(key);
            if self.early_order.len() > MOST_EARLY
                && let Some(oldest) = self.early_order.pop_front()
                && self.early.remove(&oldest).is_some()
            {
                tracing::warn!(
                    ?oldest,
                    "too many messages name transfers that have not begun here; the oldest is dropped"
                );
            }
        }
        self.early.entry(key).or_default()
    }

    fn stop(
        &mut self,
        link: LinkId,
        why: &Why,
        which: impl Fn(&PeerTransfer) -> bool,
    ) -> Vec<Arc<dyn TransferInProgress>> {
        let ends = self.ends.values_mut();
        let ends = ends.filter(|end| end.far.link == link && which(end));
        let running = ends.filter_map(|end| {
            end.heard.over.get_or_insert_with(|| why.clone());
            end.running.clone()
        });
        running.collect()
    }
}

impl Far {
    /// Checks that `from` may send messages about this transfer.
    pub(super) fn speaks(&self, from: Origin) -> Result<(), Foreign> {
        match from {
            Origin::Peer(link) if link != self.link => Err(Foreign(self.transfer)),
            _ => Ok(()),
        }
    }
}

/// Credit message: the receiver can take bytes up to `offset`.
pub(super) fn credit(transfer: EventId, offset: u64) -> Header {
    header(Kind::Credit, transfer, offset)
}

/// Offer message: the sender is ready and has `total` bytes.
pub(super) fn offer(transfer: EventId, total: u64) -> Header {
    header(Kind::Offer, transfer, total)
}

fn header(kind: Kind, transfer: EventId, offset: u64) -> Header {
    Header {
        kind,
        transfer,
        offset,
        length: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: LinkId = LinkId(7);
    const NAME: EventId = EventId(3);
    const PEER: Origin = Origin::Peer(LINK);

    #[derive(Default)]
    struct Ear {
        heard: Mutex<Vec<u64>>,
        stopped: Mutex<Vec<Status>>,
    }

    impl TransferInProgress for Ear {
        fn heard(self: Arc<Self>, amount: u64) {
            self.heard.lock().push(amount);
        }

        fn stop(self: Arc<Self>, why: Why) {
            self.stopped.lock().push(why.status);
        }
    }

    fn far(direction: Direction, link: LinkId) -> Far {
        Far {
            transfer: NAME,
            direction,
            link,
        }
    }

    fn why() -> Why {
        Why {
            status: Status(-2),
            message: "it broke".into(),
        }
    }

    #[test]
    fn what_comes_early_is_kept_whoever_said_it() {
        for from in [PEER, Origin::Client] {
            let peers = Peers::default();
            let send = far(Direction::Send, LINK);
            // Messages on different lanes may overtake each other.
            for amount in [2, 9, 5] {
                assert_eq!(peers.message(from, &credit(NAME, amount)), Ok(None));
            }
            assert!(peers.register(&send, 10));
            assert_eq!(peers.message(from, &credit(NAME, 10)), Ok(None));
            let ear = Arc::new(Ear::default());
            let running: Arc<dyn TransferInProgress> = Arc::<Ear>::clone(&ear);
            assert_eq!(
                peers.started(&send, running).amount(Direction::Send),
                Some(10)
            );
            assert_eq!(peers.message(from, &credit(NAME, 10)), Ok(None));
            assert_eq!(*ear.heard.lock(), [10]);
            peers.cancel(from, &Header::cancel(NAME, -14)).unwrap();
            assert_eq!(*ear.stopped.lock(), [Status(-14)]);
        }
    }

    #[test]
    fn an_early_cancellation_waits_for_its_command() {
        let peers = Peers::default();
        peers.cancel(PEER, &Header::cancel(NAME, 0)).unwrap();
        let receive = far(Direction::Receive, LINK);
        assert!(peers.register(&receive, 1));
        let over = peers.heard(&receive).over.unwrap();
        assert_eq!(over.status, Status::OUT_OF_RESOURCES);
    }

    #[test]
    fn late_words_are_answered_only_about_what_ended_before_its_time() {
        let peers = Peers::default();
        let receive = far(Direction::Receive, LINK);
        assert!(peers.register(&receive, 1));
        assert!(!peers.register(&receive, 1));
        assert_eq!(peers.end(&receive, Some(Status(-5))), Some(Status(-5)));
        assert_eq!(peers.end(&receive, Some(Status(-6))), None);
        let answer = peers.message(PEER, &offer(NAME, 1)).unwrap();
        assert_eq!(answer, Some(Header::cancel(NAME, -5)));
        let other = Far {
            transfer: EventId(4),
            ..receive
        };
        assert!(peers.register(&other, 1));
        assert_eq!(peers.end(&other, None), None);
        assert_eq!(peers.message(PEER, &offer(other.transfer, 1)), Ok(None));
        let answer = peers.message(PEER, &offer(other.transfer, 2)).unwrap();
        assert_eq!(answer, Some(Header::cancel(other.transfer, -59)));
        peers
            .cancel(PEER, &Header::cancel(other.transfer, 0))
            .unwrap();
        assert!(peers.0.lock().early.is_empty());
    }

    #[test]
    fn a_sender_of_more_bytes_is_cancelled_when_its_receiver_has_all_of_its_own() {
        let peers = Peers::default();
        let receive = far(Direction::Receive, LINK);
        assert!(peers.register(&receive, 1));
        peers.started(&receive, Arc::<Ear>::default());
        // The offer comes between the last byte and the end.
        assert_eq!(peers.message(PEER, &offer(NAME, 2)), Ok(None));
        assert_eq!(peers.end(&receive, None), Some(Why::mismatch().status));
    }

    #[test]
    fn a_peer_speaks_of_its_own_transfers_only() {
        let peers = Peers::default();
        let send = far(Direction::Send, LINK);
        let stranger = Origin::Peer(LinkId(8));
        // An early message is kept under its sender, so this transfer does not get it.
        assert_eq!(peers.message(stranger, &credit(NAME, 4)), Ok(None));
        assert!(peers.register(&send, 10));
        assert_eq!(peers.heard(&send).amount(Direction::Send), None);
        assert_eq!(
            peers.message(stranger, &credit(NAME, 4)),
            Err(Foreign(NAME))
        );
        let cancel = Header::cancel(NAME, 0);
        assert_eq!(peers.cancel(stranger, &cancel), Err(Foreign(NAME)));
    }

    #[test]
    fn within_one_worker_a_cancellation_is_for_the_end_that_is_left() {
        let own = Origin::Peer(LinkId(0));
        let (send, receive) = (
            far(Direction::Send, LinkId(0)),
            far(Direction::Receive, LinkId(0)),
        );
        let peers = Peers::default();
        assert!(peers.register(&send, 1));
        peers.end(&send, Some(Status(-14)));
        // The other end is not registered yet.
        peers.cancel(own, &Header::cancel(NAME, -14)).unwrap();
        assert!(peers.register(&receive, 1));
        assert_eq!(peers.heard(&receive).over.unwrap().status, Status(-14));
        peers.end(&receive, Some(Status(-14)));
        peers.cancel(own, &Header::cancel(NAME, -14)).unwrap();
        assert!(peers.0.lock().early.is_empty());
    }

    #[test]
    fn a_break_ends_what_had_credit_and_the_rest_is_said_again() {
        let peers = Peers::default();
        let ends = [1, 2, 3, 4].map(|name| Far {
            transfer: EventId(name),
            ..far(
                if name % 2 == 0 {
                    Direction::Send
                } else {
                    Direction::Receive
                },
                LINK,
            )
        });
        let ears = [(); 4].map(|()| Arc::new(Ear::default()));
        for (end, ear) in ends.iter().zip(&ears) {
            assert!(peers.register(end, 10));
            peers.started(end, Arc::<Ear>::clone(ear));
        }
        peers.credited(&ends[0]);
        peers.message(PEER, &credit(EventId(2), 1)).unwrap();
        for running in peers.broke(LINK, &why()) {
            running.stop(why());
        }
        let stopped = ears.each_ref().map(|ear| ear.stopped.lock().len());
        assert_eq!(stopped, [1, 1, 0, 0]);
        let mut again = peers.again(LINK);
        again.sort_by_key(|header| header.transfer);
        assert_eq!(again, [credit(EventId(3), 0), offer(EventId(4), 10)]);
        assert_eq!(peers.lost(LINK, &why()).len(), 4);
        assert!(peers.lost(LinkId(8), &why()).is_empty());
    }

    #[test]
    fn early_words_are_bounded() {
        let peers = Peers::default();
        for name in 0..=MOST_EARLY as u64 {
            peers.message(PEER, &offer(EventId(name), 1)).unwrap();
        }
        let state = peers.0.lock();
        assert_eq!(state.early.len(), MOST_EARLY);
        assert!(!state.early.contains_key(&(PEER, EventId(0))));
    }
}
