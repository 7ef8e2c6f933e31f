//! The flusher: a thread that writes what nobody flushes.
//!
//! While commands flow it ticks, so that an enqueue has nobody to wake: waking a thread costs ten
//! times what an enqueue should. Each tick that finds nothing makes the next ones longer, since a program that waits for
//! each of its commands flushes them itself and wants the processor. After some idle time the flusher sleeps, and only the
//! first enqueue after that pays for waking it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::Duration;

use super::core::Core;
use crate::thread::Stack;

/// Bounds how long an unflushed command lies in a program that does not flush.
const TICK: Duration = Duration::from_micros(100);
/// The same in a program that has flushed everything itself lately.
const LONGEST_TICK: Duration = Duration::from_micros(800);
/// The time without a command to write until it sleeps: longer than the gaps of programs that enqueue steadily.
/// The flushers of several sessions share it: their ticks come from the same processors.
const IDLE: Duration = Duration::from_millis(10);
/// The same while bytes of a bulk transfer are awaited: whoever waits for them has flushed, each tick takes a
/// sixth of its time from a core, and copying wants all cores.
const IDLE_IN_BULK: Duration = TICK;
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

    fn idle() -> Duration {
        (IDLE / RUNNING.load(Ordering::Relaxed).max(1)).max(5 * TICK)
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
    let (mut idle, mut tick) = (IDLE, Duration::ZERO);
    while !core.is_failed() {
        match core.write_out() {
            Ok(true) => idle = Duration::ZERO,
            Ok(false) => idle += tick,
            // Whoever saw the error first has told the session.
            Err(_) => return,
        }
        if idle < Running::idle() && (idle < IDLE_IN_BULK || !core.bulk.is_moving()) {
            tick = next_tick(idle);
            std::thread::sleep(tick);
        } else if core.outbox.sleep_if_empty() {
            // A wake between these two lines is not lost: unpark leaves a token. A failure wakes too.
            if core.is_failed() {
                return;
            }
            rest(core);
            (idle, tick) = (Duration::ZERO, Duration::ZERO);
        }
    }
}

// An eighth longer for each tick that found nothing.
fn next_tick(idle: Duration) -> Duration {
    (TICK + idle / 8).min(LONGEST_TICK)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_become_longer_while_they_find_nothing_and_never_too_long() {
        let (mut idle, mut ticks) = (Duration::ZERO, 0);
        while idle < IDLE {
            let tick = next_tick(idle);
            assert!((TICK..=LONGEST_TICK).contains(&tick));
            idle += tick;
            ticks += 1;
        }
        assert_eq!(next_tick(Duration::ZERO), TICK);
        assert!(ticks <= 30, "{ticks} ticks until it sleeps");
    }
}
