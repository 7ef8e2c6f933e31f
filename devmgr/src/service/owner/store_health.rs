//! Decides when changes are accepted, when a write is retried, and when the manager gives up its store.
//!
//! ```text
//! working ── a transaction fails or is late ──► failing ── a transaction succeeds ──► working
//!                                                  └── limit reached, or writer lost ──► over
//! ```
//! A pure state machine: times and results of transactions come in. It reads no clock and writes nothing.
//! Invariant: at most one transaction runs. A failure counts from its first sign until a transaction
//! succeeds, whatever else fails meanwhile.

use std::sync::Arc;

use super::super::input::Problem;
use crate::time::{Span, Time};

/// Pause between two attempts to write to a failing store.
const RETRY_AFTER: Span = Span::seconds(1);
/// Timeout of a transaction, after which the disk is considered unresponsive. A slow disk takes a second
/// or two to synchronise. A client that releases a lease waits ten seconds for the answer.
pub(super) const ANSWERS_WITHIN: Span = Span::seconds(5);

/// The state machine. See the module.
#[derive(Debug)]
pub(super) struct StoreHealth {
    /// How long the store may fail.
    limit: Span,
    /// Since when the running transaction runs.
    running: Option<Time>,
    failure: Option<Failure>,
}

#[derive(Debug)]
struct Failure {
    problem: Problem,
    since: Time,
    /// The earliest time of the next attempt.
    retry_at: Time,
    /// The writer is lost, so no attempt can succeed.
    is_final: bool,
}

/// The store has failed for too long, or for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoreLost {
    /// The last fault.
    pub(crate) fault: Arc<str>,
    /// Since when nothing could be written.
    pub(crate) lasted: Span,
}

impl StoreHealth {
    pub(super) fn new(limit: Span) -> StoreHealth {
        StoreHealth {
            limit,
            running: None,
            failure: None,
        }
    }

    /// A transaction begins.
    pub(super) fn begins(&mut self, now: Time) {
        self.running = Some(now);
    }

    /// The running transaction has succeeded.
    pub(super) fn succeeds(&mut self) {
        self.running = None;
        self.failure = None;
    }

    /// The running transaction has failed and may be retried.
    pub(super) fn fails(&mut self, now: Time, fault: &str) {
        self.running = None;
        self.note(now, fault, false);
    }

    /// The writer has ended without a result, and the store is lost with it.
    pub(super) fn loses_writer(&mut self, now: Time, fault: &str) {
        self.running = None;
        self.note(now, fault, true);
    }

    /// Time has passed: a transaction may be late now.
    pub(super) fn tick(&mut self, now: Time) {
        // A retry of a failing store may be late too. The first fault stays the known one then.
        if self.failure.is_none() && self.late_at().is_some_and(|at| at <= now) {
            let seconds = ANSWERS_WITHIN.0 / 1000;
            self.note(
                now,
                &format!("a write has taken longer than {seconds} s"),
                false,
            );
        }
    }

    fn note(&mut self, now: Time, fault: &str, is_final: bool) {
        let since = self.failure.as_ref().map_or(now, |failure| failure.since);
        self.failure = Some(Failure {
            problem: Problem(Arc::from(fault)),
            since,
            retry_at: now.after(RETRY_AFTER),
            is_final,
        });
    }

    fn late_at(&self) -> Option<Time> {
        self.running.map(|since| since.after(ANSWERS_WITHIN))
    }

    /// Why no change is accepted now; `None`: changes are accepted.
    pub(super) fn problem(&self) -> Option<&Problem> {
        self.failure.as_ref().map(|failure| &failure.problem)
    }

    /// Whether a transaction may begin now.
    pub(super) fn may_begin(&self, now: Time) -> bool {
        let is_due = |failure: &Failure| !failure.is_final && failure.retry_at <= now;
        self.running.is_none() && self.failure.as_ref().is_none_or(is_due)
    }

    /// When the state machine needs [`StoreHealth::tick`], or the owner [`StoreHealth::lost`], next.
    pub(super) fn wake_at(&self) -> Option<Time> {
        let Some(failure) = &self.failure else {
            return self.late_at();
        };
        let limit = failure.since.after(self.limit);
        match self.running {
            Some(_) => Some(limit),
            None => Some(limit.min(failure.retry_at)),
        }
    }

    /// Why the manager has to end, if it has to.
    pub(super) fn lost(&self, now: Time) -> Option<StoreLost> {
        let failure = self.failure.as_ref()?;
        let lasted = now.since(failure.since);
        (failure.is_final || lasted >= self.limit).then(|| StoreLost {
            fault: Arc::clone(&failure.problem.0),
            lasted,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: fn(u64) -> Time = |seconds| Time(seconds * 1000);

    fn health() -> StoreHealth {
        StoreHealth::new(Span::seconds(60))
    }

    fn fault(health: &StoreHealth) -> Option<&str> {
        health.problem().map(|problem| &*problem.0)
    }

    #[test]
    fn a_failed_write_is_retried_every_second_until_one_succeeds() {
        let mut health = health();
        assert!(health.may_begin(AT(0)) && health.wake_at().is_none());
        health.begins(AT(0));
        assert!(!health.may_begin(AT(0)));
        health.fails(AT(0), "full");
        assert_eq!(fault(&health), Some("full"));
        assert_eq!(
            (health.may_begin(AT(0)), health.wake_at()),
            (false, Some(AT(1)))
        );
        assert!(health.may_begin(AT(1)));
        health.begins(AT(1));
        // A retry alone is no recovery.
        assert_eq!(fault(&health), Some("full"));
        health.succeeds();
        assert_eq!((fault(&health), health.wake_at()), (None, None));
        assert!(health.may_begin(AT(1)));
    }

    #[test]
    fn a_late_transaction_is_a_failure_that_its_end_heals() {
        let mut health = health();
        health.begins(AT(0));
        assert_eq!(health.wake_at(), Some(AT(5)));
        health.tick(AT(4));
        assert_eq!(fault(&health), None);
        health.tick(AT(5));
        assert!(fault(&health).unwrap().contains("longer than 5 s"));
        assert_eq!(health.wake_at(), Some(AT(65)), "the limit");
        assert!(!health.may_begin(AT(60)), "it still runs");
        health.succeeds();
        assert_eq!(fault(&health), None);
    }

    #[test]
    fn the_manager_ends_when_the_limit_is_reached_and_not_before() {
        let mut health = health();
        health.begins(AT(0));
        health.fails(AT(0), "full");
        for second in 1..60 {
            assert_eq!(health.lost(AT(second)), None);
            health.begins(AT(second));
            // Another fault does not restart the time.
            health.fails(AT(second), if second < 30 { "full" } else { "broken" });
        }
        let lost = health.lost(AT(60)).unwrap();
        assert_eq!((&*lost.fault, lost.lasted), ("broken", Span::seconds(60)));
    }

    #[test]
    fn each_failure_has_the_whole_limit() {
        let mut health = health();
        health.begins(AT(0));
        health.fails(AT(0), "full");
        health.begins(AT(59));
        health.succeeds();
        health.begins(AT(60));
        health.fails(AT(60), "full");
        assert_eq!(health.lost(AT(119)), None);
        assert!(health.lost(AT(120)).is_some());
    }

    #[test]
    fn a_lost_writer_ends_the_manager_at_once() {
        let mut health = health();
        health.begins(AT(7));
        health.loses_writer(AT(7), "panicked");
        assert_eq!(&*health.lost(AT(7)).unwrap().fault, "panicked");
        assert!(!health.may_begin(AT(100)));
    }
}
