//! Group commit, and what happens when the store fails.
//!
//! One transaction is written at a time, by a thread that may wait for the disk ([`Writer`]). Meanwhile the owner goes
//! on: what is decided gathers for the next transaction, and what needs no writing is done at once, unless it must not
//! come before something that waits ([`Concern`]). While the store fails, or a transaction does not end, what was
//! decided is kept and tried again, in order, and who waits is answered ([`trouble`](super::trouble)); a full disk
//! costs nobody his lease. A transaction that panics has lost the store: the owner ends with it.
//!
//! Invariant: the store has been given every change in its order, or will be; works that have a concern in common are
//! done in their order.

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

/// Between two attempts at a store that fails.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// A transaction that takes longer has met a disk that does not answer. A slow one takes a second or two to
/// synchronise; who gives a lease back waits ten for the answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// See the module.
pub(super) struct Writing {
    writer: Writer,
    /// Not here while it writes.
    store: Option<Box<dyn Store>>,
    under_way: Option<UnderWay>,
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

/// A transaction.
struct UnderWay {
    ended: oneshot::Receiver<Written>,
    late_at: Instant,
}

/// A work that waits.
pub(super) struct Held {
    pub(super) work: Work,
    concerns: Vec<Concern>,
    /// Whether it waits for changes of its own.
    writes: bool,
}

struct Failure {
    problem: Problem,
    why: Why,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Why {
    /// A transaction has failed; when the next is begun.
    Failed { retry_at: Instant },
    /// The one under way does not end.
    Late,
    /// It has panicked.
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

    /// Why nothing can be written at the moment.
    pub(super) fn problem(&self) -> Option<Problem> {
        self.failure.as_ref().map(|failure| failure.problem.clone())
    }

    /// Whether the store is gone for good.
    pub(super) fn is_lost(&self) -> bool {
        self.why() == Some(Why::Lost)
    }

    fn why(&self) -> Option<Why> {
        self.failure.as_ref().map(|failure| failure.why)
    }

    /// When it has to be looked at again: a store that fails is to be tried again, or a transaction is late.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        match (&self.under_way, self.why()) {
            (Some(_), Some(Why::Late)) => None,
            (Some(under_way), _) => Some(under_way.late_at),
            (None, Some(Why::Failed { retry_at })) => Some(retry_at),
            (None, _) => None,
        }
    }

    /// Whether more may gather. While the store fails everything may: leases are to be renewed.
    pub(super) fn has_room(&self) -> bool {
        self.failure.is_some() || self.queued.len() < AT_ONCE
    }

    /// Until the transaction under way has ended; for ever if there is none.
    pub(super) async fn ended(&mut self) -> Ended {
        match &mut self.under_way {
            Some(under_way) => {
                let ended = (&mut under_way.ended).await;
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
        // It is there unless it is lost, and then nothing is begun any more.
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

    /// Notices that the transaction under way does not end.
    fn look_at_time(&mut self) {
        let is_late = |of: &UnderWay| of.late_at <= Instant::now();
        if self.why() != Some(Why::Late) && self.under_way.as_ref().is_some_and(is_late) {
            let seconds = ANSWERS_WITHIN.as_secs();
            let text = format!("it has not taken what it was given {seconds} s ago");
            self.fail(text, Why::Late);
        }
    }

    /// What waits: for the transaction under way, and for the next one.
    pub(super) fn take_waiting(&mut self) -> (Vec<Held>, Vec<Held>) {
        let take = std::mem::take;
        (take(&mut self.held), take(&mut self.queued))
    }

    /// Takes it back; meanwhile nothing has come.
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

    fn fail(&mut self, text: String, why: Why) {
        let problem = Problem(Arc::from(text));
        // Once for each trouble, however often it is tried.
        if self.problem().as_ref() != Some(&problem) {
            tracing::error!(error = %problem.0, "nothing can be written down; nothing is granted until it can");
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

/// How a transaction ended.
pub(super) struct Ended(Result<Written, RecvError>);

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
        self.writing.look_at_time();
        match self.writing.why() {
            Some(Why::Late | Why::Lost) => self.answer_what_waits(),
            Some(Why::Failed { retry_at }) if self.writing.under_way.is_none() => {
                if Instant::now() < retry_at {
                    self.answer_what_waits();
                } else if self.writing.unwritten.is_empty() {
                    self.written();
                } else {
                    self.writing.begin();
                }
            }
            _ => self.writing.begin(),
        }
    }

    /// A transaction has ended: does what waited for it.
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
                        let later = std::mem::replace(&mut self.writing.unwritten, writes);
                        self.writing.unwritten.extend(later);
                        let retry_at = Instant::now() + RETRY_AFTER;
                        (error.to_string(), Why::Failed { retry_at })
                    }
                }
            }
            Err(_) => ("its thread has panicked".to_owned(), Why::Lost),
        };
        Counters::count(&self.counters.failed_commits);
        let writing = &mut self.writing;
        let later = std::mem::take(&mut writing.queued);
        writing.queued = std::mem::take(&mut writing.held);
        writing.queued.extend(later);
        writing.fail(text, why);
        self.answer_what_waits();
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

    /// Writes what was decided so far; a store that fails is tried once, one that does not answer is given up.
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
                    tracing::error!("the store does not answer; what is not written is given up");
                    return;
                }
            }
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
            Write::Identity(change) => self.note_identity(change),
            Write::SigningKey(_) => {}
        }
    }
}
