//! Finds out why requests wait, and by when they are served at the latest.
//!
//! The proof of the times is in [`serving`](super::serving). The manager bases no decision on reasons or times. Invariant:
//! a time is known only if every lease has a time limit that is on open nodes, or that may get units there by a move or
//! a replacement. It holds as long as the request could be served, the nodes stay, and they release units in time. An older request that is away, or that a quota or a lack of devices keeps
//! back, may still come before the head, and delay it.

use std::collections::HashMap;

use super::holding::{Holding, PartState, Waiting};
use super::id::LeaseId;
use super::manager::Manager;
use super::nodes::Node;
use super::reasons::{Aside, Head, HeadView, Reasons};
use crate::inventory::NodeId;
use crate::policy::queue::QueuePlace;
use crate::time::{Span, Time};

impl Manager {
    /// Returns why each request in the queue waits.
    #[must_use]
    pub fn reasons(&self) -> HashMap<LeaseId, Reasons> {
        let reasons = self.reasons_of_first(usize::MAX, |_| true).into_iter();
        reasons
            .map(|(_, lease, reasons)| (lease, reasons))
            .collect()
    }

    /// Why those of the `most` oldest requests wait that are `wanted`.
    pub(super) fn reasons_of_first(
        &self,
        most: usize,
        wanted: impl Fn(&Waiting) -> bool,
    ) -> Vec<(QueuePlace, LeaseId, Reasons)> {
        let order = self.queue.fair_order();
        let ranks: HashMap<QueuePlace, usize> = order.zip(0..).collect();
        let last_end = self.last_end();
        let mut of_users = HashMap::new();
        let mut reasons = Vec::new();
        for (older, (place, waiting)) in self.queue.iter().take(most).enumerate() {
            let of_user: &mut usize = of_users.entry(&waiting.demand.party.user).or_default();
            let own = *of_user;
            // Only such requests come before others.
            if waiting.away.is_none() && !self.hopeless.contains_key(&place) {
                *of_user += 1;
            }
            if !wanted(waiting) {
                continue;
            }
            let ahead = ranks.get(&place).copied().unwrap_or(0);
            let mut of_request = self.reasons_of(place, waiting, own, ahead);
            if of_request.could_be_served() {
                of_request.latest = self.latest((place, waiting), older, last_end);
            }
            reasons.push((place, waiting.demand.lease, of_request));
        }
        reasons
    }

    fn reasons_of(
        &self,
        place: QueuePlace,
        waiting: &Waiting,
        own: usize,
        ahead: usize,
    ) -> Reasons {
        let away = waiting.away.map(|until| until.since(self.now));
        let unsettled = self.is_counted(&waiting.demand.party).is_err();
        let refused = self.room(&waiting.demand).err();
        let in_the_way = |why| self.quota_in_the_way(&waiting.demand, why);
        Reasons {
            away,
            lacks: waiting.told.1.clone(),
            unsettled,
            quota: refused.map(in_the_way),
            own,
            ahead,
            aside: self.aside_of(place),
            latest: None,
        }
    }

    fn aside_of(&self, place: QueuePlace) -> Aside {
        let Some(aside) = &self.aside else {
            return Aside::Nothing;
        };
        let (ready, of) = aside.count();
        if aside.place != place {
            return Aside::Older { of };
        }
        let within = aside.start(self.now).map(|start| start.since(self.now));
        Aside::Own { ready, of, within }
    }

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

    /// Notes which request is the head now. Its time counts from the first moment, while it is the head, in which every
    /// lease has a time limit.
    pub(super) fn note_head(&mut self, head: Option<QueuePlace>) {
        let is_known = self.head.is_none_or(|of| of.by.is_some());
        if is_known && self.head.map(|of| of.place) == head {
            return;
        }
        self.head = head.map(|place| Head {
            place,
            by: self.last_end().map(|end| end.after(self.release_time())),
        });
    }

    /// When the last lease on open nodes is over, or that may get there. `None`: one of them has no time limit.
    pub(super) fn last_end(&self) -> Option<Time> {
        let counts = |of: &Node| of.is_open() || of.leaving.is_some();
        let counts = |node: &NodeId| self.nodes.get(node).is_some_and(counts);
        let has_units = |holding: &&Holding| {
            let mut parts = holding.parts.iter();
            // The lease may get units of open nodes, even if its own node is not connected any more.
            (holding.is_live() && !holding.replace.is_empty())
                || parts.any(|part| part.state != PartState::Gone && counts(&part.node))
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
