//! Images of RGBA bytes: their elements are kept without gaps, row after row and slice after slice.
//!
//! Not here: maps of images, and kernels that touch one, which the fake does not have. Invariant: without a device that
//! has images in its context, none is made.

use std::ffi::c_void;

use cl_headers::types::*;

use crate::command::{Enqueue, Place, Shape, Work};
use crate::context::Context;
use crate::error::{ClResult, Code, ensure, fail};
use crate::memory::{self, Memory};
use crate::object::Object;
use crate::rect::triple;
use crate::transfer::{Direction, buffer_for, object_for};
use crate::{arg, control};

/// Bytes of an element of the only format.
const ELEMENT: usize = 4;

const FORMAT: cl_image_format = cl_image_format {
    image_channel_order: CL_RGBA,
    image_channel_data_type: CL_UNSIGNED_INT8,
};

/// What makes a memory object an image.
pub(crate) struct Image {
    pub(crate) kind: cl_mem_object_type,
    /// Elements of a row, rows, slices. Layers of an array of one-dimensional images are rows.
    extent: Shape,
}

impl Image {
    fn of(desc: &cl_image_desc) -> ClResult<Self> {
        let (width, height) = (desc.image_width, desc.image_height);
        let extent = match desc.image_type {
            CL_MEM_OBJECT_IMAGE1D => [width, 1, 1],
            CL_MEM_OBJECT_IMAGE1D_ARRAY => [width, desc.image_array_size, 1],
            CL_MEM_OBJECT_IMAGE2D => [width, height, 1],
            CL_MEM_OBJECT_IMAGE2D_ARRAY => [width, height, desc.image_array_size],
            CL_MEM_OBJECT_IMAGE3D => [width, height, desc.image_depth],
            _ => return fail(CL_INVALID_IMAGE_DESCRIPTOR),
        };
        let is_sound = extent.iter().all(|side| (1..=16384).contains(side));
        ensure(is_sound, CL_INVALID_IMAGE_SIZE)?;
        Ok(Self {
            kind: desc.image_type,
            extent,
        })
    }

    fn row(&self) -> usize {
        self.extent[0] * ELEMENT
    }

    fn slice(&self) -> usize {
        self.row() * self.extent[1]
    }

    /// The pitches of host memory as a call gives them: from row to row and from slice to slice. The layers of an
    /// array of one-dimensional images are its slices to the caller.
    fn host_pitches(&self, size: Shape, row: size_t, slice: size_t) -> ClResult<(usize, usize)> {
        let row = if row == 0 { size[0] * ELEMENT } else { row };
        ensure(row >= size[0] * ELEMENT, CL_INVALID_VALUE)?;
        if self.kind == CL_MEM_OBJECT_IMAGE1D_ARRAY {
            let layer = if slice == 0 { row } else { slice };
            ensure(layer >= row, CL_INVALID_VALUE)?;
            return Ok((layer, 0));
        }
        let has_slices = self.extent[2] > 1;
        ensure(has_slices || slice == 0, CL_INVALID_VALUE)?;
        let packed = row * size[1];
        let slice = if slice == 0 { packed } else { slice };
        ensure(slice >= packed, CL_INVALID_VALUE)?;
        Ok((row, slice))
    }
}

/// A box of an image: its place, and its size in elements and in bytes.
struct Part {
    place: Place,
    size: Shape,
    shape: Shape,
}

impl Part {
    fn length(&self) -> usize {
        self.shape.iter().product()
    }

    fn packed(&self, address: usize) -> Place {
        Place {
            row_pitch: self.shape[0],
            slice_pitch: self.shape[0] * self.shape[1],
            ..Place::plain(address, None)
        }
    }
}

fn image_of(memory: &Object<Memory>) -> ClResult<&Image> {
    memory.image.as_ref().ok_or(Code(CL_INVALID_MEM_OBJECT))
}

/// A box of an image, for use on a queue.
///
/// # Safety
/// The arguments are those of a call.
unsafe fn part<'a>(
    enqueue: &Enqueue<'_>,
    image: cl_mem,
    origin: *const size_t,
    size: *const size_t,
) -> ClResult<(&'a Object<Memory>, &'a Image, Part)> {
    // SAFETY: the application's handle.
    let memory = unsafe { object_for(enqueue, image) }?;
    let image = image_of(memory)?;
    // SAFETY: the application's arrays.
    let (origin, size) = unsafe { (triple(origin)?, triple(size)?) };
    let is_inside = (0..3).all(|axis| {
        let end = origin[axis].checked_add(size[axis]);
        size[axis] > 0 && end.is_some_and(|end| end <= image.extent[axis])
    });
    ensure(is_inside, CL_INVALID_VALUE)?;
    let offset = origin[0] * ELEMENT + origin[1] * image.row() + origin[2] * image.slice();
    let place = Place {
        row_pitch: image.row(),
        slice_pitch: image.slice(),
        ..Place::plain(memory.address + offset, Some(memory.hold()))
    };
    let shape = [size[0] * ELEMENT, size[1], size[2]];
    Ok((memory, image, Part { place, size, shape }))
}

