//! Replaces the devices of a lost node by equal ones, for a holder that executes its commands again.
//!
//! The holder names the node with its renewals ([`Event::Replace`](super::Event::Replace)), while its session there has no
//! connection. A replacement is a move ([`moving`](super::moving)) without a source to ask: the lease is the new grant's as
//! soon as the new node serves it. It needs no fence, because the new grant has other units. Those of the lost node stay
//! taken until that node releases them, or can no longer serve them.
//!
//! A node that comes back with its grant keeps the lease. One that comes back without it, or never, has lost it: the lease
//! then has no units, and waits for equal ones for `Timing::grace` after the holder's last wish. The node itself is the
//! first choice then.
//!
//! Wishes are not durable, because holders repeat them. Invariants: a node with a connection is never replaced. A lease of
//! several nodes is never replaced in parts, because its nodes have one grant.

use super::action::EndReason;
use super::grants::memory_of;
use super::holding::{Holding, Lacking, PartState, Phase};
use super::id::{Epoch, LeaseId};
use super::manager::{Manager, Standing};
use crate::inventory::{Chosen, NodeId, Unit};
use crate::policy::UserName;
use crate::policy::ledger::Room;
use crate::time::{Span, Time};

/// A node that comes back within this time has its sessions still, unless its daemon has ended.
const BACK_WITHIN: Span = Span::seconds(5);

impl Manager {
    /// Renews a lease whose holder cannot reach this node of it, and looks for equal devices if the node is lost.
    pub(super) fn replace(&mut self, lease: LeaseId, user: &UserName, node: NodeId) {
        let standing = self.leases.get(&lease).copied();
        if let (Some(Standing::Granted(epoch)), true) = (standing, self.is_of(lease, user)) {
            self.note_lacking(epoch, node);
            self.begin_replacement(epoch);
        }
        self.renewed(lease, user, false);
    }

    fn note_lacking(&mut self, epoch: Epoch, node: NodeId) {
        let until = self.now.after(self.policy.timing.grace);
        let is_connected = self.nodes.get(&node).is_some_and(|of| of.connected);
        let Some(holding) = self.grants.get_mut(&epoch).filter(|of| of.is_live()) else {
            return;
        };
        if let Some(lacks) = holding.lacks.as_mut().filter(|of| of.node == node) {
            lacks.until = until;
            return;
        }
        let Some(part) = holding.part(node).filter(|of| of.state != PartState::Gone) else {
            return;
        };
        let units: Vec<Unit> = part.units.iter().map(|of| of.unit).collect();
        // Which devices they are is not known if the manager has started since.
        if let Some(units) = self.cluster.classed(node, &units).filter(|_| !is_connected) {
            holding.lacks = Some(Lacking { node, units, until });
            self.lacking.insert(epoch);
        }
    }

    /// Begins the replacements for which units may be free.
    pub(super) fn begin_replacements(&mut self) {
        for epoch in self.lacking.iter().copied().collect::<Vec<_>>() {
            match self.lacks(epoch) {
                Some(_) => self.begin_replacement(epoch),
                None => drop(self.lacking.remove(&epoch)),
            }
        }
    }

    /// The node whose devices a live lease lacks, if it has no other nodes.
    fn lacks(&self, epoch: Epoch) -> Option<NodeId> {
        let holding = self.grants.get(&epoch).filter(|of| of.is_live())?;
        let lacking = holding.lacks.as_ref().filter(|of| of.until > self.now)?;
        let others = holding.parts.iter().filter(|of| of.node != lacking.node);
        let mut others = others.filter(|of| of.state != PartState::Gone);
        others.next().is_none().then_some(lacking.node)
    }

    /// Whether a lease that loses its part on this node waits for a replacement.
    pub(super) fn is_replaced(&self, epoch: Epoch, node: NodeId) -> bool {
        self.lacks(epoch) == Some(node)
    }

