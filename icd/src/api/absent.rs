//! Entry points of features that no device of this version has: what the specification says then.

use cl_headers::types::*;

use super::entry::entry_points;
use crate::error::fail;

entry_points! {
    fn clCreateBuffer(
        _context: cl_context, _flags: cl_mem_flags, _size: size_t, _host_ptr: *mut c_void; errcode_ret
    ) -> cl_mem {
        fail(CL_INVALID_OPERATION)
    }

    fn clSVMAlloc(
        _context: cl_context, _flags: cl_svm_mem_flags, _size: size_t, _alignment: cl_uint; null
    ) -> *mut c_void {
        fail(CL_INVALID_OPERATION)
    }

    fn clCreateImage2D(_context: cl_context, _flags: cl_mem_flags, _image_format: *const cl_image_format, _image_width: size_t, _image_height: size_t, _image_row_pitch: size_t, _host_ptr: *mut c_void; errcode_ret) -> cl_mem { fail(CL_INVALID_OPERATION) }
    fn clCreateImage3D(_context: cl_context, _flags: cl_mem_flags, _image_format: *const cl_image_format, _image_width: size_t, _image_height: size_t, _image_depth: size_t, _image_row_pitch: size_t, _image_slice_pitch: size_t, _host_ptr: *mut c_void; errcode_ret) -> cl_mem { fail(CL_INVALID_OPERATION) }
    fn clRetainMemObject(_memobj: cl_mem) { fail(CL_INVALID_OPERATION) }
    fn clReleaseMemObject(_memobj: cl_mem) { fail(CL_INVALID_OPERATION) }
    fn clGetSupportedImageFormats(_context: cl_context, _flags: cl_mem_flags, _image_type: cl_mem_object_type, _num_entries: cl_uint, _image_formats: *mut cl_image_format, _num_image_formats: *mut cl_uint) { fail(CL_INVALID_OPERATION) }
    fn clGetMemObjectInfo(_memobj: cl_mem, _param_name: cl_mem_info, _param_value_size: size_t, _param_value: *mut c_void, _param_value_size_ret: *mut size_t) { fail(CL_INVALID_OPERATION) }
    fn clGetImageInfo(_image: cl_mem, _param_name: cl_image_info, _param_value_size: size_t, _param_value: *mut c_void, _param_value_size_ret: *mut size_t) { fail(CL_INVALID_OPERATION) }
    fn clCreateSampler(_context: cl_context, _normalized_coords: cl_bool, _addressing_mode: cl_addressing_mode, _filter_mode: cl_filter_mode; errcode_ret) -> cl_sampler { fail(CL_INVALID_OPERATION) }
    fn clRetainSampler(_sampler: cl_sampler) { fail(CL_INVALID_OPERATION) }
    fn clReleaseSampler(_sampler: cl_sampler) { fail(CL_INVALID_OPERATION) }
    fn clGetSamplerInfo(_sampler: cl_sampler, _param_name: cl_sampler_info, _param_value_size: size_t, _param_value: *mut c_void, _param_value_size_ret: *mut size_t) { fail(CL_INVALID_OPERATION) }
    fn clCreateProgramWithSource(_context: cl_context, _count: cl_uint, _strings: *mut *const c_char, _lengths: *const size_t; errcode_ret) -> cl_program { fail(CL_INVALID_OPERATION) }
    fn clCreateProgramWithBinary(_context: cl_context, _num_devices: cl_uint, _device_list: *const cl_device_id, _lengths: *const size_t, _binaries: *mut *const c_uchar, _binary_status: *mut cl_int; errcode_ret) -> cl_program { fail(CL_INVALID_OPERATION) }
    fn clRetainProgram(_program: cl_program) { fail(CL_INVALID_OPERATION) }
    fn clReleaseProgram(_program: cl_program) { fail(CL_INVALID_OPERATION) }
    fn clBuildProgram(_program: cl_program, _num_devices: cl_uint, _device_list: *const cl_device_id, _options: *const c_char, _pfn_notify: ProgramCallback, _user_data: *mut c_void) { fail(CL_INVALID_OPERATION) }
    fn clUnloadCompiler() { fail(CL_INVALID_OPERATION) }
    fn clGetProgramInfo(_program: cl_program, _param_name: cl_program_info, _param_value_size: size_t, _param_value: *mut c_void, _param_value_size_ret: *mut size_t) { fail(CL_INVALID_OPERATION) }
    fn clGetProgramBuildInfo(_program: cl_program, _device: cl_device_id, _param_name: cl_program_build_info, _param_value_size: size_t, _param_value: *mut c_void, _param_value_size_ret: *mut size_t) { fail(CL_INVALID_OPERATION) }
    fn clCreateKernel(_program: cl_program, _kernel_name: *const c_char; errcode_ret) -> cl_kernel { fail(CL_INVALID_OPERATION) }
    fn clCreateKernelsInProgram(_program: cl_program, _num_kernels: cl_uint, _kernels: *mut cl_kernel, _num_kernels_ret: *mut cl_uint) { fail(CL_INVALID_OPERATION) }
    fn clRetainKernel(_kernel: cl_kernel) { fail(CL_INVALID_OPERATION) }
    fn clReleaseKernel(_kernel: cl_kernel) { fail(CL_INVALID_OPERATION) }
    fn clSetKernelArg(_kernel: cl_kernel, _arg_index: cl_uint, _arg_size: size_t, _arg_value: *const c_void) { fail(CL_INVALID_OPERATION) }
    fn clGetKernelInfo(_kernel: cl_kernel, _param_name: cl_kernel_info, _param_value_size: size_t, _param_value: *mut c_void, _param_value_size_ret: *mut size_t) { fail(CL_INVALID_OPERATION) }
    fn clGetKernelWorkGroupInfo(_kernel: cl_kernel, _device: cl_device_id, _param_name: cl_kernel_work_group_info, _param_value_size: size_t, _param_value: *mut c_void, _param_value_size_ret: *mut size_t) { fail(CL_INVALID_OPERATION) }
    fn clEnqueueReadBuffer(_command_queue: cl_command_queue, _buffer: cl_mem, _blocking_read: cl_bool, _offset: size_t, _size: size_t, _ptr: *mut c_void, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event) { fail(CL_INVALID_OPERATION) }
    fn clEnqueueWriteBuffer(_command_queue: cl_command_queue, _buffer: cl_mem, _blocking_write: cl_bool, _offset: size_t, _size: size_t, _ptr: *const c_void, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event) { fail(CL_INVALID_OPERATION) }
    fn clEnqueueCopyBuffer(_command_queue: cl_command_queue, _src_buffer: cl_mem, _dst_buffer: cl_mem, _src_offset: size_t, _dst_offset: size_t, _size: size_t, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event) { fail(CL_INVALID_OPERATION) }
    fn clEnqueueReadImage(_command_queue: cl_command_queue, _image: cl_mem, _blocking_read: cl_bool, _origin: *const size_t, _region: *const size_t, _row_pitch: size_t, _slice_pitch: size_t, _ptr: *mut c_void, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event) { fail(CL_INVALID_OPERATION) }
    fn clEnqueueWriteImage(_command_queue: cl_command_queue, _image: cl_mem, _blocking_write: cl_bool, _origin: *const size_t, _region: *const size_t, _input_row_pitch: size_t, _input_slice_pitch: size_t, _ptr: *const c_void, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event) { fail(CL_INVALID_OPERATION) }
    fn clEnqueueCopyImage(_command_queue: cl_command_queue, _src_image: cl_mem, _dst_image: cl_mem, _src_origin: *const size_t, _dst_origin: *const size_t, _region: *const size_t, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event) { fail(CL_INVALID_OPERATION) }
    fn clEnqueueCopyImageToBuffer(_command_queue: cl_command_queue, _src_image: cl_mem, _dst_buffer: cl_mem, _src_origin: *const size_t, _region: *const size_t, _dst_offset: size_t, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event) { fail(CL_INVALID_OPERATION) }
    fn clEnqueueCopyBufferToImage(_command_queue: cl_command_queue, _src_buffer: cl_mem, _dst_image: cl_mem, _src_offset: size_t, _dst_origin: *const size_t, _region: *const size_t, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event) { fail(CL_INVALID_OPERATION) }
    fn clEnqueueMapBuffer(_command_queue: cl_command_queue, _buffer: cl_mem, _blocking_map: cl_bool, _map_flags: cl_map_flags, _offset: size_t, _size: size_t, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event; errcode_ret) -> *mut c_void { fail(CL_INVALID_OPERATION) }
    fn clEnqueueMapImage(_command_queue: cl_command_queue, _image: cl_mem, _blocking_map: cl_bool, _map_flags: cl_map_flags, _origin: *const size_t, _region: *const size_t, _image_row_pitch: *mut size_t, _image_slice_pitch: *mut size_t, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event; errcode_ret) -> *mut c_void { fail(CL_INVALID_OPERATION) }
    fn clEnqueueUnmapMemObject(_command_queue: cl_command_queue, _memobj: cl_mem, _mapped_ptr: *mut c_void, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event) { fail(CL_INVALID_OPERATION) }
    fn clEnqueueNDRangeKernel(_command_queue: cl_command_queue, _kernel: cl_kernel, _work_dim: cl_uint, _global_work_offset: *const size_t, _global_work_size: *const size_t, _local_work_size: *const size_t, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event) { fail(CL_INVALID_OPERATION) }
    fn clEnqueueTask(_command_queue: cl_command_queue, _kernel: cl_kernel, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event) { fail(CL_INVALID_OPERATION) }
    fn clEnqueueNativeKernel(_command_queue: cl_command_queue, _user_func: NativeKernel, _args: *mut c_void, _cb_args: size_t, _num_mem_objects: cl_uint, _mem_list: *const cl_mem, _args_mem_loc: *mut *const c_void, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event) { fail(CL_INVALID_OPERATION) }
    fn clCreateFromGLBuffer(_context: cl_context, _flags: cl_mem_flags, _bufobj: cl_GLuint; errcode_ret) -> cl_mem { fail(CL_INVALID_OPERATION) }
    fn clCreateFromGLTexture2D(_context: cl_context, _flags: cl_mem_flags, _target: cl_GLenum, _miplevel: cl_GLint, _texture: cl_GLuint; errcode_ret) -> cl_mem { fail(CL_INVALID_OPERATION) }
    fn clCreateFromGLTexture3D(_context: cl_context, _flags: cl_mem_flags, _target: cl_GLenum, _miplevel: cl_GLint, _texture: cl_GLuint; errcode_ret) -> cl_mem { fail(CL_INVALID_OPERATION) }
    fn clCreateFromGLRenderbuffer(_context: cl_context, _flags: cl_mem_flags, _renderbuffer: cl_GLuint; errcode_ret) -> cl_mem { fail(CL_INVALID_OPERATION) }
    fn clGetGLObjectInfo(_memobj: cl_mem, _gl_object_type: *mut cl_gl_object_type, _gl_object_name: *mut cl_GLuint) { fail(CL_INVALID_OPERATION) }
    fn clGetGLTextureInfo(_memobj: cl_mem, _param_name: cl_gl_texture_info, _param_value_size: size_t, _param_value: *mut c_void, _param_value_size_ret: *mut size_t) { fail(CL_INVALID_OPERATION) }
    fn clEnqueueAcquireGLObjects(_command_queue: cl_command_queue, _num_objects: cl_uint, _mem_objects: *const cl_mem, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event) { fail(CL_INVALID_OPERATION) }
    fn clEnqueueReleaseGLObjects(_command_queue: cl_command_queue, _num_objects: cl_uint, _mem_objects: *const cl_mem, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event) { fail(CL_INVALID_OPERATION) }
    fn clGetGLContextInfoKHR(_properties: *const cl_context_properties, _param_name: cl_gl_context_info, _param_value_size: size_t, _param_value: *mut c_void, _param_value_size_ret: *mut size_t) { fail(CL_INVALID_OPERATION) }
    fn clGetDeviceIDsFromD3D10KHR(_platform: cl_platform_id, _d3d_device_source: cl_d3d10_device_source_khr, _d3d_object: *mut c_void, _d3d_device_set: cl_d3d10_device_set_khr, _num_entries: cl_uint, _devices: *mut cl_device_id, _num_devices: *mut cl_uint) { fail(CL_INVALID_OPERATION) }
    fn clCreateFromD3D10BufferKHR(_context: cl_context, _flags: cl_mem_flags, _resource: ID3D10Buffer_ptr; errcode_ret) -> cl_mem { fail(CL_INVALID_OPERATION) }
    fn clCreateFromD3D10Texture2DKHR(_context: cl_context, _flags: cl_mem_flags, _resource: ID3D10Texture2D_ptr, _subresource: cl_uint; errcode_ret) -> cl_mem { fail(CL_INVALID_OPERATION) }
    fn clCreateFromD3D10Texture3DKHR(_context: cl_context, _flags: cl_mem_flags, _resource: ID3D10Texture3D_ptr, _subresource: cl_uint; errcode_ret) -> cl_mem { fail(CL_INVALID_OPERATION) }
    fn clEnqueueAcquireD3D10ObjectsKHR(_command_queue: cl_command_queue, _num_objects: cl_uint, _mem_objects: *const cl_mem, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event) { fail(CL_INVALID_OPERATION) }
    fn clEnqueueReleaseD3D10ObjectsKHR(_command_queue: cl_command_queue, _num_objects: cl_uint, _mem_objects: *const cl_mem, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event) { fail(CL_INVALID_OPERATION) }
    fn clCreateSubBuffer(_buffer: cl_mem, _flags: cl_mem_flags, _buffer_create_type: cl_buffer_create_type, _buffer_create_info: *const c_void; errcode_ret) -> cl_mem { fail(CL_INVALID_OPERATION) }
    fn clSetMemObjectDestructorCallback(_memobj: cl_mem, _pfn_notify: MemCallback, _user_data: *mut c_void) { fail(CL_INVALID_OPERATION) }
    fn clEnqueueReadBufferRect(_command_queue: cl_command_queue, _buffer: cl_mem, _blocking_read: cl_bool, _buffer_origin: *const size_t, _host_origin: *const size_t, _region: *const size_t, _buffer_row_pitch: size_t, _buffer_slice_pitch: size_t, _host_row_pitch: size_t, _host_slice_pitch: size_t, _ptr: *mut c_void, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event) { fail(CL_INVALID_OPERATION) }
    fn clEnqueueWriteBufferRect(_command_queue: cl_command_queue, _buffer: cl_mem, _blocking_write: cl_bool, _buffer_origin: *const size_t, _host_origin: *const size_t, _region: *const size_t, _buffer_row_pitch: size_t, _buffer_slice_pitch: size_t, _host_row_pitch: size_t, _host_slice_pitch: size_t, _ptr: *const c_void, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event) { fail(CL_INVALID_OPERATION) }
    fn clEnqueueCopyBufferRect(_command_queue: cl_command_queue, _src_buffer: cl_mem, _dst_buffer: cl_mem, _src_origin: *const size_t, _dst_origin: *const size_t, _region: *const size_t, _src_row_pitch: size_t, _src_slice_pitch: size_t, _dst_row_pitch: size_t, _dst_slice_pitch: size_t, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event) { fail(CL_INVALID_OPERATION) }
    fn clCreateSubDevicesEXT(_in_device: cl_device_id, _properties: *const cl_device_partition_property_ext, _num_entries: cl_uint, _out_devices: *mut cl_device_id, _num_devices: *mut cl_uint) { fail(CL_INVALID_OPERATION) }
    fn clRetainDeviceEXT(_device: cl_device_id) { fail(CL_INVALID_OPERATION) }
    fn clReleaseDeviceEXT(_device: cl_device_id) { fail(CL_INVALID_OPERATION) }
    fn clCreateEventFromGLsyncKHR(_context: cl_context, _sync: cl_GLsync; errcode_ret) -> cl_event { fail(CL_INVALID_OPERATION) }
    fn clCreateSubDevices(_in_device: cl_device_id, _properties: *const cl_device_partition_property, _num_devices: cl_uint, _out_devices: *mut cl_device_id, _num_devices_ret: *mut cl_uint) { fail(CL_INVALID_OPERATION) }
    fn clCreateImage(_context: cl_context, _flags: cl_mem_flags, _image_format: *const cl_image_format, _image_desc: *const cl_image_desc, _host_ptr: *mut c_void; errcode_ret) -> cl_mem { fail(CL_INVALID_OPERATION) }
    fn clCreateProgramWithBuiltInKernels(_context: cl_context, _num_devices: cl_uint, _device_list: *const cl_device_id, _kernel_names: *const c_char; errcode_ret) -> cl_program { fail(CL_INVALID_OPERATION) }
    fn clCompileProgram(_program: cl_program, _num_devices: cl_uint, _device_list: *const cl_device_id, _options: *const c_char, _num_input_headers: cl_uint, _input_headers: *const cl_program, _header_include_names: *mut *const c_char, _pfn_notify: ProgramCallback, _user_data: *mut c_void) { fail(CL_INVALID_OPERATION) }
    fn clLinkProgram(_context: cl_context, _num_devices: cl_uint, _device_list: *const cl_device_id, _options: *const c_char, _num_input_programs: cl_uint, _input_programs: *const cl_program, _pfn_notify: ProgramCallback, _user_data: *mut c_void; errcode_ret) -> cl_program { fail(CL_INVALID_OPERATION) }
    fn clUnloadPlatformCompiler(_platform: cl_platform_id) { fail(CL_INVALID_OPERATION) }
    fn clGetKernelArgInfo(_kernel: cl_kernel, _arg_index: cl_uint, _param_name: cl_kernel_arg_info, _param_value_size: size_t, _param_value: *mut c_void, _param_value_size_ret: *mut size_t) { fail(CL_INVALID_OPERATION) }
    fn clEnqueueFillBuffer(_command_queue: cl_command_queue, _buffer: cl_mem, _pattern: *const c_void, _pattern_size: size_t, _offset: size_t, _size: size_t, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event) { fail(CL_INVALID_OPERATION) }
    fn clEnqueueFillImage(_command_queue: cl_command_queue, _image: cl_mem, _fill_color: *const c_void, _origin: *const size_t, _region: *const size_t, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event) { fail(CL_INVALID_OPERATION) }
    fn clEnqueueMigrateMemObjects(_command_queue: cl_command_queue, _num_mem_objects: cl_uint, _mem_objects: *const cl_mem, _flags: cl_mem_migration_flags, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event) { fail(CL_INVALID_OPERATION) }
    fn clCreateFromGLTexture(_context: cl_context, _flags: cl_mem_flags, _target: cl_GLenum, _miplevel: cl_GLint, _texture: cl_GLuint; errcode_ret) -> cl_mem { fail(CL_INVALID_OPERATION) }
    fn clGetDeviceIDsFromD3D11KHR(_platform: cl_platform_id, _d3d_device_source: cl_d3d11_device_source_khr, _d3d_object: *mut c_void, _d3d_device_set: cl_d3d11_device_set_khr, _num_entries: cl_uint, _devices: *mut cl_device_id, _num_devices: *mut cl_uint) { fail(CL_INVALID_OPERATION) }
    fn clCreateFromD3D11BufferKHR(_context: cl_context, _flags: cl_mem_flags, _resource: ID3D11Buffer_ptr; errcode_ret) -> cl_mem { fail(CL_INVALID_OPERATION) }
    fn clCreateFromD3D11Texture2DKHR(_context: cl_context, _flags: cl_mem_flags, _resource: ID3D11Texture2D_ptr, _subresource: cl_uint; errcode_ret) -> cl_mem { fail(CL_INVALID_OPERATION) }
    fn clCreateFromD3D11Texture3DKHR(_context: cl_context, _flags: cl_mem_flags, _resource: ID3D11Texture3D_ptr, _subresource: cl_uint; errcode_ret) -> cl_mem { fail(CL_INVALID_OPERATION) }
    fn clCreateFromDX9MediaSurfaceKHR(_context: cl_context, _flags: cl_mem_flags, _adapter_type: cl_dx9_media_adapter_type_khr, _surface_info: *mut c_void, _plane: cl_uint; errcode_ret) -> cl_mem { fail(CL_INVALID_OPERATION) }
    fn clEnqueueAcquireD3D11ObjectsKHR(_command_queue: cl_command_queue, _num_objects: cl_uint, _mem_objects: *const cl_mem, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event) { fail(CL_INVALID_OPERATION) }
    fn clEnqueueReleaseD3D11ObjectsKHR(_command_queue: cl_command_queue, _num_objects: cl_uint, _mem_objects: *const cl_mem, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event) { fail(CL_INVALID_OPERATION) }
    fn clGetDeviceIDsFromDX9MediaAdapterKHR(_platform: cl_platform_id, _num_media_adapters: cl_uint, _media_adapter_type: *mut cl_dx9_media_adapter_type_khr, _media_adapters: *mut c_void, _media_adapter_set: cl_dx9_media_adapter_set_khr, _num_entries: cl_uint, _devices: *mut cl_device_id, _num_devices: *mut cl_uint) { fail(CL_INVALID_OPERATION) }
    fn clEnqueueAcquireDX9MediaSurfacesKHR(_command_queue: cl_command_queue, _num_objects: cl_uint, _mem_objects: *const cl_mem, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event) { fail(CL_INVALID_OPERATION) }
    fn clEnqueueReleaseDX9MediaSurfacesKHR(_command_queue: cl_command_queue, _num_objects: cl_uint, _mem_objects: *const cl_mem, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event) { fail(CL_INVALID_OPERATION) }
    fn clCreateFromEGLImageKHR(_context: cl_context, _egldisplay: CLeglDisplayKHR, _eglimage: CLeglImageKHR, _flags: cl_mem_flags, _properties: *const cl_egl_image_properties_khr; errcode_ret) -> cl_mem { fail(CL_INVALID_OPERATION) }
    fn clEnqueueAcquireEGLObjectsKHR(_command_queue: cl_command_queue, _num_objects: cl_uint, _mem_objects: *const cl_mem, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event) { fail(CL_INVALID_OPERATION) }
    fn clEnqueueReleaseEGLObjectsKHR(_command_queue: cl_command_queue, _num_objects: cl_uint, _mem_objects: *const cl_mem, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event) { fail(CL_INVALID_OPERATION) }
    fn clCreateEventFromEGLSyncKHR(_context: cl_context, _sync: CLeglSyncKHR, _display: CLeglDisplayKHR; errcode_ret) -> cl_event { fail(CL_INVALID_OPERATION) }
    fn clCreatePipe(_context: cl_context, _flags: cl_mem_flags, _pipe_packet_size: cl_uint, _pipe_max_packets: cl_uint, _properties: *const cl_pipe_properties; errcode_ret) -> cl_mem { fail(CL_INVALID_OPERATION) }
    fn clGetPipeInfo(_pipe: cl_mem, _param_name: cl_pipe_info, _param_value_size: size_t, _param_value: *mut c_void, _param_value_size_ret: *mut size_t) { fail(CL_INVALID_OPERATION) }
    fn clEnqueueSVMFree(_command_queue: cl_command_queue, _num_svm_pointers: cl_uint, _svm_pointers: *mut *mut c_void, _pfn_free_func: SvmFreeCallback, _user_data: *mut c_void, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event) { fail(CL_INVALID_OPERATION) }
    fn clEnqueueSVMMemcpy(_command_queue: cl_command_queue, _blocking_copy: cl_bool, _dst_ptr: *mut c_void, _src_ptr: *const c_void, _size: size_t, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event) { fail(CL_INVALID_OPERATION) }
    fn clEnqueueSVMMemFill(_command_queue: cl_command_queue, _svm_ptr: *mut c_void, _pattern: *const c_void, _pattern_size: size_t, _size: size_t, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event) { fail(CL_INVALID_OPERATION) }
    fn clEnqueueSVMMap(_command_queue: cl_command_queue, _blocking_map: cl_bool, _flags: cl_map_flags, _svm_ptr: *mut c_void, _size: size_t, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event) { fail(CL_INVALID_OPERATION) }
    fn clEnqueueSVMUnmap(_command_queue: cl_command_queue, _svm_ptr: *mut c_void, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event) { fail(CL_INVALID_OPERATION) }
    fn clCreateSamplerWithProperties(_context: cl_context, _sampler_properties: *const cl_sampler_properties; errcode_ret) -> cl_sampler { fail(CL_INVALID_OPERATION) }
    fn clSetKernelArgSVMPointer(_kernel: cl_kernel, _arg_index: cl_uint, _arg_value: *const c_void) { fail(CL_INVALID_OPERATION) }
    fn clSetKernelExecInfo(_kernel: cl_kernel, _param_name: cl_kernel_exec_info, _param_value_size: size_t, _param_value: *const c_void) { fail(CL_INVALID_OPERATION) }
    fn clGetKernelSubGroupInfoKHR(_in_kernel: cl_kernel, _in_device: cl_device_id, _param_name: cl_kernel_sub_group_info, _input_value_size: size_t, _input_value: *const c_void, _param_value_size: size_t, _param_value: *mut c_void, _param_value_size_ret: *mut size_t) { fail(CL_INVALID_OPERATION) }
    fn clCloneKernel(_source_kernel: cl_kernel; errcode_ret) -> cl_kernel { fail(CL_INVALID_OPERATION) }
    fn clCreateProgramWithIL(_context: cl_context, _il: *const c_void, _length: size_t; errcode_ret) -> cl_program { fail(CL_INVALID_OPERATION) }
    fn clEnqueueSVMMigrateMem(_command_queue: cl_command_queue, _num_svm_pointers: cl_uint, _svm_pointers: *mut *const c_void, _sizes: *const size_t, _flags: cl_mem_migration_flags, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event) { fail(CL_INVALID_OPERATION) }
    fn clGetDeviceAndHostTimer(_device: cl_device_id, _device_timestamp: *mut cl_ulong, _host_timestamp: *mut cl_ulong) { fail(CL_INVALID_OPERATION) }
    fn clGetHostTimer(_device: cl_device_id, _host_timestamp: *mut cl_ulong) { fail(CL_INVALID_OPERATION) }
    fn clGetKernelSubGroupInfo(_kernel: cl_kernel, _device: cl_device_id, _param_name: cl_kernel_sub_group_info, _input_value_size: size_t, _input_value: *const c_void, _param_value_size: size_t, _param_value: *mut c_void, _param_value_size_ret: *mut size_t) { fail(CL_INVALID_OPERATION) }
    fn clSetProgramReleaseCallback(_program: cl_program, _pfn_notify: ProgramCallback, _user_data: *mut c_void) { fail(CL_INVALID_OPERATION) }
    fn clSetProgramSpecializationConstant(_program: cl_program, _spec_id: cl_uint, _spec_size: size_t, _spec_value: *const c_void) { fail(CL_INVALID_OPERATION) }
    fn clCreateBufferWithProperties(_context: cl_context, _properties: *const cl_mem_properties, _flags: cl_mem_flags, _size: size_t, _host_ptr: *mut c_void; errcode_ret) -> cl_mem { fail(CL_INVALID_OPERATION) }
    fn clCreateImageWithProperties(_context: cl_context, _properties: *const cl_mem_properties, _flags: cl_mem_flags, _image_format: *const cl_image_format, _image_desc: *const cl_image_desc, _host_ptr: *mut c_void; errcode_ret) -> cl_mem { fail(CL_INVALID_OPERATION) }
    fn clGetKernelSuggestedLocalWorkSize(_command_queue: cl_command_queue, _kernel: cl_kernel, _work_dim: cl_uint, _global_work_offset: *const size_t, _global_work_size: *const size_t, _suggested_local_work_size: *mut size_t) { fail(CL_INVALID_OPERATION) }
}

/// SVM is absent: there is nothing to free.
#[allow(non_snake_case, reason = "OpenCL's name")]
pub(crate) unsafe extern "C" fn clSVMFree(_context: cl_context, _svm_pointer: *mut c_void) {}
