//! Group commit, and retries while the store fails.
//!
//! The writer thread ([`Writer`]) runs one transaction at a time. Meanwhile the owner goes on: further
//! changes gather for the next transaction. Work without changes is carried out at once, unless earlier
//! work that waits must come first ([`Concern`]). While the store fails, or a transaction does not end,
//! decided changes are kept and retried in order, and waiting callers are answered
//! ([`store_failure`](super::store_failure)). So a full disk costs nobody their lease. If a transaction panics, the
//! store is lost and the owner ends.
//!
//! Invariant: the store gets every change, in order. Works with a concern in common are carried out in
//! their order.

use std::collections::HashSet;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::sync::oneshot::error::RecvError;
use tokio::sync::watch;
use tokio::time::Instant;

use super::super::input::Problem;
use super::super::watching::Counters;
use super::work::{Concern, Work};
use super::writer::{Writer, Written};
use super::{AT_ONCE, Health, Owner};
use crate::lease::Change;
use crate::store::{Store, Write};

/// Pause between two attempts to write to a failing store.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Timeout of a transaction, after which the disk is considered unresponsive. A slow disk takes a second
/// or two to synchronise. A client that releases a lease waits ten seconds for the answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// The state of group commit. See the module.
pub(super) struct Writing {
    writer: Writer,
    /// The store, while no transaction runs.
    store: Option<Box<dyn Store>>,
    under_way: Option<UnderWay>,
    /// Works that wait for the running transaction.
    held: Vec<Held>,
    /// Changes for the next transaction.
    unwritten: Vec<Write>,
    /// Works that wait for the next transaction, or for a held work.
    queued: Vec<Held>,
    /// The concerns of all works in `held` and `queued`.
    concerns: HashSet<Concern>,
    failure: Option<Failure>,
    health: watch::Sender<Health>,
}

/// A running transaction.
struct UnderWay {
    ended: oneshot::Receiver<Written>,
    late_at: Instant,
}

/// A work that waits.
pub(super) struct Held {
    pub(super) work: Work,
    concerns: Vec<Concern>,
    /// Whether the work waits for changes of its own.
    writes: bool,
}

struct Failure {
    problem: Problem,
    why: Why,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Why {
    /// A transaction has failed; the next attempt is at this time.
    Failed { retry_at: Instant },
    /// The running transaction does not end in time.
    Late,
    /// The transaction has panicked.
    Lost,
}

impl Writing {
    pub(super) fn new(
        writer: Writer,
        store: Box<dyn Store>,
        health: watch::Sender<Health>,
    ) -> Writing {
        Writing {
            writer,
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

    /// Why nothing can be stored at the moment.
    pub(super) fn problem(&self) -> Option<Problem> {
        self.failure.as_ref().map(|failure| failure.problem.clone())
    }

    /// Whether the store is lost for good.
    pub(super) fn is_lost(&self) -> bool {
        self.why() == Some(Why::Lost)
    }

    fn why(&self) -> Option<Why> {
        self.failure.as_ref().map(|failure| failure.why)
    }

    /// When the owner has to check again: a retry is due, or a transaction is late.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        match (&self.under_way, self.why()) {
            (Some(_), Some(Why::Late)) => None,
            (Some(under_way), _) => Some(under_way.late_at),
            (None, Some(Why::Failed { retry_at })) => Some(retry_at),
            (None, _) => None,
        }
    }

    /// Whether the owner may take more inputs. While the store fails it always may, so that leases can be
    /// renewed.
    pub(super) fn has_room(&self) -> bool {
        self.failure.is_some() || self.queued.len() < AT_ONCE
    }

    /// Waits until the running transaction ends; forever if none runs.
    pub(super) async fn ended(&mut self) -> Ended {
        match &mut self.under_way {
            Some(under_way) => {
                let ended = (&mut under_way.ended).await;
                // Only now: the owner polls this in a `select`, which may drop it while it waits.
                self.under_way = None;
                Ended(ended)
            }
            None => pending().await,
        }
    }

    /// Starts a transaction with all gathered changes, unless one is running.
    fn begin(&mut self) {
        if self.under_way.is_some() || self.unwritten.is_empty() {
            return;
        }
        // The store is missing only if it is lost; then no transaction is started any more.
        let Some(store) = self.store.take() else {
            return;
        };
        let writes = std::mem::take(&mut self.unwritten);
        self.held.append(&mut self.queued);
        self.under_way = Some(UnderWay {
            ended: self.writer.write(store, writes),
            late_at: Instant::now() + ANSWERS_WITHIN,
        });
    }

    /// Notices that the running transaction is late.
    fn look_at_time(&mut self) {
        let is_late = |of: &UnderWay| of.late_at <= Instant::now();
        if self.why() != Some(Why::Late) && self.under_way.as_ref().is_some_and(is_late) {
            let seconds = ANSWERS_WITHIN.as_secs();
            let text = format!("a write has taken longer than {seconds} s");
            self.fail(text, Why::Late);
        }
    }

