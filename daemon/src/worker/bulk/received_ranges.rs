//! Accounting of an incoming transfer: which bytes have been granted, announced and received.
//!
//! Pure. Invariant: no byte is claimed twice and none beyond the credit. So when all bytes have arrived,
//! no lane is still receiving. Adjacent spans are joined, so the account stays small.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use causeway_proto::limits::MAX_SPANS;

/// The account of one transfer.
#[derive(Debug)]
pub(super) struct ReceivedRanges {
    total: u64,
    credit: u64,
    arrived: u64,
    // Announced spans, start to end. Adjacent spans are joined.
    claimed: BTreeMap<u64, u64>,
}

/// Why a claim is refused: the peer sent bytes without credit, twice, or in too many separate spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    #[error("the sender sent bytes up to {0}, which is more than its credit")]
    BeyondCredit(u64),
    #[error("the sender sent the bytes from {0} twice")]
    Twice(u64),
    #[error("the sender sent too many separate ranges, the last at {0}")]
    Scattered(u64),
}

impl ReceivedRanges {
    pub(super) fn new(total: u64) -> ReceivedRanges {
        ReceivedRanges {
            total,
            credit: 0,
            arrived: 0,
            claimed: BTreeMap::new(),
        }
    }

    pub(super) fn credit(&self) -> u64 {
        self.credit
    }

    /// Raises the credit to `to`, capped at the total. The credit never falls.
    pub(super) fn grant(&mut self, to: u64) {
        self.credit = self.credit.max(to.min(self.total));
    }

    /// Claims bytes that the peer announces in a header.
    ///
    /// # Errors
    /// [`Refused`]: the peer violates the protocol, so the connection has to be closed.
    pub(super) fn claim(&mut self, offset: u64, length: u64) -> Result<(), Refused> {
        let end = offset.saturating_add(length);
        if end > self.credit {
            return Err(Refused::BeyondCredit(end));
        }
        if length == 0 {
            return Ok(());
        }
        // Claimed ranges are disjoint, so only the last one that begins before `end` can overlap.
        let before = self.claimed.range(..end).next_back().map(|(s, e)| (*s, *e));
        if let Some((_, before_end)) = before
            && before_end > offset
        {
            return Err(Refused::Twice(offset));
        }
        // Adjacent ranges become one. So a peer that sends in order needs one entry, and only a scattered
        // peer reaches the limit.
        let joins_before = before.is_some_and(|(_, before_end)| before_end == offset);
        let joins = joins_before || self.claimed.contains_key(&end);
        if !joins && self.claimed.len() >= MAX_SPANS {
            return Err(Refused::Scattered(offset));
        }
        let mut start = offset;
        let mut stop = end;
        if let Some((before_start, _)) = before
            && joins_before
        {
            self.claimed.remove(&before_start);
            start = before_start;
        }
        if let Some(after_end) = self.claimed.remove(&end) {
            stop = after_end;
        }
        self.claimed.insert(start, stop);
        Ok(())
    }

    /// Counts `length` claimed bytes as received. Returns whether the transfer is complete.
    pub(super) fn arrive(&mut self, length: u64) -> bool {
        self.arrived += length;
        self.arrived == self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn neighbours_are_joined_and_all_is_all() {
        let mut received_ranges = ReceivedRanges::new(30);
        assert_eq!(received_ranges.claim(0, 1), Err(Refused::BeyondCredit(1)));
        received_ranges.grant(100);
        assert_eq!(received_ranges.credit(), 30);
        for (offset, length) in [(10, 10), (0, 10), (20, 10)] {
            assert_eq!(received_ranges.claim(offset, length), Ok(()));
        }
        assert_eq!(received_ranges.claimed.len(), 1);
        assert!(!received_ranges.arrive(20));
        assert!(received_ranges.arrive(10));
    }

    #[test]
    fn scattered_bytes_are_refused_and_cost_no_more_than_the_spans() {
        let mut received_ranges = ReceivedRanges::new(1 << 24);
        received_ranges.grant(1 << 24);
        let places = (0..).map(|n| n * 2);
        let refused = places
            .clone()
            .find(|&at| received_ranges.claim(at, 1).is_err());
        assert_eq!(refused, Some(2 * MAX_SPANS as u64));
        assert_eq!(
            received_ranges.claim(1 << 20, 1),
            Err(Refused::Scattered(1 << 20))
        );
        assert_eq!(received_ranges.claimed.len(), MAX_SPANS);
        // A span that joins another is accepted. Joining two spans makes room for a new one.
        assert_eq!(received_ranges.claim(1, 1), Ok(()));
        assert_eq!(received_ranges.claim(1 << 20, 1), Ok(()));
        assert_eq!(received_ranges.claim((1 << 20) + 1, 9), Ok(()));
    }

    proptest! {
        #[test]
        fn no_byte_is_claimed_twice(ranges in proptest::collection::vec((0u64..40, 1u64..10), 1..30)) {
            let mut received_ranges = ReceivedRanges::new(64);
            received_ranges.grant(44);
            let mut seen = [false; 64];
            for (offset, length) in ranges {
                let range = offset as usize..(offset + length) as usize;
                let free = range.end <= 44 && seen[range.clone()].iter().all(|s| !s);
                prop_assert_eq!(received_ranges.claim(offset, length).is_ok(), free);
                if free {
                    seen[range].fill(true);
                }
            }
        }
    }
}
