//! The text of kernels' `printf` on the application's standard output. Specification: OpenCL C, "printf".
//!
//! The text goes through C's `stdout`, not Rust's. So it stays in order with the application's own text and
//! follows an `freopen`, which conformance tests use. It is flushed at once. Text that cannot be written is
//! lost, because the command that printed it has completed without an error.

#![allow(unsafe_code, reason = "C's stdout is reached through libc only")]

unsafe extern "C" {
    // The C library's stream. `freopen` changes its target.
    static mut stdout: *mut libc::FILE;
}

/// Writes the bytes unchanged and flushes.
pub(crate) fn write(text: &[u8]) {
    // SAFETY: `stdout` is the C library's and valid for the life of the process. The slice is live. stdio
    // locks the stream itself.
    crate::sigpipe::without(|| unsafe {
        libc::fwrite(text.as_ptr().cast(), 1, text.len(), stdout);
        libc::fflush(stdout);
    });
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    const PRINTING: &str = "CAUSEWAY_TEST_PRINTING";

    #[test]
    fn text_that_nobody_reads_is_lost_and_no_more() {
        if std::env::var_os(PRINTING).is_some() {
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            rustix::stdio::dup2_stdout(&writer).unwrap();
            // SAFETY: this restores the system's default handling. This process prints to no other pipe.
            unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
            super::write(b"what a kernel says\n");
            let full = std::fs::File::options().write(true).open("/dev/full");
            rustix::stdio::dup2_stdout(full.unwrap()).unwrap();
            super::write(b"what a kernel says\n");
            // SAFETY: this ends the process without destructors, which could print.
            unsafe { libc::_exit(7) };
        }
        let ended = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "stdout::tests::text_that_nobody_reads_is_lost_and_no_more",
            ])
            .env(PRINTING, "1")
            .output()
            .unwrap();
        assert_eq!(ended.status.code(), Some(7), "{ended:?}");
    }
}
