//! NVIDIA's management library, loaded at run time: compute mode, use, temperature and processes of cards.
//!
//! The library needs no context on the card, so it neither takes memory there nor fails while another
//! process has the card. It is a part of NVIDIA's driver; a container may lack it all the same. It can
//! block or crash like any driver, so only processes without a session use it. Functions that an old library lacks
//! give no answer. Invariant: the library is never unloaded, so a function that was found remains callable.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::ptr::NonNull;

use causeway_proto::control::ComputeMode;

use crate::handover::CardFigures;

const LIBRARY: &CStr = c"libnvidia-ml.so.1";
const SUCCESS: c_int = 0;
/// The sensor of the chip.
const CHIP: c_uint = 0;
/// Most processes of a card that are looked at.
const MOST_PROCESSES: usize = 256;

type Init = unsafe extern "C" fn() -> c_int;
type HandleByUuid = unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> c_int;
type GetComputeMode = unsafe extern "C" fn(*mut c_void, *mut c_uint) -> c_int;
type GetUtilization = unsafe extern "C" fn(*mut c_void, *mut Utilization) -> c_int;
type GetMemory = unsafe extern "C" fn(*mut c_void, *mut Memory) -> c_int;
type GetMemoryV1 = unsafe extern "C" fn(*mut c_void, *mut MemoryV1) -> c_int;
type GetTemperature = unsafe extern "C" fn(*mut c_void, c_uint, *mut c_uint) -> c_int;
type GetProcesses = unsafe extern "C" fn(*mut c_void, *mut c_uint, *mut Process) -> c_int;

/// `nvmlUtilization_t`.
#[repr(C)]
#[derive(Default)]
struct Utilization {
    gpu: c_uint,
    memory: c_uint,
}

/// `nvmlMemory_v2_t`. What the driver keeps for itself is not used, as in `nvidia-smi`.
#[repr(C)]
#[derive(Default)]
struct Memory {
    version: c_uint,
    total: c_ulonglong,
    reserved: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

impl Memory {
    /// `NVML_STRUCT_VERSION(Memory, 2)`.
    const VERSION: c_uint = size_of::<Memory>() as c_uint | 2 << 24;
}

/// `nvmlMemory_t`. What the driver keeps for itself counts as used.
#[repr(C)]
#[derive(Default)]
struct MemoryV1 {
    total: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

/// `nvmlProcessInfo_t` of version 3.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Process {
    pid: c_uint,
    used_memory: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

/// The library.
pub(crate) struct Nvml {
    library: NonNull<c_void>,
    handle_by_uuid: HandleByUuid,
}

/// A card.
pub(crate) struct Card<'a> {
    nvml: &'a Nvml,
    raw: *mut c_void,
}

impl Nvml {
    /// Loads the library; `None` if it is missing, or too old, or finds no driver.
    pub(crate) fn load() -> Option<Nvml> {
        // SAFETY: the name ends in NUL. The library's initialisers run, as for any driver.
        let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        let library = NonNull::new(library)?;
        let (init, by_uuid) = (
            find(library, c"nvmlInit_v2")?,
            find(library, c"nvmlDeviceGetHandleByUUID")?,
        );
        // SAFETY: functions of these names have these signatures (NVML API reference).
        let (init, handle_by_uuid) = unsafe {
            (
                std::mem::transmute::<*mut c_void, Init>(init.as_ptr()),
                std::mem::transmute::<*mut c_void, HandleByUuid>(by_uuid.as_ptr()),
            )
        };
        // SAFETY: the function has no parameters and may be called at any time.
        let has_begun = unsafe { init() } == SUCCESS;
        has_begun.then_some(Nvml {
            library,
            handle_by_uuid,
        })
    }

    /// Returns the card with this `CL_DEVICE_UUID_KHR`.
    pub(crate) fn card(&self, uuid: &[u8; 16]) -> Option<Card<'_>> {
        let name = CString::new(name(uuid)).ok()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the library is initialised, the name ends in NUL, and the result is writable.
        let found = unsafe { (self.handle_by_uuid)(name.as_ptr(), &raw mut raw) } == SUCCESS;
        found.then_some(Card { nvml: self, raw })
    }

