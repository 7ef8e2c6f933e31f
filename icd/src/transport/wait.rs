//! Waiting for what a session brings.
//!
//! A waiter looks at its own condition whenever [`Progress`] says that something has changed. It first
//! looks for a while, as far as that has lately been worth its cost ([`Patience`]). Then it sleeps, and
//! is woken only by changes it [awaits](Change), so that a thousand sleepers cost each other nothing.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

use causeway_proto::id::{EventId, RequestId};
use causeway_proto::patience::{Look, Patience};
use parking_lot::{Condvar, Mutex};
use rustix::event::{EventfdFlags, eventfd};

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
    patience: Patience,
}

#[derive(Debug)]
struct Sleeper {
    awaits: Change,
    at: At,
}

// Where somebody sleeps.
#[derive(Debug)]
enum At {
    Bed(Arc<Bed>),
    // In the system, which this wakes.
    Bell(Arc<Bell>),
}

impl At {
    fn wake(&self) {
        match self {
            At::Bed(bed) => {
                *bed.woken.lock() = true;
                bed.wake.notify_one();
            }
            At::Bell(bell) => bell.ring(),
        }
    }

    fn is(&self, other: &At) -> bool {
        match (self, other) {
            (At::Bed(one), At::Bed(other)) => Arc::ptr_eq(one, other),
            (At::Bell(one), At::Bell(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

/// Wakes a thread that sleeps in the system for several things at once.
#[derive(Debug)]
pub(super) struct Bell(OwnedFd);

impl Bell {
    /// A silent one.
    ///
    /// # Errors
    /// The system's, when it has no more descriptors.
    pub(super) fn new() -> io::Result<Bell> {
        Ok(Bell(eventfd(
            0,
            EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK,
        )?))
    }

    /// Readable once it has rung.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn ring(&self) {
        // It can only fail because it has rung very often.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    fn silence(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
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
        Progress {
            changes: AtomicU64::new(0),
            sleeping: AtomicUsize::new(0),
            sleepers: Mutex::default(),
            patience: Patience::new(),
        }
    }

    /// `change` has happened; what conditions look at was written before.
    pub(super) fn advance(&self, change: Change) {
        self.changes.fetch_add(1, Ordering::Release);
        // With the fence in `lie_down`: either this sees the sleeper, or the sleeper sees the change.
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

    /// Waits until `condition` holds, which `awaits` makes true (or [`Change::Any`] change does).
    pub(super) fn wait_until(&self, awaits: Change, condition: &dyn Fn() -> bool) {
        if condition() {
            return;
        }
        let mut look = self.patience.begin();
        let found = self.look(&mut look, condition);
        if !found {
            while !self.sleep(awaits, condition) {}
        }
        look.end(found);
    }

    // Looks at the condition at every change; whether it came to hold before the look was over.
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

    /// Sleeps until woken; whether the condition holds then.
    pub(super) fn sleep(&self, awaits: Change, condition: &dyn Fn() -> bool) -> bool {
        let bed = Arc::new(Bed::default());
        let at = At::Bed(Arc::clone(&bed));
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

    /// The same with a sleep of the caller's, which a ring of the bell must end, and which may end at any time.
    /// A bell is for one sleeper at a time.
    pub(super) fn sleep_with(
        &self,
        bell: &Arc<Bell>,
        awaits: Change,
        condition: &dyn Fn() -> bool,
        sleep: impl FnOnce(),
    ) {
        let at = At::Bell(Arc::clone(bell));
        self.lie_down(awaits, At::Bell(Arc::clone(bell)));
        if !condition() {
            sleep();
        }
        if !self.get_up(&at) {
            bell.silence();
        }
    }

    fn lie_down(&self, awaits: Change, at: At) {
        {
            let mut sleepers = self.sleepers.lock();
            sleepers.push(Sleeper { awaits, at });
            self.sleeping.store(sleepers.len(), Ordering::Relaxed);
        }
        // With the fence in `advance`.
        fence(Ordering::SeqCst);
    }

    // False when it has been woken.
    fn get_up(&self, at: &At) -> bool {
        let mut sleepers = self.sleepers.lock();
        let before = sleepers.len();
        sleepers.retain(|sleeper| !sleeper.at.is(at));
        self.sleeping.store(sleepers.len(), Ordering::Relaxed);
        sleepers.len() < before
    }

    /// How long waits here look before they sleep.
    pub(super) fn patience(&self) -> &Patience {
        &self.patience
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
}
