//! The end of the process: queued commands are sent if that is possible soon; nothing waits for more.
//!
//! Functions that the application has registered for its end (`atexit`, destructors) may still use
//! OpenCL. So sessions end last, in the library's own destructors.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::core::Core;
use crate::fork;

/// Time limit for all sessions together.
const LIMIT: Duration = Duration::from_secs(1);

static SESSIONS: Mutex<Vec<Weak<Core>>> = Mutex::new(Vec::new());
static LAST: OnceLock<fn()> = OnceLock::new();
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// Registers `last` to be called at the very end of the process. The first call counts. Forked children
/// call it when they end, too.
pub fn at_end(last: fn()) {
    let _ = LAST.set(last);
    super::sys::after_exit(end);
}

/// Has the program's trace end with the process.
pub(crate) fn end_trace_at_end() {
    super::sys::after_exit(end);
}

/// Registers a session for the end of the process.
pub(super) fn register(core: &Arc<Core>) {
    super::sys::at_exit(at_exit_flush);
    super::sys::after_exit(end);
    let mut sessions = SESSIONS.lock();
    sessions.retain(|session| session.strong_count() > 0);
    sessions.push(Arc::downgrade(core));
}

/// Runs after everything that the application had registered. Writes the commands queued by those
/// functions, tells the nodes that nothing follows, and calls the function given to [`at_end`].
fn end() {
    // From here on, sessions end because the program ends. Such losses are not reported.
    IS_ENDING.store(true, Ordering::SeqCst);
    // Before a lease is released. A session that its lease ends keeps no builds for later programs.
    say_farewell();
    if let Some(last) = LAST.get() {
        last();
    }
    crate::trace::finish();
}

/// Writes the queued commands and tells the nodes that nothing follows, so that they do not keep the sessions.
fn say_farewell() {
    for_each_session(LIMIT / 2, |core, left| {
        // A session that cannot be resumed says no farewell, so its commands are written here.
        core.write_last(left());
        core.say_farewell(left());
    });
}

/// Whether all functions that the application registered for its end have run. Sessions that end now are
/// not reported. Objects that a callback would use may be gone.
pub fn is_ending() -> bool {
    IS_ENDING.load(Ordering::SeqCst)
}

/// Writes the queued commands of the process's live sessions, in one second at most. Does nothing in a
/// forked child, and waits for no thread. The first session registers this with `atexit`.
pub fn at_exit_flush() {
    for_each_session(LIMIT, |core, left| core.write_last(left()));
}

/// Calls `act` for each live session of the process, with what is left of `limit` for all of them, 1 ms at least. Does
/// nothing in a forked child.
fn for_each_session(limit: Duration, act: impl Fn(&Core, &dyn Fn() -> Duration)) {
    if fork::is_child() {
        return;
    }
    let deadline = Instant::now() + limit;
    let left = || {
        let left = deadline.saturating_duration_since(Instant::now());
        left.max(Duration::from_millis(1))
    };
    // A thread that holds this lock is registering a session. It may never continue, if `exit()` was
    // called by a signal handler that interrupted it.
    let Some(sessions) = SESSIONS.try_lock_for(LIMIT / 10) else {
        return;
    };
    for core in sessions.iter().filter_map(Weak::upgrade) {
        act(&core, &left);
    }
}
