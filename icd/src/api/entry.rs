//! The wrapper around every entry point: it catches panics, turns the result into an error code and traces
//! the call.
//!
//! [`entry_points!`] turns functions that return [`ClResult`] into C functions. The wrapper checks no
//! argument: each body does that, in the order handles, same context, object state, values, wait list,
//! access flags.
//!
//! Invariant: no unwinding crosses the C ABI, and `errcode_ret` is always written when it is not NULL.

use std::panic::{AssertUnwindSafe, catch_unwind};

use cl_headers::types::*;

use crate::error::{ClResult, Status};
use crate::transport;

/// The C result of a failed call that also returns a code: NULL.
pub(crate) trait NullResult {
    /// NULL of this type.
    const NULL: Self;
}

impl<T> NullResult for *mut T {
    const NULL: Self = std::ptr::null_mut();
}

/// Runs a body whose C function returns a code.
pub(crate) fn code(name: &'static str, body: impl FnOnce() -> ClResult) -> cl_int {
    match run(name, body) {
        Ok(()) => CL_SUCCESS,
        Err(status) => status.0,
    }
}

/// Runs a body whose C function returns an object or pointer, and the code through `errcode_ret`.
///
/// # Safety
/// `errcode_ret` is NULL or writable.
pub(crate) unsafe fn object<T: NullResult>(
    name: &'static str,
    errcode_ret: *mut cl_int,
    body: impl FnOnce() -> ClResult<T>,
) -> T {
    let (result, code) = match run(name, body) {
        Ok(result) => (result, CL_SUCCESS),
        Err(status) => (T::NULL, status.0),
    };
    if !errcode_ret.is_null() {
        // SAFETY: the caller promises that a pointer other than NULL is writable.
        unsafe { errcode_ret.write(code) };
    }
    result
}

/// Runs a body whose C function returns NULL on failure and has no place for a code.
pub(crate) fn pointer<T: NullResult>(name: &'static str, body: impl FnOnce() -> ClResult<T>) -> T {
    run(name, body).unwrap_or(T::NULL)
}

fn run<T>(name: &'static str, body: impl FnOnce() -> ClResult<T>) -> ClResult<T> {
    // In a child of fork, a lock may belong to a thread that does not exist there. So the call fails before
    // it takes any lock.
    transport::check_not_forked()?;
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        tracing::error!("{name}: an internal error was caught; please report it");
        Err(Status::OUT_OF_HOST_MEMORY)
    });
    match &result {
        // With tracing off this costs one load of the maximum level, so successful calls are traced too.
        Ok(_) => tracing::trace!("{name}: CL_SUCCESS (0)"),
        Err(status) => trace_failure(name, *status),
    }
    result
}

/// Logs at debug level that a call failed, and with which code.
pub(crate) fn trace_failure(name: &'static str, status: Status) {
    tracing::debug!(
        "{name}: {} ({})",
        cl_headers::error_name(status.0),
        status.0
    );
}

/// Defines entry points. The body returns [`ClResult`]. There are three forms; they differ in how the C
/// function reports an error:
///
/// ```text
/// fn clFlush(command_queue: cl_command_queue) { … ClResult<()> … }
/// fn clCreateBuffer(context: cl_context, …; errcode_ret) -> cl_mem { … ClResult<cl_mem> … }
/// fn clSVMAlloc(context: cl_context, …; null) -> *mut c_void { … ClResult<*mut c_void> … }
/// ```
macro_rules! entry_points {
    () => {};
    ($(#[$meta:meta])* fn $name:ident($($p:ident: $t:ty),* $(,)?) $body:block $($rest:tt)*) => {
        $(#[$meta])*
        #[allow(non_snake_case, reason = "OpenCL's name")]
        pub(crate) unsafe extern "C" fn $name($($p: $t),*) -> cl_int {
            $crate::api::entry::code(stringify!($name), || $body)
        }
        $crate::api::entry::entry_points! { $($rest)* }
    };
    ($(#[$meta:meta])* fn $name:ident($($p:ident: $t:ty),* $(,)?; errcode_ret) -> $ret:ty $body:block $($rest:tt)*) => {
        $(#[$meta])*
        #[allow(non_snake_case, reason = "OpenCL's name")]
        pub(crate) unsafe extern "C" fn $name($($p: $t,)* errcode_ret: *mut cl_int) -> $ret {
            let body = || $body;
            // SAFETY: the specification lets the caller pass NULL or a writable cl_int.
            unsafe { $crate::api::entry::object(stringify!($name), errcode_ret, body) }
        }
        $crate::api::entry::entry_points! { $($rest)* }
    };
    ($(#[$meta:meta])* fn $name:ident($($p:ident: $t:ty),* $(,)?; null) -> $ret:ty $body:block $($rest:tt)*) => {
        $(#[$meta])*
        #[allow(non_snake_case, reason = "OpenCL's name")]
        pub(crate) unsafe extern "C" fn $name($($p: $t),*) -> $ret {
            $crate::api::entry::pointer(stringify!($name), || $body)
        }
        $crate::api::entry::entry_points! { $($rest)* }
    };
}

pub(crate) use entry_points;
