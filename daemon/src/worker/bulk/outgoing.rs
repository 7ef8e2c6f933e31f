//! The queue of messages and data to send, shared by all lanes of one route.
//!
//! Lanes pull from the queue. So a slow lane does not hold up a transfer, and mapped transfers take
//! turns. Control messages, such as credit, go before data. Invariant: each item goes to exactly one
//! lane. While no lane is connected, everything waits. The number of waiting control messages is bounded.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::Arc;

use causeway_proto::bulk::{Header, Kind};
use parking_lot::{Condvar, Mutex};

use super::message::Chunk;

/// Limit on waiting control messages. Commands in progress need fewer, but a cancellation outlives its
/// command. A peer that leaves this number unread is not a Causeway client or worker.
const MOST_HEADERS: usize = 1 << 20;

/// A read whose bytes are cut into chunks as lanes ask for them.
pub(super) trait Divisible: Send + Sync {
    /// Takes the next chunk for a lane. Also returns whether more chunks are available.
    fn take_chunk(self: Arc<Self>) -> (Option<Box<dyn Chunk>>, bool);

    /// Notes that the read is in no queue any more.
    fn unqueued(&self);
}

/// One item for a lane to send.
pub(super) enum Item {
    /// A header without payload.
    Header(Header),
    /// The next chunk of a read.
    Chunk(Box<dyn Chunk>),
    /// Nothing from the queue: the lane first sends the rest of its own message.
    Own,
}

/// State of a lane that asks for its next item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// The lane is closed.
    Gone,
    /// The lane has a message of its own to finish.
    Own,
    /// The lane has no connection, and waits for the next one.
    Broken,
    /// The other end acknowledges too little. The lane takes no data, but control messages, so that the two ends never
    /// wait for each other's acknowledgements.
    Full,
    /// The lane can take the next item.
    Free,
}

/// The queue.
#[derive(Default)]
pub(super) struct Outgoing {
    state: Mutex<OutgoingState>,
    wake: Condvar,
    // Wakes the lanes without a connection and the full ones, which must not take wake-ups from the others.
    reopened: Condvar,
}

#[derive(Default)]
struct OutgoingState {
    headers: VecDeque<Header>,
    data: VecDeque<Data>,
    /// Number of full lanes that wait.
    full: usize,
    stopping: bool,
}

enum Data {
    Read(Arc<dyn Divisible>),
    Chunk(Box<dyn Chunk>),
}

/// Data that will not be sent. The caller drops it without holding a lock, because the drop frees chunks.
pub(super) struct Unsent(VecDeque<Data>);

impl Outgoing {
    /// Queues a control message. Returns false if the queue is full.
    pub(super) fn push(&self, header: Header) -> bool {
        let mut state = self.state.lock();
        if state.headers.len() >= MOST_HEADERS {
            return false;
        }
        state.headers.push_back(header);
        let are_full = state.full > 0;
        drop(state);
        self.wake.notify_one();
        if are_full {
            self.reopened.notify_all();
        }
        true
    }

    /// Queues a read, which is cut into chunks as lanes ask for them. Returns what will not be sent
    /// because the lanes have ended; the caller discards it.
    #[must_use]
    pub(super) fn read(&self, read: Arc<dyn Divisible>) -> Unsent {
        let unsent = self.data(Data::Read(read));
        self.wake.notify_all();
        unsent
    }

    /// Queues a chunk. Returns as [`Outgoing::read`].
    #[must_use]
    pub(super) fn chunk(&self, chunk: Box<dyn Chunk>) -> Unsent {
        let unsent = self.data(Data::Chunk(chunk));
        self.wake.notify_one();
        unsent
    }

    // A stopped queue keeps no data: the data would keep its transfer alive, and the transfer this queue.
    fn data(&self, data: Data) -> Unsent {
        let mut state = self.state.lock();
        if state.stopping {
            return Unsent(VecDeque::from([data]));
        }
        state.data.push_back(data);
        Unsent(VecDeque::new())
    }

    /// Stops the queue: lanes end when they next ask, and no more data is queued.
    pub(super) fn stop(&self) {
        self.state.lock().stopping = true;
        self.wake.notify_all();
        self.reopened.notify_all();
    }

    /// Takes over everything that waits in `other`; its lanes get nothing any more.
    pub(super) fn take_over(&self, other: &Outgoing) {
        let (headers, data) = {
            let mut other = other.state.lock();
            (
                std::mem::take(&mut other.headers),
                std::mem::take(&mut other.data),
            )
        };
        let mut state = self.state.lock();
        state.headers.extend(headers);
        state.data.extend(data);
        drop(state);
        self.wake.notify_all();
    }

