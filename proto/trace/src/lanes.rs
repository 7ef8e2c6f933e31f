//! Gives slices that overlap different lanes: pure.
//!
//! Slices come in any order of their begins, because commands end in any order. Each lane remembers its
//! newest slices and finds gaps between them. Invariant: two slices of a lane neither overlap nor touch. So the
//! order of their packets in the file does not matter.

use std::collections::BTreeMap;

/// Number of slices of a lane between which gaps are found. What is before them counts as taken.
const REMEMBERED: usize = 64;

/// The lanes of one group of tracks.
#[derive(Debug)]
pub(crate) struct Lanes {
    lanes: Vec<Lane>,
    // The slice of each lane that begins last. Most slices begin after it, and need no search then.
    newest: Vec<[u64; 2]>,
    // The latest begin and the earliest end among those. While many slices wait at the same time, all lanes are taken.
    latest_begin: u64,
    earliest_end: u64,
    most: usize,
}

#[derive(Debug, Default)]
struct Lane {
    // Everything before this moment counts as taken; `None` if nothing does.
    floor: Option<u64>,
    // Begins and ends.
    taken: BTreeMap<u64, u64>,
}

impl Lanes {
    /// Makes a group of up to `most` lanes.
    pub(crate) fn new(most: usize) -> Lanes {
        Lanes {
            lanes: Vec::new(),
            newest: Vec::new(),
            latest_begin: 0,
            earliest_end: u64::MAX,
            most,
        }
    }

    /// Returns the lane for a slice, which then takes its place there. `None` if all lanes are taken.
    pub(crate) fn place(&mut self, begin: u64, end: u64) -> Option<usize> {
        let is_full = self.lanes.len() >= self.most;
        if is_full && begin >= self.latest_begin && begin <= self.earliest_end {
            return None;
        }
        let is_free = |(lane, newest): (usize, &[u64; 2])| match begin >= newest[0] {
            true => begin > newest[1],
            false => self.lanes[lane].is_free(begin, end),
        };
        let found = self.newest.iter().enumerate().position(is_free);
        let lane = match found {
            Some(lane) => lane,
            None if !is_full => {
                self.lanes.push(Lane::default());
                self.newest.push([begin, end]);
                self.lanes.len() - 1
            }
            None => return None,
        };
        self.lanes[lane].take(begin, end);
        let newest = &mut self.newest[lane];
        *newest = [begin, end].max(*newest);
        self.latest_begin = self.latest_begin.max(begin);
        if self.lanes.len() >= self.most {
            let ends = self.newest.iter().map(|[_, end]| *end);
            self.earliest_end = ends.min().unwrap_or(u64::MAX);
        }
        Some(lane)
    }
}

impl Lane {
    fn is_free(&self, begin: u64, end: u64) -> bool {
        let before = self.taken.range(..=begin).next_back();
        let behind = self.taken.range(begin..).next();
        self.floor.is_none_or(|floor| floor < begin)
            && before.is_none_or(|(_, ended)| *ended < begin)
            && behind.is_none_or(|(begins, _)| *begins > end)
    }

    fn take(&mut self, begin: u64, end: u64) {
        self.taken.insert(begin, end);
        if self.taken.len() > REMEMBERED
            && let Some((_, end)) = self.taken.pop_first()
        {
            self.floor = Some(end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn slices_of_a_lane_do_not_touch(
            slices in prop::collection::vec((0u64..2_000, 0u64..30), 0..400), most in 1usize..6,
        ) {
            let mut lanes = Lanes::new(most);
            let mut placed: Vec<Vec<(u64, u64)>> = vec![Vec::new(); most];
            for (begin, length) in slices {
                let slice = (begin, begin + length);
                if let Some(lane) = lanes.place(slice.0, slice.1) {
                    placed[lane].push(slice);
                }
            }
            for mut lane in placed {
                lane.sort_unstable();
                prop_assert!(lane.windows(2).all(|two| two[0].1 < two[1].0), "{lane:?}");
            }
        }

        #[test]
        fn what_never_overlaps_has_one_lane(gaps in prop::collection::vec((1u64..50, 0u64..50), 1..300)) {
            let mut lanes = Lanes::new(9);
            let mut now = 0;
            for (gap, length) in gaps {
                now += gap;
                prop_assert_eq!(lanes.place(now, now + length), Some(0));
                now += length;
            }
        }
    }

    #[test]
    fn a_late_slice_fits_into_a_gap() {
        let mut lanes = Lanes::new(2);
        for begin in [10, 30, 50] {
            assert_eq!(lanes.place(begin, begin + 5), Some(0));
        }
        assert_eq!(lanes.place(20, 25), Some(0));
        assert_eq!(lanes.place(24, 28), Some(1));
        assert_eq!(lanes.place(24, 28), None);
    }
}
