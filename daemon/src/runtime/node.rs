//! The node's platforms and root devices, in the order of their indices on the wire.
//!
//! The probing worker and every session use the same rules, so an index means the same in all of them.
//! Causeway's own platform is left out, because a daemon never forwards to itself. A platform without
//! devices stays in the list, because a driver's fault must not change the indices of the platforms after
//! it.

use std::ffi::{CStr, c_void};
use std::path::Path;
use std::ptr::{null, null_mut};

use causeway_proto::VENDOR_NVIDIA;
use causeway_proto::id::{DeviceIndex, PlatformIndex};
use causeway_proto::status::Status;
use opencl_sys::{
    CL_DEVICE_HOST_UNIFIED_MEMORY, CL_DEVICE_PLATFORM, CL_DEVICE_QUEUE_ON_DEVICE_PROPERTIES,
    CL_DEVICE_TYPE, CL_DEVICE_TYPE_ALL, CL_DEVICE_TYPE_CPU, CL_DEVICE_VENDOR_ID, CL_DEVICE_VERSION,
    CL_PLATFORM_NAME, cl_device_id, cl_platform_id,
};

use super::clock::DeviceClock;
use super::identity::Surroundings;
use super::info;
use super::library::{check, cl, load};
use crate::accounting::{DeviceMeter, DeviceName};
use crate::build_cache::{Identity, Stamp};

/// Environment variable that makes the daemon use pinned staging for all devices, as if none shared memory
/// with the host. Any value enables it. For tests and diagnosis.
pub const STAGING: &str = "CAUSEWAYD_STAGING";

/// Environment variable that makes the daemon poll for the ends of commands on all devices, as it does for
/// NVIDIA's. Any value enables it. For tests and diagnosis.
pub const WATCHING: &str = "CAUSEWAYD_WATCHING";

/// All platforms of the node and their root devices.
#[derive(Debug, Default)]
pub struct Node {
    platforms: Vec<Platform>,
    problems: Vec<String>,
    surroundings: Option<Surroundings>,
}

/// A native platform.
#[derive(Debug)]
pub struct Platform {
    pub(super) raw: cl_platform_id,
    devices: Vec<Device>,
}

/// A native device. Root devices live as long as the process, sub-devices as long as their `SubDevice`.
#[derive(Clone, Copy, Debug)]
pub struct Device {
    pub(super) raw: cl_device_id,
    direct_memory: bool,
    /// Whether the device supports `clCreateCommandQueueWithProperties` (OpenCL 2.0).
    pub(super) modern: bool,
    timers: bool,
    /// Whether kernels of the device can enqueue kernels.
    pub(super) enqueues: bool,
    /// Whether the driver's callbacks are so late that the ends of commands are found by polling.
    pub(super) late_callbacks: bool,
    /// Whether the driver can list the names of a program's kernels without a fault. NVIDIA's driver 580
    /// writes past a buffer of its heap when the names together have 256 characters or more.
    pub(super) lists_kernels: bool,
    pub(super) clock: &'static DeviceClock,
    /// Measures how long the process has the device busy.
    pub(super) meter: &'static DeviceMeter,
}

// SAFETY: platform and device handles are names. OpenCL allows their use from any thread (OpenCL
// specification, appendix on shared objects), and root devices are never destroyed.
unsafe impl Send for Platform {}
// SAFETY: as for `Send`.
unsafe impl Sync for Platform {}
// SAFETY: as for `Platform`.
unsafe impl Send for Device {}
// SAFETY: as for `Platform`.
unsafe impl Sync for Device {}

impl Node {
    /// Loads the library and lists all platforms and devices. Creates no context. On a node without OpenCL,
    /// the list is empty, and a problem says why.
    #[must_use]
    pub fn load() -> Node {
        let mut node = Node::default();
        if let Err(error) = load() {
            node.problems.push(error.to_string());
            return node;
        }
        match platform_ids() {
            Ok(ids) => {
                for raw in ids {
                    node.add(raw);
                }
            }
            Err(status) => node.problems.push(format!(
                "clGetPlatformIDs fails with {}; check the installed OpenCL drivers",
                status.0
            )),
        }
        if node.platforms.is_empty() {
            node.problems
                .push("the node has no OpenCL platform; install an OpenCL driver".to_owned());
        }
        node.surroundings = Surroundings::now();
        node
    }

    fn add(&mut self, raw: cl_platform_id) {
        let mut platform = Platform {
            raw,
            devices: Vec::new(),
        };
        let name = platform.text(CL_PLATFORM_NAME);
        if name == "Causeway" {
            self.problems.push(
                "Causeway's own driver is loaded inside the daemon; its platform is ignored"
                    .to_owned(),
            );
            return;
        }
        match platform.device_ids() {
            Ok(ids) => {
                let first = self.names().count();
                let devices = ids.into_iter().zip(first..);
                platform.devices = devices
                    .map(|(raw, place)| Device::new(raw, place))
                    .collect();
            }
            Err(status) => self.problems.push(format!(
                "platform {name:?}: clGetDeviceIDs fails with {}",
                status.0
            )),
        }
        self.platforms.push(platform);
    }

