//! Accounts for one relayed transfer (bytes granted, arrived and forwarded), and for the room that all
//! transfers share. Pure.
//!
//! The receiver's credit is passed on to the sender only as far as there is room here, and only after the
//! sender's offer. Otherwise transfers that cannot run yet would take room from those that can.
//!
//! Invariant: `forwarded <= arrived <= granted <= credit`. Bytes that are granted and not forwarded
//! occupy room. Such bytes always make progress: the sender sends what it was granted, and the receiver
//! accepts what it has granted. So occupied room becomes free again.
#![forbid(unsafe_code)]

use std::collections::VecDeque;

use causeway_proto::limits::{BULK_CHUNK, MAX_SPANS};

/// Maximum number of bytes of one transfer in this process.
pub(super) const WINDOW: u64 = 16 << 20;
/// Maximum number of bytes of all relayed transfers in this process.
pub(super) const ROOM: u64 = 64 << 20;

/// Smaller grants are made only if the receiver accepts no more, so that bytes travel in large chunks.
const UNIT: u64 = BULK_CHUNK as u64;

/// Maximum number of a receiver's queries (credit 0) that are passed on. The receiver sends one for each
/// change of route.
const MOST_QUESTIONS: u8 = 4;

/// The account of one transfer.
#[derive(Debug)]
pub(super) struct Account {
    total: u64,
    offered: bool,
    questions: u8,
    credit: u64,
    granted: u64,
    arrived: u64,
    forwarded: u64,
    // Ranges that have arrived: disjoint, ascending, not adjacent.
    spans: Vec<(u64, u64)>,
    in_line: bool,
    over: bool,
}

/// Bytes that the sender should not have sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum RelayError {
    /// The bytes were not granted, or were sent twice.
    #[error("the node sent bytes {offset}+{length} of a transfer without credit, or twice")]
    Bytes { offset: u64, length: u64 },
    /// There are too many gaps between the received ranges.
    #[error("the node sent a transfer in too many separate ranges, the last at offset {0}")]
    Scattered(u64),
}

impl Account {
    pub(super) fn new(total: u64) -> Account {
        Account {
            total,
            offered: false,
            questions: 0,
            credit: 0,
            granted: 0,
            arrived: 0,
            forwarded: 0,
            spans: Vec::new(),
            in_line: false,
            over: false,
        }
    }

    /// Processes the sender's offer. Returns whether the receiver must be told.
    pub(super) fn offer(&mut self) -> bool {
        !std::mem::replace(&mut self.offered, true)
    }

    /// Processes the receiver's credit up to offset `to`; 0 is a query. Returns whether the sender must
    /// be told now.
    pub(super) fn credit(&mut self, to: u64) -> bool {
        self.credit = self.credit.max(to.min(self.total));
        // Real credit is not passed on here: the relay grants it as room allows.
        if to > 0 || self.questions == MOST_QUESTIONS {
            return false;
        }
        self.questions += 1;
        true
    }

    /// Number of bytes that could be granted to the sender now, if there is room. 0 while the transfer
    /// waits in line for room.
    pub(super) fn wanted(&self) -> u64 {
        if self.over || self.in_line || !self.offered {
            return 0;
        }
        let window = self.forwarded + WINDOW - self.granted;
        let wanted = self.credit - self.granted;
        // Smaller grants wait until more of the window is free.
        if window < UNIT.min(wanted) {
            return 0;
        }
        wanted.min(window)
    }

    /// Records that `taken` bytes of room were found, at most [`Account::wanted`]. Returns the sender's new
    /// credit, or `None` if there was no room and the transfer now waits in line.
    pub(super) fn grant(&mut self, taken: u64) -> Option<u64> {
        debug_assert!(taken <= self.wanted());
        self.in_line = taken == 0;
        self.granted += taken;
        (taken > 0).then_some(self.granted)
    }

    /// Records that the transfer left the line.
    pub(super) fn leave_line(&mut self) {
        self.in_line = false;
    }

    /// Records bytes that are about to arrive. Returns whether they are still wanted.
    ///
    /// # Errors
    /// [`RelayError`] if the sender violates the protocol.
    pub(super) fn arrive(&mut self, offset: u64, length: u64) -> Result<bool, RelayError> {
        if self.over {
            return Ok(false);
        }
        let unasked = RelayError::Bytes { offset, length };
        let end = offset.checked_add(length).ok_or(unasked)?;
        // The spans are sorted and disjoint, so only the last one that begins before `end` can overlap.
        let after = self.spans.partition_point(|span| span.0 < end);
        let overlaps = after > 0 && self.spans[after - 1].1 > offset;
        if end > self.granted || overlaps {
            return Err(unasked);
        }
        self.note(offset, end, after)?;
        self.arrived += length;
        Ok(true)
    }

