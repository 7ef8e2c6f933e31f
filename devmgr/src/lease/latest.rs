//! By when waiting requests are served at the latest, if time limits bound it.
//!
//! The proof is in [`serving`](super::serving). The manager bases no decision on these times. Invariant: a time is
//! known only if every lease on open nodes has a time limit. It holds as long as the request could be served, the nodes
//! stay, and they release units in time.

use super::holding::{Holding, PartState, Waiting};
use super::manager::Manager;
use super::nodes::Node;
use crate::inventory::NodeId;
use crate::policy::queue::QueuePlace;
use crate::time::{Span, Time, Wall};

/// The head of the queue, which no free units sufficed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Head {
    place: QueuePlace,
    /// When it is served at the latest.
    by: Option<Time>,
}

/// The head of the queue, for monitoring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadView {
    /// When the request was made.
    pub since: Wall,
    /// For how long it should have been served.
    pub late: Span,
}

impl Manager {
    /// The request that has waited longest of those that could be served. `None`: no request has waited for longer than
    /// `Timing::patience`.
    #[must_use]
    pub fn head(&self) -> Option<HeadView> {
        let head = self.head?;
        let waiting = self.queue.get(head.place)?;
        Some(HeadView {
            since: waiting.since,
            late: head.by.map_or(Span(0), |by| self.now.since(by)),
        })
    }

    /// The time that nodes get to release units: one repeated withdrawal, and the acknowledgement of the next grant.
    pub(super) fn release_time(&self) -> Span {
        let timing = &self.policy.timing;
        Span(timing.acknowledge.0.saturating_add(timing.repeat.0))
    }

    /// Notes which request is the head now. Its time counts from the moment in which it becomes the head.
    pub(super) fn note_head(&mut self, head: Option<QueuePlace>) {
        if self.head.map(|of| of.place) == head {
            return;
        }
        let released = self.release_time();
        let by = |manager: &Manager| Some(manager.last_end()?.after(released));
        self.head = head.map(|place| Head {
            place,
            by: by(self),
        });
    }

    /// When the last lease on open nodes is over. `None`: one of them has no time limit.
    pub(super) fn last_end(&self) -> Option<Time> {
        let is_open = |node: &NodeId| self.nodes.get(node).is_some_and(Node::is_open);
        let has_units = |holding: &&Holding| {
            let mut parts = holding.parts.iter();
            parts.any(|part| part.state != PartState::Gone && is_open(&part.node))
        };
        let end = |holding: &Holding| match holding.is_ending() {
            true => Some(self.now),
            false => {
                let whole = holding.limit.map(|limit| self.now.after(limit));
                holding.ends.or(whole)
            }
        };
        let mut there = self.grants.values().filter(has_units);
        there.try_fold(self.now, |last, of| Some(last.max(end(of)?)))
    }

    /// In what time a request that could be served is served, behind `older` requests. `last_end` is of
    /// [`last_end`](Self::last_end).
    pub(super) fn latest(
        &self,
        (place, waiting): (QueuePlace, &Waiting),
        older: usize,
        last_end: Option<Time>,
    ) -> Option<Span> {
        if let Some(head) = self.head.filter(|of| of.place == place) {
            return head.by.map(|by| by.since(self.now));
        }
        let longest = self.policy.longest_lease?;
        // Until the request is overdue, others may get leases.
        let first = last_end?.max(waiting.overdue.max(self.now).after(longest));
        let released = self.release_time();
        let each = longest.0.saturating_add(released.0);
        let others = each.saturating_mul(older as u64);
        Some(first.after(released).after(Span(others)).since(self.now))
    }
}
