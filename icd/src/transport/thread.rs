//! Threads of the transport: like those of [`crate::thread`], with a mark that identifies them.

use std::cell::Cell;
use std::io;
use std::thread::LocalKey;

use crate::thread::{self, Stack};

thread_local! {
    static IS_OURS: Cell<bool> = const { Cell::new(false) };
    static WAITS_NEXT: Cell<bool> = const { Cell::new(false) };
}

/// Sets a mark of this thread until dropped.
struct Marked(&'static LocalKey<Cell<bool>>, bool);

impl Marked {
    fn new(mark: &'static LocalKey<Cell<bool>>) -> Marked {
        Marked(mark, mark.replace(true))
    }
}

impl Drop for Marked {
    fn drop(&mut self) {
        self.0.set(self.1);
    }
}

/// Whether the caller is a transport thread. Such a thread must not wait for room on a connection, since
/// it may be the one that makes room.
pub(super) fn is_ours() -> bool {
    IS_OURS.get()
}

/// Runs `body` with the calling thread marked as a transport thread, because it does such a thread's
/// work.
pub(crate) fn as_ours<T>(body: impl FnOnce() -> T) -> T {
    let _marked = Marked::new(&IS_OURS);
    body()
}

/// Whether the caller flushes its session next; see [`waiting_next`].
pub(super) fn waits_next() -> bool {
    WAITS_NEXT.get()
}

/// Runs `body`, which sends commands of one session. The caller waits for them next, or flushes if `body`
/// fails, so a sleeping flusher need not be woken.
pub(crate) fn waiting_next<T>(body: impl FnOnce() -> T) -> T {
    let _marked = Marked::new(&WAITS_NEXT);
    body()
}

/// Starts a detached thread.
///
/// # Errors
/// The system's error if it allows no more threads.
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

/// Runs `body` on a separate thread and waits for it. For work that needs a stack or a runtime that the
/// application's thread may not have.
///
/// # Errors
/// The system's error if it allows no more threads.
pub(super) fn run_aside<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let panicked = |_| {
        io::Error::other("a thread of the client's transport panicked; this is a bug in Causeway")
    };
    thread::start(name, Stack::Runtime, body)?
        .join()
        .map_err(panicked)
}