    /// Returns the compute mode of the card with this `CL_DEVICE_UUID_KHR`.
    pub(super) fn compute_mode(&self, uuid: &[u8; 16]) -> ComputeMode {
        match self.card(uuid).and_then(|card| card.compute_mode()) {
            Some(0) => ComputeMode::Shared,
            // By thread (before CUDA 8) or by process.
            Some(1 | 3) => ComputeMode::Exclusive,
            Some(2) => ComputeMode::Prohibited,
            _ => ComputeMode::Unknown,
        }
    }
}

/// Returns a function of the library.
fn find(library: NonNull<c_void>, name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: the library is loaded, and the name ends in NUL.
    NonNull::new(unsafe { libc::dlsym(library.as_ptr(), name.as_ptr()) })
}

/// Calls a function of the library that fills `$answer`, and returns the answer; `None` if there is no such function,
/// or it fails.
macro_rules! ask {
    ($card:expr, $name:literal as $type:ty, $answer:expr $(, $argument:expr)*) => {{
        let function = find($card.nvml.library, $name)?;
        // SAFETY: a function of this name has this signature (NVML API reference).
        let function = unsafe { std::mem::transmute::<*mut c_void, $type>(function.as_ptr()) };
        let mut answer = $answer;
        // SAFETY: the handle is the library's, and the answer is writable.
        let status = unsafe { function($card.raw $(, $argument)*, &raw mut answer) };
        (status == SUCCESS).then_some(answer)
    }};
}

impl Card<'_> {
    fn compute_mode(&self) -> Option<c_uint> {
        ask!(self, c"nvmlDeviceGetComputeMode" as GetComputeMode, 0)
    }

    /// Returns whether several processes may use the card.
    pub(crate) fn is_shared(&self) -> bool {
        self.compute_mode() == Some(0)
    }

    /// Returns what the library says about the use of the card.
    pub(crate) fn figures(&self) -> CardFigures {
        let memory = self.memory();
        CardFigures {
            utilization: self.utilization().map(u64::from),
            memory_used: memory.map(|(_, used)| used),
            memory_total: memory.map(|(total, _)| total),
            temperature: self.temperature().map(u64::from),
        }
    }

    fn utilization(&self) -> Option<c_uint> {
        let none = Utilization::default();
        let rates = ask!(
            self,
            c"nvmlDeviceGetUtilizationRates" as GetUtilization,
            none
        );
        rates.map(|of| of.gpu)
    }

    /// Returns the memory's size, and the bytes that programs use.
    fn memory(&self) -> Option<(u64, u64)> {
        self.memory_v2().or_else(|| self.memory_v1())
    }

    fn memory_v2(&self) -> Option<(u64, u64)> {
        let none = Memory {
            version: Memory::VERSION,
            ..Memory::default()
        };
        let memory = ask!(self, c"nvmlDeviceGetMemoryInfo_v2" as GetMemory, none)?;
        Some((memory.total, memory.used))
    }

    // Drivers before version 510 have only this.
    fn memory_v1(&self) -> Option<(u64, u64)> {
        let none = MemoryV1::default();
        let memory = ask!(self, c"nvmlDeviceGetMemoryInfo" as GetMemoryV1, none)?;
        Some((memory.total, memory.used))
    }

    fn temperature(&self) -> Option<c_uint> {
        ask!(self, c"nvmlDeviceGetTemperature" as GetTemperature, 0, CHIP)
    }

    /// Returns the bytes that all programs use.
    pub(crate) fn memory_used(&self) -> Option<u64> {
        self.memory().map(|(_, used)| used)
    }

    /// Returns the processes that compute on the card, by the numbers that the library has for them, with their bytes.
    pub(crate) fn processes(&self) -> Option<Vec<(u32, u64)>> {
        let name = c"nvmlDeviceGetComputeRunningProcesses_v3";
        let function = find(self.nvml.library, name)?;
        // SAFETY: a function of this name has this signature (NVML API reference).
        let function =
            unsafe { std::mem::transmute::<*mut c_void, GetProcesses>(function.as_ptr()) };
        let mut list = [Process::default(); MOST_PROCESSES];
        let mut count = MOST_PROCESSES as c_uint;
        // SAFETY: the handle is the library's, and the list has room for `count` entries.
        let status = unsafe { function(self.raw, &raw mut count, list.as_mut_ptr()) };
        let listed = list.iter().take(count as usize);
        (status == SUCCESS).then(|| listed.map(|of| (of.pid, of.used_memory)).collect())
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
