//! The few calls into the system that no safe wrapper offers: a page that `fork` wipes,
//! `SO_PRIORITY`, `atexit`, the library's destructor.
//!
//! What it is not: a place for memory of the application (that is `bulk/memory.rs`). Invariant: every
//! pointer given to the system here is to a local of ours or to a page that is never unmapped.
#![allow(unsafe_code)]

use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicU32;

/// A zeroed word in a page of its own that reads as zero again in a child of `fork`. `None` when the
/// kernel cannot do that.
pub(super) fn word_wiped_on_fork() -> Option<&'static AtomicU32> {
    // The smallest page of any system we run on; the kernel rounds up to its own.
    const LENGTH: usize = 4096;
    // SAFETY: a fresh anonymous mapping; it is never unmapped, so a 'static reference to its first,
    // zeroed and aligned word holds. Only atomics touch it.
    unsafe {
        let page = libc::mmap(
            std::ptr::null_mut(),
            LENGTH,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        if page == libc::MAP_FAILED {
            return None;
        }
        if libc::madvise(page, LENGTH, libc::MADV_WIPEONFORK) != 0 {
            libc::munmap(page, LENGTH);
            return None;
        }
        Some(&*page.cast::<AtomicU32>())
    }
}

/// Sets `SO_PRIORITY`; up to 6 needs no privilege.
pub(super) fn set_priority(socket: &TcpStream, priority: libc::c_int) -> io::Result<()> {
    // SAFETY: the pointer and length describe a local integer that lives through the call.
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

/// Has [`super::at_exit_flush`] called when the process exits. The library is never unloaded, so the
/// function will be there.
pub(super) fn flush_at_exit() {
    extern "C" fn flush() {
        super::at_exit_flush();
    }
    // SAFETY: a plain function without captures, which does not unwind: nothing in it panics. That the
    // system may be out of memory for the entry only costs the flush.
    unsafe {
        libc::atexit(flush);
    }
}

extern "C" fn end() {
    super::exit::end();
}

// The system calls what is listed here when the process exits: after the functions of `atexit` and the destructors
// of C++ objects, whenever those were registered, and never earlier, for the library is not unloaded. It is called
// with nothing locked, and may start threads.
// SAFETY: the section is a list of such functions, and this one does not unwind: nothing in it panics.
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn the_word_is_zero_and_can_be_set() {
        let word = word_wiped_on_fork().expect("Linux 4.14 or later");
        assert_eq!(word.swap(7, Ordering::Relaxed), 0);
        assert_eq!(word.load(Ordering::Relaxed), 7);
    }
}
