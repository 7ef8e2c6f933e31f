//! What waits to be sent on some bulk connections: one queue for all lanes of a way.
//!
//! Lanes pull, so a slow one does not hold up a transfer, and mapped transfers take turns. Words (credit
//! and the like) go before data. Invariant: an item is given to exactly one lane; with no lane connected
//! everything waits, up to a bound for what finished commands leave behind.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::Arc;

use causeway_proto::bulk::{Header, Kind};
use parking_lot::{Condvar, Mutex};

use super::direct::{DirectRead, MappedChunk};
use super::short::Whole;
use super::staged::StagedChunk;

/// So many words wait at most. Those of commands under way are fewer; a cancellation outlives its
/// command, and an end that takes none of so many is not one of ours.
const MOST_WORDS: usize = 1 << 20;

/// One thing to send.
pub(super) enum Item {
    /// A header alone.
    Word(Header),
    /// The next bytes of a mapped read.
    Mapped(MappedChunk),
    /// A staged chunk of a read.
    Staged(StagedChunk),
    /// A short read.
    Whole(Whole),
    /// Nothing of the queue: what the lane has of its own, which goes before all else.
    Own,
}

/// What a lane that asks for more has to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// It is over.
    Gone,
    /// It has something of its own to send.
    Own,
    /// It has nothing.
    Free,
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
    Whole(Whole),
}

/// Data that will not be sent; dropped where no lock is held, because that frees chunks.
pub(super) struct Unsent(VecDeque<Data>);

impl Outgoing {
    /// Says something. Whether there was room.
    pub(super) fn push(&self, header: Header) -> bool {
        let mut state = self.state.lock();
        if state.words.len() >= MOST_WORDS {
            return false;
        }
        state.words.push_back(header);
        drop(state);
        self.wake.notify_one();
        true
    }

    /// A mapped read, cut into chunks as lanes ask for them. What will not be sent, for there are no lanes
    /// any more: to be discarded.
    #[must_use]
    pub(super) fn mapped(&self, read: Arc<DirectRead>) -> Unsent {
        let unsent = self.data(Data::Mapped(read));
        self.wake.notify_all();
        unsent
    }

    /// A chunk that the device has filled; as [`Outgoing::mapped`].
    #[must_use]
    pub(super) fn staged(&self, chunk: StagedChunk) -> Unsent {
        let unsent = self.data(Data::Staged(chunk));
        self.wake.notify_one();
        unsent
    }

    /// The bytes of a short read; as [`Outgoing::mapped`].
    #[must_use]
    pub(super) fn whole(&self, read: Whole) -> Unsent {
        let unsent = self.data(Data::Whole(read));
        self.wake.notify_one();
        unsent
    }

    // What nobody takes is not kept: it would keep its transfer, and that this queue.
    fn data(&self, data: Data) -> Unsent {
        let mut state = self.state.lock();
        if state.stopping {
            return Unsent(VecDeque::from([data]));
        }
        state.data.push_back(data);
        Unsent(VecDeque::new())
    }

    /// Lanes end when they ask next, and nothing more is queued.
    pub(super) fn stop(&self) {
        self.state.lock().stopping = true;
        self.wake.notify_all();
    }

    /// Takes everything that waits in `other`, whose lanes get nothing any more.
    pub(super) fn take_over(&self, other: &Outgoing) {
        let (words, data) = {
            let mut other = other.state.lock();
            (
                std::mem::take(&mut other.words),
                std::mem::take(&mut other.data),
            )
        };
        let mut state = self.state.lock();
        state.words.extend(words);
        state.data.extend(data);
        drop(state);
        self.wake.notify_all();
    }

    /// The lanes broke: what they had not sent means nothing any more, but for cancellations.
    pub(super) fn break_off(&self) -> Unsent {
        let mut state = self.state.lock();
        state.words.retain(|word| word.kind == Kind::Cancel);
        Unsent(std::mem::take(&mut state.data))
    }

    /// Chunks that nobody wants any more.
    pub(super) fn unwanted(&self) -> Unsent {
        let mut state = self.state.lock();
        let (keep, unwanted) = std::mem::take(&mut state.data)
            .into_iter()
            .partition(|data| match data {
                Data::Mapped(_) | Data::Whole(_) => true,
                Data::Staged(chunk) => chunk.is_wanted(),
            });
        state.data = keep;
        Unsent(unwanted)
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        let state = self.state.lock();
        state.words.is_empty() && state.data.is_empty()
    }

    /// The next thing to send; waits for it. `None`: the lane that asks is gone, or the session ends.
    pub(super) fn next(&self, lane: impl Fn() -> Look) -> Option<Item> {
        // Declared first, so dropped after the lock.
        let mut spent = Vec::new();
        let mut state = self.state.lock();
        loop {
            let look = lane();
            if state.stopping || look == Look::Gone {
                return None;
            }
            if look == Look::Own {
                return Some(Item::Own);
            }
            if let Some(header) = state.words.pop_front() {
                return Some(Item::Word(header));
            }
            match state.data.pop_front() {
                Some(Data::Mapped(read)) => {
                    let (chunk, more) = DirectRead::take_chunk(&read);
                    if more {
                        // Others have their turn before its next one.
                        state.data.push_back(Data::Mapped(read));
                    } else {
                        spent.push(read);
                    }
                    if let Some(chunk) = chunk {
                        return Some(Item::Mapped(chunk));
                    }
                }
                Some(Data::Staged(chunk)) => return Some(Item::Staged(chunk)),
                Some(Data::Whole(read)) => return Some(Item::Whole(read)),
                None => self.wake.wait(&mut state),
            }
        }
    }

    /// A lane is gone, or has something of its own: whoever waits on its behalf shall look.
    pub(super) fn look(&self) {
        drop(self.state.lock());
        self.wake.notify_all();
    }
}

impl Unsent {
    /// Tells the transfers that they will not be asked for more.
    pub(super) fn discard(self) {
        for data in self.0 {
            if let Data::Mapped(read) = data {
                read.unqueued();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_proto::id::EventId;

    #[test]
    fn words_that_nobody_takes_are_bounded() {
        let outgoing = Outgoing::default();
        let word = Header::cancel(EventId(1), 0);
        for _ in 0..MOST_WORDS {
            assert!(outgoing.push(word));
        }
        assert!(!outgoing.push(word));
        assert!(matches!(outgoing.next(|| Look::Free), Some(Item::Word(_))));
        assert!(outgoing.push(word));
    }

    #[test]
    fn a_break_leaves_cancellations_which_go_another_way() {
        let (own, client) = (Outgoing::default(), Outgoing::default());
        let cancel = Header::cancel(EventId(1), -14);
        let credit = super::super::peers::credit(EventId(2), 7);
        assert!(own.push(credit) && own.push(cancel));
        own.break_off().discard();
        client.take_over(&own);
        assert!(matches!(client.next(|| Look::Free), Some(Item::Word(word)) if word == cancel));
        client.stop();
        assert!(client.next(|| Look::Free).is_none());
    }
}
