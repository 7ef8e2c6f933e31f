//! Waiting for what a session brings.
//!
//! [`Progress`] counts; waiters look at their own condition after every step. A waiter first spins
//! for about as long as waits have lately taken, if that is short: waking a sleeping core costs more
//! than most answers of a near node take. It never spins where only one core is allowed.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Longer expected waits are slept from the start.
const SPIN_LIMIT: Duration = Duration::from_micros(100);

/// Counts the steps of a session and wakes its waiters.
#[derive(Debug)]
pub(super) struct Progress {
    steps: AtomicU64,
    sleepers: AtomicU32,
    lock: Mutex<()>,
    stepped: Condvar,
    expected_nanos: AtomicU64,
    may_spin: bool,
}

impl Progress {
    pub(super) fn new() -> Progress {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Progress {
            steps: AtomicU64::new(0),
            sleepers: AtomicU32::new(0),
            lock: Mutex::new(()),
            stepped: Condvar::new(),
            expected_nanos: AtomicU64::new(SPIN_LIMIT.as_nanos() as u64 / 2),
            may_spin: cores > 1,
        }
    }

    /// Something has changed that a waiter may wait for.
    pub(super) fn advance(&self) {
        // SeqCst on both sides: either this sees the sleeper, or the sleeper sees the step.
        self.steps.fetch_add(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            drop(self.lock.lock());
            self.stepped.notify_all();
        }
    }

    /// Waits until `condition` holds.
    pub(super) fn wait_until(&self, condition: &dyn Fn() -> bool) {
        let mut seen = self.steps.load(Ordering::SeqCst);
        if condition() {
            return;
        }
        let begun = Instant::now();
        let spin_until = begun + self.spin_budget();
        loop {
            self.wait_for_step(seen, spin_until);
            seen = self.steps.load(Ordering::SeqCst);
            if condition() {
                self.learn(begun.elapsed());
                return;
            }
        }
    }

    fn wait_for_step(&self, seen: u64, spin_until: Instant) {
        while Instant::now() < spin_until {
            for _ in 0..32 {
                if self.steps.load(Ordering::Acquire) != seen {
                    return;
                }
                std::hint::spin_loop();
            }
        }
        let mut guard = self.lock.lock();
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        while self.steps.load(Ordering::SeqCst) == seen {
            self.stepped.wait(&mut guard);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
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
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_sleeper_is_woken_by_a_step() {
        let progress = Arc::new(Progress::new());
        let flag = Arc::new(AtomicBool::new(false));
        let waiter = {
            let (progress, flag) = (Arc::clone(&progress), Arc::clone(&flag));
            std::thread::spawn(move || progress.wait_until(&|| flag.load(Ordering::SeqCst)))
        };
        while progress.sleepers.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        progress.advance();
        flag.store(true, Ordering::SeqCst);
        progress.advance();
        waiter.join().unwrap();
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
