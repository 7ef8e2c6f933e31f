//! Threads of the library inside a foreign process.
//!
//! They are named `cw-…`, detached, and block every signal, so that the application's handlers run
//! where the application expects them. One alone takes the signals that end or stop a process, where its maker takes
//! them: else a process whose `main` ended by `pthread_exit`, and that our threads keep, could not be ended by them.

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
    is_there(name, &start(name, stack, body))
}

/// The same for one that takes the signals by which people end and stop programs, unless the caller blocks them. A
/// system gives a process's signals to its first thread before any other.
pub(crate) fn spawn_stoppable(
    name: &str,
    stack: Stack,
    body: impl FnOnce() + Send + 'static,
) -> bool {
    let blocked = signals::Blocked::all_but_ending();
    is_there(name, &start_masked(name, stack, body, blocked))
}

fn is_there<T>(name: &str, started: &io::Result<JoinHandle<T>>) -> bool {
    if let Err(error) = started {
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
    start_masked(name, stack, body, signals::Blocked::all())
}

// As long as `_blocked` lives, its mask is the one that a new thread gets.
fn start_masked<T: Send + 'static>(
    name: &str,
    stack: Stack,
    body: impl FnOnce() -> T + Send + 'static,
    _blocked: signals::Blocked,
) -> io::Result<JoinHandle<T>> {
    let size = match stack {
        Stack::Small => 256 << 10,
        Stack::Runtime => 2 << 20,
        Stack::Application => 8 << 20,
    };
    Builder::new()
        .name(name.to_owned())
        .stack_size(size)
        .spawn(body)
}

mod signals {
    //! Blocks signals for the creating thread while a thread is made, which inherits the mask.

    #![allow(unsafe_code, reason = "pthread_sigmask has no safe wrapper here")]

    /// The mask as it was; restored on drop.
    pub(super) struct Blocked(libc::sigset_t);

    /// By which people end and stop programs.
    const ENDING: [libc::c_int; 5] = [
        libc::SIGHUP,
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGTERM,
        libc::SIGTSTP,
    ];

    impl Blocked {
        pub(super) fn all() -> Blocked {
            Blocked::but(&[])
        }

        /// But those that end and stop programs, as far as this thread takes them.
        pub(super) fn all_but_ending() -> Blocked {
            Blocked::but(&ENDING)
        }

        fn but(open: &[libc::c_int]) -> Blocked {
            // SAFETY: both sets are live locals that the calls fill; a mask change cannot fail with
            // SIG_SETMASK and valid pointers.
            unsafe {
                let mut all = std::mem::zeroed();
                let mut before = std::mem::zeroed();
                libc::sigfillset(&raw mut all);
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
                for &signal in open {
                    if libc::sigismember(&raw const before, signal) == 0 {
                        libc::sigdelset(&raw mut all, signal);
                    }
                }
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
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

    #[test]
    fn a_stoppable_thread_takes_what_ends_programs() {
        let (tell, told) = std::sync::mpsc::channel();
        assert!(spawn_stoppable("cw-test", Stack::Small, move || {
            tell.send(blocked()).unwrap();
        }));
        let inside = told.recv().unwrap();
        // Open: 1, 2, 3, 15, 20.
        assert!(inside.ends_with("fffffffe7ff3bef8"), "{inside}");
    }

    fn blocked() -> String {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("SigBlk:"));
        line.unwrap().trim().to_owned()
    }
}
