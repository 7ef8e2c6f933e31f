//! Contexts: creation, reference counts, info, destructor callbacks.

use std::ffi::CString;
use std::sync::Arc;

use cl_headers::types::*;

use super::device::devices_of_type;
use super::entry::entry_point;
use super::handle;
use super::info::{Answered, Info, list};
use super::properties::PropertyList;
use crate::error::{ClResult, Status, fail, require};
use crate::stub::{Context, ContextNotify, Device, Platform};

// The application promises that any thread may use its data in the callback that it gave.
struct UserData(*mut c_void);
// SAFETY: see above. This library only passes the pointer back.
unsafe impl Send for UserData {}
// SAFETY: as for `Send`.
unsafe impl Sync for UserData {}

fn notify_of(callback: ContextCallback, user_data: *mut c_void) -> ClResult<Option<ContextNotify>> {
    let Some(callback) = callback else {
        // clCreateContext: CL_INVALID_VALUE when pfn_notify is NULL but user_data is not.
        require(user_data.is_null(), CL_INVALID_VALUE)?;
        return Ok(None);
    };
    let user_data = UserData(user_data);
    Ok(Some(Arc::new(move |text: &str| {
        let user_data = &user_data;
        // The specification's text is a C string, which cannot contain a NUL.
        let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
        // SAFETY: the application gave this callback and this data for exactly this call.
        unsafe { callback(text.as_ptr(), std::ptr::null(), 0, user_data.0) };
    })))
}

/// Reads and checks a property list. Returns it with its final 0, or an empty list for NULL.
fn properties_of(properties: *const cl_context_properties) -> ClResult<Vec<isize>> {
    // SAFETY: the specification demands a list of pairs that a name of 0 ends.
    let mut list = unsafe { PropertyList::new(properties) };
    while let Some(name) = list.name() {
        let value = list.value();
        // clCreateContext: CL_INVALID_PROPERTY when a name appears twice.
        require(!list.is_repeated(), CL_INVALID_PROPERTY)?;
        match name {
            CL_CONTEXT_PLATFORM => {
                let platform = std::ptr::with_exposed_provenance_mut(value as usize);
                // clCreateContext: CL_INVALID_PLATFORM when the value of CL_CONTEXT_PLATFORM is not a valid
                // platform.
                handle::resolve::<Platform>(platform)?;
            }
            CL_CONTEXT_INTEROP_USER_SYNC => {
                // clCreateContext: CL_INVALID_PROPERTY when the value of a name is not valid; this one is a
                // cl_bool.
                require(matches!(value, 0 | 1), CL_INVALID_PROPERTY)?;
            }
            // clCreateContext: CL_INVALID_PROPERTY when a name is not supported.
            _ => return fail(CL_INVALID_PROPERTY),
        }
    }
    Ok(list.read())
}

/// Prepares devices for use: turns a device manager's reservation into a lease, where the devices come from
/// one.
///
/// # Errors
/// `CL_DEVICE_NOT_AVAILABLE` when the manager does not grant the lease, or a device or its node is gone.
pub(super) fn make_ready(devices: &[Arc<Device>]) -> ClResult {
    if let Some(platform) = Platform::get() {
        platform.confirm(devices)?;
    }
    let gone = |device: &Arc<Device>| device.is_gone() || device.node().is_disconnected();
    // clCreateContext: CL_DEVICE_NOT_AVAILABLE when a device cannot be used at present.
    require(!devices.iter().any(gone), CL_DEVICE_NOT_AVAILABLE)
}

fn create(
    devices: Vec<Arc<Device>>,
    properties: Vec<isize>,
    notify: Option<ContextNotify>,
) -> ClResult<cl_context> {
    make_ready(&devices)?;
    Ok(handle::publish(Context::new(devices, properties, notify)?))
}

/// Whether the nodes of some of these devices, but not of all, are unavailable.
fn some_are_gone(devices: &[Arc<Device>]) -> bool {
    let gone = devices
        .iter()
        .filter(|device| !device.node().is_available());
    (1..devices.len()).contains(&gone.count())
}