    /// Returns all platforms; the position of a platform is its [`PlatformIndex`].
    pub fn platforms(&self) -> &[Platform] {
        &self.platforms
    }

    /// Returns the names of all devices of all platforms, in the order of their meters.
    pub fn names(&self) -> impl Iterator<Item = DeviceName> + '_ {
        let platforms = self.platforms.iter().zip(0..);
        platforms.flat_map(|(platform, at)| {
            let devices = platform.devices.iter().zip(0..);
            devices.map(move |(_, index)| DeviceName(at, index))
        })
    }

    /// Returns problems with the node's OpenCL, as text for people.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// Returns the indices of a device and of its platform on the wire.
    #[must_use]
    pub fn place_of(&self, device: Device) -> Option<(PlatformIndex, DeviceIndex)> {
        self.platforms.iter().zip(0..).find_map(|(platform, at)| {
            let mut devices = platform.devices.iter().zip(0..);
            let (_, index) = devices.find(|(d, _)| d.raw == device.raw)?;
            Some((PlatformIndex(at), DeviceIndex(index)))
        })
    }

    /// Returns the identity of a device's compiler; `None` if it cannot be determined with certainty.
    #[must_use]
    pub fn identity(&self, device: Device) -> Option<Identity> {
        let platform = self.platform(self.place_of(device)?.0)?;
        Some(self.surroundings.as_ref()?.identity(platform, device))
    }

    /// Returns the libraries that were loaded after the drivers, for example compilers. Excludes those in
    /// the folder `but`. Returns `None` if it is not certain which files have compiled.
    #[must_use]
    pub fn loaded_since(&self, but: Option<&Path>) -> Option<Vec<Stamp>> {
        self.surroundings.as_ref()?.loaded_since(but)
    }

    /// Returns the platform with this index.
    #[must_use]
    pub fn platform(&self, index: PlatformIndex) -> Option<&Platform> {
        self.platforms.get(index.0 as usize)
    }
}

impl Platform {
    /// Returns the root devices; the position of a device is its [`DeviceIndex`].
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Returns the device with this index.
    #[must_use]
    pub fn device(&self, index: DeviceIndex) -> Option<Device> {
        self.devices.get(index.0 as usize).copied()
    }

    /// Returns one answer of `clGetPlatformInfo`.
    pub fn info(&self, name: u32) -> Result<Vec<u8>, Status> {
        info::bytes(|size, value, size_ret| {
            // SAFETY: `value` has room for `size` bytes, `size_ret` is null or valid (info::bytes).
            check(unsafe { cl!(clGetPlatformInfo(self.raw, name, size, value, size_ret)) })
        })
    }

    fn text(&self, name: u32) -> String {
        self.info(name).map(info::text).unwrap_or_default()
    }

    fn device_ids(&self) -> Result<Vec<cl_device_id>, Status> {
        let mut count = 0;
        // SAFETY: with a null list of 0 entries, the call returns only the count.
        let status = unsafe {
            cl!(clGetDeviceIDs(
                self.raw,
                CL_DEVICE_TYPE_ALL,
                0,
                null_mut(),
                &raw mut count
            ))
        };
        const DEVICE_NOT_FOUND: i32 = -1;
        // A platform without devices is no failure, in whichever way its driver reports that.
        if status == DEVICE_NOT_FOUND || (status == 0 && count == 0) {
            return Ok(Vec::new());
        }
        check(status)?;
        let mut ids = vec![null_mut(); count as usize];
        // SAFETY: the list has room for `count` entries.
        check(unsafe {
            cl!(clGetDeviceIDs(
                self.raw,
                CL_DEVICE_TYPE_ALL,
                count,
                ids.as_mut_ptr(),
                null_mut()
            ))
        })?;
        Ok(ids)
    }

    /// `clUnloadPlatformCompiler`, which is a hint.
    pub fn unload_compiler(&self) -> Result<(), Status> {
        // SAFETY: the platform is live.
        check(unsafe { cl!(clUnloadPlatformCompiler(self.raw)) })
    }
}

