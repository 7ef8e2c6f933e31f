//! Images: none of this version's devices has them (`CL_DEVICE_IMAGE_SUPPORT` is false).
//!
//! Creation answers `CL_INVALID_OPERATION`, the specification's code when no device of the context supports
//! images; a handle given as an image can only be a buffer, which is `CL_INVALID_MEM_OBJECT`.

use cl_headers::types::*;

use super::entry::entry_points;
use super::handle;
use crate::error::{fail, require};
use crate::stub::{Buffer, Context, Queue};

entry_points! {
    fn clCreateImage2D(context: cl_context, _flags: cl_mem_flags, _image_format: *const cl_image_format, _image_width: size_t, _image_height: size_t, _image_row_pitch: size_t, _host_ptr: *mut c_void; errcode_ret) -> cl_mem {
        handle::resolve::<Context>(context)?;
        fail(CL_INVALID_OPERATION)
    }

    fn clCreateImage3D(context: cl_context, _flags: cl_mem_flags, _image_format: *const cl_image_format, _image_width: size_t, _image_height: size_t, _image_depth: size_t, _image_row_pitch: size_t, _image_slice_pitch: size_t, _host_ptr: *mut c_void; errcode_ret) -> cl_mem {
        handle::resolve::<Context>(context)?;
        fail(CL_INVALID_OPERATION)
    }

    fn clCreateImage(context: cl_context, _flags: cl_mem_flags, _image_format: *const cl_image_format, _image_desc: *const cl_image_desc, _host_ptr: *mut c_void; errcode_ret) -> cl_mem {
        handle::resolve::<Context>(context)?;
        fail(CL_INVALID_OPERATION)
    }

    fn clCreateImageWithProperties(context: cl_context, _properties: *const cl_mem_properties, _flags: cl_mem_flags, _image_format: *const cl_image_format, _image_desc: *const cl_image_desc, _host_ptr: *mut c_void; errcode_ret) -> cl_mem {
        handle::resolve::<Context>(context)?;
        fail(CL_INVALID_OPERATION)
    }

    fn clGetSupportedImageFormats(context: cl_context, flags: cl_mem_flags, image_type: cl_mem_object_type, num_entries: cl_uint, image_formats: *mut cl_image_format, num_image_formats: *mut cl_uint) {
        handle::resolve::<Context>(context)?;
        let known = CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY | CL_MEM_READ_ONLY | CL_MEM_KERNEL_READ_AND_WRITE;
        require(flags & !known == 0, CL_INVALID_VALUE)?;
        let image = CL_MEM_OBJECT_IMAGE2D..=CL_MEM_OBJECT_IMAGE1D_BUFFER;
        require(image.contains(&image_type), CL_INVALID_VALUE)?;
        require(image_formats.is_null() || num_entries > 0, CL_INVALID_VALUE)?;
        if !num_image_formats.is_null() {
            // SAFETY: not NULL, so there is room for a number.
            unsafe { num_image_formats.write(0) };
        }
        Ok(())
    }

    fn clGetImageInfo(image: cl_mem, _param_name: cl_image_info, _param_value_size: size_t, _param_value: *mut c_void, _param_value_size_ret: *mut size_t) {
        handle::resolve::<Buffer>(image)?;
        fail(CL_INVALID_MEM_OBJECT)
    }

    fn clEnqueueReadImage(command_queue: cl_command_queue, _image: cl_mem, _blocking_read: cl_bool, _origin: *const size_t, _region: *const size_t, _row_pitch: size_t, _slice_pitch: size_t, _ptr: *mut c_void, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event) {
        handle::resolve::<Queue>(command_queue)?;
        fail(CL_INVALID_MEM_OBJECT)
    }

    fn clEnqueueWriteImage(command_queue: cl_command_queue, _image: cl_mem, _blocking_write: cl_bool, _origin: *const size_t, _region: *const size_t, _input_row_pitch: size_t, _input_slice_pitch: size_t, _ptr: *const c_void, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event) {
        handle::resolve::<Queue>(command_queue)?;
        fail(CL_INVALID_MEM_OBJECT)
    }

    fn clEnqueueCopyImage(command_queue: cl_command_queue, _src_image: cl_mem, _dst_image: cl_mem, _src_origin: *const size_t, _dst_origin: *const size_t, _region: *const size_t, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event) {
        handle::resolve::<Queue>(command_queue)?;
        fail(CL_INVALID_MEM_OBJECT)
    }

    fn clEnqueueCopyImageToBuffer(command_queue: cl_command_queue, _src_image: cl_mem, _dst_buffer: cl_mem, _src_origin: *const size_t, _region: *const size_t, _dst_offset: size_t, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event) {
        handle::resolve::<Queue>(command_queue)?;
        fail(CL_INVALID_MEM_OBJECT)
    }

    fn clEnqueueCopyBufferToImage(command_queue: cl_command_queue, _src_buffer: cl_mem, _dst_image: cl_mem, _src_offset: size_t, _dst_origin: *const size_t, _region: *const size_t, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event) {
        handle::resolve::<Queue>(command_queue)?;
        fail(CL_INVALID_MEM_OBJECT)
    }

    fn clEnqueueMapImage(command_queue: cl_command_queue, _image: cl_mem, _blocking_map: cl_bool, _map_flags: cl_map_flags, _origin: *const size_t, _region: *const size_t, _image_row_pitch: *mut size_t, _image_slice_pitch: *mut size_t, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event; errcode_ret) -> *mut c_void {
        handle::resolve::<Queue>(command_queue)?;
        fail(CL_INVALID_MEM_OBJECT)
    }

    fn clEnqueueFillImage(command_queue: cl_command_queue, _image: cl_mem, _fill_color: *const c_void, _origin: *const size_t, _region: *const size_t, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event) {
        handle::resolve::<Queue>(command_queue)?;
        fail(CL_INVALID_MEM_OBJECT)
    }
}
