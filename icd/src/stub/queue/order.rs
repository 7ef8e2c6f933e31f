//! The order of one queue: what a command comes after, and whether the application may hold it back.
//!
//! It knows events only, and sends nothing. Invariant: what it has forgotten is done, or held back no more.

use std::sync::{Arc, Weak};

use causeway_proto::id::EventId;

use super::unseen::UnseenEvents;
use crate::stub::event::{GatedBy, Life, Precedents};
use crate::stub::recent::Recent;
use crate::stub::{Event, Queue, Work};

/// How a command stands to the others of an out-of-order queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::stub) enum Place {
    /// It comes after barriers only.
    Ordinary,
    /// It comes after everything (a marker without a wait list).
    AfterAll,
    /// Everything later comes after it; it after everything, if `after_all`.
    Barrier { after_all: bool },
}

impl Place {
    pub(in crate::stub) fn of(work: &Work, waits_for_none: bool) -> Place {
        match work.synchronises() {
            (_, true) => Place::Barrier {
                after_all: waits_for_none,
            },
            (true, false) if waits_for_none => Place::AfterAll,
            _ => Place::Ordinary,
        }
    }

    pub(in crate::stub) fn is_after_all(self) -> bool {
        matches!(self, Place::AfterAll | Place::Barrier { after_all: true })
    }
}

/// How a command stands when it comes into a queue.
#[derive(Clone, Copy, Debug)]
pub(in crate::stub) struct Standing {
    /// An unset user event of the application holds it back.
    pub(in crate::stub) is_gated: bool,
    /// Nothing is before it that is incomplete.
    pub(in crate::stub) is_first: bool,
    /// The newest of what its queue puts before it that is held back too.
    pub(in crate::stub) behind: Option<EventId>,
}

/// The commands of a queue that others may come after.
#[derive(Debug)]
pub(super) struct Order {
    // The last command (in order) or barrier (out of order), whatever has become of it.
    last: Weak<Event>,
    // Incomplete commands.
    pub(super) pending: Recent,
    // Of an out-of-order queue: the last that comes after everything, and what came in since. To come after
    // these is to come after everything.
    last_after_all: Weak<Event>,
    since: Recent,
    // Those that the application may hold back, and the barriers among them.
    pub(super) gated: Recent,
    gated_barriers: Recent,
    pub(super) unseen: UnseenEvents,
}

impl Default for Order {
    fn default() -> Order {
        Order {
            last: Weak::new(),
            pending: Recent::new(|event| !event.is_done()),
            last_after_all: Weak::new(),
            since: Recent::new(|event| !event.is_done()),
            gated: Recent::new(Event::is_gated),
            gated_barriers: Recent::new(Event::is_gated),
            unseen: UnseenEvents::default(),
        }
    }
}

impl Order {
    pub(super) fn would_gate(&mut self, in_order: bool, place: Place, wait: &[Arc<Event>]) -> bool {
        wait.iter().any(|event| event.is_gated()) || self.earlier_gated(in_order, place).any()
    }

    // What of this queue a command at that place comes after, among what the application holds back.
    pub(super) fn earlier_gated(&mut self, in_order: bool, place: Place) -> &mut Recent {
        if in_order || place.is_after_all() {
            &mut self.gated
        } else {
            &mut self.gated_barriers
        }
    }

    // What a gated command notes as before it; an in-order queue's own order needs no note.
    pub(super) fn gated_by(
        &mut self,
        in_order: bool,
        place: Place,
        wait: &[Arc<Event>],
    ) -> GatedBy {
        let mut gated_by: Vec<Weak<Event>> = wait
            .iter()
            .filter(|event| event.is_gated())
            .map(Arc::downgrade)
            .collect();
        if !in_order {
            gated_by.extend(self.earlier_gated(in_order, place).all_weak());
        }
        gated_by.into()
    }

    // Whether a command enqueued now would have nothing of the queue's order before it.
    pub(super) fn is_first(&mut self, in_order: bool) -> bool {
        if in_order {
            !self.pending.any()
        } else {
            self.last.upgrade().is_none_or(|barrier| barrier.is_done())
        }
    }

    pub(super) fn precedents(&self, in_order: bool, place: Place) -> Precedents {
        if !in_order && place.is_after_all() {
            // Not all that is pending: where barriers follow each other, each would name all before it.
            Precedents {
                previous: self.last_after_all.clone(),
                earlier: self.since.all_weak().collect(),
            }
        } else {
            Precedents {
                previous: self.last.clone(),
                earlier: Vec::new(),
            }
        }
    }

    /// An event for an unseen command that is about to be sent.
    pub(super) fn unseen_event(&mut self, queue: &Arc<Queue>, life: Life) -> Arc<Event> {
        // Lets go of those that have ended, so that they can be used again.
        self.pending.any();
        self.unseen.make(queue, life)
    }

    pub(super) fn push(&mut self, event: &Arc<Event>, in_order: bool, gated: bool, place: Place) {
        self.pending.push(event);
        if !in_order && place.is_after_all() {
            self.last_after_all = Arc::downgrade(event);
            self.since.clear();
        } else if !in_order {
            self.since.push(event);
        }
        if in_order || matches!(place, Place::Barrier { .. }) {
            self.last = Arc::downgrade(event);
        }
        if gated {
            self.gated.push(event);
            if matches!(place, Place::Barrier { .. }) {
                self.gated_barriers.push(event);
            }
        }
    }
}
