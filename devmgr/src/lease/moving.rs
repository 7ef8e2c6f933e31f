//! Moves leases from a node that is drained to equal free units of another node.
//!
//! A move is a second grant of the same lease, with a new epoch, in [`Phase::Moving`]. Its node acknowledges it, and
//! then the old node is asked to move its sessions there. If the old node says that they have moved, the new grant is
//! the lease's, and the old one is withdrawn. If anything fails before, the new grant is withdrawn, and the old one goes
//! on as if nothing had happened. This includes a new node that is lost after it has taken the sessions: the old node keeps
//! them until its grant is withdrawn, and no client has met the new node.
//!
//! Moves are not durable: after a restart of the manager, the nodes withdraw the new grants that it does not know.
//! Invariants: until the move is complete, only the old grant is the lease's for its client and the store. The units of
//! both grants are taken. The lease counts once for its quotas.

use std::collections::BTreeMap;

use super::action::{Action, EndReason, UnitsMoved};
use super::event::{GrantReport, MoveResult};
use super::grants::memory_of;
use super::holding::{GrantPart, Holding, PartState, Phase};
use super::id::{Epoch, LeaseId};
use super::manager::{Manager, Standing};
use super::silence::Silence;
use crate::inventory::{Chosen, NodeId, Unit};
use crate::time::{Span, Time};

/// Longest time of a move without a deadline of the administrator, and of the search for equal units.
pub(super) const LONGEST: Span = Span::seconds(600);
/// Why a lease of several nodes stays: its nodes have one grant, and a new grant would end the sessions of the other nodes.
const SEVERAL: &str = "it has devices of several nodes in one grant, which cannot move one by one";
/// Why a lease waits.
const NO_TARGET: &str = "no equal device is free at the same place of another node";
/// Why a lease waits whose node was lost.
pub(super) const NO_REPLACEMENT: &str =
    "its node was lost, and no equal device is free at the same place of any node";

/// The grant that moves, its units, and the units that it moves to.
type Target = (Epoch, Vec<Unit>, Vec<Chosen>);

/// What becomes of the leases of a node that they are to leave.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Leaving {
    /// When the leases that are still there end.
    pub(super) until: Option<Time>,
    /// The leases that were there when the administrator asked for it.
    pub(super) leases: BTreeMap<LeaseId, Departure>,
}

/// What becomes of one lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Departure {
    /// The lease waits for free units.
    Waits(String),
    /// The lease is being moved to this node.
    Moves(NodeId),
    /// The lease has moved to this node.
    Moved(NodeId),
    /// The lease goes on where it is.
    Stays(String),
    /// The lease has ended.
    Ended,
}

impl Manager {
    /// Moves all leases of a node, and ends those that are still there after `within`.
    pub(super) fn migrate(&mut self, id: NodeId, within: Option<Span>) {
        let until = within.map(|within| self.now.after(within));
        let Some(node) = self.nodes.get(&id).filter(|node| node.draining) else {
            return;
        };
        let mut epochs: Vec<Epoch> = node.grants.iter().copied().collect();
        epochs.extend(self.sought_for(id));
        let mut leases = BTreeMap::new();
        for epoch in epochs {
            // A lease that is just moving here is not there yet.
            if let Some(of) = self.grants.get(&epoch).filter(|of| of.is_live()) {
                let departure = match self.moves.get(&epoch) {
                    Some(to) if !of.is_sought() => Departure::Moves(self.target_of(*to)),
                    _ => Departure::Waits(NO_TARGET.to_owned()),
                };
                leases.insert(of.demand.lease, departure);
            }
        }
        if let Some(node) = self.nodes.get_mut(&id) {
            node.leaving = Some(Leaving { until, leases });
        }
        self.chance = true;
        self.arm_node(id);
    }

    /// What becomes of the leases of a node that was to be left.
    #[must_use]
    pub fn leaving(&self, node: NodeId) -> Vec<(LeaseId, Departure)> {
        let leaving = self.nodes.get(&node).and_then(|of| of.leaving.as_ref());
        let leases = leaving.into_iter().flat_map(|of| &of.leases);
        let now = |lease: &LeaseId, of: &Departure| match of {
            Departure::Moved(_) => of.clone(),
            _ if !self.leases.contains_key(lease) => Departure::Ended,
            _ => of.clone(),
        };
        leases.map(|(lease, of)| (*lease, now(lease, of))).collect()
    }

