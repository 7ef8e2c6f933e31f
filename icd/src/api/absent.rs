//! Entry points of features that no device of this version has: what the specification says then.

use cl_headers::types::*;

use super::entry::entry_points;
use crate::error::fail;

entry_points! {
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
    fn clEnqueueNDRangeKernel(_command_queue: cl_command_queue, _kernel: cl_kernel, _work_dim: cl_uint, _global_work_offset: *const size_t, _global_work_size: *const size_t, _local_work_size: *const size_t, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event) { fail(CL_INVALID_OPERATION) }
    fn clEnqueueTask(_command_queue: cl_command_queue, _kernel: cl_kernel, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event) { fail(CL_INVALID_OPERATION) }
    fn clEnqueueNativeKernel(_command_queue: cl_command_queue, _user_func: NativeKernel, _args: *mut c_void, _cb_args: size_t, _num_mem_objects: cl_uint, _mem_list: *const cl_mem, _args_mem_loc: *mut *const c_void, _num_events_in_wait_list: cl_uint, _event_wait_list: *const cl_event, _event: *mut cl_event) { fail(CL_INVALID_OPERATION) }
    fn clCreateProgramWithBuiltInKernels(_context: cl_context, _num_devices: cl_uint, _device_list: *const cl_device_id, _kernel_names: *const c_char; errcode_ret) -> cl_program { fail(CL_INVALID_OPERATION) }
    fn clCompileProgram(_program: cl_program, _num_devices: cl_uint, _device_list: *const cl_device_id, _options: *const c_char, _num_input_headers: cl_uint, _input_headers: *const cl_program, _header_include_names: *mut *const c_char, _pfn_notify: ProgramCallback, _user_data: *mut c_void) { fail(CL_INVALID_OPERATION) }
    fn clLinkProgram(_context: cl_context, _num_devices: cl_uint, _device_list: *const cl_device_id, _options: *const c_char, _num_input_programs: cl_uint, _input_programs: *const cl_program, _pfn_notify: ProgramCallback, _user_data: *mut c_void; errcode_ret) -> cl_program { fail(CL_INVALID_OPERATION) }
    fn clUnloadPlatformCompiler(_platform: cl_platform_id) { fail(CL_INVALID_OPERATION) }
    fn clGetKernelArgInfo(_kernel: cl_kernel, _arg_index: cl_uint, _param_name: cl_kernel_arg_info, _param_value_size: size_t, _param_value: *mut c_void, _param_value_size_ret: *mut size_t) { fail(CL_INVALID_OPERATION) }
    fn clSetKernelArgSVMPointer(_kernel: cl_kernel, _arg_index: cl_uint, _arg_value: *const c_void) { fail(CL_INVALID_OPERATION) }
    fn clSetKernelExecInfo(_kernel: cl_kernel, _param_name: cl_kernel_exec_info, _param_value_size: size_t, _param_value: *const c_void) { fail(CL_INVALID_OPERATION) }
    fn clGetKernelSubGroupInfoKHR(_in_kernel: cl_kernel, _in_device: cl_device_id, _param_name: cl_kernel_sub_group_info, _input_value_size: size_t, _input_value: *const c_void, _param_value_size: size_t, _param_value: *mut c_void, _param_value_size_ret: *mut size_t) { fail(CL_INVALID_OPERATION) }
    fn clCloneKernel(_source_kernel: cl_kernel; errcode_ret) -> cl_kernel { fail(CL_INVALID_OPERATION) }
    fn clCreateProgramWithIL(_context: cl_context, _il: *const c_void, _length: size_t; errcode_ret) -> cl_program { fail(CL_INVALID_OPERATION) }
    fn clGetKernelSubGroupInfo(_kernel: cl_kernel, _device: cl_device_id, _param_name: cl_kernel_sub_group_info, _input_value_size: size_t, _input_value: *const c_void, _param_value_size: size_t, _param_value: *mut c_void, _param_value_size_ret: *mut size_t) { fail(CL_INVALID_OPERATION) }
    fn clSetProgramReleaseCallback(_program: cl_program, _pfn_notify: ProgramCallback, _user_data: *mut c_void) { fail(CL_INVALID_OPERATION) }
    fn clSetProgramSpecializationConstant(_program: cl_program, _spec_id: cl_uint, _spec_size: size_t, _spec_value: *const c_void) { fail(CL_INVALID_OPERATION) }
    fn clGetKernelSuggestedLocalWorkSize(_command_queue: cl_command_queue, _kernel: cl_kernel, _work_dim: cl_uint, _global_work_offset: *const size_t, _global_work_size: *const size_t, _suggested_local_work_size: *mut size_t) { fail(CL_INVALID_OPERATION) }
}
