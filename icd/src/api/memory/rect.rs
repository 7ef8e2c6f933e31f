//! Rectangles: `clEnqueueReadBufferRect`, `clEnqueueWriteBufferRect`.

use causeway_proto::region::Region;
use cl_headers::types::*;

use super::super::entry::entry_point;
use super::super::event::Events;
use super::Noun;
use super::transfer::{How, Regions, enqueue};
use crate::error::{ClResult, fail, require};
use crate::stub::Buffer;

/// The three numbers of a C array: `x` in bytes, `y` in rows, `z` in slices.
pub(in crate::api) type Triple = [u64; 3];

/// Reads an array of three.
///
/// # Errors
/// `CL_INVALID_VALUE` for NULL.
///
/// # Safety
/// `values` is NULL or points to three numbers.
pub(in crate::api) unsafe fn triple(values: *const size_t) -> ClResult<Triple> {
    // Functions on rectangles and images: CL_INVALID_VALUE when an origin or region is NULL.
    require(!values.is_null(), CL_INVALID_VALUE)?;
    // SAFETY: not NULL, so by the caller's promise three numbers.
    let values = unsafe { values.cast::<[size_t; 3]>().read() };
    Ok(values.map(|value| value as u64))
}

/// The effective pitches of a rectangle, in bytes: 0 means as small as possible.
///
/// # Errors
/// `CL_INVALID_VALUE` when rows or slices would overlap, or a slice is not a whole number of rows.
fn pitches(size: Triple, row: u64, slice: u64) -> ClResult<(u64, u64)> {
    let row = if row == 0 { size[0] } else { row };
    // clEnqueueReadBufferRect: CL_INVALID_VALUE when a row pitch is smaller than a row.
    require(row >= size[0], CL_INVALID_VALUE)?;
    let tight = row.checked_mul(size[1]);
    let Some(tight) = tight else {
        // No rule of the specification covers numbers that overflow: such a rectangle leaves every buffer.
        return fail(CL_INVALID_VALUE);
    };
    let slice = if slice == 0 { tight } else { slice };
    // clEnqueueReadBufferRect: CL_INVALID_VALUE when a slice pitch is smaller than a slice or not a
    // multiple of the row pitch.
    require(
        slice >= tight && slice.is_multiple_of(row),
        CL_INVALID_VALUE,
    )?;
    Ok((row, slice))
}

/// A rectangle, computed as the specification describes.
///
/// # Errors
/// `CL_INVALID_VALUE` for a side of 0, for pitches that do not fit, and where the numbers overflow.
fn rectangle(origin: Triple, size: Triple, row: u64, slice: u64) -> ClResult<Region> {
    // clEnqueueReadBufferRect: CL_INVALID_VALUE when a side of the region is 0.
    require(!size.contains(&0), CL_INVALID_VALUE)?;
    let (row, slice) = pitches(size, row, slice)?;
    let offset = || {
        let slices = origin[2].checked_mul(slice)?;
        let rows = origin[1].checked_mul(row)?;
        slices.checked_add(rows)?.checked_add(origin[0])
    };
    let Some(offset) = offset() else {
        // clEnqueueReadBufferRect: CL_INVALID_VALUE when the region leaves the buffer, as a rectangle does
        // whose offset overflows.
        return fail(CL_INVALID_VALUE);
    };
    // clEnqueueReadBufferRect: CL_INVALID_VALUE when the region leaves the buffer, as a rectangle does whose
    // end overflows.
    Region::rect(offset, size, row, slice).or(fail(CL_INVALID_VALUE))
}

/// The arrays and pitches of the two rectangles of a transfer or copy.
pub(in crate::api) struct Rectangles {
    pub(in crate::api) origins: [*const size_t; 2],
    pub(in crate::api) region: *const size_t,
    /// Row and slice pitch of each.
    pub(in crate::api) pitches: [(size_t, size_t); 2],
}

impl Rectangles {
    /// Returns the regions, and whether their effective pitches are equal.
    pub(super) fn read(&self) -> ClResult<([Region; 2], bool)> {
        let [one, other] = self.origins;
        // SAFETY: the specification demands that each is NULL or points to three numbers.
        let [one, other, size] = unsafe { [triple(one)?, triple(other)?, triple(self.region)?] };
        let [(row, slice), (other_row, other_slice)] =
            self.pitches.map(|(row, slice)| (row as u64, slice as u64));
        let regions = [
            rectangle(one, size, row, slice)?,
            rectangle(other, size, other_row, other_slice)?,
        ];
        let same = pitches(size, row, slice)? == pitches(size, other_row, other_slice)?;
        Ok((regions, same))
    }

