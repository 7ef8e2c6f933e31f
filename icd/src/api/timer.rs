//! Device and host timers.
//!
//! Every device has them, whatever its driver offers: the client converts device times to the host's clock
//! anyway.

use cl_headers::types::*;

use super::entry::entry_point;
use super::handle;
use crate::error::{ClResult, require};
use crate::stub::{Device, device::timer};

#[entry_point]
pub(crate) fn clGetDeviceAndHostTimer(
    device: cl_device_id,
    device_timestamp: *mut cl_ulong,
    host_timestamp: *mut cl_ulong,
) -> ClResult {
    let device = handle::resolve::<Device>(device)?;
    // clGetDeviceAndHostTimer: CL_INVALID_VALUE when either pointer is NULL.
    require(
        !device_timestamp.is_null() && !host_timestamp.is_null(),
        CL_INVALID_VALUE,
    )?;
    let (device_ns, host_ns) = timer::device_and_host(&device)?;
    // SAFETY: not NULL, so the specification demands room for a number.
    unsafe { device_timestamp.write(device_ns) };
    // SAFETY: as for the device's time.
    unsafe { host_timestamp.write(host_ns) };
    Ok(())
}

#[entry_point]
pub(crate) fn clGetHostTimer(device: cl_device_id, host_timestamp: *mut cl_ulong) -> ClResult {
    handle::resolve::<Device>(device)?;
    // clGetHostTimer: CL_INVALID_VALUE when host_timestamp is NULL.
    require(!host_timestamp.is_null(), CL_INVALID_VALUE)?;
    // SAFETY: not NULL, so the specification demands room for a number.
    unsafe { host_timestamp.write(timer::host_ns()) };
    Ok(())
}
