//! The threads of a session, and the abort that ends them all.
//!
//! Invariant: a session that cannot continue ends its process. No thread waits for another that is gone.
#![forbid(unsafe_code)]

/// Ends the process, which serves only this session, because the client would otherwise wait forever.
/// Runs no destructors, because a driver's may block too.
pub(crate) fn broken(what: &str) -> ! {
    tracing::error!(what, "the session cannot continue, so its worker aborts");
    std::process::abort()
}

/// Starts a thread that the session needs. If the system cannot start it, the session ends.
pub(crate) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) {
    let started = std::thread::Builder::new().name(name.into()).spawn(work);
    if let Err(error) = started {
        broken(&format!("cannot start the thread {name:?}: {error}"));
    }
}
