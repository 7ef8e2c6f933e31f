//! Waiting for what a session brings.
//!
//! A waiter looks at its own condition whenever [`Progress`] says that something has changed. It first
//! spins for about as long as waits have lately taken, if that is short: waking a sleeping core costs
//! more than most answers of a near node take. It never spins where only one core is allowed. Then it
//! sleeps, and is woken only by changes it [awaits](Change), so that a thousand sleepers cost each
//! other nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use std::time::{Duration, Instant};

use causeway_proto::id::{EventId, RequestId};
use parking_lot::{Condvar, Mutex};

/// Longer expected waits are slept from the start.
const SPIN_LIMIT: Duration = Duration::from_micros(100);

/// Something that a waiter may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// An event has completed.
    Event(EventId),
    /// A request was answered.
    Request(RequestId),
    /// As a change: concerns everybody. As what is awaited: every change.
    Any,
}

/// Tells a session's waiters of changes.
#[derive(Debug)]
pub(super) struct Progress {
    changes: AtomicU64,
    sleeping: AtomicUsize,
    sleepers: Mutex<Vec<Sleeper>>,
    expected_nanos: AtomicU64,
    may_spin: bool,
}

#[derive(Debug)]
struct Sleeper {
    awaits: Change,
    bed: Arc<Bed>,
}

// Not `thread::park`: that needs thread-local data, which a program's last destructors, from where it
// may well call us, no longer have.
#[derive(Debug, Default)]
struct Bed {
    woken: Mutex<bool>,
    wake: Condvar,
}

impl Progress {
    pub(super) fn new() -> Progress {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Progress {
            changes: AtomicU64::new(0),
            sleeping: AtomicUsize::new(0),
            sleepers: Mutex::default(),
            expected_nanos: AtomicU64::new(SPIN_LIMIT.as_nanos() as u64 / 2),
            may_spin: cores > 1,
        }
    }

    /// `change` has happened; what conditions look at was written before.
    pub(super) fn advance(&self, change: Change) {
        self.changes.fetch_add(1, Ordering::Release);
        // With the fence in `sleep`: either this sees the sleeper, or the sleeper sees the change.
        fence(Ordering::SeqCst);
        if self.sleeping.load(Ordering::Relaxed) > 0 {
            self.wake(change);
        }
    }

    #[cold]
    fn wake(&self, change: Change) {
        let mut sleepers = self.sleepers.lock();
        sleepers.retain(|sleeper| {
            let stays =
                change != Change::Any && sleeper.awaits != Change::Any && sleeper.awaits != change;
            if !stays {
                *sleeper.bed.woken.lock() = true;
                sleeper.bed.wake.notify_one();
            }
            stays
        });
        self.sleeping.store(sleepers.len(), Ordering::Relaxed);
    }

    /// Waits until `condition` holds, which `awaits` makes true (or [`Change::Any`] change does).
    pub(super) fn wait_until(&self, awaits: Change, condition: &dyn Fn() -> bool) {
        if condition() {
            return;
        }
        let begun = Instant::now();
        if !self.spin(begun + self.spin_budget(), condition) {
            while !self.sleep(awaits, condition) {}
        }
        self.learn(begun.elapsed());
    }

    // Whether the condition came to hold.
    fn spin(&self, until: Instant, condition: &dyn Fn() -> bool) -> bool {
        let mut seen = self.changes.load(Ordering::Acquire);
        while Instant::now() < until {
            for _ in 0..32 {
                let now = self.changes.load(Ordering::Acquire);
                if now != seen {
                    seen = now;
                    if condition() {
                        return true;
                    }
                }
                std::hint::spin_loop();
            }
        }
        false
    }

    // Sleeps until woken; whether the condition holds then.
    fn sleep(&self, awaits: Change, condition: &dyn Fn() -> bool) -> bool {
        let bed = Arc::new(Bed::default());
        {
            let mut sleepers = self.sleepers.lock();
            sleepers.push(Sleeper {
                awaits,
                bed: Arc::clone(&bed),
            });
            self.sleeping.store(sleepers.len(), Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
        if condition() {
            let mut sleepers = self.sleepers.lock();
            sleepers.retain(|sleeper| !Arc::ptr_eq(&sleeper.bed, &bed));
            self.sleeping.store(sleepers.len(), Ordering::Relaxed);
            return true;
        }
        let mut woken = bed.woken.lock();
        bed.wake.wait_while(&mut woken, |woken| !*woken);
        drop(woken);
        condition()
    }

    fn spin_budget(&self) -> Duration {
        let expected = Duration::from_nanos(self.expected_nanos.load(Ordering::Relaxed));
        if self.may_spin && expected <= SPIN_LIMIT {
            (expected * 2).min(SPIN_LIMIT)
        } else {
            Duration::ZERO
        }
    }

    // A moving average; a lost update between two waiters does no harm.
    fn learn(&self, waited: Duration) {
        let waited = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
        let waited = waited.min(4 * SPIN_LIMIT.as_nanos() as u64);
        let old = self.expected_nanos.load(Ordering::Relaxed);
        self.expected_nanos
            .store((old * 7 + waited) / 8, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    const MINE: Change = Change::Event(EventId(1));
    const OTHER: Change = Change::Event(EventId(2));

    // A waiter of MINE, asleep, and what it waits for.
    fn asleep(progress: &Arc<Progress>) -> (std::thread::JoinHandle<()>, Arc<AtomicBool>) {
        let flag = Arc::new(AtomicBool::new(false));
        let (theirs, looked) = (Arc::clone(progress), Arc::clone(&flag));
        let waiter =
            std::thread::spawn(move || theirs.wait_until(MINE, &|| looked.load(Ordering::Acquire)));
        while progress.sleeping.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        (waiter, flag)
    }

    #[test]
    fn a_sleeper_is_woken_by_what_it_awaits_and_by_what_concerns_all() {
        for change in [MINE, Change::Any] {
            let progress = Arc::new(Progress::new());
            let (waiter, flag) = asleep(&progress);
            progress.advance(OTHER);
            assert_eq!(progress.sleeping.load(Ordering::SeqCst), 1, "left asleep");
            flag.store(true, Ordering::Release);
            progress.advance(change);
            waiter.join().unwrap();
            assert_eq!(progress.sleeping.load(Ordering::SeqCst), 0);
        }
    }

    #[test]
    fn a_woken_waiter_whose_condition_does_not_hold_sleeps_again() {
        let progress = Arc::new(Progress::new());
        let (waiter, flag) = asleep(&progress);
        progress.advance(MINE);
        while progress.sleeping.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        flag.store(true, Ordering::Release);
        progress.advance(MINE);
        waiter.join().unwrap();
    }

    #[test]
    fn no_wake_is_lost() {
        let progress = Arc::new(Progress::new());
        let value = Arc::new(AtomicU64::new(0));
        let waiters: Vec<_> = (0..4)
            .map(|_| {
                let (progress, value) = (Arc::clone(&progress), Arc::clone(&value));
                std::thread::spawn(move || {
                    for i in 1..=2000 {
                        progress.wait_until(MINE, &|| value.load(Ordering::Acquire) >= i);
                    }
                })
            })
            .collect();
        for _ in 0..2000 {
            value.fetch_add(1, Ordering::Release);
            progress.advance(MINE);
        }
        for waiter in waiters {
            waiter.join().unwrap();
        }
    }

    #[test]
    fn long_waits_teach_not_to_spin() {
        let progress = Progress::new();
        for _ in 0..50 {
            progress.learn(Duration::from_millis(3));
        }
        assert_eq!(progress.spin_budget(), Duration::ZERO);
    }
}
