//! Contexts.
//!
//! Invariant: the devices are in the application's order, without repetition, and belong to one platform.

use std::ffi::{CString, c_char, c_void};

use cl_headers::types::*;
use parking_lot::Mutex;

use crate::device::Device;
use crate::error::{ClResult, ensure, fail};
use crate::exclusive::Hold;
use crate::nvml::OwnMemory;
use crate::object::{Object, Ref, body};
use crate::on_device::DeviceQueues;
use crate::platform::{Platform, platform_or_default};
use crate::{arg, device, engine, tag};

/// The callback `pfn_notify` and its `user_data`.
#[derive(Clone, Copy)]
struct ErrorCallback {
    function: unsafe extern "C" fn(*const c_char, *const c_void, size_t, *mut c_void),
    user_data: usize,
}

type Destructor = (unsafe extern "C" fn(cl_context, *mut c_void), usize);

/// The body of a context.
pub(crate) struct Context {
    pub(crate) devices: Vec<Ref<Device>>,
    /// As given, with the closing 0; empty for NULL.
    properties: Vec<u64>,
    error_callback: Option<ErrorCallback>,
    /// These callbacks get the context's own handle, although it is then already dead.
    destructors: Mutex<Vec<Destructor>>,
    handle: Mutex<usize>,
    pub(crate) device_queues: DeviceQueues,
    _holds: Vec<Hold>,
    _own_memory: Vec<OwnMemory>,
}

body!(Context, tag::CONTEXT, CL_INVALID_CONTEXT);

impl Context {
    pub(crate) fn has(&self, device: &Object<Device>) -> bool {
        self.devices
            .iter()
            .any(|own| own.handle() == device.handle())
    }

    /// Reports to the application, from the engine's thread, that a command has failed.
    pub(crate) fn report(&self, status: cl_int) {
        let Some(callback) = self.error_callback else {
            return;
        };
        let text = format!(
            "fake OpenCL: a command failed: {}",
            cl_headers::error_name(status)
        );
        engine::notify_soon(Box::new(move || {
            let text = CString::new(text).unwrap_or_default();
            // SAFETY: the application registered this function, which must stay callable.
            unsafe {
                (callback.function)(
                    text.as_ptr(),
                    std::ptr::null(),
                    0,
                    callback.user_data as *mut c_void,
                );
            }
        }));
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let handle = *self.handle.lock();
        for (function, user_data) in self.destructors.get_mut().drain(..).rev() {
            // SAFETY: the application registered this function, and it is called once.
            unsafe { function(handle as cl_context, user_data as *mut c_void) };
        }
    }
}

/// # Safety
/// As `clCreateContext`.
unsafe fn create(
    properties: *const cl_context_properties,
    devices: Vec<Ref<Device>>,
    pfn_notify: ContextCallback,
    user_data: *mut c_void,
) -> ClResult<cl_context> {
    ensure(
        pfn_notify.is_some() || user_data.is_null(),
        CL_INVALID_VALUE,
    )?;
    // SAFETY: the application passes a list as OpenCL requires.
    let properties = unsafe { arg::properties(properties) };
    let platform = devices[0].platform.handle();
    let alike = devices
        .iter()
        .all(|device| device.platform.handle() == platform);
    ensure(alike, CL_INVALID_DEVICE)?;
    let mut own: Vec<Ref<Device>> = Vec::new();
    for device in devices {
        if own.iter().all(|known| known.handle() != device.handle()) {
            own.push(device);
        }
    }
    let exclusive = own.iter().filter_map(|of| of.settings.exclusive.as_ref());
    let holds = exclusive.map(|path| Hold::take(path));
    let holds = holds.collect::<ClResult<Vec<_>>>()?;
    let own_memory = own.iter().map(|of| OwnMemory::of(of.index)).collect();
    let context = Ref::new(Context {
        _own_memory: own_memory,
        devices: own,
        properties,
        error_callback: pfn_notify.map(|function| ErrorCallback {
            function,
            user_data: user_data as usize,
        }),
        destructors: Mutex::new(Vec::new()),
        handle: Mutex::new(0),
        device_queues: DeviceQueues::default(),
        _holds: holds,
    });
    *context.handle.lock() = context.handle().addr();
    Ok(context.publish())
}

