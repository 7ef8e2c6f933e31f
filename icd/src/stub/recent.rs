//! A queue's incomplete commands, without a list that completions would have to keep.
//!
//! Completions come on other threads and take no lock of a queue. So whoever looks drops from the front
//! what is done, and now and then from everywhere. Invariant: what is incomplete stays, in its order.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use super::Event;

/// Fewer commands are never looked at all together.
const SWEEP_FROM: usize = 64;

/// Commands, oldest first; the dead and the done go in passing.
#[derive(Debug, Default)]
pub(super) struct Recent {
    events: VecDeque<Weak<Event>>,
    // Length at which all are looked at: one that stays must not keep what is done behind it.
    sweep_at: usize,
}

impl Recent {
    /// Whether there is one.
    pub(super) fn any_incomplete(&mut self) -> bool {
        self.drop_done();
        !self.events.is_empty()
    }

    /// Those that are incomplete.
    pub(super) fn incomplete(&self) -> Vec<Arc<Event>> {
        let alive = self.events.iter().filter_map(Weak::upgrade);
        alive.filter(|event| !event.is_done()).collect()
    }

    /// The same, kept alive by nobody.
    pub(super) fn incomplete_weak(&self) -> impl Iterator<Item = Weak<Event>> + '_ {
        let events = self.events.iter();
        events.filter(|event| is_incomplete(event)).cloned()
    }

    /// Adds a command that was just enqueued.
    pub(super) fn push(&mut self, event: &Arc<Event>) {
        self.drop_done();
        if self.events.len() >= self.sweep_at {
            self.events.retain(is_incomplete);
            self.sweep_at = (2 * self.events.len()).max(SWEEP_FROM);
        }
        self.events.push_back(Arc::downgrade(event));
    }

    fn drop_done(&mut self) {
        while self
            .events
            .front()
            .is_some_and(|event| !is_incomplete(event))
        {
            self.events.pop_front();
        }
    }
}

fn is_incomplete(event: &Weak<Event>) -> bool {
    event.upgrade().is_some_and(|event| !event.is_done())
}
