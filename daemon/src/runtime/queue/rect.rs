//! The rectangles of native transfers. Pure.

use causeway_proto::region::Region;
use causeway_proto::status::Status;

use crate::runtime::buffer::Buffer;

/// A rectangle of a buffer in the form that the native commands take. All sizes are greater than 0.
pub(super) struct Rect {
    pub(super) origin: [usize; 3],
    pub(super) size: [usize; 3],
    pub(super) row_pitch: usize,
    pub(super) slice_pitch: usize,
}

pub(super) fn bounded(buffer: &Buffer, region: &Region) -> Result<(), Status> {
    if region.end() <= buffer.size() && region.packed_length() > 0 {
        Ok(())
    } else {
        Err(Status::INVALID_VALUE)
    }
}

pub(super) fn checked(
    buffer: &Buffer,
    region: &Region,
    host: usize,
    skip: usize,
) -> Result<Rect, Status> {
    bounded(buffer, region)?;
    let needed = u64::try_from(skip)
        .ok()
        .and_then(|s| s.checked_add(region.packed_length()));
    if needed.is_none_or(|needed| needed > host as u64) {
        return Err(Status::INVALID_VALUE);
    }
    Ok(Rect::of(region))
}

impl Rect {
    // The casts are lossless: the region lies within a buffer, whose size is a `size_t`.
    pub(super) fn of(region: &Region) -> Rect {
        Rect::shaped(
            region,
            region.size(),
            region.row_pitch(),
            region.slice_pitch(),
        )
    }

    fn shaped(region: &Region, size: [u64; 3], row_pitch: u64, slice_pitch: u64) -> Rect {
        Rect {
            origin: origin(region.offset(), size, row_pitch, slice_pitch),
            size: size.map(|n| n as usize),
            row_pitch: row_pitch as usize,
            slice_pitch: slice_pitch as usize,
        }
    }
}

/// Splits the offset into slice, row and byte, as an application would pass it. Returns the plain offset if
/// the rectangle would then exceed its rows or slices.
fn origin(offset: u64, size: [u64; 3], row_pitch: u64, slice_pitch: u64) -> [usize; 3] {
    let plain = [offset as usize, 0, 0];
    if size[1] == 1 && size[2] == 1 || row_pitch == 0 || slice_pitch == 0 {
        return plain;
    }
    let (z, within) = (offset / slice_pitch, offset % slice_pitch);
    let (y, x) = (within / row_pitch, within % row_pitch);
    let rows = slice_pitch / row_pitch;
    if x + size[0] > row_pitch || (size[2] > 1 && y + size[1] > rows) {
        return plain;
    }
    [x as usize, y as usize, z as usize]
}

/// Converts two regions of equal extent to a common shape. A region without gaps arrives with its rows
/// joined into fewer, longer ones. The finer of the two shapes fits both.
pub(super) fn common_shape(a: &Region, b: &Region) -> Option<(Rect, Rect)> {
    if a.packed_length() != b.packed_length() {
        return None;
    }
    let finer = if a.size()[0] <= b.size()[0] { a } else { b };
    Some((in_shape(a, finer.size())?, in_shape(b, finer.size())?))
}

fn in_shape(region: &Region, shape: [u64; 3]) -> Option<Rect> {
    let (size, [row, rows, _]) = (region.size(), shape);
    let (row_pitch, slice_pitch) = if size == shape {
        (region.row_pitch(), region.slice_pitch())
    } else if region.is_linear() {
        (row, row * rows)
    } else if size[0] == row * rows && size[1] == shape[2] && size[2] == 1 {
        // The rows have no gaps but the slices have, so each joined row is a slice.
        (row, region.row_pitch())
    } else {
        return None;
    };
    Some(Rect::shaped(region, shape, row_pitch, slice_pitch))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(rect: &Rect) -> Vec<usize> {
        let start =
            rect.origin[0] + rect.origin[1] * rect.row_pitch + rect.origin[2] * rect.slice_pitch;
        (0..rect.size[2])
            .flat_map(|s| (0..rect.size[1]).map(move |r| (s, r)))
            .flat_map(|(s, r)| {
                (0..rect.size[0])
                    .map(move |b| start + s * rect.slice_pitch + r * rect.row_pitch + b)
            })
            .collect()
    }

    fn packed(region: &Region) -> Vec<usize> {
        region
            .segments(0, u64::MAX)
            .flat_map(|s| s.offset as usize..(s.offset + s.length) as usize)
            .collect()
    }

    proptest! {
        #[test]
        fn two_regions_of_one_extent_meet_in_one_shape(
            size in [1u64..6, 1u64..5, 1u64..4], offsets in [0u64..40, 0u64..40],
            row_gaps in [0u64..3, 0u64..3], slice_gaps in [0u64..3, 0u64..3],
        ) {
            let region = |i: usize| {
                let row = size[0] + row_gaps[i];
                Region::rect(offsets[i], size, row, row * (size[1] + slice_gaps[i])).unwrap()
            };
            let (a, b) = (region(0), region(1));
            let (x, y) = common_shape(&a, &b).unwrap();
            prop_assert_eq!(x.size, y.size);
            prop_assert_eq!(bytes(&x), packed(&a));
            prop_assert_eq!(bytes(&y), packed(&b));
        }
    }
}
