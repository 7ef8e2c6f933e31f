//! Functions by name, as far as loaders answer for them: the extension functions with a slot in the
//! dispatch table, and the loader's description of itself.
//!
//! The platform's other extension functions are not here. Invariant: every extension function in the list
//! of `cl-headers` is found, whether or not the platform offers the extension. The function then returns
//! the proper error.

use std::ffi::CStr;

use cl_headers::types::*;

/// Looks up a function by name. Returns NULL for functions that only loader and driver use between them,
/// and `None` for names that the platform answers.
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

/// `clGetICDLoaderInfoOCLICD`: returns the loader's version, name and vendor, as strings. As in other
/// loaders, it is not exported but found by name. `clinfo` uses it.
///
/// # Errors
/// `CL_INVALID_VALUE` for an unknown name, and for a buffer that is too small.
///
/// # Safety
/// `value` is NULL or has room for `size` bytes. `size_ret` is NULL or writable.
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
        // SAFETY: the caller has room for `size` bytes, and the answer fits.
        unsafe {
            value
                .cast::<u8>()
                .copy_from_nonoverlapping(answer.as_ptr(), answer.len())
        };
    }
    if !size_ret.is_null() {
        // SAFETY: not NULL, so by this function's contract writable.
        unsafe { size_ret.write(answer.len()) };
    }
    CL_SUCCESS
}

/// This package's version as a C string.
const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => panic!("a version holds no NUL"),
    };

/// Registers [`function`] with the library crate when the dynamic linker loads this library, before any
/// call. The library crate exports `clGetExtensionFunctionAddress`, which takes no platform.
#[used]
#[unsafe(link_section = ".init_array")]
static ON_LOAD: extern "C" fn() = on_load;

extern "C" fn on_load() {
    causeway::api::answer_names_by(function);
}
