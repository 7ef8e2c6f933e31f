//! Sharing with OpenGL, Direct3D and EGL. This is impossible with a device of another machine, and the
//! extensions are never reported.
//!
//! The functions still have slots in the dispatch table. Each checks its first handle and fails with
//! `CL_INVALID_OPERATION`.

use cl_headers::types::*;

use super::entry::entry_point;
use super::handle::{self, Object};
use crate::error::{ClResult, fail};
use crate::stub::{Buffer, Context, Platform, Queue};

/// Checks the first handle of a function, and refuses the call.
fn refuse<T: Object, R>(handle: T::Raw) -> ClResult<R> {
    handle::resolve::<T>(handle)?;
    // All functions of this file: CL_INVALID_OPERATION, the code of OpenCL 3.0 for a missing optional
    // feature. No device reports these extensions, so none of their own rules applies.
    fail(CL_INVALID_OPERATION)
}

#[entry_point]
pub(crate) fn clCreateFromGLBuffer(
    context: cl_context,
    _flags: cl_mem_flags,
    _bufobj: cl_GLuint,
) -> ClResult<cl_mem> {
    refuse::<Context, _>(context)
}

#[entry_point]
pub(crate) fn clCreateFromGLTexture2D(
    context: cl_context,
    _flags: cl_mem_flags,
    _target: cl_GLenum,
    _miplevel: cl_GLint,
    _texture: cl_GLuint,
) -> ClResult<cl_mem> {
    refuse::<Context, _>(context)
}

#[entry_point]
pub(crate) fn clCreateFromGLTexture3D(
    context: cl_context,
    _flags: cl_mem_flags,
    _target: cl_GLenum,
    _miplevel: cl_GLint,
    _texture: cl_GLuint,
) -> ClResult<cl_mem> {
    refuse::<Context, _>(context)
}

#[entry_point]
pub(crate) fn clCreateFromGLRenderbuffer(
    context: cl_context,
    _flags: cl_mem_flags,
    _renderbuffer: cl_GLuint,
) -> ClResult<cl_mem> {
    refuse::<Context, _>(context)
}

#[entry_point]
pub(crate) fn clGetGLObjectInfo(
    memobj: cl_mem,
    _gl_object_type: *mut cl_gl_object_type,
    _gl_object_name: *mut cl_GLuint,
) -> ClResult {
    refuse::<Buffer, _>(memobj)
}

#[entry_point]
pub(crate) fn clGetGLTextureInfo(
    memobj: cl_mem,
    _param_name: cl_gl_texture_info,
    _param_value_size: size_t,
    _param_value: *mut c_void,
    _param_value_size_ret: *mut size_t,
) -> ClResult {
    refuse::<Buffer, _>(memobj)
}

#[entry_point]
pub(crate) fn clEnqueueAcquireGLObjects(
    command_queue: cl_command_queue,
    _num_objects: cl_uint,
    _mem_objects: *const cl_mem,
    _num_events_in_wait_list: cl_uint,
    _event_wait_list: *const cl_event,
    _event: *mut cl_event,
) -> ClResult {
    refuse::<Queue, _>(command_queue)
}

#[entry_point]
pub(crate) fn clEnqueueReleaseGLObjects(
    command_queue: cl_command_queue,
    _num_objects: cl_uint,
    _mem_objects: *const cl_mem,
    _num_events_in_wait_list: cl_uint,
    _event_wait_list: *const cl_event,
    _event: *mut cl_event,
) -> ClResult {
    refuse::<Queue, _>(command_queue)
}

#[entry_point]
pub(crate) fn clGetGLContextInfoKHR(
    _properties: *const cl_context_properties,
    _param_name: cl_gl_context_info,
    _param_value_size: size_t,
    _param_value: *mut c_void,
    _param_value_size_ret: *mut size_t,
) -> ClResult {
    fail(CL_INVALID_OPERATION)
}

