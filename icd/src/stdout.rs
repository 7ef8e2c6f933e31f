//! Kernels' `printf` text on the application's standard output.
//!
//! It goes through C's `stdout`, not Rust's, so that it mixes with the application's own text in
//! order and follows an `freopen` (as conformance tests do), and is flushed at once. OpenCL C, "printf". What cannot
//! be written is lost: the command that printed it has ended well.

#![allow(unsafe_code, reason = "C's stdout is reached through libc only")]

unsafe extern "C" {
    // The C library's stream; `freopen` changes what it leads to.
    static mut stdout: *mut libc::FILE;
}

/// Writes the bytes as they are and flushes.
pub(crate) fn write(text: &[u8]) {
    // SAFETY: `stdout` is the C library's, valid for the life of the process; the slice is live, and
    // stdio locks the stream itself.
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
            // SAFETY: no handler, but what the system does; this process prints to no pipe any more.
            unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
            super::write(b"what a kernel says\n");
            let full = std::fs::File::options().write(true).open("/dev/full");
            rustix::stdio::dup2_stdout(full.unwrap()).unwrap();
            super::write(b"what a kernel says\n");
            // SAFETY: ends the process without what would print.
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
