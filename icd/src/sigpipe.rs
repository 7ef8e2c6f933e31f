//! Writes that nobody reads end no program.
//!
//! A write to a pipe without a reader raises `SIGPIPE` on the writing thread, which ends the process; for a pipe no
//! flag of the write says otherwise. The application may want the signal for its own writes: its disposition stays.
//! Invariant: the thread's mask is afterwards what it was, and a signal that was pending before stays pending.

#![allow(unsafe_code, reason = "signal masks have no safe wrapper here")]

use std::ptr::null_mut;

/// Runs `write`; a `SIGPIPE` that it raises on this thread is taken back.
pub(crate) fn without<T>(write: impl FnOnce() -> T) -> T {
    let _held = Held::new();
    write()
}

struct Held {
    only: libc::sigset_t,
    before: libc::sigset_t,
    was_pending: bool,
}

impl Held {
    fn new() -> Held {
        // SAFETY: all sets are live locals, filled by the calls before they are read; none of these calls fails with
        // valid pointers and a valid signal.
        unsafe {
            let (mut only, mut before, mut pending) = std::mem::zeroed();
            libc::sigemptyset(&raw mut only);
            libc::sigaddset(&raw mut only, libc::SIGPIPE);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const only, &raw mut before);
            libc::sigemptyset(&raw mut pending);
            libc::sigpending(&raw mut pending);
            let was_pending = libc::sigismember(&raw const pending, libc::SIGPIPE) == 1;
            Held {
                only,
                before,
                was_pending,
            }
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let at_once = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the sets were filled by `new`; the time is a local; nobody wants what the signal says of itself.
        unsafe {
            if !self.was_pending {
                libc::sigtimedwait(&raw const self.only, null_mut(), &raw const at_once);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, null_mut());
        }
    }
}
