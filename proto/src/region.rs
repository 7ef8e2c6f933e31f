//! The bytes of a buffer that a command uses: a run, or the rows of a rectangle.
//!
//! OpenCL's rectangles (`clEnqueueReadBufferRect` and others) and its plain ranges have one type here. A
//! region also defines the *packed order* in which its bytes travel: slice by slice, row by row, without
//! the gaps. Invariant: a [`Region`] has been checked for overflow.

use crate::command;

/// `slices` × `rows` × `row_length` bytes, starting `offset` bytes into the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    offset: u64,
    row_length: u64,
    rows: u64,
    slices: u64,
    row_pitch: u64,
    slice_pitch: u64,
}

/// The numbers do not describe bytes of a buffer.
#[derive(Debug, thiserror::Error, PartialEq, Eq, Clone, Copy)]
#[error("invalid region: its extent overflows, or its rows overlap")]
pub struct BadRegion;

/// A contiguous part, with its positions in the buffer and in packed order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Segment {
    /// First byte in the buffer.
    pub offset: u64,
    /// First byte in packed order.
    pub packed: u64,
    /// Number of bytes.
    pub length: u64,
}

impl Region {
    /// A plain run of bytes.
    ///
    /// # Errors
    /// [`BadRegion`] when it ends beyond 2⁶⁴.
    pub fn linear(offset: u64, length: u64) -> Result<Region, BadRegion> {
        Region::rect(offset, [length, 1, 1], length, length)
    }

    /// A rectangle. `size` is the row length in bytes, the number of rows and of slices. Pitches are in
    /// bytes.
    ///
    /// # Errors
    /// [`BadRegion`] when it ends beyond 2⁶⁴, has no rows or slices, or its rows or slices overlap.
    pub fn rect(
        offset: u64,
        size: [u64; 3],
        row_pitch: u64,
        slice_pitch: u64,
    ) -> Result<Region, BadRegion> {
        let [row_length, rows, slices] = size;
        let region = Region {
            offset,
            row_length,
            rows,
            slices,
            row_pitch,
            slice_pitch,
        };
        if rows == 0 || slices == 0 {
            return Err(BadRegion);
        }
        // The pitch of a single row is never used, so any value is allowed.
        if rows > 1 && row_pitch < row_length {
            return Err(BadRegion);
        }
        let slice = region.slice_extent().ok_or(BadRegion)?;
        if slices > 1 && slice_pitch < slice {
            return Err(BadRegion);
        }
        region.checked_end().ok_or(BadRegion)?;
        Ok(region.normalised())
    }

    fn slice_extent(&self) -> Option<u64> {
        (self.rows - 1)
            .checked_mul(self.row_pitch)?
            .checked_add(self.row_length)
    }

    fn checked_end(&self) -> Option<u64> {
        let slices = (self.slices - 1).checked_mul(self.slice_pitch)?;
        self.offset
            .checked_add(slices)?
            .checked_add(self.slice_extent()?)
    }

    // Joins rows without gaps into one row, and slices without gaps into one slice. This gives fewer,
    // larger segments.
    fn normalised(mut self) -> Region {
        if self.rows > 1 && self.row_pitch == self.row_length {
            self.row_length *= self.rows;
            self.rows = 1;
        }
        if self.slices > 1 && self.rows == 1 && self.slice_pitch == self.row_length {
            self.row_length *= self.slices;
            self.slices = 1;
        } else if self.slices > 1 && self.rows == 1 {
            // Slices of one row each are rows.
            (self.rows, self.row_pitch, self.slices) = (self.slices, self.slice_pitch, 1);
        }
        if self.rows == 1 {
            self.row_pitch = self.row_length;
        }
        if self.slices == 1 {
            self.slice_pitch = self.row_pitch.saturating_mul(self.rows);
        }
        self
    }

