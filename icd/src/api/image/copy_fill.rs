//! Commands that move no bytes over the network: `clEnqueueCopyImage`, copies between images and buffers,
//! `clEnqueueFillImage`.

use std::sync::Arc;

use causeway_proto::region::Region;
use cl_headers::types::*;
use smallvec::smallvec;

use super::super::entry::entry_point;
use super::super::event::Events;
use super::super::handle;
use super::super::memory::copy_fill::{Work, check_overlap, copying, enqueue};
use super::super::memory::rect::triple;
use super::super::memory::{Noun, for_queue};
use super::transfer::{image_of, read_box};
use crate::error::{ClResult, Status, require};
use crate::stub::{Buffer, NodeCommand, Queue, memory::colour};

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
fn copy(from: (Arc<Buffer>, Region), to: (Arc<Buffer>, Region)) -> ClResult<Work> {
    check_overlap((&from.0, &from.1), (&to.0, &to.1))?;
    Ok(copying(end(from.0, from.1)?, end(to.0, to.1)?))
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
fn fill(image: &Arc<Buffer>, region: Region, colour: [u8; 16]) -> ClResult<NodeCommand> {
    let (stored, there) = image.stored(&region)?;
    if Arc::ptr_eq(&stored, image) || !there.is_linear() {
        return Ok(NodeCommand::FillImage {
            image: image.clone(),
            colour,
            region,
        });
    }
    let pattern = colour::element(image_of(image)?.format(), colour);
    // clEnqueueFillImage: CL_IMAGE_FORMAT_NOT_SUPPORTED when the client cannot encode a colour of this
    // format.
    let pattern = pattern.ok_or(Status(CL_IMAGE_FORMAT_NOT_SUPPORTED))?;
    Ok(NodeCommand::Fill {
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
    (source, from_origin): (cl_mem, *const size_t),
    (destination, to_origin): (cl_mem, *const size_t),
    region: *const size_t,
) -> ClResult<Work> {
    let [from, to] = for_queue(queue, [source, destination].map(|raw| (Noun::Image, raw)))?;
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
) -> ClResult<Work> {
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

/// Checks a fill of an image.
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
) -> ClResult<Work> {
    let [image] = for_queue(queue, [(Noun::Image, image)])?;
    // SAFETY: the caller upholds this function's contract.
    let (colour, (origin, size)) =
        unsafe { (read_colour(&image, colour)?, read_box(origin, region)?) };
    // clEnqueueFillImage: CL_INVALID_VALUE when the region leaves the image or is empty.
    let region = image_of(&image)?.region(origin, size)?;
    let work = fill(&image, region, colour)?;
    Ok((Some(work), smallvec![image]))
}

#[entry_point]
pub(crate) fn clEnqueueCopyImage(
    command_queue: cl_command_queue,
    src_image: cl_mem,
    dst_image: cl_mem,
    src_origin: *const size_t,
    dst_origin: *const size_t,
    region: *const size_t,
    events: Events,
) -> ClResult {
    let queue = handle::resolve::<Queue>(command_queue)?;
    let (from, to) = ((src_image, src_origin), (dst_image, dst_origin));
    // SAFETY: the specification demands arrays that are NULL or of three numbers.
    let work = unsafe { images(&queue, from, to, region)? };
    enqueue(&queue, work, CL_COMMAND_COPY_IMAGE, events)
}

#[entry_point]
pub(crate) fn clEnqueueCopyImageToBuffer(
    command_queue: cl_command_queue,
    src_image: cl_mem,
    dst_buffer: cl_mem,
    src_origin: *const size_t,
    region: *const size_t,
    dst_offset: size_t,
    events: Events,
) -> ClResult {
    let queue = handle::resolve::<Queue>(command_queue)?;
    let (image, buffer) = ((src_image, src_origin, region), (dst_buffer, dst_offset));
    // SAFETY: the specification demands arrays that are NULL or of three numbers.
    let work = unsafe { with_buffer(&queue, Way::ToBuffer, image, buffer)? };
    enqueue(&queue, work, CL_COMMAND_COPY_IMAGE_TO_BUFFER, events)
}

#[entry_point]
pub(crate) fn clEnqueueCopyBufferToImage(
    command_queue: cl_command_queue,
    src_buffer: cl_mem,
    dst_image: cl_mem,
    src_offset: size_t,
    dst_origin: *const size_t,
    region: *const size_t,
    events: Events,
) -> ClResult {
    let queue = handle::resolve::<Queue>(command_queue)?;
    let (image, buffer) = ((dst_image, dst_origin, region), (src_buffer, src_offset));
    // SAFETY: the specification demands arrays that are NULL or of three numbers.
    let work = unsafe { with_buffer(&queue, Way::ToImage, image, buffer)? };
    enqueue(&queue, work, CL_COMMAND_COPY_BUFFER_TO_IMAGE, events)
}

#[entry_point]
pub(crate) fn clEnqueueFillImage(
    command_queue: cl_command_queue,
    image: cl_mem,
    fill_color: *const c_void,
    origin: *const size_t,
    region: *const size_t,
    events: Events,
) -> ClResult {
    let queue = handle::resolve::<Queue>(command_queue)?;
    // SAFETY: the specification demands a colour, and arrays that are NULL or of three numbers.
    let work = unsafe { filling(&queue, image, fill_color, (origin, region))? };
    enqueue(&queue, work, CL_COMMAND_FILL_IMAGE, events)
}
