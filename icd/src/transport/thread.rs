//! Threads of the transport: [`crate::thread`]'s, that know what they are.

use std::cell::Cell;
use std::io;

use crate::thread::{self, Stack};

thread_local! {
    static IS_OURS: Cell<bool> = const { Cell::new(false) };
}

/// Whether the caller is a transport thread: it must not wait for room on a connection, since it may be
/// the one that makes room.
pub(super) fn is_ours() -> bool {
    IS_OURS.get()
}

/// Runs `body` with the calling thread as a transport thread: one that does such a thread's work.
pub(crate) fn as_ours<T>(body: impl FnOnce() -> T) -> T {
    struct Back(bool);
    impl Drop for Back {
        fn drop(&mut self) {
            IS_OURS.set(self.0);
        }
    }
    let _back = Back(IS_OURS.replace(true));
    body()
}

/// Starts a detached thread.
///
/// # Errors
/// The system's, when it allows no more threads.
pub(super) fn spawn(
    name: &str,
    stack: Stack,
    body: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    let marked = move || {
        IS_OURS.set(true);
        body();
    };
    thread::start(name, stack, marked).map(drop)
}

/// Runs `body` on a thread of its own and waits for it: for work that needs a stack or a runtime that
/// the calling thread, which is the application's, may not have.
///
/// # Errors
/// The system's, when it allows no more threads.
pub(super) fn run_aside<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let panicked = |_| io::Error::other("a transport thread panicked");
    thread::start(name, Stack::Runtime, body)?
        .join()
        .map_err(panicked)
}
