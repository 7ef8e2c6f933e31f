//! The one list of OpenCL's entry points, in the order of the dispatch table.
//!
//! Everything that names all functions of the API is made from this list: the dispatch table and its layout
//! checks, the lookup by name, and the exports of the drop-in `libOpenCL.so.1`. The list is a macro that
//! passes its entries to another macro, because only macros can turn names into functions.
//!
//! Extension functions without a slot are not in this list. The modules that implement them list them.
//!
//! Invariant: an entry's number is its slot in `cl_icd_dispatch`. Slots are only appended, never reordered
//! or removed, because compiled loaders and drivers rely on the offsets.

/// Passes all 150 entry points to the macro `$callback`, in slot order.
///
/// Tokens after a comma are passed to the callback first, in brackets. Each entry has the form
///
/// ```text
/// SLOT core(V1_0) | extension("cl_khr_…") NODE null(PARAMETER CODE) fails(HOW)
///     fn NAME(PARAMETER: TYPE, …) -> TYPE;
/// ```
///
/// - `core` names the version that introduced the function, `extension` the extension it belongs to.
/// - `NODE` is the symbol version under which a Linux loader exports the function, named as the variants of
///   [`SymbolVersion`](crate::SymbolVersion). `hidden` means that no loader exports it.
/// - `null(…)` is empty, or names the handle that a loader must not follow when it is NULL, and the error
///   code for that case.
/// - `HOW` is how the function reports an error: `code` (by its return value), `errcode_ret` (through that
///   parameter, with a NULL result), `pointer` (by a NULL result only) or `nothing` (not at all).
///
/// Types have the names of [`types`](crate::types). A caller whose expansion mentions them needs
/// `use cl_headers::types::*`.
///
/// ```
/// macro_rules! count {
///     ($($slot:literal $origin:ident($($of:tt)*) $node:ident null($($null:tt)*) fails($how:ident)
///        fn $name:ident($($parameter:ident: $ty:ty),*) -> $ret:ty;)*) => {
///         [$(stringify!($name)),*].len()
///     };
/// }
/// assert_eq!(cl_headers::for_each_entry_point!(count), 150);
/// ```
#[macro_export]
macro_rules! for_each_entry_point {
    ([$($callback:tt)+] $(, $($extra:tt)*)?) => {
        $($callback)+! {
            $([$($extra)*])?
            0 core(V1_0) OPENCL_1_0 null() fails(code)
                fn clGetPlatformIDs(
                    num_entries: cl_uint, platforms: *mut cl_platform_id, num_platforms: *mut cl_uint
                ) -> cl_int;
            1 core(V1_0) OPENCL_1_0 null(platform CL_INVALID_PLATFORM) fails(code)
                fn clGetPlatformInfo(
                    platform: cl_platform_id, param_name: cl_platform_info, param_value_size: size_t,
                    param_value: *mut c_void, param_value_size_ret: *mut size_t
                ) -> cl_int;
            2 core(V1_0) OPENCL_1_0 null(platform CL_INVALID_PLATFORM) fails(code)
                fn clGetDeviceIDs(
                    platform: cl_platform_id, device_type: cl_device_type, num_entries: cl_uint,
                    devices: *mut cl_device_id, num_devices: *mut cl_uint
                ) -> cl_int;
            3 core(V1_0) OPENCL_1_0 null(device CL_INVALID_DEVICE) fails(code)
                fn clGetDeviceInfo(
                    device: cl_device_id, param_name: cl_device_info, param_value_size: size_t,
                    param_value: *mut c_void, param_value_size_ret: *mut size_t
                ) -> cl_int;
            4 core(V1_0) OPENCL_1_0 null() fails(errcode_ret)
                fn clCreateContext(
                    properties: *const cl_context_properties, num_devices: cl_uint,
                    devices: *const cl_device_id, pfn_notify: ContextCallback, user_data: *mut c_void,
                    errcode_ret: *mut cl_int
                ) -> cl_context;
            5 core(V1_0) OPENCL_1_0 null() fails(errcode_ret)
                fn clCreateContextFromType(
                    properties: *const cl_context_properties, device_type: cl_device_type,
                    pfn_notify: ContextCallback, user_data: *mut c_void, errcode_ret: *mut cl_int
                ) -> cl_context;
            6 core(V1_0) OPENCL_1_0 null(context CL_INVALID_CONTEXT) fails(code)
                fn clRetainContext(context: cl_context) -> cl_int;
            7 core(V1_0) OPENCL_1_0 null(context CL_INVALID_CONTEXT) fails(code)
                fn clReleaseContext(context: cl_context) -> cl_int;
            8 core(V1_0) OPENCL_1_0 null(context CL_INVALID_CONTEXT) fails(code)
                fn clGetContextInfo(
                    context: cl_context, param_name: cl_context_info, param_value_size: size_t,
                    param_value: *mut c_void, param_value_size_ret: *mut size_t
                ) -> cl_int;
            9 core(V1_0) OPENCL_1_0 null(context CL_INVALID_CONTEXT) fails(errcode_ret)
                fn clCreateCommandQueue(
                    context: cl_context, device: cl_device_id, properties: cl_command_queue_properties,
                    errcode_ret: *mut cl_int
                ) -> cl_command_queue;
            10 core(V1_0) OPENCL_1_0 null(command_queue CL_INVALID_COMMAND_QUEUE) fails(code)
                fn clRetainCommandQueue(command_queue: cl_command_queue) -> cl_int;
            11 core(V1_0) OPENCL_1_0 null(command_queue CL_INVALID_COMMAND_QUEUE) fails(code)
                fn clReleaseCommandQueue(command_queue: cl_command_queue) -> cl_int;
            12 core(V1_0) OPENCL_1_0 null(command_queue CL_INVALID_COMMAND_QUEUE) fails(code)
                fn clGetCommandQueueInfo(
                    command_queue: cl_command_queue, param_name: cl_command_queue_info,
                    param_value_size: size_t, param_value: *mut c_void,
                    param_value_size_ret: *mut size_t
                ) -> cl_int;
            13 core(V1_0) OPENCL_1_0 null(command_queue CL_INVALID_COMMAND_QUEUE) fails(code)
                fn clSetCommandQueueProperty(
                    command_queue: cl_command_queue, properties: cl_command_queue_properties,
                    enable: cl_bool, old_properties: *mut cl_command_queue_properties
                ) -> cl_int;
            14 core(V1_0) OPENCL_1_0 null(context CL_INVALID_CONTEXT) fails(errcode_ret)
                fn clCreateBuffer(
                    context: cl_context, flags: cl_mem_flags, size: size_t, host_ptr: *mut c_void,
                    errcode_ret: *mut cl_int
                ) -> cl_mem;
            15 core(V1_0) OPENCL_1_0 null(context CL_INVALID_CONTEXT) fails(errcode_ret)
                fn clCreateImage2D(
                    context: cl_context, flags: cl_mem_flags, image_format: *const cl_image_format,
                    image_width: size_t, image_height: size_t, image_row_pitch: size_t,
                    host_ptr: *mut c_void, errcode_ret: *mut cl_int
                ) -> cl_mem;
            16 core(V1_0) OPENCL_1_0 null(context CL_INVALID_CONTEXT) fails(errcode_ret)
                fn clCreateImage3D(
                    context: cl_context, flags: cl_mem_flags, image_format: *const cl_image_format,
                    image_width: size_t, image_height: size_t, image_depth: size_t,
                    image_row_pitch: size_t, image_slice_pitch: size_t, host_ptr: *mut c_void,
                    errcode_ret: *mut cl_int
                ) -> cl_mem;
            17 core(V1_0) OPENCL_1_0 null(memobj CL_INVALID_MEM_OBJECT) fails(code)
                fn clRetainMemObject(memobj: cl_mem) -> cl_int;
            18 core(V1_0) OPENCL_1_0 null(memobj CL_INVALID_MEM_OBJECT) fails(code)
                fn clReleaseMemObject(memobj: cl_mem) -> cl_int;
            19 core(V1_0) OPENCL_1_0 null(context CL_INVALID_CONTEXT) fails(code)
                fn clGetSupportedImageFormats(
                    context: cl_context, flags: cl_mem_flags, image_type: cl_mem_object_type,
                    num_entries: cl_uint, image_formats: *mut cl_image_format,
                    num_image_formats: *mut cl_uint
                ) -> cl_int;
            20 core(V1_0) OPENCL_1_0 null(memobj CL_INVALID_MEM_OBJECT) fails(code)
                fn clGetMemObjectInfo(
                    memobj: cl_mem, param_name: cl_mem_info, param_value_size: size_t,
                    param_value: *mut c_void, param_value_size_ret: *mut size_t
                ) -> cl_int;
            21 core(V1_0) OPENCL_1_0 null(image CL_INVALID_MEM_OBJECT) fails(code)
                fn clGetImageInfo(
                    image: cl_mem, param_name: cl_image_info, param_value_size: size_t,
                    param_value: *mut c_void, param_value_size_ret: *mut size_t
                ) -> cl_int;
            22 core(V1_0) OPENCL_1_0 null(context CL_INVALID_CONTEXT) fails(errcode_ret)
                fn clCreateSampler(
                    context: cl_context, normalized_coords: cl_bool, addressing_mode: cl_addressing_mode,
                    filter_mode: cl_filter_mode, errcode_ret: *mut cl_int
                ) -> cl_sampler;
            23 core(V1_0) OPENCL_1_0 null(sampler CL_INVALID_SAMPLER) fails(code)
                fn clRetainSampler(sampler: cl_sampler) -> cl_int;
            24 core(V1_0) OPENCL_1_0 null(sampler CL_INVALID_SAMPLER) fails(code)
                fn clReleaseSampler(sampler: cl_sampler) -> cl_int;
            25 core(V1_0) OPENCL_1_0 null(sampler CL_INVALID_SAMPLER) fails(code)
                fn clGetSamplerInfo(
                    sampler: cl_sampler, param_name: cl_sampler_info, param_value_size: size_t,
                    param_value: *mut c_void, param_value_size_ret: *mut size_t
                ) -> cl_int;
            26 core(V1_0) OPENCL_1_0 null(context CL_INVALID_CONTEXT) fails(errcode_ret)
                fn clCreateProgramWithSource(
                    context: cl_context, count: cl_uint, strings: *mut *const c_char,
                    lengths: *const size_t, errcode_ret: *mut cl_int
                ) -> cl_program;
            27 core(V1_0) OPENCL_1_0 null(context CL_INVALID_CONTEXT) fails(errcode_ret)
                fn clCreateProgramWithBinary(
                    context: cl_context, num_devices: cl_uint, device_list: *const cl_device_id,
                    lengths: *const size_t, binaries: *mut *const c_uchar, binary_status: *mut cl_int,
                    errcode_ret: *mut cl_int
                ) -> cl_program;
            28 core(V1_0) OPENCL_1_0 null(program CL_INVALID_PROGRAM) fails(code)
                fn clRetainProgram(program: cl_program) -> cl_int;
            29 core(V1_0) OPENCL_1_0 null(program CL_INVALID_PROGRAM) fails(code)
                fn clReleaseProgram(program: cl_program) -> cl_int;
            30 core(V1_0) OPENCL_1_0 null(program CL_INVALID_PROGRAM) fails(code)
                fn clBuildProgram(
                    program: cl_program, num_devices: cl_uint, device_list: *const cl_device_id,
                    options: *const c_char, pfn_notify: ProgramCallback, user_data: *mut c_void
                ) -> cl_int;
            31 core(V1_0) OPENCL_1_0 null() fails(code)
                fn clUnloadCompiler() -> cl_int;
            32 core(V1_0) OPENCL_1_0 null(program CL_INVALID_PROGRAM) fails(code)
                fn clGetProgramInfo(
                    program: cl_program, param_name: cl_program_info, param_value_size: size_t,
                    param_value: *mut c_void, param_value_size_ret: *mut size_t
                ) -> cl_int;
            33 core(V1_0) OPENCL_1_0 null(program CL_INVALID_PROGRAM) fails(code)
                fn clGetProgramBuildInfo(
                    program: cl_program, device: cl_device_id, param_name: cl_program_build_info,
                    param_value_size: size_t, param_value: *mut c_void,
                    param_value_size_ret: *mut size_t
                ) -> cl_int;
            34 core(V1_0) OPENCL_1_0 null(program CL_INVALID_PROGRAM) fails(errcode_ret)
                fn clCreateKernel(
                    program: cl_program, kernel_name: *const c_char, errcode_ret: *mut cl_int
                ) -> cl_kernel;
            35 core(V1_0) OPENCL_1_0 null(program CL_INVALID_PROGRAM) fails(code)
                fn clCreateKernelsInProgram(
                    program: cl_program, num_kernels: cl_uint, kernels: *mut cl_kernel,
                    num_kernels_ret: *mut cl_uint
                ) -> cl_int;
            36 core(V1_0) OPENCL_1_0 null(kernel CL_INVALID_KERNEL) fails(code)
                fn clRetainKernel(kernel: cl_kernel) -> cl_int;
            37 core(V1_0) OPENCL_1_0 null(kernel CL_INVALID_KERNEL) fails(code)
                fn clReleaseKernel(kernel: cl_kernel) -> cl_int;
            38 core(V1_0) OPENCL_1_0 null(kernel CL_INVALID_KERNEL) fails(code)
                fn clSetKernelArg(
                    kernel: cl_kernel, arg_index: cl_uint, arg_size: size_t, arg_value: *const c_void
                ) -> cl_int;
            39 core(V1_0) OPENCL_1_0 null(kernel CL_INVALID_KERNEL) fails(code)
                fn clGetKernelInfo(
                    kernel: cl_kernel, param_name: cl_kernel_info, param_value_size: size_t,
                    param_value: *mut c_void, param_value_size_ret: *mut size_t
                ) -> cl_int;
            40 core(V1_0) OPENCL_1_0 null(kernel CL_INVALID_KERNEL) fails(code)
                fn clGetKernelWorkGroupInfo(
                    kernel: cl_kernel, device: cl_device_id, param_name: cl_kernel_work_group_info,
                    param_value_size: size_t, param_value: *mut c_void,
                    param_value_size_ret: *mut size_t
                ) -> cl_int;
            41 core(V1_0) OPENCL_1_0 null() fails(code)
                fn clWaitForEvents(num_events: cl_uint, event_list: *const cl_event) -> cl_int;
            42 core(V1_0) OPENCL_1_0 null(event CL_INVALID_EVENT) fails(code)
                fn clGetEventInfo(
                    event: cl_event, param_name: cl_event_info, param_value_size: size_t,
                    param_value: *mut c_void, param_value_size_ret: *mut size_t
                ) -> cl_int;
            43 core(V1_0) OPENCL_1_0 null(event CL_INVALID_EVENT) fails(code)
                fn clRetainEvent(event: cl_event) -> cl_int;
            44 core(V1_0) OPENCL_1_0 null(event CL_INVALID_EVENT) fails(code)
                fn clReleaseEvent(event: cl_event) -> cl_int;
            45 core(V1_0) OPENCL_1_0 null(event CL_INVALID_EVENT) fails(code)
                fn clGetEventProfilingInfo(
                    event: cl_event, param_name: cl_profiling_info, param_value_size: size_t,
                    param_value: *mut c_void, param_value_size_ret: *mut size_t
                ) -> cl_int;
            46 core(V1_0) OPENCL_1_0 null(command_queue CL_INVALID_COMMAND_QUEUE) fails(code)
                fn clFlush(command_queue: cl_command_queue) -> cl_int;
            47 core(V1_0) OPENCL_1_0 null(command_queue CL_INVALID_COMMAND_QUEUE) fails(code)
                fn clFinish(command_queue: cl_command_queue) -> cl_int;
            48 core(V1_0) OPENCL_1_0 null(command_queue CL_INVALID_COMMAND_QUEUE) fails(code)
                fn clEnqueueReadBuffer(
                    command_queue: cl_command_queue, buffer: cl_mem, blocking_read: cl_bool,
                    offset: size_t, size: size_t, ptr: *mut c_void, num_events_in_wait_list: cl_uint,
                    event_wait_list: *const cl_event, event: *mut cl_event
                ) -> cl_int;
            49 core(V1_0) OPENCL_1_0 null(command_queue CL_INVALID_COMMAND_QUEUE) fails(code)
                fn clEnqueueWriteBuffer(
                    command_queue: cl_command_queue, buffer: cl_mem, blocking_write: cl_bool,
                    offset: size_t, size: size_t, ptr: *const c_void, num_events_in_wait_list: cl_uint,
                    event_wait_list: *const cl_event, event: *mut cl_event
                ) -> cl_int;
            50 core(V1_0) OPENCL_1_0 null(command_queue CL_INVALID_COMMAND_QUEUE) fails(code)
                fn clEnqueueCopyBuffer(
                    command_queue: cl_command_queue, src_buffer: cl_mem, dst_buffer: cl_mem,
                    src_offset: size_t, dst_offset: size_t, size: size_t,
                    num_events_in_wait_list: cl_uint, event_wait_list: *const cl_event,
                    event: *mut cl_event
                ) -> cl_int;
            51 core(V1_0) OPENCL_1_0 null(command_queue CL_INVALID_COMMAND_QUEUE) fails(code)
                fn clEnqueueReadImage(
                    command_queue: cl_command_queue, image: cl_mem, blocking_read: cl_bool,
                    origin: *const size_t, region: *const size_t, row_pitch: size_t, slice_pitch: size_t,
                    ptr: *mut c_void, num_events_in_wait_list: cl_uint, event_wait_list: *const cl_event,
                    event: *mut cl_event
                ) -> cl_int;
            52 core(V1_0) OPENCL_1_0 null(command_queue CL_INVALID_COMMAND_QUEUE) fails(code)
                fn clEnqueueWriteImage(
                    command_queue: cl_command_queue, image: cl_mem, blocking_write: cl_bool,
                    origin: *const size_t, region: *const size_t, input_row_pitch: size_t,
                    input_slice_pitch: size_t, ptr: *const c_void, num_events_in_wait_list: cl_uint,
                    event_wait_list: *const cl_event, event: *mut cl_event
                ) -> cl_int;
            53 core(V1_0) OPENCL_1_0 null(command_queue CL_INVALID_COMMAND_QUEUE) fails(code)
                fn clEnqueueCopyImage(
                    command_queue: cl_command_queue, src_image: cl_mem, dst_image: cl_mem,
                    src_origin: *const size_t, dst_origin: *const size_t, region: *const size_t,
                    num_events_in_wait_list: cl_uint, event_wait_list: *const cl_event,
                    event: *mut cl_event
                ) -> cl_int;
            54 core(V1_0) OPENCL_1_0 null(command_queue CL_INVALID_COMMAND_QUEUE) fails(code)
                fn clEnqueueCopyImageToBuffer(
                    command_queue: cl_command_queue, src_image: cl_mem, dst_buffer: cl_mem,
                    src_origin: *const size_t, region: *const size_t, dst_offset: size_t,
                    num_events_in_wait_list: cl_uint, event_wait_list: *const cl_event,
                    event: *mut cl_event
                ) -> cl_int;
            55 core(V1_0) OPENCL_1_0 null(command_queue CL_INVALID_COMMAND_QUEUE) fails(code)
                fn clEnqueueCopyBufferToImage(
                    command_queue: cl_command_queue, src_buffer: cl_mem, dst_image: cl_mem,
                    src_offset: size_t, dst_origin: *const size_t, region: *const size_t,
                    num_events_in_wait_list: cl_uint, event_wait_list: *const cl_event,
                    event: *mut cl_event
                ) -> cl_int;
            56 core(V1_0) OPENCL_1_0 null(command_queue CL_INVALID_COMMAND_QUEUE) fails(errcode_ret)
                fn clEnqueueMapBuffer(
                    command_queue: cl_command_queue, buffer: cl_mem, blocking_map: cl_bool,
                    map_flags: cl_map_flags, offset: size_t, size: size_t,
                    num_events_in_wait_list: cl_uint, event_wait_list: *const cl_event,
                    event: *mut cl_event, errcode_ret: *mut cl_int
                ) -> *mut c_void;
            57 core(V1_0) OPENCL_1_0 null(command_queue CL_INVALID_COMMAND_QUEUE) fails(errcode_ret)
                fn clEnqueueMapImage(
                    command_queue: cl_command_queue, image: cl_mem, blocking_map: cl_bool,
                    map_flags: cl_map_flags, origin: *const size_t, region: *const size_t,
                    image_row_pitch: *mut size_t, image_slice_pitch: *mut size_t,
                    num_events_in_wait_list: cl_uint, event_wait_list: *const cl_event,
                    event: *mut cl_event, errcode_ret: *mut cl_int
                ) -> *mut c_void;
            58 core(V1_0) OPENCL_1_0 null(command_queue CL_INVALID_COMMAND_QUEUE) fails(code)
                fn clEnqueueUnmapMemObject(
                    command_queue: cl_command_queue, memobj: cl_mem, mapped_ptr: *mut c_void,
                    num_events_in_wait_list: cl_uint, event_wait_list: *const cl_event,
                    event: *mut cl_event
                ) -> cl_int;
            59 core(V1_0) OPENCL_1_0 null(command_queue CL_INVALID_COMMAND_QUEUE) fails(code)
                fn clEnqueueNDRangeKernel(
                    command_queue: cl_command_queue, kernel: cl_kernel, work_dim: cl_uint,
                    global_work_offset: *const size_t, global_work_size: *const size_t,
                    local_work_size: *const size_t, num_events_in_wait_list: cl_uint,
                    event_wait_list: *const cl_event, event: *mut cl_event
                ) -> cl_int;
            60 core(V1_0) OPENCL_1_0 null(command_queue CL_INVALID_COMMAND_QUEUE) fails(code)
                fn clEnqueueTask(
                    command_queue: cl_command_queue, kernel: cl_kernel, num_events_in_wait_list: cl_uint,
                    event_wait_list: *const cl_event, event: *mut cl_event
                ) -> cl_int;
            61 core(V1_0) OPENCL_1_0 null(command_queue CL_INVALID_COMMAND_QUEUE) fails(code)
                fn clEnqueueNativeKernel(
                    command_queue: cl_command_queue, user_func: NativeKernel, args: *mut c_void,
                    cb_args: size_t, num_mem_objects: cl_uint, mem_list: *const cl_mem,
                    args_mem_loc: *mut *const c_void, num_events_in_wait_list: cl_uint,
                    event_wait_list: *const cl_event, event: *mut cl_event
                ) -> cl_int;
            62 core(V1_0) OPENCL_1_0 null(command_queue CL_INVALID_COMMAND_QUEUE) fails(code)
                fn clEnqueueMarker(command_queue: cl_command_queue, event: *mut cl_event) -> cl_int;
            63 core(V1_0) OPENCL_1_0 null(command_queue CL_INVALID_COMMAND_QUEUE) fails(code)
                fn clEnqueueWaitForEvents(
                    command_queue: cl_command_queue, num_events: cl_uint, event_list: *const cl_event
                ) -> cl_int;
            64 core(V1_0) OPENCL_1_0 null(command_queue CL_INVALID_COMMAND_QUEUE) fails(code)
                fn clEnqueueBarrier(command_queue: cl_command_queue) -> cl_int;
            65 core(V1_0) OPENCL_1_0 null() fails(pointer)
                fn clGetExtensionFunctionAddress(func_name: *const c_char) -> *mut c_void;
            66 extension("cl_khr_gl_sharing") OPENCL_1_0 null(context CL_INVALID_CONTEXT) fails(errcode_ret)
                fn clCreateFromGLBuffer(
                    context: cl_context, flags: cl_mem_flags, bufobj: cl_GLuint,
                    errcode_ret: *mut cl_int
                ) -> cl_mem;
            67 extension("cl_khr_gl_sharing") OPENCL_1_0 null(context CL_INVALID_CONTEXT) fails(errcode_ret)
                fn clCreateFromGLTexture2D(
                    context: cl_context, flags: cl_mem_flags, target: cl_GLenum, miplevel: cl_GLint,
                    texture: cl_GLuint, errcode_ret: *mut cl_int
                ) -> cl_mem;
            68 extension("cl_khr_gl_sharing") OPENCL_1_0 null(context CL_INVALID_CONTEXT) fails(errcode_ret)
                fn clCreateFromGLTexture3D(
                    context: cl_context, flags: cl_mem_flags, target: cl_GLenum, miplevel: cl_GLint,
                    texture: cl_GLuint, errcode_ret: *mut cl_int
                ) -> cl_mem;
            69 extension("cl_khr_gl_sharing") OPENCL_1_0 null(context CL_INVALID_CONTEXT) fails(errcode_ret)
                fn clCreateFromGLRenderbuffer(
                    context: cl_context, flags: cl_mem_flags, renderbuffer: cl_GLuint,
                    errcode_ret: *mut cl_int
                ) -> cl_mem;
            70 extension("cl_khr_gl_sharing") OPENCL_1_0 null(memobj CL_INVALID_MEM_OBJECT) fails(code)
                fn clGetGLObjectInfo(
                    memobj: cl_mem, gl_object_type: *mut cl_gl_object_type,
                    gl_object_name: *mut cl_GLuint
                ) -> cl_int;
            71 extension("cl_khr_gl_sharing") OPENCL_1_0 null(memobj CL_INVALID_MEM_OBJECT) fails(code)
                fn clGetGLTextureInfo(
                    memobj: cl_mem, param_name: cl_gl_texture_info, param_value_size: size_t,
                    param_value: *mut c_void, param_value_size_ret: *mut size_t
                ) -> cl_int;
            72 extension("cl_khr_gl_sharing") OPENCL_1_0 null(command_queue CL_INVALID_COMMAND_QUEUE) fails(code)
                fn clEnqueueAcquireGLObjects(
                    command_queue: cl_command_queue, num_objects: cl_uint, mem_objects: *const cl_mem,
                    num_events_in_wait_list: cl_uint, event_wait_list: *const cl_event,
                    event: *mut cl_event
                ) -> cl_int;
            73 extension("cl_khr_gl_sharing") OPENCL_1_0 null(command_queue CL_INVALID_COMMAND_QUEUE) fails(code)
                fn clEnqueueReleaseGLObjects(
                    command_queue: cl_command_queue, num_objects: cl_uint, mem_objects: *const cl_mem,
                    num_events_in_wait_list: cl_uint, event_wait_list: *const cl_event,
                    event: *mut cl_event
                ) -> cl_int;
            74 extension("cl_khr_gl_sharing") OPENCL_1_0 null() fails(code)
                fn clGetGLContextInfoKHR(
                    properties: *const cl_context_properties, param_name: cl_gl_context_info,
                    param_value_size: size_t, param_value: *mut c_void,
                    param_value_size_ret: *mut size_t
                ) -> cl_int;
            75 extension("cl_khr_d3d10_sharing") hidden null(platform CL_INVALID_PLATFORM) fails(code)
                fn clGetDeviceIDsFromD3D10KHR(
                    platform: cl_platform_id, d3d_device_source: cl_d3d10_device_source_khr,
                    d3d_object: *mut c_void, d3d_device_set: cl_d3d10_device_set_khr,
                    num_entries: cl_uint, devices: *mut cl_device_id, num_devices: *mut cl_uint
                ) -> cl_int;
            76 extension("cl_khr_d3d10_sharing") hidden null(context CL_INVALID_CONTEXT) fails(errcode_ret)
                fn clCreateFromD3D10BufferKHR(
                    context: cl_context, flags: cl_mem_flags, resource: ID3D10Buffer_ptr,
                    errcode_ret: *mut cl_int
                ) -> cl_mem;
            77 extension("cl_khr_d3d10_sharing") hidden null(context CL_INVALID_CONTEXT) fails(errcode_ret)
                fn clCreateFromD3D10Texture2DKHR(
                    context: cl_context, flags: cl_mem_flags, resource: ID3D10Texture2D_ptr,
                    subresource: cl_uint, errcode_ret: *mut cl_int
                ) -> cl_mem;
            78 extension("cl_khr_d3d10_sharing") hidden null(context CL_INVALID_CONTEXT) fails(errcode_ret)
                fn clCreateFromD3D10Texture3DKHR(
                    context: cl_context, flags: cl_mem_flags, resource: ID3D10Texture3D_ptr,
                    subresource: cl_uint, errcode_ret: *mut cl_int
                ) -> cl_mem;
            79 extension("cl_khr_d3d10_sharing") hidden null(command_queue CL_INVALID_COMMAND_QUEUE) fails(code)
                fn clEnqueueAcquireD3D10ObjectsKHR(
                    command_queue: cl_command_queue, num_objects: cl_uint, mem_objects: *const cl_mem,
                    num_events_in_wait_list: cl_uint, event_wait_list: *const cl_event,
                    event: *mut cl_event
                ) -> cl_int;
            80 extension("cl_khr_d3d10_sharing") hidden null(command_queue CL_INVALID_COMMAND_QUEUE) fails(code)
                fn clEnqueueReleaseD3D10ObjectsKHR(
                    command_queue: cl_command_queue, num_objects: cl_uint, mem_objects: *const cl_mem,
                    num_events_in_wait_list: cl_uint, event_wait_list: *const cl_event,
                    event: *mut cl_event
                ) -> cl_int;
            81 core(V1_1) OPENCL_1_1 null(event CL_INVALID_EVENT) fails(code)
                fn clSetEventCallback(
                    event: cl_event, command_exec_callback_type: cl_int, pfn_notify: EventCallback,
                    user_data: *mut c_void
                ) -> cl_int;
            82 core(V1_1) OPENCL_1_1 null(buffer CL_INVALID_MEM_OBJECT) fails(errcode_ret)
                fn clCreateSubBuffer(
                    buffer: cl_mem, flags: cl_mem_flags, buffer_create_type: cl_buffer_create_type,
                    buffer_create_info: *const c_void, errcode_ret: *mut cl_int
                ) -> cl_mem;
            83 core(V1_1) OPENCL_1_1 null(memobj CL_INVALID_MEM_OBJECT) fails(code)
                fn clSetMemObjectDestructorCallback(
                    memobj: cl_mem, pfn_notify: MemCallback, user_data: *mut c_void
                ) -> cl_int;
            84 core(V1_1) OPENCL_1_1 null(context CL_INVALID_CONTEXT) fails(errcode_ret)
                fn clCreateUserEvent(context: cl_context, errcode_ret: *mut cl_int) -> cl_event;
            85 core(V1_1) OPENCL_1_1 null(event CL_INVALID_EVENT) fails(code)
                fn clSetUserEventStatus(event: cl_event, execution_status: cl_int) -> cl_int;
            86 core(V1_1) OPENCL_1_1 null(command_queue CL_INVALID_COMMAND_QUEUE) fails(code)
                fn clEnqueueReadBufferRect(
                    command_queue: cl_command_queue, buffer: cl_mem, blocking_read: cl_bool,
                    buffer_origin: *const size_t, host_origin: *const size_t, region: *const size_t,
                    buffer_row_pitch: size_t, buffer_slice_pitch: size_t, host_row_pitch: size_t,
                    host_slice_pitch: size_t, ptr: *mut c_void, num_events_in_wait_list: cl_uint,
                    event_wait_list: *const cl_event, event: *mut cl_event
                ) -> cl_int;
            87 core(V1_1) OPENCL_1_1 null(command_queue CL_INVALID_COMMAND_QUEUE) fails(code)
                fn clEnqueueWriteBufferRect(
                    command_queue: cl_command_queue, buffer: cl_mem, blocking_write: cl_bool,
                    buffer_origin: *const size_t, host_origin: *const size_t, region: *const size_t,
                    buffer_row_pitch: size_t, buffer_slice_pitch: size_t, host_row_pitch: size_t,
                    host_slice_pitch: size_t, ptr: *const c_void, num_events_in_wait_list: cl_uint,
                    event_wait_list: *const cl_event, event: *mut cl_event
                ) -> cl_int;
            88 core(V1_1) OPENCL_1_1 null(command_queue CL_INVALID_COMMAND_QUEUE) fails(code)
                fn clEnqueueCopyBufferRect(
                    command_queue: cl_command_queue, src_buffer: cl_mem, dst_buffer: cl_mem,
                    src_origin: *const size_t, dst_origin: *const size_t, region: *const size_t,
                    src_row_pitch: size_t, src_slice_pitch: size_t, dst_row_pitch: size_t,
                    dst_slice_pitch: size_t, num_events_in_wait_list: cl_uint,
                    event_wait_list: *const cl_event, event: *mut cl_event
                ) -> cl_int;
            89 extension("cl_ext_device_fission") OPENCL_1_1 null(in_device CL_INVALID_DEVICE) fails(code)
                fn clCreateSubDevicesEXT(
                    in_device: cl_device_id, properties: *const cl_device_partition_property_ext,
                    num_entries: cl_uint, out_devices: *mut cl_device_id, num_devices: *mut cl_uint
                ) -> cl_int;
            90 extension("cl_ext_device_fission") OPENCL_1_1 null(device CL_INVALID_DEVICE) fails(code)
                fn clRetainDeviceEXT(device: cl_device_id) -> cl_int;
            91 extension("cl_ext_device_fission") OPENCL_1_1 null(device CL_INVALID_DEVICE) fails(code)
                fn clReleaseDeviceEXT(device: cl_device_id) -> cl_int;
            92 extension("cl_khr_gl_event") OPENCL_1_1 null(context CL_INVALID_CONTEXT) fails(errcode_ret)
                fn clCreateEventFromGLsyncKHR(
                    context: cl_context, sync: cl_GLsync, errcode_ret: *mut cl_int
                ) -> cl_event;
            93 core(V1_2) OPENCL_1_2 null(in_device CL_INVALID_DEVICE) fails(code)
                fn clCreateSubDevices(
                    in_device: cl_device_id, properties: *const cl_device_partition_property,
                    num_devices: cl_uint, out_devices: *mut cl_device_id, num_devices_ret: *mut cl_uint
                ) -> cl_int;
            94 core(V1_2) OPENCL_1_2 null(device CL_INVALID_DEVICE) fails(code)
                fn clRetainDevice(device: cl_device_id) -> cl_int;
            95 core(V1_2) OPENCL_1_2 null(device CL_INVALID_DEVICE) fails(code)
                fn clReleaseDevice(device: cl_device_id) -> cl_int;
            96 core(V1_2) OPENCL_1_2 null(context CL_INVALID_CONTEXT) fails(errcode_ret)
                fn clCreateImage(
                    context: cl_context, flags: cl_mem_flags, image_format: *const cl_image_format,
                    image_desc: *const cl_image_desc, host_ptr: *mut c_void, errcode_ret: *mut cl_int
                ) -> cl_mem;
            97 core(V1_2) OPENCL_1_2 null(context CL_INVALID_CONTEXT) fails(errcode_ret)
                fn clCreateProgramWithBuiltInKernels(
                    context: cl_context, num_devices: cl_uint, device_list: *const cl_device_id,
                    kernel_names: *const c_char, errcode_ret: *mut cl_int
                ) -> cl_program;
            98 core(V1_2) OPENCL_1_2 null(program CL_INVALID_PROGRAM) fails(code)
                fn clCompileProgram(
                    program: cl_program, num_devices: cl_uint, device_list: *const cl_device_id,
                    options: *const c_char, num_input_headers: cl_uint, input_headers: *const cl_program,
                    header_include_names: *mut *const c_char, pfn_notify: ProgramCallback,
                    user_data: *mut c_void
                ) -> cl_int;
            99 core(V1_2) OPENCL_1_2 null(context CL_INVALID_CONTEXT) fails(errcode_ret)
                fn clLinkProgram(
                    context: cl_context, num_devices: cl_uint, device_list: *const cl_device_id,
                    options: *const c_char, num_input_programs: cl_uint,
                    input_programs: *const cl_program, pfn_notify: ProgramCallback,
                    user_data: *mut c_void, errcode_ret: *mut cl_int
                ) -> cl_program;
            100 core(V1_2) OPENCL_1_2 null(platform CL_INVALID_PLATFORM) fails(code)
                fn clUnloadPlatformCompiler(platform: cl_platform_id) -> cl_int;
            101 core(V1_2) OPENCL_1_2 null(kernel CL_INVALID_KERNEL) fails(code)
                fn clGetKernelArgInfo(
                    kernel: cl_kernel, arg_index: cl_uint, param_name: cl_kernel_arg_info,
                    param_value_size: size_t, param_value: *mut c_void,
                    param_value_size_ret: *mut size_t
                ) -> cl_int;
            102 core(V1_2) OPENCL_1_2 null(command_queue CL_INVALID_COMMAND_QUEUE) fails(code)
                fn clEnqueueFillBuffer(
                    command_queue: cl_command_queue, buffer: cl_mem, pattern: *const c_void,
                    pattern_size: size_t, offset: size_t, size: size_t, num_events_in_wait_list: cl_uint,
                    event_wait_list: *const cl_event, event: *mut cl_event
                ) -> cl_int;
            103 core(V1_2) OPENCL_1_2 null(command_queue CL_INVALID_COMMAND_QUEUE) fails(code)
                fn clEnqueueFillImage(
                    command_queue: cl_command_queue, image: cl_mem, fill_color: *const c_void,
                    origin: *const size_t, region: *const size_t, num_events_in_wait_list: cl_uint,
                    event_wait_list: *const cl_event, event: *mut cl_event
                ) -> cl_int;
            104 core(V1_2) OPENCL_1_2 null(command_queue CL_INVALID_COMMAND_QUEUE) fails(code)
                fn clEnqueueMigrateMemObjects(
                    command_queue: cl_command_queue, num_mem_objects: cl_uint,
                    mem_objects: *const cl_mem, flags: cl_mem_migration_flags,
                    num_events_in_wait_list: cl_uint, event_wait_list: *const cl_event,
                    event: *mut cl_event
                ) -> cl_int;
            105 core(V1_2) OPENCL_1_2 null(command_queue CL_INVALID_COMMAND_QUEUE) fails(code)
                fn clEnqueueMarkerWithWaitList(
                    command_queue: cl_command_queue, num_events_in_wait_list: cl_uint,
                    event_wait_list: *const cl_event, event: *mut cl_event
                ) -> cl_int;
            106 core(V1_2) OPENCL_1_2 null(command_queue CL_INVALID_COMMAND_QUEUE) fails(code)
                fn clEnqueueBarrierWithWaitList(
                    command_queue: cl_command_queue, num_events_in_wait_list: cl_uint,
                    event_wait_list: *const cl_event, event: *mut cl_event
                ) -> cl_int;
            107 core(V1_2) OPENCL_1_2 null(platform CL_INVALID_PLATFORM) fails(pointer)
                fn clGetExtensionFunctionAddressForPlatform(
                    platform: cl_platform_id, func_name: *const c_char
                ) -> *mut c_void;
            108 extension("cl_khr_gl_sharing") OPENCL_1_2 null(context CL_INVALID_CONTEXT) fails(errcode_ret)
                fn clCreateFromGLTexture(
                    context: cl_context, flags: cl_mem_flags, target: cl_GLenum, miplevel: cl_GLint,
                    texture: cl_GLuint, errcode_ret: *mut cl_int
                ) -> cl_mem;
            109 extension("cl_khr_d3d11_sharing") hidden null(platform CL_INVALID_PLATFORM) fails(code)
                fn clGetDeviceIDsFromD3D11KHR(
                    platform: cl_platform_id, d3d_device_source: cl_d3d11_device_source_khr,
                    d3d_object: *mut c_void, d3d_device_set: cl_d3d11_device_set_khr,
                    num_entries: cl_uint, devices: *mut cl_device_id, num_devices: *mut cl_uint
                ) -> cl_int;
            110 extension("cl_khr_d3d11_sharing") hidden null(context CL_INVALID_CONTEXT) fails(errcode_ret)
                fn clCreateFromD3D11BufferKHR(
                    context: cl_context, flags: cl_mem_flags, resource: ID3D11Buffer_ptr,
                    errcode_ret: *mut cl_int
                ) -> cl_mem;
            111 extension("cl_khr_d3d11_sharing") hidden null(context CL_INVALID_CONTEXT) fails(errcode_ret)
                fn clCreateFromD3D11Texture2DKHR(
                    context: cl_context, flags: cl_mem_flags, resource: ID3D11Texture2D_ptr,
                    subresource: cl_uint, errcode_ret: *mut cl_int
                ) -> cl_mem;
            112 extension("cl_khr_d3d11_sharing") hidden null(context CL_INVALID_CONTEXT) fails(errcode_ret)
                fn clCreateFromD3D11Texture3DKHR(
                    context: cl_context, flags: cl_mem_flags, resource: ID3D11Texture3D_ptr,
                    subresource: cl_uint, errcode_ret: *mut cl_int
                ) -> cl_mem;
            113 extension("cl_khr_dx9_media_sharing") hidden null(context CL_INVALID_CONTEXT) fails(errcode_ret)
                fn clCreateFromDX9MediaSurfaceKHR(
                    context: cl_context, flags: cl_mem_flags,
                    adapter_type: cl_dx9_media_adapter_type_khr, surface_info: *mut c_void,
                    plane: cl_uint, errcode_ret: *mut cl_int
                ) -> cl_mem;
            114 extension("cl_khr_d3d11_sharing") hidden null(command_queue CL_INVALID_COMMAND_QUEUE) fails(code)
                fn clEnqueueAcquireD3D11ObjectsKHR(
                    command_queue: cl_command_queue, num_objects: cl_uint, mem_objects: *const cl_mem,
                    num_events_in_wait_list: cl_uint, event_wait_list: *const cl_event,
                    event: *mut cl_event
                ) -> cl_int;
            115 extension("cl_khr_d3d11_sharing") hidden null(command_queue CL_INVALID_COMMAND_QUEUE) fails(code)
                fn clEnqueueReleaseD3D11ObjectsKHR(
                    command_queue: cl_command_queue, num_objects: cl_uint, mem_objects: *const cl_mem,
                    num_events_in_wait_list: cl_uint, event_wait_list: *const cl_event,
                    event: *mut cl_event
                ) -> cl_int;
            116 extension("cl_khr_dx9_media_sharing") hidden null(platform CL_INVALID_PLATFORM) fails(code)
                fn clGetDeviceIDsFromDX9MediaAdapterKHR(
                    platform: cl_platform_id, num_media_adapters: cl_uint,
                    media_adapter_type: *mut cl_dx9_media_adapter_type_khr, media_adapters: *mut c_void,
                    media_adapter_set: cl_dx9_media_adapter_set_khr, num_entries: cl_uint,
                    devices: *mut cl_device_id, num_devices: *mut cl_uint
                ) -> cl_int;
            117 extension("cl_khr_dx9_media_sharing") hidden null(command_queue CL_INVALID_COMMAND_QUEUE) fails(code)
                fn clEnqueueAcquireDX9MediaSurfacesKHR(
                    command_queue: cl_command_queue, num_objects: cl_uint, mem_objects: *const cl_mem,
                    num_events_in_wait_list: cl_uint, event_wait_list: *const cl_event,
                    event: *mut cl_event
                ) -> cl_int;
            118 extension("cl_khr_dx9_media_sharing") hidden null(command_queue CL_INVALID_COMMAND_QUEUE) fails(code)
                fn clEnqueueReleaseDX9MediaSurfacesKHR(
                    command_queue: cl_command_queue, num_objects: cl_uint, mem_objects: *const cl_mem,
                    num_events_in_wait_list: cl_uint, event_wait_list: *const cl_event,
                    event: *mut cl_event
                ) -> cl_int;
            119 extension("cl_khr_egl_image") OPENCL_1_0 null(context CL_INVALID_CONTEXT) fails(errcode_ret)
                fn clCreateFromEGLImageKHR(
                    context: cl_context, egldisplay: CLeglDisplayKHR, eglimage: CLeglImageKHR,
                    flags: cl_mem_flags, properties: *const cl_egl_image_properties_khr,
                    errcode_ret: *mut cl_int
                ) -> cl_mem;
            120 extension("cl_khr_egl_image") OPENCL_1_0 null(command_queue CL_INVALID_COMMAND_QUEUE) fails(code)
                fn clEnqueueAcquireEGLObjectsKHR(
                    command_queue: cl_command_queue, num_objects: cl_uint, mem_objects: *const cl_mem,
                    num_events_in_wait_list: cl_uint, event_wait_list: *const cl_event,
                    event: *mut cl_event
                ) -> cl_int;
            121 extension("cl_khr_egl_image") OPENCL_1_0 null(command_queue CL_INVALID_COMMAND_QUEUE) fails(code)
                fn clEnqueueReleaseEGLObjectsKHR(
                    command_queue: cl_command_queue, num_objects: cl_uint, mem_objects: *const cl_mem,
                    num_events_in_wait_list: cl_uint, event_wait_list: *const cl_event,
                    event: *mut cl_event
                ) -> cl_int;
            122 extension("cl_khr_egl_event") OPENCL_1_0 null(context CL_INVALID_CONTEXT) fails(errcode_ret)
                fn clCreateEventFromEGLSyncKHR(
                    context: cl_context, sync: CLeglSyncKHR, display: CLeglDisplayKHR,
                    errcode_ret: *mut cl_int
                ) -> cl_event;
            123 core(V2_0) OPENCL_2_0 null(context CL_INVALID_CONTEXT) fails(errcode_ret)
                fn clCreateCommandQueueWithProperties(
                    context: cl_context, device: cl_device_id, properties: *const cl_queue_properties,
                    errcode_ret: *mut cl_int
                ) -> cl_command_queue;
            124 core(V2_0) OPENCL_2_0 null(context CL_INVALID_CONTEXT) fails(errcode_ret)
                fn clCreatePipe(
                    context: cl_context, flags: cl_mem_flags, pipe_packet_size: cl_uint,
                    pipe_max_packets: cl_uint, properties: *const cl_pipe_properties,
                    errcode_ret: *mut cl_int
                ) -> cl_mem;
            125 core(V2_0) OPENCL_2_0 null(pipe CL_INVALID_MEM_OBJECT) fails(code)
                fn clGetPipeInfo(
                    pipe: cl_mem, param_name: cl_pipe_info, param_value_size: size_t,
                    param_value: *mut c_void, param_value_size_ret: *mut size_t
                ) -> cl_int;
            126 core(V2_0) OPENCL_2_0 null(context CL_INVALID_CONTEXT) fails(pointer)
                fn clSVMAlloc(
                    context: cl_context, flags: cl_svm_mem_flags, size: size_t, alignment: cl_uint
                ) -> *mut c_void;
            127 core(V2_0) OPENCL_2_0 null(context CL_INVALID_CONTEXT) fails(nothing)
                fn clSVMFree(context: cl_context, svm_pointer: *mut c_void) -> ();
            128 core(V2_0) OPENCL_2_0 null(command_queue CL_INVALID_COMMAND_QUEUE) fails(code)
                fn clEnqueueSVMFree(
                    command_queue: cl_command_queue, num_svm_pointers: cl_uint,
                    svm_pointers: *mut *mut c_void, pfn_free_func: SvmFreeCallback,
                    user_data: *mut c_void, num_events_in_wait_list: cl_uint,
                    event_wait_list: *const cl_event, event: *mut cl_event
                ) -> cl_int;
            129 core(V2_0) OPENCL_2_0 null(command_queue CL_INVALID_COMMAND_QUEUE) fails(code)
                fn clEnqueueSVMMemcpy(
                    command_queue: cl_command_queue, blocking_copy: cl_bool, dst_ptr: *mut c_void,
                    src_ptr: *const c_void, size: size_t, num_events_in_wait_list: cl_uint,
                    event_wait_list: *const cl_event, event: *mut cl_event
                ) -> cl_int;
            130 core(V2_0) OPENCL_2_0 null(command_queue CL_INVALID_COMMAND_QUEUE) fails(code)
                fn clEnqueueSVMMemFill(
                    command_queue: cl_command_queue, svm_ptr: *mut c_void, pattern: *const c_void,
                    pattern_size: size_t, size: size_t, num_events_in_wait_list: cl_uint,
                    event_wait_list: *const cl_event, event: *mut cl_event
                ) -> cl_int;
            131 core(V2_0) OPENCL_2_0 null(command_queue CL_INVALID_COMMAND_QUEUE) fails(code)
                fn clEnqueueSVMMap(
                    command_queue: cl_command_queue, blocking_map: cl_bool, flags: cl_map_flags,
                    svm_ptr: *mut c_void, size: size_t, num_events_in_wait_list: cl_uint,
                    event_wait_list: *const cl_event, event: *mut cl_event
                ) -> cl_int;
            132 core(V2_0) OPENCL_2_0 null(command_queue CL_INVALID_COMMAND_QUEUE) fails(code)
                fn clEnqueueSVMUnmap(
                    command_queue: cl_command_queue, svm_ptr: *mut c_void,
                    num_events_in_wait_list: cl_uint, event_wait_list: *const cl_event,
                    event: *mut cl_event
                ) -> cl_int;
            133 core(V2_0) OPENCL_2_0 null(context CL_INVALID_CONTEXT) fails(errcode_ret)
                fn clCreateSamplerWithProperties(
                    context: cl_context, sampler_properties: *const cl_sampler_properties,
                    errcode_ret: *mut cl_int
                ) -> cl_sampler;
            134 core(V2_0) OPENCL_2_0 null(kernel CL_INVALID_KERNEL) fails(code)
                fn clSetKernelArgSVMPointer(
                    kernel: cl_kernel, arg_index: cl_uint, arg_value: *const c_void
                ) -> cl_int;
            135 core(V2_0) OPENCL_2_0 null(kernel CL_INVALID_KERNEL) fails(code)
                fn clSetKernelExecInfo(
                    kernel: cl_kernel, param_name: cl_kernel_exec_info, param_value_size: size_t,
                    param_value: *const c_void
                ) -> cl_int;
            136 extension("cl_khr_subgroups") OPENCL_2_0 null(in_kernel CL_INVALID_KERNEL) fails(code)
                fn clGetKernelSubGroupInfoKHR(
                    in_kernel: cl_kernel, in_device: cl_device_id, param_name: cl_kernel_sub_group_info,
                    input_value_size: size_t, input_value: *const c_void, param_value_size: size_t,
                    param_value: *mut c_void, param_value_size_ret: *mut size_t
                ) -> cl_int;
            137 core(V2_1) OPENCL_2_1 null(source_kernel CL_INVALID_KERNEL) fails(errcode_ret)
                fn clCloneKernel(source_kernel: cl_kernel, errcode_ret: *mut cl_int) -> cl_kernel;
            138 core(V2_1) OPENCL_2_1 null(context CL_INVALID_CONTEXT) fails(errcode_ret)
                fn clCreateProgramWithIL(
                    context: cl_context, il: *const c_void, length: size_t, errcode_ret: *mut cl_int
                ) -> cl_program;
            139 core(V2_1) OPENCL_2_1 null(command_queue CL_INVALID_COMMAND_QUEUE) fails(code)
                fn clEnqueueSVMMigrateMem(
                    command_queue: cl_command_queue, num_svm_pointers: cl_uint,
                    svm_pointers: *mut *const c_void, sizes: *const size_t,
                    flags: cl_mem_migration_flags, num_events_in_wait_list: cl_uint,
                    event_wait_list: *const cl_event, event: *mut cl_event
                ) -> cl_int;
            140 core(V2_1) OPENCL_2_1 null(device CL_INVALID_DEVICE) fails(code)
                fn clGetDeviceAndHostTimer(
                    device: cl_device_id, device_timestamp: *mut cl_ulong, host_timestamp: *mut cl_ulong
                ) -> cl_int;
            141 core(V2_1) OPENCL_2_1 null(device CL_INVALID_DEVICE) fails(code)
                fn clGetHostTimer(device: cl_device_id, host_timestamp: *mut cl_ulong) -> cl_int;
            142 core(V2_1) OPENCL_2_1 null(kernel CL_INVALID_KERNEL) fails(code)
                fn clGetKernelSubGroupInfo(
                    kernel: cl_kernel, device: cl_device_id, param_name: cl_kernel_sub_group_info,
                    input_value_size: size_t, input_value: *const c_void, param_value_size: size_t,
                    param_value: *mut c_void, param_value_size_ret: *mut size_t
                ) -> cl_int;
            143 core(V2_1) OPENCL_2_1 null(context CL_INVALID_CONTEXT) fails(code)
                fn clSetDefaultDeviceCommandQueue(
                    context: cl_context, device: cl_device_id, command_queue: cl_command_queue
                ) -> cl_int;
            144 core(V2_2) OPENCL_2_2 null(program CL_INVALID_PROGRAM) fails(code)
                fn clSetProgramReleaseCallback(
                    program: cl_program, pfn_notify: ProgramCallback, user_data: *mut c_void
                ) -> cl_int;
            145 core(V2_2) OPENCL_2_2 null(program CL_INVALID_PROGRAM) fails(code)
                fn clSetProgramSpecializationConstant(
                    program: cl_program, spec_id: cl_uint, spec_size: size_t, spec_value: *const c_void
                ) -> cl_int;
            146 core(V3_0) OPENCL_3_0 null(context CL_INVALID_CONTEXT) fails(errcode_ret)
                fn clCreateBufferWithProperties(
                    context: cl_context, properties: *const cl_mem_properties, flags: cl_mem_flags,
                    size: size_t, host_ptr: *mut c_void, errcode_ret: *mut cl_int
                ) -> cl_mem;
            147 core(V3_0) OPENCL_3_0 null(context CL_INVALID_CONTEXT) fails(errcode_ret)
                fn clCreateImageWithProperties(
                    context: cl_context, properties: *const cl_mem_properties, flags: cl_mem_flags,
                    image_format: *const cl_image_format, image_desc: *const cl_image_desc,
                    host_ptr: *mut c_void, errcode_ret: *mut cl_int
                ) -> cl_mem;
            148 core(V3_0) OPENCL_3_0 null(context CL_INVALID_CONTEXT) fails(code)
                fn clSetContextDestructorCallback(
                    context: cl_context, pfn_notify: ContextDestructorCallback, user_data: *mut c_void
                ) -> cl_int;
            149 core(V3_1) OPENCL_3_1 null(command_queue CL_INVALID_COMMAND_QUEUE) fails(code)
                fn clGetKernelSuggestedLocalWorkSize(
                    command_queue: cl_command_queue, kernel: cl_kernel, work_dim: cl_uint,
                    global_work_offset: *const size_t, global_work_size: *const size_t,
                    suggested_local_work_size: *mut size_t
                ) -> cl_int;
        }
    };
    ($callback:ident $(, $($extra:tt)*)?) => {
        $crate::for_each_entry_point! { [$callback] $(, $($extra)*)? }
    };
}
