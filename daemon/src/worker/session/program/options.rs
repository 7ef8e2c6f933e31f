//! The options that a program is built with, beside the application's own.
#![forbid(unsafe_code)]

use std::ffi::{CStr, CString};

use causeway_proto::source::contains;
use causeway_proto::status::Status;

use super::ARG_INFO;

/// Builds with argument info if the program is built from source. Returns whether the info is there. If
/// that build fails, builds once more with the application's options. The driver may not know the added
/// option, or fail because of it (NVIDIA's does for kernels without arguments). Besides, a log must refer
/// to the application's options only. `CL_INVALID_OPERATION` is not retried: the driver refuses because
/// it still holds the program's kernels.
pub(super) fn with_arg_info(
    options: &[u8],
    from_source: bool,
    build: impl Fn(&CStr) -> Result<(), Status>,
) -> Result<bool, Status> {
    let plain = CString::new(options).map_err(|_| Status::INVALID_BUILD_OPTIONS)?;
    if from_source && !contains(options, ARG_INFO.as_bytes()) {
        let added = CString::new(with_option(options));
        match build(&added.map_err(|_| Status::INVALID_BUILD_OPTIONS)?) {
            Ok(()) => return Ok(true),
            Err(Status::INVALID_OPERATION) => return Err(Status::INVALID_OPERATION),
            Err(_) => {}
        }
    }
    build(&plain).map(|()| false)
}

/// Returns the options with the one that asks for argument info.
pub(super) fn with_option(options: &[u8]) -> Vec<u8> {
    let separator: &[u8] = if options.is_empty() { b"" } else { b" " };
    [options, separator, ARG_INFO.as_bytes()].concat()
}
