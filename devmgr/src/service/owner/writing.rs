//! Group commit, and what happens when the store fails.
//!
//! One transaction is written at a time, on a thread that may wait for the disk. Meanwhile the owner goes on: what
//! is decided gathers for the next transaction, and what needs no writing is done at once, unless it must not
//! come before something that waits ([`Concern`]). While the store fails, what was decided is kept and tried
//! again, in order; requests are refused with the reason; a full disk costs nobody his lease.
//!
//! Invariant: the store has been given every change of the lease machine in its order, or will be; works that have a
//! concern in common are done in their order.

use std::collections::HashSet;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::Instant;

use super::super::input::{News, NotWritten};
use super::super::watching::Counters;
use super::work::{Concern, Effect, Work};
use super::{AT_ONCE, Health, Owner};
use crate::identity::IdentityChange;
use crate::lease::{Action, Change, Event, Outcome};
use crate::store::{Store, StoreError, Write};

/// Between two attempts at a store that fails.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// See the module.
pub(super) struct Writing {
    /// Not here while it writes.
    store: Option<Box<dyn Store>>,
    under_way: Option<JoinHandle<Written>>,
    /// What waits for what is under way.
    held: Vec<Held>,
    /// For the next transaction.
    unwritten: Vec<Write>,
    /// What waits for that, or for something that is held.
    queued: Vec<Held>,
    /// What `held` and `queued` hold.
    concerns: HashSet<Concern>,
    failure: Option<Failure>,
    health: watch::Sender<Health>,
}

/// How a transaction ended, and what was in it.
struct Written {
    store: Box<dyn Store>,
    writes: Vec<Write>,
    result: Result<(), StoreError>,
}

/// A work that waits.
struct Held {
    work: Work,
    concerns: Vec<Concern>,
    /// Whether it waits for changes of its own.
    writes: bool,
}

struct Failure {
    problem: NotWritten,
    retry_at: Instant,
}

impl Writing {
    pub(super) fn new(store: Box<dyn Store>, health: watch::Sender<Health>) -> Writing {
        Writing {
            store: Some(store),
            under_way: None,
            held: Vec::new(),
            unwritten: Vec::new(),
            queued: Vec::new(),
            concerns: HashSet::new(),
            failure: None,
            health,
        }
    }

    /// Why nothing can be written at the moment.
    pub(super) fn problem(&self) -> Option<NotWritten> {
        self.failure.as_ref().map(|failure| failure.problem.clone())
    }

    /// When a store that fails is to be tried again; `None` while it is being tried.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        let failure = self.failure.as_ref().filter(|_| self.under_way.is_none());
        failure.map(|failure| failure.retry_at)
    }

    /// Whether more may gather. While the store fails everything may: leases are to be renewed.
    pub(super) fn has_room(&self) -> bool {
        self.failure.is_some() || self.queued.len() < AT_ONCE
    }

    /// Until the transaction under way has ended; for ever if there is none.
    pub(super) async fn ended(&mut self) -> Ended {
        match &mut self.under_way {
            Some(writing) => {
                let ended = writing.await;
                self.under_way = None;
                Ended(ended)
            }
            None => pending().await,
        }
    }

    /// Hands over what is unwritten, if nothing is under way.
    fn begin(&mut self) {
        if self.under_way.is_some() || self.unwritten.is_empty() {
            return;
        }
        let Some(mut store) = self.store.take() else {
            let lost = std::io::Error::other("its thread has panicked");
            self.fail(&StoreError::System(lost));
            return;
        };
        let writes = std::mem::take(&mut self.unwritten);
        self.held.append(&mut self.queued);
        self.under_way = Some(tokio::task::spawn_blocking(move || {
            let result = store.apply(&writes);
            Written {
                store,
                writes,
                result,
            }
        }));
    }

    fn hold(&mut self, writes: Vec<Write>, work: Work) {
        let concerns = work.holds(&writes);
        self.concerns.extend(&concerns);
        self.queued.push(Held {
            work,
            concerns,
            writes: !writes.is_empty(),
        });
        self.unwritten.extend(writes);
    }

    /// Whether it may be done now: it has nothing to write, and comes after nothing that waits.
    fn is_free(&self, writes: &[Write], work: &Work) -> bool {
        let nothing_waits = self.held.is_empty() && self.queued.is_empty();
        writes.is_empty() && (nothing_waits || self.may_pass(work))
    }

    /// Whether nothing that waits has to be done before it.
    fn may_pass(&self, work: &Work) -> bool {
        !work.tells_of_all() && !work.waits_for(|of| self.concerns.contains(of))
    }

    /// Those that may be done now, in their order, after what was held has been.
    fn freed(&mut self) -> Vec<Work> {
        self.concerns.clear();
        let mut freed = Vec::new();
        for held in std::mem::take(&mut self.queued) {
            let is_first = self.queued.is_empty() || self.may_pass(&held.work);
            if is_first && !held.writes {
                freed.push(held.work);
            } else {
                self.concerns.extend(&held.concerns);
                self.queued.push(held);
            }
        }
        freed
    }

    fn fail(&mut self, error: &StoreError) {
        let problem = NotWritten(Arc::from(error.to_string()));
        if self.failure.is_none() {
            tracing::error!(%error, "nothing can be written down; nothing is granted until it can");
        }
        self.health.send_replace(Health {
            problem: Some(problem.clone()),
        });
        self.failure = Some(Failure {
            problem,
            retry_at: Instant::now() + RETRY_AFTER,
        });
    }

    fn recover(&mut self) {
        if self.failure.take().is_some() {
            tracing::info!("the store can be written again");
            self.health.send_replace(Health::default());
        }
    }
}