    // Adds a range to `spans`. `after` is the number of spans before it.
    fn note(&mut self, offset: u64, end: u64, after: usize) -> Result<(), RelayError> {
        let joins_before = after > 0 && self.spans[after - 1].1 == offset;
        let joins_after = self.spans.get(after).is_some_and(|span| span.0 == end);
        match (joins_before, joins_after) {
            (true, true) => {
                self.spans[after - 1].1 = self.spans[after].1;
                self.spans.remove(after);
            }
            (true, false) => self.spans[after - 1].1 = end,
            (false, true) => self.spans[after].0 = offset,
            (false, false) if self.spans.len() >= MAX_SPANS => {
                return Err(RelayError::Scattered(offset));
            }
            (false, false) => self.spans.insert(after, (offset, end)),
        }
        Ok(())
    }

    /// Records bytes that were sent to the receiver. Returns how much room becomes free.
    pub(super) fn forward(&mut self, length: u64) -> u64 {
        if self.over {
            // `close` has returned this room already.
            return 0;
        }
        self.forwarded += length;
        length
    }

    /// Whether the sender has sent everything.
    pub(super) fn has_everything(&self) -> bool {
        self.arrived == self.total
    }

    /// Closes the account. Returns how much room becomes free, or `None` if it was closed before.
    pub(super) fn close(&mut self) -> Option<u64> {
        let first = !std::mem::replace(&mut self.over, true);
        first.then_some(self.granted - self.forwarded)
    }

    pub(super) fn is_over(&self) -> bool {
        self.over
    }
}

/// The room that all transfers share. A transfer that finds none waits in line.
#[derive(Debug)]
pub(super) struct Room<T> {
    free: u64,
    line: VecDeque<T>,
}

impl<T> Room<T> {
    pub(super) const fn new(bytes: u64) -> Room<T> {
        Room {
            free: bytes,
            line: VecDeque::new(),
        }
    }

    /// Takes up to `wanted` bytes, but not less than a chunk unless less is wanted. Returns 0 if there is
    /// not enough room; the transfer then waits in line.
    pub(super) fn take(&mut self, wanted: u64, who: impl FnOnce() -> T) -> u64 {
        if self.free < wanted.min(UNIT) {
            self.line.push_back(who());
            return 0;
        }
        let taken = wanted.min(self.free);
        self.free -= taken;
        taken
    }

    /// Returns bytes of room.
    pub(super) fn give_back(&mut self, bytes: u64) {
        self.free += bytes;
    }

