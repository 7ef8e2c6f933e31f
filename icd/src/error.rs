//! How the library fails inside: with the OpenCL code that the application will see.
//!
//! Not a second error type beside the wire's: [`Status`] is the one currency, and the table from any
//! wire error to it lives in `causeway_proto::status`.

pub use causeway_proto::status::Status;

/// A result whose error is what the application gets.
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
/// `Status(code)` when it does not.
pub const fn require(condition: bool, code: i32) -> ClResult {
    if condition { Ok(()) } else { Err(Status(code)) }
}