    /// Offers free units to leases that are to leave their nodes, or have lost them.
    pub(super) fn begin_takeovers(&mut self) {
        self.begin_replacements();
        self.begin_moves();
    }

    /// Begins the moves for which units may be free.
    fn begin_moves(&mut self) {
        let waiting = self.nodes.iter().flat_map(|(id, node)| {
            let leases = node.leaving.iter().flat_map(|of| &of.leases);
            let waiting = leases.filter(|(_, of)| matches!(of, Departure::Waits(_)));
            waiting.map(|(lease, _)| (*id, *lease))
        });
        for (node, lease) in waiting.collect::<Vec<_>>() {
            let departure = match self.begin_move(node, lease) {
                Ok(target) => Departure::Moves(target),
                Err(departure) => departure,
            };
            self.departs(node, lease, departure);
        }
    }

    // The lease's grant of a node with its units, and equal units of another node, which are free.
    fn choose_target(&self, id: NodeId, lease: LeaseId) -> Result<Target, Departure> {
        let Some(Standing::Granted(from)) = self.leases.get(&lease).copied() else {
            return Err(Departure::Ended);
        };
        let old = self.grants.get(&from).filter(|of| of.is_live());
        let old = old.ok_or(Departure::Ended)?;
        let there = old.parts.iter().filter(|of| of.state != PartState::Gone);
        let part = match there.collect::<Vec<_>>()[..] {
            // The part is lost as soon as the node has withdrawn it.
            [part] if part.state == PartState::Withdrawing => {
                return Err(Departure::Waits(NO_REPLACEMENT.to_owned()));
            }
            [part] if part.node == id => part,
            [_] => return Err(Departure::Ended),
            // The node was lost, and the lease is to be replaced.
            [] => return Err(Departure::Waits(NO_REPLACEMENT.to_owned())),
            _ => return Err(Departure::Stays(SEVERAL.to_owned())),
        };
        let units: Vec<_> = part.units.iter().map(|of| of.unit).collect();
        let classes = self.cluster.classes_of(id, &units);
        let chosen = classes.and_then(|of| self.cluster.choose_equal(&of, Some(id)));
        // The node may have got other devices while no manager ran. Quotas count the memory of the granted ones.
        let chosen = chosen.filter(|of| memory_of(of) == memory_of(&part.units));
        let chosen = chosen.ok_or_else(|| Departure::Waits(NO_TARGET.to_owned()))?;
        Ok((from, units, chosen))
    }

    // Offers a lease's grant of a node to another node, and returns that.
    fn begin_move(&mut self, id: NodeId, lease: LeaseId) -> Result<NodeId, Departure> {
        let (from, units, chosen) = self.choose_target(id, lease)?;
        let target = self.offer_instead(from, (id, units), chosen);
        target.ok_or(Departure::Ended)
    }

    /// Offers units of a node that are to take over from a lease's grant, which has `left` so far. Returns the node.
    pub(super) fn offer_instead(
        &mut self,
        from: Epoch,
        left: (NodeId, Vec<Unit>),
        chosen: Vec<Chosen>,
    ) -> Option<NodeId> {
        let target = chosen.first()?.node;
        let epoch = self.next_epoch();
        let old = self.grants.get(&from)?;
        let (demand, limit, ends, since) = (old.demand.clone(), old.limit, old.ends, old.since);
        let mut moved = old.moved.clone();
        moved.push(UnitsMoved {
            from: left,
            to: (target, chosen.iter().map(|of| of.unit).collect()),
            replaced: old.is_sought(),
        });
        let replace = self.still_replaceable(old, &chosen, &moved);
        for of in &chosen {
            self.cluster.take(of.node, of.unit);
        }
        if let Some(node) = self.nodes.get_mut(&target) {
            node.grants.insert(epoch);
        }
        let left = ends.map(|ends| ends.since(self.now));
        self.send_grant(&demand, (epoch, target), &chosen, left);
        let holding = Holding {
            epoch,
            demand,
            queued: None,
            phase: Phase::Moving {
                from,
                until: self.now.after(self.policy.timing.acknowledge),
            },
            // The old part counts until the move is complete.
            parts: vec![GrantPart::uncounted(target, chosen, PartState::Asked)],
            limit,
            ends,
            since,
            moved,
            replace,
            silence: Silence::default(),
        };
        self.grants.insert(epoch, holding);
        self.moves.insert(from, epoch);
        self.arm_grant(epoch);
        Some(target)
    }

