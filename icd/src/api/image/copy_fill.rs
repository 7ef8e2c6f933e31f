//! What stays on the node: `clEnqueueCopyImage`, copies between images and buffers, `clEnqueueFillImage`.

use std::sync::Arc;

use causeway_proto::region::Region;
use cl_headers::types::*;
use smallvec::smallvec;

use super::super::entry::entry_points;
use super::super::event::wait_list;
use super::super::handle;
use super::super::memory::copy_fill::{Copy, enqueue};
use super::super::memory::rect::triple;
use super::super::memory::{Noun, for_queue};
use super::transfer::{image_of, read_box};
use crate::error::{ClResult, Status, require};
use crate::stub::{Buffer, Hold, Queue, Work, colour};

/// One end of a copy: an image over a buffer stands for that buffer, where its bytes are one run there.
fn end(memory: Arc<Buffer>, region: Region) -> ClResult<(Arc<Buffer>, Region)> {
    let (stored, there) = memory.stored(&region)?;
    Ok(if there.is_linear() {
        (stored, there)
    } else {
        (memory, region)
    })
}

/// Checks a copy between these ends, as they are stored.
fn copy(from: (Arc<Buffer>, Region), to: (Arc<Buffer>, Region)) -> ClResult<Copy> {
    let copy = Copy::checked(from, to)?;
    let (from, source) = end(copy.from, copy.source)?;
    let (to, destination) = end(copy.to, copy.destination)?;
    Ok(Copy {
        from,
        to,
        source,
        destination,
    })
}

/// The 16 bytes of a colour; "a single floating-point value if the image has a depth format".
///
/// # Safety
/// `colour` is NULL or of as many bytes as the image's colours have.
unsafe fn read_colour(image: &Buffer, colour: *const c_void) -> ClResult<[u8; 16]> {
    require(!colour.is_null(), CL_INVALID_VALUE)?;
    let length = match image_of(image)?.format().order {
        CL_DEPTH => 4,
        _ => 16,
    };
    let mut bytes = [0; 16];
    // SAFETY: not NULL, and then of so many bytes.
    unsafe {
        bytes
            .as_mut_ptr()
            .copy_from_nonoverlapping(colour.cast(), length);
    }
    Ok(bytes)
}

/// A fill of an image over a buffer is one of the buffer, where its bytes are one run there.
fn fill(image: &Arc<Buffer>, region: Region, colour: [u8; 16]) -> ClResult<Work> {
    let (stored, there) = image.stored(&region)?;
    if Arc::ptr_eq(&stored, image) || !there.is_linear() {
        return Ok(Work::FillImage {
            image: image.clone(),
            colour,
            region,
        });
    }
    let pattern = colour::element(image_of(image)?.format(), colour);
    let pattern = pattern.ok_or(Status(CL_IMAGE_FORMAT_NOT_SUPPORTED))?;
    Ok(Work::Fill {
        buffer: stored,
        pattern: pattern.into(),
        region: there,
    })
}

/// Checks a copy between two images.
///
/// # Errors
/// As `clEnqueueCopyImage`, but for the wait list.
///
/// # Safety
/// Origins and region are NULL or of three numbers each.
pub(in crate::api) unsafe fn images(
    queue: &Queue,
    (source, destination): (cl_mem, cl_mem),
    (from_origin, to_origin): (*const size_t, *const size_t),
    region: *const size_t,
) -> ClResult<Copy> {
    let memory = [source, destination].map(|raw| (Noun::Image, raw));
    let [from, to] = for_queue(queue, memory)?;
    // "CL_IMAGE_FORMAT_MISMATCH if src_image and dst_image do not use the same image format."
    let same = image_of(&from)?.format() == image_of(&to)?.format();
    require(same, CL_IMAGE_FORMAT_MISMATCH)?;
    // SAFETY: the caller's promise.
    let ((source, size), destination) =
        unsafe { (read_box(from_origin, region)?, triple(to_origin)?) };
    let source = image_of(&from)?.region(source, size)?;
    let destination = image_of(&to)?.region(destination, size)?;
    copy((from, source), (to, destination))
}

/// Which way a copy between an image and a buffer goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::api) enum Way {
    /// To the buffer.
    ToBuffer,
    /// To the image.
    ToImage,
}

