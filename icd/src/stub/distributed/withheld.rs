//! Commands that are not sent yet, because the application holds them back by user events that it has not set.
//!
//! What is behind a user event that the application has released unset waits for ever and keeps its context, as the
//! specification says of `clReleaseEvent`: to cancel it would let in-order successors run upon bytes that never
//! came.
//!
//! Each is kept under one event that holds it back, and looked at only when that does so no more. Invariant: what
//! goes, goes in the order of the calls, as far as several may go at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use causeway_proto::id::EventId;
use causeway_proto::limits::MAX_HELD_COMMANDS;
use rustc_hash::FxHashMap;

use crate::error::{ClResult, Status};
use crate::stub::queue::Place;
use crate::stub::{Event, Queue, Work};

/// A command with everything that it needs to be sent.
pub(super) struct Held {
    /// Where to.
    pub(super) queue: Arc<Queue>,
    /// Its event.
    pub(super) event: Arc<Event>,
    /// How it stands to its queue's others.
    pub(super) place: Place,
    /// The application's wait list.
    pub(super) wait: Vec<Arc<Event>>,
    /// What it does.
    pub(super) work: Work,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Withheld {
    // In the order of their calls.
    commands: BTreeMap<u64, Held>,
    next: u64,
    // Which of them are kept under an event.
    behind: FxHashMap<EventId, Vec<u64>>,
    // What nothing holds back any more, though nobody has said so yet.
    free: BTreeSet<u64>,
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Held")
            .field("event", &self.event)
            .finish_non_exhaustive()
    }
}

impl Held {
    fn gate(&self) -> Option<EventId> {
        let gate = self.wait.iter().find(|on| on.is_gated());
        gate.map(|gate| gate.id())
    }
}

impl Withheld {
    /// Keeps one; `behind` is the newest of what its queue's order puts before it that is kept too.
    ///
    /// # Errors
    /// `CL_OUT_OF_HOST_MEMORY` when there are too many.
    pub(super) fn push(&mut self, held: Held, behind: Option<EventId>) -> ClResult {
        if self.commands.len() >= MAX_HELD_COMMANDS {
            return Err(Status::OUT_OF_HOST_MEMORY);
        }
        let number = self.next;
        self.next += 1;
        self.keep(number, held.gate().or(behind));
        self.commands.insert(number, held);
        Ok(())
    }

    // An event that was set meanwhile is still to be released.
    fn keep(&mut self, number: u64, under: Option<EventId>) {
        match under {
            Some(event) => self.behind.entry(event).or_default().push(number),
            None => {
                self.free.insert(number);
            }
        }
    }

    /// This user event was set: gives out what nothing holds back any more.
    pub(super) fn release(&mut self, set: EventId, mut go: impl FnMut(Held)) {
        let mut candidates = std::mem::take(&mut self.free);
        candidates.extend(self.behind.remove(&set).into_iter().flatten());
        while let Some(number) = candidates.pop_first() {
            let Some(held) = self.commands.get(&number) else {
                continue;
            };
            let gate = held.gate();
            let gate = gate.or_else(|| held.queue.withholds(&held.event, held.place));
            if gate.is_some() {
                self.keep(number, gate);
            } else if let Some(held) = self.commands.remove(&number) {
                held.event.set_withheld(false);
                let event = held.event.id();
                go(held);
                candidates.extend(self.behind.remove(&event).into_iter().flatten());
            }
        }
    }
}
