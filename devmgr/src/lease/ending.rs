//! The end of a grant: its offer fails or its lease is over, the nodes withdraw it, and the units become
//! free.
//!
//! Invariant: a unit returns to the cluster only from a part that is gone. The quota use of a part is
//! returned once.

use std::sync::Arc;

use super::action::{Action, EndReason};
use super::alarm::Alarm;
use super::change::Change;
use super::grants::memory_of;
use super::holding::{Demand, Holding, PartState, Phase, Queued};
use super::id::Epoch;
use super::manager::Manager;
use crate::inventory::NodeId;
use crate::time::{Span, Wall};

impl Manager {
    /// A node does not serve its part, and never will: the part's units become free.
    pub(super) fn part_lost(&mut self, epoch: Epoch, node: NodeId) {
        let Some(holding) = self.grants.get(&epoch) else {
            return;
        };
        let (phase, lease) = (holding.phase, holding.demand.lease);
        // The time has to be charged before the part is gone: `settle_time` skips parts that are gone.
        if holding.is_live() {
            self.settle_time(epoch, Some(node));
        }
        self.part_gone(epoch, node);
        let gone = self.grants.get(&epoch).is_some_and(Holding::is_gone);
        match phase {
            Phase::Offered { .. } => self.offer_failed(epoch),
            Phase::Ending { .. } => self.forget_if_gone(epoch),
            // Without any node, the lease has nothing left to go on with.
            _ if gone => self.end(epoch, EndReason::NodeLost),
            _ => {
                self.store_lease(epoch);
                let outcome = self.grants[&epoch].outcome(self.skew);
                self.act(Action::Reduced {
                    lease,
                    node,
                    outcome,
                });
            }
        }
    }

    /// Marks a part as gone and frees its units.
    fn part_gone(&mut self, epoch: Epoch, node: NodeId) {
        let Some(part) = self.grants.get_mut(&epoch).and_then(|of| of.part(node)) else {
            return;
        };
        // A node may report the same withdrawal twice. Its units may be in another lease by then.
        if std::mem::replace(&mut part.state, PartState::Gone) == PartState::Gone {
            return;
        }
        part.sessions = 0;
        let units: Vec<_> = part.units.iter().map(|of| of.unit).collect();
        for unit in units {
            self.unit_back(node, unit);
        }
        if let Some(node) = self.nodes.get_mut(&node) {
            node.grants.remove(&epoch);
        }
        self.uncount(epoch, Some(node));
        self.arm_node(node);
        self.chance = true;
    }

    /// Returns the units and memory of one node's part, or of all parts (`None`), to the party's quotas.
    fn uncount(&mut self, epoch: Epoch, node: Option<NodeId>) {
        let Some(holding) = self.grants.get_mut(&epoch) else {
            return;
        };
        let demand = holding.demand.clone();
        for part in &mut holding.parts {
            if node.is_none_or(|node| part.node == node) && std::mem::take(&mut part.counted) {
                let devices = part.units.len() as u32;
                let memory = memory_of(&part.units);
                self.ledger.remove(&demand.party, devices, memory, Span(0));
            }
        }
        self.refresh(&demand.party.user);
        self.chance = true;
    }

    /// Returns the reserved time of one node's part, or of all parts (`None`), to the quotas. If the
    /// lease was live, charges the time that was used.
    fn settle_time(&mut self, epoch: Epoch, node: Option<NodeId>) {
        let (wall, window) = (self.wall(), self.policy.accounting_window);
        let Some(holding) = self.grants.get_mut(&epoch) else {
            return;
        };
        let (demand, since, live) = (holding.demand.clone(), holding.since, holding.is_live());
        let most = holding
            .limit
            .map_or(u64::MAX, |limit| since.0.saturating_add(limit.0));
        // The manager may learn of an end late. A lease never uses more than its time limit.
        let end = Wall(wall.0.min(most));
        let mut rows = Vec::new();
        for part in &mut holding.parts {
            if node.is_some_and(|node| part.node != node) {
                continue;
            }
            let promised = std::mem::take(&mut part.promised);
            self.ledger.remove(&demand.party, 0, 0, promised);
            if live && part.state != PartState::Gone {
                let devices = part.units.len() as u32;
                let time = (since, end);
                rows.extend(self.ledger.write_down(&demand.party, devices, time, window));
            }
        }
        for row in rows {
            self.store(Change::PutUse(row));
        }
    }