    /// The new node serves its grant: asks the old one to move its sessions there.
    pub(super) fn move_ready(&mut self, epoch: Epoch) {
        if let Some(Phase::Moving { from, .. }) = self.grants.get(&epoch).map(|of| of.phase)
            && self.sought.contains_key(&from)
        {
            self.complete_move(from, epoch);
            return;
        }
        let Some((from, node)) = self.source_of(epoch) else {
            return;
        };
        let until = self.nodes.get(&node).and_then(|of| of.leaving.as_ref());
        let until = until.and_then(|of| of.until);
        let until = until.unwrap_or_else(|| self.now.after(LONGEST));
        let Some(holding) = self.grants.get_mut(&epoch) else {
            return;
        };
        // The old node answers within this time. The margin is for the answer's way.
        holding.phase = Phase::Moving { from, until };
        let lease = holding.demand.lease;
        let within = Span(until.since(self.now).0.saturating_sub(1_000).max(1));
        let target = holding.granted(self.skew);
        self.act(Action::Move {
            node,
            lease,
            epoch: from,
            target,
            within,
        });
        self.arm_grant(epoch);
    }

    /// The old node has moved its sessions, or has not.
    pub(super) fn move_ended(&mut self, word: GrantReport, target: Epoch, result: MoveResult) {
        let is_its = |of: &Holding| of.demand.lease == word.lease;
        let is_present = self.source_of(target) == Some((word.epoch, word.node))
            && self.grants.get(&target).is_some_and(is_its);
        match result {
            // The grant of the new node is withdrawn already.
            MoveResult::Moved if !is_present => self.stays(word),
            _ if !is_present => {}
            MoveResult::Moved => self.complete_move(word.epoch, target),
            MoveResult::Stays(reason) => self.abandon_move(target, Departure::Stays(reason)),
            MoveResult::NotTaken(reason) => {
                // Before the next attempt, which must not choose this node at once.
                self.distrust(self.target_of(target));
                self.abandon_move(target, Departure::Waits(reason));
            }
        }
    }

    /// Tells a node that the sessions of its grant go on there. If another node is to take them next, that move begins with
    /// the sessions as they are.
    fn stays(&mut self, of: GrantReport) {
        let GrantReport { node, lease, epoch } = of;
        let is_its = |of: &Holding| {
            let mut there = of.parts.iter().filter(|of| of.state != PartState::Gone);
            of.is_live() && of.demand.lease == lease && there.any(|of| of.node == node)
        };
        if self.grants.get(&epoch).is_some_and(is_its) && !self.moves.contains_key(&epoch) {
            self.act(Action::Stay { node, lease, epoch });
        }
    }

    fn complete_move(&mut self, from: Epoch, to: Epoch) {
        let lease_until = self.now.after(self.policy.timing.lease);
        let serves = |of: &Holding| of.parts.iter().all(|of| of.state == PartState::Serving);
        if !self.grants.get(&to).is_some_and(serves) {
            return;
        }
        let Some(old) = self.grants.get_mut(&from).filter(|of| of.is_live()) else {
            return;
        };
        let (phase, silence) = match old.phase {
            // A lost node says nothing about the holder.
            phase if old.is_sought() => (phase, old.silence),
            Phase::Reserved { .. } => (old.phase, Silence::heard(self.now)),
            // The sessions are counted anew, by the new node. The old one has reported them.
            _ => (
                Phase::Active { until: lease_until },
                Silence::heard(self.now),
            ),
        };
        let (mut counted, mut promised) = (false, Span(0));
        for part in &mut old.parts {
            counted |= std::mem::take(&mut part.counted);
            promised.0 += std::mem::take(&mut part.promised).0;
        }
        let Some(new) = self.grants.get_mut(&to) else {
            return;
        };
        (new.phase, new.silence) = (phase, silence);
        let lease = new.demand.lease;
        if let Some(part) = new.parts.first_mut() {
            (part.counted, part.promised) = (counted, promised);
        }
        let way = new.moved.last().map(|of| (of.from.0, of.to.0));
        let outcome = new.outcome(self.skew);
        self.moves.remove(&from);
        self.sought.remove(&from);
        self.leases.insert(lease, Standing::Granted(to));
        self.store_lease(to);
        // No client has the old grant any more, so its end is nobody's news.
        self.wind_up(from, None);
        self.arm_grant(to);
        if let Some((source, target)) = way {
            self.departs(source, lease, Departure::Moved(target));
            self.act(Action::Moved {
                lease,
                from: source,
                to: target,
                outcome,
            });
        }
    }

