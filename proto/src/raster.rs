//! The bytes of an image: its elements row after row and slice after slice, without gaps.
//!
//! In this *packed order* an image is a run of bytes like a buffer. Its bytes travel in this order, and
//! the client records in it which bytes are valid where. A native image accepts only boxes of elements;
//! [`Raster::boxes`] splits any region of the run into boxes. Pure. Invariant: the size of a [`Raster`]
//! fits into 64 bits.

use crate::region::Region;

/// Size of the largest element of any format, in bytes.
const LARGEST_ELEMENT: u64 = 16;

/// The shape of an image: elements per row, rows per slice, slices. The layers of an array of
/// one-dimensional images are rows, those of two-dimensional images slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raster {
    element: u64,
    extent: [u64; 3],
}

/// The numbers do not describe an image.
#[derive(Debug, thiserror::Error, PartialEq, Eq, Clone, Copy)]
#[error("invalid image shape: no elements, too large, or element size not a power of two")]
pub struct BadRaster;

/// A box of elements, which is contiguous in packed order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// First element, row and slice.
    pub origin: [u64; 3],
    /// Number of elements, rows and slices.
    pub size: [u64; 3],
    /// Offset of the box's bytes in the packed order of the region that it belongs to.
    pub packed: u64,
}

impl Raster {
    /// Creates a shape. `element` is in bytes and must be a power of two, so that no chunk of a transfer
    /// ends inside of an element.
    ///
    /// # Errors
    /// [`BadRaster`] if a side is 0, the element size is invalid, or the size overflows.
    pub fn new(element: u64, extent: [u64; 3]) -> Result<Raster, BadRaster> {
        let sound = element.is_power_of_two() && element <= LARGEST_ELEMENT && !extent.contains(&0);
        let size = extent
            .iter()
            .try_fold(element, |size, &side| size.checked_mul(side));
        if sound && size.is_some() {
            Ok(Raster { element, extent })
        } else {
            Err(BadRaster)
        }
    }

    /// Size of an element in bytes.
    #[must_use]
    pub fn element(&self) -> u64 {
        self.element
    }

    /// Elements per row, rows per slice, slices.
    #[must_use]
    pub fn extent(&self) -> [u64; 3] {
        self.extent
    }

    /// Size of a row in bytes.
    #[must_use]
    pub fn row(&self) -> u64 {
        self.element * self.extent[0]
    }

    /// Size of a slice in bytes.
    #[must_use]
    pub fn slice(&self) -> u64 {
        self.row() * self.extent[1]
    }

