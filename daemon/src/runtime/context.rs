//! Contexts.
//!
//! Invariant: a [`Context`] names devices of one platform, and a [`Device`] given to one of its methods
//! is one of them; every method checks.

use std::ffi::{CStr, c_char, c_void};
use std::time::Duration;

use causeway_proto::status::Status;
use opencl_sys::{CL_CONTEXT_PLATFORM, cl_context};

use super::library::{check, cl};
use super::node::{Device, Platform};

/// Milliseconds between attempts to make a context.
const PAUSES: [u64; 5] = [20, 40, 80, 160, 320];
/// What drivers say of a device that is short of something now. NVIDIA's own code stands for whatever went wrong inside.
const PASSING: [Status; 5] = [
    Status::DEVICE_NOT_AVAILABLE,
    Status(-4), // CL_MEM_OBJECT_ALLOCATION_FAILURE
    Status::OUT_OF_RESOURCES,
    Status::OUT_OF_HOST_MEMORY,
    Status(-9999),
];

/// A native context; released when dropped.
#[derive(Debug)]
pub struct Context {
    pub(super) raw: cl_context,
    devices: Vec<Device>,
}

// SAFETY: OpenCL objects may be used from any thread; only clSetKernelArg and its kin are excepted.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// What hears a context's errors; called on any thread, also within other calls.
pub type ErrorListener = Box<dyn Fn(&str) + Send + Sync>;

impl Context {
    /// `clCreateContext` for devices of one platform; `listener` hears its errors.
    ///
    /// # Errors
    /// What the driver says.
    pub fn new(
        platform: &Platform,
        devices: Vec<Device>,
        listener: ErrorListener,
    ) -> Result<Context, Status> {
        let ids: Vec<_> = devices.iter().map(|d| d.raw).collect();
        let properties = [CL_CONTEXT_PLATFORM, platform.raw as isize, 0];
        // Never freed: a driver may report after the context's release, and contexts are few.
        let listener: *mut ErrorListener = Box::into_raw(Box::new(listener));
        let create = || -> Result<cl_context, Status> {
            let mut status = 0;
            // SAFETY: lists are as long as said, properties end in 0, the listener lives for ever.
            let raw = unsafe {
                cl!(clCreateContext(
                    properties.as_ptr(),
                    u32::try_from(ids.len()).map_err(|_| Status::OUT_OF_HOST_MEMORY)?,
                    ids.as_ptr(),
                    Some(notified),
                    listener.cast(),
                    &raw mut status
                ))
            };
            check(status)?;
            Ok(raw)
        };
        let raw = patiently(create)?;
        Ok(Context { raw, devices })
    }

    /// Its devices, in creation order.
    #[must_use]
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    pub(super) fn owns(&self, device: Device) -> Result<(), Status> {
        const INVALID_DEVICE: Status = Status(-33);
        if self.devices.iter().any(|d| d.raw == device.raw) {
            Ok(())
        } else {
            Err(INVALID_DEVICE)
        }
    }
}

/// Tries again for a while where the driver says what may pass: other processes on the device take and give back what
/// a context needs.
fn patiently<T>(mut create: impl FnMut() -> Result<T, Status>) -> Result<T, Status> {
    for pause in PAUSES.map(Duration::from_millis) {
        match create() {
            Err(status) if PASSING.contains(&status) => {
                tracing::warn!(%status, ?pause, "the driver made no context; trying again");
                std::thread::sleep(pause);
            }
            made => return made,
        }
    }
    create()
}

impl Drop for Context {
    fn drop(&mut self) {
        let _ = self.release();
    }
}

impl Context {
    fn release(&self) -> Result<(), Status> {
        // SAFETY: we own one reference and give it up here.
        check(unsafe { cl!(clReleaseContext(self.raw)) })
    }
}

unsafe extern "C" fn notified(
    text: *const c_char,
    _private: *const c_void,
    _size: usize,
    listener: *mut c_void,
) {
    if text.is_null() || listener.is_null() {
        return;
    }
    // SAFETY: the driver gives a string that ends in NUL (API, clCreateContext).
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    // SAFETY: the pointer is the one made in `Context::new`, which is never freed.
    let listener = unsafe { &*listener.cast::<ErrorListener>() };
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| listener(&text)));
}
