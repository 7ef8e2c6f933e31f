//! The transfers with other workers that this session knows of, and what was said about them.
//!
//! A word may come long before the command it concerns, or after its end, and by another way than the
//! bytes. What comes early is kept for the command; what comes late is dropped, unless the transfer ended
//! before its time here: then the one who still speaks of it is told.
//!
//! What it is not: it moves no byte and sends no word. Invariant: each end is registered once and ended
//! once; nothing running is called with the table locked; everything kept for what is not there is
//! bounded.
#![forbid(unsafe_code)]

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use causeway_proto::bulk::{Header, Kind};
use causeway_proto::id::{EventId, LinkId};
use causeway_proto::status::Status;
use parking_lot::Mutex;

use super::path::Path;

/// Words kept for commands that have not come, and ends remembered.
const MOST_EARLY: usize = 1 << 17;
const MOST_ENDED: usize = 1 << 16;

/// What this worker does in a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Part {
    /// It reads the buffer and sends.
    Send,
    /// It receives and writes.
    Receive,
}

/// Who is connected at the other end of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Origin {
    /// The client, who may speak for every peer.
    Client,
    /// The peer of this link, who speaks for its own transfers.
    Peer(LinkId),
}

/// The peer's end of a transfer, as this end names it.
#[derive(Clone)]
pub(crate) struct Far {
    pub(crate) transfer: EventId,
    pub(crate) part: Part,
    pub(crate) path: Arc<Path>,
}

impl Far {
    fn key(&self) -> Key {
        (self.part, self.transfer)
    }
}

/// Why a transfer ends before its time.
#[derive(Clone, Debug)]
pub(super) struct Why {
    pub(super) status: Status,
    pub(super) message: String,
}

impl Why {
    /// The client will not send what it was to.
    pub(super) fn client() -> Why {
        Why {
            status: Status::OUT_OF_RESOURCES,
            message: String::new(),
        }
    }

    /// The two ends are not of one size.
    pub(super) fn mismatch() -> Why {
        Why {
            status: Status::INVALID_OPERATION,
            message: "the two ends of a transfer have different lengths".into(),
        }
    }
}

/// A transfer under way. Called from lanes: must not block.
pub(super) trait Running: Send + Sync {
    /// What the other end grants to a sender, or offers to a receiver.
    fn heard(self: Arc<Self>, amount: u64);

    /// It ends now: the other end or the link has. Nobody there need be told.
    fn stop(self: Arc<Self>, why: Why);
}

/// What was said of a transfer before it was under way.
#[derive(Clone, Debug, Default)]
pub(super) struct Heard {
    credit: Option<u64>,
    offer: Option<u64>,
    pub(super) over: Option<Why>,
}

impl Heard {
    /// The other end's word for who does `part`.
    pub(super) fn amount(&self, part: Part) -> Option<u64> {
        match part {
            Part::Send => self.credit,
            Part::Receive => self.offer,
        }
    }

    fn note(&mut self, part: Part, amount: u64) {
        let place = match part {
            Part::Send => &mut self.credit,
            Part::Receive => &mut self.offer,
        };
        *place = Some(place.unwrap_or(0).max(amount));
    }
}

type Key = (Part, EventId);

struct End {
    far: Far,
    total: u64,
    heard: Heard,
    // The receiver has said that it takes bytes: some may be on their way.
    credited: bool,
    running: Option<Arc<dyn Running>>,
}

/// The table.
#[derive(Default)]
pub(super) struct Peers(Mutex<State>);

#[derive(Default)]
struct State {
    ends: HashMap<Key, End>,
    early: HashMap<(Origin, EventId), Heard>,
    early_order: VecDeque<(Origin, EventId)>,
    ended: HashMap<Key, Ended>,
    ended_order: VecDeque<Key>,
}

#[derive(Clone, Copy)]
enum Ended {
    /// With all its bytes, so many.
    Whole(u64),
    Early(Status),
}

