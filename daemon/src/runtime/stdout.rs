//! The C library's standard output, where kernels' `printf` goes.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::pipe::{PipeFlags, pipe_with};

unsafe extern "C" {
    static stdout: *mut libc::FILE;
}

/// Makes standard output a pipe and gives its read end, which does not block. What the C library
/// prints reaches the pipe at once.
///
/// # Errors
/// What the system says; standard output is then as it was.
pub fn capture() -> io::Result<OwnedFd> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(read.as_fd(), true)?;
    rustix::stdio::dup2_stdout(write.as_fd())?;
    // SAFETY: C's own stream, which exists for the process's life; nothing was printed yet, so its
    // buffering may be chosen.
    unsafe { libc::setvbuf(stdout, std::ptr::null_mut(), libc::_IONBF, 0) };
    Ok(read)
}
