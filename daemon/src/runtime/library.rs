//! Loads libOpenCL at run time and looks up its functions by name.
//!
//! The signatures are those of opencl-sys (`extern "C"`). The crate cl3 is not used, because its table
//! declares C functions with the Rust ABI. It also loses the program of a failed link and the status of
//! each binary. Invariant: the library is never unloaded, so a function that was found remains callable.

use std::ffi::{CStr, c_void};
use std::sync::OnceLock;

use causeway_proto::status::Status;
use opencl_sys::cl_function_types as types;

/// The node's libOpenCL cannot be loaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("libOpenCL.so.1 cannot be loaded: {0}")]
pub(super) struct LoadError(String);

macro_rules! functions {
    ($($name:ident: $kind:ident,)*) => {
        /// The functions that the daemon uses; `None` for one that the library lacks.
        #[allow(non_snake_case)]
        pub(super) struct Functions {
            $(pub(super) $name: types::$kind,)*
        }

        impl Functions {
            fn find(library: *mut c_void) -> Functions {
                Functions {
                    $($name: {
                        // SAFETY: `library` is a live handle and the name ends in NUL.
                        let found = unsafe {
                            libc::dlsym(library, concat!(stringify!($name), "\0").as_ptr().cast())
                        };
                        // SAFETY: the types are `Option` of a function pointer, for which null is `None`. A
                        // symbol of this name has this signature according to the OpenCL specification.
                        unsafe { std::mem::transmute::<*mut c_void, types::$kind>(found) }
                    },)*
                }
            }
        }
    };
}

functions! {
    clGetExtensionFunctionAddressForPlatform: clGetExtensionFunctionAddressForPlatform_t,
    clGetPlatformIDs: clGetPlatformIDs_t,
    clGetPlatformInfo: clGetPlatformInfo_t,
    clGetDeviceIDs: clGetDeviceIDs_t,
    clGetDeviceInfo: clGetDeviceInfo_t,
    clGetDeviceAndHostTimer: clGetDeviceAndHostTimer_t,
    clCreateSubDevices: clCreateSubDevices_t,
    clReleaseDevice: clReleaseDevice_t,
    clCreateContext: clCreateContext_t,
    clRetainContext: clRetainContext_t,
    clReleaseContext: clReleaseContext_t,
    clCreateCommandQueue: clCreateCommandQueue_t,
    clCreateCommandQueueWithProperties: clCreateCommandQueueWithProperties_t,
    clRetainCommandQueue: clRetainCommandQueue_t,
    clReleaseCommandQueue: clReleaseCommandQueue_t,
    clSetDefaultDeviceCommandQueue: clSetDefaultDeviceCommandQueue_t,
    clFlush: clFlush_t,
    clFinish: clFinish_t,
    clCreateBuffer: clCreateBuffer_t,
    clCreateSubBuffer: clCreateSubBuffer_t,
    clCreatePipe: clCreatePipe_t,
    clReleaseMemObject: clReleaseMemObject_t,
    clGetMemObjectInfo: clGetMemObjectInfo_t,
    clSVMAlloc: clSVMAlloc_t,
    clSVMFree: clSVMFree_t,
    clCreateImage: clCreateImage_t,
    clGetSupportedImageFormats: clGetSupportedImageFormats_t,
    clCreateSampler: clCreateSampler_t,
    clReleaseSampler: clReleaseSampler_t,
    clCreateProgramWithSource: clCreateProgramWithSource_t,
    clCreateProgramWithBinary: clCreateProgramWithBinary_t,
    clCreateProgramWithBuiltInKernels: clCreateProgramWithBuiltInKernels_t,
    clCreateProgramWithIL: clCreateProgramWithIL_t,
    clSetProgramSpecializationConstant: clSetProgramSpecializationConstant_t,
    clReleaseProgram: clReleaseProgram_t,
    clBuildProgram: clBuildProgram_t,
    clCompileProgram: clCompileProgram_t,
    clLinkProgram: clLinkProgram_t,
    clUnloadPlatformCompiler: clUnloadPlatformCompiler_t,
    clGetProgramInfo: clGetProgramInfo_t,
    clGetProgramBuildInfo: clGetProgramBuildInfo_t,
    clCreateKernel: clCreateKernel_t,
    clReleaseKernel: clReleaseKernel_t,
    clSetKernelArg: clSetKernelArg_t,
    clSetKernelArgSVMPointer: clSetKernelArgSVMPointer_t,
    clSetKernelExecInfo: clSetKernelExecInfo_t,
    clGetKernelInfo: clGetKernelInfo_t,
    clGetKernelArgInfo: clGetKernelArgInfo_t,
    clGetKernelWorkGroupInfo: clGetKernelWorkGroupInfo_t,
    clGetKernelSubGroupInfo: clGetKernelSubGroupInfo_t,
    clWaitForEvents: clWaitForEvents_t,
    clGetEventInfo: clGetEventInfo_t,
    clGetEventProfilingInfo: clGetEventProfilingInfo_t,
    clSetEventCallback: clSetEventCallback_t,
    clReleaseEvent: clReleaseEvent_t,
    clEnqueueReadBuffer: clEnqueueReadBuffer_t,
    clEnqueueReadBufferRect: clEnqueueReadBufferRect_t,
    clEnqueueWriteBuffer: clEnqueueWriteBuffer_t,
    clEnqueueWriteBufferRect: clEnqueueWriteBufferRect_t,
    clEnqueueFillBuffer: clEnqueueFillBuffer_t,
    clEnqueueCopyBuffer: clEnqueueCopyBuffer_t,
    clEnqueueCopyBufferRect: clEnqueueCopyBufferRect_t,
    clEnqueueReadImage: clEnqueueReadImage_t,
    clEnqueueWriteImage: clEnqueueWriteImage_t,
    clEnqueueFillImage: clEnqueueFillImage_t,
    clEnqueueCopyImage: clEnqueueCopyImage_t,
    clEnqueueCopyImageToBuffer: clEnqueueCopyImageToBuffer_t,
    clEnqueueCopyBufferToImage: clEnqueueCopyBufferToImage_t,
    clEnqueueMapBuffer: clEnqueueMapBuffer_t,
    clEnqueueUnmapMemObject: clEnqueueUnmapMemObject_t,
    clEnqueueMigrateMemObjects: clEnqueueMigrateMemObjects_t,
    clEnqueueNDRangeKernel: clEnqueueNDRangeKernel_t,
    clEnqueueMarkerWithWaitList: clEnqueueMarkerWithWaitList_t,
    clEnqueueBarrierWithWaitList: clEnqueueBarrierWithWaitList_t,
}

