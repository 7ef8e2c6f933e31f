//! What is not there any more: nodes that are forgotten, and requests that only they could serve.
//!
//! A lost node without leases is forgotten after `Timing::forget`, and by an administrator at any time. How long it has
//! been lost is written down now and then, so that a manager that is started anew each week forgets as well; it is not
//! written when a link breaks, so that no node has to wait for the disk to come back. What an administrator is
//! draining is kept: it shall not come back as one that is used. An account that joins under ever new names has room for
//! [`MOST_NODES`], and for so many devices as [`limits`](crate::inventory::limits) says: the longest absent of its own makes room for the next.
//!
//! Invariant: whoever is forgotten serves nothing that anybody else could be granted: its units go with it, and if it
//! comes back it is told first to withdraw what it serves.

use std::collections::BTreeSet;

use super::action::Refusal;
use super::alarm::Alarm;
use super::change::{Absence, Change};
use super::id::Epoch;
use super::manager::Manager;
use super::nodes::Node;
use super::time::Span;
use crate::inventory::limits::TooMuch;
use crate::inventory::{NodeId, OfferedDevice};
use crate::policy::UserName;
use crate::policy::queue::Place;

/// Between two looks at who is absent, at most and at least.
const LOOK_EVERY: (Span, Span) = (Span::seconds(3600), Span::seconds(1));

/// Nodes of one account that are known at once, lost ones included.
pub const MOST_NODES: usize = 4096;

/// Why a node is not forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum NotForgotten {
    /// It is not known.
    #[error("there is no such node")]
    Unknown,
    /// It would be back at once.
    #[error(
        "the node is connected, and would be back at once: stop its daemon first (`causeway nodes drain` keeps a node that runs from new leases)"
    )]
    Connected,
    /// It may serve leases yet, because it works on without the manager.
    #[error(
        "the node may be serving leases still ({leases}, for {seconds} s at most): wait, or end them with --force if it \
         will not come back"
    )]
    Leased {
        /// How many.
        leases: usize,
        /// Until when, at the latest.
        seconds: u64,
    },
}

impl Manager {
    /// Whether a node may be forgotten now; by force, leases of it are no reason not to.
    ///
    /// # Errors
    /// [`NotForgotten`]: why not.
    pub fn may_forget(&self, id: NodeId, force: bool) -> Result<(), NotForgotten> {
        let node = self.nodes.get(&id).ok_or(NotForgotten::Unknown)?;
        if node.connected {
            return Err(NotForgotten::Connected);
        }
        match self.fenced_at(node) {
            Some(at) if !force => Err(NotForgotten::Leased {
                leases: node.grants.len(),
                seconds: at.since(self.now).0.div_ceil(1000),
            }),
            _ => Ok(()),
        }
    }

    /// Forgets a node that is not connected, with all that it has.
    pub(super) fn forget_node(&mut self, id: NodeId) {
        let hopeful = self.hopeful_by(id);
        self.drop_aside_on(id);
        let Some(node) = self.nodes.get(&id) else {
            return;
        };
        let epochs: Vec<Epoch> = node.grants.iter().copied().collect();
        for epoch in epochs {
            self.part_lost(epoch, id);
        }
        if self.nodes.remove(&id).is_some_and(|of| of.absence_stored) {
            self.store(Change::DeleteAbsence(id));
        }
        self.store(Change::DeleteNode(id));
        self.cluster.forget(id);
        self.alarms.set(Alarm::Node(id), None);
        self.not_awaited(id);
        self.judge(hopeful);
    }

    /// Whether a node can be taken in as this account's: it is known, there is room, or room can be made.
    #[must_use]
    pub fn has_room(&self, id: NodeId, account: Option<&UserName>) -> bool {
        self.nodes.contains_key(&id)
            || self.of_account(account).count() < MOST_NODES
            || self.most_dispensable(account, id).is_some()
    }

    /// Whether this node, as this account's, may have these devices next to those of the account's other nodes that
    /// cannot be forgotten.
    ///
    /// # Errors
    /// [`TooMuch`].
    pub fn may_have(
        &self,
        id: NodeId,
        account: Option<&UserName>,
        devices: &[OfferedDevice],
    ) -> Result<(), TooMuch> {
        let others = self.of_account(account);
        let others = others.filter(|(of, node)| **of != id && !node.is_dispensable());
        let others = others.map(|(of, _)| *of);
        self.cluster.check_account(others, devices)
    }

    /// A node of this account with these devices is about to be taken in.
    pub(super) fn make_room(
        &mut self,
        id: NodeId,
        account: Option<&UserName>,
        devices: &[OfferedDevice],
    ) {
        loop {
            let others = || self.of_account(account).map(|(of, _)| *of);
            let others = || others().filter(|of| *of != id);
            let has_room = others().count() < MOST_NODES
                && self.cluster.check_account(others(), devices).is_ok();
            if has_room {
                return;
            }
            match self.most_dispensable(account, id) {
                Some(dispensable) => self.forget_node(dispensable),
                None => return,
            }
        }
    }

    fn of_account(&self, account: Option<&UserName>) -> impl Iterator<Item = (&NodeId, &Node)> {
        let nodes = self.nodes.iter();
        nodes.filter(move |(_, node)| node.account.as_ref() == account)
    }

    /// Of all nodes but `but` the one that is lost for the longest, without leases, and that nobody drains.
    fn most_dispensable(&self, account: Option<&UserName>, but: NodeId) -> Option<NodeId> {
        let lost = self
            .of_account(account)
            .filter(|(_, node)| node.is_dispensable());
        let since = lost
            .filter(|(id, _)| **id != but)
            .filter_map(|(id, node)| Some((node.absent?, *id)));
        since.min().map(|(_, id)| id)
    }

