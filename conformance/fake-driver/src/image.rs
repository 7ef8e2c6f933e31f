//! Images.
//!
//! Invariant: without a device that has images in its context, none is made.

use std::ffi::c_void;

use cl_headers::types::*;

use crate::context::Context;
use crate::error::{ClResult, fail};
use crate::memory::Memory;
use crate::object::Object;
use crate::queue::Queue;

/// What makes a memory object an image.
pub(crate) struct Image {
    pub(crate) kind: cl_mem_object_type,
}

pub(crate) mod api {
    #![allow(non_snake_case, reason = "OpenCL's names")]
    #![allow(clippy::too_many_arguments, reason = "OpenCL's functions")]
    use super::*;

    pub(crate) unsafe fn clCreateImage2D(
        context: cl_context,
        _flags: cl_mem_flags,
        _image_format: *const cl_image_format,
        _image_width: size_t,
        _image_height: size_t,
        _image_row_pitch: size_t,
        _host_ptr: *mut c_void,
        _errcode_ret: *mut cl_int,
    ) -> ClResult<cl_mem> {
        // SAFETY: the application's handle.
        unsafe { Object::<Context>::borrow(context) }?;
        fail(CL_INVALID_OPERATION)
    }

    pub(crate) unsafe fn clCreateImage3D(
        context: cl_context,
        _flags: cl_mem_flags,
        _image_format: *const cl_image_format,
        _image_width: size_t,
        _image_height: size_t,
        _image_depth: size_t,
        _image_row_pitch: size_t,
        _image_slice_pitch: size_t,
        _host_ptr: *mut c_void,
        _errcode_ret: *mut cl_int,
    ) -> ClResult<cl_mem> {
        // SAFETY: the application's handle.
        unsafe { Object::<Context>::borrow(context) }?;
        fail(CL_INVALID_OPERATION)
    }

    pub(crate) unsafe fn clCreateImage(
        context: cl_context,
        _flags: cl_mem_flags,
        _image_format: *const cl_image_format,
        _image_desc: *const cl_image_desc,
        _host_ptr: *mut c_void,
        _errcode_ret: *mut cl_int,
    ) -> ClResult<cl_mem> {
        // SAFETY: the application's handle.
        unsafe { Object::<Context>::borrow(context) }?;
        fail(CL_INVALID_OPERATION)
    }

    pub(crate) unsafe fn clCreateImageWithProperties(
        context: cl_context,
        _properties: *const cl_mem_properties,
        _flags: cl_mem_flags,
        _image_format: *const cl_image_format,
        _image_desc: *const cl_image_desc,
        _host_ptr: *mut c_void,
        _errcode_ret: *mut cl_int,
    ) -> ClResult<cl_mem> {
        // SAFETY: the application's handle.
        unsafe { Object::<Context>::borrow(context) }?;
        fail(CL_INVALID_OPERATION)
    }

    pub(crate) unsafe fn clGetSupportedImageFormats(
        context: cl_context,
        _flags: cl_mem_flags,
        _image_type: cl_mem_object_type,
        _num_entries: cl_uint,
        _image_formats: *mut cl_image_format,
        _num_image_formats: *mut cl_uint,
    ) -> ClResult {
        // SAFETY: the application's handle.
        unsafe { Object::<Context>::borrow(context) }?;
        fail(CL_INVALID_OPERATION)
    }

    pub(crate) unsafe fn clGetImageInfo(
        image: cl_mem,
        _param_name: cl_image_info,
        _param_value_size: size_t,
        _param_value: *mut c_void,
        _param_value_size_ret: *mut size_t,
    ) -> ClResult {
        // SAFETY: the application's handle.
        unsafe { Object::<Memory>::borrow(image) }?;
        fail(CL_INVALID_OPERATION)
    }