/// A peer spoke of a transfer that is none of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a peer spoke of {0:?}, a transfer of others")]
pub(super) struct Foreign(pub(super) EventId);

impl Peers {
    /// A command names the transfer; `false` when one did before.
    pub(super) fn register(&self, far: &Far, total: u64) -> bool {
        let mut state = self.0.lock();
        if state.ends.contains_key(&far.key()) || state.ended.contains_key(&far.key()) {
            return false;
        }
        let mut heard = Heard::default();
        for origin in [Origin::Client, Origin::Peer(far.path.id())] {
            if let Some(early) = state.early.remove(&(origin, far.transfer)) {
                if let Some(amount) = early.amount(far.part) {
                    heard.note(far.part, amount);
                }
                heard.over = heard.over.or(early.over);
            }
        }
        let end = End {
            far: far.clone(),
            total,
            credited: far.part == Part::Send && heard.credit.is_some_and(|c| c > 0),
            heard,
            running: None,
        };
        state.ends.insert(far.key(), end);
        true
    }

    /// What was said of a registered transfer so far.
    pub(super) fn heard(&self, far: &Far) -> Heard {
        let state = self.0.lock();
        let end = state.ends.get(&far.key());
        end.map(|end| end.heard.clone()).unwrap_or_default()
    }

    /// The transfer is under way: what was said before; from now on `running` hears it.
    pub(super) fn started(&self, far: &Far, running: Arc<dyn Running>) -> Heard {
        match self.0.lock().ends.get_mut(&far.key()) {
            Some(end) => {
                end.running = Some(running);
                end.heard.clone()
            }
            None => Heard::default(),
        }
    }

    /// This receiver grants credit: from now on bytes may be lost with the link.
    pub(super) fn credited(&self, far: &Far) {
        if let Some(end) = self.0.lock().ends.get_mut(&far.key()) {
            end.credited = true;
        }
    }

