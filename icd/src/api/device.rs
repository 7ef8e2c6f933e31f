//! `clGetDeviceIDs`, `clGetDeviceInfo`.

use std::sync::Arc;

use cl_headers::types::*;

use super::entry::entry_point;
use super::handle::{self, Object};
use super::info::{Answered, Info};
use super::{command_buffer, loader, semaphore, server};
use crate::error::{ClResult, fail, require};
use crate::stub::{Device, Platform};

/// The platform that a `cl_platform_id` argument means. NULL means the only platform.
pub(super) fn platform_of(raw: cl_platform_id) -> ClResult<Arc<Platform>> {
    if raw.is_null()
        && let Some(own) = loader::platform_handle()
    {
        return handle::resolve::<Platform>(own);
    }
    handle::resolve::<Platform>(raw)
}

/// The devices of a type, in the platform's order. Each of them gets a handle.
///
/// # Errors
/// `CL_INVALID_DEVICE_TYPE` for unknown bits or for 0.
pub(super) fn devices_of_type(
    platform: &Platform,
    wanted: cl_device_type,
) -> ClResult<Vec<Arc<Device>>> {
    let known = CL_DEVICE_TYPE_DEFAULT
        | CL_DEVICE_TYPE_CPU
        | CL_DEVICE_TYPE_GPU
        | CL_DEVICE_TYPE_ACCELERATOR
        | CL_DEVICE_TYPE_CUSTOM;
    // clGetDeviceIDs: CL_INVALID_DEVICE_TYPE when device_type is not a valid value.
    require(
        wanted == CL_DEVICE_TYPE_ALL || (wanted != 0 && wanted & !known == 0),
        CL_INVALID_DEVICE_TYPE,
    )?;
    let is = |device: &Device, bits: cl_device_type| device.number(CL_DEVICE_TYPE) & bits != 0;
    // "Default" means exactly one device, and never a custom device. CL_DEVICE_TYPE_ALL leaves custom
    // devices out too.
    let devices = platform.devices();
    let default = devices
        .iter()
        .find(|device| !is(device, CL_DEVICE_TYPE_CUSTOM));
    let chosen = devices.iter().filter(|device| {
        let of_type = if wanted == CL_DEVICE_TYPE_ALL {
            !is(device, CL_DEVICE_TYPE_CUSTOM)
        } else {
            is(device, wanted & !CL_DEVICE_TYPE_DEFAULT)
        };
        let is_default = default.is_some_and(|default| Arc::ptr_eq(default, device));
        of_type || (wanted & CL_DEVICE_TYPE_DEFAULT != 0 && is_default)
    });
    Ok(chosen.cloned().inspect(publish_once).collect())
}

/// Gives a device or server its permanent handle, if it has none yet.
pub(super) fn publish_once<T: Object>(stub: &Arc<T>) {
    static PUBLISHING: parking_lot::Mutex<()> = parking_lot::Mutex::new(());
    let _one_at_a_time = PUBLISHING.lock();
    if stub.binding().handle().is_none() {
        handle::publish_permanent(stub);
    }
}

#[entry_point]
pub(crate) fn clGetDeviceIDs(
    platform: cl_platform_id,
    device_type: cl_device_type,
    num_entries: cl_uint,
    devices: *mut cl_device_id,
    num_devices: *mut cl_uint,
) -> ClResult {
    let platform = platform_of(platform)?;
    // clGetDeviceIDs: CL_INVALID_VALUE when devices is not NULL and num_entries is 0.
    require(devices.is_null() || num_entries > 0, CL_INVALID_VALUE)?;
    // clGetDeviceIDs: CL_INVALID_VALUE when both devices and num_devices are NULL.
    require(
        !(devices.is_null() && num_devices.is_null()),
        CL_INVALID_VALUE,
    )?;
    let found = devices_of_type(&platform, device_type)?;
    // clGetDeviceIDs: CL_DEVICE_NOT_FOUND when no device has the type.
    require(!found.is_empty(), CL_DEVICE_NOT_FOUND)?;
    if !num_devices.is_null() {
        // SAFETY: not NULL, so there is room for a number.
        unsafe { num_devices.write(found.len() as cl_uint) };
    }
    if !devices.is_null() {
        for (place, device) in found.iter().take(num_entries as usize).enumerate() {
            // SAFETY: `devices` has room for `num_entries` handles.
            unsafe { devices.add(place).write(handle::raw_of(device)) };
        }
    }
    Ok(())
}

#[entry_point]
pub(crate) fn clGetDeviceInfo(
    device: cl_device_id,
    param_name: cl_device_info,
    info: Info,
) -> ClResult {
    let raw = device;
    let device = handle::resolve::<Device>(raw)?;
    answer(raw, &device, param_name, info).map(drop)
}

fn answer(
    raw: cl_device_id,
    device: &Arc<Device>,
    name: cl_device_info,
    info: Info,
) -> ClResult<Answered> {
    match name {
        CL_DEVICE_PLATFORM => info.give(loader::platform_handle().unwrap_or(std::ptr::null_mut())),
        CL_DEVICE_REFERENCE_COUNT => match device.parent() {
            Some(_) => info.give(handle::reference_count::<Device>(raw)?),
            None => info.give(1u32),
        },
        // The node's driver would answer with a handle of its own process, so the inventory has no such
        // row.
        CL_DEVICE_PARENT_DEVICE => {
            info.give(device.parent().map_or(std::ptr::null_mut(), handle::raw_of))
        }
        CL_DEVICE_AVAILABLE => info.give_bool(device.is_available()),
        _ => own_answer(device, name, info).unwrap_or_else(|| match device.info(name) {
            Some(Ok(bytes)) => info.give_bytes(bytes),
            // clGetDeviceInfo: CL_INVALID_VALUE when param_name is not a known query, or not one that this
            // device answers.
            _ => fail(CL_INVALID_VALUE),
        }),
    }
}

/// Answers the queries that Causeway answers itself for every device, whatever the node's driver says.
fn own_answer(
    device: &Arc<Device>,
    name: cl_device_info,
    info: Info,
) -> Option<ClResult<Answered>> {
    server::device_answer(device, name, info)
        .or_else(|| command_buffer::device_answer(device, name, info))
        .or_else(|| semaphore::device_answer(name, info))
}