#[entry_point]
pub(crate) fn clGetDeviceIDsFromD3D10KHR(
    platform: cl_platform_id,
    _d3d_device_source: cl_d3d10_device_source_khr,
    _d3d_object: *mut c_void,
    _d3d_device_set: cl_d3d10_device_set_khr,
    _num_entries: cl_uint,
    _devices: *mut cl_device_id,
    _num_devices: *mut cl_uint,
) -> ClResult {
    refuse::<Platform, _>(platform)
}

#[entry_point]
pub(crate) fn clCreateFromD3D10BufferKHR(
    context: cl_context,
    _flags: cl_mem_flags,
    _resource: ID3D10Buffer_ptr,
) -> ClResult<cl_mem> {
    refuse::<Context, _>(context)
}

#[entry_point]
pub(crate) fn clCreateFromD3D10Texture2DKHR(
    context: cl_context,
    _flags: cl_mem_flags,
    _resource: ID3D10Texture2D_ptr,
    _subresource: cl_uint,
) -> ClResult<cl_mem> {
    refuse::<Context, _>(context)
}

#[entry_point]
pub(crate) fn clCreateFromD3D10Texture3DKHR(
    context: cl_context,
    _flags: cl_mem_flags,
    _resource: ID3D10Texture3D_ptr,
    _subresource: cl_uint,
) -> ClResult<cl_mem> {
    refuse::<Context, _>(context)
}

#[entry_point]
pub(crate) fn clEnqueueAcquireD3D10ObjectsKHR(
    command_queue: cl_command_queue,
    _num_objects: cl_uint,
    _mem_objects: *const cl_mem,
    _num_events_in_wait_list: cl_uint,
    _event_wait_list: *const cl_event,
    _event: *mut cl_event,
) -> ClResult {
    refuse::<Queue, _>(command_queue)
}

#[entry_point]
pub(crate) fn clEnqueueReleaseD3D10ObjectsKHR(
    command_queue: cl_command_queue,
    _num_objects: cl_uint,
    _mem_objects: *const cl_mem,
    _num_events_in_wait_list: cl_uint,
    _event_wait_list: *const cl_event,
    _event: *mut cl_event,
) -> ClResult {
    refuse::<Queue, _>(command_queue)
}

#[entry_point]
pub(crate) fn clCreateEventFromGLsyncKHR(
    context: cl_context,
    _sync: cl_GLsync,
) -> ClResult<cl_event> {
    refuse::<Context, _>(context)
}

#[entry_point]
pub(crate) fn clCreateFromGLTexture(
    context: cl_context,
    _flags: cl_mem_flags,
    _target: cl_GLenum,
    _miplevel: cl_GLint,
    _texture: cl_GLuint,
) -> ClResult<cl_mem> {
    refuse::<Context, _>(context)
}

#[entry_point]
pub(crate) fn clGetDeviceIDsFromD3D11KHR(
    platform: cl_platform_id,
    _d3d_device_source: cl_d3d11_device_source_khr,
    _d3d_object: *mut c_void,
    _d3d_device_set: cl_d3d11_device_set_khr,
    _num_entries: cl_uint,
    _devices: *mut cl_device_id,
    _num_devices: *mut cl_uint,
) -> ClResult {
    refuse::<Platform, _>(platform)
}

#[entry_point]
pub(crate) fn clCreateFromD3D11BufferKHR(
    context: cl_context,
    _flags: cl_mem_flags,
    _resource: ID3D11Buffer_ptr,
) -> ClResult<cl_mem> {
    refuse::<Context, _>(context)
}

#[entry_point]
pub(crate) fn clCreateFromD3D11Texture2DKHR(
    context: cl_context,
    _flags: cl_mem_flags,
    _resource: ID3D11Texture2D_ptr,
    _subresource: cl_uint,
) -> ClResult<cl_mem> {
    refuse::<Context, _>(context)
}

#[entry_point]
pub(crate) fn clCreateFromD3D11Texture3DKHR(
    context: cl_context,
    _flags: cl_mem_flags,
    _resource: ID3D11Texture3D_ptr,
    _subresource: cl_uint,
) -> ClResult<cl_mem> {
    refuse::<Context, _>(context)
}

