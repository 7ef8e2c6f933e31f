//! Kernels' `printf` text on the application's standard output.
//!
//! It goes through C's `stdout`, not Rust's, so that it mixes with the application's own text in
//! order and follows an `freopen` (as conformance tests do), and is flushed at once. OpenCL C, "printf".

#![allow(unsafe_code, reason = "C's stdout is reached through libc only")]

unsafe extern "C" {
    // The C library's stream; `freopen` changes what it leads to.
    static mut stdout: *mut libc::FILE;
}

/// Writes the bytes as they are and flushes.
pub(crate) fn write(text: &[u8]) {
    // SAFETY: `stdout` is the C library's, valid for the life of the process; the slice is live, and
    // stdio locks the stream itself.
    unsafe {
        libc::fwrite(text.as_ptr().cast(), 1, text.len(), stdout);
        libc::fflush(stdout);
    }
}
