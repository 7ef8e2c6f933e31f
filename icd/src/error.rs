//! Errors inside the library: every function that can fail returns the OpenCL code that the application
//! will see.
//!
//! There is no second error type: [`Status`] is the only one. The table from wire errors to it is in
//! `causeway_proto::status`.

pub use causeway_proto::status::Status;

/// A result whose error is the code that the application gets.
pub type ClResult<T = ()> = Result<T, Status>;

/// Fails with an OpenCL code.
///
/// # Errors
/// Always.
pub const fn fail<T>(code: i32) -> ClResult<T> {
    Err(Status(code))
}

/// Fails with `code` unless `condition` holds.
///
/// # Errors
/// `Status(code)` when the condition is false.
pub const fn require(condition: bool, code: i32) -> ClResult {
    if condition { Ok(()) } else { Err(Status(code)) }
}
