//! The flusher: a thread that writes commands which no other thread flushes.
//!
//! While commands flow, the flusher ticks, so that an enqueue need not wake it: waking a thread costs ten
//! times what an enqueue should. Each tick that finds nothing makes the following ones longer. A program
//! that waits for each of its commands flushes them itself and needs the processor. After some idle time
//! the flusher sleeps, and only the first enqueue after that pays for waking it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::Duration;

use super::bulk::Owner;
use super::core::Core;
use crate::thread::Stack;

/// Limits how long an unflushed command waits in a program that does not flush.
const TICK: Duration = Duration::from_micros(100);
/// Longest such wait in a program that has flushed everything itself lately.
const LONGEST_TICK: Duration = Duration::from_micros(800);
/// Idle time after which the flusher sleeps: longer than the gaps of programs that enqueue steadily. The
/// flushers of several sessions divide it, because their ticks use the same processors.
const IDLE: Duration = Duration::from_millis(10);
/// Idle time while a bulk transfer is in progress. Threads that wait for its bytes have flushed. Each tick
/// takes a sixth of its time from a core, and copying needs all cores.
const IDLE_IN_BULK: Duration = TICK;
/// A flusher that has slept for this long opens bulk lanes that the program is likely to need.
const QUIET: Duration = Duration::from_millis(20);

/// Longest sleep while no batch leaves: the session has no connection, or stands.
const WHILE_AWAY: Duration = Duration::from_millis(100);

/// Number of flushers in the process.
static RUNNING: AtomicU32 = AtomicU32::new(0);

/// Counts a running flusher until it is dropped.
struct FlusherCount;

impl FlusherCount {
    fn new() -> FlusherCount {
        RUNNING.fetch_add(1, Ordering::Relaxed);
        FlusherCount
    }

    fn idle() -> Duration {
        (IDLE / RUNNING.load(Ordering::Relaxed).max(1)).max(5 * TICK)
    }
}

impl Drop for FlusherCount {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The handle that wakes the flusher.
#[derive(Debug, Default)]
pub(super) struct Flusher {
    thread: OnceLock<Thread>,
}

impl Flusher {
    /// Wakes the flusher, if its thread has started.
    pub(super) fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

/// Starts the flusher of a session, which ends with the session.
pub(super) fn start(core: &Arc<Core>) -> std::io::Result<()> {
    let core = Arc::clone(core);
    super::thread::spawn("cw-flush", Stack::Small, move || run(&core))
}

fn run(core: &Arc<Core>) {
    let _guard = core.guard();
    let _running = FlusherCount::new();
    // The default timer slack of 50 µs would make a tick half as long again.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1_000));
    let _ = core.flusher.thread.set(std::thread::current());
    // Nothing has been sent yet, so the flusher sleeps until the first command wakes it.
    let (mut idle, mut tick) = (IDLE, Duration::ZERO);
    while !core.is_failed() {
        if !core.outbox.is_open() {
            // The session is away. It wakes this thread when it goes on or fails.
            std::thread::park_timeout(WHILE_AWAY);
            continue;
        }
        if core.outbox.replays() {
            core.replay();
            let owner: Arc<dyn Owner> = Arc::<Core>::clone(core);
            core.bulk.open_if_needed(&owner);
            // What comes again wakes this thread.
            if core.outbox.replays() {
                std::thread::park_timeout(WHILE_AWAY);
            }
            continue;
        }
        if core.bulk.must_open() {
            let owner: Arc<dyn Owner> = Arc::<Core>::clone(core);
            core.bulk.open_if_needed(&owner);
        }
        match core.write_out() {
            Ok(true) => idle = Duration::ZERO,
            Ok(false) => idle += tick,
            // The thread that met the error has failed the session.
            Err(_) => return,
        }
        if core.outbox.stands() || core.outbox.holds_back() {
            // The worker has been told. Whoever changes this wakes this thread.
            std::thread::park_timeout(WHILE_AWAY);
            continue;
        }
        if idle < FlusherCount::idle() && (idle < IDLE_IN_BULK || !core.bulk.is_moving()) {
            tick = next_tick(idle);
            std::thread::sleep(tick);
        } else if core.outbox.sleep_if_empty() {
            // A wake between the check and the sleep is not lost, because `unpark` leaves a token. A
            // failure also wakes this thread, after setting `failed`.
            if core.is_failed() {
                return;
            }
            rest(core.bulk.is_expected(), || {
                if core.outbox.flusher_sleeps() {
                    let owner: Arc<dyn Owner> = Arc::<Core>::clone(core);
                    core.bulk.prepare(&owner);
                }
            });
            if !core.outbox.flusher_sleeps() {
                (idle, tick) = (Duration::ZERO, Duration::ZERO);
            }
        }
    }
}

// Ticks grow by an eighth of the idle time.
fn next_tick(idle: Duration) -> Duration {
    (TICK + idle / 8).min(LONGEST_TICK)
}

// Sleeps until woken. If bulk lanes are expected, sleeps for [`QUIET`] at most, and then calls `prepare`, which opens them
// if the queue is still empty. A wake may have ended this sleep, and need not be about the queue, so the caller looks at
// everything again before the next one.
fn rest(expects_lanes: bool, prepare: impl FnOnce()) {
    if expects_lanes {
        std::thread::park_timeout(QUIET);
        prepare();
    } else {
        std::thread::park();
    }
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

    // A session that is resumed wakes the flusher, which writes what the worker does not have. The program may send
    // nothing afterwards.
    #[test]
    fn a_wake_while_lanes_are_expected_is_not_lost() {
        let (rested, has_rested) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            std::thread::current().unpark();
            rest(true, || {});
            rested.send(()).unwrap();
        });
        has_rested
            .recv_timeout(Duration::from_secs(10))
            .expect("the flusher looks for work again");
    }
}
