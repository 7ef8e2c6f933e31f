//! The gated commands that the application put before a command.
//!
//! The worker keeps the order of commands. The client needs it only here, and only for *gated* commands
//! (behind an unset user event of the application), which are few. Invariant: every dependency is one of
//! the specification's: an in-order queue, a barrier or a wait list. None comes from shared memory.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use causeway_proto::id::EventId;

use crate::stub::{Event, Queue};

/// Removes from `commands`, which are gated, those that do not come before a command about to be enqueued
/// on `queue` with this wait list.
pub(in crate::stub) fn retain_before(
    commands: &mut HashSet<EventId>,
    queue: &Arc<Queue>,
    wait: &[Arc<Event>],
) {
    if commands.is_empty() {
        return;
    }
    let mut search = Search::default();
    search.add(wait.iter().cloned());
    search.add(queue.gated_before_next());
    search.run();
    commands.retain(|id| search.seen.contains(id));
}

#[derive(Default)]
struct Search {
    seen: HashSet<EventId>,
    left: Vec<Arc<Event>>,
    // In-order queues, each with the command up to which it was searched.
    queues: HashMap<u64, EventId>,
}

impl Search {
    fn add(&mut self, events: impl IntoIterator<Item = Arc<Event>>) {
        for event in events {
            if event.is_gated() && self.seen.insert(event.id()) {
                self.left.push(event);
            }
        }
    }

    fn run(&mut self) {
        while let Some(event) = self.left.pop() {
            self.add(event.gated_by());
            if let Some(queue) = event.queue().filter(|queue| queue.is_in_order()) {
                self.look_back(queue, event.id());
            }
        }
    }

    // Adds the commands that an in-order queue runs before this one. Links from command to command would
    // not do: a command that failed early would break the chain.
    fn look_back(&mut self, queue: &Arc<Queue>, before: EventId) {
        let seen = self.queues.entry(queue.id().0).or_insert(EventId(0));
        if seen.0 >= before.0 {
            return;
        }
        let from = std::mem::replace(seen, before);
        let earlier = queue.gated_events();
        self.add(
            earlier
                .into_iter()
                .filter(|event| (from.0..before.0).contains(&event.id().0)),
        );
    }
}
