//! Group commit, and what happens when the store fails.
//!
//! While it fails, what was decided is kept and tried again, in order; requests are refused with the reason;
//! what needs no writing and concerns nobody who waits for it goes on, renewals above all: a full disk costs
//! nobody his lease. Invariant: the store has been given every change of the lease machine in its order, or
//! will be.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::super::input::{News, NotWritten};
use super::super::watching::Counters;
use super::work::{Effect, Work};
use super::{Health, Owner};
use crate::lease::{Action, Event, Outcome};
use crate::store::{Store, StoreError, Write};

/// Between two attempts at a store that fails.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// See the module.
pub(super) struct Writing {
    /// Not here while it writes.
    store: Option<Box<dyn Store>>,
    unwritten: Vec<Write>,
    /// What waits for `unwritten`.
    held: Vec<Work>,
    failure: Option<Failure>,
    health: watch::Sender<Health>,
}

struct Failure {
    problem: NotWritten,
    retry_at: Instant,
}

impl Writing {
    pub(super) fn new(store: Box<dyn Store>, health: watch::Sender<Health>) -> Writing {
        Writing {
            store: Some(store),
            unwritten: Vec::new(),
            held: Vec::new(),
            failure: None,
            health,
        }
    }

    /// Why nothing can be written at the moment.
    pub(super) fn problem(&self) -> Option<NotWritten> {
        self.failure.as_ref().map(|failure| failure.problem.clone())
    }

    /// When a store that fails is to be tried again.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.failure.as_ref().map(|failure| failure.retry_at)
    }

    async fn write(&mut self) -> Result<Vec<Write>, StoreError> {
        let Some(mut store) = self.store.take() else {
            let lost = std::io::Error::other("its thread has panicked");
            return Err(StoreError::System(lost));
        };
        let writes = std::mem::take(&mut self.unwritten);
        // It waits for the disk.
        let written = tokio::task::spawn_blocking(move || {
            let result = store.apply(&writes);
            (store, writes, result)
        });
        let Ok((store, writes, result)) = written.await else {
            return Err(StoreError::System(std::io::Error::other("it panicked")));
        };
        self.store = Some(store);
        match result {
            Ok(()) => Ok(writes),
            Err(error) => {
                self.unwritten = writes;
                Err(error)
            }
        }
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

impl Owner {
    /// To be done when its writes are durable, and after what was pushed before.
    pub(super) fn push(&mut self, writes: Vec<Write>, work: Work) {
        let writing = &mut self.writing;
        let is_free = writes.is_empty()
            && if writing.failure.is_some() {
                !writing.held.iter().any(|earlier| work.follows(earlier))
            } else {
                writing.held.is_empty()
            };
        if is_free {
            self.carry_out(work);
        } else {
            writing.unwritten.extend(writes);
            writing.held.push(work);
        }
    }

    /// Writes what is unwritten, and does what waits for it.
    pub(super) async fn flush(&mut self) {
        let is_early = self
            .writing
            .retry_at()
            .is_some_and(|retry_at| Instant::now() < retry_at);
        if is_early {
            self.refuse_what_waits();
            return;
        }
        if !self.writing.unwritten.is_empty() {
            match self.writing.write().await {
                Ok(written) => {
                    Counters::count(&self.counters.commits);
                    written.into_iter().for_each(|write| self.note(write));
                }
                Err(error) => {
                    Counters::count(&self.counters.failed_commits);
                    self.writing.fail(&error);
                    self.refuse_what_waits();
                    return;
                }
            }
        }
        self.writing.recover();
        for work in std::mem::take(&mut self.writing.held) {
            self.carry_out(work);
        }
    }

    /// What is durable is shown.
    fn note(&mut self, write: Write) {
        match write {
            Write::Lease(change) => self.book.apply(change),
            Write::Identity(change) => self.directory.apply(change),
            Write::SigningKey(_) => {}
        }
    }

    /// Who cannot wait for his answer gets it now; the lease machine hears that such requests are off.
    fn refuse_what_waits(&mut self) {
        let Some(problem) = self.writing.problem() else {
            return;
        };
        let mut off = Vec::new();
        for work in &mut self.writing.held {
            for effect in std::mem::take(&mut work.effects) {
                match effect {
                    Effect::Listen { lease, watcher } => {
                        watcher.tell(News::NotWritten(problem.clone()));
                        let user = watcher.user;
                        off.push(Event::Cancel { lease, user });
                    }
                    Effect::Act(Action::Tell {
                        lease,
                        outcome: outcome @ (Outcome::Leased(_) | Outcome::Reserved(_)),
                    }) => match self.watchers.remove(&lease) {
                        Some(watcher) if !watcher.waits => {
                            watcher.tell(News::NotWritten(problem.clone()));
                            let user = watcher.user;
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
                    Effect::Done(done) => drop(done.send(Err(problem.clone()))),
                    Effect::Publish => {}
                    act @ Effect::Act(_) => work.effects.push(act),
                }
            }
        }
        // Who is who has only the store; what it did not take has not happened.
        let unwritten = &mut self.writing.unwritten;
        unwritten.retain(|write| !matches!(write, Write::Identity(_)));
        for event in off {
            self.handle(event);
        }
    }
}
