//! Which values are attached to bytes that a region touches: a pure table.
//!
//! Regions may overlap each other and need not be contiguous (a column of a matrix is a region, and
//! its neighbour column does not overlap it). Invariant: a key is in the table at most once, under the
//! region it was inserted with.

use std::collections::BTreeMap;
use std::iter::Peekable;

use causeway_proto::region::{Region, Segment};

/// See the module.
#[derive(Debug)]
pub(super) struct RangeTable<T> {
    // By first byte, then key.
    entries: BTreeMap<(u64, u64), Entry<T>>,
    // No entry is longer, from its first byte to its last.
    longest: u64,
}

#[derive(Debug)]
struct Entry<T> {
    region: Region,
    value: T,
}

impl<T> Default for RangeTable<T> {
    fn default() -> Self {
        RangeTable {
            entries: BTreeMap::new(),
            longest: 0,
        }
    }
}

impl<T> RangeTable<T> {
    /// Attaches `value` to the region; `key` is new.
    pub(super) fn insert(&mut self, key: u64, region: Region, value: T) {
        self.longest = self.longest.max(extent(&region));
        self.entries
            .insert((region.offset(), key), Entry { region, value });
    }

    /// Takes out what was inserted under this key and region.
    pub(super) fn remove(&mut self, key: u64, region: &Region) -> Option<T> {
        let entry = self.entries.remove(&(region.offset(), key));
        if self.entries.is_empty() {
            self.longest = 0;
        }
        entry.map(|entry| entry.value)
    }

    /// The values at regions that share a byte with this one.
    pub(super) fn overlapping(&mut self, region: &Region) -> impl Iterator<Item = &mut T> {
        let region = *region;
        let first = region.offset().saturating_sub(self.longest);
        self.entries
            .range_mut((first, 0)..(region.end(), 0))
            .filter(move |(_, entry)| overlap(&entry.region, &region))
            .map(|(_, entry)| &mut entry.value)
    }
}

fn extent(region: &Region) -> u64 {
    region.end() - region.offset()
}

/// Whether two regions of one buffer (or address space) share a byte. Exact, also for interleaved rows.
#[must_use]
pub(super) fn overlap(a: &Region, b: &Region) -> bool {
    let nothing = a.packed_length() == 0 || b.packed_length() == 0;
    if nothing || a.end() <= b.offset() || b.end() <= a.offset() {
        return false;
    }
    if a.is_linear() && b.is_linear() {
        return true;
    }
    // Both ascend, so one pass over the rows of both is enough; each row that is skipped is a row
    // that the command itself has to move.
    let (mut a, mut b) = (rows(a), rows(b));
    while let (Some(one), Some(other)) = (a.peek(), b.peek()) {
        if one.offset + one.length <= other.offset {
            a.next();
        } else if other.offset + other.length <= one.offset {
            b.next();
        } else {
            return true;
        }
    }
    false
}

fn rows(region: &Region) -> Peekable<impl Iterator<Item = Segment> + use<>> {
    region.segments(0, u64::MAX).peekable()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn bytes(region: &Region) -> BTreeSet<u64> {
        region
            .segments(0, u64::MAX)
            .flat_map(|row| row.offset..row.offset + row.length)
            .collect()
    }

    fn regions() -> impl Strategy<Value = Region> {
        (0u64..60, 0u64..6, 1u64..5, 1u64..4, 0u64..6, 0u64..9).prop_map(
            |(offset, length, rows, slices, row_gap, slice_gap)| {
                let row_pitch = length + row_gap;
                let slice_pitch = row_pitch * rows + slice_gap;
                Region::rect(offset, [length, rows, slices], row_pitch, slice_pitch).unwrap()
            },
        )
    }

    #[test]
    fn neighbouring_columns_do_not_overlap() {
        let column = |at| Region::rect(at, [4, 8, 1], 64, 512).unwrap();
        assert!(!overlap(&column(0), &column(4)));
        assert!(overlap(&column(0), &column(3)));
    }

    proptest! {
        #[test]
        fn overlap_is_a_shared_byte(a in regions(), b in regions()) {
            prop_assert_eq!(overlap(&a, &b), !bytes(&a).is_disjoint(&bytes(&b)));
        }

        #[test]
        fn the_table_finds_what_a_naive_list_finds(
            inserted in prop::collection::vec(regions(), 0..12),
            removed in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
            asked in regions(),
        ) {
            let mut table = RangeTable::default();
            let mut naive: Vec<(u64, Region)> = (0..).zip(inserted).collect();
            for (key, region) in &naive {
                table.insert(*key, *region, *key);
            }
            for index in removed {
                if !naive.is_empty() {
                    let (key, region) = naive.swap_remove(index.index(naive.len()));
                    prop_assert_eq!(table.remove(key, &region), Some(key));
                    prop_assert_eq!(table.remove(key, &region), None);
                }
            }
            let found: BTreeSet<u64> = table.overlapping(&asked).map(|key| *key).collect();
            let expected: BTreeSet<u64> = naive
                .iter()
                .filter(|(_, region)| !bytes(region).is_disjoint(&bytes(&asked)))
                .map(|(key, _)| *key)
                .collect();
            prop_assert_eq!(found, expected);
        }
    }
}
