//! Device and host timers: an absent optional feature of OpenCL 3.0
//! (`CL_PLATFORM_HOST_TIMER_RESOLUTION` is 0).

use cl_headers::types::*;

use super::entry::entry_points;
use super::handle;
use crate::error::fail;
use crate::stub::Device;

entry_points! {
    fn clGetDeviceAndHostTimer(device: cl_device_id, _device_timestamp: *mut cl_ulong, _host_timestamp: *mut cl_ulong) {
        handle::resolve::<Device>(device)?;
        fail(CL_INVALID_OPERATION)
    }

    fn clGetHostTimer(device: cl_device_id, _host_timestamp: *mut cl_ulong) {
        handle::resolve::<Device>(device)?;
        fail(CL_INVALID_OPERATION)
    }
}
