//! The figures of one measurement, from the times of probes and the bytes of streams.
//!
//! Pure: times come in as numbers. Invariant: a figure is made of what this end has seen, or of what the other end has
//! reported about its own direction; nothing is estimated.

use std::time::Duration;

/// Number of probes of a measurement.
pub const PROBES: usize = 11;

/// TCP repeats a lost segment after 200 ms at the earliest. A probe that is answered so much later than the fastest one
/// was lost.
const REPEATED_AFTER: Duration = Duration::from_millis(200);

/// Width of the time slots in which a stream's bytes are counted.
const SLOT: Duration = Duration::from_millis(10);

/// Round trips of probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundTrip {
    /// The shortest.
    pub least: Duration,
    /// The median of those that were not lost.
    pub median: Duration,
    /// Number of probes that were lost: TCP had to repeat them, or no answer came.
    pub lost: u32,
}

impl RoundTrip {
    /// Of the probes that were answered, out of `sent`. `None` without an answer.
    #[must_use]
    pub fn of(answered: &[Duration], sent: usize) -> Option<RoundTrip> {
        let mut sorted = answered.to_vec();
        sorted.sort_unstable();
        let least = *sorted.first()?;
        let first_lost = sorted.partition_point(|took| *took < least + REPEATED_AFTER);
        let lost = sent.saturating_sub(first_lost);
        Some(RoundTrip {
            least,
            median: sorted[(first_lost - 1) / 2],
            lost: u32::try_from(lost).unwrap_or(u32::MAX),
        })
    }
}

/// Counts a stream's bytes in time slots since the first byte.
///
/// The first fifth of the time does not count. There, TCP finds out how fast it may send, and buffers on the way fill. With
/// a long round trip, TCP needs ten of them, but half of the time counts always.
///
/// Bytes behind a lost segment reach the reader late and all at once, some of them from before the time that counts. So
/// the fastest and the slowest quarter of that time do not count either.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meter {
    each: Duration,
    slots: Vec<u64>,
    /// The first slot that counts.
    begin: usize,
}

/// Round trips until TCP has found out how fast it may send.
const START: u32 = 10;
/// Parts of the time that counts, which are compared with each other.
const PARTS: usize = 8;
/// With fewer bytes, all parts count: a part would have less than eight TLS records, too few for a comparison.
const COMPARABLE: u128 = (PARTS * 8 * (16 << 10)) as u128;

impl Meter {
    /// A meter for a stream of this duration, over a link with this round trip.
    #[must_use]
    pub fn new(each: Duration, round_trip: Duration) -> Meter {
        let slots = each.as_nanos().div_ceil(SLOT.as_nanos()).max(1);
        // A stream lasts for seconds.
        let slots = usize::try_from(slots).unwrap_or(usize::MAX).min(1 << 16);
        let start = round_trip.saturating_mul(START).as_nanos() / SLOT.as_nanos();
        let start = usize::try_from(start).unwrap_or(usize::MAX);
        Meter {
            each,
            slots: vec![0; slots],
            begin: start.clamp(slots / 5, slots / 2),
        }
    }

    /// The stream's duration.
    #[must_use]
    pub fn each(&self) -> Duration {
        self.each
    }

    /// Counts bytes that arrived `since` the first one. Later ones than the duration do not count.
    pub fn add(&mut self, since: Duration, bytes: u64) {
        let slot = usize::try_from(since.as_nanos() / SLOT.as_nanos()).unwrap_or(usize::MAX);
        if let Some(slot) = self.slots.get_mut(slot) {
            *slot = slot.saturating_add(bytes);
        }
    }

    /// Adds the bytes of another lane, which were counted since the same moment.
    pub fn join(&mut self, other: &Meter) {
        for (slot, more) in self.slots.iter_mut().zip(&other.slots) {
            *slot = slot.saturating_add(*more);
        }
    }

    /// Bytes per second.
    #[must_use]
    pub fn rate(&self) -> u64 {
        let counted = &self.slots[self.begin..];
        let parts = PARTS.min(counted.len());
        let mut parts: Vec<Part> = (0..parts)
            .map(|part| {
                let begin = part * counted.len() / parts;
                Part::of(&counted[begin..(part + 1) * counted.len() / parts])
            })
            .collect();
        if Part::sum(&parts).bytes >= COMPARABLE {
            parts.sort_unstable_by_key(Part::rate);
            let quarter = parts.len() / 4;
            parts = parts[quarter..parts.len() - quarter].to_vec();
        }
        u64::try_from(Part::sum(&parts).rate()).unwrap_or(u64::MAX)
    }
}

/// A part of a stream.
#[derive(Clone, Copy)]
struct Part {
    bytes: u128,
    slots: u128,
}

impl Part {
    fn of(slots: &[u64]) -> Part {
        Part {
            bytes: slots.iter().map(|bytes| u128::from(*bytes)).sum(),
            slots: slots.len() as u128,
        }
    }

