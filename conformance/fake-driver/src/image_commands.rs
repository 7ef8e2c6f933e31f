//! Commands on images: reads, writes, copies, fills.
//!
//! Maps are refused. Invariant: a command touches only the box that it names, which lies inside the image.

use std::ffi::c_void;

use cl_headers::types::*;

use crate::command::{Enqueue, RectPlace, Shape, Work};
use crate::error::{ClResult, ensure, fail};
use crate::image::{ELEMENT, Image, image_of};
use crate::memory::Memory;
use crate::object::Object;
use crate::rect::triple;
use crate::transfer::{Direction, buffer_for, object_for};
use crate::{arg, control};

/// A box of an image: its place, and its size in elements and in bytes.
struct Part {
    place: RectPlace,
    size: Shape,
    shape: Shape,
}

impl Part {
    fn length(&self) -> usize {
        self.shape.iter().product()
    }

    fn packed(&self, address: usize) -> RectPlace {
        RectPlace {
            row_pitch: self.shape[0],
            slice_pitch: self.shape[0] * self.shape[1],
            ..RectPlace::plain(address, None)
        }
    }
}

/// Checks a box of an image for use on a queue.
///
/// # Safety
/// The arguments are those of a call.
unsafe fn part<'a>(
    enqueue: &Enqueue<'_>,
    image: cl_mem,
    origin: *const size_t,
    size: *const size_t,
) -> ClResult<(&'a Object<Memory>, &'a Image, Part)> {
    // SAFETY: the application passes a handle that it got from this driver, or NULL.
    let memory = unsafe { object_for(enqueue, image) }?;
    let image = image_of(memory)?;
    // SAFETY: the application passes arrays as OpenCL requires.
    let (origin, size) = unsafe { (triple(origin)?, triple(size)?) };
    let is_inside = (0..3).all(|axis| {
        let end = origin[axis].checked_add(size[axis]);
        size[axis] > 0 && end.is_some_and(|end| end <= image.extent[axis])
    });
    ensure(is_inside, CL_INVALID_VALUE)?;
    let offset = origin[0] * ELEMENT + origin[1] * image.row() + origin[2] * image.slice();
    let place = RectPlace {
        row_pitch: image.row(),
        slice_pitch: image.slice(),
        ..RectPlace::plain(memory.address + offset, Some(memory.hold()))
    };
    let shape = [size[0] * ELEMENT, size[1], size[2]];
    Ok((memory, image, Part { place, size, shape }))
}

/// The common arguments of a read or write.
struct HostImage {
    queue: cl_command_queue,
    image: cl_mem,
    blocking: cl_bool,
    origin: *const size_t,
    size: *const size_t,
    pitches: (size_t, size_t),
    ptr: usize,
    wait: (cl_uint, *const cl_event, *mut cl_event),
}

impl HostImage {
    /// # Safety
    /// The arguments are those of a call.
    unsafe fn enqueue(self, kind: cl_command_type, direction: Direction) -> ClResult {
        let (count, list, event) = self.wait;
        // SAFETY: the caller keeps the same contract.
        let enqueue = unsafe { Enqueue::begin(self.queue, kind, count, list, event) }?;
        // SAFETY: the caller keeps the same contract.
        let (memory, image, part) = unsafe { part(&enqueue, self.image, self.origin, self.size) }?;
        ensure(self.ptr != 0, CL_INVALID_VALUE)?;
        let (row, slice) = image.host_pitches(part.size, self.pitches.0, self.pitches.1)?;
        let forbidden = memory.flags & direction.forbidden_by();
        ensure(forbidden == 0, CL_INVALID_OPERATION)?;
        let host = RectPlace {
            row_pitch: row,
            slice_pitch: slice,
            ..RectPlace::plain(self.ptr, None)
        };
        let work = match direction {
            Direction::Read => Work::copy(part.place, host, part.shape),
            // SAFETY: the application passes as many bytes as OpenCL requires.
            Direction::Write => unsafe { Work::write(host, part.place, part.shape) },
        };
        // SAFETY: the caller keeps the same contract. The application keeps its memory until the command ends.
        unsafe { enqueue.blocking(self.blocking).submit(work) }
    }
}

pub(crate) mod api {
    #![allow(non_snake_case, reason = "OpenCL's names")]
    #![allow(clippy::too_many_arguments, reason = "OpenCL's functions")]
    use super::*;

    pub(crate) unsafe fn clEnqueueReadImage(
        queue: cl_command_queue,
        image: cl_mem,
        blocking: cl_bool,
        origin: *const size_t,
        size: *const size_t,
        row_pitch: size_t,
        slice_pitch: size_t,
        ptr: *mut c_void,
        count: cl_uint,
        list: *const cl_event,
        event: *mut cl_event,
    ) -> ClResult {
        let read = HostImage {
            queue,
            image,
            blocking,
            origin,
            size,
            pitches: (row_pitch, slice_pitch),
            ptr: ptr.addr(),
            wait: (count, list, event),
        };
        // SAFETY: the caller keeps the same contract.
        unsafe { read.enqueue(CL_COMMAND_READ_IMAGE, Direction::Read) }
    }

    pub(crate) unsafe fn clEnqueueWriteImage(
        queue: cl_command_queue,
        image: cl_mem,
        blocking: cl_bool,
        origin: *const size_t,
        size: *const size_t,
        row_pitch: size_t,
        slice_pitch: size_t,
        ptr: *const c_void,
        count: cl_uint,
        list: *const cl_event,
        event: *mut cl_event,
    ) -> ClResult {
        let write = HostImage {
            queue,
            image,
            blocking,
            origin,
            size,
            pitches: (row_pitch, slice_pitch),
            ptr: ptr.addr(),
            wait: (count, list, event),
        };
        // SAFETY: the caller keeps the same contract.
        unsafe { write.enqueue(CL_COMMAND_WRITE_IMAGE, Direction::Write) }
    }