/// Checks a copy between an image and a buffer.
///
/// # Errors
/// As `clEnqueueCopyImageToBuffer` and `clEnqueueCopyBufferToImage`, but for the wait list.
///
/// # Safety
/// Origin and region are NULL or of three numbers each.
pub(in crate::api) unsafe fn with_buffer(
    queue: &Queue,
    way: Way,
    (image, origin, region): (cl_mem, *const size_t, *const size_t),
    (buffer, offset): (cl_mem, size_t),
) -> ClResult<Copy> {
    let [image, buffer] = for_queue(queue, [(Noun::Image, image), (Noun::Buffer, buffer)])?;
    // SAFETY: the caller's promise.
    let (origin, size) = unsafe { read_box(origin, region)? };
    let pixels = image_of(&image)?.region(origin, size)?;
    let run = buffer.range(offset as u64, pixels.packed_length())?;
    match way {
        Way::ToBuffer => copy((image, pixels), (buffer, run)),
        Way::ToImage => copy((buffer, run), (image, pixels)),
    }
}

/// Checks a fill of an image; what it does, and the image.
///
/// # Errors
/// As `clEnqueueFillImage`, but for the wait list.
///
/// # Safety
/// The colour is NULL or of as many bytes as the image's colours have; origin and region are NULL or of three numbers
/// each.
pub(in crate::api) unsafe fn filling(
    queue: &Queue,
    image: cl_mem,
    colour: *const c_void,
    (origin, region): (*const size_t, *const size_t),
) -> ClResult<(Work, Hold)> {
    let [image] = for_queue(queue, [(Noun::Image, image)])?;
    // SAFETY: the caller's promise.
    let (colour, (origin, size)) =
        unsafe { (read_colour(&image, colour)?, read_box(origin, region)?) };
    let region = image_of(&image)?.region(origin, size)?;
    let work = fill(&image, region, colour)?;
    Ok((work, smallvec![image]))
}

entry_points! {
    fn clEnqueueCopyImage(
        command_queue: cl_command_queue, src_image: cl_mem, dst_image: cl_mem, src_origin: *const size_t,
        dst_origin: *const size_t, region: *const size_t, num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event, event: *mut cl_event,
    ) {
        let queue = handle::resolve::<Queue>(command_queue)?;
        // SAFETY: the specification's contracts: arrays NULL or of three numbers, and a wait list.
        let (copy, wait) = unsafe {(
            images(&queue, (src_image, dst_image), (src_origin, dst_origin), region)?,
            wait_list(queue.context(), num_events_in_wait_list, event_wait_list)?,
        )};
        enqueue(&queue, copy.work(), CL_COMMAND_COPY_IMAGE, wait, copy.hold(), event)
    }

    fn clEnqueueCopyImageToBuffer(
        command_queue: cl_command_queue, src_image: cl_mem, dst_buffer: cl_mem, src_origin: *const size_t,
        region: *const size_t, dst_offset: size_t, num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event, event: *mut cl_event,
    ) {
        let queue = handle::resolve::<Queue>(command_queue)?;
        let (image, buffer) = ((src_image, src_origin, region), (dst_buffer, dst_offset));
        // SAFETY: the specification's contracts: arrays NULL or of three numbers, and a wait list.
        let (copy, wait) = unsafe {(
            with_buffer(&queue, Way::ToBuffer, image, buffer)?,
            wait_list(queue.context(), num_events_in_wait_list, event_wait_list)?,
        )};
        enqueue(&queue, copy.work(), CL_COMMAND_COPY_IMAGE_TO_BUFFER, wait, copy.hold(), event)
    }

    fn clEnqueueCopyBufferToImage(
        command_queue: cl_command_queue, src_buffer: cl_mem, dst_image: cl_mem, src_offset: size_t,
        dst_origin: *const size_t, region: *const size_t, num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event, event: *mut cl_event,
    ) {
        let queue = handle::resolve::<Queue>(command_queue)?;
        let (image, buffer) = ((dst_image, dst_origin, region), (src_buffer, src_offset));
        // SAFETY: the specification's contracts: arrays NULL or of three numbers, and a wait list.
        let (copy, wait) = unsafe {(
            with_buffer(&queue, Way::ToImage, image, buffer)?,
            wait_list(queue.context(), num_events_in_wait_list, event_wait_list)?,
        )};
        enqueue(&queue, copy.work(), CL_COMMAND_COPY_BUFFER_TO_IMAGE, wait, copy.hold(), event)
    }

    fn clEnqueueFillImage(
        command_queue: cl_command_queue, image: cl_mem, fill_color: *const c_void, origin: *const size_t,
        region: *const size_t, num_events_in_wait_list: cl_uint, event_wait_list: *const cl_event,
        event: *mut cl_event,
    ) {
        let queue = handle::resolve::<Queue>(command_queue)?;
        // SAFETY: the specification's contracts: a colour, arrays NULL or of three numbers, and a wait list.
        let ((work, hold), wait) = unsafe {(
            filling(&queue, image, fill_color, (origin, region))?,
            wait_list(queue.context(), num_events_in_wait_list, event_wait_list)?,
        )};
        enqueue(&queue, Some(work), CL_COMMAND_FILL_IMAGE, wait, hold, event)
    }
}
