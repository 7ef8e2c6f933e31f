//! Mirrors: events that stand here for events of other sites, and the words that end them.
//!
//! A mirror is a node of the session's graph, like a user event. Two voices may end it: the other site's
//! worker (or this one, for an event of another native context of its own), and the client; the first one
//! counts, however early or late the other comes. A word may come before the client's command that makes
//! the mirror; it is kept ([`Early`]). A mirror belongs to one link, or to none: the other end of another link
//! may not speak of it.
//!
//! Who ends a mirror may be a thread that reads a link, or a driver's callback, and must not call a driver
//! that might block. So [`resolve`] only changes the graph; what may run by that goes to the session's
//! `mirrors` thread. The client's word is applied by the thread that reads commands, which runs what it frees,
//! as it does for every command.
//!
//! What it is not: it opens no connection; see [`super::links`]. Invariant: nothing here waits.
#![forbid(unsafe_code)]

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use causeway_proto::command::{CreateMirror, TellEvent};
use causeway_proto::id::{EventId, LinkId};
use causeway_proto::status::Status;
use parking_lot::{Condvar, Mutex};

use super::command::{Command, Kind, Tell, To};
use super::enqueue::Task;
use super::graph::Step;
use super::links::Found;
use super::run::Runner;
use super::{Shared, Violation, spawn};

/// Words for mirrors that are not there. Most of them are late: the mirror has been ended by the client's
/// word and released. One that was early and is forgotten costs time: the client's word comes as well.
const MAX_EARLY: usize = 1 << 16;

/// Words that came for unknown mirrors, the newest ones.
#[derive(Default)]
pub(crate) struct Early {
    words: HashMap<Word, Status>,
    order: VecDeque<Word>,
}

/// A mirror, and by whose link something is said of it; [`OWN`] for this worker.
type Word = (LinkId, EventId);

/// What this worker says to itself.
const OWN: LinkId = LinkId(0);

/// The other end of a link spoke of what is no mirror, or not its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no mirror of this link")]
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

    /// What was said of a mirror by those who may.
    fn take(&mut self, link: LinkId, mirror: EventId) -> Option<Status> {
        // Its place in the order stays until it is the oldest: ids are not used twice.
        let by_link = self.words.remove(&(link, mirror));
        by_link.or_else(|| self.words.remove(&(OWN, mirror)))
    }
}

/// Held commands that mirrors have freed, on their way to the thread that runs them.
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

    /// The `mirrors` thread.
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
    // The driver has nothing of it.
    let _ = core.room(shared)?;
    core.add_user_event(&mirror)?;
    if let Some(status) = core.early.take(link, id) {
        // New as it is, nobody waits for it and nobody wants to be told.
        mirror.close(status);
        core.graph.end(id, status, &mut VecDeque::new());
        core.forget_if_well(id, status);
    }
    Ok(())
}

/// Applies [`TellEvent`].
///
/// # Errors
/// [`Violation`] when event or link never existed, or too many mirrors are to be told of one event.
pub(crate) fn tell(shared: &Arc<Shared>, tell: &TellEvent) -> Result<(), Violation> {
    let id = EventId(tell.event);
    let to = if tell.link == 0 {
        To::Here(Arc::clone(shared))
    } else {
        match shared.links.find(LinkId(tell.link))? {
            Found::Here(link) => To::Peer(link),
            // With whom it led to.
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
            .map_err(|_| Violation::Malformed("too many mirrors of one event")),
        None => {
            tell.say(Status::SUCCESS);
            Ok(())
        }
    }
}

/// Ends a mirror by a word of this worker's own, like [`hear`].
pub(crate) fn resolve(shared: &Arc<Shared>, mirror: EventId, status: Status) {
    if let Err(error) = hear(shared, OWN, mirror, status) {
        tracing::warn!(%error, "a word for what is no mirror");
    }
}

/// Ends a mirror by a word that came over a link, and in turn those in this worker that stand for it. May
/// be called from anywhere where no lock of the session is held: it calls no driver and waits for nobody.
///
/// # Errors
/// [`Foreign`]: then nothing was ended.
pub(crate) fn hear(
    shared: &Arc<Shared>,
    link: LinkId,
    mirror: EventId,
    status: Status,
) -> Result<(), Foreign> {
    // A list and no recursion, since mirrors may stand for mirrors.
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
