//! The flusher: a thread that writes what nobody flushes.
//!
//! While commands flow it ticks, so that an enqueue has nobody to wake: waking a thread costs ten
//! times what an enqueue should. After some idle ticks it sleeps, and only the first enqueue after
//! that pays for waking it.

use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::Duration;

use super::core::Core;
use crate::thread::Stack;

/// Bounds how long an unflushed command lies.
const TICK: Duration = Duration::from_micros(100);
/// Ticks without a command until it sleeps: 10 ms, longer than the gaps of programs that enqueue steadily.
const IDLE_TICKS: u32 = 100;

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

fn run(core: &Core) {
    let _guard = core.guard();
    // The default slack of 50 µs would make a tick half as long again.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1_000));
    let _ = core.flusher.thread.set(std::thread::current());
    let mut idle = 0;
    while !core.is_failed() {
        match core.write_out() {
            Ok(true) => idle = 0,
            Ok(false) => idle += 1,
            // Whoever saw the error first has told the session.
            Err(_) => return,
        }
        if idle < IDLE_TICKS {
            std::thread::sleep(TICK);
        } else if core.outbox.sleep_if_empty() {
            // A wake between these two lines is not lost: unpark leaves a token. A failure wakes too.
            if core.is_failed() {
                return;
            }
            std::thread::park();
            idle = 0;
        }
    }
}
