//! The few OpenCL calls that probes make, through the system's loader, as any program makes them.
//!
//! The loader is opened at run time, so that the benchmark builds where there is none. Invariant: a
//! wrapper's pointers come from live Rust values, and objects live as long as their owner.

use std::ffi::{CString, c_void};
use std::ptr;

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
    clGetDeviceIDs: fn(cl_platform_id, cl_device_type, cl_uint, *mut cl_device_id, *mut cl_uint) -> cl_int;
    clGetDeviceInfo: fn(cl_device_id, cl_device_info, usize, *mut c_void, *mut usize) -> cl_int;
    clCreateContext: fn(*const cl_context_properties, cl_uint, *const cl_device_id, ContextCallback, *mut c_void, *mut cl_int) -> cl_context;
    clCreateCommandQueue: fn(cl_context, cl_device_id, cl_command_queue_properties, *mut cl_int) -> cl_command_queue;
    clCreateBuffer: fn(cl_context, cl_mem_flags, usize, *mut c_void, *mut cl_int) -> cl_mem;
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
    clEnqueueUnmapMemObject: fn(cl_command_queue, cl_mem, *mut c_void, cl_uint, *const cl_event, *mut cl_event) -> cl_int;
    clFinish: fn(cl_command_queue) -> cl_int;
    clFlush: fn(cl_command_queue) -> cl_int;
    clWaitForEvents: fn(cl_uint, *const cl_event) -> cl_int;
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

/// The first device of the first platform, with a context and an in-order queue.
pub(crate) struct Session {
    functions: Functions,
    device: cl_device_id,
    context: cl_context,
    queue: cl_command_queue,
}

/// A buffer; released with [`Session::release`].
#[derive(Clone, Copy)]
pub(crate) struct Buffer(cl_mem);

/// A kernel with its arguments set.
#[derive(Clone, Copy)]
pub(crate) struct Kernel(cl_kernel);

fn first_device(functions: &Functions) -> Result<cl_device_id, ClError> {
    let (mut platform, mut device) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: one entry is asked for, and there is room for one.
    check("clGetPlatformIDs", unsafe {
        (functions.clGetPlatformIDs)(1, &raw mut platform, ptr::null_mut())
    })?;
    // SAFETY: as above.
    check("clGetDeviceIDs", unsafe {
        (functions.clGetDeviceIDs)(
            platform,
            CL_DEVICE_TYPE_ALL,
            1,
            &raw mut device,
            ptr::null_mut(),
        )
    })?;
    Ok(device)
}

/// The process's first look at its devices.
pub(crate) fn enumerate() -> Result<(), ClError> {
    let functions = Functions::load()?;
    first_device(&functions)?;
    // Drivers do not like to be unloaded while their threads run.
    std::mem::forget(functions);
    Ok(())
}

impl Session {
    /// Opens it.
    pub(crate) fn open() -> Result<Session, ClError> {
        let functions = Functions::load()?;
        let device = first_device(&functions)?;
        let mut code = 0;
        // SAFETY: one live device handle; no callback.
        let context = unsafe {
            (functions.clCreateContext)(
                ptr::null(),
                1,
                &raw const device,
                None,
                ptr::null_mut(),
                &raw mut code,
            )
        };
        check("clCreateContext", code)?;
        // SAFETY: live handles of one context.
        let queue = unsafe { (functions.clCreateCommandQueue)(context, device, 0, &raw mut code) };
        check("clCreateCommandQueue", code)?;
        Ok(Session {
            functions,
            device,
            context,
            queue,
        })
    }

    /// `CL_DEVICE_NAME`.
    pub(crate) fn device_name(&self) -> Result<String, ClError> {
        let mut room = vec![0u8; 512];
        let mut size = 0;
        // SAFETY: room and its size agree.
        check("clGetDeviceInfo", unsafe {
            (self.functions.clGetDeviceInfo)(
                self.device,
                CL_DEVICE_NAME,
                room.len(),
                room.as_mut_ptr().cast(),
                &raw mut size,
            )
        })?;
        room.truncate(size.saturating_sub(1));
        Ok(String::from_utf8_lossy(&room).into_owned())
    }

    /// A read-write buffer.
    pub(crate) fn buffer(&self, size: usize) -> Result<Buffer, ClError> {
        let mut code = 0;
        // SAFETY: a live context; no host pointer.
        let buffer = unsafe {
            (self.functions.clCreateBuffer)(
                self.context,
                CL_MEM_READ_WRITE,
                size,
                ptr::null_mut(),
                &raw mut code,
            )
        };
        check("clCreateBuffer", code)?;
        Ok(Buffer(buffer))
    }

    /// Gives a buffer back.
    pub(crate) fn release(&self, buffer: Buffer) -> Result<(), ClError> {
        // SAFETY: a live handle, not used again by the caller.
        check("clReleaseMemObject", unsafe {
            (self.functions.clReleaseMemObject)(buffer.0)
        })
    }

