//! Sub-devices: no root device can be partitioned yet (`CL_DEVICE_PARTITION_PROPERTIES` is one 0).

use cl_headers::types::*;

use super::entry::entry_points;
use super::handle;
use crate::error::fail;
use crate::stub::Device;

entry_points! {
    fn clCreateSubDevices(in_device: cl_device_id, _properties: *const cl_device_partition_property, _num_devices: cl_uint, _out_devices: *mut cl_device_id, _num_devices_ret: *mut cl_uint) {
        handle::resolve::<Device>(in_device)?;
        fail(CL_INVALID_VALUE)
    }

    fn clCreateSubDevicesEXT(in_device: cl_device_id, _properties: *const cl_device_partition_property_ext, _num_entries: cl_uint, _out_devices: *mut cl_device_id, _num_devices: *mut cl_uint) {
        handle::resolve::<Device>(in_device)?;
        fail(CL_INVALID_VALUE)
    }

    fn clRetainDeviceEXT(device: cl_device_id) {
        handle::resolve::<Device>(device).map(drop)
    }

    fn clReleaseDeviceEXT(device: cl_device_id) {
        handle::resolve::<Device>(device).map(drop)
    }
}