#[entry_point]
pub(crate) fn clCreateFromDX9MediaSurfaceKHR(
    context: cl_context,
    _flags: cl_mem_flags,
    _adapter_type: cl_dx9_media_adapter_type_khr,
    _surface_info: *mut c_void,
    _plane: cl_uint,
) -> ClResult<cl_mem> {
    refuse::<Context, _>(context)
}

#[entry_point]
pub(crate) fn clEnqueueAcquireD3D11ObjectsKHR(
    command_queue: cl_command_queue,
    _num_objects: cl_uint,
    _mem_objects: *const cl_mem,
    _num_events_in_wait_list: cl_uint,
    _event_wait_list: *const cl_event,
    _event: *mut cl_event,
) -> ClResult {
    refuse::<Queue, _>(command_queue)
}

#[entry_point]
pub(crate) fn clEnqueueReleaseD3D11ObjectsKHR(
    command_queue: cl_command_queue,
    _num_objects: cl_uint,
    _mem_objects: *const cl_mem,
    _num_events_in_wait_list: cl_uint,
    _event_wait_list: *const cl_event,
    _event: *mut cl_event,
) -> ClResult {
    refuse::<Queue, _>(command_queue)
}

#[entry_point]
pub(crate) fn clGetDeviceIDsFromDX9MediaAdapterKHR(
    platform: cl_platform_id,
    _num_media_adapters: cl_uint,
    _media_adapter_type: *mut cl_dx9_media_adapter_type_khr,
    _media_adapters: *mut c_void,
    _media_adapter_set: cl_dx9_media_adapter_set_khr,
    _num_entries: cl_uint,
    _devices: *mut cl_device_id,
    _num_devices: *mut cl_uint,
) -> ClResult {
    refuse::<Platform, _>(platform)
}

#[entry_point]
pub(crate) fn clEnqueueAcquireDX9MediaSurfacesKHR(
    command_queue: cl_command_queue,
    _num_objects: cl_uint,
    _mem_objects: *const cl_mem,
    _num_events_in_wait_list: cl_uint,
    _event_wait_list: *const cl_event,
    _event: *mut cl_event,
) -> ClResult {
    refuse::<Queue, _>(command_queue)
}

#[entry_point]
pub(crate) fn clEnqueueReleaseDX9MediaSurfacesKHR(
    command_queue: cl_command_queue,
    _num_objects: cl_uint,
    _mem_objects: *const cl_mem,
    _num_events_in_wait_list: cl_uint,
    _event_wait_list: *const cl_event,
    _event: *mut cl_event,
) -> ClResult {
    refuse::<Queue, _>(command_queue)
}

#[entry_point]
pub(crate) fn clCreateFromEGLImageKHR(
    context: cl_context,
    _egldisplay: CLeglDisplayKHR,
    _eglimage: CLeglImageKHR,
    _flags: cl_mem_flags,
    _properties: *const cl_egl_image_properties_khr,
) -> ClResult<cl_mem> {
    refuse::<Context, _>(context)
}

#[entry_point]
pub(crate) fn clEnqueueAcquireEGLObjectsKHR(
    command_queue: cl_command_queue,
    _num_objects: cl_uint,
    _mem_objects: *const cl_mem,
    _num_events_in_wait_list: cl_uint,
    _event_wait_list: *const cl_event,
    _event: *mut cl_event,
) -> ClResult {
    refuse::<Queue, _>(command_queue)
}

#[entry_point]
pub(crate) fn clEnqueueReleaseEGLObjectsKHR(
    command_queue: cl_command_queue,
    _num_objects: cl_uint,
    _mem_objects: *const cl_mem,
    _num_events_in_wait_list: cl_uint,
    _event_wait_list: *const cl_event,
    _event: *mut cl_event,
) -> ClResult {
    refuse::<Queue, _>(command_queue)
}

#[entry_point]
pub(crate) fn clCreateEventFromEGLSyncKHR(
    context: cl_context,
    _sync: CLeglSyncKHR,
    _display: CLeglDisplayKHR,
) -> ClResult<cl_event> {
    refuse::<Context, _>(context)
}
