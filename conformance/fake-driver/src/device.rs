//! Devices, as configured.
//!
//! The table of their info answers is in `device_info`. Invariant: a root device's reference count is
//! always 1. Retain and release succeed and have no effect.

use std::sync::atomic::{AtomicU64, Ordering};

use cl_headers::types::*;

use crate::config::{DeviceKind, DeviceSettings};
use crate::error::{ClResult, ensure, fail};
use crate::object::{Object, Ref, body};
use crate::platform::Platform;
use crate::{arg, clock, platform, tag};

/// Alignment of a sub-buffer's origin, in bytes.
pub(crate) const BASE_ALIGNMENT: usize = 128;
/// Largest work-group.
pub(crate) const MAX_GROUP: usize = 1024;
/// Largest work-group in each dimension.
pub(crate) const MAX_GROUP_SIZES: [usize; 3] = [1024, 1024, 64];
pub(crate) const LOCAL_MEMORY: u64 = 48 << 10;
/// Maximum size of all arguments of a kernel, in bytes.
pub(crate) const MAX_ARGUMENTS: usize = 4096;
/// The built-in kernels, by name.
pub(crate) const BUILT_IN_SOURCE: &str = "\
kernel void fake_fill_u32(global uint *target, uint value);
kernel void fake_add_u32(global uint *target, uint value);
kernel void fake_iota_u32(global uint *target, uint first);
kernel void fake_copy(global uchar *target, global const uchar *source);
";

/// Returns a version in OpenCL's encoding.
pub(crate) const fn version(major: u32, minor: u32) -> cl_version {
    major << 22 | minor << 12
}

/// The body of a device.
pub(crate) struct Device {
    /// Index among all devices of all platforms.
    pub(crate) index: usize,
    pub(crate) settings: DeviceSettings,
    pub(crate) platform: Ref<Platform>,
    used: AtomicU64,
}

body!(Device, tag::DEVICE, CL_INVALID_DEVICE);

impl Device {
    /// Makes a root device, which always exists.
    pub(crate) fn new(
        index: usize,
        settings: DeviceSettings,
        platform: Ref<Platform>,
    ) -> Ref<Self> {
        let device = Ref::new(Self {
            index,
            settings,
            platform,
            used: AtomicU64::new(0),
        });
        device.share();
        device
    }

    pub(crate) fn kind(&self) -> cl_device_type {
        match self.settings.kind {
            DeviceKind::Cpu => CL_DEVICE_TYPE_CPU,
            DeviceKind::Gpu => CL_DEVICE_TYPE_GPU,
            DeviceKind::Accelerator => CL_DEVICE_TYPE_ACCELERATOR,
        }
    }

    /// Whether the device has at least this version.
    pub(crate) fn at_least(&self, major: u32, minor: u32) -> bool {
        (self.settings.version.major, self.settings.version.minor) >= (major, minor)
    }

    /// Whether the device was configured with an extension.
    pub(crate) fn has_extension(&self, name: &str) -> bool {
        self.settings.extensions.iter().any(|own| own == name)
    }

    pub(crate) fn queue_properties(&self) -> cl_command_queue_properties {
        if self.settings.out_of_order {
            CL_QUEUE_PROFILING_ENABLE | CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE
        } else {
            CL_QUEUE_PROFILING_ENABLE
        }
    }

    /// The supported properties of queues on the device; none if it has no such queues.
    pub(crate) fn on_device_properties(&self) -> cl_command_queue_properties {
        if self.settings.device_queues > 0 {
            CL_QUEUE_PROFILING_ENABLE | CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE
        } else {
            0
        }
    }

    /// The largest object: a quarter of the memory, but at least 128 MiB if the device has as much.
    pub(crate) fn max_allocation(&self) -> u64 {
        let memory = self.settings.memory;
        (memory / 4).max(128 << 20).min(memory)
    }

    /// Converts a time of the host's clock to this device's clock.
    pub(crate) fn clock(&self, host_ns: u64) -> u64 {
        host_ns + clock::device_offset_ns(self.index)
    }

    /// Reserves memory, if enough is left.
    pub(crate) fn reserve(&self, bytes: u64) -> ClResult {
        let memory = self.settings.memory;
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(bytes).filter(|sum| *sum <= memory)
            })
            .map(drop)
            .or_else(|_| fail(CL_MEM_OBJECT_ALLOCATION_FAILURE))
    }

    /// Returns reserved memory.
    pub(crate) fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Returns the devices of a type. The default device is the first one.
