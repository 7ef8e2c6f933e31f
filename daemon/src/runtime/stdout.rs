//! The C library's standard output, which receives the output of kernels' `printf`.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::pipe::{PipeFlags, pipe_with};

unsafe extern "C" {
    static stdout: *mut libc::FILE;
}

/// Replaces standard output by a pipe and returns its read end, which is non-blocking. The C library's
/// output reaches the pipe at once, without buffering.
///
/// # Errors
/// The system's error; standard output is unchanged then.
pub fn capture() -> io::Result<OwnedFd> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(read.as_fd(), true)?;
    rustix::stdio::dup2_stdout(write.as_fd())?;
    // SAFETY: the stream belongs to the C library and exists as long as the process. Nothing has been
    // printed yet, so its buffering may be set.
    unsafe { libc::setvbuf(stdout, std::ptr::null_mut(), libc::_IONBF, 0) };
    Ok(read)
}
