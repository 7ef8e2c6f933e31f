//! Waiting for changes in a session.
//!
//! A waiting thread checks its own condition whenever [`Progress`] reports a change. First it polls, for
//! as long as polling has lately been worth its cost ([`SpinBudget`]). Then it sleeps and is woken only by
//! changes that it [awaits](Change), so that a thousand sleepers cost each other nothing.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

use causeway_proto::id::{EventId, RequestId};
use causeway_proto::spin_budget::{Look, SpinBudget};
use parking_lot::{Condvar, Mutex};
use rustix::event::{EventfdFlags, eventfd};

/// A change that a thread may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// An event has completed.
    Event(EventId),
    /// A request was answered.
    Request(RequestId),
    /// As a change: concerns every waiter. As an awaited change: matches every change.
    Any,
}

/// Reports changes to a session's waiting threads.
#[derive(Debug)]
pub(super) struct Progress {
    changes: AtomicU64,
    sleeping: AtomicUsize,
    sleepers: Mutex<Vec<Sleeper>>,
    spin_budget: SpinBudget,
}

#[derive(Debug)]
struct Sleeper {
    awaits: Change,
    at: At,
}

// The place where a thread sleeps.
#[derive(Debug)]
enum At {
    Bed(Arc<Bed>),
    // The thread sleeps in a system call, which the notifier interrupts.
    Notifier(Arc<Notifier>),
}

impl At {
    fn wake(&self) {
        match self {
            At::Bed(bed) => {
                *bed.woken.lock() = true;
                bed.wake.notify_one();
            }
            At::Notifier(notifier) => notifier.ring(),
        }
    }

    fn is(&self, other: &At) -> bool {
        match (self, other) {
            (At::Bed(one), At::Bed(other)) => Arc::ptr_eq(one, other),
            (At::Notifier(one), At::Notifier(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

/// An eventfd that wakes a thread which polls several descriptors at once.
#[derive(Debug)]
pub(super) struct Notifier(OwnedFd);

impl Notifier {
    /// A notifier that has not rung.
    ///
    /// # Errors
    /// The system's error if it has no descriptors left.
    pub(super) fn new() -> io::Result<Notifier> {
        Ok(Notifier(eventfd(
            0,
            EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK,
        )?))
    }

    /// The descriptor, readable once the notifier has rung.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    pub(super) fn ring(&self) {
        // A write fails only if the counter is full. The notifier has rung then.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    pub(super) fn silence(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

// `thread::park` would need thread-local data. A program's last destructors, which may well call this
// library, no longer have it.
#[derive(Debug, Default)]
struct Bed {
    woken: Mutex<bool>,
    wake: Condvar,
}

impl Progress {
    pub(super) fn new() -> Progress {
        Progress {
            changes: AtomicU64::new(0),
            sleeping: AtomicUsize::new(0),
            sleepers: Mutex::default(),
            spin_budget: SpinBudget::new(),
        }
    }

    /// Records that `change` has happened. The state that conditions check must be written before.
    pub(super) fn advance(&self, change: Change) {
        self.changes.fetch_add(1, Ordering::Release);
        // Pairs with the fence in `lie_down`: either this thread sees the sleeper, or the sleeper sees
        // the change.
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
                sleeper.at.wake();
            }
            stays
        });
        self.sleeping.store(sleepers.len(), Ordering::Relaxed);
    }

    /// Waits until `condition` holds, which `awaits` (or a [`Change::Any`]) makes true.
    pub(super) fn wait_until(&self, awaits: Change, condition: &dyn Fn() -> bool) {
        if condition() {
            return;
        }
        let mut look = self.spin_budget.begin();
        let found = self.look(&mut look, condition);
        if !found {
            while !self.sleep(awaits, condition) {}
        }
        look.end(found);
    }

    // Polls the condition at every change. Returns whether it came to hold before polling stopped.
    fn look(&self, look: &mut Look<'_>, condition: &dyn Fn() -> bool) -> bool {
        let mut seen = None;
        while look.goes_on() {
            let now = self.changes.load(Ordering::Acquire);
            if seen.replace(now) != Some(now) && condition() {
                return true;
            }
        }
        false
    }

    /// Sleeps until woken. Returns whether the condition holds then.
    pub(super) fn sleep(&self, awaits: Change, condition: &dyn Fn() -> bool) -> bool {
        let bed = Arc::new(Bed::default());
        let at = At::Bed(Arc::clone(&bed));
        // The sleeper registers first and checks the condition afterwards, so no change in between is
        // missed.
        self.lie_down(awaits, At::Bed(Arc::clone(&bed)));
        if condition() {
            self.get_up(&at);
            return true;
        }
        let mut woken = bed.woken.lock();
        bed.wake.wait_while(&mut woken, |woken| !*woken);
        drop(woken);
        condition()
    }

    /// Like [`Progress::sleep`], with a sleep of the caller's. A ring of the notifier must end that sleep,
    /// and it may end at any time. A notifier serves one sleeper at a time.
    pub(super) fn sleep_with(
        &self,
        notifier: &Arc<Notifier>,
        awaits: Change,
        condition: &dyn Fn() -> bool,
        sleep: impl FnOnce(),
    ) {
        let at = At::Notifier(Arc::clone(notifier));
        self.lie_down(awaits, At::Notifier(Arc::clone(notifier)));
        if !condition() {
            sleep();
        }
        if !self.get_up(&at) {
            notifier.silence();
        }
    }

    fn lie_down(&self, awaits: Change, at: At) {
        {
            let mut sleepers = self.sleepers.lock();
            sleepers.push(Sleeper { awaits, at });
            self.sleeping.store(sleepers.len(), Ordering::Relaxed);
        }
        // Pairs with the fence in `advance`.
        fence(Ordering::SeqCst);
    }

    // Removes a sleeper. Returns false if it was woken (and thereby removed) before.
    fn get_up(&self, at: &At) -> bool {
        let mut sleepers = self.sleepers.lock();
        let before = sleepers.len();
        sleepers.retain(|sleeper| !sleeper.at.is(at));
        self.sleeping.store(sleepers.len(), Ordering::Relaxed);
        sleepers.len() < before
    }

    /// Decides how long waits poll before they sleep.
    pub(super) fn spin_budget(&self) -> &SpinBudget {
        &self.spin_budget
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    const MINE: Change = Change::Event(EventId(1));
    const OTHER: Change = Change::Event(EventId(2));

    // Starts a thread that waits for MINE; returns once it sleeps, with the flag that it waits for.
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
}
