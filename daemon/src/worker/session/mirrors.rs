//! Mirrors: local events that stand for events of other sites, and the messages that end them.
//!
//! A mirror is a node of the session's graph, like a user event. Two parties may end it: the other site's
//! worker and the client. For an event of another native context of this worker, this worker is the first
//! party. The first message counts, whatever the order. A message may come before the command that
//! creates the mirror, and is then kept ([`Early`]). A mirror belongs to one link, or to none. The other
//! ends of other links must not end it.
//!
//! The thread that ends a mirror may read a link or be a driver's callback, and must not make driver
//! calls that might block. So [`resolve`] only changes the graph, and leaves the released commands to the
//! session's `mirrors` thread. The client's message is different: the thread that reads commands applies
//! it and runs the released commands.
//!
//! This module opens no connections; see [`super::links`]. Invariant: nothing here waits.
#![forbid(unsafe_code)]

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use causeway_proto::command::{CreateMirror, TellEvent};
use causeway_proto::id::{EventId, LinkId};
use causeway_proto::status::Status;
use parking_lot::{Condvar, Mutex};

use super::enqueue::Task;
use super::graph::Step;
use super::links::Found;
use super::run::Runner;
use super::{Shared, Violation, spawn};
use crate::worker::objects::command::{Command, Kind, Tell, To};

/// Limit on messages for unknown mirrors. Most of these are late: the client has already ended and
/// released the mirror. To drop an early one costs only time, because the client's message comes as well.
const MAX_EARLY: usize = 1 << 16;

/// The newest messages for unknown mirrors.
#[derive(Default)]
pub(crate) struct Early {
    words: HashMap<Word, Status>,
    order: VecDeque<Word>,
}

/// A mirror, and the link on which a message about it came; [`OWN`] for this worker.
type Word = (LinkId, EventId);

/// Stands for messages of this worker itself.
const OWN: LinkId = LinkId(0);

/// The other end of a link named an event that is no mirror of that link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the other end named {0:?}, which is not a mirror event of this link")]
pub(crate) struct Foreign(EventId);

impl Early {
    fn keep(&mut self, word: Word, status: Status) {
        if self.words.insert(word, status).is_some() {
            return;
        }
        self.order.push_back(word);
        if self.order.len() > MAX_EARLY
            && let Some(oldest) = self.order.pop_front()
        {
            self.words.remove(&oldest);
        }
    }

    /// Takes the message that a permitted party has sent about a mirror.
    fn take(&mut self, link: LinkId, mirror: EventId) -> Option<Status> {
        // The entry in `order` stays until it is the oldest. This is safe, because ids are not used twice.
        let by_link = self.words.remove(&(link, mirror));
        by_link.or_else(|| self.words.remove(&(OWN, mirror)))
    }
}

/// Held commands that mirrors have released, on their way to the `mirrors` thread.
#[derive(Default)]
pub(crate) struct Freed {
    steps: Mutex<Steps>,
    wake: Condvar,
}

#[derive(Default)]
struct Steps {
    waiting: VecDeque<Step<Task>>,
    started: bool,
}

impl Freed {
    fn put(&self, shared: &Arc<Shared>, mut steps: VecDeque<Step<Task>>) {
        if steps.is_empty() {
            return;
        }
        let mut waiting = self.steps.lock();
        waiting.waiting.append(&mut steps);
        if !std::mem::replace(&mut waiting.started, true) {
            let shared = Arc::clone(shared);
            spawn("mirrors", move || shared.freed.run(&shared));
        }
        drop(waiting);
        self.wake.notify_one();
    }

    /// The body of the `mirrors` thread.
    fn run(&self, shared: &Arc<Shared>) {
        loop {
            let steps = {
                let mut steps = self.steps.lock();
                while steps.waiting.is_empty() {
                    self.wake.wait(&mut steps);
                }
                std::mem::take(&mut steps.waiting)
            };
            Runner::new(shared).take(steps);
        }
    }
}

/// Applies [`CreateMirror`].
///
/// # Errors
/// [`Violation`] when the id is in use, or there are too many objects.
pub(crate) fn create(shared: &Arc<Shared>, create: &CreateMirror) -> Result<(), Violation> {
    let id = EventId(create.mirror);
    let link = LinkId(create.link);
    let mirror = Command::new(id, Kind::Mirror(link), false, &shared.outbox);
    let mut core = shared.core.lock();
    // A mirror needs no native object, so one above the limit is not refused.
    let _ = core.room(shared)?;
    core.add_user_event(&mirror)?;
    if let Some(status) = core.early.take(link, id) {
        // The mirror is new, so no command waits for it and no other mirror is notified.
        mirror.close(status);
        core.graph.end(id, status, &mut VecDeque::new());
        core.forget_if_well(id, status);
    }
    Ok(())
}

