//! Where an event's marks are: the buffers that its command or transfer uses, and from where to where.
//!
//! A failure changes these ranges alone, so that the loss of a node costs what its commands touched, not
//! commands times buffers. Invariant: an event that has a mark, or for which a copy waits, has its ranges
//! here until its end is known.

use causeway_proto::id::{EventId, MemoryId};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::IsDone;
use super::place::Span;

/// From an event's first byte of a buffer to its last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Use {
    pub(super) buffer: MemoryId,
    pub(super) span: Span,
}

type OfEvent = SmallVec<[Use; 1]>;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Uses {
    events: FxHashMap<EventId, OfEvent>,
    // Clearing is put off until there are twice as many.
    clear_at: usize,
}

impl Uses {
    /// The event uses the span.
    pub(super) fn add(&mut self, event: EventId, buffer: MemoryId, span: Span) {
        let uses = self.events.entry(event).or_default();
        // The spans of one buffer come one after the other.
        match uses.last_mut().filter(|last| last.buffer == buffer) {
            Some(last) => {
                last.span.start = last.span.start.min(span.start);
                last.span.end = last.span.end.max(span.end);
            }
            None => uses.push(Use { buffer, span }),
        }
    }

    /// The event has ended; what it used.
    pub(super) fn take(&mut self, event: EventId) -> OfEvent {
        self.events.remove(&event).unwrap_or_default()
    }

    /// Forgets, now and then, what has ended unnoticed.
    pub(super) fn prune(&mut self, is_done: IsDone<'_>) {
        if self.events.len() >= self.clear_at {
            self.prune_now(is_done);
        }
    }

    /// The same at once.
    pub(super) fn prune_now(&mut self, is_done: IsDone<'_>) {
        self.events.retain(|event, _| !is_done(*event));
        self.clear_at = 64.max(2 * self.events.len());
    }

    pub(super) fn len(&self) -> usize {
        self.events.len()
    }
}
