//! Reusable events of unobserved commands.
//!
//! Such an event has no handle, and the wire names it once. When its command has ended and nothing in the
//! client refers to it any more, a later command of the queue reuses it. A program that asks for no events
//! then needs no allocation per command. The queue owns these events, so their reference to the queue is
//! weak ([`Event::again`]). The session keeps the queue alive until their ends. Invariant: an event is
//! reused only when there is no other reference, not even a weak one.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::stub::event::{EventSpec, Position};
use crate::stub::{Event, Queue};

/// Above this number, each further command drops one event that has ended.
const MOST: usize = 2048;
/// Below this number, an event that is still referenced is kept and tried again later. The queue's last
/// event is always referenced.
const FEW: usize = 16;

/// The events of one queue, oldest first. The oldest ends first.
#[derive(Debug, Default)]
pub(super) struct UnobservedEvents(VecDeque<Arc<Event>>);

impl UnobservedEvents {
    /// Returns an event for an unobserved command that is about to be sent.
    pub(super) fn make(
        &mut self,
        queue: &Arc<Queue>,
        spec: EventSpec,
        position: Position,
    ) -> Arc<Event> {
        match self.take() {
            Some(spent) => Event::again(spent, queue, spec, position),
            None => Event::of_command(queue, spec, position),
        }
    }

    /// Keeps the event of a command that has been sent, for reuse.
    pub(super) fn keep(&mut self, event: &Arc<Event>) {
        self.0.push_back(event.clone());
    }

    // Returns an event that can be reused. An event that stays referenced for long is dropped, but at most
    // one for each command, because the others may soon become free.
    fn take(&mut self) -> Option<Arc<Event>> {
        self.0.front().filter(|oldest| oldest.is_done())?;
        let mut oldest = self.0.pop_front()?;
        if Arc::get_mut(&mut oldest).is_none() {
            if self.0.len() < FEW {
                self.0.push_front(oldest);
            }
            return None;
        }
        if self.0.len() >= MOST && self.0.front()?.is_done() {
            self.0.pop_front();
        }
        Some(oldest)
    }
}
