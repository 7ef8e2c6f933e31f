//! Pure accounting of a lane that outlives its connections: what its sender keeps until the other end has it.
//!
//! Positions count the bytes of the lane since its first connection, headers included. A sender reserves an item's
//! bytes, writes them, and then keeps the item. So an acknowledgement may come while the item is being written.
//! After a break, the sender writes again from the position that the other end has reached.
//!
//! Invariant: the kept items are contiguous and end at the last reserved byte, once nobody writes. Every byte that
//! is not acknowledged is in a kept item, or in the one that is being written.
#![forbid(unsafe_code)]

use std::collections::VecDeque;

/// Number of received bytes after which the receiver acknowledges.
const ACKNOWLEDGED_EACH: u64 = 1 << 20;

/// The other end named a position that it cannot have reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Impossible {
    /// More bytes than were sent.
    #[error("the other end claims {claimed} bytes of a lane, but only {sent} were sent")]
    Unsent {
        /// The claimed position.
        claimed: u64,
        /// Number of bytes that were sent.
        sent: u64,
    },
    /// Fewer bytes than were acknowledged before.
    #[error("the other end claims {claimed} bytes of a lane after it acknowledged {acknowledged}")]
    Forgotten {
        /// The claimed position.
        claimed: u64,
        /// Number of bytes that were acknowledged.
        acknowledged: u64,
    },
}

/// The sender's side.
#[derive(Debug)]
pub(crate) struct Window<K> {
    entries: VecDeque<KeptItem<K>>,
    acknowledged: u64,
    sent: u64,
}

/// An item that was written and may have to be written again.
#[derive(Debug)]
struct KeptItem<K> {
    start: u64,
    length: u64,
    item: K,
}

/// The bytes of one item, which the sender has reserved.
#[derive(Debug)]
#[must_use]
pub(crate) struct Reserved {
    start: u64,
    length: u64,
}

/// The items that are being written again. They belong to the caller meanwhile.
#[derive(Debug)]
pub(crate) struct Again<K> {
    entries: VecDeque<KeptItem<K>>,
    position: u64,
}

impl<K> Default for Window<K> {
    fn default() -> Window<K> {
        Window {
            entries: VecDeque::new(),
            acknowledged: 0,
            sent: 0,
        }
    }
}

impl<K> Window<K> {
    /// Reserves the bytes of an item that is about to be written.
    pub(crate) fn reserve(&mut self, length: u64) -> Reserved {
        let start = self.sent;
        self.sent += length;
        Reserved { start, length }
    }

    /// Gives the latest reservation back, because nothing of the item was written.
    pub(crate) fn release(&mut self, reserved: Reserved) {
        self.sent = reserved.start;
        // Only a peer that acknowledges bytes which it cannot have makes this differ.
        self.acknowledged = self.acknowledged.min(self.sent);
    }

    /// Keeps an item after writing it. Returns the item if the other end has it already.
    pub(crate) fn keep(&mut self, reserved: Reserved, item: K) -> Option<K> {
        let Reserved { start, length } = reserved;
        if start + length <= self.acknowledged {
            return Some(item);
        }
        self.entries.push_back(KeptItem {
            start,
            length,
            item,
        });
        None
    }

    /// Keeps the item of the latest reservation, which the caller has not kept.
    pub(crate) fn adopt(&mut self, length: u64, item: K) -> Option<K> {
        let start = self.sent - length;
        self.keep(Reserved { start, length }, item)
    }

    /// Notes that the other end has received `position` bytes. An older acknowledgement has no effect, because
    /// acknowledgements travel on several lanes and overtake each other.
    pub(crate) fn acknowledge(&mut self, position: u64) -> Result<(), Impossible> {
        if position > self.sent {
            return Err(Impossible::Unsent {
                claimed: position,
                sent: self.sent,
            });
        }
        self.acknowledged = self.acknowledged.max(position);
        Ok(())
    }

    /// Number of bytes that are not acknowledged.
    pub(crate) fn unacknowledged(&self) -> u64 {
        self.sent - self.acknowledged
    }

    /// Removes an item that the other end has. The caller drops it without a lock.
    pub(crate) fn pop_acknowledged(&mut self) -> Option<K> {
        let first = self.entries.front()?;
        if first.start + first.length > self.acknowledged {
            return None;
        }
        self.entries.pop_front().map(|first| first.item)
    }

