//! The few system calls that neither std nor rustix wraps safely.
//!
//! What it is not: no policy. Invariant: the only `unsafe` of the daemon outside `runtime` and `bulk`.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The first file descriptor that systemd passes.
const FIRST_PASSED: i32 = 3;

/// Takes the listening sockets that a service manager passed (`LISTEN_PID`, `LISTEN_FDS`) and marks
/// every other inherited descriptor close-on-exec, so that no worker sees it.
///
/// To be called once, first thing in `main`, before anything opens a descriptor.
#[must_use]
pub fn take_inherited() -> Vec<OwnedFd> {
    let for_us = std::env::var("LISTEN_PID").is_ok_and(|pid| pid == std::process::id().to_string());
    let count = std::env::var("LISTEN_FDS")
        .ok()
        .filter(|_| for_us)
        .and_then(|n| n.parse::<i32>().ok())
        .map_or(0, |n| n.clamp(0, 1024));
    // SAFETY: close_range takes three integers; with CLOEXEC it closes nothing. A kernel that lacks it
    // (before 5.11) answers with an error, and then only what the caller leaked stays open.
    unsafe {
        libc::syscall(
            libc::SYS_close_range,
            FIRST_PASSED as libc::c_uint,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        );
    }
    (FIRST_PASSED..FIRST_PASSED + count)
        .filter(|&fd| {
            // SAFETY: F_GETFD only looks; it fails on a number that names nothing.
            unsafe { libc::fcntl(fd, libc::F_GETFD) != -1 }
        })
        // SAFETY: the descriptor is open (checked above), the service manager passed it to us, and
        // nothing in this process has taken it: we run first.
        .map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
        .collect()
}

/// Sets the queueing priority of a socket's packets (`SO_PRIORITY`, 0 to 6 without privileges).
///
/// # Errors
/// What the system says.
pub fn set_priority(socket: BorrowedFd<'_>, priority: libc::c_int) -> io::Result<()> {
    // SAFETY: the option's value is one int, which lives through the call; the descriptor is borrowed.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PRIORITY,
            (&raw const priority).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Ends the process at once: no destructors, no `atexit` handlers of a driver, no flush.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: _exit has no preconditions and does not return.
    unsafe { libc::_exit(code) }
}
