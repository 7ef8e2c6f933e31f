//! Sub-devices: `clCreateSubDevices`, and reference counts of devices. Root devices have no reference
//! count.
//!
//! The older `cl_ext_device_fission` is not offered. Its function for creation always fails.

use std::sync::Arc;

use causeway_proto::limits::MAX_LIST;
use cl_headers::types::*;

use super::context::make_ready;
use super::entry::entry_point;
use super::handle;
use crate::error::{ClResult, fail, require};
use crate::stub::Device;

/// Reads a partition: its scheme and the values of the scheme, without the end of the list.
fn read(properties: *const cl_device_partition_property) -> ClResult<Vec<i64>> {
    // clCreateSubDevices: CL_INVALID_VALUE when properties is not a valid list, and so when it is NULL.
    require(!properties.is_null(), CL_INVALID_VALUE)?;
    // SAFETY: the list ends with a 0, and nothing after the end that belongs to its scheme is read.
    let at = |place: usize| unsafe { properties.add(place).read() };
    let way = at(0);
    let mut all = vec![way as i64];
    match way {
        CL_DEVICE_PARTITION_EQUALLY | CL_DEVICE_PARTITION_BY_AFFINITY_DOMAIN => {
            all.push(at(1) as i64);
        }
        CL_DEVICE_PARTITION_BY_COUNTS => {
            while at(all.len()) != CL_DEVICE_PARTITION_BY_COUNTS_LIST_END {
                // clCreateSubDevices: CL_INVALID_DEVICE_PARTITION_COUNT when more parts are asked for than
                // the device can have.
                // No device has this many compute units, and a worker takes no longer list.
                require(all.len() < MAX_LIST, CL_INVALID_DEVICE_PARTITION_COUNT)?;
                all.push(at(all.len()) as i64);
            }
            // clCreateSubDevices: CL_INVALID_VALUE when a list by counts does not end with a 0 after its
            // own end mark.
            require(at(all.len() + 1) == 0, CL_INVALID_VALUE)?;
            return Ok(all);
        }
        // clCreateSubDevices: CL_INVALID_VALUE when the partition scheme is unknown.
        _ => return fail(CL_INVALID_VALUE),
    }
    // clCreateSubDevices: CL_INVALID_VALUE when anything but the final 0 follows the scheme's one value.
    require(at(2) == 0, CL_INVALID_VALUE)?;
    Ok(all)
}

/// Checks that the device offers this partition scheme.
///
/// # Errors
/// `CL_INVALID_VALUE` when even its root device does not; `CL_DEVICE_PARTITION_FAILED` when only this
/// sub-device does not.
fn check_way(device: &Arc<Device>, way: i64) -> ClResult {
    let offers = |device: &Device| {
        let ways = device.sizes(CL_DEVICE_PARTITION_PROPERTIES);
        ways.contains(&(way as u64))
    };
    let mut root = device;
    while let Some(parent) = root.parent() {
        root = parent;
    }
    // clCreateSubDevices: CL_INVALID_VALUE when the scheme is not one that the device supports.
    require(offers(root), CL_INVALID_VALUE)?;
    // clCreateSubDevices: CL_DEVICE_PARTITION_FAILED when the scheme is supported but this device cannot be
    // divided further.
    require(offers(device), CL_DEVICE_PARTITION_FAILED)
}

// clRetainDevice, clReleaseDevice: a root device is never released, so both calls succeed without effect.
fn retain(device: cl_device_id) -> ClResult {
    match handle::resolve::<Device>(device)?.parent() {
        Some(_) => handle::retain::<Device>(device),
        None => Ok(()),
    }
}

fn release(device: cl_device_id) -> ClResult {
    match handle::resolve::<Device>(device)?.parent() {
        Some(_) => handle::release::<Device>(device),
        None => Ok(()),
    }
}

#[entry_point]
pub(crate) fn clCreateSubDevices(
    in_device: cl_device_id,
    properties: *const cl_device_partition_property,
    num_devices: cl_uint,
    out_devices: *mut cl_device_id,
    num_devices_ret: *mut cl_uint,
) -> ClResult {
    let device = handle::resolve::<Device>(in_device)?;
    let properties = read(properties)?;
    check_way(&device, properties[0])?;
    // clCreateSubDevices: CL_INVALID_VALUE when out_devices is not NULL and num_devices is 0, which no
    // result can fit.
    require(out_devices.is_null() || num_devices > 0, CL_INVALID_VALUE)?;
    make_ready(std::slice::from_ref(&device))?;
    let room = if out_devices.is_null() {
        0
    } else {
        num_devices
    };
    let (count, parts) = device.divide(properties, room)?;
    if !num_devices_ret.is_null() {
        // SAFETY: not NULL, so there is room for a number.
        unsafe { num_devices_ret.write(count) };
    }
    for (place, part) in parts.into_iter().enumerate() {
        // SAFETY: `out_devices` is not NULL where there are parts, and `divide` returns at most
        // `num_devices` of them.
        unsafe { out_devices.add(place).write(handle::publish(part)) };
    }
    Ok(())
}

#[entry_point]
pub(crate) fn clRetainDevice(device: cl_device_id) -> ClResult {
    retain(device)
}

#[entry_point]
pub(crate) fn clReleaseDevice(device: cl_device_id) -> ClResult {
    release(device)
}

#[entry_point]
pub(crate) fn clRetainDeviceEXT(device: cl_device_id) -> ClResult {
    retain(device)
}

#[entry_point]
pub(crate) fn clReleaseDeviceEXT(device: cl_device_id) -> ClResult {
    release(device)
}

#[entry_point]
pub(crate) fn clCreateSubDevicesEXT(
    in_device: cl_device_id,
    _properties: *const cl_device_partition_property_ext,
    _num_entries: cl_uint,
    _out_devices: *mut cl_device_id,
    _num_devices: *mut cl_uint,
) -> ClResult {
    handle::resolve::<Device>(in_device)?;
    // cl_ext_device_fission is not reported; its clCreateSubDevicesEXT answers CL_INVALID_VALUE, as for
    // a property that no device supports.
    fail(CL_INVALID_VALUE)
}