    fn regions(&self, buffer: &Buffer) -> ClResult<Regions> {
        let ([there, host], _) = self.read()?;
        // clEnqueueReadBufferRect: CL_INVALID_VALUE when the region leaves the buffer.
        require(there.end() <= buffer.size(), CL_INVALID_VALUE)?;
        Ok(Regions {
            buffer: there,
            host,
        })
    }
}

#[entry_point]
pub(crate) fn clEnqueueReadBufferRect(
    command_queue: cl_command_queue,
    buffer: cl_mem,
    blocking_read: cl_bool,
    buffer_origin: *const size_t,
    host_origin: *const size_t,
    region: *const size_t,
    buffer_row_pitch: size_t,
    buffer_slice_pitch: size_t,
    host_row_pitch: size_t,
    host_slice_pitch: size_t,
    ptr: *mut c_void,
    events: Events,
) -> ClResult {
    let how = How::read(blocking_read, ptr, events, CL_COMMAND_READ_BUFFER_RECT);
    let rectangles = Rectangles {
        origins: [buffer_origin, host_origin],
        region,
        pitches: [
            (buffer_row_pitch, buffer_slice_pitch),
            (host_row_pitch, host_slice_pitch),
        ],
    };
    enqueue(command_queue, (Noun::Buffer, buffer), how, |buffer| {
        rectangles.regions(buffer)
    })
}

#[entry_point]
pub(crate) fn clEnqueueWriteBufferRect(
    command_queue: cl_command_queue,
    buffer: cl_mem,
    blocking_write: cl_bool,
    buffer_origin: *const size_t,
    host_origin: *const size_t,
    region: *const size_t,
    buffer_row_pitch: size_t,
    buffer_slice_pitch: size_t,
    host_row_pitch: size_t,
    host_slice_pitch: size_t,
    ptr: *const c_void,
    events: Events,
) -> ClResult {
    let how = How::write(blocking_write, ptr, events, CL_COMMAND_WRITE_BUFFER_RECT);
    let rectangles = Rectangles {
        origins: [buffer_origin, host_origin],
        region,
        pitches: [
            (buffer_row_pitch, buffer_slice_pitch),
            (host_row_pitch, host_slice_pitch),
        ],
    };
    enqueue(command_queue, (Noun::Buffer, buffer), how, |buffer| {
        rectangles.regions(buffer)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_that_overflow_are_refused() {
        let huge = u64::MAX / 2;
        assert!(rectangle([0; 3], [huge, huge, huge], 0, 0).is_err());
        assert!(rectangle([huge, 1, 0], [4, 4, 1], huge + 2, 0).is_err());
        assert!(rectangle([0, 0, u64::MAX], [4, 4, 1], 4, 16).is_err());
        assert!(rectangle([u64::MAX, 0, 0], [4, 1, 1], 0, 0).is_err());
        assert!(rectangle([0; 3], [1, u64::MAX, 2], u64::MAX, 0).is_err());
    }

    #[test]
    fn null_arrays_are_refused() {
        // SAFETY: NULL is allowed.
        let nothing = unsafe { triple(std::ptr::null()) };
        assert_eq!(nothing.unwrap_err().0, CL_INVALID_VALUE);
    }

    proptest! {
        // The test follows the specification's sentences one by one, on small numbers.
        #[test]
        fn a_rectangle_is_what_the_specification_says(
            origin: [u8; 3], size in [0u64..5, 0u64..5, 0u64..5], row in 0u64..9, slice in 0u64..40,
        ) {
            let origin = origin.map(|value| u64::from(value) % 7);
            let meant_row = if row == 0 { size[0] } else { row };
            let meant_slice = if slice == 0 { meant_row * size[1] } else { slice };
            let valid = size.iter().all(|&side| side > 0)
                && meant_row >= size[0]
                && meant_slice >= size[1] * meant_row
                && meant_slice % meant_row == 0;
            let got = rectangle(origin, size, row, slice);
            prop_assert_eq!(got.is_ok(), valid);
            if let Ok(region) = got {
                let mut expected = Vec::new();
                for z in 0..size[2] {
                    for y in 0..size[1] {
                        for x in 0..size[0] {
                            let at = [origin[0] + x, origin[1] + y, origin[2] + z];
                            expected.push(at[2] * meant_slice + at[1] * meant_row + at[0]);
                        }
                    }
                }
                let bytes: Vec<u64> = region
                    .segments(0, u64::MAX)
                    .flat_map(|run| run.offset..run.offset + run.length)
                    .collect();
                prop_assert_eq!(region.end(), expected.iter().max().unwrap() + 1);
                prop_assert_eq!(bytes, expected);
            }
        }
    }
}