impl Device {
    /// `place` is the device's index among all devices of all platforms.
    fn new(raw: cl_device_id, place: usize) -> Device {
        let mut device = Device {
            raw,
            direct_memory: false,
            modern: false,
            timers: false,
            enqueues: false,
            late_callbacks: false,
            lists_kernels: true,
            // Leaked, because they must live as long as the device. A process lists its devices once.
            clock: Box::leak(Box::default()),
            meter: Box::leak(Box::new(DeviceMeter::new(place))),
        };
        let number = |name| device.info(name).ok().and_then(|v| info::number(&v));
        let cpu = number(CL_DEVICE_TYPE).is_some_and(|t| t & CL_DEVICE_TYPE_CPU != 0);
        let unified = number(CL_DEVICE_HOST_UNIFIED_MEMORY) == Some(1);
        let nvidia = number(CL_DEVICE_VENDOR_ID) == Some(VENDOR_NVIDIA);
        let on_device = number(CL_DEVICE_QUEUE_ON_DEVICE_PROPERTIES);
        let version = device
            .info(CL_DEVICE_VERSION)
            .map(info::text)
            .unwrap_or_default();
        device.direct_memory = (cpu || unified) && std::env::var_os(STAGING).is_none();
        // Of NVIDIA's own driver: "OpenCL 3.0 CUDA". PoCL's devices of NVIDIA's are its own.
        device.lists_kernels = !(nvidia && version.trim_end().ends_with(" CUDA"));
        device.late_callbacks = nvidia || std::env::var_os(WATCHING).is_some();
        // The version has the form "OpenCL 1.2 ...": two numbers after the first blank.
        device.modern = version.get(7..8).is_some_and(|major| major >= "2");
        device.timers = version.get(7..10).is_some_and(|version| version >= "2.1");
        device.enqueues = on_device.is_some_and(|properties| properties != 0);
        device
    }

    /// Makes the device for a sub-device. Its properties are those of this device.
    pub(super) fn part(&self, raw: cl_device_id) -> Device {
        Device { raw, ..*self }
    }

    /// Returns whether the host can map the device's memory without a copy, as for CPUs and devices with
    /// unified memory.
    pub fn has_direct_memory(&self) -> bool {
        self.direct_memory
    }

    /// Returns whether kernels of the device can enqueue kernels. A context then has a default queue, which
    /// is part of the native context's state.
    pub fn enqueues_kernels(&self) -> bool {
        self.enqueues
    }

    /// Returns whether binaries of the device's programs are PTX, which is compiled when it is loaded. This is so with
    /// NVIDIA's own driver.
    pub fn loads_ptx(&self) -> bool {
        !self.lists_kernels
    }

    /// Returns one answer of `clGetDeviceInfo`.
    pub fn info(&self, name: u32) -> Result<Vec<u8>, Status> {
        info::bytes(|size, value, size_ret| {
            // SAFETY: `value` has room for `size` bytes, `size_ret` is null or valid (info::bytes).
            check(unsafe { cl!(clGetDeviceInfo(self.raw, name, size, value, size_ret)) })
        })
    }

    /// Returns the address of an extension function of the device's platform; null if there is none.
    pub(super) fn extension_function(&self, name: &CStr) -> Result<*mut c_void, Status> {
        let platform = self.info(CL_DEVICE_PLATFORM)?;
        let platform = info::number(&platform).unwrap_or(0);
        let platform = std::ptr::with_exposed_provenance_mut(platform as usize);
        // SAFETY: the platform comes from the driver itself, and the name is a C string.
        Ok(unsafe {
            cl!(clGetExtensionFunctionAddressForPlatform(
                platform,
                name.as_ptr()
            ))
        })
    }

    /// Returns the device's current time on the node's host clock, in nanoseconds.
    pub fn now(&self) -> u64 {
        self.clock.now(|| self.timers())
    }

    /// `clGetDeviceAndHostTimer`: device and host time in nanoseconds, on the driver's clocks.
    ///
    /// # Errors
    /// The driver's error. `CL_INVALID_OPERATION` before OpenCL 2.1, where a driver's dispatch table may
    /// end before this function.
    pub(super) fn timers(&self) -> Result<(u64, u64), Status> {
        if !self.timers {
            return Err(Status::INVALID_OPERATION);
        }
        let (mut device, mut host) = (0, 0);
        // SAFETY: both pointers are valid.
        check(unsafe {
            cl!(clGetDeviceAndHostTimer(
                self.raw,
                &raw mut device,
                &raw mut host
            ))
        })?;
        Ok((device, host))
    }
}

fn platform_ids() -> Result<Vec<cl_platform_id>, Status> {
    const PLATFORM_NOT_FOUND: i32 = -1001;
    let mut count = 0;
    // SAFETY: with a null list of 0 entries, the call returns only the count.
    let status = unsafe { cl!(clGetPlatformIDs(0, null_mut(), &raw mut count)) };
    if status == PLATFORM_NOT_FOUND || (status == 0 && count == 0) {
        return Ok(Vec::new());
    }
    check(status)?;
    let mut ids = vec![null::<libc::c_void>().cast_mut(); count as usize];
    // SAFETY: the list has room for `count` entries.
    check(unsafe { cl!(clGetPlatformIDs(count, ids.as_mut_ptr(), null_mut())) })?;
    Ok(ids)
}