    /// The transfer is over here; `early` says why if it is before its time. `true` the first time.
    pub(super) fn end(&self, far: &Far, early: Option<Status>) -> bool {
        let key = far.key();
        let mut state = self.0.lock();
        let gone = state.ends.remove(&key);
        let first = !state.ended.contains_key(&key);
        if first {
            let total = gone.as_ref().map_or(0, |end| end.total);
            let how = early.map_or(Ended::Whole(total), Ended::Early);
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
        first
    }

    /// Credit or an offer came. `Some`: the answer, because the transfer was given up here.
    ///
    /// # Errors
    /// [`Foreign`].
    pub(super) fn word(&self, from: Origin, word: &Header) -> Result<Option<Header>, Foreign> {
        let part = match word.kind {
            Kind::Credit => Part::Send,
            _ => Part::Receive,
        };
        let key = (part, word.transfer);
        let mut state = self.0.lock();
        if let Some(end) = state.ends.get_mut(&key) {
            end.far.speaks(from)?;
            end.heard.note(part, word.offset);
            end.credited |= part == Part::Send && word.offset > 0;
            let running = end.running.clone();
            drop(state);
            if let Some(running) = running {
                running.heard(word.offset);
            }
            return Ok(None);
        }
        if let Some(ended) = state.ended.get(&key) {
            let status = match *ended {
                Ended::Early(status) => Some(status),
                // It has more bytes, which nobody will take.
                Ended::Whole(total) if part == Part::Receive && word.offset != total => {
                    Some(Why::mismatch().status)
                }
                Ended::Whole(_) => None,
            };
            return Ok(status.map(|status| Header::cancel(word.transfer, status.0)));
        }
        state.early(from, word.transfer).note(part, word.offset);
        Ok(None)
    }

    /// The other end has given a transfer up.
    ///
    /// # Errors
    /// [`Foreign`].
    pub(super) fn cancel(&self, from: Origin, word: &Header) -> Result<(), Foreign> {
        let why = Why {
            status: match word.status() {
                status if status < 0 => Status(status),
                _ => Status::OUT_OF_RESOURCES,
            },
            message: "the other end gave the transfer up".into(),
        };
        let keys = [Part::Receive, Part::Send].map(|part| (part, word.transfer));
        let mut state = self.0.lock();
        // Of a transfer within one worker, the end that spoke is gone from the table.
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
        let ended = keys.iter().filter(|key| state.ended.contains_key(key));
        let ends_here = if from == Origin::Peer(LinkId(0)) {
            2
        } else {
            1
        };
        if ended.count() < ends_here {
            let early = state.early(from, word.transfer);
            early.over.get_or_insert(why);
        }
        Ok(())
    }

    /// The link broke: the transfers that had credit end, also those that have not begun here.
    pub(super) fn broke(&self, link: LinkId, why: &Why) -> Vec<Arc<dyn Running>> {
        let mut state = self.0.lock();
        for ((from, _), heard) in &mut state.early {
            if *from == Origin::Peer(link) && heard.credit.is_some_and(|c| c > 0) {
                heard.over.get_or_insert_with(|| why.clone());
            }
        }
        state.stop(link, why, |end| end.credited)
    }

    /// The link will not come: its transfers end, if they have begun; the others hear of it when they begin.
    pub(super) fn lost(&self, link: LinkId, why: &Why) -> Vec<Arc<dyn Running>> {
        self.0.lock().stop(link, why, |end| end.running.is_some())
    }

    /// What must be said again by a new way, because it may have been lost on the old one.
    pub(super) fn again(&self, link: LinkId) -> Vec<Header> {
        let state = self.0.lock();
        let ends = state.ends.values().filter(|end| {
            end.far.path.id() == link && end.running.is_some() && end.heard.over.is_none()
        });
        let said = ends.map(|end| match end.far.part {
            Part::Send => offer(end.far.transfer, end.total),
            // Whether the sender is still there.
            Part::Receive => credit(end.far.transfer, 0),
        });
        said.collect()
    }
}

impl State {
    fn early(&mut self, from: Origin, transfer: EventId) -> &mut Heard {
        let key = (from, transfer);
        if !self.early.contains_key(&key) {
            self.early_order.push_back(key);
            if self.early_order.len() > MOST_EARLY
                && let Some(oldest) = self.early_order.pop_front()
                && self.early.remove(&oldest).is_some()
            {
                tracing::warn!(?oldest, "too many words about transfers that nobody began");
            }
        }
        self.early.entry(key).or_default()
    }

    fn stop(
        &mut self,
        link: LinkId,
        why: &Why,
        which: impl Fn(&End) -> bool,
    ) -> Vec<Arc<dyn Running>> {
        let ends = self.ends.values_mut();
        let ends = ends.filter(|end| end.far.path.id() == link && which(end));
        let running = ends.filter_map(|end| {
            end.heard.over.get_or_insert_with(|| why.clone());
            end.running.clone()
        });
        running.collect()
    }
}

impl Far {
    /// Whether `from` may speak of the transfer.
    pub(super) fn speaks(&self, from: Origin) -> Result<(), Foreign> {
        match from {
            Origin::Peer(link) if link != self.path.id() => Err(Foreign(self.transfer)),
            _ => Ok(()),
        }
    }
}

/// The receiver can take bytes up to `offset`.
pub(super) fn credit(transfer: EventId, offset: u64) -> Header {
    word(Kind::Credit, transfer, offset)
}

/// The sender is ready and has `total` bytes.
pub(super) fn offer(transfer: EventId, total: u64) -> Header {
    word(Kind::Offer, transfer, total)
}

fn word(kind: Kind, transfer: EventId, offset: u64) -> Header {
    Header {
        kind,
        transfer,
        offset,
        length: 0,
    }
}

#[cfg(test)]
#[path = "peers_tests.rs"]
mod tests;