    fn begin_replacement(&mut self, epoch: Epoch) {
        let Some(node) = self.lacks(epoch).filter(|_| !self.settling) else {
            return;
        };
        let Some(holding) = self.grants.get(&epoch) else {
            return;
        };
        let Some(units) = holding.lacks.as_ref().map(|of| of.units.clone()) else {
            return;
        };
        let (is_gone, left) = (
            holding.is_gone(),
            holding.ends.map(|ends| ends.since(self.now)),
        );
        let lost = self.nodes.get(&node).and_then(|of| of.lost);
        let is_back_soon = lost.is_none_or(|lost| lost.after(BACK_WITHIN) > self.now);
        if is_back_soon && !is_gone {
            return;
        }
        if let Some(to) = self.moves.get(&epoch).copied() {
            // The node was being drained when it was lost. Its sessions may be at the other one.
            return self.complete_move(epoch, to);
        }
        // The quotas count a part that is gone no longer.
        let Ok(room) = is_gone.then(|| self.room(&holding.demand)).transpose() else {
            return;
        };
        let itself = is_gone
            .then(|| self.cluster.equal_on(node, &units))
            .flatten();
        let chosen = itself.or_else(|| self.cluster.choose_equal(node, &units));
        let fits = |of: &Vec<Chosen>| room.as_ref().is_none_or(|room| fits(room, of, left));
        if let Some(chosen) = chosen.filter(fits) {
            let units = units.into_iter().map(|(unit, _)| unit).collect();
            self.offer_move(epoch, (node, units), chosen);
        }
    }

    /// Counts the units that replace those of a grant, which are gone: their time is settled, and the quotas count them no
    /// longer.
    pub(super) fn count_replacement(&mut self, from: Epoch) {
        let (wall, now) = (self.wall(), self.now);
        let to = self.moves.get(&from).copied();
        let Some(holding) = to.and_then(|to| self.grants.get_mut(&to)) else {
            return;
        };
        holding.since = wall;
        holding.limit = holding.ends.map(|ends| ends.since(now));
        let (party, limit) = (holding.demand.party.clone(), holding.limit);
        let mut parts = std::mem::take(&mut holding.parts);
        for part in parts.iter_mut().filter(|of| !of.counted) {
            self.count(&party, limit, part);
        }
        if let Some(holding) = to.and_then(|to| self.grants.get_mut(&to)) {
            holding.parts = parts;
        }
        self.refresh(&party.user);
    }

    /// The grant that this one replaces.
    pub(super) fn replaced_by(&self, epoch: Epoch) -> Option<Epoch> {
        let Phase::Moving { from, .. } = self.grants.get(&epoch)?.phase else {
            return None;
        };
        let old = self.grants.get(&from)?;
        old.lacks.is_some().then_some(from)
    }

    /// A lost node is back with its part of a lease, which needs no replacement any more.
    pub(super) fn is_back(&mut self, epoch: Epoch) {
        let holding = self.grants.get_mut(&epoch);
        if holding.and_then(|of| of.lacks.take()).is_some() {
            self.lacking.remove(&epoch);
            self.end_move_of(epoch);
        }
    }

    /// Ends a lease without units for which nobody wants a replacement any more. Returns whether it has.
    pub(super) fn end_unreplaced(&mut self, epoch: Epoch) -> bool {
        let now = self.now;
        let is_over = |of: &Holding| of.without_units_until().is_some_and(|until| until <= now);
        let is_over = self.grants.get(&epoch).is_some_and(is_over);
        if is_over {
            self.end(epoch, EndReason::NodeLost);
        }
        is_over
    }
}

/// Whether the quotas leave room for these units during the rest of the lease's time.
fn fits(room: &Room, chosen: &[Chosen], left: Option<Span>) -> bool {
    let is_long = |limit| left.is_none_or(|left| left > limit);
    memory_of(chosen) <= room.memory && !room.limit.is_some_and(is_long)
}

impl Holding {
    /// How long a live lease without units waits for others; `None`: it has units.
    pub(super) fn without_units_until(&self) -> Option<Time> {
        let is_without = self.is_live() && self.is_gone();
        is_without.then(|| self.lacks.as_ref().map_or(Time(0), |of| of.until))
    }
}
