//! Sub-devices: `clCreateSubDevices`, and reference counts of devices, which root devices do not have.
//!
//! `cl_ext_device_fission`, which came before, is not offered; its function refuses.

use std::sync::Arc;

use causeway_proto::limits::MAX_LIST;
use cl_headers::types::*;

use super::context::make_ready;
use super::entry::entry_points;
use super::handle;
use crate::error::{ClResult, fail, require};
use crate::stub::Device;

/// Reads a partition: the way and its values, without what ends the list.
fn read(properties: *const cl_device_partition_property) -> ClResult<Vec<i64>> {
    require(!properties.is_null(), CL_INVALID_VALUE)?;
    // SAFETY: the list ends with a 0; nothing behind the end that its way has is read.
    let at = |place: usize| unsafe { properties.add(place).read() };
    let way = at(0);
    let mut all = vec![way as i64];
    match way {
        CL_DEVICE_PARTITION_EQUALLY | CL_DEVICE_PARTITION_BY_AFFINITY_DOMAIN => {
            all.push(at(1) as i64);
        }
        CL_DEVICE_PARTITION_BY_COUNTS => {
            while at(all.len()) != CL_DEVICE_PARTITION_BY_COUNTS_LIST_END {
                // No device has so many compute units.
                require(all.len() < MAX_LIST, CL_INVALID_DEVICE_PARTITION_COUNT)?;
                all.push(at(all.len()) as i64);
            }
            require(at(all.len() + 1) == 0, CL_INVALID_VALUE)?;
            return Ok(all);
        }
        _ => return fail(CL_INVALID_VALUE),
    }
    require(at(2) == 0, CL_INVALID_VALUE)?;
    Ok(all)
}

/// Whether the device can be divided in this way; a part perhaps no more, where its root device can.
fn check_way(device: &Arc<Device>, way: i64) -> ClResult {
    let offers = |device: &Device| {
        let ways = device.sizes(CL_DEVICE_PARTITION_PROPERTIES);
        ways.contains(&(way as u64))
    };
    let mut root = device;
    while let Some(parent) = root.parent() {
        root = parent;
    }
    require(offers(root), CL_INVALID_VALUE)?;
    require(offers(device), CL_DEVICE_PARTITION_FAILED)
}

// A root device is never released: both succeed without effect.
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

entry_points! {
    fn clCreateSubDevices(
        in_device: cl_device_id, properties: *const cl_device_partition_property, num_devices: cl_uint,
        out_devices: *mut cl_device_id, num_devices_ret: *mut cl_uint,
    ) {
        let device = handle::resolve::<Device>(in_device)?;
        let properties = read(properties)?;
        check_way(&device, properties[0])?;
        require(out_devices.is_null() || num_devices > 0, CL_INVALID_VALUE)?;
        make_ready(std::slice::from_ref(&device))?;
        let room = if out_devices.is_null() { 0 } else { num_devices };
        let (count, parts) = device.divide(properties, room)?;
        if !num_devices_ret.is_null() {
            // SAFETY: not NULL, so there is room for a number.
            unsafe { num_devices_ret.write(count) };
        }
        for (place, part) in parts.into_iter().enumerate() {
            // SAFETY: not NULL, or there were no parts; and these are no more than `num_devices`.
            unsafe { out_devices.add(place).write(handle::publish(part)) };
        }
        Ok(())
    }

    fn clRetainDevice(device: cl_device_id) {
        retain(device)
    }

    fn clReleaseDevice(device: cl_device_id) {
        release(device)
    }

    fn clRetainDeviceEXT(device: cl_device_id) {
        retain(device)
    }

    fn clReleaseDeviceEXT(device: cl_device_id) {
        release(device)
    }

    fn clCreateSubDevicesEXT(in_device: cl_device_id, _properties: *const cl_device_partition_property_ext, _num_entries: cl_uint, _out_devices: *mut cl_device_id, _num_devices: *mut cl_uint) {
        handle::resolve::<Device>(in_device)?;
        fail(CL_INVALID_VALUE)
    }
}
