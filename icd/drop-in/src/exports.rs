//! The exported functions: each checks for a NULL handle, then calls through the dispatch table.
//!
//! A loader cannot follow a NULL handle to a driver, so it answers such a call itself. Programs expect
//! those answers, so the drop-in gives the same. No other argument is checked here.
//!
//! Two functions are not defined here, because the library crate exports them under the same names:
//! `clGetPlatformInfo`, and `clGetExtensionFunctionAddress`, which asks [`loader`](crate::loader) first.
//! They behave like a loader's.
//!
//! Invariant: a function that is in no version node is not defined.

use std::ptr;

use causeway::api::dispatch;
use cl_headers::types::*;

/// Reports an error in the way of a function. `for_each_entry_point!` documents the four ways.
macro_rules! failure {
    (code $code:ident) => {
        $code
    };
    (nothing $code:ident) => {
        ()
    };
    (pointer $code:ident) => {
        ptr::null_mut()
    };
    ($errcode_ret:ident $code:ident) => {{
        if !$errcode_ret.is_null() {
            // SAFETY: the specification lets the caller pass NULL or a writable cl_int.
            unsafe { $errcode_ret.write($code) };
        }
        ptr::null_mut()
    }};
}

macro_rules! export {
    (hidden $($rest:tt)*) => {};
    ($node:ident clGetPlatformInfo $($rest:tt)*) => {};
    ($node:ident clGetExtensionFunctionAddress $($rest:tt)*) => {};
    // A loader answers these three itself. They are defined below.
    ($node:ident clGetPlatformIDs $($rest:tt)*) => {};
    ($node:ident clUnloadCompiler $($rest:tt)*) => {};
    ($node:ident clGetExtensionFunctionAddressForPlatform $($rest:tt)*) => {};
    // The meaning of a NULL platform is implementation-defined here, so the library decides.
    ($node:ident clGetDeviceIDs (platform $code:ident) $($rest:tt)*) => {
        export!($node clGetDeviceIDs () $($rest)*);
    };
    ($node:ident $name:ident ($($handle:ident $code:ident)?) $how:ident
     ($($parameter:ident: $ty:ty),*) $ret:ty) => {
        #[doc = concat!("`", stringify!($name), "` of the OpenCL specification.")]
        ///
        /// # Safety
        /// The specification's rules for the arguments apply.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, reason = "OpenCL's signature")]
        pub unsafe extern "C" fn $name($($parameter: $ty),*) -> $ret {
            $(
                if $handle.is_null() {
                    return failure!($how $code);
                }
            )?
            // SAFETY: the caller follows the same rules for this function.
            unsafe { (dispatch().$name)($($parameter),*) }
        }
    };
}

macro_rules! exports {
    ($($slot:literal $origin:ident($of:tt) $node:ident null($($null:tt)*) fails($how:ident)
       fn $name:ident($($parameter:ident: $ty:ty),*) -> $ret:ty;)*) => {
        $(export!($node $name ($($null)*) $how ($($parameter: $ty),*) $ret);)*
    };
}

cl_headers::for_each_entry_point!(exports);

macro_rules! extension_function {
    (core $($rest:tt)*) => {
        None
    };
    // This function is not exported, but it has a slot in the table.
    (extension hidden $name:ident) => {
        Some(dispatch().$name as *const c_void)
    };
    (extension $node:ident $name:ident) => {
        Some($name as *const c_void)
    };
}

macro_rules! extension_functions {
    ($($slot:literal $origin:ident($of:tt) $node:ident null($($null:tt)*) fails($how:ident)
       fn $name:ident($($parameter:ident: $ty:ty),*) -> $ret:ty;)*) => {
        /// The function of a slot if it belongs to an extension, because programs look such functions up by
        /// name.
        pub(crate) fn extension_function(slot: usize) -> Option<*const c_void> {
            match slot {
                $($slot => extension_function!($origin $node $name),)*
                _ => None,
            }
        }
    };
}

cl_headers::for_each_entry_point!(extension_functions);

/// `clGetPlatformIDs`: returns Causeway's platform, or `CL_PLATFORM_NOT_FOUND_KHR` and a count of 0 if no
/// server is configured.
///
/// # Safety
/// The specification's rules for the arguments apply.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clGetPlatformIDs(
    num_entries: cl_uint,
    platforms: *mut cl_platform_id,
    num_platforms: *mut cl_uint,
) -> cl_int {
    // clGetPlatformIDs: CL_INVALID_VALUE when num_entries is 0 and platforms is not NULL, or both pointers
    // are NULL.
    let no_room = !platforms.is_null() && num_entries == 0;
    let no_answer = platforms.is_null() && num_platforms.is_null();
    if no_room || no_answer {
        return CL_INVALID_VALUE;
    }
    let mut found = 0;
    // SAFETY: the caller follows the rules for `platforms`. The count is a local.
    let code = unsafe { (dispatch().clGetPlatformIDs)(num_entries, platforms, &raw mut found) };
    if code != CL_SUCCESS {
        found = 0;
    }
    if !num_platforms.is_null() {
        // SAFETY: not NULL, so by the specification writable.
        unsafe { num_platforms.write(found) };
    }
    if code == CL_SUCCESS && found == 0 {
        CL_PLATFORM_NOT_FOUND_KHR
    } else {
        code
    }
}

/// `clUnloadCompiler`: does nothing, as in every loader, because the call names no platform.
#[unsafe(no_mangle)]
pub extern "C" fn clUnloadCompiler() -> cl_int {
    CL_SUCCESS
}

/// `clGetExtensionFunctionAddressForPlatform`: looks a name up among the loader's functions, then among the
/// platform's.
///
/// # Safety
/// The specification's rules for the arguments apply.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clGetExtensionFunctionAddressForPlatform(
    platform: cl_platform_id,
    function_name: *const c_char,
) -> *mut c_void {
    if platform.is_null() || function_name.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: not NULL, so by the specification a C string.
    let name = unsafe { std::ffi::CStr::from_ptr(function_name) };
    if let Some(function) = crate::loader::function(name) {
        return function.cast_mut();
    }
    // SAFETY: the caller follows the same rules for this function.
    unsafe { (dispatch().clGetExtensionFunctionAddressForPlatform)(platform, function_name) }
}