/// The arguments of a read or write, as both have them.
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
        // SAFETY: passed on.
        let enqueue = unsafe { Enqueue::begin(self.queue, kind, count, list, event) }?;
        // SAFETY: passed on.
        let (memory, image, part) = unsafe { part(&enqueue, self.image, self.origin, self.size) }?;
        ensure(self.ptr != 0, CL_INVALID_VALUE)?;
        let (row, slice) = image.host_pitches(part.size, self.pitches.0, self.pitches.1)?;
        let forbidden = memory.flags & direction.forbidden_by();
        ensure(forbidden == 0, CL_INVALID_OPERATION)?;
        let host = Place {
            row_pitch: row,
            slice_pitch: slice,
            ..Place::plain(self.ptr, None)
        };
        let work = match direction {
            Direction::Read => Work::copy(part.place, host, part.shape),
            // SAFETY: the application's bytes.
            Direction::Write => unsafe { Work::write(host, part.place, part.shape) },
        };
        // SAFETY: passed on; the application keeps its memory until the command is complete.
        unsafe { enqueue.blocking(self.blocking).submit(work) }
    }
}

pub(crate) mod api {
    #![allow(non_snake_case, reason = "OpenCL's names")]
    #![allow(clippy::too_many_arguments, reason = "OpenCL's functions")]
    use super::*;
    use crate::info::{Info, reply};

    pub(crate) unsafe fn clCreateImage2D(
        context: cl_context,
        flags: cl_mem_flags,
        image_format: *const cl_image_format,
        image_width: size_t,
        image_height: size_t,
        _image_row_pitch: size_t,
        host_ptr: *mut c_void,
        errcode_ret: *mut cl_int,
    ) -> ClResult<cl_mem> {
        let desc = cl_image_desc {
            image_type: CL_MEM_OBJECT_IMAGE2D,
            image_width,
            image_height,
            ..NO_DESC
        };
        // SAFETY: passed on.
        unsafe {
            clCreateImage(
                context,
                flags,
                image_format,
                &raw const desc,
                host_ptr,
                errcode_ret,
            )
        }
    }

    pub(crate) unsafe fn clCreateImage3D(
        context: cl_context,
        flags: cl_mem_flags,
        image_format: *const cl_image_format,
        image_width: size_t,
        image_height: size_t,
        image_depth: size_t,
        _image_row_pitch: size_t,
        _image_slice_pitch: size_t,
        host_ptr: *mut c_void,
        errcode_ret: *mut cl_int,
    ) -> ClResult<cl_mem> {
        let desc = cl_image_desc {
            image_type: CL_MEM_OBJECT_IMAGE3D,
            image_width,
            image_height,
            image_depth,
            ..NO_DESC
        };
        // SAFETY: passed on.
        unsafe {
            clCreateImage(
                context,
                flags,
                image_format,
                &raw const desc,
                host_ptr,
                errcode_ret,
            )
        }
    }

    pub(crate) unsafe fn clCreateImage(
        context: cl_context,
        flags: cl_mem_flags,
        image_format: *const cl_image_format,
        image_desc: *const cl_image_desc,
        host_ptr: *mut c_void,
        errcode_ret: *mut cl_int,
    ) -> ClResult<cl_mem> {
        let none = std::ptr::null();
        // SAFETY: passed on.
        unsafe {
            clCreateImageWithProperties(
                context,
                none,
                flags,
                image_format,
                image_desc,
                host_ptr,
                errcode_ret,
            )
        }
    }

    pub(crate) unsafe fn clCreateImageWithProperties(
        context: cl_context,
        properties: *const cl_mem_properties,
        flags: cl_mem_flags,
        image_format: *const cl_image_format,
        image_desc: *const cl_image_desc,
        host_ptr: *mut c_void,
        _errcode_ret: *mut cl_int,
    ) -> ClResult<cl_mem> {
        // SAFETY: the application's handle.
        let context = unsafe { Object::<Context>::borrow(context) }?;
        ensure(has_images(context), CL_INVALID_OPERATION)?;
        // SAFETY: the application's list.
        let properties = unsafe { arg::properties(properties) };
        ensure(properties.len() <= 1, CL_INVALID_PROPERTY)?;
        ensure(!image_format.is_null(), CL_INVALID_IMAGE_FORMAT_DESCRIPTOR)?;
        ensure(!image_desc.is_null(), CL_INVALID_IMAGE_DESCRIPTOR)?;
        // SAFETY: the application's structures.
        let (format, desc) = unsafe { (&*image_format, &*image_desc) };
        let is_known = format.image_channel_order == FORMAT.image_channel_order
            && format.image_channel_data_type == FORMAT.image_channel_data_type;
        ensure(is_known, CL_IMAGE_FORMAT_NOT_SUPPORTED)?;
        let is_packed = desc.image_row_pitch == 0 && desc.image_slice_pitch == 0;
        ensure(
            is_packed && desc.buffer.is_null(),
            CL_INVALID_IMAGE_DESCRIPTOR,
        )?;
        let image = Image::of(desc)?;
        let size = image.slice() * image.extent[2];
        // SAFETY: the application's memory.
        unsafe { memory::create(context, properties, flags, size, host_ptr, Some(image)) }
    }

