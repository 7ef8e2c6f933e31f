//! The wrapper around every entry point: it catches panics, turns the result into an error code and traces
//! the call.
//!
//! [`entry_point`] makes a C function from a function that returns [`ClResult`]. The C function calls this
//! module. Nothing here checks an argument: each body does that, in the order handles, same context, object
//! state, values, wait list, access flags.
//!
//! Invariant: no unwinding crosses the C ABI, and `errcode_ret` is always written when it is not NULL.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

pub(crate) use causeway_entry_point::entry_point;
use cl_headers::types::*;

use crate::error::{ClResult, Status};
use crate::{fork, trace};

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
pub(crate) unsafe fn object<T>(
    name: &'static str,
    errcode_ret: *mut cl_int,
    body: impl FnOnce() -> ClResult<*mut T>,
) -> *mut T {
    let (result, code) = match run(name, body) {
        Ok(result) => (result, CL_SUCCESS),
        Err(status) => (ptr::null_mut(), status.0),
    };
    if !errcode_ret.is_null() {
        // SAFETY: the caller promises that a pointer other than NULL is writable.
        unsafe { errcode_ret.write(code) };
    }
    result
}

/// Runs a body whose C function returns NULL on failure and has no place for a code.
pub(crate) fn pointer<T>(name: &'static str, body: impl FnOnce() -> ClResult<*mut T>) -> *mut T {
    run(name, body).unwrap_or(ptr::null_mut())
}

fn run<T>(name: &'static str, body: impl FnOnce() -> ClResult<T>) -> ClResult<T> {
    // In a child of fork, a lock may belong to a thread that does not exist there. So the call fails before
    // it takes any lock.
    fork::check()?;
    let call = trace::call(name);
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        tracing::error!("{name}: an internal error was caught; please report it");
        Err(Status::OUT_OF_HOST_MEMORY)
    });
    if let Some(call) = call {
        call.end(result.as_ref().map_or_else(|status| status.0, |_| 0));
    }
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
