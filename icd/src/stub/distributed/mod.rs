//! Contexts of several sites: one order of commands, and the transfers between sites.
//!
//! ```text
//! enqueue ─► withheld (an unset user event of the application is before it) ──► release_withheld
//!    └─────► issue: plan (coherence), transfers, then the command itself           │
//!              ▲───────────────────────────────────────────────────────────────────┘
//! ```
//! - [`sequence`]: the state behind the one lock, and how commands are sent;
//! - [`own_queues`]: the sequence's internal queues on every site;
//! - [`issue`]: the steps for each kind of command;
//! - [`transfers`]: the transfers of a plan;
//! - [`read`]: reads and maps, which may take bytes from several sites;
//! - [`copier`]: copies from the client's own copy of a buffer, for reads;
//! - [`withheld`]: commands that are not sent yet.
//!
//! A command is planned and sent as soon as no action of the application is outstanding before it. So user
//! events of the application exist in the client only, and everything sent can end. A command finds the
//! newest bytes that the application's order puts before it.
//!
//! Not here: decisions about bytes (`coherence`) and sockets. Invariants: every dependency goes from a
//! command sent earlier to one sent later. Transport threads never take the sequence's lock; they append to
//! a separate list of news.

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

use crate::coherence::Contents;
use crate::error::{ClResult, Status};
use crate::fork;
use crate::stub::queue::OrderClass;
use crate::stub::queue::command::Enqueue;
use crate::stub::{Buffer, Command, Event, Queue, Site};
use sequence::Sequence;
use withheld::{Withheld, WithheldCommand};

/// The shared order of a context of several sites; see the module.
#[derive(Debug)]
pub(super) struct Distributed {
    state: Mutex<SequenceState>,
    // Reports of transport threads, until the next plan applies them.
    news: Mutex<Vec<News>>,
    has_news: AtomicBool,
}

#[derive(Debug)]
struct SequenceState {
    sequence: Sequence,
    withheld: Withheld,
}

/// A report for the sequence.
#[derive(Clone, Copy, Debug)]
enum News {
    Ended(EventId, Status),
    Gone(MemoryId),
}

impl Distributed {
    /// Makes the sequence for a context of these sites.
    pub(super) fn new(sites: &[Arc<Site>]) -> Distributed {
        Distributed {
            state: Mutex::new(SequenceState {
                sequence: Sequence::new(sites),
                withheld: Withheld::default(),
            }),
            news: Mutex::default(),
            has_news: AtomicBool::new(false),
        }
    }

    /// Enqueues a command of the application: sends it, or withholds it.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the queue's site is lost. `CL_OUT_OF_RESOURCES` when bytes that the
    /// command needs were lost with their site. `CL_OUT_OF_HOST_MEMORY` when too many commands are
    /// withheld. Nothing is enqueued then.
    pub(super) fn enqueue(&self, queue: &Arc<Queue>, enqueue: Enqueue) -> ClResult<Arc<Event>> {
        let Enqueue { command, mut event } = enqueue;
        // A map writes the client's copy, even one that fetches nothing for its own command.
        event.visible |= matches!(command, Command::Map(_));
        let wait = event.wait.clone();
        let place = OrderClass::of(&command, wait.is_empty());
        // After `fork`, a thread that exists only in the parent may have held this lock, and the child
        // would wait for ever.
        fork::check()?;
        let mut state = self.state.lock();
        let SequenceState { sequence, withheld } = &mut *state;
        // Apply reports first, so that the plan knows which events have ended.
        self.settle(sequence);
        queue.admit(place, event, |event, standing| {
            let held = WithheldCommand {
                queue: queue.clone(),
                event: event.clone(),
                place,
                wait,
                command,
            };
            if standing.is_gated {
                return withheld.push(held, standing.behind);
            }
            sequence.issue(held, standing.is_first)
        })
    }

    /// Sends the commands that only the user event `set` held back. The application has set this event.
    pub(super) fn release_withheld(&self, set: EventId) {
        if fork::check().is_err() {
            return;
        }
        let mut state = self.state.lock();
        let SequenceState { sequence, withheld } = &mut *state;
        self.settle(sequence);
        withheld.release(set, |held| {
            let event = held.event.clone();
            if let Err(status) = sequence.issue(held, false) {
                event.fail(status);
            }
            // Commands released next must see a failure of this one.
            self.settle(sequence);
        });
    }

    /// Reports that an event of the context has ended. Callable from any thread; takes no lock that is held
    /// for long.
    pub(super) fn note_end(&self, event: EventId, status: Status) {
        self.tell(News::Ended(event, status));
    }

    /// Reports that a whole buffer was destroyed. Callable from any thread.
    pub(super) fn note_gone(&self, buffer: MemoryId) {
        self.tell(News::Gone(buffer));
    }

    fn tell(&self, news: News) {
        self.news.lock().push(news);
        self.has_news.store(true, Ordering::Release);
    }

    // Applies all reports to the sequence.
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

    /// Adds a new whole buffer.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` in a child of `fork`.
    pub(super) fn add_buffer(&self, buffer: &Arc<Buffer>, contents: Contents) -> ClResult {
        fork::check()?;
        let mut state = self.state.lock();
        // Without this, a program that makes and releases buffers but enqueues nothing would let the
        // reports pile up.
        self.settle(&mut state.sequence);
        state.sequence.add(buffer, contents);
        Ok(())
    }

    /// Releases the internal objects that the sequence made on its sites. The context is being destroyed.
    pub(super) fn close(self) {
        self.state.into_inner().sequence.close();
    }
}
