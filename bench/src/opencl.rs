//! The OpenCL calls of the benchmark, one method each, through the system's loader as in any program.
//!
//! The loader is opened at run time, so that the benchmark builds where there is none. The crate cl3 is not
//! used. Its enqueue functions always request an event, and most rows measure commands without one. It also
//! declares the C functions with the Rust ABI. What is done with the calls is in
//! [`devices`](crate::devices).
//!
//! Invariant: the functions' types are those of the headers. A handle is not used after its release, which
//! the callers ensure.

use std::ffi::{CStr, c_void};
use std::ptr;

use cl_headers::error_name;
use cl_headers::types::cl_function_types as types;
use cl_headers::types::*;
use libloading::Library;

/// A call failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClError {
    /// The loader cannot be opened.
    #[error("libOpenCL.so.1: {0}")]
    Loader(#[from] libloading::Error),
    /// The loader lacks a function.
    #[error("libOpenCL.so.1 has no function {0}")]
    Missing(&'static str),
    /// A function returned an error.
    #[error("{0}: {name}", name = error_name(*.1))]
    Call(&'static str, cl_int),
    /// A program does not build. The text is the log.
    #[error("clBuildProgram: {name}\n{1}", name = error_name(*.0))]
    Build(cl_int, String),
    /// No platform has a device.
    #[error("there is no OpenCL device")]
    NoDevice,
    /// No platform with a device has this name.
    #[error("there is no OpenCL platform {0:?} with a device")]
    NoPlatform(String),
    /// The device cannot do what the row measures.
    #[error("the device has no {0}")]
    NotOnThisDevice(&'static str),
}

macro_rules! handles {
    ($($(#[$about:meta])* $name:ident($raw:ty);)*) => {$(
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(transparent)]
        pub(crate) struct $name($raw);

        // SAFETY: nothing here follows the pointer, and any thread may use OpenCL's handles.
        unsafe impl Send for $name {}
        // SAFETY: as above.
        unsafe impl Sync for $name {}
    )*};
}

handles! {
    /// A platform.
    Platform(cl_platform_id);
    /// A device.
    Device(cl_device_id);
    /// A context.
    Context(cl_context);
    /// A command queue.
    Queue(cl_command_queue);
    /// A buffer, a part of one, or an image.
    Memory(cl_mem);
    /// A program.
    Program(cl_program);
    /// A kernel. Only one thread at a time sets its arguments.
    Kernel(cl_kernel);
    /// The event of a command.
    Event(cl_event);
    /// A command buffer.
    CommandBuffer(cl_command_buffer_khr);
}

impl Event {
    /// No event yet; a call writes one here.
    pub(crate) const NONE: Event = Event(ptr::null_mut());
}

/// A kernel argument.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Argument {
    /// A buffer.
    Memory(Memory),
    /// A `uint`.
    Uint(u32),
    /// A `float`.
    Float(f32),
}

macro_rules! functions {
    ($($name:ident: $type:ident,)*) => {
        /// The loader's functions; `None` for one that it lacks.
        #[allow(non_snake_case, reason = "OpenCL's names")]
        pub(crate) struct OpenCl {
            $($name: types::$type,)*
            _library: Library,
        }

        impl OpenCl {
            /// Opens the loader and looks its functions up.
            pub(crate) fn load() -> Result<OpenCl, ClError> {
                // SAFETY: loading the system's OpenCL loader runs its initialisers, as linking would.
                let library = unsafe { Library::new("libOpenCL.so.1")? };
                Ok(OpenCl {
                    // SAFETY: the types are those of the OpenCL headers; the library stays loaded beside them.
                    $($name: unsafe { library.get(stringify!($name).as_bytes()) }
                        .ok()
                        .and_then(|found| *found),)*
                    _library: library,
                })
            }
        }
    };
}

functions! {
    clBuildProgram: clBuildProgram_t,
    clCreateBuffer: clCreateBuffer_t,
    clCreateCommandQueue: clCreateCommandQueue_t,
    clCreateContext: clCreateContext_t,
    clCreateImage2D: clCreateImage2D_t,
    clCreateKernel: clCreateKernel_t,
    clCreateProgramWithSource: clCreateProgramWithSource_t,
    clCreateSubBuffer: clCreateSubBuffer_t,
    clCreateUserEvent: clCreateUserEvent_t,
    clEnqueueBarrierWithWaitList: clEnqueueBarrierWithWaitList_t,
    clEnqueueFillBuffer: clEnqueueFillBuffer_t,
    clEnqueueMapBuffer: clEnqueueMapBuffer_t,
    clEnqueueMapImage: clEnqueueMapImage_t,
    clEnqueueMarkerWithWaitList: clEnqueueMarkerWithWaitList_t,
    clEnqueueNDRangeKernel: clEnqueueNDRangeKernel_t,
    clEnqueueReadBuffer: clEnqueueReadBuffer_t,
    clEnqueueReadBufferRect: clEnqueueReadBufferRect_t,
    clEnqueueUnmapMemObject: clEnqueueUnmapMemObject_t,
    clEnqueueWriteBuffer: clEnqueueWriteBuffer_t,
    clFinish: clFinish_t,
    clFlush: clFlush_t,
    clGetDeviceIDs: clGetDeviceIDs_t,
    clGetDeviceInfo: clGetDeviceInfo_t,
    clGetEventInfo: clGetEventInfo_t,
    clGetExtensionFunctionAddressForPlatform: clGetExtensionFunctionAddressForPlatform_t,
    clGetPlatformIDs: clGetPlatformIDs_t,
    clGetPlatformInfo: clGetPlatformInfo_t,
    clGetProgramBuildInfo: clGetProgramBuildInfo_t,
    clReleaseCommandQueue: clReleaseCommandQueue_t,
    clReleaseContext: clReleaseContext_t,
    clReleaseEvent: clReleaseEvent_t,
    clReleaseKernel: clReleaseKernel_t,
    clReleaseMemObject: clReleaseMemObject_t,
    clReleaseProgram: clReleaseProgram_t,
    clRetainContext: clRetainContext_t,
    clSetKernelArg: clSetKernelArg_t,
    clSetUserEventStatus: clSetUserEventStatus_t,
    clWaitForEvents: clWaitForEvents_t,
}

/// Calls a function that returns a code.
macro_rules! run {
    ($cl:ident.$name:ident($($argument:expr),* $(,)?)) => {{
        let function = $cl.$name.ok_or(ClError::Missing(stringify!($name)))?;
        check(stringify!($name), function($($argument),*))
    }};
}

/// Calls a function that returns an object, and its code through its last parameter.
macro_rules! make {
    ($cl:ident.$name:ident($($argument:expr),* $(,)?)) => {{
        let function = $cl.$name.ok_or(ClError::Missing(stringify!($name)))?;
        let mut code = CL_SUCCESS;
        let made = function($($argument,)* &raw mut code);
        check(stringify!($name), code).map(|()| made)
    }};
}

/// The list that a call takes for `events`. An `Event` is transparent: a slice of them is an array of
/// handles.
fn list(events: &[Event]) -> (cl_uint, *const cl_event) {
    match events {
        [] => (0, ptr::null()),
        events => (events.len() as cl_uint, events.as_ptr().cast()),
    }
}

/// Where a call writes its event.
fn place(event: Option<&mut Event>) -> *mut cl_event {
    event.map_or(ptr::null_mut(), |event| &raw mut event.0)
}

impl OpenCl {
    /// The platforms, 16 at most. None for a loader without drivers.
    pub(crate) fn platforms(&self) -> Result<Vec<Platform>, ClError> {
        let mut platforms = [Platform(ptr::null_mut()); 16];
        let mut count = 0;
        // SAFETY: room for as many as are asked for.
        let listed = unsafe {
            run!(self.clGetPlatformIDs(16, platforms.as_mut_ptr().cast(), &raw mut count))
        };
        match listed {
            // `cl_khr_icd`: the code of a loader that has no driver.
            Err(ClError::Call(_, CL_PLATFORM_NOT_FOUND_KHR)) => Ok(Vec::new()),
            listed => listed.map(|()| platforms[..count.min(16) as usize].to_vec()),
        }
    }

    /// `CL_PLATFORM_NAME`.
    pub(crate) fn platform_name(&self, platform: Platform) -> Result<String, ClError> {
        let mut room = [0u8; 512];
        let (size, value) = (room.len(), room.as_mut_ptr().cast());
        // SAFETY: room and its size agree.
        unsafe {
            run!(self.clGetPlatformInfo(platform.0, CL_PLATFORM_NAME, size, value, ptr::null_mut()))
        }?;
        Ok(text(&room))
    }

    /// The devices of a platform, 64 at most.
    pub(crate) fn devices(&self, platform: Platform) -> Result<Vec<Device>, ClError> {
        let mut devices = [Device(ptr::null_mut()); 64];
        let (mut count, room) = (0, devices.as_mut_ptr().cast());
        // SAFETY: room for as many as are asked for.
        unsafe {
            run!(self.clGetDeviceIDs(platform.0, CL_DEVICE_TYPE_ALL, 64, room, &raw mut count))
        }?;
        Ok(devices[..count.min(64) as usize].to_vec())
    }

    /// Fills `room` with a device's info; the size of that.
    pub(crate) fn device_info(
        &self,
        device: Device,
        name: cl_device_info,
        room: &mut [u8],
    ) -> Result<usize, ClError> {
        let mut size = 0;
        let (most, value) = (room.len(), room.as_mut_ptr().cast());
        // SAFETY: room and its size agree.
        unsafe { run!(self.clGetDeviceInfo(device.0, name, most, value, &raw mut size)) }?;
        Ok(size.min(room.len()))
    }

    /// A function of an extension of the device's platform, of the optional type that the header gives it.
    pub(crate) fn extension<F>(&self, device: Device, name: &CStr) -> Result<F, ClError> {
        let mut platform: cl_platform_id = ptr::null_mut();
        let (size, value) = (size_of::<cl_platform_id>(), (&raw mut platform).cast());
        // SAFETY: room for a handle.
        unsafe {
            run!(self.clGetDeviceInfo(device.0, CL_DEVICE_PLATFORM, size, value, ptr::null_mut()))
        }?;
        let find = "clGetExtensionFunctionAddressForPlatform";
        let find = self
            .clGetExtensionFunctionAddressForPlatform
            .ok_or(ClError::Missing(find))?;
        // SAFETY: a live platform and a C string.
        let found: *mut c_void = unsafe { find(platform, name.as_ptr()) };
        assert_eq!(size_of::<F>(), size_of_val(&found), "a function");
        // SAFETY: an optional function is as large as an address, and NULL is `None`.
        Ok(unsafe { std::mem::transmute_copy(&found) })
    }

    /// A context over devices of one platform.
    pub(crate) fn context(&self, devices: &[Device]) -> Result<Context, ClError> {
        let (count, list) = (devices.len() as cl_uint, devices.as_ptr().cast());
        // SAFETY: live devices with their number; no callback.
        unsafe { make!(self.clCreateContext(ptr::null(), count, list, None, ptr::null_mut())) }
            .map(Context)
    }

    /// Retains a context once more.
    pub(crate) fn retain_context(&self, context: Context) -> Result<(), ClError> {
        // SAFETY: a live context.
        unsafe { run!(self.clRetainContext(context.0)) }
    }

    /// A queue on a device of the context.
    pub(crate) fn queue(
        &self,
        context: Context,
        device: Device,
        properties: cl_command_queue_properties,
    ) -> Result<Queue, ClError> {
        // SAFETY: live handles.
        unsafe { make!(self.clCreateCommandQueue(context.0, device.0, properties)) }.map(Queue)
    }

    /// A read-write buffer.
    pub(crate) fn buffer(&self, context: Context, size: usize) -> Result<Memory, ClError> {
        // SAFETY: a live context; no host pointer.
        unsafe { make!(self.clCreateBuffer(context.0, CL_MEM_READ_WRITE, size, ptr::null_mut())) }
            .map(Memory)
    }

    /// A part of a buffer.
    pub(crate) fn part(&self, of: Memory, origin: usize, size: usize) -> Result<Memory, ClError> {
        let region = cl_buffer_region { origin, size };
        let (kind, region) = (CL_BUFFER_CREATE_TYPE_REGION, (&raw const region).cast());
        // SAFETY: a live buffer, and a region as the type says.
        unsafe { make!(self.clCreateSubBuffer(of.0, CL_MEM_READ_WRITE, kind, region)) }.map(Memory)
    }

    /// A read-write square image of RGBA bytes.
    pub(crate) fn image(&self, context: Context, side: usize) -> Result<Memory, ClError> {
        let format = cl_image_format {
            image_channel_order: CL_RGBA,
            image_channel_data_type: CL_UNSIGNED_INT8,
        };
        let (flags, format, data) = (CL_MEM_READ_WRITE, &raw const format, ptr::null_mut());
        // SAFETY: a live context and a format; no pitch and no host pointer.
        unsafe { make!(self.clCreateImage2D(context.0, flags, format, side, side, 0, data)) }
            .map(Memory)
    }

    /// A program of one source.
    pub(crate) fn program(&self, context: Context, source: &str) -> Result<Program, ClError> {
        let (mut text, length) = (source.as_ptr().cast::<c_char>(), source.len());
        let (text, length) = (&raw mut text, &raw const length);
        // SAFETY: one string with its length.
        unsafe { make!(self.clCreateProgramWithSource(context.0, 1, text, length)) }.map(Program)
    }

    /// Builds a program for all devices.
    pub(crate) fn build(&self, program: Program, options: &CStr) -> Result<(), ClError> {
        let (all, options, data) = (ptr::null(), options.as_ptr(), ptr::null_mut());
        // SAFETY: a live program; all its devices, a C string, no callback.
        unsafe { run!(self.clBuildProgram(program.0, 0, all, options, None, data)) }
    }

    /// The log of a build for a device.
    pub(crate) fn build_log(&self, program: Program, device: Device) -> Result<String, ClError> {
        let mut room = vec![0u8; 1 << 16];
        let (of, size, value) = (CL_PROGRAM_BUILD_LOG, room.len(), room.as_mut_ptr().cast());
        // SAFETY: room and its size agree.
        unsafe {
            run!(self.clGetProgramBuildInfo(program.0, device.0, of, size, value, ptr::null_mut()))
        }?;
        Ok(text(&room))
    }

    /// A kernel of a program.
    pub(crate) fn kernel(&self, program: Program, name: &CStr) -> Result<Kernel, ClError> {
        // SAFETY: a live program and a C string.
        unsafe { make!(self.clCreateKernel(program.0, name.as_ptr())) }.map(Kernel)
    }

    /// Sets an argument of a kernel that no other thread uses.
    pub(crate) fn set_argument(
        &self,
        kernel: Kernel,
        index: cl_uint,
        argument: Argument,
    ) -> Result<(), ClError> {
        let (size, value): (usize, *const c_void) = match &argument {
            Argument::Memory(memory) => (size_of::<cl_mem>(), (&raw const *memory).cast()),
            Argument::Uint(value) => (size_of::<u32>(), (&raw const *value).cast()),
            Argument::Float(value) => (size_of::<f32>(), (&raw const *value).cast()),
        };
        // SAFETY: size and address are those of a live value.
        unsafe { run!(self.clSetKernelArg(kernel.0, index, size, value)) }
    }

    /// Launches a kernel of as many dimensions as `global` has.
    pub(crate) fn launch(
        &self,
        queue: Queue,
        kernel: Kernel,
        global: &[usize],
        waits: &[Event],
        event: Option<&mut Event>,
    ) -> Result<(), ClError> {
        let (count, list) = list(waits);
        // SAFETY: as many sizes as dimensions; the list with its length; room for an event or none.
        unsafe {
            run!(self.clEnqueueNDRangeKernel(
                queue.0,
                kernel.0,
                global.len() as cl_uint,
                ptr::null(),
                global.as_ptr(),
                ptr::null(),
                count,
                list,
                place(event),
            ))
        }
    }

    /// Zeroes the first `size` bytes of a buffer.
    pub(crate) fn zero(
        &self,
        queue: Queue,
        memory: Memory,
        size: usize,
        waits: &[Event],
        event: Option<&mut Event>,
    ) -> Result<(), ClError> {
        let (zero, (count, list)) = (0u32, list(waits));
        // SAFETY: the call copies the pattern; the list with its length; room for an event or none.
        unsafe {
            run!(self.clEnqueueFillBuffer(
                queue.0,
                memory.0,
                (&raw const zero).cast(),
                size_of::<u32>(),
                0,
                size,
                count,
                list,
                place(event),
            ))
        }
    }

    /// Writes to the beginning of a buffer, blocking.
    pub(crate) fn write(&self, queue: Queue, to: Memory, data: &[u8]) -> Result<(), ClError> {
        let (at, size) = (data.as_ptr().cast(), data.len());
        let (list, event) = (ptr::null(), ptr::null_mut());
        // SAFETY: the length is the slice's, and the call blocks.
        unsafe {
            run!(self.clEnqueueWriteBuffer(queue.0, to.0, CL_TRUE, 0, size, at, 0, list, event))
        }
    }

    /// Reads from the beginning of a buffer, blocking.
    pub(crate) fn read(
        &self,
        queue: Queue,
        from: Memory,
        data: &mut [u8],
        waits: &[Event],
    ) -> Result<(), ClError> {
        let (at, size, event) = (data.as_mut_ptr().cast(), data.len(), ptr::null_mut());
        let (count, list) = list(waits);
        // SAFETY: the length is the slice's, and the call blocks; the list with its length.
        unsafe {
            run!(
                self.clEnqueueReadBuffer(queue.0, from.0, CL_TRUE, 0, size, at, count, list, event)
            )
        }
    }

    /// Starts a write to a buffer.
    ///
    /// # Safety
    ///
    /// `size` bytes at `at` stay and do not change until the command has ended.
    pub(crate) unsafe fn start_write(
        &self,
        queue: Queue,
        to: Memory,
        (at, offset, size): (*const u8, usize, usize),
        event: Option<&mut Event>,
    ) -> Result<(), ClError> {
        let (at, list, event) = (at.cast(), ptr::null(), place(event));
        // SAFETY: the caller's promise; room for an event or none.
        unsafe {
            run!(
                self.clEnqueueWriteBuffer(
                    queue.0, to.0, CL_FALSE, offset, size, at, 0, list, event
                )
            )
        }
    }

    /// Starts a read from the beginning of a buffer.
    ///
    /// # Safety
    ///
    /// Nobody else uses `size` bytes at `at` until the command has ended.
    pub(crate) unsafe fn start_read(
        &self,
        queue: Queue,
        from: Memory,
        (at, size): (*mut u8, usize),
        event: Option<&mut Event>,
    ) -> Result<(), ClError> {
        let (at, list, event) = (at.cast(), ptr::null(), place(event));
        // SAFETY: the caller's promise; room for an event or none.
        unsafe {
            run!(self.clEnqueueReadBuffer(queue.0, from.0, CL_FALSE, 0, size, at, 0, list, event))
        }
    }

    /// Starts a read of `count` lines of `bytes` each, which lie in the buffer one behind the other, and come
    /// to lie `pitch` bytes apart.
    ///
    /// # Safety
    ///
    /// Nobody else uses these lines from `at` on until the command has ended.
    pub(crate) unsafe fn start_read_of_lines(
        &self,
        queue: Queue,
        from: Memory,
        (bytes, count, pitch): (usize, usize, usize),
        at: *mut u8,
    ) -> Result<(), ClError> {
        let (origin, region) = ([0usize; 3], [bytes, count, 1]);
        // SAFETY: the caller's promise; no wait list, no event.
        unsafe {
            run!(self.clEnqueueReadBufferRect(
                queue.0,
                from.0,
                CL_FALSE,
                origin.as_ptr(),
                origin.as_ptr(),
                region.as_ptr(),
                bytes,
                0,
                pitch,
                0,
                at.cast(),
                0,
                ptr::null(),
                ptr::null_mut(),
            ))
        }
    }

    /// Maps the first `size` bytes of a buffer, blocking, passes them to `touch`, and unmaps them.
    pub(crate) fn map(
        &self,
        queue: Queue,
        memory: Memory,
        flags: cl_map_flags,
        size: usize,
        touch: impl FnOnce(&mut [u8]),
    ) -> Result<(), ClError> {
        let (list, event) = (ptr::null(), ptr::null_mut());
        // SAFETY: a live buffer; no wait list, no event.
        let mapped = unsafe {
            make!(
                self.clEnqueueMapBuffer(queue.0, memory.0, CL_TRUE, flags, 0, size, 0, list, event)
            )
        }?;
        // SAFETY: a successful blocking map gives `size` bytes until the unmap.
        touch(unsafe { std::slice::from_raw_parts_mut(mapped.cast(), size) });
        self.unmap(queue, memory, mapped)
    }

    /// Maps all of a square image for reading, blocking, and unmaps it.
    pub(crate) fn map_image(
        &self,
        queue: Queue,
        image: Memory,
        side: usize,
    ) -> Result<(), ClError> {
        let (origin, region, mut pitch) = ([0usize; 3], [side, side, 1], 0usize);
        // SAFETY: the whole of a live image; room for its pitch; no slice pitch, no wait list, no event.
        let mapped = unsafe {
            make!(self.clEnqueueMapImage(
                queue.0,
                image.0,
                CL_TRUE,
                CL_MAP_READ,
                origin.as_ptr(),
                region.as_ptr(),
                &raw mut pitch,
                ptr::null_mut(),
                0,
                ptr::null(),
                ptr::null_mut(),
            ))
        }?;
        self.unmap(queue, image, mapped)
    }

    fn unmap(&self, queue: Queue, memory: Memory, at: *mut c_void) -> Result<(), ClError> {
        let (list, event) = (ptr::null(), ptr::null_mut());
        // SAFETY: both callers pass a map's pointer, and do not use it again.
        unsafe { run!(self.clEnqueueUnmapMemObject(queue.0, memory.0, at, 0, list, event)) }
    }

    /// Enqueues a marker.
    pub(crate) fn marker(&self, queue: Queue, event: Option<&mut Event>) -> Result<(), ClError> {
        // SAFETY: a live queue, no wait list, room for an event or none.
        unsafe { run!(self.clEnqueueMarkerWithWaitList(queue.0, 0, ptr::null(), place(event))) }
    }

    /// Enqueues a barrier.
    pub(crate) fn barrier(&self, queue: Queue, waits: &[Event]) -> Result<(), ClError> {
        let (count, list) = list(waits);
        // SAFETY: a live queue, the list with its length, no event.
        unsafe { run!(self.clEnqueueBarrierWithWaitList(queue.0, count, list, ptr::null_mut())) }
    }

    /// `clFlush`.
    pub(crate) fn flush(&self, queue: Queue) -> Result<(), ClError> {
        // SAFETY: a live queue.
        unsafe { run!(self.clFlush(queue.0)) }
    }

    /// `clFinish`.
    pub(crate) fn finish(&self, queue: Queue) -> Result<(), ClError> {
        // SAFETY: a live queue.
        unsafe { run!(self.clFinish(queue.0)) }
    }

    /// `clWaitForEvents`.
    pub(crate) fn wait(&self, events: &[Event]) -> Result<(), ClError> {
        let (count, list) = list(events);
        // SAFETY: live events with their number.
        unsafe { run!(self.clWaitForEvents(count, list)) }
    }

    /// The status of an event's command.
    pub(crate) fn status(&self, event: Event) -> Result<cl_int, ClError> {
        let (name, mut status) = (CL_EVENT_COMMAND_EXECUTION_STATUS, 0);
        let (size, value) = (size_of::<cl_int>(), (&raw mut status).cast());
        // SAFETY: a live event; room for a status.
        unsafe { run!(self.clGetEventInfo(event.0, name, size, value, ptr::null_mut())) }?;
        Ok(status)
    }

    /// A user event.
    pub(crate) fn user_event(&self, context: Context) -> Result<Event, ClError> {
        // SAFETY: a live context.
        unsafe { make!(self.clCreateUserEvent(context.0)) }.map(Event)
    }

    /// Completes a user event.
    pub(crate) fn complete(&self, event: Event) -> Result<(), ClError> {
        // SAFETY: a live event.
        unsafe { run!(self.clSetUserEventStatus(event.0, CL_COMPLETE)) }
    }
}

macro_rules! releases {
    ($($method:ident($handle:ident): $name:ident;)*) => {
        impl OpenCl {$(
            /// Releases a handle, which the caller does not use again.
            pub(crate) fn $method(&self, handle: $handle) -> Result<(), ClError> {
                // SAFETY: a live handle.
                unsafe { run!(self.$name(handle.0)) }
            }
        )*}
    };
}

releases! {
    release_context(Context): clReleaseContext;
    release_event(Event): clReleaseEvent;
    release_kernel(Kernel): clReleaseKernel;
    release_memory(Memory): clReleaseMemObject;
    release_program(Program): clReleaseProgram;
    release_queue(Queue): clReleaseCommandQueue;
}

/// The functions of `cl_khr_command_buffer`, of the platform of a device.
#[allow(non_snake_case, reason = "OpenCL's names")]
pub(crate) struct CommandBuffers {
    clCommandNDRangeKernelKHR: clCommandNDRangeKernelKHR_fn,
    clCreateCommandBufferKHR: clCreateCommandBufferKHR_fn,
    clEnqueueCommandBufferKHR: clEnqueueCommandBufferKHR_fn,
    clFinalizeCommandBufferKHR: clFinalizeCommandBufferKHR_fn,
    clReleaseCommandBufferKHR: clReleaseCommandBufferKHR_fn,
}

impl CommandBuffers {
    /// Looks the functions up. `None` where the platform has no command buffers.
    pub(crate) fn find(cl: &OpenCl, device: Device) -> Result<Option<CommandBuffers>, ClError> {
        let found = CommandBuffers {
            clCommandNDRangeKernelKHR: cl.extension(device, c"clCommandNDRangeKernelKHR")?,
            clCreateCommandBufferKHR: cl.extension(device, c"clCreateCommandBufferKHR")?,
            clEnqueueCommandBufferKHR: cl.extension(device, c"clEnqueueCommandBufferKHR")?,
            clFinalizeCommandBufferKHR: cl.extension(device, c"clFinalizeCommandBufferKHR")?,
            clReleaseCommandBufferKHR: cl.extension(device, c"clReleaseCommandBufferKHR")?,
        };
        Ok(Some(found).filter(|found| found.clCreateCommandBufferKHR.is_some()))
    }

    /// A command buffer for a queue.
    pub(crate) fn create(&self, queue: Queue) -> Result<CommandBuffer, ClError> {
        let (queue, properties) = (&raw const queue.0, ptr::null());
        // SAFETY: one live queue, no properties.
        unsafe { make!(self.clCreateCommandBufferKHR(1, queue, properties)) }.map(CommandBuffer)
    }

    /// Records a launch of one work-item.
    pub(crate) fn launch(&self, buffer: CommandBuffer, kernel: Kernel) -> Result<(), ClError> {
        let (one, any, no_list) = (1usize, ptr::null(), ptr::null());
        let (queue, properties, no_handle) = (ptr::null_mut(), ptr::null(), ptr::null_mut());
        // SAFETY: live handles, one dimension, no wait list, no sync point, no handle.
        unsafe {
            run!(self.clCommandNDRangeKernelKHR(
                buffer.0,
                queue,
                properties,
                kernel.0,
                1,
                any,
                &raw const one,
                any,
                0,
                no_list,
                ptr::null_mut(),
                no_handle,
            ))
        }
    }

    /// Ends the recording.
    pub(crate) fn finalize(&self, buffer: CommandBuffer) -> Result<(), ClError> {
        // SAFETY: a live handle.
        unsafe { run!(self.clFinalizeCommandBufferKHR(buffer.0)) }
    }

    /// Enqueues all of it on the queue of its creation.
    pub(crate) fn enqueue(&self, buffer: CommandBuffer) -> Result<(), ClError> {
        let (queues, list, event) = (ptr::null_mut(), ptr::null(), ptr::null_mut());
        // SAFETY: a live handle, no queues of its own, no wait list, no event.
        unsafe { run!(self.clEnqueueCommandBufferKHR(0, queues, buffer.0, 0, list, event)) }
    }

    /// Releases a handle, which the caller does not use again.
    pub(crate) fn release(&self, buffer: CommandBuffer) -> Result<(), ClError> {
        // SAFETY: a live handle.
        unsafe { run!(self.clReleaseCommandBufferKHR(buffer.0)) }
    }
}

/// A string as OpenCL gives it, up to its zero.
fn text(bytes: &[u8]) -> String {
    let text = bytes.split(|byte| *byte == 0).next();
    String::from_utf8_lossy(text.unwrap_or_default()).into_owned()
}

/// The result of a function that returned `code`.
fn check(name: &'static str, code: cl_int) -> Result<(), ClError> {
    match code {
        CL_SUCCESS => Ok(()),
        code => Err(ClError::Call(name, code)),
    }
}
