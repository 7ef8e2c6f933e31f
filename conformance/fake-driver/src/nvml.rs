//! The functions of NVIDIA's management library that causewayd uses, for a driver that plays NVIDIA's.
//!
//! A program finds this library as `libnvidia-ml.so.1` through a link of that name in `LD_LIBRARY_PATH`. A device
//! with `exclusive` is in exclusive mode, any other one is shared. `card` sets what the library says. A process sees its
//! own context only. Invariant: a handle is the index of a device plus 1.
#![allow(non_snake_case, reason = "NVML's names")]

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};

use parking_lot::Mutex;

use crate::config::Card;
use crate::control;

/// The vendor id of devices that have UUIDs.
pub(crate) const VENDOR_NVIDIA: u32 = 0x10DE;
const SUCCESS: c_int = 0;
const NOT_SUPPORTED: c_int = 3;
const NOT_FOUND: c_int = 6;
const TOO_SMALL: c_int = 7;
const MISMATCH: c_int = 25;
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

/// Number of this process's contexts, by device.
static CONTEXTS: Mutex<Option<HashMap<usize, usize>>> = Mutex::new(None);

/// A context's memory on a card.
pub(crate) struct OwnMemory(usize);

impl OwnMemory {
    pub(crate) fn of(device: usize) -> OwnMemory {
        let mut contexts = CONTEXTS.lock();
        *contexts.get_or_insert_default().entry(device).or_default() += 1;
        OwnMemory(device)
    }
}

impl Drop for OwnMemory {
    fn drop(&mut self) {
        let mut contexts = CONTEXTS.lock();
        if let Some(count) = contexts.get_or_insert_default().get_mut(&self.0) {
            *count -= 1;
        }
    }
}

/// Returns what a process takes of the device, if this one has a context there.
fn own_memory(index: usize, card: &Card) -> Option<u64> {
    let contexts = CONTEXTS.lock();
    let count = contexts.as_ref().and_then(|of| of.get(&index).copied());
    count
        .filter(|count| *count > 0)
        .map(|_| card.context_memory)
}

/// Calls `answer` with the index, the memory and the settings of a card.
fn with_card(handle: *mut c_void, answer: impl FnOnce(usize, u64, &Card) -> c_int) -> c_int {
    let devices = &control::current().devices;
    let index = handle.addr().wrapping_sub(1);
    match devices.get(index) {
        None => NOT_FOUND,
        Some(device) => match &device.card {
            None => NOT_SUPPORTED,
            Some(card) if card.crash => std::process::abort(),
            Some(card) => answer(index, device.memory, card),
        },
    }
}

/// As NVML defines it.
#[repr(C)]
struct Utilization {
    gpu: c_uint,
    memory: c_uint,
}

/// # Safety
/// As NVML requires: `utilization` can be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetUtilizationRates(
    handle: *mut c_void,
    utilization: *mut Utilization,
) -> c_int {
    with_card(handle, |_, _, card| {
        let Some(gpu) = card.utilization else {
            return NOT_SUPPORTED;
        };
        let rates = Utilization { gpu, memory: 0 };
        // SAFETY: the caller passes a place for the rates.
        unsafe { *utilization = rates };
        SUCCESS
    })
}

/// What the driver keeps for itself.
const RESERVED: u64 = 600 << 20;

/// As NVML defines it in version 1.
#[repr(C)]
struct Memory {
    total: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

/// # Safety
/// As NVML requires: `memory` can be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMemoryInfo(handle: *mut c_void, memory: *mut Memory) -> c_int {
    with_card(handle, |index, total, card| {
        let used = RESERVED + card.memory_used + own_memory(index, card).unwrap_or(0);
        let free = total.saturating_sub(used);
        // SAFETY: the caller passes a place for the sizes.
        unsafe { *memory = Memory { total, free, used } };
        SUCCESS
    })
}

/// As NVML defines it in version 2.
#[repr(C)]
struct MemoryV2 {
    version: c_uint,
    total: c_ulonglong,
    reserved: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

/// # Safety
/// As NVML requires: `memory` can be read and written.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(
    handle: *mut c_void,
    memory: *mut MemoryV2,
) -> c_int {
    with_card(handle, |index, total, card| {
        // SAFETY: the caller has set the version.
        let version = unsafe { (*memory).version };
        if version != size_of::<MemoryV2>() as c_uint | 2 << 24 {
            return MISMATCH;
        }
        let used = card.memory_used + own_memory(index, card).unwrap_or(0);
        let sizes = MemoryV2 {
            version,
            total,
            reserved: RESERVED,
            free: total.saturating_sub(used + RESERVED),
            used,
        };
        // SAFETY: the caller passes a place for the sizes.
        unsafe { *memory = sizes };
        SUCCESS
    })
}

/// # Safety
/// As NVML requires: `temperature` can be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetTemperature(
    handle: *mut c_void,
    _sensor: c_uint,
    temperature: *mut c_uint,
) -> c_int {
    with_card(handle, |_, _, card| {
        // SAFETY: the caller passes a place for the temperature.
        unsafe { *temperature = card.temperature };
        SUCCESS
    })
}

/// As NVML defines it.
#[repr(C)]
struct ProcessInfo {
    pid: c_uint,
    used_memory: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

/// # Safety
/// As NVML requires: `count` is the number of entries for which `processes` has room.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(
    handle: *mut c_void,
    count: *mut c_uint,
    processes: *mut ProcessInfo,
) -> c_int {
    with_card(handle, |index, _, card| {
        let own = own_memory(index, card);
        // SAFETY: the caller passes the number of entries.
        let room = unsafe { *count };
        // SAFETY: as before.
        unsafe { *count = c_uint::from(own.is_some()) };
        match own {
            None => SUCCESS,
            Some(_) if room == 0 => TOO_SMALL,
            Some(used_memory) => {
                let process = ProcessInfo {
                    pid: std::process::id(),
                    used_memory,
                    gpu_instance: c_uint::MAX,
                    compute_instance: c_uint::MAX,
                };
                // SAFETY: there is room for an entry.
                unsafe { processes.write(process) };
                SUCCESS
            }
        }
    })
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
