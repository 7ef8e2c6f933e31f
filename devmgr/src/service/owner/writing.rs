//! Group commit, and retries while the store fails.
//!
//! The writer thread ([`Writer`]) runs one transaction at a time. Meanwhile the owner goes on: further
//! changes gather for the next transaction. Work without changes is carried out at once, unless earlier
//! work that waits must come first ([`Concern`]). While the store fails, or a transaction does not end,
//! decided changes are kept and retried in order. [`StoreHealth`] says when, and for how long;
//! [`refusing`](super::refusing) answers the callers meanwhile.
//!
//! If other managers can take the store over, a work that takes something away ([`Work::takes`]) waits for a
//! transaction, too. That transaction begins after the decision, and may be empty: it fails if another manager
//! leads.
//!
//! Invariant: the store gets every change, in order. Works with a concern in common are carried out in
//! their order.

use std::collections::HashSet;
use std::future::pending;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::sync::oneshot::error::RecvError;
use tokio::sync::watch;

use super::super::input::Problem;
use super::super::watching::Counters;
use super::store_health::{ANSWERS_WITHIN, StoreHealth, StoreLost};
use super::work::{Concern, Effect, Work};
use super::writer::{TransactionResult, Writer};
use super::{AT_ONCE, Health, Owner};
use crate::identity::IdentityChange;
use crate::lease::Change;
use crate::store::{Store, StoreError, Write};
use crate::time::{Span, Time};

/// Maximum number of works that wait for a failing store, before nodes may add no more. Other inputs add
/// nothing that lasts: clients are answered at once, and alarms are as many as the leases and nodes.
const MOST_WAITING: usize = 4 * AT_ONCE;

/// The state of group commit. See the module.
pub(super) struct Writing {
    writer: Writer,
    /// The store, while no transaction runs.
    store: Option<Box<dyn Store>>,
    under_way: Option<oneshot::Receiver<TransactionResult>>,
    /// Works that wait for the running transaction.
    committing: Vec<PendingWork>,
    /// Changes for the next transaction.
    unwritten: Vec<Write>,
    /// Works that wait for the next transaction, or for one of `committing`.
    queued: Vec<PendingWork>,
    /// The concerns of all works in `committing` and `queued`.
    concerns: HashSet<Concern>,
    health: StoreHealth,
    published: watch::Sender<Health>,
    /// Whether other managers can take the store over.
    is_shared: bool,
    /// Whether one has.
    is_deposed: bool,
}

/// A work that waits.
struct PendingWork {
    work: Work,
    concerns: Vec<Concern>,
    /// Number of its own changes, for which it waits.
    writes: usize,
    /// Whether it waits for a transaction even without changes.
    confirms: bool,
}

impl PendingWork {
    fn needs_transaction(&self) -> bool {
        self.writes > 0 || self.confirms
    }

    /// Whether neither a change nor an effect is left.
    fn is_empty(&self) -> bool {
        self.writes == 0 && self.work.effects.is_empty()
    }
}

/// All works that wait, taken out so that the owner can look at them.
pub(super) struct PendingWorks {
    committing: Vec<PendingWork>,
    queued: Vec<PendingWork>,
}

impl PendingWorks {
    /// The effects of each work, in the works' order.
    pub(super) fn effects(&mut self) -> impl Iterator<Item = &mut Vec<Effect>> {
        let works = self.committing.iter_mut().chain(&mut self.queued);
        works.map(|pending| &mut pending.work.effects)
    }
}

impl Writing {
    pub(super) fn new(
        writer: Writer,
        store: Box<dyn Store>,
        limit: Span,
        published: watch::Sender<Health>,
    ) -> Writing {
        Writing {
            is_shared: store.is_shared(),
            is_deposed: false,
            writer,
            store: Some(store),
            under_way: None,
            committing: Vec::new(),
            unwritten: Vec::new(),
            queued: Vec::new(),
            concerns: HashSet::new(),
            health: StoreHealth::new(limit),
            published,
        }
    }

