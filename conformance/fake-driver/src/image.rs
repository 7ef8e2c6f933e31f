//! Images of RGBA bytes. Their elements are stored without gaps, row after row and slice after slice.
//!
//! Commands on them are in [`image_commands`](crate::image_commands). Kernels that use images do not
//! exist here. Invariant: images exist only in contexts with a device that supports them.

use std::ffi::c_void;

use cl_headers::types::*;

use crate::arg;
use crate::command::Shape;
use crate::context::Context;
use crate::error::{ClResult, Code, ensure, fail};
use crate::memory::{self, Memory};
use crate::object::Object;

/// Bytes of an element of the only format.
pub(crate) const ELEMENT: usize = 4;

const FORMAT: cl_image_format = cl_image_format {
    image_channel_order: CL_RGBA,
    image_channel_data_type: CL_UNSIGNED_INT8,
};

/// The image data of a memory object.
pub(crate) struct Image {
    pub(crate) kind: cl_mem_object_type,
    /// Elements of a row, rows, slices. Layers of an array of one-dimensional images are rows.
    pub(crate) extent: Shape,
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

    pub(crate) fn row(&self) -> usize {
        self.extent[0] * ELEMENT
    }

    pub(crate) fn slice(&self) -> usize {
        self.row() * self.extent[1]
    }

    /// Returns the row pitch and slice pitch of host memory, as given in a call. To the caller, the
    /// layers of an array of one-dimensional images are slices.
    pub(crate) fn host_pitches(
        &self,
        size: Shape,
        row: size_t,
        slice: size_t,
    ) -> ClResult<(usize, usize)> {
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

pub(crate) fn image_of(memory: &Object<Memory>) -> ClResult<&Image> {
    memory.image.as_ref().ok_or(Code(CL_INVALID_MEM_OBJECT))
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
        // SAFETY: the caller keeps the same contract.
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
        // SAFETY: the caller keeps the same contract.
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
        // SAFETY: the caller keeps the same contract.
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
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let context = unsafe { Object::<Context>::borrow(context) }?;
        ensure(has_images(context), CL_INVALID_OPERATION)?;
        // SAFETY: the application passes a list as OpenCL requires.
        let properties = unsafe { arg::properties(properties) };
        ensure(properties.len() <= 1, CL_INVALID_PROPERTY)?;
        ensure(!image_format.is_null(), CL_INVALID_IMAGE_FORMAT_DESCRIPTOR)?;
        ensure(!image_desc.is_null(), CL_INVALID_IMAGE_DESCRIPTOR)?;
        // SAFETY: the application passes the structures that OpenCL requires.
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
        // SAFETY: the application passes memory as OpenCL requires.
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
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let context = unsafe { Object::<Context>::borrow(context) }?;
        ensure(has_images(context), CL_INVALID_OPERATION)?;
        ensure(num_entries > 0 || image_formats.is_null(), CL_INVALID_VALUE)?;
        let has_some = image_type != CL_MEM_OBJECT_IMAGE1D_BUFFER;
        if has_some {
            // SAFETY: the pointer is NULL, or has room for an entry.
            unsafe { arg::put(image_formats, FORMAT) };
        }
        // SAFETY: the pointer is NULL or writable.
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
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let memory = unsafe { Object::<Memory>::borrow(image) }?;
        let image = image_of(memory)?;
        let answer = match name {
            CL_IMAGE_ELEMENT_SIZE => Info::size(ELEMENT),
            CL_IMAGE_ROW_PITCH => Info::size(image.row()),
            CL_IMAGE_WIDTH => Info::size(image.extent[0]),
            _ => return fail(CL_INVALID_VALUE),
        };
        // SAFETY: the application passes memory as OpenCL requires.
        unsafe { reply(answer, size, value, size_ret) }
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
