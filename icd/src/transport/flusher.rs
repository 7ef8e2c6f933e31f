//! The flusher: a thread that writes what nobody flushes.
//!
//! While commands flow it ticks, so that an enqueue has nobody to wake: waking a thread costs ten
//! times what an enqueue should. After some idle ticks it sleeps, and only the first enqueue after
//! that pays for waking it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::Duration;

use super::core::Core;
use crate::thread::Stack;

/// Bounds how long an unflushed command lies.
const TICK: Duration = Duration::from_micros(100);
/// Ticks without a command until it sleeps: 10 ms, longer than the gaps of programs that enqueue steadily.
/// The flushers of several sessions share them: their ticks come from the same processors.
const IDLE_TICKS: u32 = 100;
/// The same while bytes of a bulk transfer are awaited: whoever waits for them has flushed, each tick takes a
/// sixth of its time from a core, and copying wants all cores.
const BULK_TICKS: u32 = 1;
/// A flusher that sleeps so long has time to open bulk lanes that the program is likely to need.
const QUIET: Duration = Duration::from_millis(20);

/// Flushers of the process's sessions.
static RUNNING: AtomicU32 = AtomicU32::new(0);

/// Counts a flusher while it lives.
struct Running;

impl Running {
    fn new() -> Running {
        RUNNING.fetch_add(1, Ordering::Relaxed);
        Running
    }

    fn idle_ticks() -> u32 {
        (IDLE_TICKS / RUNNING.load(Ordering::Relaxed).max(1)).max(5)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The handle that wakes it.
#[derive(Debug, Default)]
pub(super) struct Flusher {
    thread: OnceLock<Thread>,
}

impl Flusher {
    /// Wakes it, if it runs yet.
    pub(super) fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

/// Starts the flusher of a session; it ends with the session.
pub(super) fn start(core: &Arc<Core>) -> std::io::Result<()> {
    let core = Arc::clone(core);
    super::thread::spawn("cw-flush", Stack::Small, move || run(&core))
}

fn run(core: &Arc<Core>) {
    let _guard = core.guard();
    let _running = Running::new();
    // The default slack of 50 µs would make a tick half as long again.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1_000));
    let _ = core.flusher.thread.set(std::thread::current());
    // Nothing has been sent yet; the first command wakes it.
    let mut idle = IDLE_TICKS;
    while !core.is_failed() {
        match core.write_out() {
            Ok(true) => idle = 0,
            Ok(false) => idle += 1,
            // Whoever saw the error first has told the session.
            Err(_) => return,
        }
        if idle < Running::idle_ticks() && (idle < BULK_TICKS || !core.bulk.is_moving()) {
            std::thread::sleep(TICK);
        } else if core.outbox.sleep_if_empty() {
            // A wake between these two lines is not lost: unpark leaves a token. A failure wakes too.
            if core.is_failed() {
                return;
            }
            rest(core);
            idle = 0;
        }
    }
}

// Until it is woken; on the way, what only a quiet session has time for.
fn rest(core: &Arc<Core>) {
    if core.bulk.is_expected() {
        std::thread::park_timeout(QUIET);
        if !core.outbox.flusher_sleeps() {
            return;
        }
        core.bulk.prepare(core);
        if core.is_failed() {
            return;
        }
    }
    std::thread::park();
}
