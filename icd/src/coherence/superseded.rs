//! Marks that nobody needs to wait for as long as a newer event does it for them.
//!
//! Both are looked up by event, since thousands of events may fail at once. Invariant: an entry stays until its superseder has ended; if that was a failure, the mark goes back
//! to its copy.

use causeway_proto::id::{EventId, MemoryId};
use rustc_hash::FxHashMap;

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
    // By superseder.
    entries: FxHashMap<EventId, Vec<Entry>>,
    // Who has superseded marks of an event; some of them may have ended since.
    superseders: FxHashMap<EventId, Vec<EventId>>,
    len: usize,
    // Clearing is put off until there are twice as many.
    clear_at: usize,
}

impl Superseded {
    pub(super) fn push(&mut self, entry: Entry) {
        let superseders = self.superseders.entry(entry.mark.event).or_default();
        // A command's entries come one after the other.
        if superseders.last() != Some(&entry.by) {
            superseders.push(entry.by);
        }
        self.entries.entry(entry.by).or_default().push(entry);
        self.len += 1;
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Forgets, now and then, what has ended; of a failed superseder's, [`Superseded::take`] has been called before.
    pub(super) fn prune(&mut self, is_done: IsDone<'_>) {
        if self.len >= self.clear_at {
            self.prune_now(is_done);
        }
    }

    /// The same at once.
    pub(super) fn prune_now(&mut self, is_done: IsDone<'_>) {
        self.forget(|entry| is_done(entry.by) || is_done(entry.mark.event));
        self.clear_at = 64.max(2 * self.len);
    }

    /// What this event stood for, as far as it has not ended.
    pub(super) fn take(&mut self, by: EventId, is_done: IsDone<'_>) -> Vec<Entry> {
        let mut taken = self.entries.remove(&by).unwrap_or_default();
        self.len -= taken.len();
        taken.retain(|entry| !is_done(entry.mark.event));
        taken
    }

    /// The marks of this event that others, which have not ended, stand for.
    pub(super) fn take_marks(&mut self, event: EventId, is_done: IsDone<'_>) -> Vec<Entry> {
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

    /// What this place or buffer had is of no interest any more.
    pub(super) fn forget(&mut self, gone: impl Fn(&Entry) -> bool) {
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
