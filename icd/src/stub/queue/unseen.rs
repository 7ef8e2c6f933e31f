//! The events of commands that nobody looks at, used again and again.
//!
//! Such an event has no handle and the wire names it once, so when its command has ended and nobody in the
//! client refers to it any more, it becomes the event of a later command of its queue: a program that asks for
//! no events allocates nothing for its commands. The queue keeps these events, so they refer to it weakly
//! ([`Event::again`]); the session keeps the queue until their ends. Invariant: an event is used again only
//! when it is nobody else's, weak references included.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::stub::event::Life;
use crate::stub::{Event, Queue};

/// Beyond so many, each further command lets one go that has ended.
const MOST: usize = 2048;
/// With fewer, one that somebody still refers to is worth waiting for: the queue's last one always is.
const FEW: usize = 16;

/// See the module. The oldest is the first that ends.
#[derive(Debug, Default)]
pub(super) struct UnseenEvents(VecDeque<Arc<Event>>);

impl UnseenEvents {
    /// An event for an unseen command that is about to be sent.
    pub(super) fn make(&mut self, queue: &Arc<Queue>, life: Life) -> Arc<Event> {
        match self.take() {
            Some(spent) => Event::again(spent, queue, life),
            None => Event::of_command(queue, life),
        }
    }

    /// Its command has been sent.
    pub(super) fn keep(&mut self, event: &Arc<Event>) {
        self.0.push_back(event.clone());
    }

    // One to which somebody refers for long is let go, but no more than one a command: the others may be about
    // to become free.
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
