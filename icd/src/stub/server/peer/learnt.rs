//! How fast the links between nodes are, as this process has seen by its own transfers.
//!
//! Times are the client's own: from when both ends were sent their commands until the receiving end's completion arrived. So
//! a worker that lies can only pretend to be faster for its own client. The figures stay in this process, and nobody else
//! reads them. Pure: times come in. Invariants: transfers that overlap count together, when the last of them has ended.
//! Whatever delays a transfer makes its rate lower, so a higher rate counts at once, and a lower one by a quarter.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use bytes::Bytes;
use rustc_hash::FxHashMap;

/// Transfers of fewer bytes say nothing, because they only fill buffers on the way.
pub(super) const LEAST_BYTES: u64 = 8 << 20;

/// A learnt rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LearntRate {
    /// Bytes per second; not 0.
    pub rate: u64,
    /// When it was learnt last.
    pub when: Instant,
}

/// The rates of all links, by the uuids of the sending and the receiving node.
#[derive(Debug, Default)]
pub(super) struct Learnt {
    links: FxHashMap<[Bytes; 2], Rate>,
}

/// The rate of one link in one direction.
#[derive(Debug, Default)]
struct Rate {
    known: Option<LearntRate>,
    /// Number of transfers that overlap now.
    moving: u32,
    /// When the first of them has begun.
    since: Option<Instant>,
    /// Bytes of those that have ended. `None` if one of them does not count.
    bytes: Option<u64>,
}

impl Learnt {
    /// Records that a transfer begins.
    pub(super) fn begin(&mut self, ends: &[Bytes; 2], now: Instant) {
        let link = self.links.entry(ends.clone()).or_default();
        if link.moving == 0 {
            (link.since, link.bytes) = (Some(now), Some(0));
        }
        link.moving += 1;
    }

    /// Records that a transfer has ended, with its bytes if it counts. `on_the_way` is the part of the time in which messages
    /// went to the nodes and came back.
    pub(super) fn end(
        &mut self,
        ends: &[Bytes; 2],
        now: Instant,
        bytes: Option<u64>,
        on_the_way: Duration,
    ) {
        let Some(link) = self.links.get_mut(ends) else {
            return;
        };
        link.moving = link.moving.saturating_sub(1);
        link.bytes = link
            .bytes
            .zip(bytes)
            .map(|(all, of)| all.saturating_add(of));
        if link.moving > 0 {
            return;
        }
        if let (Some(since), Some(bytes)) = (link.since, link.bytes) {
            let took = now.saturating_duration_since(since);
            // The round trip may have been longer when it was measured.
            let took = took.saturating_sub(on_the_way.min(took / 2));
            link.note(rate(bytes, took), now);
        }
    }

    /// The rate from one node to another.
    pub(super) fn rate(&self, from: &[u8], to: &[u8]) -> Option<LearntRate> {
        let ends = [from, to].map(Bytes::copy_from_slice);
        self.links.get(&ends)?.known
    }
}

impl Rate {
    fn note(&mut self, rate: u64, now: Instant) {
        let known = self.known.map_or(0, |of| of.rate);
        let rate = rate.max(known - known / 4 + rate / 4);
        self.known = Some(LearntRate { rate, when: now });
    }
}