    fn sum(parts: &[Part]) -> Part {
        Part {
            bytes: parts.iter().map(|part| part.bytes).sum(),
            slots: parts.iter().map(|part| part.slots).sum(),
        }
    }

    /// Bytes per second. A meter has a slot at least, and so has each part.
    fn rate(&self) -> u128 {
        self.bytes * 1_000_000_000 / (self.slots * SLOT.as_nanos())
    }
}

/// The result of a measurement, as the end that began it knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Round trips.
    pub round_trip: RoundTrip,
    /// Bytes per second to the other end; counted there.
    pub outward: u64,
    /// Bytes per second from the other end.
    pub inward: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn probes_that_tcp_has_repeated_are_lost() {
        let answered = [3, 2, 2, 207, 4, 2, 2, 2, 3, 900].map(|ms| ms * MS);
        let of = RoundTrip::of(&answered, PROBES).unwrap();
        assert_eq!((of.least, of.median, of.lost), (2 * MS, 2 * MS, 3));
        assert_eq!(RoundTrip::of(&[], PROBES), None);
        let one = RoundTrip::of(&[MS], 1).unwrap();
        assert_eq!((one.least, one.median, one.lost), (MS, MS, 0));
    }

    #[test]
    fn a_steady_stream_has_its_rate_and_its_beginning_does_not_count() {
        let mut meter = Meter::new(500 * MS, MS);
        for slot in 0..60 {
            // Ten times as much in the first 100 ms, which fills buffers.
            let bytes = if slot < 10 { 10_000 } else { 1_000 };
            meter.add(slot * 10 * MS, bytes);
        }
        assert_eq!(meter.rate(), 100_000);
        let mut lanes = Meter::new(500 * MS, MS);
        lanes.join(&meter);
        lanes.join(&meter);
        assert_eq!(lanes.rate(), 200_000);
    }

    #[test]
    fn the_slow_start_of_a_long_way_does_not_count() {
        for (trip, counted) in [(1, 40), (20, 30), (30, 25), (10_000, 25)] {
            let mut meter = Meter::new(500 * MS, trip * MS);
            for slot in 50 - counted..50 {
                meter.add(slot * 10 * MS, 1_000);
            }
            assert_eq!(meter.rate(), 100_000, "{trip} ms");
            meter.add((50 - counted) * 10 * MS - MS, 1_000_000);
            assert_eq!(meter.rate(), 100_000, "{trip} ms");
        }
    }

    #[test]
    fn bytes_that_waited_behind_a_lost_segment_do_not_count() {
        let mut meter = Meter::new(1000 * MS, MS);
        for slot in 0..100 {
            meter.add(slot * 10 * MS, 120_000);
        }
        assert_eq!(meter.rate(), 12_000_000);
        // What came before the time that counts is read in it, and what comes at its end is read later.
        meter.add(250 * MS, 1_200_000);
        assert_eq!(meter.rate(), 12_000_000);
        meter.slots[90..].fill(0);
        assert_eq!(meter.rate(), 12_000_000);
    }

    #[test]
    fn all_parts_of_a_slow_stream_count() {
        let mut meter = Meter::new(1000 * MS, MS);
        // A TLS record every 200 ms.
        for slot in (20..100).step_by(20) {
            meter.add(slot * 10 * MS, 16 << 10);
        }
        assert_eq!(meter.rate(), 4 * (16 << 10) * 10 / 8);
    }

    proptest! {
        #[test]
        fn order_does_not_matter_and_the_figures_bound_each_other(
            answered in prop::collection::vec(0_u64..2_000_000, 1..12)
        ) {
            let answered: Vec<_> = answered.into_iter().map(Duration::from_micros).collect();
            let of = RoundTrip::of(&answered, PROBES).unwrap();
            let reversed: Vec<_> = answered.iter().rev().copied().collect();
            prop_assert_eq!(RoundTrip::of(&reversed, PROBES), Some(of));
            prop_assert!(of.least <= of.median && of.median < of.least + REPEATED_AFTER);
            prop_assert!(of.lost as usize >= PROBES - answered.len() && (of.lost as usize) < PROBES);
        }

        #[test]
        fn no_meter_counts_more_than_came(
            each in 1_u64..10_000, trip in 0_u64..1_000, arrived in prop::collection::vec((0_u64..20_000, 0_u64..1 << 40), 0..50)
        ) {
            let each = Duration::from_millis(each);
            let mut meter = Meter::new(each, Duration::from_millis(trip));
            for (at, bytes) in &arrived {
                meter.add(Duration::from_millis(*at), *bytes);
            }
            let sum: u128 = arrived.iter().map(|(_, bytes)| u128::from(*bytes)).sum();
            // A quarter of the time counts at least.
            let most = sum * 1000 / (each.as_millis() / 4).max(1);
            prop_assert!(u128::from(meter.rate()) <= most);
        }
    }
}