    /// Removes all items, because the lane has ended.
    pub(crate) fn clear(&mut self) -> impl Sized + use<K> {
        std::mem::take(&mut self.entries)
    }

    /// Takes the items to write again, for an end that has received `position` bytes. [`Window::put_back`] must
    /// follow. Acknowledgements may come in between.
    pub(crate) fn again_from(&mut self, position: u64) -> Result<Again<K>, Impossible> {
        if position < self.acknowledged {
            return Err(Impossible::Forgotten {
                claimed: position,
                acknowledged: self.acknowledged,
            });
        }
        self.acknowledge(position)?;
        let entries = std::mem::take(&mut self.entries);
        Ok(Again { entries, position })
    }

    /// Keeps the items again. Nothing was reserved in between.
    pub(crate) fn put_back(&mut self, again: Again<K>) {
        debug_assert!(self.entries.is_empty());
        self.entries = again.entries;
    }

    #[cfg(test)]
    fn kept(&self) -> u64 {
        self.entries.iter().map(|entry| entry.length).sum()
    }
}

impl<K> Again<K> {
    /// The items, each with the number of its first bytes that the other end has.
    pub(crate) fn items(&mut self) -> impl Iterator<Item = (&mut K, u64)> {
        let position = self.position;
        let missing = move |entry: &&mut KeptItem<K>| entry.start + entry.length > position;
        self.entries
            .iter_mut()
            .filter(missing)
            .map(move |entry| (&mut entry.item, position.saturating_sub(entry.start)))
    }
}

/// The receiver's side.
#[derive(Debug, Default)]
pub(crate) struct Received {
    bytes: u64,
    acknowledged: u64,
}

impl Received {
    /// Counts received bytes.
    pub(crate) fn add(&mut self, count: usize) {
        self.bytes += count as u64;
    }

