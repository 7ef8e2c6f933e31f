//! Splits a range of a region's packed bytes into a few rectangles.
//!
//! A staging chunk holds packed bytes from anywhere in a region: the end of a row, whole rows, whole
//! slices, the beginning of a row. Each rectangle is one native transfer. Pure.
#![forbid(unsafe_code)]

use causeway_proto::region::Region;

/// A rectangle, and the packed offset at which its bytes begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) region: Region,
    pub(super) packed: u64,
}

/// Returns the rectangles that hold the packed bytes `from..to`: at most seven.
pub(super) fn blocks(region: &Region, from: u64, to: u64) -> Vec<Block> {
    let [row, rows, _] = region.size();
    let to = to.min(region.packed_length());
    let mut found = Vec::new();
    let mut at = from;
    while at < to {
        let (line, within) = (at / row, at % row);
        let (slice, in_slice) = (line / rows, line % rows);
        let offset =
            region.offset() + slice * region.slice_pitch() + in_slice * region.row_pitch() + within;
        let whole = (to - at) / row;
        let size = if within != 0 || whole == 0 {
            [(row - within).min(to - at), 1, 1]
        } else if in_slice != 0 || whole < rows {
            [row, whole.min(rows - in_slice), 1]
        } else {
            [row, rows, whole / rows]
        };
        // This cannot fail: the rectangle lies within a region that was checked.
        let Ok(block) = Region::rect(offset, size, region.row_pitch(), region.slice_pitch()) else {
            break;
        };
        found.push(Block {
            region: block,
            packed: at,
        });
        at += size[0] * size[1] * size[2];
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn they_hold_the_same_bytes_in_the_same_order(
            offset in 0u64..20, size in [1u64..8, 1u64..5, 1u64..4], row_gap in 0u64..3,
            slice_gap in 0u64..3, from in 0u64..80, length in 1u64..120,
        ) {
            let row_pitch = size[0] + row_gap;
            let slice_pitch = row_pitch * (size[1] + slice_gap);
            let region = Region::rect(offset, size, row_pitch, slice_pitch).unwrap();
            let bytes = |region: &Region, from, to| -> Vec<u64> {
                region.segments(from, to).flat_map(|s| s.offset..s.offset + s.length).collect()
            };
            let got = blocks(&region, from, from + length);
            prop_assert!(got.len() <= 7);
            let mut packed = from;
            let mut all = Vec::new();
            for block in &got {
                prop_assert_eq!(block.packed, packed);
                packed += block.region.packed_length();
                all.extend(bytes(&block.region, 0, u64::MAX));
            }
            prop_assert_eq!(all, bytes(&region, from, from + length));
        }
    }
}
