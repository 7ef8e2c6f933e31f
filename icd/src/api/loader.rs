//! The interface for loaders: this driver's platforms, and functions by name.
//!
//! The library exports three symbols. Everything else is reached through the dispatch table. Both
//! handshakes of `cl_khr_icd` are implemented. The first is always on. The second (tags in the dispatch
//! table, and a word of the loader's in every object) needs `CAUSEWAY_ICD2=1`, because ocl-icd 2.3.3 passes
//! a pointer into an array that it sorts afterwards.

use std::ffi::CStr;
use std::sync::OnceLock;

use cl_headers::types::*;

use super::entry::entry_point;
use super::{handle, head};
use crate::error::{ClResult, fail, require};
use crate::stub::Platform;

/// The implemented version of `cl_khr_icd`, packed as `CL_MAKE_VERSION` does.
pub(super) fn icd_version() -> cl_uint {
    super::platform::version(if head::is_icd2() { 2 } else { 1 }, 0, 0)
}

/// The platform's handle, if there is a platform.
pub(super) fn platform_handle() -> Option<cl_platform_id> {
    static HANDLE: OnceLock<Option<usize>> = OnceLock::new();
    HANDLE
        .get_or_init(|| {
            Platform::get().map(|platform| handle::publish_permanent(platform).expose_provenance())
        })
        .map(std::ptr::with_exposed_provenance_mut)
}

/// Implements `clGetPlatformIDs` and `clIcdGetPlatformIDsKHR`, which share their rules.
pub(super) fn platform_ids(
    num_entries: cl_uint,
    platforms: *mut cl_platform_id,
    num_platforms: *mut cl_uint,
) -> ClResult {
    // clGetPlatformIDs: CL_INVALID_VALUE when both platforms and num_platforms are NULL.
    require(
        !(platforms.is_null() && num_platforms.is_null()),
        CL_INVALID_VALUE,
    )?;
    // clGetPlatformIDs: CL_INVALID_VALUE when platforms is not NULL and num_entries is 0.
    require(platforms.is_null() || num_entries > 0, CL_INVALID_VALUE)?;
    let found = platform_handle();
    if !num_platforms.is_null() {
        // SAFETY: not NULL, so the specification demands room for a number.
        unsafe { num_platforms.write(cl_uint::from(found.is_some())) };
    }
    let Some(platform) = found else {
        // cl_khr_icd: CL_PLATFORM_NOT_FOUND_KHR when the driver has no platform.
        return fail(CL_PLATFORM_NOT_FOUND_KHR);
    };
    if !platforms.is_null() {
        // SAFETY: not NULL, with room for `num_entries` handles, and that is at least one.
        unsafe { platforms.write(platform) };
    }
    Ok(())
}

/// Specification: `cl_khr_icd`. Returns this driver's platforms.
#[entry_point]
#[unsafe(no_mangle)]
pub(super) fn clIcdGetPlatformIDsKHR(
    num_entries: cl_uint,
    platforms: *mut cl_platform_id,
    num_platforms: *mut cl_uint,
) -> ClResult {
    platform_ids(num_entries, platforms, num_platforms)
}

/// Specification: `cl_khr_icd` 2. Returns any function by name, core functions included.
#[entry_point(no_code)]
fn clIcdGetFunctionAddressForPlatformKHR(
    platform: cl_platform_id,
    func_name: *const c_char,
) -> ClResult<*mut c_void> {
    handle::resolve::<Platform>(platform)?;
    // clIcdGetFunctionAddressForPlatformKHR returns NULL when it finds no function; a NULL name finds
    // none.
    require(!func_name.is_null(), CL_INVALID_VALUE)?;
    // SAFETY: not NULL, so by the specification a C string.
    let name = unsafe { CStr::from_ptr(func_name) };
    Ok(super::dispatch()
        .function(name)
        .map_or(std::ptr::null_mut(), <*const c_void>::cast_mut))
}

/// Specification: `cl_khr_icd` 2. Sets the loader's word, which every object of the platform carries.
#[entry_point]
fn clIcdSetPlatformDispatchDataKHR(platform: cl_platform_id, data: *mut c_void) -> ClResult {
    handle::set_dispatch_data::<Platform>(platform, data)?;
    head::set_data(data);
    Ok(())
}

/// Returns an extension function by name. The specification promises no core functions here, so none is
/// returned.
fn extension_function(name: &CStr) -> *mut c_void {
    let address: *const () = match name.to_bytes() {
        b"clIcdGetPlatformIDsKHR" => clIcdGetPlatformIDsKHR as *const (),
        b"clCreateProgramWithILKHR" => super::program::clCreateProgramWithIL as *const (),
        b"clGetKernelSubGroupInfoKHR" => super::kernel::clGetKernelSubGroupInfoKHR as *const (),
        b"clGetKernelSuggestedLocalWorkSizeKHR" => {
            super::kernel::clGetKernelSuggestedLocalWorkSizeKHR as *const ()
        }
        b"clCreateCommandQueueWithPropertiesKHR" => {
            super::queue::clCreateCommandQueueWithProperties as *const ()
        }
        b"clIcdGetFunctionAddressForPlatformKHR" if head::is_icd2() => {
            clIcdGetFunctionAddressForPlatformKHR as *const ()
        }
        b"clIcdSetPlatformDispatchDataKHR" if head::is_icd2() => {
            clIcdSetPlatformDispatchDataKHR as *const ()
        }
        _ => super::server::function(name)
            .or_else(|| super::command_buffer::function(name))
            .or_else(|| super::semaphore::function(name))
            .unwrap_or(std::ptr::null()),
    };
    address.cast_mut().cast()
}

// The loader that contains this library answers some names itself, through this function.
static LOADER_NAMES: OnceLock<fn(&CStr) -> Option<*const c_void>> = OnceLock::new();

/// Lets a loader that contains this library (the drop-in) answer names before the driver does. This
/// concerns `clGetExtensionFunctionAddress`: it takes no platform, and loader and driver share the one
/// symbol.
///
/// The function returns an address, NULL for a name that must not be found, or `None` for a name that it
/// leaves to the driver. Only the first call has an effect.
pub fn answer_names_by(names: fn(&CStr) -> Option<*const c_void>) {
    // A second loader in the process would be this same library again, so the result is ignored.
    let _ = LOADER_NAMES.set(names);
}

/// Specification: "Obtaining extension function pointers" (1.1). Loaders call this function first.
#[entry_point(no_code)]
#[unsafe(no_mangle)]
pub(super) fn clGetExtensionFunctionAddress(func_name: *const c_char) -> ClResult<*mut c_void> {
    // clGetExtensionFunctionAddress returns NULL when it finds no function; a NULL name finds none.
    require(!func_name.is_null(), CL_INVALID_VALUE)?;
    // SAFETY: not NULL, so by the specification a C string.
    let name = unsafe { CStr::from_ptr(func_name) };
    let loader = LOADER_NAMES.get().and_then(|names| names(name));
    Ok(loader.map_or_else(|| extension_function(name), <*const c_void>::cast_mut))
}

#[entry_point(no_code)]
pub(crate) fn clGetExtensionFunctionAddressForPlatform(
    platform: cl_platform_id,
    func_name: *const c_char,
) -> ClResult<*mut c_void> {
    handle::resolve::<Platform>(platform)?;
    // clGetExtensionFunctionAddressForPlatform returns NULL when it finds no function; a NULL name
    // finds none.
    require(!func_name.is_null(), CL_INVALID_VALUE)?;
    // SAFETY: not NULL, so by the specification a C string.
    Ok(extension_function(unsafe { CStr::from_ptr(func_name) }))
}
