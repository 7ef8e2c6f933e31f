//! Test whether the application's memory is writable.
//!
//! `CL_MEM_USE_HOST_PTR` also accepts constants and files that are mapped read-only. Addresses where
//! nothing is mapped are the application's error and not tested here. Invariant: the test raises no signal
//! and changes no byte.

use std::os::fd::AsRawFd as _;

use rustix::pipe::{PipeFlags, pipe_with};

/// Whether the byte at the address is writable. Returns `true` where the system gives no answer. Costs five
/// system calls.
pub(super) fn is_writable(address: usize) -> bool {
    // The kernel copies the byte into a pipe and back. A bad address makes these calls fail, where an
    // plain access would raise a signal.
    let Ok((out, into)) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK) else {
        return true;
    };
    let byte = std::ptr::with_exposed_provenance_mut::<libc::c_void>(address);
    // SAFETY: the kernel checks the address itself, and returns EFAULT where it is not readable.
    let told = unsafe { libc::write(into.as_raw_fd(), byte, 1) };
    if told != 1 {
        return true;
    }
    // SAFETY: the same byte goes back to its place, or the call fails with EFAULT. The application does not
    // touch the memory of an object that it has not mapped, so no write of its own is lost.
    let taken = unsafe { libc::read(out.as_raw_fd(), byte, 1) };
    taken == 1 || std::io::Error::last_os_error().raw_os_error() != Some(libc::EFAULT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_told_from_variables() {
        static CONSTANT: [u8; 8] = *b"constant";
        let mut variable = 7u8;
        assert!(!is_writable(CONSTANT.as_ptr().expose_provenance()));
        assert!(is_writable((&raw mut variable).expose_provenance()));
        assert_eq!((variable, &CONSTANT), (7, b"constant"));
        // Nothing is mapped there: the transfer reports that, not this test.
        assert!(is_writable(16));
    }
}
