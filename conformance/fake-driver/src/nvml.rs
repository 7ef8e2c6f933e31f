//! The functions of NVIDIA's management library that causewayd uses, for a driver that plays NVIDIA's.
//!
//! A program finds this library as `libnvidia-ml.so.1` through a link of that name in `LD_LIBRARY_PATH`. A device
//! with `exclusive` is in exclusive mode, any other one is shared. Invariant: a handle is the index of a device
//! plus 1.
#![allow(non_snake_case, reason = "NVML's names")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use crate::control;

/// The vendor id of devices that have UUIDs.
pub(crate) const VENDOR_NVIDIA: u32 = 0x10DE;
const SUCCESS: c_int = 0;
const NOT_FOUND: c_int = 6;
const SHARED: c_uint = 0;
const EXCLUSIVE_PROCESS: c_uint = 3;

/// Returns the `CL_DEVICE_UUID_KHR` of a device.
pub(crate) fn uuid(index: usize) -> [u8; 16] {
    let mut uuid = [0xFA; 16];
    uuid[8..].copy_from_slice(&(index as u64).to_be_bytes());
    uuid
}

/// Returns the index of the device with this name, `GPU-` and the UUID with hyphens.
fn index(name: &str) -> Option<usize> {
    let digits = name.strip_prefix("GPU-")?.replace('-', "");
    let number = u128::from_str_radix(&digits, 16).ok()?;
    let count = control::current().devices.len();
    (0..count).find(|index| u128::from_be_bytes(uuid(*index)) == number)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> c_int {
    SUCCESS
}

/// # Safety
/// As NVML requires: `name` is a C string, and `handle` can be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetHandleByUUID(
    name: *const c_char,
    handle: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller passes a C string.
    let name = unsafe { CStr::from_ptr(name) };
    let Some(index) = name.to_str().ok().and_then(index) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller passes a place for the handle.
    unsafe { *handle = std::ptr::without_provenance_mut(index + 1) };
    SUCCESS
}

/// # Safety
/// As NVML requires: `mode` can be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetComputeMode(handle: *mut c_void, mode: *mut c_uint) -> c_int {
    let devices = &control::current().devices;
    let Some(device) = handle.addr().checked_sub(1).and_then(|at| devices.get(at)) else {
        return NOT_FOUND;
    };
    let of_device = match device.exclusive {
        Some(_) => EXCLUSIVE_PROCESS,
        None => SHARED,
    };
    // SAFETY: the caller passes a place for the mode.
    unsafe { *mode = of_device };
    SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_have_no_device() {
        assert_eq!(index("GPU-"), None);
        assert_eq!(index("GPU-00000000-0000-0000-0000-000000000000"), None);
        assert_eq!(index("fafafafa-fafa-fafa-0000-000000000000"), None);
        assert_eq!(index("GPU-fafafafa-fafa-fafa-0000-000000000000"), Some(0));
    }
}
