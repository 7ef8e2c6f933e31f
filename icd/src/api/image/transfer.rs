//! `clEnqueueReadImage`, `clEnqueueWriteImage`, `clEnqueueMapImage`.

use causeway_proto::region::Region;
use cl_headers::types::*;

use super::super::entry::entry_point;
use super::super::event::Events;
use super::super::memory::Noun;
use super::super::memory::map::{HowToMap, map};
use super::super::memory::rect::{Triple, triple};
use super::super::memory::transfer::{How, Regions, enqueue};
use crate::error::{ClResult, fail, require};
use crate::stub::{Buffer, Image};

/// The image part of a memory object that is known to be an image.
pub(super) fn image_of(memory: &Buffer) -> ClResult<&Image> {
    // Functions on images: CL_INVALID_MEM_OBJECT when the memory object is not an image.
    memory
        .image()
        .map_or_else(|| fail(CL_INVALID_MEM_OBJECT), Ok)
}

/// Reads the origin and region of a box of an image.
///
/// # Errors
/// `CL_INVALID_VALUE` when either is NULL. The caller checks the numbers.
///
/// # Safety
/// Both are NULL or point to three numbers.
pub(super) unsafe fn read_box(
    origin: *const size_t,
    region: *const size_t,
) -> ClResult<(Triple, Triple)> {
    // SAFETY: the caller upholds this function's contract.
    unsafe { Ok((triple(origin)?, triple(region)?)) }
}

/// The region of a box in the application's memory, counted from the application's pointer. A pitch of 0
/// means as small as possible. The slice pitch is ignored for images without slices.
fn in_memory(image: &Image, size: Triple, row_pitch: u64, slice_pitch: u64) -> ClResult<Region> {
    // No rule of the specification covers a width that overflows: no image has it.
    let tight = size[0]
        .checked_mul(image.raster().element())
        .map_or_else(|| fail(CL_INVALID_VALUE), Ok)?;
    let row = if row_pitch == 0 { tight } else { row_pitch };
    // clEnqueueReadImage: CL_INVALID_VALUE when the row pitch is smaller than a row of the region.
    require(row >= tight, CL_INVALID_VALUE)?;
    // A 1D image array is stored as rows, and the specification's slice pitch is the distance between its
    // layers.
    let is_rows = image.kind() == CL_MEM_OBJECT_IMAGE1D_ARRAY;
    let rows = if is_rows { 1 } else { size[1] };
    let Some(least) = row.checked_mul(rows) else {
        // No rule of the specification covers a slice whose size overflows.
        return fail(CL_INVALID_VALUE);
    };
    let slice = if image.has_slices() && slice_pitch != 0 {
        slice_pitch
    } else {
        least
    };
    // clEnqueueReadImage: CL_INVALID_VALUE when the slice pitch is smaller than a slice of the region.
    require(slice >= least, CL_INVALID_VALUE)?;
    let region = if is_rows {
        Region::rect(0, [tight, size[1], 1], slice, slice.saturating_mul(size[1]))
    } else {
        Region::rect(0, [tight, size[1], size[2]], row, slice)
    };
    // clEnqueueReadImage: CL_INVALID_VALUE when the region or the pitches are not valid.
    region.or(fail(CL_INVALID_VALUE))
}

/// The arrays and pitches of a read or write.
struct Boxed {
    origin: *const size_t,
    region: *const size_t,
    pitches: (size_t, size_t),
}

impl Boxed {
    fn regions(&self, memory: &Buffer) -> ClResult<Regions> {
        let image = image_of(memory)?;
        // SAFETY: the specification demands that each is NULL or points to three numbers.
        let (origin, size) = unsafe { read_box(self.origin, self.region)? };
        // clEnqueueReadImage, clEnqueueWriteImage: CL_INVALID_VALUE when the region leaves the image or is
        // empty.
        let buffer = image.region(origin, size)?;
        let (row, slice) = self.pitches;
        let host = in_memory(image, size, row as u64, slice as u64)?;
        Ok(Regions { buffer, host })
    }
}

#[entry_point]
pub(crate) fn clEnqueueReadImage(
    command_queue: cl_command_queue,
    image: cl_mem,
    blocking_read: cl_bool,
    origin: *const size_t,
    region: *const size_t,
    row_pitch: size_t,
    slice_pitch: size_t,
    ptr: *mut c_void,
    events: Events,
) -> ClResult {
    let how = How::read(blocking_read, ptr, events, CL_COMMAND_READ_IMAGE);
    let boxed = Boxed {
        origin,
        region,
        pitches: (row_pitch, slice_pitch),
    };
    enqueue(command_queue, (Noun::Image, image), how, |memory| {
        boxed.regions(memory)
    })
}

