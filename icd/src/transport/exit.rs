//! The end of the process: what is queued goes out if it can soon; nothing waits for more.
//!
//! What the application has registered for its end (`atexit`, destructors) may use OpenCL still. So what ends sessions
//! comes last, with the library's own destructors.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::core::Core;
use super::fork;

/// For all sessions together.
const LIMIT: Duration = Duration::from_secs(1);

static SESSIONS: Mutex<Vec<Weak<Core>>> = Mutex::new(Vec::new());
static AT_EXIT: Once = Once::new();
static LAST: OnceLock<fn()> = OnceLock::new();
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// Has `last` called at the process's very end. The first one counts. It is called in forked children as well, which
/// end, too.
pub fn at_end(last: fn()) {
    let _ = LAST.set(last);
}

/// Remembers a session for the process's end.
pub(super) fn register(core: &Arc<Core>) {
    AT_EXIT.call_once(super::sys::flush_at_exit);
    let mut sessions = SESSIONS.lock();
    sessions.retain(|session| session.strong_count() > 0);
    sessions.push(Arc::downgrade(core));
}

/// Writes out what the process's live sessions still have queued. At most one second in all; does
/// nothing in a forked child. No thread is waited for. The first session registers it with `atexit`.
pub fn at_exit_flush() {
    flush();
}

/// Behind all that the application had registered: what that has queued, and what was given to [`at_end`].
pub(super) fn end() {
    // Sessions end from here on by the program's end, which is nobody's news.
    IS_ENDING.store(true, Ordering::SeqCst);
    let Some(last) = LAST.get() else { return };
    flush();
    last();
}

/// Whether the program is behind all that it had for its end: sessions may end by it, which is no news, and what a
/// callback would use may be gone.
pub fn is_ending() -> bool {
    IS_ENDING.load(Ordering::SeqCst)
}

fn flush() {
    if fork::is_child() {
        return;
    }
    let deadline = Instant::now() + LIMIT;
    // The thread that holds this lock registers a session; it may never get on if exit() was called by
    // a signal handler on top of it.
    let Some(sessions) = SESSIONS.try_lock_for(LIMIT / 10) else {
        return;
    };
    for core in sessions.iter().filter_map(Weak::upgrade) {
        let left = deadline.saturating_duration_since(Instant::now());
        core.write_last(left.max(Duration::from_millis(1)));
    }
}
