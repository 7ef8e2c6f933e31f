//! Commands that move no bytes over the network: `clEnqueueCopyImage`, copies between images and buffers,
//! `clEnqueueFillImage`.

use std::sync::Arc;

use causeway_proto::region::Region;
use cl_headers::types::*;
use smallvec::smallvec;

use super::super::entry::entry_point;
use super::super::event::wait_list;
use super::super::handle;
use super::super::memory::copy_fill::{Copy, enqueue};
use super::super::memory::rect::triple;
use super::super::memory::{Noun, for_queue};
use super::transfer::{image_of, read_box};
use crate::error::{ClResult, Status, require};
use crate::stub::{Buffer, Command, Hold, Queue, memory::colour};

/// One end of a copy. An image over a buffer is replaced by the buffer if the bytes are contiguous there.
fn end(memory: Arc<Buffer>, region: Region) -> ClResult<(Arc<Buffer>, Region)> {
    let (stored, there) = memory.stored(&region)?;
    Ok(if there.is_linear() {
        (stored, there)
    } else {
        (memory, region)
    })
}

/// Checks a copy, and replaces both ends by where their bytes are stored.
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

/// The 16 bytes of a fill colour. A depth format has a single floating-point value, the others four
/// components.
///
/// # Safety
/// `colour` is NULL or points to as many bytes as a colour of the image's format has.
unsafe fn read_colour(image: &Buffer, colour: *const c_void) -> ClResult<[u8; 16]> {
    // clEnqueueFillImage: CL_INVALID_VALUE when fill_color is NULL.
    require(!colour.is_null(), CL_INVALID_VALUE)?;
    let length = match image_of(image)?.format().order {
        CL_DEPTH => 4,
        _ => 16,
    };
    let mut bytes = [0; 16];
    // SAFETY: not NULL, so by the caller's promise `length` bytes.
    unsafe {
        bytes
            .as_mut_ptr()
            .copy_from_nonoverlapping(colour.cast(), length);
    }
    Ok(bytes)
}

/// The work of a fill. An image over a buffer is filled as that buffer if the bytes are contiguous there.
fn fill(image: &Arc<Buffer>, region: Region, colour: [u8; 16]) -> ClResult<Command> {
    let (stored, there) = image.stored(&region)?;
    if Arc::ptr_eq(&stored, image) || !there.is_linear() {
        return Ok(Command::FillImage {
            image: image.clone(),
            colour,
            region,
        });
    }
    let pattern = colour::element(image_of(image)?.format(), colour);
    // clEnqueueFillImage: CL_IMAGE_FORMAT_NOT_SUPPORTED when the client cannot encode a colour of this
    // format.
    let pattern = pattern.ok_or(Status(CL_IMAGE_FORMAT_NOT_SUPPORTED))?;
    Ok(Command::Fill {
        buffer: stored,
        pattern: pattern.into(),
        region: there,
    })
}

/// Checks a copy between two images.
///
/// # Errors
/// As `clEnqueueCopyImage`, except for the wait list.
///
/// # Safety
/// Each origin and the region is NULL or points to three numbers.
pub(in crate::api) unsafe fn images(
    queue: &Queue,
    (source, destination): (cl_mem, cl_mem),
    (from_origin, to_origin): (*const size_t, *const size_t),
    region: *const size_t,
) -> ClResult<Copy> {
    let memory = [source, destination].map(|raw| (Noun::Image, raw));
    let [from, to] = for_queue(queue, memory)?;
    // clEnqueueCopyImage: CL_IMAGE_FORMAT_MISMATCH when the two images have different formats.
    let same = image_of(&from)?.format() == image_of(&to)?.format();
    require(same, CL_IMAGE_FORMAT_MISMATCH)?;
    // SAFETY: the caller upholds this function's contract.
    let ((source, size), destination) =
        unsafe { (read_box(from_origin, region)?, triple(to_origin)?) };
    // clEnqueueCopyImage: CL_INVALID_VALUE when either region leaves its image or is empty.
    let source = image_of(&from)?.region(source, size)?;
    let destination = image_of(&to)?.region(destination, size)?;
    copy((from, source), (to, destination))
}

/// The direction of a copy between an image and a buffer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::api) enum Way {
    ToBuffer,
    ToImage,
}

/// Checks a copy between an image and a buffer.
///
/// # Errors
/// As `clEnqueueCopyImageToBuffer` and `clEnqueueCopyBufferToImage`, except for the wait list.
///
/// # Safety
/// Origin and region are NULL or point to three numbers each.
pub(in crate::api) unsafe fn with_buffer(
    queue: &Queue,
    way: Way,
    (image, origin, region): (cl_mem, *const size_t, *const size_t),
    (buffer, offset): (cl_mem, size_t),
) -> ClResult<Copy> {
    let [image, buffer] = for_queue(queue, [(Noun::Image, image), (Noun::Buffer, buffer)])?;
    // SAFETY: the caller upholds this function's contract.
    let (origin, size) = unsafe { read_box(origin, region)? };
    // clEnqueueCopyImageToBuffer: CL_INVALID_VALUE when the region leaves the image or the buffer.
    let pixels = image_of(&image)?.region(origin, size)?;
    let run = buffer.range(offset as u64, pixels.packed_length())?;
    match way {
        Way::ToBuffer => copy((image, pixels), (buffer, run)),
        Way::ToImage => copy((buffer, run), (image, pixels)),
    }
}

