//! What waits to be sent on the bulk connections: one queue for all lanes.
//!
//! Lanes pull, so a slow one does not hold up a transfer. Credit and cancellations go before data.
//! Invariant: an item is given to exactly one lane; with no lane connected everything waits, up to a
//! bound for what finished commands leave behind.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::Arc;

use causeway_proto::bulk::{Header, Kind};
use causeway_proto::id::EventId;
use parking_lot::{Condvar, Mutex};

use super::direct::DirectRead;
use super::staged::StagedChunk;
use crate::worker::session::broken;

/// So many credits and cancellations wait at most. Those of commands under way are fewer; a cancellation
/// outlives its command, and a client that takes none of so many is not one of ours.
const MOST_WORDS: usize = 1 << 20;

/// One thing to send.
pub(super) enum Item {
    /// A header alone.
    Word(Header),
    /// The next bytes of a mapped read: packed offset and length.
    Mapped(Arc<DirectRead>, u64, u32),
    /// A staged chunk of a read.
    Staged(StagedChunk),
}

/// The queue.
#[derive(Default)]
pub(super) struct Outgoing {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    words: VecDeque<Header>,
    data: VecDeque<Data>,
    stopping: bool,
}

enum Data {
    Mapped(Arc<DirectRead>),
    Staged(StagedChunk),
}

impl Outgoing {
    /// The peer may send bytes of `transfer` up to `offset`.
    pub(super) fn credit(&self, transfer: EventId, offset: u64) {
        self.word(Kind::Credit, transfer, offset);
    }

    /// Nothing of `transfer` will be taken or sent any more.
    pub(super) fn cancel(&self, transfer: EventId) {
        self.word(Kind::Cancel, transfer, 0);
    }

    fn word(&self, kind: Kind, transfer: EventId, offset: u64) {
        let header = Header {
            kind,
            transfer,
            offset,
            length: 0,
        };
        if !self.push(header) {
            broken("the client takes nothing from its bulk connections");
        }
    }

    /// Whether there was room.
    fn push(&self, header: Header) -> bool {
        let mut state = self.state.lock();
        if state.words.len() >= MOST_WORDS {
            return false;
        }
        state.words.push_back(header);
        drop(state);
        self.wake.notify_one();
        true
    }

    /// A mapped read, cut into chunks as lanes ask for them.
    pub(super) fn mapped(&self, read: Arc<DirectRead>) {
        self.state.lock().data.push_back(Data::Mapped(read));
        self.wake.notify_all();
    }

    /// A chunk that the device has filled.
    pub(super) fn staged(&self, chunk: StagedChunk) {
        self.state.lock().data.push_back(Data::Staged(chunk));
        self.wake.notify_one();
    }

    /// Lanes end when they ask next.
    pub(super) fn stop(&self) {
        self.state.lock().stopping = true;
        self.wake.notify_all();
    }

    /// The next thing to send; waits for it. `None`: `gone` says that the lane is, or the session ends.
    pub(super) fn next(&self, gone: impl Fn() -> bool) -> Option<Item> {
        let mut state = self.state.lock();
        loop {
            if state.stopping || gone() {
                return None;
            }
            if let Some(header) = state.words.pop_front() {
                return Some(Item::Word(header));
            }
            match state.data.front() {
                Some(Data::Mapped(read)) => {
                    let read = Arc::clone(read);
                    let (offset, length, last) = read.take_chunk();
                    if last {
                        state.data.pop_front();
                    }
                    if length > 0 {
                        return Some(Item::Mapped(read, offset, length));
                    }
                }
                Some(Data::Staged(_)) => {
                    if let Some(Data::Staged(chunk)) = state.data.pop_front() {
                        return Some(Item::Staged(chunk));
                    }
                }
                None => self.wake.wait(&mut state),
            }
        }
    }

    /// A lane is gone: whoever waits on its behalf shall look.
    pub(super) fn look(&self) {
        drop(self.state.lock());
        self.wake.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_nobody_takes_are_bounded() {
        let outgoing = Outgoing::default();
        let word = Header {
            kind: Kind::Cancel,
            transfer: EventId(1),
            offset: 0,
            length: 0,
        };
        for _ in 0..MOST_WORDS {
            assert!(outgoing.push(word));
        }
        assert!(!outgoing.push(word));
        assert!(matches!(outgoing.next(|| false), Some(Item::Word(_))));
        assert!(outgoing.push(word));
    }
}