    /// Builds `source` and throws it away.
    pub(crate) fn build(&self, source: &str) -> Result<(), ClError> {
        let program = self.program(source)?;
        // SAFETY: a live handle, not used again.
        check("clReleaseProgram", unsafe {
            (self.functions.clReleaseProgram)(program)
        })
    }

    fn program(&self, source: &str) -> Result<cl_program, ClError> {
        let (text, length, mut code) = (source.as_ptr().cast::<c_char>(), source.len(), 0);
        // SAFETY: one string with its length.
        let program = unsafe {
            (self.functions.clCreateProgramWithSource)(
                self.context,
                1,
                &raw const text,
                &raw const length,
                &raw mut code,
            )
        };
        check("clCreateProgramWithSource", code)?;
        // SAFETY: a live program; all its devices, no options, no callback.
        check("clBuildProgram", unsafe {
            (self.functions.clBuildProgram)(
                program,
                0,
                ptr::null(),
                ptr::null(),
                None,
                ptr::null_mut(),
            )
        })?;
        Ok(program)
    }

    /// Builds `source` and makes its kernel `name` with one buffer argument.
    pub(crate) fn kernel(
        &self,
        source: &str,
        name: &str,
        argument: Buffer,
    ) -> Result<Kernel, ClError> {
        let program = self.program(source)?;
        let name = CString::new(name).unwrap_or_default();
        let mut code = 0;
        // SAFETY: a live program and a C string.
        let kernel =
            unsafe { (self.functions.clCreateKernel)(program, name.as_ptr(), &raw mut code) };
        check("clCreateKernel", code)?;
        // SAFETY: the argument is a buffer handle, given by its address and size.
        check("clSetKernelArg", unsafe {
            (self.functions.clSetKernelArg)(
                kernel,
                0,
                size_of::<cl_mem>(),
                (&raw const argument.0).cast(),
            )
        })?;
        Ok(Kernel(kernel))
    }

    /// Enqueues one work-item.
    pub(crate) fn launch(&self, kernel: Kernel) -> Result<(), ClError> {
        let one = 1usize;
        // SAFETY: one dimension, live handles, no wait list, no event.
        check("clEnqueueNDRangeKernel", unsafe {
            (self.functions.clEnqueueNDRangeKernel)(
                self.queue,
                kernel.0,
                1,
                ptr::null(),
                &raw const one,
                ptr::null(),
                0,
                ptr::null(),
                ptr::null_mut(),
            )
        })
    }

    /// `clFinish`.
    pub(crate) fn finish(&self) -> Result<(), ClError> {
        // SAFETY: a live queue.
        check("clFinish", unsafe { (self.functions.clFinish)(self.queue) })
    }

    /// Writes; when not `blocking`, `data` must stay until the next [`Session::finish`].
    pub(crate) fn write(&self, buffer: Buffer, data: &[u8], blocking: bool) -> Result<(), ClError> {
        // SAFETY: the length is the slice's; a non-blocking caller keeps it alive.
        check("clEnqueueWriteBuffer", unsafe {
            (self.functions.clEnqueueWriteBuffer)(
                self.queue,
                buffer.0,
                cl_bool::from(blocking),
                0,
                data.len(),
                data.as_ptr().cast(),
                0,
                ptr::null(),
                ptr::null_mut(),
            )
        })
    }

    /// Reads, blocking.
    pub(crate) fn read(&self, buffer: Buffer, data: &mut [u8]) -> Result<(), ClError> {
        // SAFETY: the length is the slice's, and the call blocks.
        check("clEnqueueReadBuffer", unsafe {
            (self.functions.clEnqueueReadBuffer)(
                self.queue,
                buffer.0,
                CL_TRUE,
                0,
                data.len(),
                data.as_mut_ptr().cast(),
                0,
                ptr::null(),
                ptr::null_mut(),
            )
        })
    }

    /// Maps all of a buffer, blocking, lets `touch` at the bytes, unmaps and finishes.
    pub(crate) fn map(
        &self,
        buffer: Buffer,
        size: usize,
        write: bool,
        touch: impl FnOnce(&mut [u8]),
    ) -> Result<(), ClError> {
        let flags = if write {
            CL_MAP_WRITE_INVALIDATE_REGION
        } else {
            CL_MAP_READ
        };
        let mut code = 0;
        // SAFETY: the whole of a live buffer.
        let mapped = unsafe {
            (self.functions.clEnqueueMapBuffer)(
                self.queue,
                buffer.0,
                CL_TRUE,
                flags,
                0,
                size,
                0,
                ptr::null(),
                ptr::null_mut(),
                &raw mut code,
            )
        };
        check("clEnqueueMapBuffer", code)?;
        // SAFETY: a successful blocking map gives `size` bytes until the unmap.
        touch(unsafe { std::slice::from_raw_parts_mut(mapped.cast(), size) });
        // SAFETY: the pointer is the map's, not used again.
        check("clEnqueueUnmapMemObject", unsafe {
            (self.functions.clEnqueueUnmapMemObject)(
                self.queue,
                buffer.0,
                mapped,
                0,
                ptr::null(),
                ptr::null_mut(),
            )
        })?;
        self.finish()
    }
}
