//! Marks that nobody needs to wait for as long as a newer event does it for them.
//!
//! Invariant: an entry stays until its superseder has ended; if that was a failure, the mark goes back
//! to its copy.

use causeway_proto::id::{EventId, MemoryId};

use super::IsDone;
use super::marks::Mark;
use super::place::{Place, Span};

/// A mark, and where it belongs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) by: EventId,
    pub(super) mark: Mark,
    pub(super) buffer: MemoryId,
    pub(super) place: Place,
    pub(super) span: Span,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Superseded {
    entries: Vec<Entry>,
    // Clearing is put off until the list has doubled.
    clear_at: usize,
}

impl Superseded {
    pub(super) fn push(&mut self, entry: Entry) {
        self.entries.push(entry);
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Forgets, now and then, what has ended; of a failed superseder's, [`Superseded::take`] has been called before.
    pub(super) fn prune(&mut self, is_done: IsDone<'_>) {
        if self.entries.len() >= self.clear_at {
            self.prune_now(is_done);
        }
    }

    /// The same at once.
    pub(super) fn prune_now(&mut self, is_done: IsDone<'_>) {
        self.entries
            .retain(|entry| !is_done(entry.by) && !is_done(entry.mark.event));
        self.clear_at = 64.max(2 * self.entries.len());
    }

    /// What this event stood for.
    pub(super) fn take(&mut self, by: EventId) -> Vec<Entry> {
        self.entries
            .extract_if(.., |entry| entry.by == by)
            .collect()
    }

    /// The marks of this event that others stand for.
    pub(super) fn take_marks(&mut self, event: EventId) -> Vec<Entry> {
        let of_event = |entry: &mut Entry| entry.mark.event == event;
        self.entries.extract_if(.., of_event).collect()
    }

    /// What this place or buffer had is of no interest any more.
    pub(super) fn forget(&mut self, gone: impl Fn(&Entry) -> bool) {
        self.entries.retain(|entry| !gone(entry));
    }
}
