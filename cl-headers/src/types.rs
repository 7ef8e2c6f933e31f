//! OpenCL's C types and constants.
//!
//! They come from `opencl-sys`. Only its types and constants are used: its functions would bind to a system
//! loader, perhaps to the one that loaded this driver. This module adds names for the callback types, and
//! the few constants that `opencl-sys` lacks or has wrong.
//!
//! Invariant: no item of this module refers to a symbol that must be linked.

#![allow(
    non_camel_case_types,
    reason = "C's names are kept, so that they can be searched for"
)]

pub use core::ffi::{c_char, c_uchar, c_void};
pub use libc::size_t;
pub use opencl_sys::cl_d3d10::*;
pub use opencl_sys::cl_d3d11::*;
pub use opencl_sys::cl_dx9_media_sharing::*;
pub use opencl_sys::cl_egl::*;
pub use opencl_sys::*;

/// `pfn_notify` of `clCreateContext`: an error's text, private data and its size, `user_data`.
pub type ContextCallback =
    Option<unsafe extern "C" fn(*const c_char, *const c_void, size_t, *mut c_void)>;
/// `pfn_notify` of `clSetContextDestructorCallback`.
pub type ContextDestructorCallback = Option<unsafe extern "C" fn(cl_context, *mut c_void)>;
/// `pfn_notify` of `clSetMemObjectDestructorCallback`.
pub type MemCallback = Option<unsafe extern "C" fn(cl_mem, *mut c_void)>;
/// `pfn_notify` of `clBuildProgram`, `clCompileProgram`, `clLinkProgram`,
/// `clSetProgramReleaseCallback`.
pub type ProgramCallback = Option<unsafe extern "C" fn(cl_program, *mut c_void)>;
/// `pfn_notify` of `clSetEventCallback`: the event, its status (or a negative error), `user_data`.
pub type EventCallback = Option<unsafe extern "C" fn(cl_event, cl_int, *mut c_void)>;
/// `pfn_free_func` of `clEnqueueSVMFree`: the queue, number and list of pointers, `user_data`.
pub type SvmFreeCallback =
    Option<unsafe extern "C" fn(cl_command_queue, cl_uint, *mut *mut c_void, *mut c_void)>;
/// `user_func` of `clEnqueueNativeKernel`.
pub type NativeKernel = Option<unsafe extern "C" fn(*mut c_void)>;

/// Signature of `clIcdGetPlatformIDsKHR`, through which a loader gets a driver's platforms.
pub type clIcdGetPlatformIDsKHR_fn =
    unsafe extern "C" fn(cl_uint, *mut cl_platform_id, *mut cl_uint) -> cl_int;
/// Signature of `clIcdGetFunctionAddressForPlatformKHR` (`cl_khr_icd` 2.0.0). It returns the address of any
/// entry point, core functions included. The loader fills its own dispatch table with them.
pub type clIcdGetFunctionAddressForPlatformKHR_fn =
    unsafe extern "C" fn(cl_platform_id, *const c_char) -> *mut c_void;
/// Signature of `clIcdSetPlatformDispatchDataKHR` (`cl_khr_icd` 2.0.0). It sets the loader's word, which
/// the driver copies into every object of the platform.
pub type clIcdSetPlatformDispatchDataKHR_fn =
    unsafe extern "C" fn(cl_platform_id, *mut c_void) -> cl_int;

/// A query of `clGetICDLoaderInfoOCLICD`: the type of its first parameter (`ocl_icd.h`).
pub type cl_icdl_info = cl_uint;
/// The loader's OpenCL version, a string such as `OpenCL 3.0`.
pub const CL_ICDL_OCL_VERSION: cl_icdl_info = 1;
/// The loader's own version, a string.
pub const CL_ICDL_VERSION: cl_icdl_info = 2;
/// The loader's name, a string.
pub const CL_ICDL_NAME: cl_icdl_info = 3;
/// The loader's vendor, a string.
pub const CL_ICDL_VENDOR: cl_icdl_info = 4;
/// Signature of `clGetICDLoaderInfoOCLICD`.
pub type clGetICDLoaderInfoOCLICD_fn =
    unsafe extern "C" fn(cl_icdl_info, size_t, *mut c_void, *mut size_t) -> cl_int;

/// `cl_khr_command_buffer_mutable_dispatch`: the program's assertions about all launches of a command
/// buffer. opencl-sys 0.6.5 has another number than the header.
pub const CL_COMMAND_BUFFER_MUTABLE_DISPATCH_ASSERTS_KHR: cl_command_buffer_properties_khr = 0x12B7;

/// `cl_khr_command_buffer_mutable_dispatch` 0.9.5: recording has ended, but some launch lacks arguments.
pub const CL_COMMAND_BUFFER_STATE_FINALIZED_KHR: cl_command_buffer_state_khr = 2;

/// `cl_channel_order` of an image with depth and stencil (`cl_khr_gl_depth_images`).
pub const CL_DEPTH_STENCIL: cl_channel_order = 0x10BE;
/// `cl_channel_type` of 24-bit normalised depth (`cl_khr_gl_depth_images`).
pub const CL_UNORM_INT24: cl_channel_type = 0x10DF;