    /// The next transfer in line, if there is room for a chunk.
    pub(super) fn next_in_line(&mut self) -> Option<T> {
        if self.free < UNIT {
            return None;
        }
        self.line.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TOTAL: u64 = 40 << 20;

    #[test]
    fn nothing_is_granted_before_the_sender_has_offered() {
        let mut account = Account::new(TOTAL);
        assert!(!account.credit(u64::MAX));
        assert_eq!(account.wanted(), 0);
        assert!(account.offer());
        assert!(!account.offer(), "passed on once");
        assert_eq!(account.wanted(), WINDOW);
    }

    #[test]
    fn the_window_moves_in_pieces() {
        let mut account = Account::new(TOTAL);
        account.offer();
        account.credit(TOTAL);
        assert_eq!(account.grant(WINDOW), Some(WINDOW));
        assert_eq!(account.wanted(), 0);
        assert_eq!(account.arrive(0, UNIT), Ok(true));
        assert_eq!(account.forward(UNIT - 1), UNIT - 1);
        assert_eq!(account.wanted(), 0, "a sliver");
        assert_eq!(account.forward(1), 1);
        assert_eq!(account.wanted(), UNIT);
        assert_eq!(account.close(), Some(WINDOW - UNIT));
        assert_eq!(account.close(), None);
        assert_eq!(account.forward(5), 0);
        assert_eq!(account.arrive(UNIT, 1), Ok(false));
    }

    #[test]
    fn the_last_bytes_may_be_few() {
        let mut account = Account::new(100);
        account.offer();
        account.credit(10);
        assert_eq!(account.wanted(), 10);
        account.grant(10);
        account.credit(3);
        assert_eq!(account.wanted(), 0, "credit never shrinks");
        account.credit(u64::MAX);
        assert_eq!(account.wanted(), 90);
        account.grant(90);
        assert_eq!(account.arrive(60, 40), Ok(true));
        assert_eq!(account.arrive(0, 60), Ok(true));
        assert!(account.has_everything());
    }

    #[test]
    fn who_stands_in_line_wishes_nothing_more() {
        let mut account = Account::new(100);
        account.offer();
        account.credit(100);
        assert_eq!(account.grant(0), None);
        assert_eq!(account.wanted(), 0);
        account.leave_line();
        assert_eq!(account.wanted(), 100);
    }

    #[test]
    fn questions_are_passed_on_but_not_for_ever() {
        let mut account = Account::new(1);
        let passed = (0..100).filter(|_| account.credit(0)).count();
        assert_eq!(passed, usize::from(MOST_QUESTIONS));
    }

    #[test]
    fn who_finds_no_room_is_next() {
        let mut room = Room::new(2 * UNIT);
        assert_eq!(room.take(3 * UNIT, || 'a'), 2 * UNIT);
        assert_eq!(room.take(1, || 'b'), 0);
        assert_eq!(room.take(UNIT, || 'c'), 0);
        room.give_back(UNIT - 1);
        assert_eq!(room.next_in_line(), None);
        room.give_back(1);
        assert_eq!(room.next_in_line(), Some('b'));
        assert_eq!(room.next_in_line(), Some('c'));
        assert_eq!(room.next_in_line(), None);
    }

    #[test]
    fn scattered_bytes_are_refused() {
        let mut account = Account::new(TOTAL);
        account.offer();
        account.credit(TOTAL);
        account.grant(WINDOW);
        let refused = (0..)
            .map(|n| n * 2)
            .find(|&at| account.arrive(at, 1).is_err());
        assert_eq!(refused, Some(2 * MAX_SPANS as u64));
        assert_eq!(
            account.arrive(1 << 20, 1),
            Err(RelayError::Scattered(1 << 20))
        );
        assert_eq!(account.spans.len(), MAX_SPANS);
        assert_eq!(account.arrive(1, 1), Ok(true), "what joins makes room");
        assert_eq!(account.arrive(1 << 20, 1), Ok(true));
    }

    proptest! {
        #[test]
        fn no_byte_arrives_twice(ranges in proptest::collection::vec((0u64..90, 1u64..20), 1..40)) {
            let mut account = Account::new(100);
            account.offer();
            account.credit(80);
            account.grant(80);
            let mut seen = [false; 128];
            for (offset, length) in ranges {
                let range = offset as usize..(offset + length) as usize;
                let fresh = range.end <= 80 && seen[range.clone()].iter().all(|seen| !seen);
                prop_assert_eq!(account.arrive(offset, length).is_ok(), fresh);
                if fresh {
                    seen[range].fill(true);
                }
                let count = seen.iter().filter(|seen| **seen).count() as u64;
                prop_assert_eq!(account.arrived, count);
            }
        }

        // Several transfers in a small room: all of them end, and all room is free again.
        #[test]
        fn all_transfers_end(
            totals in proptest::collection::vec(1u64..(40 << 20), 1..8),
            picks in proptest::collection::vec(any::<usize>(), 2000),
        ) {
            let mut room = Room::new(ROOM / 2);
            let mut accounts: Vec<Account> = totals.iter().map(|total| Account::new(*total)).collect();
            let mut sent = vec![0u64; accounts.len()];
            let pump = |accounts: &mut Vec<Account>, room: &mut Room<usize>, at: usize| {
                let wanted = accounts[at].wanted();
                if wanted > 0 {
                    let taken = room.take(wanted, || at);
                    accounts[at].grant(taken);
                }
            };
            for at in 0..accounts.len() {
                accounts[at].offer();
                accounts[at].credit(u64::MAX);
                pump(&mut accounts, &mut room, at);
            }
            for pick in picks.into_iter().cycle().take(20_000) {
                let at = pick % accounts.len();
                let length = (accounts[at].granted - sent[at]).min(UNIT);
                if length == 0 {
                    // The picks repeat, so every transfer gets its turn later.
                    continue;
                }
                prop_assert_eq!(accounts[at].arrive(sent[at], length), Ok(true));
                sent[at] += length;
                let back = accounts[at].forward(length);
                room.give_back(back);
                while let Some(next) = room.next_in_line() {
                    accounts[next].leave_line();
                    pump(&mut accounts, &mut room, next);
                }
                pump(&mut accounts, &mut room, at);
                let held: u64 = accounts.iter().map(|a| a.granted - a.forwarded).sum();
                prop_assert_eq!(held + room.free, ROOM / 2);
            }
            // Transfers that were never picked send now.
            for _ in 0..1000 {
                for at in 0..accounts.len() {
                    let length = (accounts[at].granted - sent[at]).min(UNIT);
                    if length > 0 {
                        prop_assert_eq!(accounts[at].arrive(sent[at], length), Ok(true));
                        sent[at] += length;
                        let back = accounts[at].forward(length);
                        room.give_back(back);
                        while let Some(next) = room.next_in_line() {
                            accounts[next].leave_line();
                            pump(&mut accounts, &mut room, next);
                        }
                        pump(&mut accounts, &mut room, at);
                    }
                }
            }
            prop_assert!(accounts.iter().all(Account::has_everything));
        }
    }
}
