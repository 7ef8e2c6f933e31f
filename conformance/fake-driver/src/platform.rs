//! Platforms: as many as the configuration's devices name.
//!
//! Invariant: platforms are made once and stay. Their handles are the same at every query.

use std::ffi::c_void;
use std::sync::LazyLock;

use cl_headers::types::*;

use crate::device::Device;
use crate::error::{ClResult, ensure, fail};
use crate::info::{Info, reply};
use crate::object::{Object, Ref, body};
use crate::{arg, control, device, entry, tag};

/// The body of a platform.
pub(crate) struct Platform {
    index: usize,
}

body!(Platform, tag::PLATFORM, CL_INVALID_PLATFORM);

type WithDevices = (Ref<Platform>, Vec<Ref<Device>>);

/// All platforms with their devices. They always exist.
static PLATFORMS: LazyLock<Vec<WithDevices>> = LazyLock::new(|| {
    let settings = &control::current().devices;
    let count = settings.iter().map(|device| device.platform + 1).max();
    (0..count.unwrap_or(0))
        .map(|index| {
            let platform = Ref::new(Platform { index });
            platform.share();
            let devices = settings.iter().enumerate();
            let devices = devices.filter(|(_, settings)| settings.platform == index);
            let devices = devices
                .map(|(index, settings)| Device::new(index, settings.clone(), platform.clone()))
                .collect();
            (platform, devices)
        })
        .collect()
});

impl Object<Platform> {
    /// Returns the devices of this platform.
    pub(crate) fn devices(&self) -> &'static [Ref<Device>] {
        &PLATFORMS[self.index].1
    }
}

/// Returns the platform behind a handle. NULL means the first one.
///
/// # Safety
/// `platform` comes from the application, or is NULL.
pub(crate) unsafe fn platform_or_default<'a>(
    platform: cl_platform_id,
) -> ClResult<&'a Object<Platform>> {
    if platform.is_null() {
        return PLATFORMS
            .first()
            .map(|(platform, _)| &**platform)
            .ok_or(crate::error::Code(CL_INVALID_PLATFORM));
    }
    // SAFETY: the application passes a handle that it got from this driver, or NULL.
    unsafe { Object::<Platform>::borrow(platform) }
}

const EXTENSIONS: [(&str, u32); 1] = [("cl_khr_icd", device::version(1, 0))];

pub(crate) mod api {
    #![allow(non_snake_case, reason = "OpenCL's names")]
    use std::ffi::{CStr, c_char};

    use super::*;

    pub(crate) unsafe fn clGetPlatformIDs(
        num_entries: cl_uint,
        platforms: *mut cl_platform_id,
        num_platforms: *mut cl_uint,
    ) -> ClResult {
        let both_null = platforms.is_null() && num_platforms.is_null();
        ensure(!both_null, CL_INVALID_VALUE)?;
        ensure(platforms.is_null() || num_entries > 0, CL_INVALID_VALUE)?;
        if !platforms.is_null() {
            for (place, (platform, _)) in PLATFORMS.iter().enumerate().take(num_entries as usize) {
                // SAFETY: the application's array has that many elements.
                unsafe { platforms.add(place).write(platform.handle()) };
            }
        }
        // SAFETY: the application passes memory as OpenCL requires.
        unsafe { arg::put(num_platforms, PLATFORMS.len() as cl_uint) };
        Ok(())
    }

    pub(crate) unsafe fn clGetPlatformInfo(
        platform: cl_platform_id,
        name: cl_platform_info,
        size: size_t,
        value: *mut c_void,
        size_ret: *mut size_t,
    ) -> ClResult {
        // SAFETY: the caller keeps the same contract.
        let platform = unsafe { platform_or_default(platform) }?;
        let newest = platform
            .devices()
            .iter()
            .map(|device| device.settings.version)
            .max();
        let newest = newest.map_or((3, 0), |version| (version.major, version.minor));
        let numbered = match platform.index {
            0 => "Fake OpenCL".to_owned(),
            index => format!("Fake OpenCL {}", index + 1),
        };
        let answer = match name {
            CL_PLATFORM_PROFILE => Info::text("FULL_PROFILE"),
            CL_PLATFORM_VERSION => Info::text(&format!("OpenCL {}.{} fake", newest.0, newest.1)),
            CL_PLATFORM_NAME => Info::text(&numbered),
            CL_PLATFORM_VENDOR => Info::text("Causeway"),
            CL_PLATFORM_EXTENSIONS => Info::text(EXTENSIONS[0].0),
            CL_PLATFORM_EXTENSIONS_WITH_VERSION => Info::named_versions(EXTENSIONS),
            CL_PLATFORM_NUMERIC_VERSION => Info::uint(device::version(newest.0, newest.1)),
            CL_PLATFORM_HOST_TIMER_RESOLUTION => Info::ulong(1),
            CL_PLATFORM_ICD_SUFFIX_KHR => Info::text("FAKE"),
            _ => return fail(CL_INVALID_VALUE),
        };
        // SAFETY: the application passes memory as OpenCL requires.
        unsafe { reply(answer, size, value, size_ret) }
    }

    pub(crate) unsafe fn clUnloadPlatformCompiler(platform: cl_platform_id) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        unsafe { Object::<Platform>::borrow(platform) }.map(drop)
    }

    pub(crate) unsafe fn clUnloadCompiler() -> ClResult {
        Ok(())
    }

    pub(crate) unsafe fn clGetExtensionFunctionAddress(
        name: *const c_char,
    ) -> ClResult<*mut c_void> {
        if name.is_null() {
            return Ok(std::ptr::null_mut());
        }
        // SAFETY: the application passes a string that ends with NUL.
        Ok(entry::function(unsafe { CStr::from_ptr(name) }))
    }

    pub(crate) unsafe fn clGetExtensionFunctionAddressForPlatform(
        platform: cl_platform_id,
        name: *const c_char,
    ) -> ClResult<*mut c_void> {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        unsafe { Object::<Platform>::borrow(platform) }?;
        // SAFETY: the caller keeps the same contract.
        unsafe { clGetExtensionFunctionAddress(name) }
    }
}