static LIBRARY: OnceLock<Result<Functions, LoadError>> = OnceLock::new();

/// Loads the library, once per process.
///
/// # Errors
/// [`LoadError`]; each call returns the same one.
pub(super) fn load() -> Result<&'static Functions, LoadError> {
    LIBRARY
        .get_or_init(|| {
            // SAFETY: the name ends in NUL; loading a library runs its initializers, which is intended.
            let library = unsafe {
                libc::dlopen(
                    c"libOpenCL.so.1".as_ptr(),
                    libc::RTLD_NOW | libc::RTLD_LOCAL,
                )
            };
            if library.is_null() {
                Err(LoadError(last_error()))
            } else {
                Ok(Functions::find(library))
            }
        })
        .as_ref()
        .map_err(Clone::clone)
}

/// Returns the loaded functions, for objects that exist only if the library was loaded.
///
/// # Errors
/// `CL_DEVICE_NOT_AVAILABLE` if the library cannot be loaded.
pub(super) fn functions() -> Result<&'static Functions, Status> {
    match LIBRARY.get() {
        Some(Ok(functions)) => Ok(functions),
        Some(Err(_)) => Err(Status::DEVICE_NOT_AVAILABLE),
        None => load().map_err(|_| Status::DEVICE_NOT_AVAILABLE),
    }
}

fn last_error() -> String {
    // SAFETY: dlerror returns NULL, or a string that is valid until the next dl* call of this thread.
    let text = unsafe {
        let text = libc::dlerror();
        if text.is_null() {
            return "unknown error".to_owned();
        }
        CStr::from_ptr(text)
    };
    text.to_string_lossy().into_owned()
}

/// Converts a status to a result.
pub(super) fn check(status: i32) -> Result<(), Status> {
    if status == 0 {
        Ok(())
    } else {
        Err(Status(status))
    }
}

/// Calls a function of the library. Makes the surrounding function return `CL_INVALID_OPERATION` if the
/// library lacks it. Expands to an unsafe call, so the caller writes the `unsafe` block.
macro_rules! cl {
    ($name:ident($($argument:expr),* $(,)?)) => {
        match $crate::runtime::library::functions()?.$name {
            Some(function) => function($($argument),*),
            None => return Err(causeway_proto::status::Status::INVALID_OPERATION),
        }
    };
}
pub(super) use cl;

/// Releases an object's reference when the object is dropped. The object's field `raw` is its handle.
macro_rules! release_on_drop {
    ($object:ty, $function:ident) => {
        impl Drop for $object {
            fn drop(&mut self) {
                let release = || -> Result<(), causeway_proto::status::Status> {
                    // SAFETY: this object owns one reference and gives it up here.
                    $crate::runtime::library::check(unsafe {
                        $crate::runtime::library::cl!($function(self.raw))
                    })
                };
                // No one can do anything about a refusal.
                let _ = release();
            }
        }
    };
}
pub(super) use release_on_drop;
