//! A queue's commands that are still incomplete, or still held back, without a list that completions would
//! have to keep.
//!
//! Completions come on other threads and take no lock of a queue. So whoever looks drops from the front
//! what is done, and now and then from everywhere. Invariant: what is incomplete stays, in its order.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use super::Event;

/// Fewer commands are never looked at all together.
const SWEEP_FROM: usize = 64;

/// Commands, oldest first; the dead and those for which `still` does not hold any more go in passing.
#[derive(Debug)]
pub(super) struct Recent {
    still: fn(&Event) -> bool,
    events: VecDeque<Weak<Event>>,
    // Length at which all are looked at: one that stays must not keep what is done behind it.
    sweep_at: usize,
}

impl Recent {
    /// None yet; for those events for which `still` holds, and never holds again once it does not.
    pub(super) fn new(still: fn(&Event) -> bool) -> Recent {
        Recent {
            still,
            events: VecDeque::new(),
            sweep_at: 0,
        }
    }

    /// Whether there is one.
    pub(super) fn any(&mut self) -> bool {
        self.first().is_some()
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.events.clear();
        self.sweep_at = 0;
    }

    /// The newest.
    pub(super) fn newest(&mut self) -> Option<Arc<Event>> {
        while self.events.back().is_some_and(|event| !self.holds(event)) {
            self.events.pop_back();
        }
        self.events.back().and_then(Weak::upgrade)
    }

    /// The oldest.
    pub(super) fn first(&mut self) -> Option<Arc<Event>> {
        self.drop_over();
        self.events.front().and_then(Weak::upgrade)
    }

    /// All.
    pub(super) fn all(&self) -> Vec<Arc<Event>> {
        let alive = self.events.iter().filter_map(Weak::upgrade);
        alive.filter(|event| (self.still)(event)).collect()
    }

    /// The same, kept alive by nobody.
    pub(super) fn all_weak(&self) -> impl Iterator<Item = Weak<Event>> + '_ {
        let events = self.events.iter();
        events.filter(|event| self.holds(event)).cloned()
    }

    /// Adds a command that was just enqueued.
    pub(super) fn push(&mut self, event: &Arc<Event>) {
        self.drop_over();
        if self.events.len() >= self.sweep_at {
            let still = self.still;
            self.events
                .retain(|event| event.upgrade().is_some_and(|event| still(&event)));
            self.sweep_at = (2 * self.events.len()).max(SWEEP_FROM);
        }
        self.events.push_back(Arc::downgrade(event));
    }

    fn drop_over(&mut self) {
        while self.events.front().is_some_and(|event| !self.holds(event)) {
            self.events.pop_front();
        }
    }

    fn holds(&self, event: &Weak<Event>) -> bool {
        event.upgrade().is_some_and(|event| (self.still)(&event))
    }
}