    /// First byte.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// One past the last byte.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.checked_end().unwrap_or(u64::MAX)
    }

    /// Number of bytes in packed order.
    #[must_use]
    pub fn packed_length(&self) -> u64 {
        // This cannot overflow: rows do not overlap, so the product is at most the extent.
        self.row_length * self.rows * self.slices
    }

    /// Whether the region is one run of bytes.
    #[must_use]
    pub fn is_linear(&self) -> bool {
        self.rows == 1 && self.slices == 1
    }

    /// Row length in bytes, number of rows and of slices, after rows and slices without gaps were joined.
    #[must_use]
    pub fn size(&self) -> [u64; 3] {
        [self.row_length, self.rows, self.slices]
    }

    /// Distance from row to row in bytes.
    #[must_use]
    pub fn row_pitch(&self) -> u64 {
        self.row_pitch
    }

    /// Distance from slice to slice in bytes.
    #[must_use]
    pub fn slice_pitch(&self) -> u64 {
        self.slice_pitch
    }

    /// Returns the shape at another offset.
    ///
    /// # Errors
    /// [`BadRegion`] when it ends beyond 2⁶⁴.
    pub fn at(&self, offset: u64) -> Result<Region, BadRegion> {
        Region::rect(offset, self.size(), self.row_pitch, self.slice_pitch)
    }

    /// The contiguous pieces that hold packed bytes `from..to` (clamped to the region), in order.
    pub fn segments(&self, from: u64, to: u64) -> impl Iterator<Item = Segment> + use<> {
        let region = *self;
        let to = to.min(region.packed_length());
        let mut at = from;
        std::iter::from_fn(move || {
            if at >= to {
                return None;
            }
            let (line, within) = (at / region.row_length, at % region.row_length);
            let (slice, row) = (line / region.rows, line % region.rows);
            let length = (region.row_length - within).min(to - at);
            let offset =
                region.offset + slice * region.slice_pitch + row * region.row_pitch + within;
            let segment = Segment {
                offset,
                packed: at,
                length,
            };
            at += length;
            Some(segment)
        })
    }

    /// The parts of rows that lie in bytes `from..to` of the buffer, in order.
    pub fn within(&self, from: u64, to: u64) -> impl Iterator<Item = Segment> + use<> {
        self.segments(self.packed_before(from), self.packed_before(to))
    }

    /// Whether one of the region's bytes is in bytes `from..to` of the buffer.
    #[must_use]
    pub fn touches(&self, from: u64, to: u64) -> bool {
        self.packed_before(from) < self.packed_before(to)
    }

    // Number of the region's bytes that lie before this byte of the buffer.
    fn packed_before(&self, byte: u64) -> u64 {
        let Some(at) = byte.checked_sub(self.offset) else {
            return 0;
        };
        let (slice, at) = step(at, self.slices, self.slice_pitch);
        let (row, at) = step(at, self.rows, self.row_pitch);
        (slice * self.rows + row) * self.row_length + at.min(self.row_length)
    }

    /// Converts to the wire format.
    #[must_use]
    pub fn to_wire(&self) -> command::Region {
        // A plain run needs no further numbers, and zeros take no bytes on the wire.
        let linear = self.is_linear();
        let only = |value: u64| if linear { 0 } else { value };
        command::Region {
            offset: self.offset,
            row_length: self.row_length,
            rows: only(self.rows),
            slices: only(self.slices),
            row_pitch: only(self.row_pitch),
            slice_pitch: only(self.slice_pitch),
        }
    }

    /// Converts from the wire format, with all checks.
    ///
    /// # Errors
    /// [`BadRegion`] when the numbers overflow or rows or slices overlap.
    pub fn from_wire(wire: &command::Region) -> Result<Region, BadRegion> {
        // 0 means 1 on the wire.
        let size = [wire.row_length, wire.rows.max(1), wire.slices.max(1)];
        Region::rect(wire.offset, size, wire.row_pitch, wire.slice_pitch)
    }
}

// Returns which of `count` equal steps a byte is in, and its position there. The last step has no end.
fn step(at: u64, count: u64, pitch: u64) -> (u64, u64) {
    let step = at.checked_div(pitch).map_or(0, |step| step.min(count - 1));
    (step, at - step * pitch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn gaps_of_nothing_are_joined() {
        assert!(Region::rect(5, [4, 3, 2], 4, 12).unwrap().is_linear());
        let rows = Region::rect(0, [4, 1, 3], 4, 10).unwrap();
        assert_eq!(rows.size(), [4, 3, 1]);
    }

    #[test]
    fn impossible_shapes_are_refused() {
        assert!(Region::linear(u64::MAX, 2).is_err());
        assert!(Region::rect(0, [8, 2, 1], 4, 0).is_err());
        assert!(Region::rect(0, [8, 2, 2], 8, 8).is_err());
        assert!(Region::rect(0, [1, u64::MAX, 2], u64::MAX, 1).is_err());
        assert!(Region::rect(0, [1, 0, 1], 1, 1).is_err());
    }

    #[test]
    fn an_empty_run_has_no_segments() {
        assert_eq!(Region::linear(9, 0).unwrap().segments(0, 10).count(), 0);
    }

    proptest! {
        #[test]
        fn segments_visit_every_byte_once_in_packed_order(
            offset in 0u64..50, length in 1u64..20, rows in 1u64..6, slices in 1u64..4,
            row_gap in 0u64..5, slice_gap in 0u64..5, from in 0u64..100, count in 0u64..300,
        ) {
            let row_pitch = length + row_gap;
            let slice_pitch = row_pitch * rows + slice_gap;
            let region = Region::rect(offset, [length, rows, slices], row_pitch, slice_pitch).unwrap();
            let expected: Vec<u64> = (0..slices)
                .flat_map(|s| (0..rows).map(move |r| (s, r)))
                .flat_map(|(s, r)| (0..length).map(move |b| offset + s * slice_pitch + r * row_pitch + b))
                .collect();
            prop_assert_eq!(region.packed_length(), expected.len() as u64);
            let got: Vec<u64> = region
                .segments(from, from + count)
                .flat_map(|s| s.offset..s.offset + s.length)
                .collect();
            let to = ((from + count) as usize).min(expected.len());
            let want = expected.get(from as usize..to).unwrap_or(&[]);
            prop_assert_eq!(&got[..], want);
            prop_assert_eq!(Region::from_wire(&region.to_wire()), Ok(region));
            // The same bytes, selected by their positions in the buffer.
            let to = from + count;
            let inside: Vec<u64> = region
                .within(from, to)
                .flat_map(|s| s.offset..s.offset + s.length)
                .collect();
            let want: Vec<u64> = expected.into_iter().filter(|b| (from..to).contains(b)).collect();
            prop_assert_eq!(region.touches(from, to), !want.is_empty());
            prop_assert_eq!(inside, want);
        }
    }
}
