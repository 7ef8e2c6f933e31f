//! Waking the engine from its rest, and threads that wait for an event.
//!
//! Invariant: a thread that rings after giving the engine work finds it awake or wakes it, unless it naps
//! and no thread waits. A thread that waits for an event returns when the event ends.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};

use parking_lot::{Condvar, Mutex};

use super::thread;
use crate::event::Event;
use crate::object::Object;

/// The engine works, or is about to.
pub(super) const AWAKE: u32 = 0;
/// The engine checks again soon by itself.
pub(super) const NAPPING: u32 = 1;
/// The engine sleeps until it is woken or its timer ends.
pub(super) const ASLEEP: u32 = 2;

/// How deeply the engine rests. The engine sets its own state; a thread that wakes it sets `AWAKE`.
pub(super) static MODE: AtomicU32 = AtomicU32::new(AWAKE);
static WAITERS: AtomicUsize = AtomicUsize::new(0);
static GATE: Mutex<()> = Mutex::new(());
static ENDED: Condvar = Condvar::new();

/// Waits until an event has ended.
pub(crate) fn wait(event: &Object<Event>) {
    if event.ended() {
        return;
    }
    WAITERS.fetch_add(1, Ordering::SeqCst);
    ring();
    let mut gate = GATE.lock();
    while !event.ended() {
        ENDED.wait(&mut gate);
    }
    drop(gate);
    WAITERS.fetch_sub(1, Ordering::SeqCst);
}

/// Notifies waiting threads that something has ended.
pub(super) fn announce() {
    fence(Ordering::SeqCst);
    if WAITERS.load(Ordering::Relaxed) > 0 {
        // A thread that checked before the end is waiting by the time the lock is free.
        drop(GATE.lock());
        ENDED.notify_all();
    }
}

/// Wakes the engine even from naps, because a thread waits.
pub(crate) fn ring() {
    ring_unless(AWAKE);
}

/// Wakes the engine if it rests more deeply than `mode`.
pub(super) fn ring_unless(mode: u32) {
    fence(Ordering::SeqCst);
    if MODE.load(Ordering::Relaxed) > mode {
        MODE.store(AWAKE, Ordering::Relaxed);
        thread().unpark();
    } else if MODE.load(Ordering::Relaxed) == AWAKE {
        // Only ensures that the thread exists.
        thread();
    }
}