    /// Handles a break of the lanes. Their unsent messages are void, except for cancellations.
    pub(super) fn break_off(&self) -> Unsent {
        let mut state = self.state.lock();
        state.headers.retain(|header| header.kind == Kind::Cancel);
        Unsent(std::mem::take(&mut state.data))
    }

    /// Removes the chunks that no transfer wants any more.
    pub(super) fn unwanted(&self) -> Unsent {
        let mut state = self.state.lock();
        let (keep, unwanted) = std::mem::take(&mut state.data)
            .into_iter()
            .partition(|data| match data {
                Data::Read(_) => true,
                Data::Chunk(chunk) => chunk.is_wanted(),
            });
        state.data = keep;
        Unsent(unwanted)
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        let state = self.state.lock();
        state.headers.is_empty() && state.data.is_empty()
    }

    /// Returns the next item to send, and waits for one. Returns `None` if the lane is closed
    /// or the session ends.
    pub(super) fn next(&self, lane: impl Fn() -> Look) -> Option<Item> {
        // Declared before the lock, so dropped after it.
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
            if look == Look::Broken {
                // This thread may have been woken for an item, which another lane takes.
                self.wake.notify_one();
                self.reopened.wait(&mut state);
                continue;
            }
            if let Some(header) = state.headers.pop_front() {
                return Some(Item::Header(header));
            }
            if look == Look::Full {
                // As above.
                self.wake.notify_one();
                state.full += 1;
                self.reopened.wait(&mut state);
                state.full -= 1;
                continue;
            }
            match state.data.pop_front() {
                Some(Data::Read(read)) => {
                    let (chunk, more) = Arc::clone(&read).take_chunk();
                    if more {
                        // Other transfers have their turn before this one's next chunk.
                        state.data.push_back(Data::Read(read));
                    } else {
                        spent.push(read);
                    }
                    if let Some(chunk) = chunk {
                        return Some(Item::Chunk(chunk));
                    }
                }
                Some(Data::Chunk(chunk)) => return Some(Item::Chunk(chunk)),
                None => self.wake.wait(&mut state),
            }
        }
    }

    /// Wakes the waiting lanes: one of them has closed, or has a message of its own to finish.
    pub(super) fn look(&self) {
        // Taking the lock once ensures that a lane between its check and its wait does not miss the wake-up.
        drop(self.state.lock());
        self.wake.notify_all();
        self.reopened.notify_all();
    }
}

impl Unsent {
    /// Notes in each read that it is no longer queued.
    pub(super) fn discard(self) {
        for data in self.0 {
            if let Data::Read(read) = data {
                read.unqueued();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::Message;
    use super::*;
    use bytes::Bytes;
    use causeway_proto::id::EventId;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn messages_that_nobody_takes_are_bounded() {
        let outgoing = Outgoing::default();
        let header = Header::cancel(EventId(1), 0);
        for _ in 0..MOST_HEADERS {
            assert!(outgoing.push(header));
        }
        assert!(!outgoing.push(header));
        assert!(matches!(
            outgoing.next(|| Look::Free),
            Some(Item::Header(_))
        ));
        assert!(outgoing.push(header));
    }

    #[test]
    fn a_full_lane_takes_messages_and_then_waits() {
        let outgoing = Outgoing::default();
        let header = Header::cancel(EventId(1), 0);
        let bytes = Bytes::new();
        let chunk = Box::new(Message { header, bytes });
        outgoing.chunk(chunk).discard();
        let is_full = AtomicBool::new(true);
        let look = &|| match is_full.load(Ordering::SeqCst) {
            true => Look::Full,
            false => Look::Free,
        };
        std::thread::scope(|scope| {
            let (tell, taken) = std::sync::mpsc::channel();
            let outgoing = &outgoing;
            scope.spawn(move || {
                for item in std::iter::from_fn(|| outgoing.next(look)) {
                    tell.send(matches!(item, Item::Header(_))).unwrap();
                }
            });
            for _ in 0..10 {
                outgoing.push(header);
                assert!(taken.recv().unwrap());
            }
            is_full.store(false, Ordering::SeqCst);
            outgoing.look();
            assert!(!taken.recv().unwrap());
            outgoing.stop();
        });
    }

    #[test]
    fn a_break_leaves_cancellations_which_go_another_way() {
        let (own, client) = (Outgoing::default(), Outgoing::default());
        let cancel = Header::cancel(EventId(1), -14);
        let credit = super::super::peers::credit(EventId(2), 7);
        assert!(own.push(credit) && own.push(cancel));
        own.break_off().discard();
        client.take_over(&own);
        assert!(
            matches!(client.next(|| Look::Free), Some(Item::Header(header)) if header == cancel)
        );
        client.stop();
        assert!(client.next(|| Look::Free).is_none());
    }
}