    /// Waiting requests that could be served as long as this node is known.
    fn hopeful_by(&mut self, id: NodeId) -> Vec<Place> {
        // Others of whose devices nobody knows may serve them.
        if !self.awaited.is_empty() || self.cluster.devices(id).next().is_none() {
            return Vec::new();
        }
        let all: Vec<Place> = self.queue.iter().map(|(place, _)| place).collect();
        let hopeful = |place: &Place| !self.is_hopeless(*place);
        all.into_iter().filter(hopeful).collect()
    }

    /// Whether no known device, free or not, will do for a waiting request.
    fn is_hopeless(&mut self, place: Place) -> bool {
        let Some(demand) = self.queue.get(place).map(|of| of.demand.clone()) else {
            return false;
        };
        // What only quotas forbid may be allowed tomorrow.
        let memory = self.conceivable(&demand).unwrap_or(u64::MAX);
        self.never(&demand, memory) == Some(Refusal::NothingFits)
    }

    /// Those of these that are hopeless. What many ask for is looked for in vain once.
    fn in_vain(&mut self, mut places: BTreeSet<Place>) -> BTreeSet<Place> {
        let mut looked_for = BTreeSet::new();
        places.retain(|place| {
            let Some(demand) = self.queue.get(*place).map(|of| of.demand.clone()) else {
                return false;
            };
            let in_vain = looked_for.contains(&demand.devices) || self.is_hopeless(*place);
            if in_vain {
                looked_for.insert(demand.devices.clone());
            }
            in_vain
        });
        places
    }

    /// Refuses those that wait in vain.
    fn judge(&mut self, places: impl IntoIterator<Item = Place>) {
        for place in places {
            if self.is_hopeless(place) {
                self.refuse(place, Refusal::NothingFits);
            }
        }
    }

    /// No known device will do for a request that waits: it is refused if none has come in time.
    pub(super) fn hope(&mut self, place: Place) {
        let until = self.now.after(self.policy.timing.arrival);
        self.hopeless.insert(place, until);
        self.show(place);
        self.arm_waiting(place);
    }

    /// Devices have come: perhaps what was hopeless is so no more.
    pub(super) fn look_for_hope(&mut self) {
        let places: BTreeSet<Place> = self.hopeless.keys().copied().collect();
        let in_vain = self.in_vain(places.clone());
        for place in places.difference(&in_vain).copied() {
            self.hopeless.remove(&place);
            self.show(place);
            self.arm_waiting(place);
            self.chance = true;
        }
    }

    /// A node is here, or forgotten.
    pub(super) fn not_awaited(&mut self, id: NodeId) {
        if self.awaited.remove(&id) && self.awaited.is_empty() {
            self.all_are_known();
        }
    }

    /// What every known node has is known: what was taken in before the start is judged as if it were made now.
    pub(super) fn all_are_known(&mut self) {
        if self.settling {
            self.settled();
        }
        let from_before = std::mem::take(&mut self.from_before);
        for place in self.in_vain(from_before) {
            self.hope(place);
        }
    }

    /// Known nodes had time to come: what does not fit now is refused, whether or not they all came. What waited before the
    /// start waits until they all came, or are forgotten: of those that are away nobody knows what they have.
    pub(super) fn settled(&mut self) {
        self.settling = false;
        self.alarms.set(Alarm::Settle, None);
        self.chance = true;
        for place in std::mem::take(&mut self.unjudged) {
            if !self.is_hopeless(place) {
                continue;
            }
            match self.queue.get(place).is_some_and(|of| of.demand.wait) {
                true => self.hope(place),
                false => self.refuse(place, Refusal::NothingFits),
            }
        }
    }

    /// Nodes of whom it is written that they were lost before this start.
    pub(super) fn load_absences(&mut self, absences: &[Absence]) {
        for Absence { node, since } in absences {
            if let Some(node) = self.nodes.get_mut(node) {
                (node.absent, node.absence_stored) = (Some(*since), true);
            }
        }
    }

    /// Forgets who was lost for long enough, and writes down who else is.
    pub(super) fn look_at_absences(&mut self) {
        let (wall, forget) = (self.wall(), self.policy.timing.forget);
        let mut forgotten = Vec::new();
        let mut changes = Vec::new();
        for (id, node) in &mut self.nodes {
            let idle = !node.draining && node.grants.is_empty();
            match node.absent {
                Some(since) if idle && forget.0 > 0 && wall.since(since) >= forget => {
                    forgotten.push(*id);
                }
                Some(since) if !node.absence_stored => {
                    node.absence_stored = true;
                    changes.push(Change::PutAbsence(Absence { node: *id, since }));
                }
                None if node.absence_stored => {
                    node.absence_stored = false;
                    changes.push(Change::DeleteAbsence(*id));
                }
                _ => {}
            }
        }
        changes.into_iter().for_each(|change| self.store(change));
        forgotten.into_iter().for_each(|id| self.forget_node(id));
        self.arm_absences();
    }

    /// Nobody is forgotten before the first look: those that are known have time to come.
    pub(super) fn arm_absences(&mut self) {
        let (most, least) = LOOK_EVERY;
        let often = match self.policy.timing.forget {
            Span(0) => most,
            forget => Span(forget.0 / 8).clamp(least, most),
        };
        self.alarms
            .set(Alarm::Absences, Some(self.now.after(often)));
    }
}
