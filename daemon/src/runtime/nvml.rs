//! NVIDIA's management library, loaded at run time: the compute mode of a card.
//!
//! The library needs no context on the card, so it neither takes memory there nor fails while another
//! process has the card. It is a part of NVIDIA's driver; a container may lack it all the same. It can
//! block or crash like any driver, so only a probing process may use it, on a thread of its own. Invariant: the
//! library is never unloaded, so a function that was found remains callable.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};

use causeway_proto::control::ComputeMode;

const LIBRARY: &CStr = c"libnvidia-ml.so.1";
const SUCCESS: c_int = 0;

type Init = unsafe extern "C" fn() -> c_int;
type HandleByUuid = unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> c_int;
type GetComputeMode = unsafe extern "C" fn(*mut c_void, *mut c_uint) -> c_int;

/// The functions of the library.
pub(super) struct Nvml {
    handle_by_uuid: HandleByUuid,
    compute_mode: GetComputeMode,
}

impl Nvml {
    /// Loads the library; `None` if it is missing, or too old, or finds no driver.
    pub(super) fn load() -> Option<Nvml> {
        // SAFETY: the name ends in NUL. The library's initialisers run, as for any driver.
        let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return None;
        }
        let find = |name: &CStr| {
            // SAFETY: the library is loaded, and the name ends in NUL.
            let found = unsafe { libc::dlsym(library, name.as_ptr()) };
            (!found.is_null()).then_some(found)
        };
        let (init, by_uuid, mode) = (
            find(c"nvmlInit_v2")?,
            find(c"nvmlDeviceGetHandleByUUID")?,
            find(c"nvmlDeviceGetComputeMode")?,
        );
        // SAFETY: functions of these names have these signatures (NVML API reference).
        let (init, functions) = unsafe {
            (
                std::mem::transmute::<*mut c_void, Init>(init),
                Nvml {
                    handle_by_uuid: std::mem::transmute::<*mut c_void, HandleByUuid>(by_uuid),
                    compute_mode: std::mem::transmute::<*mut c_void, GetComputeMode>(mode),
                },
            )
        };
        // SAFETY: the function has no parameters and may be called at any time.
        (unsafe { init() } == SUCCESS).then_some(functions)
    }

    /// Returns the compute mode of the card with this `CL_DEVICE_UUID_KHR`.
    pub(super) fn compute_mode(&self, uuid: &[u8; 16]) -> ComputeMode {
        let Ok(name) = CString::new(name(uuid)) else {
            return ComputeMode::Unknown;
        };
        let (mut card, mut mode) = (std::ptr::null_mut(), 0);
        // SAFETY: the library is initialised, the name ends in NUL, and the results are writable.
        let found = unsafe {
            (self.handle_by_uuid)(name.as_ptr(), &raw mut card) == SUCCESS
                && (self.compute_mode)(card, &raw mut mode) == SUCCESS
        };
        match (found, mode) {
            (true, 0) => ComputeMode::Shared,
            // By thread (before CUDA 8) or by process.
            (true, 1 | 3) => ComputeMode::Exclusive,
            (true, 2) => ComputeMode::Prohibited,
            _ => ComputeMode::Unknown,
        }
    }
}

/// Returns the name that the library has for a card, `GPU-` and the UUID.
fn name(uuid: &[u8; 16]) -> String {
    let digits =
        |part: &[u8]| -> String { part.iter().map(|byte| format!("{byte:02x}")).collect() };
    let parts = [
        &uuid[..4],
        &uuid[4..6],
        &uuid[6..8],
        &uuid[8..10],
        &uuid[10..],
    ];
    format!("GPU-{}", parts.map(digits).join("-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_is_named_by_its_uuid() {
        let uuid = std::array::from_fn(|i| 0x10 + i as u8);
        assert_eq!(name(&uuid), "GPU-10111213-1415-1617-1819-1a1b1c1d1e1f");
    }
}
