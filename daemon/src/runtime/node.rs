//! The node's platforms and root devices, in the order that names them on the wire.
//!
//! The same filter serves the probing worker and every session, so an index means the same in both:
//! Causeway's own platform is left out (a daemon never forwards to itself), and so is a platform
//! without devices... which keeps its index, because a later driver fault must not renumber others.

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
use super::library::{LoadError, check, cl, load};
use crate::build_cache::{Identity, Stamp};

/// Set to anything, this treats every device as one with memory of its own: transfers then go through
/// pinned staging. For tests and diagnosis on machines without such a device.
pub const STAGING: &str = "CAUSEWAYD_STAGING";

/// Set to anything, the ends of all devices' commands are found by looking, as NVIDIA's are. For tests
/// and diagnosis.
pub const WATCHING: &str = "CAUSEWAYD_WATCHING";

/// Every platform of the node and its root devices.
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

/// A native device. Root devices live as long as the process, others as their `SubDevice`.
#[derive(Clone, Copy, Debug)]
pub struct Device {
    pub(super) raw: cl_device_id,
    direct_memory: bool,
    modern: bool,
    timers: bool,
    enqueues: bool,
    late_callbacks: bool,
    clock: &'static DeviceClock,
}

// SAFETY: platform and device handles are names; OpenCL allows their use from any thread (API,
// appendix on shared objects), and root devices are never destroyed.
unsafe impl Send for Platform {}
// SAFETY: as above.
unsafe impl Sync for Platform {}
// SAFETY: as above.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

impl Node {
    /// Loads the library and lists everything. Makes no context. A node without OpenCL gives an empty
    /// list and a problem that says why.
    #[must_use]
    pub fn load() -> Node {
        let mut node = Node::default();
        if let Err(LoadError { .. }) = load()
            .map(drop)
            .inspect_err(|e| node.problems.push(e.to_string()))
        {
            return node;
        }
        match platform_ids() {
            Ok(ids) => {
                for raw in ids {
                    node.add(raw);
                }
            }
            Err(status) => node
                .problems
                .push(format!("clGetPlatformIDs gives {}", status.0)),
        }
        if node.platforms.is_empty() {
            node.problems
                .push("the node's OpenCL offers no platform".to_owned());
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
            self.problems
                .push("Causeway's own driver answered inside the daemon; left out".to_owned());
            return;
        }
        match platform.device_ids() {
            Ok(ids) => platform.devices = ids.into_iter().map(Device::new).collect(),
            Err(status) => self.problems.push(format!(
                "platform {name:?}: clGetDeviceIDs gives {}",
                status.0
            )),
        }
        self.platforms.push(platform);
    }

    /// All platforms; a position is a [`PlatformIndex`].
    #[must_use]
    pub fn platforms(&self) -> &[Platform] {
        &self.platforms
    }

    /// What is wrong with the node's OpenCL, for people.
    #[must_use]
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// The names on the wire of a device and its platform.
    #[must_use]
    pub fn place_of(&self, device: Device) -> Option<(PlatformIndex, DeviceIndex)> {
        self.platforms.iter().zip(0..).find_map(|(platform, at)| {
            let mut devices = platform.devices.iter().zip(0..);
            let (_, index) = devices.find(|(d, _)| d.raw == device.raw)?;
            Some((PlatformIndex(at), DeviceIndex(index)))
        })
    }

    /// What decides how a device compiles, besides the program; `None` where that is not certain.
    #[must_use]
    pub fn identity(&self, device: Device) -> Option<Identity> {
        let platform = self.platform(self.place_of(device)?.0)?;
        Some(self.surroundings.as_ref()?.identity(platform, device))
    }

    /// The libraries that the drivers have loaded since they were loaded themselves, such as compilers, but for
    /// those in the folder `but`; `None` where it is not certain what has compiled.
    #[must_use]
    pub fn loaded_since(&self, but: Option<&Path>) -> Option<Vec<Stamp>> {
        self.surroundings.as_ref()?.loaded_since(but)
    }

    /// A platform by its name on the wire.
    #[must_use]
    pub fn platform(&self, index: PlatformIndex) -> Option<&Platform> {
        self.platforms.get(index.0 as usize)
    }
}

