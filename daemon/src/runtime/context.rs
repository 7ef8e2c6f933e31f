//! Contexts.
//!
//! Invariant: a [`Context`] has devices of one platform. Functions that take a context and a [`Device`]
//! check that the device belongs to the context.

use std::ffi::{CStr, c_char, c_void};
use std::time::Duration;

use causeway_proto::status::Status;
use opencl_sys::{CL_CONTEXT_PLATFORM, CL_QUEUE_PROPERTIES, cl_command_queue, cl_context};

use super::library::{check, cl, release_on_drop};
use super::node::{Device, Platform};

/// Pauses between attempts to create a context, in milliseconds.
const PAUSES: [u64; 5] = [20, 40, 80, 160, 320];
/// Errors that may be temporary, because other processes use the device. NVIDIA reports -9999 for any
/// internal error.
const PASSING: [Status; 5] = [
    Status::DEVICE_NOT_AVAILABLE,
    Status::MEM_ALLOCATION_FAILURE,
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

// SAFETY: OpenCL objects may be used from any thread; only clSetKernelArg and similar functions are
// exceptions.
unsafe impl Send for Context {}
// SAFETY: as for `Send`.
unsafe impl Sync for Context {}

/// Callback for a context's errors. Drivers call it on any thread, also from inside other calls.
pub type ErrorListener = Box<dyn Fn(&str) + Send + Sync>;

impl Context {
    /// `clCreateContext` for devices of one platform; `listener` receives its errors.
    pub fn new(
        platform: &Platform,
        devices: Vec<Device>,
        listener: ErrorListener,
    ) -> Result<Context, Status> {
        let ids: Vec<_> = devices.iter().map(|d| d.raw).collect();
        let properties = [CL_CONTEXT_PLATFORM, platform.raw as isize, 0];
        // This is never freed, because a driver may report errors after the context's release. Contexts are
        // few.
        let listener: *mut ErrorListener = Box::into_raw(Box::new(listener));
        let create = || -> Result<cl_context, Status> {
            let mut status = 0;
            // SAFETY: the lists have the given lengths, the properties end in 0, and the listener is never
            // freed.
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

    pub(super) fn owns(&self, device: Device) -> Result<(), Status> {
        if self.devices.iter().any(|d| d.raw == device.raw) {
            Ok(())
        } else {
            Err(Status::INVALID_DEVICE)
        }
    }

    /// Creates a native queue on the host or on the device, with the function that the driver supports.
    pub(super) fn create_queue(
        &self,
        device: Device,
        properties: &[u64],
    ) -> Result<cl_command_queue, Status> {
        self.owns(device)?;
        let mut status = 0;
        let raw = if device.modern {
            let list: Vec<u64> = properties.iter().copied().chain([0]).collect();
            // SAFETY: the list ends in 0.
            unsafe {
                cl!(clCreateCommandQueueWithProperties(
                    self.raw,
                    device.raw,
                    list.as_ptr(),
                    &raw mut status
                ))
            }
        } else {
            // SAFETY: the context is live, and the device belongs to it.
            unsafe {
                cl!(clCreateCommandQueue(
                    self.raw,
                    device.raw,
                    bits_of(properties),
                    &raw mut status
                ))
            }
        };
        check(status)?;
        Ok(raw)
    }
}

/// Returns the value of `CL_QUEUE_PROPERTIES` in a property list.
pub(super) fn bits_of(properties: &[u64]) -> u64 {
    properties
        .chunks_exact(2)
        .find(|pair| pair[0] == u64::from(CL_QUEUE_PROPERTIES))
        .map_or(0, |pair| pair[1])
}

/// Retries for about 0.6 s after errors that may be temporary: other processes allocate and free the
/// resources that a context needs.
fn patiently<T>(mut create: impl FnMut() -> Result<T, Status>) -> Result<T, Status> {
    for pause in PAUSES.map(Duration::from_millis) {
        match create() {
            Err(status) if PASSING.contains(&status) => {
                tracing::warn!(%status, ?pause, "the driver cannot create a context; retrying");
                std::thread::sleep(pause);
            }
            made => return made,
        }
    }
    create()
}

release_on_drop!(Context, clReleaseContext);

unsafe extern "C" fn notified(
    text: *const c_char,
    _private: *const c_void,
    _size: usize,
    listener: *mut c_void,
) {
    if text.is_null() || listener.is_null() {
        return;
    }
    // SAFETY: the driver passes a string that ends in NUL (OpenCL specification, clCreateContext).
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    // SAFETY: the pointer was made in `Context::new` and is never freed.
    let listener = unsafe { &*listener.cast::<ErrorListener>() };
    // A panic must not unwind into the driver.
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| listener(&text)));
}