    /// Why nothing can be stored at the moment.
    pub(super) fn problem(&self) -> Option<Problem> {
        self.health.problem().cloned()
    }

    /// Whether other managers can take the store over.
    pub(super) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Whether another manager has taken the store over.
    pub(super) fn is_deposed(&self) -> bool {
        self.is_deposed
    }

    /// Why the manager has to end, if it has to.
    pub(super) fn lost(&self, now: Time) -> Option<StoreLost> {
        self.health.lost(now)
    }

    /// When the owner has to call [`Owner::begin_to_write`] at the latest.
    pub(super) fn wake_at(&self) -> Option<Time> {
        self.health.wake_at()
    }

    /// Whether the owner may take more inputs. While the store fails it always may, so that leases can be
    /// renewed.
    pub(super) fn has_room(&self) -> bool {
        self.health.problem().is_some() || self.queued.len() < AT_ONCE
    }

    /// Whether so much waits for the failing store that nodes must not add to it.
    pub(super) fn is_full(&self) -> bool {
        let waiting = self.committing.len() + self.queued.len();
        self.health.problem().is_some() && waiting >= MOST_WAITING
    }

    /// Waits until the running transaction ends; forever if none runs.
    pub(super) async fn ended(&mut self) -> TransactionEnd {
        match &mut self.under_way {
            Some(under_way) => {
                let ended = under_way.await;
                // Only now: the owner polls this in a `select`, which may drop it while it waits.
                self.under_way = None;
                TransactionEnd(ended)
            }
            None => pending().await,
        }
    }

    /// Starts a transaction with the gathered changes, unless one is running.
    fn begin(&mut self, now: Time) {
        if self.under_way.is_some() || !self.queued.iter().any(PendingWork::needs_transaction) {
            return;
        }
        // The store is missing only if it is lost; then no transaction is started any more.
        let Some(store) = self.store.take() else {
            return;
        };
        let (works, count) = self.first_works(store.at_once());
        let later = self.unwritten.split_off(count);
        let writes = std::mem::replace(&mut self.unwritten, later);
        self.committing.extend(self.queued.drain(..works));
        self.under_way = Some(self.writer.write(store, writes));
        self.health.begins(now);
    }

    /// How many works go into one transaction, with how many changes. At least one goes.
    fn first_works(&self, at_once: usize) -> (usize, usize) {
        let mut count = 0;
        for (works, pending) in self.queued.iter().enumerate() {
            if works > 0 && count + pending.writes > at_once {
                return (works, count);
            }
            count += pending.writes;
        }
        (self.queued.len(), count)
    }

    /// Takes all works that wait.
    pub(super) fn take_pending(&mut self) -> PendingWorks {
        PendingWorks {
            committing: std::mem::take(&mut self.committing),
            queued: std::mem::take(&mut self.queued),
        }
    }

    /// Returns those works, except those of which nothing is left. Nothing may have been added meanwhile.
    pub(super) fn put_back(&mut self, works: PendingWorks) {
        self.committing = works.committing;
        self.queued = works.queued;
        // One of them stays, because the retry of its transaction finds out that the store can be written.
        let mut is_retried = !self.committing.is_empty();
        self.queued.retain(|pending| {
            let stays = !pending.is_empty() || (pending.confirms && !is_retried);
            is_retried |= stays && pending.needs_transaction();
            stays
        });
        let waiting = self.committing.iter().chain(&self.queued);
        self.concerns = waiting.flat_map(|of| of.concerns.iter().copied()).collect();
    }

    fn queue(&mut self, writes: Vec<Write>, work: Work) {
        let concerns = work.holds(&writes);
        self.concerns.extend(&concerns);
        self.queued.push(PendingWork {
            confirms: self.confirms(&work),
            work,
            concerns,
            writes: writes.len(),
        });
        self.unwritten.extend(writes);
    }

    /// Whether a work can be done now: it has no changes, and nothing that waits has to come first.
    fn is_free(&self, writes: &[Write], work: &Work) -> bool {
        let nothing_waits = self.committing.is_empty() && self.queued.is_empty();
        writes.is_empty() && !self.confirms(work) && (nothing_waits || self.may_pass(work))
    }