impl Platform {
    /// Its root devices; a position is a [`DeviceIndex`].
    #[must_use]
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// A device by its name on the wire.
    #[must_use]
    pub fn device(&self, index: DeviceIndex) -> Option<Device> {
        self.devices.get(index.0 as usize).copied()
    }

    /// One `clGetPlatformInfo` answer.
    ///
    /// # Errors
    /// What the driver says.
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
        // SAFETY: a null list of 0 entries asks for the count alone.
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

    /// `clUnloadPlatformCompiler`: a hint.
    ///
    /// # Errors
    /// What the driver says.
    pub fn unload_compiler(&self) -> Result<(), Status> {
        // SAFETY: a live platform.
        check(unsafe { cl!(clUnloadPlatformCompiler(self.raw)) })
    }
}

impl Device {
    fn new(raw: cl_device_id) -> Device {
        let mut device = Device {
            raw,
            direct_memory: false,
            modern: false,
            timers: false,
            enqueues: false,
            late_callbacks: false,
            // As long-lived as the device itself.
            clock: Box::leak(Box::default()),
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
        device.late_callbacks = nvidia || std::env::var_os(WATCHING).is_some();
        // "OpenCL 1.2 …": two numbers after the first blank.
        device.modern = version.get(7..8).is_some_and(|major| major >= "2");
        device.timers = version.get(7..10).is_some_and(|version| version >= "2.1");
        device.enqueues = on_device.is_some_and(|properties| properties != 0);
        device
    }

    /// A part of it: what is true of it is true of its parts.
    pub(super) fn part(&self, raw: cl_device_id) -> Device {
        Device { raw, ..*self }
    }

    /// Whether the host maps its memory without a copy: CPUs and devices with unified memory.
    #[must_use]
    pub fn has_direct_memory(&self) -> bool {
        self.direct_memory
    }

    /// Whether its driver's callbacks come so late that we look for the ends of commands ourselves.
    pub(super) fn calls_back_late(&self) -> bool {
        self.late_callbacks
    }

    /// Whether kernels can enqueue there.
    pub(super) fn enqueues(&self) -> bool {
        self.enqueues
    }

    /// Whether it knows `clCreateCommandQueueWithProperties` (OpenCL 2.0).
    pub(super) fn is_modern(&self) -> bool {
        self.modern
    }

    /// One `clGetDeviceInfo` answer.
    ///
    /// # Errors
    /// What the driver says.
    pub fn info(&self, name: u32) -> Result<Vec<u8>, Status> {
        info::bytes(|size, value, size_ret| {
            // SAFETY: `value` has room for `size` bytes, `size_ret` is null or valid (info::bytes).
            check(unsafe { cl!(clGetDeviceInfo(self.raw, name, size, value, size_ret)) })
        })
    }

    /// A function of an extension of its platform's driver; null when there is none of that name.
    ///
    /// # Errors
    /// What the driver says.
    pub(super) fn extension_function(&self, name: &CStr) -> Result<*mut c_void, Status> {
        let platform = self.info(CL_DEVICE_PLATFORM)?;
        let platform = info::number(&platform).unwrap_or(0);
        let platform = std::ptr::with_exposed_provenance_mut(platform as usize);
        // SAFETY: the driver's own platform, and a C string.
        Ok(unsafe {
            cl!(clGetExtensionFunctionAddressForPlatform(
                platform,
                name.as_ptr()
            ))
        })
    }

    /// Its clock.
    pub(super) fn clock(&self) -> &'static DeviceClock {
        self.clock
    }

    /// The device's time now, on the node's host clock, ns.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.clock.now(*self)
    }

    /// `clGetDeviceAndHostTimer`: device and host time, ns, on the driver's clocks.
    ///
    /// # Errors
    /// What the driver says; `CL_INVALID_OPERATION` before OpenCL 2.1, where a driver's table may end earlier.
    pub(super) fn timers(&self) -> Result<(u64, u64), Status> {
        if !self.timers {
            return Err(Status::INVALID_OPERATION);
        }
        let (mut device, mut host) = (0, 0);
        // SAFETY: both places are valid.
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
    // SAFETY: a null list of 0 entries asks for the count alone.
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
