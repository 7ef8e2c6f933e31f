//! Replaces the only node of a lease when that node is lost, if the holder can execute its sessions again.
//!
//! When the part is lost, the lease goes on without any node. A second grant offers it equal units of an open node, as
//! for a move ([`moving`](super::moving)). The lost node is one of these nodes once its daemon is connected again. Nothing
//! has to be sent, so the acknowledgement of the second grant completes the replacement. If the node fails, the next one
//! is asked. A lease of several nodes and an unconfirmed reservation end as without this. So do leases whose lost node an
//! administrator forgets, or drains with a time that is over.
//!
//! Devices that vanish or change on a connected node are lost, too. The node may serve the lease's other units, so it
//! withdraws the lease first. Whichever report comes first, the part is lost when the node has withdrawn it.
//!
//! The lost units count for the quotas until the lease is replaced or over. So nothing that the user requests meanwhile
//! can keep the replacement away, and the quotas are not checked again. Its time limit goes on, too.
//!
//! Replacements come before the queue, because their programs run already. Units that are set aside stay the head's, as
//! long as they are. A lease is replaced [`MOST`] times at most, and ends with its next node. A new manager seeks on, for
//! the whole time again: the row has the classes of the devices, and the lost units.
//!
//! Invariants: a part is lost only when its node can no longer serve it, so no unit is in two leases. Exactly the live
//! leases without any part are sought, each for [`LONGEST`] at most. After each event, no equal unit is free for a lease
//! that is sought and has no offer.

use std::collections::HashSet;

use super::action::{Action, UnitsMoved};
use super::event::NewRequest;
use super::holding::{GrantPart, Holding, Phase};
use super::id::Epoch;
use super::manager::Manager;
use super::moving::{Departure, LONGEST, NO_REPLACEMENT};
use crate::inventory::{Chosen, DeviceClass, NodeId};
use crate::policy::Timing;
use crate::time::Span;

/// Maximum number of replacements of a lease. Each one stays in the lease's list of moves.
pub(super) const MOST: usize = 64;

/// The lease's holder may notice the loss of a node earlier than the manager does.
const EARLIER: Span = Span::seconds(30);
/// Nobody waits for a replacement for longer.
const LONGEST_WAIT: Span = Span::seconds(24 * 3600);

/// How long the holder of a lease waits, from when its node falls silent, until equal units have taken its place or the
/// lease has ended.
pub(crate) fn replaced_within(timing: &Timing) -> Span {
    let known = timing.fenced_after().0.saturating_add(LONGEST.0);
    Span(known.saturating_add(EARLIER.0)).min(LONGEST_WAIT)
}

impl Holding {
    /// Whether equal units take the place of the part if it is lost now.
    pub(super) fn is_replaceable(&self) -> bool {
        let is_used = matches!(self.phase, Phase::Active { .. } | Phase::Lapsed { .. });
        is_used && !self.replace.is_empty()
    }
}

impl Manager {
    /// The classes of equal devices for a new grant. Empty: the lease ends with its node.
    pub(super) fn replaceable(&self, demand: &NewRequest, parts: &[GrantPart]) -> Vec<DeviceClass> {
        match parts {
            [part] if demand.replace => self.classes_of(&part.units),
            _ => Vec::new(),
        }
    }

    /// The same classes for a grant that takes over from `old`, after these moves.
    pub(super) fn still_replaceable(
        &self,
        old: &Holding,
        chosen: &[Chosen],
        moved: &[UnitsMoved],
    ) -> Vec<DeviceClass> {
        let replaced = moved.iter().filter(|of| of.replaced).count();
        match old.replace.is_empty() || replaced >= MOST {
            true => Vec::new(),
            // Not those of the old grant, whose node may have got other devices meanwhile.
            false => self.classes_of(chosen),
        }
    }

    // The classes of units of one node.
    fn classes_of(&self, units: &[Chosen]) -> Vec<DeviceClass> {
        let classes = units.first().and_then(|first| {
            let units = units.iter().map(|of| &of.unit);
            self.cluster.classes_of(first.node, units)
        });
        classes.unwrap_or_default()
    }

    /// The lease has lost its only part, on this node: seeks equal units.
    pub(super) fn seek(&mut self, epoch: Epoch, node: NodeId) {
        let Some(lease) = self.grants.get(&epoch).map(|of| of.demand.lease) else {
            return;
        };
        // The sessions that the move was to bring are lost.
        self.end_move_of(epoch);
        self.departs(node, lease, Departure::Waits(NO_REPLACEMENT.to_owned()));
        self.begin_search(epoch);
        self.store_lease(epoch);
        self.arm_grant(epoch);
        let outcome = self.grants[&epoch].outcome(self.skew);
        self.act(Action::Reduced {
            lease,
            node,
            outcome,
        });
    }

    pub(super) fn begin_search(&mut self, epoch: Epoch) {
        let holding = self.grants.get(&epoch);
        // An earlier manager may have stored the lease without its classes. Then there is nothing to seek.
        let within = match holding.is_some_and(|of| !of.replace.is_empty()) {
            true => LONGEST,
            false => Span(0),
        };
        self.sought.insert(epoch, self.now.after(within));
    }

    /// Leases that have lost this node as their only one, and are not replaced yet.
    pub(super) fn sought_for(&self, node: NodeId) -> Vec<Epoch> {
        let lost = |epoch: &&Epoch| {
            let parts = self.grants.get(epoch).and_then(|of| of.parts.first());
            parts.is_some_and(|of| of.node == node)
        };
        self.sought.keys().filter(lost).copied().collect()
    }

    /// Offers equal units to the leases for which some are free, to the oldest grant first. The lost node is preferred.
    pub(super) fn begin_replacements(&mut self) {
        let mut in_vain: HashSet<Vec<DeviceClass>> = HashSet::new();
        let sought = self.sought.keys();
        let waiting = sought.filter(|epoch| !self.moves.contains_key(epoch));
        for epoch in waiting.copied().collect::<Vec<_>>() {
            let Some(holding) = self.grants.get(&epoch) else {
                continue;
            };
            let Some(lost) = holding.parts.first() else {
                continue;
            };
            // Many leases are equal when many nodes are lost, and each search looks at all nodes.
            if in_vain.contains(&holding.replace) {
                continue;
            }
            let left = lost.units_by_node();
            let same = self.cluster.equal_on(lost.node, &holding.replace);
            match same.or_else(|| self.cluster.choose_equal(&holding.replace, None)) {
                Some(chosen) => drop(self.offer_instead(epoch, left, chosen)),
                None => drop(in_vain.insert(holding.replace.clone())),
            }
        }
    }
}