/// How a transaction ended.
pub(super) struct Ended(Result<Written, JoinError>);

impl Owner {
    /// To be done when its writes are durable, and after what it must not pass.
    pub(super) fn push(&mut self, writes: Vec<Write>, work: Work) {
        if self.writing.is_free(&writes, &work) {
            self.carry_out(work);
        } else {
            self.writing.hold(writes, work);
        }
    }

    /// Begins to write what is unwritten, unless something is being written or it is too early to try again.
    pub(super) fn begin_to_write(&mut self) {
        match self.writing.retry_at() {
            Some(retry_at) if Instant::now() < retry_at => self.refuse_what_waits(),
            Some(_) if self.writing.unwritten.is_empty() => self.written(),
            _ => self.writing.begin(),
        }
    }

    /// A transaction has ended: does what waited for it.
    pub(super) fn end_writing(&mut self, ended: Ended) {
        let error = match ended.0 {
            Ok(Written {
                store,
                writes,
                result,
            }) => {
                self.writing.store = Some(store);
                match result {
                    Ok(()) => {
                        Counters::count(&self.counters.commits);
                        writes.into_iter().for_each(|write| self.note(write));
                        self.written();
                        return;
                    }
                    Err(error) => {
                        let later = std::mem::replace(&mut self.writing.unwritten, writes);
                        self.writing.unwritten.extend(later);
                        error
                    }
                }
            }
            Err(_) => StoreError::System(std::io::Error::other("it panicked")),
        };
        Counters::count(&self.counters.failed_commits);
        let writing = &mut self.writing;
        let later = std::mem::take(&mut writing.queued);
        writing.queued = std::mem::take(&mut writing.held);
        writing.queued.extend(later);
        writing.fail(&error);
        self.refuse_what_waits();
    }

    /// Nothing is under way, and what was is durable.
    fn written(&mut self) {
        self.writing.recover();
        for held in std::mem::take(&mut self.writing.held) {
            self.carry_out(held.work);
        }
        for work in self.writing.freed() {
            self.carry_out(work);
        }
    }

    /// Writes what was decided so far; a store that fails is tried once.
    pub(super) async fn write_all(&mut self) {
        loop {
            if self.writing.under_way.is_none() {
                self.writing.begin();
            }
            if self.writing.under_way.is_none() {
                return;
            }
            let ended = self.writing.ended().await;
            self.end_writing(ended);
            if self.writing.failure.is_some() {
                return;
            }
        }
    }

    /// What is durable is shown.
    fn note(&mut self, write: Write) {
        match write {
            Write::Lease(change) => {
                if let Change::DeleteNode(node) = change {
                    tracing::info!(?node, "a lost node is forgotten");
                }
                self.book.apply(change);
            }
            Write::Identity(change) => {
                self.judging.note(&change);
                let removed = match &change {
                    IdentityChange::PutRemoved(name) => Some(name.clone()),
                    _ => None,
                };
                self.shared_directory.write().apply(change);
                if let Some(name) = removed {
                    self.certified.turn_out(&name.0);
                }
            }
            Write::SigningKey(_) => {}
        }
    }

    /// Who cannot wait for his answer gets it now; the lease machine hears that such requests are off.
    fn refuse_what_waits(&mut self) {
        let Some(problem) = self.writing.problem() else {
            return;
        };
        let mut off = Vec::new();
        for Held { work, .. } in &mut self.writing.queued {
            for effect in std::mem::take(&mut work.effects) {
                match effect {
                    Effect::Listen { lease, watcher } => {
                        watcher.tell(News::NotWritten(problem.clone()));
                        let user = watcher.caller.user;
                        off.push(Event::Cancel { lease, user });
                    }
                    Effect::Act(Action::Tell {
                        lease,
                        outcome: outcome @ (Outcome::Leased(_) | Outcome::Reserved(_)),
                    }) => match self.watchers.remove(&lease) {
                        Some(watcher) if !watcher.waits => {
                            watcher.tell(News::NotWritten(problem.clone()));
                            let user = watcher.caller.user;
                            off.push(Event::Cancel { lease, user });
                        }
                        watcher => {
                            self.watchers.extend(watcher.map(|of| (lease, of)));
                            let tell = Action::Tell { lease, outcome };
                            work.effects.push(Effect::Act(tell));
                        }
                    },
                    Effect::TellOnce(watcher, _) => {
                        watcher.tell(News::NotWritten(problem.clone()));
                    }
                    Effect::Answer(_, answer, _) => drop(answer.send(Err(problem.clone()))),
                    Effect::Done(done, _) => drop(done.send(Err(problem.clone().into()))),
                    act @ Effect::Act(_) => work.effects.push(act),
                }
            }
        }
        // Who is who has only the store; what it did not take has not happened.
        let unwritten = &mut self.writing.unwritten;
        let decided = unwritten.len();
        unwritten.retain(|write| !matches!(write, Write::Identity(_)));
        if unwritten.len() < decided {
            self.directory = self.shared_directory.read().clone();
        }
        for event in off {
            self.handle(event);
        }
    }
}