    /// Whether a work waits for a transaction even without changes.
    fn confirms(&self, work: &Work) -> bool {
        self.is_shared && work.takes()
    }

    /// Whether nothing that waits has to come before this work.
    fn may_pass(&self, work: &Work) -> bool {
        !work.tells_of_all() && !work.waits_for(|of| self.concerns.contains(of))
    }

    /// Takes the queued works that can be done now, in their order. Those of the transaction must have
    /// been done before.
    fn freed(&mut self) -> Vec<Work> {
        // Rebuilt from the works that stay, because several works may share a concern.
        self.concerns.clear();
        let mut freed = Vec::new();
        for pending in std::mem::take(&mut self.queued) {
            let is_first = self.queued.is_empty() || self.may_pass(&pending.work);
            if is_first && !pending.needs_transaction() {
                freed.push(pending.work);
            } else {
                self.concerns.extend(&pending.concerns);
                self.queued.push(pending);
            }
        }
        freed
    }

    /// Keeps the changes and works of a failed transaction for the retry, ahead of all later ones.
    fn keep_for_retry(&mut self, writes: Vec<Write>) {
        let later = std::mem::replace(&mut self.unwritten, writes);
        self.unwritten.extend(later);
        let later = std::mem::take(&mut self.queued);
        self.queued = std::mem::take(&mut self.committing);
        self.queued.extend(later);
    }

    /// Reports a change of the store's health to the log and to those who watch it.
    fn publish(&self) {
        let problem = self.problem();
        self.published.send_if_modified(|health| {
            if health.problem == problem {
                return false;
            }
            // Logged once per problem, not with every attempt.
            match &problem {
                Some(problem) => {
                    tracing::error!(error = %problem.0, "the store cannot be written; changes are refused until it can");
                }
                None => tracing::info!("the store can be written again"),
            }
            health.problem = problem;
            true
        });
    }
}

/// The end of a transaction.
pub(super) struct TransactionEnd(Result<TransactionResult, RecvError>);

impl Owner {
    /// Carries out a work when its changes are durable and earlier works with its concerns are done.
    pub(super) fn push(&mut self, writes: Vec<Write>, work: Work) {
        if self.writing.is_free(&writes, &work) {
            self.carry_out(work);
        } else {
            self.writing.queue(writes, work);
        }
    }

    /// Finds out soon whether this manager still leads.
    pub(super) fn confirm_lead(&mut self) {
        let is_due = self.writing.queued.iter().any(|pending| pending.confirms);
        if self.writing.is_shared && !is_due {
            self.writing.queued.push(PendingWork {
                work: Work {
                    effects: Vec::new(),
                },
                concerns: Vec::new(),
                writes: 0,
                confirms: true,
            });
        }
    }

    /// Starts a transaction, unless one is running or the next attempt is not due yet. While the store
    /// fails, answers the callers that wait for it.
    pub(super) fn begin_to_write(&mut self) {
        let now = self.clock.now();
        self.writing.health.tick(now);
        if self.writing.health.may_begin(now) {
            self.writing.begin(now);
        }
        self.writing.publish();
        self.answer_pending();
    }

    /// Handles the end of a transaction: carries out the works that waited for it, or prepares a retry.
    pub(super) fn end_writing(&mut self, ended: TransactionEnd) {
        let now = self.clock.now();
        let writing = &mut self.writing;
        let written = match ended.0 {
            Ok(TransactionResult {
                store,
                writes,
                result,
                took,
            }) => {
                writing.store = Some(store);
                match result {
                    Ok(()) => Some((writes, took)),
                    // Nothing of this reign counts any more, so nothing is kept.
                    Err(StoreError::Deposed) => {
                        writing.is_deposed = true;
                        return;
                    }
                    Err(error) => {
                        writing.keep_for_retry(writes);
                        writing.health.fails(now, &error.to_string());
                        None
                    }
                }
            }
            Err(_) => {
                writing.keep_for_retry(Vec::new());
                writing
                    .health
                    .loses_writer(now, "the writer thread has panicked");
                None
            }
        };
        let Some((writes, took)) = written else {
            Counters::count(&self.counters.failed_commits);
            return;
        };
        writing.health.succeeds();
        if !writes.is_empty() {
            self.counters.commit(took);
        }
        // The book and the directory first, because effects are made from them.
        writes.into_iter().for_each(|write| self.note(write));
        for pending in std::mem::take(&mut self.writing.committing) {
            self.carry_out(pending.work);
        }
        for work in self.writing.freed() {
            self.carry_out(work);
        }
    }