    pub(crate) unsafe fn clEnqueueReadImage(
        command_queue: cl_command_queue,
        _image: cl_mem,
        _blocking_read: cl_bool,
        _origin: *const size_t,
        _region: *const size_t,
        _row_pitch: size_t,
        _slice_pitch: size_t,
        _ptr: *mut c_void,
        _num_events_in_wait_list: cl_uint,
        _event_wait_list: *const cl_event,
        _event: *mut cl_event,
    ) -> ClResult {
        // SAFETY: the application's handle.
        unsafe { Object::<Queue>::borrow(command_queue) }?;
        fail(CL_INVALID_OPERATION)
    }

    pub(crate) unsafe fn clEnqueueWriteImage(
        command_queue: cl_command_queue,
        _image: cl_mem,
        _blocking_write: cl_bool,
        _origin: *const size_t,
        _region: *const size_t,
        _input_row_pitch: size_t,
        _input_slice_pitch: size_t,
        _ptr: *const c_void,
        _num_events_in_wait_list: cl_uint,
        _event_wait_list: *const cl_event,
        _event: *mut cl_event,
    ) -> ClResult {
        // SAFETY: the application's handle.
        unsafe { Object::<Queue>::borrow(command_queue) }?;
        fail(CL_INVALID_OPERATION)
    }

    pub(crate) unsafe fn clEnqueueCopyImage(
        command_queue: cl_command_queue,
        _src_image: cl_mem,
        _dst_image: cl_mem,
        _src_origin: *const size_t,
        _dst_origin: *const size_t,
        _region: *const size_t,
        _num_events_in_wait_list: cl_uint,
        _event_wait_list: *const cl_event,
        _event: *mut cl_event,
    ) -> ClResult {
        // SAFETY: the application's handle.
        unsafe { Object::<Queue>::borrow(command_queue) }?;
        fail(CL_INVALID_OPERATION)
    }

    pub(crate) unsafe fn clEnqueueCopyImageToBuffer(
        command_queue: cl_command_queue,
        _src_image: cl_mem,
        _dst_buffer: cl_mem,
        _src_origin: *const size_t,
        _region: *const size_t,
        _dst_offset: size_t,
        _num_events_in_wait_list: cl_uint,
        _event_wait_list: *const cl_event,
        _event: *mut cl_event,
    ) -> ClResult {
        // SAFETY: the application's handle.
        unsafe { Object::<Queue>::borrow(command_queue) }?;
        fail(CL_INVALID_OPERATION)
    }

    pub(crate) unsafe fn clEnqueueCopyBufferToImage(
        command_queue: cl_command_queue,
        _src_buffer: cl_mem,
        _dst_image: cl_mem,
        _src_offset: size_t,
        _dst_origin: *const size_t,
        _region: *const size_t,
        _num_events_in_wait_list: cl_uint,
        _event_wait_list: *const cl_event,
        _event: *mut cl_event,
    ) -> ClResult {
        // SAFETY: the application's handle.
        unsafe { Object::<Queue>::borrow(command_queue) }?;
        fail(CL_INVALID_OPERATION)
    }

    pub(crate) unsafe fn clEnqueueMapImage(
        command_queue: cl_command_queue,
        _image: cl_mem,
        _blocking_map: cl_bool,
        _map_flags: cl_map_flags,
        _origin: *const size_t,
        _region: *const size_t,
        _image_row_pitch: *mut size_t,
        _image_slice_pitch: *mut size_t,
        _num_events_in_wait_list: cl_uint,
        _event_wait_list: *const cl_event,
        _event: *mut cl_event,
        _errcode_ret: *mut cl_int,
    ) -> ClResult<*mut c_void> {
        // SAFETY: the application's handle.
        unsafe { Object::<Queue>::borrow(command_queue) }?;
        fail(CL_INVALID_OPERATION)
    }

    pub(crate) unsafe fn clEnqueueFillImage(
        command_queue: cl_command_queue,
        _image: cl_mem,
        _fill_color: *const c_void,
        _origin: *const size_t,
        _region: *const size_t,
        _num_events_in_wait_list: cl_uint,
        _event_wait_list: *const cl_event,
        _event: *mut cl_event,
    ) -> ClResult {
        // SAFETY: the application's handle.
        unsafe { Object::<Queue>::borrow(command_queue) }?;
        fail(CL_INVALID_OPERATION)
    }
}