    /// Ends an offer that failed. No client knew of it, so the request returns to its place in the queue.
    pub(super) fn offer_failed(&mut self, epoch: Epoch) {
        let Some((demand, queued)) = self.drop_offer(epoch) else {
            return;
        };
        match queued {
            Some(queued) => self.requeue(&demand, queued),
            None => self.again.push(demand),
        }
    }

    /// Withdraws an offer, and returns the request with its queue state.
    pub(super) fn drop_offer(&mut self, epoch: Epoch) -> Option<(Arc<Demand>, Option<Queued>)> {
        self.settle_time(epoch, None);
        // A failed offer leaves the quotas at once, unlike a lease, whose units count until they are
        // free.
        self.uncount(epoch, None);
        let holding = self.grants.get_mut(&epoch)?;
        let taken = (holding.demand.clone(), holding.queued.take());
        self.leases.remove(&taken.0.lease);
        self.wind_up(epoch, None);
        Some(taken)
    }

    /// Ends a live lease.
    pub(super) fn end(&mut self, epoch: Epoch, reason: EndReason) {
        if !self.grants.get(&epoch).is_some_and(Holding::is_live) {
            return;
        }
        // Before the phase changes: only live leases are charged.
        self.settle_time(epoch, None);
        let demand = self.grants[&epoch].demand.clone();
        // From now on the user may request again, while the nodes still withdraw.
        self.leases.remove(&demand.lease);
        self.store(Change::DeleteLease(demand.lease));
        self.over
            .remember(demand.lease, demand.party.user.clone(), reason);
        self.act(Action::Ended {
            lease: demand.lease,
            user: demand.party.user.clone(),
            reason,
        });
        self.wind_up(epoch, Some(reason));
    }

    /// Ends a grant, whether its client knows of it or not.
    pub(super) fn end_any(&mut self, epoch: Epoch, reason: EndReason) {
        match self.grants.get(&epoch).map(|of| of.phase) {
            Some(Phase::Offered { .. }) => self.offer_failed(epoch),
            _ => self.end(epoch, reason),
        }
    }

    /// Withdraws a grant from its nodes. The grant is kept until the last part is gone.
    fn wind_up(&mut self, epoch: Epoch, reason: Option<EndReason>) {
        if let Some(holding) = self.grants.get_mut(&epoch) {
            holding.phase = Phase::Ending { reason };
            self.ending.insert(epoch);
            for part in &mut holding.parts {
                if part.state != PartState::Gone {
                    part.state = PartState::Withdrawing;
                }
            }
        }
        self.say_withdrawals(epoch);
        self.arm_grant(epoch);
        self.forget_if_gone(epoch);
    }

    pub(super) fn say_withdrawals(&mut self, epoch: Epoch) {
        let Some(holding) = self.grants.get(&epoch) else {
            return;
        };
        let Phase::Ending { reason } = holding.phase else {
            return;
        };
        let lease = holding.demand.lease;
        for node in self.unacknowledged(epoch) {
            self.withdraw(node, lease, epoch, reason);
        }
    }

    /// Connected nodes that have not acknowledged a grant's withdrawal.
    pub(super) fn unacknowledged(&self, epoch: Epoch) -> Vec<NodeId> {
        let parts = self.grants.get(&epoch).into_iter().flat_map(|of| &of.parts);
        parts
            .filter(|part| part.state == PartState::Withdrawing)
            .map(|part| part.node)
            .filter(|node| self.nodes.get(node).is_some_and(|of| of.connected))
            .collect()
    }

    pub(super) fn forget_if_gone(&mut self, epoch: Epoch) {
        let over = |of: &Holding| of.is_ending() && of.is_gone();
        if self.grants.get(&epoch).is_some_and(over) {
            self.grants.remove(&epoch);
            self.ending.remove(&epoch);
            self.alarms.set(Alarm::Grant(epoch), None);
        }
    }
}
