//! Protection against `SIGPIPE`: a write to a pipe without a reader must not end the application.
//!
//! Such a write raises `SIGPIPE` on the writing thread, which ends the process. For a pipe, no flag of the
//! write prevents that. The application may want the signal for its own writes, so its disposition stays.
//! Invariant: afterwards the thread's signal mask is as before, and a signal that was pending before is
//! still pending.

#![allow(unsafe_code, reason = "signal masks have no safe wrapper here")]

use std::ptr::null_mut;

/// Runs `write` with `SIGPIPE` blocked. Discards a `SIGPIPE` that it raises on this thread.
pub(crate) fn without<T>(write: impl FnOnce() -> T) -> T {
    let _held = BlockedSignal::new();
    write()
}

struct BlockedSignal {
    only: libc::sigset_t,
    before: libc::sigset_t,
    was_pending: bool,
}

impl BlockedSignal {
    fn new() -> BlockedSignal {
        // SAFETY: all sets are live locals, and the calls fill them before they are read. None of these
        // calls fails with valid pointers and a valid signal.
        // A signal from before belongs to the application. So `drop` takes a signal only if none was
        // pending here.
        unsafe {
            let (mut only, mut before, mut pending) = std::mem::zeroed();
            libc::sigemptyset(&raw mut only);
            libc::sigaddset(&raw mut only, libc::SIGPIPE);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const only, &raw mut before);
            libc::sigemptyset(&raw mut pending);
            libc::sigpending(&raw mut pending);
            let was_pending = libc::sigismember(&raw const pending, libc::SIGPIPE) == 1;
            BlockedSignal {
                only,
                before,
                was_pending,
            }
        }
    }
}

impl Drop for BlockedSignal {
    fn drop(&mut self) {
        let at_once = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: `new` filled the sets, the time is a local, and a NULL for the signal's details is
        // allowed.
        unsafe {
            if !self.was_pending {
                libc::sigtimedwait(&raw const self.only, null_mut(), &raw const at_once);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, null_mut());
        }
    }
}