    /// Number of bytes received in all.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The acknowledgement to send now, if one is due: after each MiB, or `at_once` if there is anything to
    /// acknowledge.
    pub(crate) fn due(&mut self, at_once: bool) -> Option<u64> {
        let fresh = self.bytes - self.acknowledged;
        let is_due = fresh >= ACKNOWLEDGED_EACH || (at_once && fresh > 0);
        is_due.then(|| {
            self.acknowledged = self.bytes;
            self.bytes
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes_from(start: u64, length: u64) -> Vec<u8> {
        let byte = |at: u64| (at * 31 + at / 251) as u8;
        (start..start + length).map(byte).collect()
    }

    /// A sender waits at so many bytes that are not acknowledged.
    const BOUND: u64 = 500;

    // One direction of a lane: a sender, a wire and a receiver, whose acknowledgements take another wire.
    #[derive(Default)]
    struct Lane {
        window: Window<Vec<u8>>,
        wire: VecDeque<u8>,
        connected: bool,
        got: Vec<u8>,
        received: Received,
        acknowledgements: VecDeque<u64>,
    }

    impl Lane {
        fn send(&mut self, length: u64, cut: Option<usize>) {
            if self.window.unacknowledged() >= BOUND {
                return;
            }
            let reserved = self.window.reserve(length);
            let item = bytes_from(reserved.start, length);
            self.write(&item, cut);
            assert!(self.window.keep(reserved, item).is_none());
        }

        // The wire may break within the bytes.
        fn write(&mut self, bytes: &[u8], cut: Option<usize>) {
            if self.connected {
                let taken = cut.map_or(bytes.len(), |cut| cut % (bytes.len() + 1));
                self.wire.extend(&bytes[..taken]);
                self.connected = cut.is_none();
            }
        }

        fn receive(&mut self, most: usize) {
            let count = most.min(self.wire.len());
            self.got.extend(self.wire.drain(..count));
            self.received.add(count);
        }

        fn acknowledge(&mut self) {
            self.acknowledgements.extend(self.received.due(true));
        }

        // The wire of the acknowledgements does not break with the other one, so a late one may come.
        fn deliver(&mut self, count: usize) {
            let count = count.min(self.acknowledgements.len());
            for position in self.acknowledgements.drain(..count) {
                self.window.acknowledge(position).unwrap();
            }
            while self.window.pop_acknowledged().is_some() {}
        }

        fn connect(&mut self, cut: Option<usize>) {
            // What was on the old wire is lost.
            self.wire.clear();
            self.connected = true;
            let mut again = self.window.again_from(self.received.bytes()).unwrap();
            let rest: Vec<_> = again
                .items()
                .map(|(item, skip)| item[skip as usize..].to_vec())
                .collect();
            for bytes in rest {
                self.write(&bytes, cut);
            }
            self.window.put_back(again);
            while self.window.pop_acknowledged().is_some() {}
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Send(u64, Option<usize>),
        Receive(usize),
        Acknowledge,
        Deliver(usize),
        Cut,
        Connect(Option<usize>),
    }

    fn step() -> impl Strategy<Value = Step> {
        let cut = || prop::option::weighted(0.2, any::<usize>());
        prop_oneof![
            4 => (1u64..200, cut()).prop_map(|(length, cut)| Step::Send(length, cut)),
            4 => (1usize..300).prop_map(Step::Receive),
            2 => Just(Step::Acknowledge),
            2 => (1usize..4).prop_map(Step::Deliver),
            1 => Just(Step::Cut),
            2 => cut().prop_map(Step::Connect),
        ]
    }

    proptest! {
        // PROPTEST_CASES=100000 runs as many.
        #[test]
        fn every_byte_comes_once_and_in_order(
            steps in prop::collection::vec((0usize..2, step()), 0..80),
        ) {
            let lane = || Lane { connected: true, ..Lane::default() };
            let mut lanes = [lane(), lane()];
            for (direction, step) in steps {
                let lane = &mut lanes[direction];
                match step {
                    Step::Send(length, cut) => lane.send(length, cut),
                    Step::Receive(most) => lane.receive(most),
                    Step::Acknowledge => lane.acknowledge(),
                    Step::Deliver(count) => lane.deliver(count),
                    Step::Cut => lane.connected = false,
                    Step::Connect(cut) => lane.connect(cut),
                }
                // Whole items are kept, so less than one item more than what is not acknowledged.
                let unheard = lane.window.unacknowledged();
                prop_assert!(unheard < BOUND + 200);
                prop_assert!(lane.window.kept() >= unheard && lane.window.kept() < unheard + 200);
            }
            for lane in &mut lanes {
                lane.connect(None);
                lane.receive(usize::MAX);
                prop_assert_eq!(&lane.got, &bytes_from(0, lane.window.sent));
                lane.acknowledge();
                lane.deliver(usize::MAX);
                // So neither end waits.
                prop_assert_eq!((lane.window.kept(), lane.window.unacknowledged()), (0, 0));
            }
        }
    }

    #[test]
    fn positions_that_cannot_be_are_errors() {
        let mut window = Window::default();
        let reserved = window.reserve(10);
        window.keep(reserved, ());
        let unsent = Impossible::Unsent {
            claimed: 11,
            sent: 10,
        };
        assert_eq!(window.acknowledge(11), Err(unsent));
        assert_eq!(window.again_from(11).unwrap_err(), unsent);
        window.acknowledge(7).unwrap();
        // An older acknowledgement that was overtaken.
        window.acknowledge(3).unwrap();
        let forgotten = Impossible::Forgotten {
            claimed: 6,
            acknowledged: 7,
        };
        assert_eq!(window.again_from(6).unwrap_err(), forgotten);
        let mut again = window.again_from(8).unwrap();
        assert_eq!(again.items().map(|(_, skip)| skip).collect::<Vec<_>>(), [8]);
    }

    #[test]
    fn an_item_may_be_acknowledged_before_it_is_kept() {
        let mut window = Window::default();
        let reserved = window.reserve(10);
        window.acknowledge(10).unwrap();
        assert_eq!(window.keep(reserved, 'a'), Some('a'));
        let reserved = window.reserve(5);
        window.release(reserved);
        let reserved = window.reserve(3);
        assert_eq!(window.keep(reserved, 'b'), None);
        assert_eq!(window.sent, 13);
    }

    #[test]
    fn each_mebibyte_is_acknowledged() {
        let mut received = Received::default();
        received.add((1 << 20) - 1);
        assert_eq!(received.due(false), None);
        received.add(32);
        assert_eq!(received.due(false), Some((1 << 20) + 31));
        assert_eq!(received.due(true), None);
        received.add(1);
        assert_eq!(received.due(true), Some((1 << 20) + 32));
    }
}
