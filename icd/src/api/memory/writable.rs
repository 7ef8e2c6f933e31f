//! Whether memory of the application's may be written.
//!
//! `CL_MEM_USE_HOST_PTR` takes constants and files that are mapped to be read, too. It is not about memory that
//! is no memory at all, which is the application's error. Invariant: looking raises no signal and changes no byte.

use std::os::fd::AsRawFd as _;

use rustix::pipe::{PipeFlags, pipe_with};

/// Whether the byte there may be written; `true` where the system does not tell. Costs five system calls.
pub(super) fn is_writable(address: usize) -> bool {
    let Ok((out, into)) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK) else {
        return true;
    };
    let byte = std::ptr::with_exposed_provenance_mut::<libc::c_void>(address);
    // SAFETY: the system looks at the address itself, and says EFAULT where nothing can be read.
    let told = unsafe { libc::write(into.as_raw_fd(), byte, 1) };
    if told != 1 {
        return true;
    }
    // SAFETY: the same byte goes back to where it was, or EFAULT comes. The application leaves the memory of an
    // object alone that it has not mapped.
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
        // Nothing is there: for the transfer to find out.
        assert!(is_writable(16));
    }
}