    /// The new node does not serve its grant, or not in time: another one may.
    pub(super) fn move_failed(&mut self, epoch: Epoch) {
        let lease = self.grants.get(&epoch).map(|of| of.demand.lease);
        let source = self.source_of(epoch);
        self.abandon_move(epoch, Departure::Waits(NO_TARGET.to_owned()));
        // The old node may be sending, or may have sent.
        if let (Some((epoch, node)), Some(lease)) = (source, lease) {
            self.stays(GrantReport { node, lease, epoch });
        }
    }

    fn abandon_move(&mut self, epoch: Epoch, departure: Departure) {
        let source = self.source_of(epoch);
        let lease = self.grants.get(&epoch).map(|of| of.demand.lease);
        self.drop_move(epoch);
        if let (Some((_, node)), Some(lease)) = (source, lease) {
            self.departs(node, lease, departure);
        }
        self.chance = true;
    }

    /// Withdraws the new grant of a move.
    fn drop_move(&mut self, epoch: Epoch) {
        let Some(Phase::Moving { from, .. }) = self.grants.get(&epoch).map(|of| of.phase) else {
            return;
        };
        self.moves.remove(&from);
        self.wind_up(epoch, None);
    }

    /// A lease ends, so its move does too.
    pub(super) fn end_move_of(&mut self, from: Epoch) {
        if let Some(to) = self.moves.get(&from).copied() {
            self.abandon_move(to, Departure::Ended);
        }
    }

    /// Ends what is still on a node when the time for leaving it is over.
    pub(super) fn leaving_due(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        let Some(leaving) = node.leaving.as_mut() else {
            return;
        };
        if leaving.until.take_if(|until| *until <= self.now).is_none() {
            return;
        }
        let leases: Vec<LeaseId> = leaving.leases.keys().copied().collect();
        for lease in leases {
            let Some(Standing::Granted(epoch)) = self.leases.get(&lease).copied() else {
                continue;
            };
            let Some(holding) = self.grants.get_mut(&epoch) else {
                continue;
            };
            let parts = holding.parts.iter();
            let others = parts.filter(|of| of.state != PartState::Gone && of.node != id);
            let is_alone = others.count() == 0;
            let is_sought = holding.is_sought();
            let is_there = |of: &&mut GrantPart| is_sought || of.state != PartState::Gone;
            let Some(part) = holding.part(id).filter(is_there) else {
                continue;
            };
            if is_alone {
                self.end(epoch, EndReason::Drained);
            } else {
                // The lease goes on with its other nodes, once this one says that it has withdrawn it.
                part.state = PartState::Withdrawing;
                self.withdraw(id, lease, epoch, Some(EndReason::Drained));
            }
            self.departs(id, lease, Departure::Ended);
        }
    }

    // The grant from which another one takes over, and its node.
    fn source_of(&self, epoch: Epoch) -> Option<(Epoch, NodeId)> {
        let Phase::Moving { from, .. } = self.grants.get(&epoch)?.phase else {
            return None;
        };
        let parts = self.grants.get(&from)?.parts.iter();
        let mut there = parts.filter(|of| of.state != PartState::Gone);
        there.next().map(|of| (from, of.node))
    }

    fn target_of(&self, epoch: Epoch) -> NodeId {
        let holding = self.grants.get(&epoch);
        let part = holding.and_then(|of| of.parts.first());
        part.map_or(NodeId([0; 16]), |of| of.node)
    }

    pub(super) fn departs(&mut self, node: NodeId, lease: LeaseId, departure: Departure) {
        let leaving = self.nodes.get_mut(&node).and_then(|of| of.leaving.as_mut());
        if let Some(entry) = leaving.and_then(|of| of.leases.get_mut(&lease)) {
            *entry = departure;
        }
    }
}