pub(crate) fn of_type(
    platform: &Object<Platform>,
    kind: cl_device_type,
) -> ClResult<Vec<Ref<Device>>> {
    let known = CL_DEVICE_TYPE_DEFAULT
        | CL_DEVICE_TYPE_CPU
        | CL_DEVICE_TYPE_GPU
        | CL_DEVICE_TYPE_ACCELERATOR
        | CL_DEVICE_TYPE_CUSTOM;
    let all = kind == CL_DEVICE_TYPE_ALL;
    ensure(
        all || (kind != 0 && kind & !known == 0),
        CL_INVALID_DEVICE_TYPE,
    )?;
    let devices = platform.devices().iter().enumerate();
    let devices: Vec<_> = devices
        .filter(|(place, device)| {
            all || kind & device.kind() != 0 || (*place == 0 && kind & CL_DEVICE_TYPE_DEFAULT != 0)
        })
        .map(|(_, device)| device.clone())
        .collect();
    ensure(!devices.is_empty(), CL_DEVICE_NOT_FOUND)?;
    Ok(devices)
}

pub(crate) mod api {
    #![allow(non_snake_case, reason = "OpenCL's names")]
    use std::ffi::c_void;

    use super::*;
    use crate::device_info;
    use crate::info::reply;

    pub(crate) unsafe fn clGetDeviceIDs(
        platform: cl_platform_id,
        kind: cl_device_type,
        num_entries: cl_uint,
        devices: *mut cl_device_id,
        num_devices: *mut cl_uint,
    ) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let platform = unsafe { platform::platform_or_default(platform) }?;
        let both_null = devices.is_null() && num_devices.is_null();
        ensure(!both_null, CL_INVALID_VALUE)?;
        ensure(devices.is_null() || num_entries > 0, CL_INVALID_VALUE)?;
        let found = of_type(platform, kind)?;
        if !devices.is_null() {
            for (place, device) in found.iter().enumerate().take(num_entries as usize) {
                // SAFETY: the application's array has that many elements.
                unsafe { devices.add(place).write(device.handle()) };
            }
        }
        // SAFETY: the application passes memory as OpenCL requires.
        unsafe { arg::put(num_devices, found.len() as cl_uint) };
        Ok(())
    }

    pub(crate) unsafe fn clGetDeviceInfo(
        device: cl_device_id,
        name: cl_device_info,
        size: size_t,
        value: *mut c_void,
        size_ret: *mut size_t,
    ) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let device = unsafe { Object::<Device>::borrow(device) }?;
        let answer = device_info::answer(device, name)?;
        // SAFETY: the application passes memory as OpenCL requires.
        unsafe { reply(answer, size, value, size_ret) }
    }

    pub(crate) unsafe fn clCreateSubDevices(
        device: cl_device_id,
        _properties: *const cl_device_partition_property,
        _num_devices: cl_uint,
        _devices: *mut cl_device_id,
        _num_devices_ret: *mut cl_uint,
    ) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        unsafe { Object::<Device>::borrow(device) }?;
        // The device supports no partition scheme, so every request is invalid.
        fail(CL_INVALID_VALUE)
    }

    pub(crate) unsafe fn clRetainDevice(device: cl_device_id) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        unsafe { Object::<Device>::borrow(device) }.map(drop)
    }

    pub(crate) unsafe fn clReleaseDevice(device: cl_device_id) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        unsafe { Object::<Device>::borrow(device) }.map(drop)
    }

    pub(crate) unsafe fn clGetDeviceAndHostTimer(
        device: cl_device_id,
        device_timestamp: *mut cl_ulong,
        host_timestamp: *mut cl_ulong,
    ) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let device = unsafe { Object::<Device>::borrow(device) }?;
        ensure(device.at_least(2, 1), CL_INVALID_OPERATION)?;
        let some_null = device_timestamp.is_null() || host_timestamp.is_null();
        ensure(!some_null, CL_INVALID_VALUE)?;
        let now = clock::host_ns();
        // SAFETY: the application passes memory as OpenCL requires.
        unsafe { device_timestamp.write(device.clock(now)) };
        // SAFETY: the application passes memory as OpenCL requires.
        unsafe { host_timestamp.write(now) };
        Ok(())
    }

    pub(crate) unsafe fn clGetHostTimer(
        device: cl_device_id,
        host_timestamp: *mut cl_ulong,
    ) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let device = unsafe { Object::<Device>::borrow(device) }?;
        ensure(device.at_least(2, 1), CL_INVALID_OPERATION)?;
        ensure(!host_timestamp.is_null(), CL_INVALID_VALUE)?;
        // SAFETY: the application passes memory as OpenCL requires.
        unsafe { host_timestamp.write(clock::host_ns()) };
        Ok(())
    }
}