    /// Size of the image in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.slice() * self.extent[2]
    }

    /// The bytes of a box of elements. `None` if the box is empty or not completely inside.
    #[must_use]
    pub fn region(&self, origin: [u64; 3], size: [u64; 3]) -> Option<Region> {
        self.pitched(origin, size, self.row(), self.slice())
    }

    /// The bytes of a box in memory that stores the image with other pitches (distances from row to row
    /// and slice to slice, in bytes). Offsets are relative to the image's first byte.
    #[must_use]
    pub fn pitched(
        &self,
        origin: [u64; 3],
        size: [u64; 3],
        row_pitch: u64,
        slice_pitch: u64,
    ) -> Option<Region> {
        let inside = (0..3).all(|i| {
            let end = origin[i].checked_add(size[i]);
            size[i] > 0 && end.is_some_and(|end| end <= self.extent[i])
        });
        if !inside {
            return None;
        }
        let rows = origin[1].checked_mul(row_pitch)?;
        let slices = origin[2].checked_mul(slice_pitch)?;
        let offset = (origin[0] * self.element)
            .checked_add(rows)?
            .checked_add(slices)?;
        let size = [size[0] * self.element, size[1], size[2]];
        Region::rect(offset, size, row_pitch, slice_pitch).ok()
    }

    /// Splits a region of the image's bytes into boxes, in packed order. There are as few boxes as the
    /// region's rows allow, and only one for a result of [`Raster::region`]. `None` when the region
    /// leaves the image or cuts an element.
    #[must_use]
    pub fn boxes(&self, region: &Region) -> Option<Vec<Part>> {
        let whole = |bytes: u64| bytes.is_multiple_of(self.element);
        let [length, rows, slices] = region.size();
        let aligned = whole(region.offset())
            && whole(length)
            && (rows == 1 || whole(region.row_pitch()))
            && (slices == 1 || whole(region.slice_pitch()));
        if !aligned || region.end() > self.size() {
            return None;
        }
        let mut parts = Parts::default();
        if let Some(part) = self.as_box(region) {
            parts.push(part);
            return Some(parts.all);
        }
        for run in region.segments(0, u64::MAX) {
            self.cut(run.offset, run.length, run.packed, &mut parts);
        }
        Some(parts.all)
    }

    /// The region as one box, if its rows are rows of a box.
    fn as_box(&self, region: &Region) -> Option<Part> {
        let [length, rows, slices] = region.size();
        let row_pitch = if rows == 1 {
            self.row()
        } else {
            region.row_pitch()
        };
        let slice_pitch = if slices == 1 {
            self.slice()
        } else {
            region.slice_pitch()
        };
        let origin = self.place(region.offset());
        let fits = row_pitch == self.row()
            && slice_pitch == self.slice()
            && origin[0] * self.element + length <= self.row()
            && origin[1] + rows <= self.extent[1];
        fits.then(|| Part {
            origin,
            size: [length / self.element, rows, slices],
            packed: 0,
        })
    }

    fn place(&self, offset: u64) -> [u64; 3] {
        let (slice, within) = (offset / self.slice(), offset % self.slice());
        let (row, column) = (within / self.row(), within % self.row());
        [column / self.element, row, slice]
    }

    // Splits a run of bytes: the end of a row, whole rows, whole slices, whole rows, the beginning of a
    // row.
    fn cut(&self, mut offset: u64, mut length: u64, mut packed: u64, parts: &mut Parts) {
        let [width, height, _] = self.extent;
        while length > 0 {
            let origin = self.place(offset);
            let size = if origin[0] != 0 || length < self.row() {
                let rest = (width - origin[0]) * self.element;
                [rest.min(length) / self.element, 1, 1]
            } else if origin[1] != 0 || length < self.slice() {
                let rows = length / self.row();
                [width, rows.min(height - origin[1]), 1]
            } else {
                [width, height, length / self.slice()]
            };
            let bytes = size.iter().product::<u64>() * self.element;
            parts.push(Part {
                origin,
                size,
                packed,
            });
            offset += bytes;
            length -= bytes;
            packed += bytes;
        }
    }
}

/// Boxes in packed order. A box that continues the last one, below or behind it, is merged into it.
#[derive(Default)]
struct Parts {
    all: Vec<Part>,
}

impl Parts {
    fn push(&mut self, part: Part) {
        if let Some(last) = self.all.last_mut()
            && last.takes(&part)
        {
            return;
        }
        self.all.push(part);
    }
}