/// Checks a fill of an image. Returns its work and the image.
///
/// # Errors
/// As `clEnqueueFillImage`, except for the wait list.
///
/// # Safety
/// The colour is NULL or points to as many bytes as a colour of the image's format has. Origin and region
/// are NULL or point to three numbers each.
pub(in crate::api) unsafe fn filling(
    queue: &Queue,
    image: cl_mem,
    colour: *const c_void,
    (origin, region): (*const size_t, *const size_t),
) -> ClResult<(Command, Hold)> {
    let [image] = for_queue(queue, [(Noun::Image, image)])?;
    // SAFETY: the caller upholds this function's contract.
    let (colour, (origin, size)) =
        unsafe { (read_colour(&image, colour)?, read_box(origin, region)?) };
    // clEnqueueFillImage: CL_INVALID_VALUE when the region leaves the image or is empty.
    let region = image_of(&image)?.region(origin, size)?;
    let work = fill(&image, region, colour)?;
    Ok((work, smallvec![image]))
}

#[entry_point]
pub(crate) fn clEnqueueCopyImage(
    command_queue: cl_command_queue,
    src_image: cl_mem,
    dst_image: cl_mem,
    src_origin: *const size_t,
    dst_origin: *const size_t,
    region: *const size_t,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> ClResult {
    let queue = handle::resolve::<Queue>(command_queue)?;
    // SAFETY: the specification demands arrays that are NULL or of three numbers, and a wait list as
    // its count says.
    let (copy, wait) = unsafe {
        (
            images(
                &queue,
                (src_image, dst_image),
                (src_origin, dst_origin),
                region,
            )?,
            wait_list(queue.context(), num_events_in_wait_list, event_wait_list)?,
        )
    };
    enqueue(
        &queue,
        copy.work(),
        CL_COMMAND_COPY_IMAGE,
        wait,
        copy.hold(),
        event,
    )
}

#[entry_point]
pub(crate) fn clEnqueueCopyImageToBuffer(
    command_queue: cl_command_queue,
    src_image: cl_mem,
    dst_buffer: cl_mem,
    src_origin: *const size_t,
    region: *const size_t,
    dst_offset: size_t,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> ClResult {
    let queue = handle::resolve::<Queue>(command_queue)?;
    let (image, buffer) = ((src_image, src_origin, region), (dst_buffer, dst_offset));
    // SAFETY: the specification demands arrays that are NULL or of three numbers, and a wait list as
    // its count says.
    let (copy, wait) = unsafe {
        (
            with_buffer(&queue, Way::ToBuffer, image, buffer)?,
            wait_list(queue.context(), num_events_in_wait_list, event_wait_list)?,
        )
    };
    enqueue(
        &queue,
        copy.work(),
        CL_COMMAND_COPY_IMAGE_TO_BUFFER,
        wait,
        copy.hold(),
        event,
    )
}

#[entry_point]
pub(crate) fn clEnqueueCopyBufferToImage(
    command_queue: cl_command_queue,
    src_buffer: cl_mem,
    dst_image: cl_mem,
    src_offset: size_t,
    dst_origin: *const size_t,
    region: *const size_t,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> ClResult {
    let queue = handle::resolve::<Queue>(command_queue)?;
    let (image, buffer) = ((dst_image, dst_origin, region), (src_buffer, src_offset));
    // SAFETY: the specification demands arrays that are NULL or of three numbers, and a wait list as
    // its count says.
    let (copy, wait) = unsafe {
        (
            with_buffer(&queue, Way::ToImage, image, buffer)?,
            wait_list(queue.context(), num_events_in_wait_list, event_wait_list)?,
        )
    };
    enqueue(
        &queue,
        copy.work(),
        CL_COMMAND_COPY_BUFFER_TO_IMAGE,
        wait,
        copy.hold(),
        event,
    )
}

#[entry_point]
pub(crate) fn clEnqueueFillImage(
    command_queue: cl_command_queue,
    image: cl_mem,
    fill_color: *const c_void,
    origin: *const size_t,
    region: *const size_t,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> ClResult {
    let queue = handle::resolve::<Queue>(command_queue)?;
    // SAFETY: the specification demands a colour, arrays that are NULL or of three numbers, and a wait
    // list as its count says.
    let ((work, hold), wait) = unsafe {
        (
            filling(&queue, image, fill_color, (origin, region))?,
            wait_list(queue.context(), num_events_in_wait_list, event_wait_list)?,
        )
    };
    enqueue(&queue, Some(work), CL_COMMAND_FILL_IMAGE, wait, hold, event)
}
