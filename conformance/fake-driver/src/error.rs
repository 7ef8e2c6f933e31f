//! Error codes as Rust errors.
//!
//! No text: what a code means is OpenCL's business. Invariant: a `Code` is never `CL_SUCCESS`.

use cl_headers::types::cl_int;

/// A negative OpenCL error code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", cl_headers::error_name(*.0))]
pub(crate) struct Code(pub(crate) cl_int);

/// What the body of an entry point returns.
pub(crate) type ClResult<T = ()> = Result<T, Code>;

/// An error as a result of any type.
pub(crate) fn fail<T>(code: cl_int) -> ClResult<T> {
    Err(Code(code))
}

/// One check of an argument: `code` unless it holds.
pub(crate) fn ensure(holds: bool, code: cl_int) -> ClResult {
    if holds { Ok(()) } else { Err(Code(code)) }
}