impl Part {
    // If the next box is directly behind or below this one, extends this one by it and returns true.
    fn takes(&mut self, next: &Part) -> bool {
        let [x, y, z] = self.origin;
        let [width, rows, slices] = self.size;
        if next.origin[0] != x || next.size[0] != width {
            return false;
        }
        if slices == 1 && next.size[2] == 1 && next.origin[1..] == [y + rows, z] {
            self.size[1] += next.size[1];
            return true;
        }
        if next.size[1] == rows && next.origin[1..] == [y, z + slices] {
            self.size[2] += next.size[2];
            return true;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(region: &Region) -> Vec<u64> {
        region
            .segments(0, u64::MAX)
            .flat_map(|run| run.offset..run.offset + run.length)
            .collect()
    }

    fn rasters() -> impl Strategy<Value = Raster> {
        let element = prop_oneof![Just(1u64), Just(2), Just(4), Just(16)];
        (element, [1u64..6, 1u64..5, 1u64..4])
            .prop_map(|(element, extent)| Raster::new(element, extent).unwrap())
    }

    // A raster with a box inside of it.
    fn boxed() -> impl Strategy<Value = (Raster, [u64; 3], [u64; 3])> {
        rasters().prop_flat_map(|raster| {
            let sides = raster
                .extent()
                .map(|side| (0..side).prop_flat_map(move |from| (Just(from), 1..=side - from)));
            (Just(raster), sides).prop_map(|(raster, sides)| {
                (raster, sides.map(|side| side.0), sides.map(|side| side.1))
            })
        })
    }

    #[test]
    fn what_is_no_image_is_refused() {
        assert!(Raster::new(4, [3, 0, 1]).is_err());
        assert!(Raster::new(3, [3, 1, 1]).is_err());
        assert!(Raster::new(32, [3, 1, 1]).is_err());
        assert!(Raster::new(16, [1 << 40, 1 << 20, 1]).is_err());
    }

    #[test]
    fn what_leaves_the_image_or_cuts_an_element_has_no_boxes() {
        let raster = Raster::new(4, [8, 4, 1]).unwrap();
        assert_eq!(raster.boxes(&Region::linear(0, 129).unwrap()), None);
        assert_eq!(raster.boxes(&Region::linear(2, 4).unwrap()), None);
        assert_eq!(raster.boxes(&Region::linear(4, 6).unwrap()), None);
        assert_eq!(raster.region([8, 0, 0], [1, 1, 1]), None);
        assert_eq!(raster.region([0, 0, 0], [1, 0, 1]), None);
        assert_eq!(raster.region([1, 0, 0], [u64::MAX, 1, 1]), None);
    }

    #[test]
    fn a_run_is_five_boxes_at_most() {
        let raster = Raster::new(1, [10, 10, 10]).unwrap();
        let run = Region::linear(15, 760).unwrap();
        let sizes: Vec<_> = raster.boxes(&run).unwrap().iter().map(|b| b.size).collect();
        assert_eq!(
            sizes,
            [[5, 1, 1], [10, 8, 1], [10, 10, 6], [10, 7, 1], [5, 1, 1]]
        );
    }

    proptest! {
        #[test]
        fn a_box_is_found_again((raster, origin, size) in boxed()) {
            let region = raster.region(origin, size).unwrap();
            let parts = raster.boxes(&region).unwrap();
            prop_assert_eq!(parts, [Part { origin, size, packed: 0 }]);
        }

        #[test]
        fn boxes_hold_the_bytes_of_a_region_in_packed_order(
            raster in rasters(), offset in 0u64..20, length in 1u64..20, rows in 1u64..4, slices in 1u64..3,
            row_gap in 0u64..6, slice_gap in 0u64..6,
        ) {
            let row = length + row_gap;
            let pitches = [row, row * rows + slice_gap].map(|pitch| pitch * raster.element());
            let size = [length * raster.element(), rows, slices];
            let region = Region::rect(offset * raster.element(), size, pitches[0], pitches[1]).unwrap();
            let parts = raster.boxes(&region);
            prop_assert_eq!(parts.is_some(), region.end() <= raster.size());
            let mut all = Vec::new();
            for part in parts.iter().flatten() {
                prop_assert_eq!(part.packed, all.len() as u64);
                all.extend(bytes(&raster.region(part.origin, part.size).unwrap()));
            }
            if parts.is_some() {
                prop_assert_eq!(all, bytes(&region));
            }
        }

        #[test]
        fn a_box_has_the_same_elements_with_other_pitches(
            (raster, origin, size) in boxed(), row_gap in 0u64..9, slice_gap in 0u64..9,
        ) {
            let row = raster.row() + row_gap;
            let slice = row * raster.extent()[1] + slice_gap;
            let pitched = raster.pitched(origin, size, row, slice).unwrap();
            let moved: Vec<u64> = bytes(&raster.region(origin, size).unwrap())
                .into_iter()
                .map(|byte| {
                    let (z, within) = (byte / raster.slice(), byte % raster.slice());
                    z * slice + within / raster.row() * row + within % raster.row()
                })
                .collect();
            prop_assert_eq!(bytes(&pitched), moved);
        }
    }
}