    /// Writes all decided changes at the end. A failing store is tried once; an unresponsive one is given
    /// up.
    pub(super) async fn write_all(&mut self) {
        loop {
            self.writing.begin(self.clock.now());
            if self.writing.under_way.is_none() {
                return;
            }
            let limit = Duration::from_millis(ANSWERS_WITHIN.0);
            match tokio::time::timeout(limit, self.writing.ended()).await {
                Ok(ended) => self.end_writing(ended),
                Err(_) => {
                    tracing::error!(
                        "the store does not answer; the outcome of the last changes is unknown"
                    );
                    return;
                }
            }
            if let Some(problem) = self.writing.problem() {
                tracing::error!(error = %problem.0, "the store cannot be written; the outcome of the last changes is unknown");
                return;
            }
        }
    }

    /// Applies a durable change to the state that is shown.
    fn note(&mut self, write: Write) {
        match write {
            Write::Lease(change) => {
                match &change {
                    Change::DeleteNode(node) => tracing::info!(?node, "a lost node is forgotten"),
                    Change::DeleteWaiting(lease) => {
                        if let Some(waited) = self.waited(lease) {
                            self.counters.wait(waited);
                        }
                    }
                    _ => {}
                }
                self.book.apply(change);
            }
            Write::Identity(change) => self.note_identity(change),
            Write::SigningKey(_) | Write::Cluster(_) | Write::Term(_) => {}
        }
    }

    fn note_identity(&mut self, change: IdentityChange) {
        self.revalidation.note(&change);
        self.shared_directory.write().apply(change.clone());
        // After the directory has changed: otherwise the caller could be authenticated again before.
        if let IdentityChange::PutRemoved(name) = &change {
            self.certified.turn_out(&name.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::NodeId;
    use crate::lease::{LeaseId, Outcome};
    use crate::store::MemoryStore;

    fn writing() -> Writing {
        let (published, _) = watch::channel(Health::default());
        let (writer, store) = (Writer::start().unwrap(), MemoryStore::default());
        let limit = Span::seconds(60);
        let mut writing = Writing::new(writer, Box::new(store), limit, published);
        writing.is_shared = true;
        writing
    }

    fn answer(lease: u8) -> Work {
        let (answer, _) = oneshot::channel();
        let unknown = Effect::Answer(LeaseId([lease; 16]), answer, Outcome::Unknown);
        Work {
            effects: vec![unknown],
        }
    }

    /// Answers everything that waits, as during a failure.
    fn answer_all(writing: &mut Writing) {
        let mut pending = writing.take_pending();
        pending.effects().for_each(Vec::clear);
        writing.put_back(pending);
    }

    #[test]
    fn answered_works_do_not_add_up_and_the_store_is_tried_again() {
        let mut writing = writing();
        for number in 0..100 {
            writing.queue(Vec::new(), answer(number));
            answer_all(&mut writing);
        }
        assert_eq!((writing.queued.len(), writing.concerns.len()), (1, 1));
        assert!(writing.queued[0].needs_transaction());
        writing.queue(
            vec![Write::Lease(Change::DeleteNode(NodeId([1; 16])))],
            answer(1),
        );
        answer_all(&mut writing);
        writing.queue(Vec::new(), answer(1));
        answer_all(&mut writing);
        let writes: Vec<_> = writing.queued.iter().map(|of| of.writes).collect();
        assert_eq!(writes, [0, 1]);
    }
}
