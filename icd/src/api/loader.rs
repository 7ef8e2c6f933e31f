//! What loaders ask a driver for: its platforms, and functions by name.
//!
//! Three symbols are exported; everything else is reached through the dispatch table. Both handshakes
//! of `cl_khr_icd` are spoken: the first always, the second (tags in the dispatch table, a word of the
//! loader's in every object) when `CAUSEWAY_ICD2=1`, because ocl-icd 2.3.3 hands out a pointer into an
//! array that it then sorts.

use std::ffi::CStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use cl_headers::types::*;
use cl_headers::{Icd2Dispatch, ObjectHead};

use super::entry::{code, entry_points, pointer};
use super::handle;
use crate::error::{ClResult, fail, require};
use crate::stub::Platform;

// The loader's word for our platform, copied into every object made later.
static DISPATCH_DATA: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

fn icd2() -> Option<&'static Icd2Dispatch> {
    static TABLE: OnceLock<Option<Icd2Dispatch>> = OnceLock::new();
    TABLE
        .get_or_init(|| {
            let wanted = std::env::var_os("CAUSEWAY_ICD2").is_some_and(|value| value == "1");
            wanted.then(|| Icd2Dispatch::new(super::dispatch()))
        })
        .as_ref()
}

/// The version of `cl_khr_icd` that is spoken, as `CL_MAKE_VERSION`.
pub(super) fn icd_version() -> cl_uint {
    super::platform::version(if icd2().is_some() { 2 } else { 1 }, 0, 0)
}

/// The first words of a new object.
pub(super) fn new_head() -> ObjectHead {
    let data = DISPATCH_DATA.load(Ordering::Acquire);
    match icd2() {
        Some(table) => ObjectHead::tagged(table, data),
        None => ObjectHead::new(super::dispatch(), data),
    }
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

/// The rules of `clGetPlatformIDs`, which `clIcdGetPlatformIDsKHR` shares but for the code.
pub(super) fn platform_ids(
    num_entries: cl_uint,
    platforms: *mut cl_platform_id,
    num_platforms: *mut cl_uint,
) -> ClResult {
    require(
        !(platforms.is_null() && num_platforms.is_null()),
        CL_INVALID_VALUE,
    )?;
    require(platforms.is_null() || num_entries > 0, CL_INVALID_VALUE)?;
    let found = platform_handle();
    if !num_platforms.is_null() {
        // SAFETY: not NULL, so the caller gives room for one number.
        unsafe { num_platforms.write(cl_uint::from(found.is_some())) };
    }
    let Some(platform) = found else {
        return fail(CL_PLATFORM_NOT_FOUND_KHR);
    };
    if !platforms.is_null() {
        // SAFETY: not NULL, with room for `num_entries`, at least one.
        unsafe { platforms.write(platform) };
    }
    Ok(())
}

/// `cl_khr_icd`: the platforms of this driver.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "OpenCL's name")]
pub(super) unsafe extern "C" fn clIcdGetPlatformIDsKHR(
    num_entries: cl_uint,
    platforms: *mut cl_platform_id,
    num_platforms: *mut cl_uint,
) -> cl_int {
    code("clIcdGetPlatformIDsKHR", || {
        platform_ids(num_entries, platforms, num_platforms)
    })
}

/// `cl_khr_icd` 2: any function by name, core ones included.
#[allow(non_snake_case, reason = "OpenCL's name")]
unsafe extern "C" fn clIcdGetFunctionAddressForPlatformKHR(
    platform: cl_platform_id,
    func_name: *const c_char,
) -> *mut c_void {
    pointer("clIcdGetFunctionAddressForPlatformKHR", || {
        handle::resolve::<Platform>(platform)?;
        require(!func_name.is_null(), CL_INVALID_VALUE)?;
        // SAFETY: not NULL, and by the specification a C string.
        let name = unsafe { CStr::from_ptr(func_name) };
        Ok(super::dispatch()
            .function(name)
            .map_or(std::ptr::null_mut(), <*const c_void>::cast_mut))
    })
}

/// `cl_khr_icd` 2: the loader's word for every object of the platform.
#[allow(non_snake_case, reason = "OpenCL's name")]
unsafe extern "C" fn clIcdSetPlatformDispatchDataKHR(
    platform: cl_platform_id,
    data: *mut c_void,
) -> cl_int {
    code("clIcdSetPlatformDispatchDataKHR", || {
        handle::set_dispatch_data::<Platform>(platform, data)?;
        DISPATCH_DATA.store(data, Ordering::Release);
        Ok(())
    })
}

/// Extension functions by name; core functions are not promised here, and none is given.
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
        b"clIcdGetFunctionAddressForPlatformKHR" if icd2().is_some() => {
            clIcdGetFunctionAddressForPlatformKHR as *const ()
        }
        b"clIcdSetPlatformDispatchDataKHR" if icd2().is_some() => {
            clIcdSetPlatformDispatchDataKHR as *const ()
        }
        _ => super::server::function(name)
            .or_else(|| super::command_buffer::function(name))
            .or_else(|| super::semaphore::function(name))
            .unwrap_or(std::ptr::null()),
    };
    address.cast_mut().cast()
}

// What a loader that holds this library answers by name itself.
static LOADER_NAMES: OnceLock<fn(&CStr) -> Option<*const c_void>> = OnceLock::new();

/// Lets a loader that holds this library, the drop-in, answer names before the driver does in
/// `clGetExtensionFunctionAddress`, which has no platform and is the same symbol in both. The
/// function gives an address, NULL for a name that shall not be found, or `None` for one that it
/// leaves to the driver. Only the first one counts.
pub fn answer_names_by(names: fn(&CStr) -> Option<*const c_void>) {
    // A second loader in one process would be this same library once more.
    let _ = LOADER_NAMES.set(names);
}

/// Specification: "Obtaining extension function pointers" (1.1). A loader's first question.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "OpenCL's name")]
pub(super) unsafe extern "C" fn clGetExtensionFunctionAddress(
    func_name: *const c_char,
) -> *mut c_void {
    pointer("clGetExtensionFunctionAddress", || {
        require(!func_name.is_null(), CL_INVALID_VALUE)?;
        // SAFETY: not NULL, and by the specification a C string.
        let name = unsafe { CStr::from_ptr(func_name) };
        let loader = LOADER_NAMES.get().and_then(|names| names(name));
        Ok(loader.map_or_else(|| extension_function(name), <*const c_void>::cast_mut))
    })
}

entry_points! {
    fn clGetExtensionFunctionAddressForPlatform(
        platform: cl_platform_id, func_name: *const c_char; null
    ) -> *mut c_void {
        handle::resolve::<Platform>(platform)?;
        require(!func_name.is_null(), CL_INVALID_VALUE)?;
        // SAFETY: not NULL, and by the specification a C string.
        Ok(extension_function(unsafe { CStr::from_ptr(func_name) }))
    }
}