    pub(crate) unsafe fn clGetSupportedImageFormats(
        context: cl_context,
        _flags: cl_mem_flags,
        image_type: cl_mem_object_type,
        num_entries: cl_uint,
        image_formats: *mut cl_image_format,
        num_image_formats: *mut cl_uint,
    ) -> ClResult {
        // SAFETY: the application's handle.
        let context = unsafe { Object::<Context>::borrow(context) }?;
        ensure(has_images(context), CL_INVALID_OPERATION)?;
        ensure(num_entries > 0 || image_formats.is_null(), CL_INVALID_VALUE)?;
        let has_some = image_type != CL_MEM_OBJECT_IMAGE1D_BUFFER;
        if has_some {
            // SAFETY: NULL, or room for an entry.
            unsafe { arg::put(image_formats, FORMAT) };
        }
        // SAFETY: NULL or writable.
        unsafe { arg::put(num_image_formats, cl_uint::from(has_some)) };
        Ok(())
    }

    pub(crate) unsafe fn clGetImageInfo(
        image: cl_mem,
        name: cl_image_info,
        size: size_t,
        value: *mut c_void,
        size_ret: *mut size_t,
    ) -> ClResult {
        // SAFETY: the application's handle.
        let memory = unsafe { Object::<Memory>::borrow(image) }?;
        let image = image_of(memory)?;
        let answer = match name {
            CL_IMAGE_ELEMENT_SIZE => Info::size(ELEMENT),
            CL_IMAGE_ROW_PITCH => Info::size(image.row()),
            CL_IMAGE_WIDTH => Info::size(image.extent[0]),
            _ => return fail(CL_INVALID_VALUE),
        };
        // SAFETY: the application's memory.
        unsafe { reply(answer, size, value, size_ret) }
    }

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
        // SAFETY: passed on.
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
        // SAFETY: passed on.
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
        // SAFETY: passed on.
        let enqueue = unsafe { Enqueue::begin(queue, kind, count, list, event) }?;
        ensure(from != to, CL_MEM_COPY_OVERLAP)?;
        // SAFETY: passed on.
        let (_, _, source) = unsafe { part(&enqueue, from, from_origin, size) }?;
        // SAFETY: passed on.
        let (_, _, target) = unsafe { part(&enqueue, to, to_origin, size) }?;
        // SAFETY: passed on.
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
        // SAFETY: passed on.
        let enqueue = unsafe { Enqueue::begin(queue, kind, count, list, event) }?;
        // SAFETY: passed on.
        let (_, image, part) = unsafe { part(&enqueue, image, origin, size) }?;
        ensure(takes_copies(image), CL_INVALID_VALUE)?;
        // SAFETY: the application's handle.
        let buffer = unsafe { buffer_for(&enqueue, buffer) }?;
        buffer.ensure_inside(offset, part.length())?;
        let mut packed = part.packed(buffer.address + offset);
        packed._held = Some(buffer.hold());
        // SAFETY: passed on.
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
        // SAFETY: passed on.
        let enqueue = unsafe { Enqueue::begin(queue, kind, count, list, event) }?;
        // SAFETY: passed on.
        let (_, image, part) = unsafe { part(&enqueue, image, origin, size) }?;
        ensure(takes_copies(image), CL_INVALID_VALUE)?;
        // SAFETY: the application's handle.
        let buffer = unsafe { buffer_for(&enqueue, buffer) }?;
        buffer.ensure_inside(offset, part.length())?;
        let mut packed = part.packed(buffer.address + offset);
        packed._held = Some(buffer.hold());
        // SAFETY: passed on.
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
        // SAFETY: passed on.
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
        // SAFETY: passed on.
        let enqueue = unsafe { Enqueue::begin(queue, kind, count, list, event) }?;
        // SAFETY: passed on.
        let (_, _, part) = unsafe { part(&enqueue, image, origin, size) }?;
        ensure(!fill_color.is_null(), CL_INVALID_VALUE)?;
        // SAFETY: four unsigned integers, as the format wants.
        let colour = unsafe { arg::list(4, fill_color.cast::<cl_uint>()) };
        let element: Vec<u8> = colour
            .iter()
            .map(|&channel| channel.min(255) as u8)
            .collect();
        let work = Work::Fill(Box::new((part.place, part.shape, element)));
        // SAFETY: passed on.
        unsafe { enqueue.submit(work) }
    }
}

const NO_DESC: cl_image_desc = cl_image_desc {
    image_type: 0,
    image_width: 0,
    image_height: 0,
    image_depth: 0,
    image_array_size: 0,
    image_row_pitch: 0,
    image_slice_pitch: 0,
    num_mip_levels: 0,
    num_samples: 0,
    buffer: std::ptr::null_mut(),
};

fn has_images(context: &Context) -> bool {
    let mut devices = context.devices.iter();
    devices.any(|device| device.settings.images)
}

/// Whether copies between the image and a buffer are taken.
fn takes_copies(image: &Image) -> bool {
    image.kind != CL_MEM_OBJECT_IMAGE1D_ARRAY || !control::current().odd_layer_copies
}
