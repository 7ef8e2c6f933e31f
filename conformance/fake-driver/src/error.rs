//! Error codes as Rust errors.
//!
//! They have no text, because OpenCL defines their meaning. Invariant: a `Code` is never `CL_SUCCESS`.

use cl_headers::types::cl_int;

/// A negative OpenCL error code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", cl_headers::error_name(*.0))]
pub(crate) struct Code(pub(crate) cl_int);

/// The result of the body of an entry point.
pub(crate) type ClResult<T = ()> = Result<T, Code>;

/// Returns an error as a result of any type.
pub(crate) fn fail<T>(code: cl_int) -> ClResult<T> {
    Err(Code(code))
}

/// Checks a condition; `code` is the error if it does not hold.
pub(crate) fn ensure(holds: bool, code: cl_int) -> ClResult {
    if holds { Ok(()) } else { Err(Code(code)) }
}