fn rate(bytes: u64, took: Duration) -> u64 {
    let rate = u128::from(bytes) * 1_000_000_000 / took.as_nanos().max(1);
    u64::try_from(rate).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;
    const NO_TIME: Duration = Duration::ZERO;

    fn ends() -> [Bytes; 2] {
        [Bytes::from_static(b"a"), Bytes::from_static(b"b")]
    }

    fn after(begun: Instant, milliseconds: u64) -> Instant {
        begun + Duration::from_millis(milliseconds)
    }

    #[test]
    fn a_higher_rate_counts_at_once_and_a_lower_one_by_a_quarter() {
        let (mut learnt, begun) = (Learnt::default(), Instant::now());
        let mut run = |from: u64, to: u64, mib: u64| {
            learnt.begin(&ends(), after(begun, from));
            learnt.end(&ends(), after(begun, to), Some(mib * MIB), NO_TIME);
            learnt.rate(b"a", b"b").unwrap()
        };
        assert_eq!(run(0, 1_000, 8).rate, 8 * MIB);
        let second = run(2_000, 3_000, 16);
        assert_eq!((second.rate, second.when), (16 * MIB, after(begun, 3_000)));
        assert_eq!(run(4_000, 5_000, 8).rate, 14 * MIB);
        assert_eq!(learnt.rate(b"b", b"a"), None, "the other direction");
    }

    #[test]
    fn transfers_that_overlap_count_together() {
        let (mut learnt, begun) = (Learnt::default(), Instant::now());
        learnt.begin(&ends(), begun);
        learnt.begin(&ends(), after(begun, 100));
        learnt.end(&ends(), after(begun, 900), Some(9 * MIB), NO_TIME);
        assert_eq!(
            learnt.rate(b"a", b"b"),
            None,
            "bytes of the other one are missing"
        );
        learnt.end(&ends(), after(begun, 1_000), Some(9 * MIB), NO_TIME);
        assert_eq!(learnt.rate(b"a", b"b").unwrap().rate, 18 * MIB);
    }

    #[test]
    fn a_transfer_that_failed_says_nothing() {
        let (mut learnt, begun) = (Learnt::default(), Instant::now());
        learnt.begin(&ends(), begun);
        learnt.end(&ends(), after(begun, 1), None, NO_TIME);
        assert_eq!(learnt.rate(b"a", b"b"), None);
        // Nor do those that shared the link with it.
        learnt.begin(&ends(), after(begun, 2));
        learnt.begin(&ends(), after(begun, 3));
        learnt.end(&ends(), after(begun, 4), None, NO_TIME);
        learnt.end(&ends(), after(begun, 9), Some(MIB), NO_TIME);
        assert_eq!(learnt.rate(b"a", b"b"), None);
        // One that was never begun changes nothing.
        let other = [Bytes::from_static(b"x"), Bytes::from_static(b"y")];
        learnt.end(&other, after(begun, 2), Some(MIB), NO_TIME);
        assert_eq!(learnt.rate(b"x", b"y"), None);
    }

    #[test]
    fn the_time_of_messages_does_not_count() {
        let (mut learnt, begun) = (Learnt::default(), Instant::now());
        let way = Duration::from_millis(200);
        learnt.begin(&ends(), begun);
        learnt.end(&ends(), after(begun, 1_200), Some(10 * MIB), way);
        assert_eq!(learnt.rate(b"a", b"b").unwrap().rate, 10 * MIB);
        learnt.begin(&ends(), after(begun, 2_000));
        learnt.end(&ends(), after(begun, 2_100), Some(10 * MIB), way);
        let most = learnt.rate(b"a", b"b").unwrap().rate;
        assert_eq!(most, 200 * MIB, "at most half of the time");
    }

    proptest! {
        #[test]
        fn a_rate_is_that_of_the_link_unless_ends_are_heard_of_late(
            transfers in prop::collection::vec((0u64..50, 1u64..40, 0u64..100), 1..40),
            is_late: bool,
        ) {
            // A link of 1 MiB a millisecond, which serves one transfer after the other.
            let (mut learnt, begun) = (Learnt::default(), Instant::now());
            let (mut asked, mut free) = (0, 0);
            let mut events = Vec::new();
            for (pause, mib, delay) in transfers {
                asked += pause;
                free = free.max(asked) + mib;
                events.push((asked, None));
                let delay = if is_late { delay } else { 0 };
                events.push((free + delay, Some(mib * MIB)));
            }
            events.sort_by_key(|(at, ends)| (*at, ends.is_some()));
            for (at, ends_with) in events {
                match ends_with {
                    None => learnt.begin(&ends(), after(begun, at)),
                    bytes => learnt.end(&ends(), after(begun, at), bytes, NO_TIME),
                }
            }
            let rate = learnt.rate(b"a", b"b").unwrap().rate;
            prop_assert!((1..=1000 * MIB).contains(&rate), "{rate}");
            prop_assert!(is_late || rate == 1000 * MIB, "{rate}");
        }
    }
}
