//! Commands that are not sent yet, because the application holds them back by user events that it has not set.
//!
//! What is behind a user event that the application has released unset waits for ever and keeps its context, as the
//! specification says of `clReleaseEvent`: to cancel it would let in-order successors run upon bytes that never
//! came.
//!
//! Invariant: they are kept in the order of their calls, and looked at in that order, so that one pass finds
//! all that may go.

use std::collections::VecDeque;
use std::sync::Arc;

use causeway_proto::limits::MAX_HELD_COMMANDS;

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
    commands: VecDeque<Held>,
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Held")
            .field("event", &self.event)
            .finish_non_exhaustive()
    }
}

impl Held {
    fn is_free(&self) -> bool {
        !self.wait.iter().any(|on| on.is_gated()) && !self.queue.withholds(&self.event, self.place)
    }
}

impl Withheld {
    /// Keeps one.
    ///
    /// # Errors
    /// `CL_OUT_OF_HOST_MEMORY` when there are too many.
    pub(super) fn push(&mut self, held: Held) -> ClResult {
        if self.commands.len() >= MAX_HELD_COMMANDS {
            return Err(Status::OUT_OF_HOST_MEMORY);
        }
        self.commands.push_back(held);
        Ok(())
    }

    /// Gives out what nothing holds back any more.
    pub(super) fn release(&mut self, mut go: impl FnMut(Held)) {
        for held in std::mem::take(&mut self.commands) {
            if held.is_free() {
                held.event.set_withheld(false);
                go(held);
            } else {
                self.commands.push_back(held);
            }
        }
    }
}
