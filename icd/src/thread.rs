//! Threads of the library inside of the application's process.
//!
//! They are named `cw-…`, are detached, and block every signal, so that the application's handlers run on
//! its own threads. One thread takes the signals that end or stop a process, if its creator takes them.
//! Without it, those signals could not end a process whose `main` ended by `pthread_exit` and that only the
//! library's threads keep alive.

use std::io;
use std::thread::{Builder, JoinHandle};

/// The stack size of a thread, by its use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stack {
    /// The thread runs only code of the library.
    Small,
    /// The thread runs gRPC.
    Runtime,
    /// The thread runs the application's callbacks, which may expect a stack of the usual size.
    Application,
}

/// Starts a detached thread. A failure is logged. Returns whether the thread was started.
pub(crate) fn spawn(name: &str, stack: Stack, body: impl FnOnce() + Send + 'static) -> bool {
    is_there(name, &start(name, stack, body))
}

/// As `spawn`, for a thread that takes the signals by which people end and stop programs, unless the
/// caller blocks them. The system delivers a process's signals to its first thread if that takes them.
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
        tracing::error!(
            "thread {name} cannot be started: {error}; raise the limit of threads (ulimit -u)"
        );
    }
    started.is_ok()
}

/// Starts a thread that can be joined.
///
/// # Errors
/// The system's error when it allows no more threads.
pub(crate) fn start<T: Send + 'static>(
    name: &str,
    stack: Stack,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    start_masked(name, stack, body, signals::Blocked::all())
}

// A new thread inherits the mask that is in force while `_blocked` lives.
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
    //! Blocks signals of the creating thread while it creates a thread, which inherits the mask.

    #![allow(unsafe_code, reason = "pthread_sigmask has no safe wrapper here")]

    /// The mask as it was before. Dropping this restores it.
    pub(super) struct Blocked(libc::sigset_t);

    /// The signals by which people end and stop programs.
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

        /// Blocks all signals except those that end and stop programs. Of these, the ones that this thread
        /// blocks stay blocked.
        pub(super) fn all_but_ending() -> Blocked {
            Blocked::but(&ENDING)
        }

        fn but(open: &[libc::c_int]) -> Blocked {
            // SAFETY: both sets are live locals that the calls fill. SIG_SETMASK with valid pointers cannot
            // fail.
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
            // SAFETY: `but` filled the set.
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
        // These are all signals except SIGKILL, SIGSTOP and the two that glibc keeps for itself.
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
        // Signals 1, 2, 3, 15 and 20 are not blocked.
        assert!(inside.ends_with("fffffffe7ff3bef8"), "{inside}");
    }

    fn blocked() -> String {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("SigBlk:"));
        line.unwrap().trim().to_owned()
    }
}
