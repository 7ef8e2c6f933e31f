//! Which values are attached to the bytes of a region: a pure table.
//!
//! Regions may overlap, and need not be contiguous. For example, a column of a matrix is a region, and the
//! next column does not overlap it. Invariant: a key is in the table at most once for each first byte.

use std::collections::BTreeMap;
use std::iter::Peekable;

use causeway_proto::region::{Region, Segment};

/// Values by region; see the module.
#[derive(Debug)]
pub(in crate::stub) struct RangeTable<T> {
    // By length class, first byte and key. Within a class, regions that can reach a byte begin near it,
    // however long regions of other classes are.
    entries: BTreeMap<(u32, u64, u64), Entry<T>>,
    // Number of entries in each class.
    classes: BTreeMap<u32, usize>,
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
            classes: BTreeMap::new(),
        }
    }
}

impl<T> RangeTable<T> {
    /// Attaches `value` to the region. `key` must be new for the region's first byte.
    pub(in crate::stub) fn insert(&mut self, key: u64, region: Region, value: T) {
        let class = class(&region);
        *self.classes.entry(class).or_default() += 1;
        let replaced = self
            .entries
            .insert((class, region.offset(), key), Entry { region, value });
        debug_assert!(replaced.is_none(), "one key at one first byte twice");
    }

    /// Removes the entry with this key and region, and returns its value.
    pub(in crate::stub) fn remove(&mut self, key: u64, region: &Region) -> Option<T> {
        let class = class(region);
        let entry = self.entries.remove(&(class, region.offset(), key))?;
        if let Some(count) = self.classes.get_mut(&class) {
            *count -= 1;
            if *count == 0 {
                self.classes.remove(&class);
            }
        }
        Some(entry.value)
    }

    /// Returns the regions that share a byte with `region`, and their values.
    pub(in crate::stub) fn overlapping(
        &self,
        region: &Region,
    ) -> impl Iterator<Item = (&Region, &T)> {
        let region = *region;
        // An entry that reaches the region begins at most `longest` bytes before it.
        let near = move |class: &u32| {
            let longest = 1u64
                .checked_shl(*class)
                .map_or(u64::MAX, |length| length - 1);
            let first = region.offset().saturating_sub(longest);
            self.entries
                .range((*class, first, 0)..(*class, region.end().max(first), 0))
        };
        self.classes
            .keys()
            .flat_map(near)
            .filter(move |(_, entry)| overlap(&entry.region, &region))
            .map(|(_, entry)| (&entry.region, &entry.value))
    }
}

// The number of bits of the length from the first byte to the last.
fn class(region: &Region) -> u32 {
    u64::BITS - (region.end() - region.offset()).leading_zeros()
}

/// Whether two regions of one buffer or address space share a byte. The result is exact, also for
/// interleaved rows.
#[must_use]
pub(in crate::stub) fn overlap(a: &Region, b: &Region) -> bool {
    let nothing = a.packed_length() == 0 || b.packed_length() == 0;
    if nothing || a.end() <= b.offset() || b.end() <= a.offset() {
        return false;
    }
    if a.is_linear() && b.is_linear() {
        return true;
    }
    // Rows ascend in both regions, so one pass is enough. Each skipped row is one that the command itself
    // has to move.
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
            let found: BTreeSet<u64> = table.overlapping(&asked).map(|(_, key)| *key).collect();
            let expected: BTreeSet<u64> = naive
                .iter()
                .filter(|(_, region)| !bytes(region).is_disjoint(&bytes(&asked)))
                .map(|(key, _)| *key)
                .collect();
            prop_assert_eq!(found, expected);
        }
    }
}