/// Applies [`TellEvent`].
///
/// # Errors
/// [`Violation`] when the event or link never existed, or when too many mirrors want reports of one event.
pub(crate) fn tell(shared: &Arc<Shared>, tell: &TellEvent) -> Result<(), Violation> {
    let id = EventId(tell.event);
    let to = if tell.link == 0 {
        To::Here(Arc::clone(shared))
    } else {
        match shared.links.find(LinkId(tell.link))? {
            Found::Here(link) => To::Peer(link),
            // The mirror is gone together with the peer of the dropped link.
            Found::Dropped => To::Nobody,
        }
    };
    let tell = Tell {
        mirror: EventId(tell.mirror),
        to,
        order_only: tell.order_only,
    };
    let named = shared.core.lock().named(id)?;
    match named {
        Some(event) => event
            .tell(tell)
            .map_err(|_| Violation::Malformed("one event has too many mirror events")),
        // The event has ended well and is forgotten.
        None => {
            tell.say(Status::SUCCESS);
            Ok(())
        }
    }
}

/// Ends a mirror on behalf of this worker itself; otherwise as [`hear`].
pub(crate) fn resolve(shared: &Arc<Shared>, mirror: EventId, status: Status) {
    if let Err(error) = hear(shared, OWN, mirror, status) {
        tracing::warn!(%error, "cannot end a mirror event");
    }
}

/// Ends a mirror because of a message on a link, and in turn the mirrors in this worker that stand for it.
///
/// May be called wherever no lock of the session is held: it makes no driver calls and does not wait.
///
/// # Errors
/// [`Foreign`] if the event is no mirror of the link; it is then unchanged.
pub(crate) fn hear(
    shared: &Arc<Shared>,
    link: LinkId,
    mirror: EventId,
    status: Status,
) -> Result<(), Foreign> {
    // A list instead of recursion, because mirrors may stand for mirrors.
    let mut words = VecDeque::from([(link, mirror)]);
    let mut freed = VecDeque::new();
    let mut result = Ok(());
    while let Some((from, mirror)) = words.pop_front() {
        let told = {
            let mut core = shared.core.lock();
            let Some(event) = core.graph.known(mirror).map(Arc::clone) else {
                core.early.keep((from, mirror), status);
                continue;
            };
            if !event.is_mirror_of(from) {
                result = Err(Foreign(mirror));
                continue;
            }
            let Some(told) = event.close(status) else {
                continue;
            };
            core.graph.end(mirror, status, &mut freed);
            core.forget_if_well(mirror, status);
            told
        };
        // The session's lock is released here: a notification must not be sent under it.
        for tell in told.into_iter().filter(|tell| tell.is_for(status)) {
            match tell.to {
                To::Here(_) => words.push_back((OWN, tell.mirror)),
                To::Peer(_) | To::Nobody => tell.say(status),
            }
        }
    }
    shared.freed.put(shared, freed);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: LinkId = LinkId(3);

    #[test]
    fn the_newest_words_are_kept_and_no_more() {
        let mut early = Early::default();
        let count = MAX_EARLY as u64 + 10;
        for n in 0..count {
            early.keep((LINK, EventId(n)), Status(-1));
            early.keep((LINK, EventId(n)), Status(0));
        }
        assert_eq!(early.take(LINK, EventId(9)), None);
        assert_eq!(early.take(LINK, EventId(10)), Some(Status(0)));
        assert_eq!(early.take(LINK, EventId(10)), None);
        assert_eq!(early.take(LINK, EventId(count - 1)), Some(Status(0)));
        assert_eq!(early.order.len(), MAX_EARLY);
        for n in 0..count {
            early.keep((OWN, EventId(count + n)), Status(0));
        }
        assert_eq!(
            (early.order.len(), early.words.len()),
            (MAX_EARLY, MAX_EARLY)
        );
    }

    #[test]
    fn an_early_word_of_another_link_is_not_heard() {
        let mut early = Early::default();
        early.keep((LinkId(4), EventId(1)), Status(-1));
        assert_eq!(early.take(LINK, EventId(1)), None);
        early.keep((OWN, EventId(1)), Status(0));
        assert_eq!(early.take(LINK, EventId(1)), Some(Status(0)));
    }
}
