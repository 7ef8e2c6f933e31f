//! Marks that need no waits of their own while a newer event stands for them.
//!
//! Both marks and superseding events are looked up by event id, since thousands of events may fail at
//! once. Invariant: an entry stays until its superseding event has ended. If that event failed, the mark
//! goes back to its copy.

use causeway_proto::id::{EventId, MemoryId};
use rustc_hash::FxHashMap;

use super::IsDone;
use super::marks::Mark;
use super::place::{Place, Span};

/// A superseded mark, and its location.
#[derive(Clone, Copy, Debug)]
pub(super) struct SupersededMark {
    pub(super) by: EventId,
    pub(super) mark: Mark,
    pub(super) buffer: MemoryId,
    pub(super) place: Place,
    pub(super) span: Span,
}

/// All superseded marks of a context; see the module.
#[derive(Debug, Default)]
pub(super) struct Superseded {
    // By superseding event.
    entries: FxHashMap<EventId, Vec<SupersededMark>>,
    // The events that superseded marks of an event. Some of them may have ended since.
    superseders: FxHashMap<EventId, Vec<EventId>>,
    len: usize,
    // Pruning waits until there are this many entries: twice as many as after the last prune.
    clear_at: usize,
}

impl Superseded {
    pub(super) fn push(&mut self, entry: SupersededMark) {
        let superseders = self.superseders.entry(entry.mark.event).or_default();
        // The entries of one command are pushed one after the other.
        if superseders.last() != Some(&entry.by) {
            superseders.push(entry.by);
        }
        self.entries.entry(entry.by).or_default().push(entry);
        self.len += 1;
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Forgets ended events, but only when many entries have gathered. [`Superseded::take`] must have
    /// been called for events that failed.
    pub(super) fn prune(&mut self, is_done: IsDone<'_>) {
        if self.len >= self.clear_at {
            self.prune_now(is_done);
        }
    }

    /// Forgets all ended events at once.
    pub(super) fn prune_now(&mut self, is_done: IsDone<'_>) {
        self.forget(|entry| is_done(entry.by) || is_done(entry.mark.event));
        self.clear_at = 64.max(2 * self.len);
    }

    /// Takes the entries that this event superseded and that have not ended.
    pub(super) fn take(&mut self, by: EventId, is_done: IsDone<'_>) -> Vec<SupersededMark> {
        let mut taken = self.entries.remove(&by).unwrap_or_default();
        self.len -= taken.len();
        taken.retain(|entry| !is_done(entry.mark.event));
        taken
    }

    /// Takes the entries of this event's marks, as far as their superseding events have not ended.
    pub(super) fn take_marks(
        &mut self,
        event: EventId,
        is_done: IsDone<'_>,
    ) -> Vec<SupersededMark> {
        let superseders = self.superseders.remove(&event).unwrap_or_default();
        let mut taken = Vec::new();
        for by in superseders {
            if let Some(entries) = self.entries.get_mut(&by) {
                taken.extend(entries.extract_if(.., |entry| entry.mark.event == event));
            }
        }
        self.len -= taken.len();
        taken.retain(|entry| !is_done(entry.by));
        taken
    }

    /// Forgets the entries for which `gone` is true, such as those of a lost site.
    pub(super) fn forget(&mut self, gone: impl Fn(&SupersededMark) -> bool) {
        self.entries.retain(|_, entries| {
            entries.retain(|entry| !gone(entry));
            !entries.is_empty()
        });
        self.len = self.entries.values().map(Vec::len).sum();
        let entries = &self.entries;
        self.superseders.retain(|_, superseders| {
            superseders.retain(|by| entries.contains_key(by));
            !superseders.is_empty()
        });
    }
}
