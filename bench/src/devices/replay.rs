//! Command buffers (`cl_khr_command_buffer`): the same launches again and again.
//!
//! Invariant: as the whole's; a command buffer is released with its [`Replay`], when nothing of it runs.

use std::ffi::CStr;
use std::ptr;

use cl_headers::types::*;

use super::{Devices, Kernel};
use crate::opencl::{ClError, check};

/// Launches that were recorded on the first queue.
pub(crate) struct Replay<'a> {
    devices: &'a Devices,
    recorded: cl_command_buffer_khr,
    enqueue: clEnqueueCommandBufferKHR_fn,
    release: clReleaseCommandBufferKHR_fn,
}

/// Calls a function of the extension, which answers with a code.
macro_rules! call {
    ($function:expr, $name:literal, ($($argument:expr),* $(,)?)) => {{
        let function = $function.ok_or(ClError::Call($name, CL_INVALID_OPERATION))?;
        // SAFETY: live handles, lists as long as said, no wait list, no event, no handle.
        check($name, unsafe { function($($argument),*) })
    }};
}

impl Devices {
    /// A function of the platform's extension, of the optional type that the header gives it.
    fn extension<F>(&self, name: &CStr) -> Result<F, ClError> {
        let mut platform: cl_platform_id = ptr::null_mut();
        // SAFETY: a live device, and room for a handle.
        check("clGetDeviceInfo", unsafe {
            (self.cl.clGetDeviceInfo)(
                self.devices[0],
                CL_DEVICE_PLATFORM,
                size_of::<cl_platform_id>(),
                (&raw mut platform).cast(),
                ptr::null_mut(),
            )
        })?;
        // SAFETY: a live platform and a C string.
        let found =
            unsafe { (self.cl.clGetExtensionFunctionAddressForPlatform)(platform, name.as_ptr()) };
        debug_assert_eq!(size_of::<F>(), size_of_val(&found));
        // SAFETY: a function of the header's, which is as large as its address; there is none at NULL.
        Ok(unsafe { std::mem::transmute_copy(&found) })
    }

    /// Records so many launches of one work-item; none where the platform has no command buffers.
    pub(crate) fn record(&self, kernel: Kernel, count: u64) -> Result<Option<Replay<'_>>, ClError> {
        let create: clCreateCommandBufferKHR_fn = self.extension(c"clCreateCommandBufferKHR")?;
        let Some(create) = create else {
            return Ok(None);
        };
        let (mut code, one) = (0, 1usize);
        // SAFETY: one live queue, no properties, room for a code.
        let recorded = unsafe { create(1, &raw const self.queues[0], ptr::null(), &raw mut code) };
        check("clCreateCommandBufferKHR", code)?;
        let replay = Replay {
            devices: self,
            recorded,
            enqueue: self.extension(c"clEnqueueCommandBufferKHR")?,
            release: self.extension(c"clReleaseCommandBufferKHR")?,
        };
        let launch: clCommandNDRangeKernelKHR_fn = self.extension(c"clCommandNDRangeKernelKHR")?;
        for _ in 0..count {
            call!(
                launch,
                "clCommandNDRangeKernelKHR",
                (
                    recorded,
                    ptr::null_mut(),
                    ptr::null(),
                    kernel.0,
                    1,
                    ptr::null(),
                    &raw const one,
                    ptr::null(),
                    0,
                    ptr::null(),
                    ptr::null_mut(),
                    ptr::null_mut(),
                )
            )?;
        }
        let finalize: clFinalizeCommandBufferKHR_fn =
            self.extension(c"clFinalizeCommandBufferKHR")?;
        call!(finalize, "clFinalizeCommandBufferKHR", (recorded))?;
        Ok(Some(replay))
    }
}

impl Replay<'_> {
    /// Enqueues all of it, and waits for its end.
    pub(crate) fn run(&self) -> Result<(), ClError> {
        call!(
            self.enqueue,
            "clEnqueueCommandBufferKHR",
            (
                0,
                ptr::null_mut(),
                self.recorded,
                0,
                ptr::null(),
                ptr::null_mut(),
            )
        )?;
        self.devices.finish(0)
    }
}

impl Drop for Replay<'_> {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: a live handle, not used again.
            unsafe { release(self.recorded) };
        }
    }
}
