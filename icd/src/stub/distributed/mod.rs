//! A context of several sites: one order of commands, and what must move between them.
//!
//! ```text
//! submit ──► withheld (an unset user event of the application is before it) ──► release_withheld
//!    └─────► issue: plan (coherence), transfers, then the command itself           │
//!              ▲───────────────────────────────────────────────────────────────────┘
//! ```
//! - [`sequence`]: the state behind the one lock, and how commands are put on the wire;
//! - [`own_queues`]: the queues that it has for itself on every site;
//! - [`issue`]: what each kind of command does before and beside itself;
//! - [`transfers`]: the transfers of a plan;
//! - [`read`]: reads and maps, which may take their bytes from several sites;
//! - [`copier`]: what reads take from the client's own copy;
//! - [`withheld`]: commands that are not sent yet.
//!
//! A command is planned and sent when nothing that the application has yet to do is before it, in the order
//! in which that becomes so. So user events of the application exist in the client alone, everything sent
//! can end, and a command finds the newest bytes that the application's order puts before it.
//!
//! What it is not: it decides nothing about bytes (`coherence` does) and knows no socket. Invariants: every
//! edge goes from a command sent earlier to one sent later; the sequence's lock is never taken on a
//! transport thread, which leaves its news in a list of its own.

mod copier;
mod issue;
mod own_queues;
mod read;
mod sequence;
mod transfers;
mod withheld;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use causeway_proto::id::{EventId, MemoryId};
use parking_lot::Mutex;

use super::event::{Life, Precedents};
use super::queue::Place;
use super::{Buffer, Event, Queue, Site, Submission};
use crate::coherence::Contents;
use crate::error::{ClResult, Status};
use crate::transport;
use sequence::Sequence;
use withheld::{Held, Withheld};

/// See the module. Part of every context of several sites.
#[derive(Debug)]
pub(super) struct Distributed {
    state: Mutex<State>,
    // What transport threads have to say, until somebody plans.
    news: Mutex<Vec<News>>,
    has_news: AtomicBool,
}

#[derive(Debug)]
struct State {
    sequence: Sequence,
    withheld: Withheld,
}

/// What the sequence has to know.
#[derive(Clone, Copy, Debug)]
enum News {
    Ended(EventId, Status),
    Gone(MemoryId),
}

impl Distributed {
    /// For a context of these sites.
    pub(super) fn new(sites: &[Arc<Site>]) -> Distributed {
        Distributed {
            state: Mutex::new(State {
                sequence: Sequence::new(sites),
                withheld: Withheld::default(),
            }),
            news: Mutex::default(),
            has_news: AtomicBool::new(false),
        }
    }

    /// Takes a command of the application's: sends it, or keeps it back.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the queue's site is lost, `CL_OUT_OF_RESOURCES` when bytes that it needs
    /// were lost with their site, `CL_OUT_OF_HOST_MEMORY` when too many commands are held back. Then nothing
    /// was enqueued.
    pub(super) fn submit(
        &self,
        queue: &Arc<Queue>,
        submission: Submission,
    ) -> ClResult<Arc<Event>> {
        let Submission {
            work,
            command,
            wait,
            hold,
            finisher,
            visible,
        } = submission;
        let place = Place::of(&work, wait.is_empty());
        let life = Life {
            command,
            gated: None,
            precedents: Precedents::default(),
            wait: wait.clone(),
            hold,
            finisher,
            visible,
            unseen: false,
        };
        // In a child of fork, another thread of the parent may have held the lock for ever.
        transport::check_not_forked()?;
        let mut state = self.state.lock();
        let State { sequence, withheld } = &mut *state;
        self.settle(sequence);
        queue.admit(place, life, |event, standing| {
            let held = Held {
                queue: queue.clone(),
                event: event.clone(),
                place,
                wait,
                work,
            };
            if standing.is_gated {
                return withheld.push(held, standing.behind);
            }
            sequence.issue(held, standing.is_first)
        })
    }

    /// This user event of the application was set: sends what it alone held back.
    pub(super) fn release_withheld(&self, set: EventId) {
        if transport::check_not_forked().is_err() {
            return;
        }
        let mut state = self.state.lock();
        let State { sequence, withheld } = &mut *state;
        self.settle(sequence);
        withheld.release(set, |held| {
            let event = held.event.clone();
            if let Err(status) = sequence.issue(held, false) {
                event.fail(status);
            }
            // What has failed here and now is known to what comes after it.
            self.settle(sequence);
        });
    }

    /// An event of the context has ended. From any thread; takes no lock that is held for long.
    pub(super) fn note_end(&self, event: EventId, status: Status) {
        self.tell(News::Ended(event, status));
    }

    /// A whole buffer is gone. From any thread.
    pub(super) fn note_gone(&self, buffer: MemoryId) {
        self.tell(News::Gone(buffer));
    }

    fn tell(&self, news: News) {
        self.news.lock().push(news);
        self.has_news.store(true, Ordering::Release);
    }

    fn settle(&self, sequence: &mut Sequence) {
        if self.has_news.swap(false, Ordering::AcqRel) {
            let news = std::mem::take(&mut *self.news.lock());
            for news in news {
                match news {
                    News::Ended(event, status) => sequence.ended(event, status),
                    News::Gone(buffer) => sequence.forget(buffer),
                }
            }
        }
        sequence.look_for_losses();
    }

    /// A new whole buffer.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` in a child of fork.
    pub(super) fn add_buffer(&self, buffer: &Arc<Buffer>, contents: Contents) -> ClResult {
        transport::check_not_forked()?;
        let mut state = self.state.lock();
        // A program may make and release buffers without a command between.
        self.settle(&mut state.sequence);
        state.sequence.add(buffer, contents);
        Ok(())
    }

    /// The context goes: what it made for itself on its sites goes too.
    pub(super) fn close(self) {
        self.state.into_inner().sequence.close();
    }
}