#[entry_point]
pub(crate) fn clEnqueueWriteImage(
    command_queue: cl_command_queue,
    image: cl_mem,
    blocking_write: cl_bool,
    origin: *const size_t,
    region: *const size_t,
    input_row_pitch: size_t,
    input_slice_pitch: size_t,
    ptr: *const c_void,
    events: Events,
) -> ClResult {
    let how = How::write(blocking_write, ptr, events, CL_COMMAND_WRITE_IMAGE);
    let boxed = Boxed {
        origin,
        region,
        pitches: (input_row_pitch, input_slice_pitch),
    };
    enqueue(command_queue, (Noun::Image, image), how, |memory| {
        boxed.regions(memory)
    })
}

#[entry_point]
pub(crate) fn clEnqueueMapImage(
    command_queue: cl_command_queue,
    image: cl_mem,
    blocking_map: cl_bool,
    map_flags: cl_map_flags,
    origin: *const size_t,
    region: *const size_t,
    image_row_pitch: *mut size_t,
    image_slice_pitch: *mut size_t,
    events: Events,
) -> ClResult<*mut c_void> {
    let how = HowToMap {
        blocking: blocking_map != CL_FALSE,
        flags: map_flags,
        events,
        command: CL_COMMAND_MAP_IMAGE,
    };
    let (address, memory) = map(command_queue, (Noun::Image, image), &how, |memory| {
        let image = image_of(memory)?;
        // SAFETY: the specification demands that each is NULL or points to three numbers.
        let (origin, size) = unsafe { read_box(origin, region)? };
        // clEnqueueMapImage: CL_INVALID_VALUE when the region leaves the image or is empty.
        let region = image.region(origin, size)?;
        // clEnqueueMapImage: CL_INVALID_VALUE when image_row_pitch is NULL.
        require(!image_row_pitch.is_null(), CL_INVALID_VALUE)?;
        let has_place = !image.has_slices() || !image_slice_pitch.is_null();
        // clEnqueueMapImage: CL_INVALID_VALUE when image_slice_pitch is NULL and the image has slices.
        require(has_place, CL_INVALID_VALUE)?;
        Ok(region)
    })?;
    let (row, slice) = memory.map_pitches();
    // SAFETY: not NULL, so the specification demands room for a number.
    unsafe { image_row_pitch.write(row as size_t) };
    if !image_slice_pitch.is_null() {
        // SAFETY: as for the row pitch.
        unsafe { image_slice_pitch.write(slice as size_t) };
    }
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_proto::image_format::ImageFormat;
    use causeway_proto::raster::Raster;

    fn image(kind: u32, extent: [u64; 3]) -> Image {
        let format = ImageFormat {
            order: CL_RGBA,
            channel_type: CL_UNORM_INT8,
        };
        Image::new(kind, format, Raster::new(4, extent).unwrap(), 0, 0)
    }

    #[test]
    fn the_applications_pitches_hold_rows_and_slices() {
        let solid = image(CL_MEM_OBJECT_IMAGE3D, [8, 4, 3]);
        let size = [2, 3, 2];
        let rect = |row, slice| Region::rect(0, [8, 3, 2], row, slice).ok();
        let got = |row, slice| in_memory(&solid, size, row, slice).ok();
        assert_eq!(got(0, 0), rect(8, 24));
        assert_eq!(got(12, 0), rect(12, 36));
        assert_eq!(got(12, 50), rect(12, 50));
        assert_eq!(got(7, 0), None);
        assert_eq!(got(12, 35), None);
        assert_eq!(got(u64::MAX, 0), None);
        let flat = image(CL_MEM_OBJECT_IMAGE2D, [8, 4, 1]);
        let one = Region::rect(0, [8, 3, 1], 8, 24).ok();
        assert_eq!(in_memory(&flat, [2, 3, 1], 0, 5).ok(), one);
    }

    #[test]
    fn layers_of_one_dimensional_images_lie_a_slice_pitch_apart() {
        let layers = image(CL_MEM_OBJECT_IMAGE1D_ARRAY, [8, 4, 1]);
        let got = |row, slice| in_memory(&layers, [2, 3, 1], row, slice).ok();
        let rect = |pitch| Region::rect(0, [8, 3, 1], pitch, 3 * pitch).ok();
        assert_eq!(got(0, 0), rect(8));
        assert_eq!(got(16, 0), rect(16));
        assert_eq!(got(0, 20), rect(20));
    }
}
