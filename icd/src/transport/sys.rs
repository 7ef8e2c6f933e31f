//! The few system calls without a safe wrapper: `SO_PRIORITY`, flags of a descriptor that is not ours, `atexit`, and the
//! library's destructor.
//!
//! Code for the application's memory is in `bulk/memory.rs`. Invariant: every pointer passed to the
//! system here points to a local variable.
#![allow(unsafe_code)]

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::OnceLock;

/// Whether this descriptor number is closed when a program is started. `None` if no descriptor has the number.
pub(super) fn is_close_on_exec(number: RawFd) -> Option<bool> {
    // SAFETY: `F_GETFD` takes any number and changes nothing.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    (flags != -1).then_some(flags & libc::FD_CLOEXEC != 0)
}

/// The inode of the file with this descriptor number. `None` if no descriptor has the number.
pub(super) fn inode(number: RawFd) -> Option<u64> {
    let mut told = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the pointer is to a local structure, which the system fills if it succeeds.
    unsafe { (libc::fstat(number, told.as_mut_ptr()) == 0).then(|| told.assume_init().st_ino) }
}

/// Sets `SO_PRIORITY`. Values up to 6 need no privilege.
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

static FLUSH: OnceLock<fn()> = OnceLock::new();
static LAST: OnceLock<fn()> = OnceLock::new();

/// Registers a function that is called when the process exits (`atexit`). It must not panic. The first call
/// counts. The library is never unloaded, so the function stays there.
pub(super) fn at_exit(flush: fn()) {
    extern "C" fn run() {
        if let Some(flush) = FLUSH.get() {
            flush();
        }
    }
    if FLUSH.set(flush).is_err() {
        return;
    }
    // SAFETY: a plain function without captures, which does not unwind because nothing in it panics. If
    // the system has no memory for the entry, only the flush is lost.
    unsafe {
        libc::atexit(run);
    }
}

/// Registers a function that is called after all others of the process's end. It must not panic. The first
/// call counts.
pub(super) fn after_exit(last: fn()) {
    let _ = LAST.set(last);
}

extern "C" fn end() {
    if let Some(last) = LAST.get() {
        last();
    }
}

// The system calls the functions in this section when the process exits: after the functions of `atexit` and
// the destructors of C++ objects, whenever those were registered. They never run earlier, because the library
// is not unloaded. The caller holds no locks, and threads may be started.
// SAFETY: the section is a list of such functions. This one does not unwind, because nothing in it panics.
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;
