//! Threads of the transport: named, detached, deaf to signals, with small stacks.

use std::cell::Cell;
use std::io;
use std::thread::{Builder, JoinHandle};

/// Enough for what a transport thread does, upper half's callbacks included.
pub(super) const SMALL_STACK: usize = 256 << 10;
/// For threads that run gRPC.
pub(super) const RUNTIME_STACK: usize = 2 << 20;

thread_local! {
    static IS_OURS: Cell<bool> = const { Cell::new(false) };
}

/// Whether the caller is a transport thread: it must not wait for room on a connection, since it may be
/// the one that makes room.
pub(super) fn is_ours() -> bool {
    IS_OURS.get()
}

/// Starts a detached thread.
///
/// # Errors
/// The system's, when it allows no more threads.
pub(super) fn spawn(
    name: &str,
    stack: usize,
    body: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    start(name, stack, body).map(drop)
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
    start(name, RUNTIME_STACK, body)?
        .join()
        .map_err(|_| io::Error::other("a transport thread panicked"))
}

fn start<T: Send + 'static>(
    name: &str,
    stack: usize,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    super::sys::with_signals_blocked(|| {
        Builder::new()
            .name(name.to_owned())
            .stack_size(stack)
            .spawn(move || {
                IS_OURS.set(true);
                body()
            })
    })
}
