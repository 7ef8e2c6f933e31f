//! What loaders answer themselves when asked for a function by name: the functions of extensions
//! that have a place in the dispatch table, and the loader's own description.
//!
//! It does not know the extension functions of the platform. Invariant: every name of an extension
//! in the one list is found, whether or not the platform offers the extension; the function then
//! answers the proper error.

use std::ffi::CStr;

use cl_headers::types::*;

/// The address of a function that a loader answers for, by name: NULL for what is between loader
/// and driver alone, `None` for what is the platform's.
#[must_use]
pub fn function(name: &CStr) -> Option<*const c_void> {
    if name == c"clGetICDLoaderInfoOCLICD" {
        return Some(clGetICDLoaderInfoOCLICD as *const c_void);
    }
    if name.to_bytes().starts_with(b"clIcd") {
        return Some(std::ptr::null());
    }
    crate::exports::extension_function(cl_headers::entry_point(name)?.slot)
}

/// `clGetICDLoaderInfoOCLICD`: the loader's version, name and vendor, as strings. It is not exported
/// but found by name, as in other loaders; `clinfo` asks for it.
///
/// # Errors
/// `CL_INVALID_VALUE` for an unknown name, and for a buffer that is too small.
///
/// # Safety
/// `value` is NULL or has room for `size` bytes; `size_ret` is NULL or may be written.
pub unsafe extern "C" fn clGetICDLoaderInfoOCLICD(
    info: cl_icdl_info,
    size: size_t,
    value: *mut c_void,
    size_ret: *mut size_t,
) -> cl_int {
    let answer = match info {
        CL_ICDL_OCL_VERSION => c"OpenCL 3.1",
        CL_ICDL_VERSION => VERSION,
        CL_ICDL_NAME => c"Causeway drop-in libOpenCL.so.1",
        CL_ICDL_VENDOR => c"Causeway",
        _ => return CL_INVALID_VALUE,
    }
    .to_bytes_with_nul();
    if !value.is_null() {
        if size < answer.len() {
            return CL_INVALID_VALUE;
        }
        // SAFETY: the caller has room for `size` bytes, which suffice.
        unsafe {
            value
                .cast::<u8>()
                .copy_from_nonoverlapping(answer.as_ptr(), answer.len())
        };
    }
    if !size_ret.is_null() {
        // SAFETY: the caller lets us write it.
        unsafe { size_ret.write(answer.len()) };
    }
    CL_SUCCESS
}

/// This package's version, as C wants it.
const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => panic!("a version holds no NUL"),
    };

/// Tells the library crate of [`function`] when the dynamic linker loads this library, before any
/// call: `clGetExtensionFunctionAddress`, which has no platform, is the library crate's.
#[used]
#[unsafe(link_section = ".init_array")]
static ON_LOAD: extern "C" fn() = on_load;

extern "C" fn on_load() {
    causeway::api::answer_names_by(function);
}