#[entry_point]
pub(crate) fn clCreateContext(
    properties: *const cl_context_properties,
    num_devices: cl_uint,
    devices: *const cl_device_id,
    pfn_notify: ContextCallback,
    user_data: *mut c_void,
) -> ClResult<cl_context> {
    let properties = properties_of(properties)?;
    // clCreateContext: CL_INVALID_VALUE when devices is NULL or num_devices is 0.
    require(!devices.is_null() && num_devices > 0, CL_INVALID_VALUE)?;
    let notify = notify_of(pfn_notify, user_data)?;
    // SAFETY: not NULL, and the caller gives `num_devices` handles.
    let handles = unsafe { list(devices, num_devices as usize) };
    let mut chosen: Vec<Arc<Device>> = Vec::new();
    for &raw in handles {
        // clCreateContext: CL_INVALID_DEVICE when an entry of devices is not a valid device.
        let device = handle::resolve::<Device>(raw)?;
        // clCreateContext ignores a device that appears twice.
        if !chosen.iter().any(|known| Arc::ptr_eq(known, &device)) {
            chosen.push(device);
        }
    }
    create(chosen, properties, notify)
}

#[entry_point]
pub(crate) fn clCreateContextFromType(
    properties: *const cl_context_properties,
    device_type: cl_device_type,
    pfn_notify: ContextCallback,
    user_data: *mut c_void,
) -> ClResult<cl_context> {
    let properties = properties_of(properties)?;
    let notify = notify_of(pfn_notify, user_data)?;
    let platform = super::device::platform_of(std::ptr::null_mut())?;
    let mut chosen = devices_of_type(&platform, device_type)?;
    // clCreateContextFromType: CL_DEVICE_NOT_FOUND when no device has the type.
    require(!chosen.is_empty(), CL_DEVICE_NOT_FOUND)?;
    loop {
        // Devices of unavailable nodes are left out as long as one node is available. If all are
        // unavailable, they are all tried: a lost node may be back.
        if chosen.iter().any(|device| device.is_available()) {
            chosen.retain(|device| device.is_available());
        }
        match create(chosen.clone(), properties.clone(), notify.clone()) {
            // The failed attempt has marked the nodes that it could not reach, so the next round leaves
            // them out.
            Err(Status::DEVICE_NOT_AVAILABLE) if some_are_gone(&chosen) => {}
            made => return made,
        }
    }
}

#[entry_point]
pub(crate) fn clRetainContext(context: cl_context) -> ClResult {
    handle::retain::<Context>(context)
}

#[entry_point]
pub(crate) fn clReleaseContext(context: cl_context) -> ClResult {
    handle::release::<Context>(context)
}

#[entry_point]
pub(crate) fn clGetContextInfo(
    context: cl_context,
    param_name: cl_context_info,
    info: Info,
) -> ClResult {
    let stub = handle::resolve::<Context>(context)?;
    answer(context, &stub, param_name, info).map(drop)
}

#[entry_point]
pub(crate) fn clSetContextDestructorCallback(
    context: cl_context,
    pfn_notify: ContextDestructorCallback,
    user_data: *mut c_void,
) -> ClResult {
    let stub = handle::resolve::<Context>(context)?;
    // clSetContextDestructorCallback: CL_INVALID_VALUE when pfn_notify is NULL.
    let Some(callback) = pfn_notify else {
        return fail(CL_INVALID_VALUE);
    };
    let (address, user_data) = (context.expose_provenance(), UserData(user_data));
    stub.on_destroyed(Box::new(move || {
        let user_data = user_data;
        let context = std::ptr::with_exposed_provenance_mut(address);
        // SAFETY: the application gave this callback and this data for exactly this call.
        unsafe { callback(context, user_data.0) };
    }));
    Ok(())
}

fn answer(
    raw: cl_context,
    context: &Arc<Context>,
    name: cl_context_info,
    info: Info,
) -> ClResult<Answered> {
    match name {
        CL_CONTEXT_REFERENCE_COUNT => info.give(handle::reference_count::<Context>(raw)?),
        CL_CONTEXT_NUM_DEVICES => info.give(context.devices().len() as cl_uint),
        CL_CONTEXT_DEVICES => {
            let devices: Vec<cl_device_id> = context.devices().iter().map(handle::raw_of).collect();
            info.give_slice(&devices)
        }
        CL_CONTEXT_PROPERTIES => info.give_slice(context.properties()),
        // clGetContextInfo: CL_INVALID_VALUE when param_name is not a known query.
        _ => fail(CL_INVALID_VALUE),
    }
}
