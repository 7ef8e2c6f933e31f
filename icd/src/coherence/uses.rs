//! The ranges of buffers in which an event has marks.
//!
//! A failure changes these ranges alone. So the cost of losing a node depends on what its commands
//! touched, not on the number of commands times buffers. Invariant: an event with a mark, or one that an
//! arriving copy depends on, has its ranges here until its end is known.

use causeway_proto::id::{EventId, MemoryId};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::IsDone;
use super::place::Span;

/// The extent of an event's use of one buffer, from first to last byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Use {
    pub(super) buffer: MemoryId,
    pub(super) span: Span,
}

type OfEvent = SmallVec<[Use; 1]>;

/// The uses of all events; see the module.
#[derive(Debug, Default)]
pub(super) struct Uses {
    events: FxHashMap<EventId, OfEvent>,
    // Pruning waits until there are this many events: twice as many as after the last prune.
    clear_at: usize,
}

impl Uses {
    pub(super) fn add(&mut self, event: EventId, buffer: MemoryId, span: Span) {
        let uses = self.events.entry(event).or_default();
        // The spans of one buffer are added one after the other.
        match uses.last_mut().filter(|last| last.buffer == buffer) {
            Some(last) => {
                last.span.start = last.span.start.min(span.start);
                last.span.end = last.span.end.max(span.end);
            }
            None => uses.push(Use { buffer, span }),
        }
    }

    /// Removes an event that has ended, and returns its ranges.
    pub(super) fn take(&mut self, event: EventId) -> OfEvent {
        self.events.remove(&event).unwrap_or_default()
    }

    /// Forgets events that ended without a call of [`Uses::take`], but only when many have gathered.
    pub(super) fn prune(&mut self, is_done: IsDone<'_>) {
        if self.events.len() >= self.clear_at {
            self.prune_now(is_done);
        }
    }

    /// Forgets all ended events at once.
    pub(super) fn prune_now(&mut self, is_done: IsDone<'_>) {
        self.events.retain(|event, _| !is_done(*event));
        self.clear_at = 64.max(2 * self.events.len());
    }

    pub(super) fn len(&self) -> usize {
        self.events.len()
    }
}