    pub(crate) unsafe fn clEnqueueCopyImage(
        queue: cl_command_queue,
        from: cl_mem,
        to: cl_mem,
        from_origin: *const size_t,
        to_origin: *const size_t,
        size: *const size_t,
        count: cl_uint,
        list: *const cl_event,
        event: *mut cl_event,
    ) -> ClResult {
        let kind = CL_COMMAND_COPY_IMAGE;
        // SAFETY: the caller keeps the same contract.
        let enqueue = unsafe { Enqueue::begin(queue, kind, count, list, event) }?;
        ensure(from != to, CL_MEM_COPY_OVERLAP)?;
        // SAFETY: the caller keeps the same contract.
        let (_, _, source) = unsafe { part(&enqueue, from, from_origin, size) }?;
        // SAFETY: the caller keeps the same contract.
        let (_, _, target) = unsafe { part(&enqueue, to, to_origin, size) }?;
        // SAFETY: the caller keeps the same contract.
        unsafe { enqueue.submit(Work::copy(source.place, target.place, source.shape)) }
    }

    pub(crate) unsafe fn clEnqueueCopyImageToBuffer(
        queue: cl_command_queue,
        image: cl_mem,
        buffer: cl_mem,
        origin: *const size_t,
        size: *const size_t,
        offset: size_t,
        count: cl_uint,
        list: *const cl_event,
        event: *mut cl_event,
    ) -> ClResult {
        let kind = CL_COMMAND_COPY_IMAGE_TO_BUFFER;
        // SAFETY: the caller keeps the same contract.
        let enqueue = unsafe { Enqueue::begin(queue, kind, count, list, event) }?;
        // SAFETY: the caller keeps the same contract.
        let (_, image, part) = unsafe { part(&enqueue, image, origin, size) }?;
        ensure(takes_copies(image), CL_INVALID_VALUE)?;
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let buffer = unsafe { buffer_for(&enqueue, buffer) }?;
        buffer.ensure_inside(offset, part.length())?;
        let mut packed = part.packed(buffer.address + offset);
        packed._held = Some(buffer.hold());
        // SAFETY: the caller keeps the same contract.
        unsafe { enqueue.submit(Work::copy(part.place, packed, part.shape)) }
    }

    pub(crate) unsafe fn clEnqueueCopyBufferToImage(
        queue: cl_command_queue,
        buffer: cl_mem,
        image: cl_mem,
        offset: size_t,
        origin: *const size_t,
        size: *const size_t,
        count: cl_uint,
        list: *const cl_event,
        event: *mut cl_event,
    ) -> ClResult {
        let kind = CL_COMMAND_COPY_BUFFER_TO_IMAGE;
        // SAFETY: the caller keeps the same contract.
        let enqueue = unsafe { Enqueue::begin(queue, kind, count, list, event) }?;
        // SAFETY: the caller keeps the same contract.
        let (_, image, part) = unsafe { part(&enqueue, image, origin, size) }?;
        ensure(takes_copies(image), CL_INVALID_VALUE)?;
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let buffer = unsafe { buffer_for(&enqueue, buffer) }?;
        buffer.ensure_inside(offset, part.length())?;
        let mut packed = part.packed(buffer.address + offset);
        packed._held = Some(buffer.hold());
        // SAFETY: the caller keeps the same contract.
        unsafe { enqueue.submit(Work::copy(packed, part.place, part.shape)) }
    }

    pub(crate) unsafe fn clEnqueueMapImage(
        queue: cl_command_queue,
        _image: cl_mem,
        _blocking: cl_bool,
        _flags: cl_map_flags,
        _origin: *const size_t,
        _size: *const size_t,
        _row_pitch: *mut size_t,
        _slice_pitch: *mut size_t,
        count: cl_uint,
        list: *const cl_event,
        event: *mut cl_event,
        _errcode_ret: *mut cl_int,
    ) -> ClResult<*mut c_void> {
        // SAFETY: the caller keeps the same contract.
        unsafe { Enqueue::begin(queue, CL_COMMAND_MAP_IMAGE, count, list, event) }?;
        fail(CL_INVALID_OPERATION)
    }

    pub(crate) unsafe fn clEnqueueFillImage(
        queue: cl_command_queue,
        image: cl_mem,
        fill_color: *const c_void,
        origin: *const size_t,
        size: *const size_t,
        count: cl_uint,
        list: *const cl_event,
        event: *mut cl_event,
    ) -> ClResult {
        let kind = CL_COMMAND_FILL_IMAGE;
        // SAFETY: the caller keeps the same contract.
        let enqueue = unsafe { Enqueue::begin(queue, kind, count, list, event) }?;
        // SAFETY: the caller keeps the same contract.
        let (_, _, part) = unsafe { part(&enqueue, image, origin, size) }?;
        ensure(!fill_color.is_null(), CL_INVALID_VALUE)?;
        // SAFETY: the application passes four unsigned integers, as the format requires.
        let colour = unsafe { arg::list(4, fill_color.cast::<cl_uint>()) };
        let element: Vec<u8> = colour
            .iter()
            .map(|&channel| channel.min(255) as u8)
            .collect();
        let work = Work::Fill(Box::new((part.place, part.shape, element)));
        // SAFETY: the caller keeps the same contract.
        unsafe { enqueue.submit(work) }
    }
}

/// Whether copies between the image and a buffer are supported.
fn takes_copies(image: &Image) -> bool {
    image.kind != CL_MEM_OBJECT_IMAGE1D_ARRAY || !control::current().odd_layer_copies
}