    /// Takes the works that wait for the running transaction, and for the next one.
    pub(super) fn take_waiting(&mut self) -> (Vec<Held>, Vec<Held>) {
        let take = std::mem::take;
        (take(&mut self.held), take(&mut self.queued))
    }

    /// Returns those works. Nothing may have been added meanwhile.
    pub(super) fn put_back(&mut self, (held, queued): (Vec<Held>, Vec<Held>)) {
        (self.held, self.queued) = (held, queued);
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

    /// Whether a work can be done now: it has no changes, and nothing that waits has to come first.
    fn is_free(&self, writes: &[Write], work: &Work) -> bool {
        let nothing_waits = self.held.is_empty() && self.queued.is_empty();
        writes.is_empty() && (nothing_waits || self.may_pass(work))
    }

    /// Whether nothing that waits has to come before this work.
    fn may_pass(&self, work: &Work) -> bool {
        !work.tells_of_all() && !work.waits_for(|of| self.concerns.contains(of))
    }

    /// Takes the queued works that can be done now, in their order. The held ones must have been done
    /// before.
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

    fn fail(&mut self, text: String, why: Why) {
        let problem = Problem(Arc::from(text));
        // Logged once per problem, not with every attempt.
        if self.problem().as_ref() != Some(&problem) {
            tracing::error!(error = %problem.0, "the store cannot be written; nothing is granted until it can");
        }
        self.health.send_replace(Health {
            problem: Some(problem.clone()),
        });
        self.failure = Some(Failure { problem, why });
    }

    fn recover(&mut self) {
        if self.failure.take().is_some() {
            tracing::info!("the store can be written again");
            self.health.send_replace(Health::default());
        }
    }
}

/// The end of a transaction.
pub(super) struct Ended(Result<Written, RecvError>);

impl Owner {
    /// Carries out a work when its changes are durable and earlier works with its concerns are done.
    pub(super) fn push(&mut self, writes: Vec<Write>, work: Work) {
        if self.writing.is_free(&writes, &work) {
            self.carry_out(work);
        } else {
            self.writing.hold(writes, work);
        }
    }

    /// Starts a transaction, unless one is running or the next attempt is not due yet.
    pub(super) fn begin_to_write(&mut self) {
        self.writing.look_at_time();
        match self.writing.why() {
            Some(Why::Late | Why::Lost) => self.answer_what_waits(),
            Some(Why::Failed { retry_at }) if self.writing.under_way.is_none() => {
                if Instant::now() < retry_at {
                    self.answer_what_waits();
                } else if self.writing.unwritten.is_empty() {
                    // Nothing is left to write, so there is nothing to retry.
                    self.written();
                } else {
                    self.writing.begin();
                }
            }
            _ => self.writing.begin(),
        }
    }

    /// Handles the end of a transaction: carries out the works that waited for it, or prepares a retry.
    pub(super) fn end_writing(&mut self, ended: Ended) {
        let (text, why) = match ended.0 {
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
                        // The failed changes go first, so that the retry keeps the order.
                        let later = std::mem::replace(&mut self.writing.unwritten, writes);
                        self.writing.unwritten.extend(later);
                        let retry_at = Instant::now() + RETRY_AFTER;
                        (error.to_string(), Why::Failed { retry_at })
                    }
                }
            }
            Err(_) => ("the writer thread has panicked".to_owned(), Why::Lost),
        };
        Counters::count(&self.counters.failed_commits);
        let writing = &mut self.writing;
        // Works of the failed transaction wait for the retry, ahead of those that came later.
        let later = std::mem::take(&mut writing.queued);
        writing.queued = std::mem::take(&mut writing.held);
        writing.queued.extend(later);
        writing.fail(text, why);
        self.answer_what_waits();
    }

    /// Carries out the held works. No transaction is running, and their changes are durable.
    fn written(&mut self) {
        self.writing.recover();
        for held in std::mem::take(&mut self.writing.held) {
            self.carry_out(held.work);
        }
        for work in self.writing.freed() {
            self.carry_out(work);
        }
    }

    /// Writes all decided changes at the end. A failing store is tried once; an unresponsive one is given
    /// up.
    pub(super) async fn write_all(&mut self) {
        loop {
            if self.writing.under_way.is_none() {
                self.writing.begin();
            }
            if self.writing.under_way.is_none() {
                return;
            }
            match tokio::time::timeout(ANSWERS_WITHIN, self.writing.ended()).await {
                Ok(ended) => self.end_writing(ended),
                Err(_) => {
                    tracing::error!("the store does not answer; unwritten changes are lost");
                    return;
                }
            }
            if self.writing.failure.is_some() {
                return;
            }
        }
    }

    /// Applies a durable change to the state that is shown.
    fn note(&mut self, write: Write) {
        match write {
            Write::Lease(change) => {
                if let Change::DeleteNode(node) = change {
                    tracing::info!(?node, "a lost node is forgotten");
                }
                self.book.apply(change);
            }
            Write::Identity(change) => self.note_identity(change),
            Write::SigningKey(_) => {}
        }
    }
}