/// Checks a property list. Returns the platform that it names.
///
/// # Safety
/// `properties` is NULL or ends with 0.
unsafe fn check_properties<'a>(
    properties: *const cl_context_properties,
) -> ClResult<Option<&'a Object<Platform>>> {
    // SAFETY: the application passes a list as OpenCL requires.
    let list = unsafe { arg::properties(properties) };
    let mut platform = None;
    let mut seen = Vec::new();
    for pair in list.chunks_exact(2) {
        ensure(!seen.contains(&pair[0]), CL_INVALID_PROPERTY)?;
        seen.push(pair[0]);
        match pair[0] as cl_context_properties {
            CL_CONTEXT_PLATFORM => {
                let handle = pair[1] as usize as cl_platform_id;
                // SAFETY: the application passes a handle that it got from this driver, or NULL.
                platform = Some(unsafe { Object::<Platform>::borrow(handle) }?);
            }
            CL_CONTEXT_INTEROP_USER_SYNC => {}
            _ => return fail(CL_INVALID_PROPERTY),
        }
    }
    Ok(platform)
}

pub(crate) mod api {
    #![allow(non_snake_case, reason = "OpenCL's names")]
    use super::*;
    use crate::info::{Info, reply};

    pub(crate) unsafe fn clCreateContext(
        properties: *const cl_context_properties,
        num_devices: cl_uint,
        devices: *const cl_device_id,
        pfn_notify: ContextCallback,
        user_data: *mut c_void,
        _errcode_ret: *mut cl_int,
    ) -> ClResult<cl_context> {
        // SAFETY: the application passes a list as OpenCL requires.
        let platform = unsafe { check_properties(properties) }?;
        ensure(num_devices > 0 && !devices.is_null(), CL_INVALID_VALUE)?;
        // SAFETY: the application passes a list as OpenCL requires.
        let devices = unsafe { arg::objects::<Device>(num_devices, devices) }?;
        let devices: Vec<_> = devices.into_iter().map(Object::hold).collect();
        if let Some(platform) = platform {
            let theirs = devices[0].platform.handle() == platform.handle();
            ensure(theirs, CL_INVALID_DEVICE)?;
        }
        // SAFETY: the caller keeps the same contract.
        unsafe { create(properties, devices, pfn_notify, user_data) }
    }

    pub(crate) unsafe fn clCreateContextFromType(
        properties: *const cl_context_properties,
        kind: cl_device_type,
        pfn_notify: ContextCallback,
        user_data: *mut c_void,
        _errcode_ret: *mut cl_int,
    ) -> ClResult<cl_context> {
        // SAFETY: the application passes a list as OpenCL requires.
        let platform = match unsafe { check_properties(properties) }? {
            Some(platform) => platform,
            // SAFETY: NULL is allowed.
            None => unsafe { platform_or_default(std::ptr::null_mut()) }?,
        };
        let devices = device::of_type(platform, kind)?;
        // SAFETY: the caller keeps the same contract.
        unsafe { create(properties, devices, pfn_notify, user_data) }
    }

    pub(crate) unsafe fn clRetainContext(context: cl_context) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        unsafe { Object::<Context>::borrow(context) }?.retain();
        Ok(())
    }

    pub(crate) unsafe fn clReleaseContext(context: cl_context) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        unsafe { Object::<Context>::borrow(context) }?.release()
    }

    pub(crate) unsafe fn clSetContextDestructorCallback(
        context: cl_context,
        pfn_notify: ContextDestructorCallback,
        user_data: *mut c_void,
    ) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let context = unsafe { Object::<Context>::borrow(context) }?;
        let Some(function) = pfn_notify else {
            return fail(CL_INVALID_VALUE);
        };
        let mut destructors = context.destructors.lock();
        destructors.push((function, user_data as usize));
        Ok(())
    }

    pub(crate) unsafe fn clGetContextInfo(
        context: cl_context,
        name: cl_context_info,
        size: size_t,
        value: *mut c_void,
        size_ret: *mut size_t,
    ) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let context = unsafe { Object::<Context>::borrow(context) }?;
        let answer = match name {
            CL_CONTEXT_REFERENCE_COUNT => Info::uint(context.references()),
            CL_CONTEXT_NUM_DEVICES => Info::uint(context.devices.len() as cl_uint),
            CL_CONTEXT_DEVICES => {
                Info::handles(context.devices.iter().map(|device| device.handle()))
            }
            CL_CONTEXT_PROPERTIES => Info::ulongs(&context.properties),
            _ => return fail(CL_INVALID_VALUE),
        };
        // SAFETY: the application passes memory as OpenCL requires.
        unsafe { reply(answer, size, value, size_ret) }
    }
}
