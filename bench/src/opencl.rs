//! The OpenCL functions that the benchmark calls, from the system's loader, as any program has them.
//!
//! The loader is opened at run time, so that the benchmark builds where there is none. What is done with
//! them is in [`devices`](crate::devices). Invariant: the functions' types are those of the headers.

use std::ffi::c_void;

use cl_headers::error_name;
use cl_headers::types::*;
use libloading::Library;

/// A call failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClError {
    /// There is no loader, or it lacks a function.
    #[error("libOpenCL.so.1: {0}")]
    Loader(#[from] libloading::Error),
    /// A function answered with an error.
    #[error("{0}: {name}", name = error_name(*.1))]
    Call(&'static str, cl_int),
    /// A program does not build; the log says why.
    #[error("clBuildProgram: {name}\n{1}", name = error_name(*.0))]
    Build(cl_int, String),
    /// There is no device to be found.
    #[error("there is no OpenCL device")]
    NoDevice,
    /// There is no platform of that name.
    #[error("there is no OpenCL platform {0:?} with a device")]
    NoPlatform(String),
}

macro_rules! functions {
    ($($name:ident: fn($($t:ty),*) -> $ret:ty;)*) => {
        #[allow(non_snake_case, reason = "OpenCL's names")]
        pub(crate) struct Functions {
            $(pub(crate) $name: unsafe extern "C" fn($($t),*) -> $ret,)*
            _library: Library,
        }

        impl Functions {
            /// Opens the loader and finds them.
            pub(crate) fn load() -> Result<Functions, ClError> {
                // SAFETY: loading the system's OpenCL loader runs its initialisers, as linking would.
                let library = unsafe { Library::new("libOpenCL.so.1")? };
                Ok(Functions {
                    // SAFETY: the types are those of the OpenCL headers; the library stays loaded beside them.
                    $($name: unsafe { *library.get(stringify!($name).as_bytes())? },)*
                    _library: library,
                })
            }
        }
    };
}

functions! {
    clGetPlatformIDs: fn(cl_uint, *mut cl_platform_id, *mut cl_uint) -> cl_int;
    clGetPlatformInfo: fn(cl_platform_id, cl_platform_info, usize, *mut c_void, *mut usize) -> cl_int;
    clGetDeviceIDs: fn(cl_platform_id, cl_device_type, cl_uint, *mut cl_device_id, *mut cl_uint) -> cl_int;
    clGetDeviceInfo: fn(cl_device_id, cl_device_info, usize, *mut c_void, *mut usize) -> cl_int;
    clCreateContext: fn(*const cl_context_properties, cl_uint, *const cl_device_id, ContextCallback, *mut c_void, *mut cl_int) -> cl_context;
    clCreateCommandQueue: fn(cl_context, cl_device_id, cl_command_queue_properties, *mut cl_int) -> cl_command_queue;
    clCreateBuffer: fn(cl_context, cl_mem_flags, usize, *mut c_void, *mut cl_int) -> cl_mem;
    clCreateImage2D: fn(cl_context, cl_mem_flags, *const cl_image_format, usize, usize, usize, *mut c_void, *mut cl_int) -> cl_mem;
    clReleaseMemObject: fn(cl_mem) -> cl_int;
    clCreateProgramWithSource: fn(cl_context, cl_uint, *const *const c_char, *const usize, *mut cl_int) -> cl_program;
    clBuildProgram: fn(cl_program, cl_uint, *const cl_device_id, *const c_char, ProgramCallback, *mut c_void) -> cl_int;
    clReleaseProgram: fn(cl_program) -> cl_int;
    clCreateKernel: fn(cl_program, *const c_char, *mut cl_int) -> cl_kernel;
    clSetKernelArg: fn(cl_kernel, cl_uint, usize, *const c_void) -> cl_int;
    clEnqueueNDRangeKernel: fn(cl_command_queue, cl_kernel, cl_uint, *const usize, *const usize, *const usize, cl_uint, *const cl_event, *mut cl_event) -> cl_int;
    clEnqueueWriteBuffer: fn(cl_command_queue, cl_mem, cl_bool, usize, usize, *const c_void, cl_uint, *const cl_event, *mut cl_event) -> cl_int;
    clEnqueueReadBuffer: fn(cl_command_queue, cl_mem, cl_bool, usize, usize, *mut c_void, cl_uint, *const cl_event, *mut cl_event) -> cl_int;
    clEnqueueMapBuffer: fn(cl_command_queue, cl_mem, cl_bool, cl_map_flags, usize, usize, cl_uint, *const cl_event, *mut cl_event, *mut cl_int) -> *mut c_void;
    clEnqueueMapImage: fn(cl_command_queue, cl_mem, cl_bool, cl_map_flags, *const usize, *const usize, *mut usize, *mut usize, cl_uint, *const cl_event, *mut cl_event, *mut cl_int) -> *mut c_void;
    clEnqueueUnmapMemObject: fn(cl_command_queue, cl_mem, *mut c_void, cl_uint, *const cl_event, *mut cl_event) -> cl_int;
    clFinish: fn(cl_command_queue) -> cl_int;
    clEnqueueMarkerWithWaitList: fn(cl_command_queue, cl_uint, *const cl_event, *mut cl_event) -> cl_int;
    clEnqueueBarrierWithWaitList: fn(cl_command_queue, cl_uint, *const cl_event, *mut cl_event) -> cl_int;
    clGetExtensionFunctionAddressForPlatform: fn(cl_platform_id, *const c_char) -> *mut c_void;
    clGetEventInfo: fn(cl_event, cl_event_info, usize, *mut c_void, *mut usize) -> cl_int;
    clFlush: fn(cl_command_queue) -> cl_int;
    clWaitForEvents: fn(cl_uint, *const cl_event) -> cl_int;
    clCreateUserEvent: fn(cl_context, *mut cl_int) -> cl_event;
    clSetUserEventStatus: fn(cl_event, cl_int) -> cl_int;
    clReleaseEvent: fn(cl_event) -> cl_int;
    clReleaseKernel: fn(cl_kernel) -> cl_int;
    clReleaseCommandQueue: fn(cl_command_queue) -> cl_int;
    clReleaseContext: fn(cl_context) -> cl_int;
    clCreateSubBuffer: fn(cl_mem, cl_mem_flags, cl_buffer_create_type, *const c_void, *mut cl_int) -> cl_mem;
    clGetProgramBuildInfo: fn(cl_program, cl_device_id, cl_program_build_info, usize, *mut c_void, *mut usize) -> cl_int;
    clEnqueueFillBuffer: fn(cl_command_queue, cl_mem, *const c_void, usize, usize, usize, cl_uint, *const cl_event, *mut cl_event) -> cl_int;
    clEnqueueReadBufferRect: fn(cl_command_queue, cl_mem, cl_bool, *const usize, *const usize, *const usize, usize, usize, usize, usize, *mut c_void, cl_uint, *const cl_event, *mut cl_event) -> cl_int;
}

/// What a call answered, as a result.
pub(crate) fn check(what: &'static str, code: cl_int) -> Result<(), ClError> {
    if code == CL_SUCCESS {
        Ok(())
    } else {
        Err(ClError::Call(what, code))
    }
}
