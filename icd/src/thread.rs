//! Threads of the library inside a foreign process.
//!
//! They are named `cw-…`, detached, and block every signal, so that the application's handlers run
//! where the application expects them.

use std::io;
use std::thread::{Builder, JoinHandle};

/// How much stack a thread needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stack {
    /// Ours alone.
    Small,
    /// gRPC runs on it.
    Runtime,
    /// The application's callbacks run on it: as much as a thread usually has.
    Application,
}

/// Starts a detached thread. That none can be had is logged and otherwise ignored by the caller's
/// choice of `false`.
pub(crate) fn spawn(name: &str, stack: Stack, body: impl FnOnce() + Send + 'static) -> bool {
    let started = start(name, stack, body);
    if let Err(error) = &started {
        tracing::error!("thread {name} cannot be started: {error}");
    }
    started.is_ok()
}

/// Starts a thread that may be waited for.
///
/// # Errors
/// The system's, when it allows no more threads.
pub(crate) fn start<T: Send + 'static>(
    name: &str,
    stack: Stack,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let size = match stack {
        Stack::Small => 256 << 10,
        Stack::Runtime => 2 << 20,
        Stack::Application => 8 << 20,
    };
    let _blocked = signals::Blocked::all();
    Builder::new()
        .name(name.to_owned())
        .stack_size(size)
        .spawn(body)
}

mod signals {
    //! Blocks all signals for the creating thread while a thread is made, which inherits the mask.

    #![allow(unsafe_code, reason = "pthread_sigmask has no safe wrapper here")]

    /// The mask as it was; restored on drop.
    pub(super) struct Blocked(libc::sigset_t);

    impl Blocked {
        pub(super) fn all() -> Blocked {
            // SAFETY: both sets are live locals that the calls fill; a mask change cannot fail with
            // SIG_SETMASK and valid pointers.
            unsafe {
                let mut all = std::mem::zeroed();
                let mut before = std::mem::zeroed();
                libc::sigfillset(&raw mut all);
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
                Blocked(before)
            }
        }
    }

    impl Drop for Blocked {
        fn drop(&mut self) {
            // SAFETY: the set was filled by `all`.
            unsafe {
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut())
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_every_signal_blocked_and_its_maker_has_not() {
        let inside = start("cw-test", Stack::Small, blocked)
            .unwrap()
            .join()
            .unwrap();
        // All but SIGKILL, SIGSTOP and the two that glibc keeps for itself.
        assert!(inside.ends_with("fffffffe7ffbfeff"), "{inside}");
        assert_ne!(blocked(), inside);
    }

    fn blocked() -> String {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("SigBlk:"));
        line.unwrap().trim().to_owned()
    }
}
