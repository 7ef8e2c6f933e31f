//! Commands that are not sent yet, because of user events that the application has not set.
//!
//! If the application releases a user event without setting it, the commands behind it wait for ever and
//! keep their context. The specification describes this for `clReleaseEvent`. Cancelling them would let
//! in-order successors run on bytes that were never written.
//!
//! Each command is filed under one event that holds it back, and is checked again when that event is set.
//! Invariant: commands that become free at the same time are sent in the order of the application's calls.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use causeway_proto::id::EventId;
use causeway_proto::limits::MAX_HELD_COMMANDS;
use rustc_hash::FxHashMap;

use crate::error::{ClResult, Status};
use crate::stub::queue::OrderClass;
use crate::stub::{Command, Event, Queue};

/// A command with everything needed to send it.
pub(super) struct WithheldCommand {
    /// The queue of the command.
    pub(super) queue: Arc<Queue>,
    /// The event of the command.
    pub(super) event: Arc<Event>,
    /// The command's position among those of its queue.
    pub(super) place: OrderClass,
    /// The application's wait list.
    pub(super) wait: Vec<Arc<Event>>,
    /// What the command does.
    pub(super) command: Command,
}

/// The withheld commands of one context; see the module.
#[derive(Debug, Default)]
pub(super) struct Withheld {
    // In the order of the application's calls.
    commands: BTreeMap<u64, WithheldCommand>,
    next: u64,
    // The commands that are filed under each event.
    behind: FxHashMap<EventId, Vec<u64>>,
    // Commands that nothing holds back any more, although no `release` has said so yet.
    free: BTreeSet<u64>,
}

impl std::fmt::Debug for WithheldCommand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WithheldCommand")
            .field("event", &self.event)
            .finish_non_exhaustive()
    }
}

impl WithheldCommand {
    fn gate(&self) -> Option<EventId> {
        let gate = self.wait.iter().find(|on| on.is_gated());
        gate.map(|gate| gate.id())
    }
}

impl Withheld {
    /// Withholds a command. `behind` is the newest withheld command that the queue's order puts before this
    /// one.
    ///
    /// # Errors
    /// `CL_OUT_OF_HOST_MEMORY` when there are too many withheld commands.
    pub(super) fn push(&mut self, held: WithheldCommand, behind: Option<EventId>) -> ClResult {
        if self.commands.len() >= MAX_HELD_COMMANDS {
            return Err(Status::OUT_OF_HOST_MEMORY);
        }
        let number = self.next;
        self.next += 1;
        self.keep(number, held.gate().or(behind));
        self.commands.insert(number, held);
        Ok(())
    }

    // Without `under`, the event was set concurrently, and its `release` is still to come.
    fn keep(&mut self, number: u64, under: Option<EventId>) {
        match under {
            Some(event) => self.behind.entry(event).or_default().push(number),
            None => {
                self.free.insert(number);
            }
        }
    }

    /// Calls `go` with the commands that are free now that the user event `set` was set.
    pub(super) fn release(&mut self, set: EventId, mut go: impl FnMut(WithheldCommand)) {
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
                held.event.go();
                let event = held.event.id();
                go(held);
                // Commands behind this one may be free now. Their numbers are larger, so the order of the
                // calls is kept.
                candidates.extend(self.behind.remove(&event).into_iter().flatten());
            }
        }
    }
}
