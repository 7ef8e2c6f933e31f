//! A queue's commands that are incomplete, or that are held back, without a list that completions would
//! have to update.
//!
//! Completions arrive on other threads, and take no lock of a queue. So each access drops finished commands
//! from the front, and occasionally from everywhere. Invariant: incomplete commands stay, in their order.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use crate::stub::Event;

/// With fewer commands, there is no sweep over all of them.
const SWEEP_FROM: usize = 64;

/// Commands, oldest first. Events that were dropped, or that `still` returns false for, are removed on
/// access.
#[derive(Debug)]
pub(in crate::stub) struct Recent {
    still: fn(&Event) -> bool,
    events: VecDeque<Weak<Event>>,
    // Length at which the next sweep takes place. Without sweeps, one command that stays would keep all
    // finished ones behind it.
    sweep_at: usize,
}

impl Recent {
    /// Makes an empty list of events for which `still` holds. Once false for an event, `still` must stay
    /// false.
    pub(in crate::stub) fn new(still: fn(&Event) -> bool) -> Recent {
        Recent {
            still,
            events: VecDeque::new(),
            sweep_at: 0,
        }
    }

    /// Whether there is any such command.
    pub(in crate::stub) fn any(&mut self) -> bool {
        self.first().is_some()
    }

    /// Removes all commands.
    pub(in crate::stub) fn clear(&mut self) {
        self.events.clear();
        self.sweep_at = 0;
    }

    /// Returns the newest command.
    pub(in crate::stub) fn newest(&mut self) -> Option<Arc<Event>> {
        while self.events.back().is_some_and(|event| !self.holds(event)) {
            self.events.pop_back();
        }
        self.events.back().and_then(Weak::upgrade)
    }

    /// Returns the oldest command.
    pub(in crate::stub) fn first(&mut self) -> Option<Arc<Event>> {
        self.drop_over();
        self.events.front().and_then(Weak::upgrade)
    }

    /// Returns all commands, oldest first.
    pub(in crate::stub) fn all(&self) -> Vec<Arc<Event>> {
        let alive = self.events.iter().filter_map(Weak::upgrade);
        alive.filter(|event| (self.still)(event)).collect()
    }

    /// Returns all commands as weak references.
    pub(in crate::stub) fn all_weak(&self) -> impl Iterator<Item = Weak<Event>> + '_ {
        let events = self.events.iter();
        events.filter(|event| self.holds(event)).cloned()
    }

    /// Adds a command that was just enqueued.
    pub(in crate::stub) fn push(&mut self, event: &Arc<Event>) {
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
