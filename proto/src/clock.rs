//! Relates one clock to another: the offset that a reading implies, and its uncertainty.
//!
//! A remote clock is read between two readings of the local one. Whatever the delays in either direction
//! were, the true offset is in the interval that the reading leaves. So the interval's middle is wrong by
//! half of the interval at most: half a round trip. The reading with the smallest interval wins. Used
//! between client and worker, and between a worker and its devices.
//!
//! Pure: no clock is read here. Times are nanoseconds. An offset is fixed once and never changes, so
//! converted times keep their order and their distances. Later drift between the clocks is not corrected.
#![forbid(unsafe_code)]

/// A remote clock, read between two readings of the local one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Local time before the remote reading.
    pub before: u64,
    /// Remote time, not earlier than `before`.
    pub first: u64,
    /// Remote time, not later than `after`.
    pub last: u64,
    /// Local time after the remote reading.
    pub after: u64,
}

/// The relation between the remote clock and the local one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offset {
    /// Local time minus remote time, in nanoseconds.
    pub ns: i64,
    /// Maximum error in nanoseconds.
    pub uncertainty: u64,
}

impl Reading {
    /// A reading with a single remote time.
    #[must_use]
    pub fn of_moment(before: u64, remote: u64, after: u64) -> Reading {
        Reading {
            before,
            first: remote,
            last: remote,
            after,
        }
    }

    /// The offset that the reading implies. `None` when the reading contradicts itself.
    #[must_use]
    pub fn offset(&self) -> Option<Offset> {
        let least = i128::from(self.before) - i128::from(self.first);
        let most = i128::from(self.after) - i128::from(self.last);
        if most < least || self.last < self.first {
            return None;
        }
        Some(Offset {
            ns: i64::try_from(least + (most - least) / 2).ok()?,
            uncertainty: u64::try_from((most - least + 1) / 2).ok()?,
        })
    }
}

impl Offset {
    /// The more precise of two offsets.
    #[must_use]
    pub fn surer(self, other: Offset) -> Offset {
        if other.uncertainty < self.uncertainty {
            other
        } else {
            self
        }
    }

    /// Converts a remote time to the local clock.
    #[must_use]
    pub fn apply(self, remote: u64) -> u64 {
        remote.saturating_add_signed(self.ns)
    }
}

/// The most precise offset of several readings.
#[must_use]
pub fn best(readings: impl IntoIterator<Item = Reading>) -> Option<Offset> {
    let offsets = readings.into_iter().filter_map(|reading| reading.offset());
    offsets.reduce(Offset::surer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_contradiction_says_nothing() {
        assert_eq!(Reading::of_moment(10, 0, 9).offset(), None);
        let longer_there = Reading {
            before: 0,
            first: 100,
            last: 200,
            after: 50,
        };
        assert_eq!(longer_there.offset(), None);
        assert_eq!(best([longer_there]), None);
    }

    #[test]
    fn mapped_times_saturate() {
        let offset = Offset {
            ns: -10,
            uncertainty: 0,
        };
        assert_eq!((offset.apply(5), offset.apply(25)), (0, 15));
    }

    proptest! {
        // The delays in the two directions differ freely. The error stays below half of the smallest
        // round trip.
        #[test]
        fn the_error_is_below_half_of_the_smallest_round_trip(
            ahead in -1_000_000_000_000i64..1_000_000_000_000,
            trips in prop::collection::vec((0u64..5_000_000, 0u64..2_000, 0u64..5_000_000), 1..20),
        ) {
            let start = 2_000_000_000_000u64;
            let mut now = start;
            let mut smallest = u64::MAX;
            let readings: Vec<Reading> = trips.iter().map(|&(there, stay, back)| {
                let before = now;
                let first = (before + there).saturating_add_signed(ahead);
                now = before + there + stay + back;
                smallest = smallest.min(there + back);
                let reading = Reading { before, first, last: first + stay, after: now };
                now += 1_000;
                reading
            }).collect();
            let offset = best(readings).expect("at least one reading");
            prop_assert!((offset.ns + ahead).unsigned_abs() <= smallest.div_ceil(2));
            prop_assert_eq!(offset.uncertainty, smallest.div_ceil(2));
        }

        #[test]
        fn order_and_distances_stay(offset in -1_000_000i64..1_000_000, one in 1_000_000u64..1 << 60, more in 0u64..1 << 40) {
            let offset = Offset { ns: offset, uncertainty: 0 };
            prop_assert_eq!(offset.apply(one + more) - offset.apply(one), more);
        }
    }
}
