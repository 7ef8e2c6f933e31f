//! The phases of a grant: offered, acknowledged, confirmed, renewed, lapsed. Then its end: the offer fails
//! or the lease is over, the nodes withdraw it, and the units become free.
//!
//! Invariants: a client learns of a lease only when all of its nodes serve it and it is durable. A unit
//! returns to the cluster only from a part that is gone. The quota use of a part is returned once.

use std::collections::BTreeMap;
use std::sync::Arc;

use causeway_proto::request::Placement;

use super::action::{Action, EndReason, Grant, GrantedUnit, Refusal};
use super::alarm::Alarm;
use super::change::{Change, LeaseRow, UnitRow};
use super::event::{GrantReport, NewRequest};
use super::holding::{GrantPart, Holding, PartState, Phase, Queued};
use super::id::Epoch;
use super::manager::{Manager, Standing};
use super::silence::{self, Silence};
use crate::inventory::{Chosen, Level, Manner, NodeId, SelectionError};
use crate::policy::ledger::{Exceeded, Party, Room};
use crate::time::{Span, Time, Wall};

impl Manager {
    /// Offers free units to a request, or returns why not. On an error nothing has changed.
    pub(super) fn offer(
        &mut self,
        demand: &Arc<NewRequest>,
        queued: Option<Queued>,
    ) -> Result<(), Refusal> {
        self.is_counted(&demand.party)?;
        let (room, chosen) = self.choice(demand)?;
        self.make_offer(demand, queued, room, chosen);
        Ok(())
    }

    /// The units that a request could be offered, and the room that quotas leave for it.
    pub(super) fn choice(&mut self, demand: &NewRequest) -> Result<(Room, Vec<Chosen>), Refusal> {
        let room = self.room(demand)?;
        let manner = self.manner(demand.devices.placement(), room.memory);
        match self.cluster.choose(Level::Free, &demand.devices, manner) {
            Ok(chosen) => Ok((room, chosen)),
            Err(SelectionError::Memory) => Err(Refusal::QuotaOfMemory),
            Err(SelectionError::Devices) => Err(Refusal::NothingFree),
        }
    }

    /// The room that quotas leave for a request now.
    pub(super) fn room(&self, demand: &NewRequest) -> Result<Room, Refusal> {
        let (devices, limit) = (demand.devices.count(), self.longest(demand));
        let window = self.policy.accounting_window;
        self.ledger
            .room(&demand.party, devices, limit, self.wall(), window)
            .map_err(Refusal::from)
    }

    /// Whether the use that counts for a party's quotas is known.
    ///
    /// # Errors
    /// The refusal by a quota of units in the start phase. The store has no row of a lease that has ended, but its nodes
    /// may serve it still.
    pub(super) fn is_counted(&self, party: &Party) -> Result<(), Refusal> {
        // The quotas first, because the other question looks at all nodes.
        match self.ledger.without_quota_of_units(party) {
            Err(quota) if self.settling && self.may_serve_uncounted() => Err(quota.into()),
            _ => Ok(()),
        }
    }

    /// The shorter of the request's time limit and the policy's.
    pub(super) fn longest(&self, demand: &NewRequest) -> Option<Span> {
        let limits = [demand.limit, self.policy.longest_lease];
        limits.into_iter().flatten().min()
    }

    pub(super) fn manner(&self, placement: Placement, memory: u64) -> Manner {
        Manner {
            placement,
            assignment: self.policy.assignment,
            memory,
        }
    }

    fn make_offer(
        &mut self,
        demand: &Arc<NewRequest>,
        queued: Option<Queued>,
        room: Room,
        chosen: Vec<Chosen>,
    ) {
        // Devices are taken at the offer, not at its acknowledgement: no second offer can choose them
        // meanwhile.
        let epoch = self.next_epoch();
        let mut by_node: BTreeMap<NodeId, Vec<Chosen>> = BTreeMap::new();
        for unit in chosen {
            self.cluster.take(unit.node, unit.unit);
            by_node.entry(unit.node).or_default().push(unit);
        }
        let mut parts = Vec::with_capacity(by_node.len());
        for (node, units) in by_node {
            parts.push(self.ask(demand, epoch, node, units, room.limit));
        }
        let holding = Holding {
            epoch,
            demand: demand.clone(),
            queued,
            phase: Phase::Offered {
                until: self.now.after(self.policy.timing.acknowledge),
            },
            limit: room.limit,
            ends: room.limit.map(|limit| self.now.after(limit)),
            since: self.wall(),
            moved: Vec::new(),
            replace: self.replaceable(demand, &parts),
            parts,
            silence: Silence::default(),
        };
        self.grants.insert(epoch, holding);
        self.leases.insert(demand.lease, Standing::Granted(epoch));
        self.refresh(&demand.party.user);
        self.arm_grant(epoch);
    }

    /// Asks a node to serve its part. From now on the part counts for the party's quotas.
    fn ask(
        &mut self,
        demand: &NewRequest,
        epoch: Epoch,
        node: NodeId,
        units: Vec<Chosen>,
        limit: Option<Span>,
    ) -> GrantPart {
        let promised = Span(limit.map_or(0, |of| of.0.saturating_mul(units.len() as u64)));
        let memory = memory_of(&units);
        self.ledger
            .add(&demand.party, units.len() as u32, memory, promised);
        if let Some(node) = self.nodes.get_mut(&node) {
            node.grants.insert(epoch);
        }
        self.send_grant(demand, (epoch, node), &units, limit);
        GrantPart {
            node,
            units,
            state: PartState::Asked,
            sessions: 0,
            counted: true,
            promised,
        }
    }

    /// Sends a node its part of a grant.
    pub(super) fn send_grant(
        &mut self,
        demand: &NewRequest,
        (epoch, node): (Epoch, NodeId),
        units: &[Chosen],
        limit: Option<Span>,
    ) {
        let granted = units.iter().map(|of| GrantedUnit {
            unit: of.unit,
            memory_limit: of.limit,
        });
        let grant = Grant {
            node,
            lease: demand.lease,
            epoch,
            user: demand.party.user.clone(),
            units: granted.collect(),
            limit,
            autonomy: self.policy.timing.autonomy,
            resume: self.policy.timing.resume,
        };
        self.act(Action::Grant(grant));
    }

    pub(super) fn acknowledged(&mut self, word: GrantReport) {
        if !self.knows(word.node, word.lease, word.epoch) {
            // The node serves a grant that is over or unknown here, so it must withdraw it.
            self.stray(word.node, word.lease, word.epoch);
            return;
        }
        let Some(holding) = self.grants.get_mut(&word.epoch) else {
            return;
        };
        // A returning node lists its grants, which comes here too. Then the part may have another state,
        // and keeps it.
        let mut has_begun = false;
        if let Some(part) = holding.part(word.node)
            && part.state == PartState::Asked
        {
            part.state = PartState::Serving;
            has_begun = true;
        }
        let is_moving = holding.is_moving();
        let offered = matches!(holding.phase, Phase::Offered { .. });
        if offered
            && holding
                .parts
                .iter()
                .all(|of| of.state == PartState::Serving)
        {
            self.grant_complete(word.epoch);
        } else if has_begun && is_moving {
            self.move_ready(word.epoch);
        }
    }

    /// All nodes serve the grant: stores it and tells the client.
    fn grant_complete(&mut self, epoch: Epoch) {
        let (now, timing) = (self.now, self.policy.timing.clone());
        let Some(holding) = self.grants.get_mut(&epoch) else {
            return;
        };
        let stored = holding.queued.take().is_some_and(|of| of.stored);
        let (lease, reserve) = (holding.demand.lease, holding.demand.reserve);
        holding.phase = match reserve {
            true => Phase::Reserved {
                until: now.after(timing.reservation),
            },
            false => Phase::Active {
                until: now.after(timing.lease),
            },
        };
        holding.silence = Silence::heard(now);
        let outcome = holding.outcome(self.skew);
        // Both rows change in one transition, so a restart finds either the waiting request or the lease.
        if stored {
            self.store(Change::DeleteWaiting(lease));
        }
        self.store_lease(epoch);
        self.arm_grant(epoch);
        self.tell(lease, outcome);
    }

    pub(super) fn store_lease(&mut self, epoch: Epoch) {
        let Some(holding) = self.grants.get(&epoch) else {
            return;
        };
        let there = holding
            .parts
            .iter()
            .filter(|of| of.state != PartState::Gone);
        let row = |of: &Chosen| UnitRow {
            unit: of.unit,
            memory: of.memory,
        };
        let units = |of: &GrantPart| (of.node, of.units.iter().map(row).collect());
        let row = LeaseRow {
            lease: holding.demand.lease,
            epoch,
            user: holding.demand.party.user.clone(),
            groups: holding.demand.party.groups.clone(),
            devices: holding.demand.devices.clone(),
            units: there.map(units).collect(),
            lost: holding.lost().map(units).collect(),
            moved: holding.moved.clone(),
            replace: holding.replace.clone(),
            since: holding.since,
            limit: holding.limit,
            confirmed: !matches!(holding.phase, Phase::Reserved { .. }),
            silence: holding.silence.stored(),
        };
        self.store(Change::PutLease(row));
    }

    pub(super) fn refused(&mut self, word: GrantReport) {
        if !self.knows(word.node, word.lease, word.epoch) {
            return;
        }
        // Before the units are free again: the next offer must not choose this node at once.
        self.distrust(word.node);
        self.part_lost(word.epoch, word.node);
    }

    pub(super) fn withdrawn(&mut self, word: GrantReport) {
        // The node is open again when its last unknown grant is withdrawn.
        if let Some(node) = self.nodes.get_mut(&word.node)
            && node.strays.remove(&(word.lease, word.epoch))
        {
            self.update_open(word.node);
            self.settle_if_known();
        }
        if !self.knows(word.node, word.lease, word.epoch) {
            return;
        }
        // A node ends a grant at its time limit by its own clock, so its report may precede ours a
        // little.
        let soon = self.now.after(self.policy.timing.acknowledge);
        let over = |of: &Holding| of.is_live() && of.ends.is_some_and(|ends| ends <= soon);
        if self.grants.get(&word.epoch).is_some_and(over) {
            self.end(word.epoch, EndReason::TimeLimit);
        }
        self.part_lost(word.epoch, word.node);
    }

    pub(super) fn arm_grant(&mut self, epoch: Epoch) {
        let Some(holding) = self.grants.get(&epoch) else {
            return;
        };
        let due = match holding.phase {
            Phase::Ending { .. } if self.unacknowledged(epoch).is_empty() => None,
            Phase::Ending { .. } => Some(self.now.after(self.policy.timing.repeat)),
            _ => {
                let sought = self.sought.get(&epoch).copied();
                let due = [holding.until(), self.silence_due(holding), sought];
                due.into_iter().flatten().min()
            }
        };
        self.alarms.set(Alarm::Grant(epoch), due);
    }

    /// Handles a grant's alarm.
    pub(super) fn grant_due(&mut self, epoch: Epoch) {
        let Some(holding) = self.grants.get(&epoch) else {
            return;
        };
        if self
            .sought
            .get(&epoch)
            .is_some_and(|until| *until <= self.now)
        {
            // Nobody was to seek for a row of an earlier manager.
            let reason = match holding.replace.is_empty() {
                true => EndReason::NodeLost,
                false => EndReason::NotReplaced,
            };
            self.end(epoch, reason);
            return;
        }
        let used = holding.sessions() > 0;
        if holding.is_live() && holding.ends.is_some_and(|ends| ends <= self.now) {
            self.end(epoch, EndReason::TimeLimit);
            return;
        }
        if holding.is_live() && holding.until().is_some_and(|until| until > self.now) {
            self.note_silence(epoch);
            return;
        }
        match holding.phase {
            Phase::Offered { .. } => {
                // Distrusted, because the next offer could choose a silent node again at once.
                let silent = holding
                    .parts
                    .iter()
                    .filter(|of| of.state == PartState::Asked);
                for node in silent.map(|of| of.node).collect::<Vec<_>>() {
                    self.distrust(node);
                }
                self.offer_failed(epoch);
            }
            Phase::Moving { .. } => {
                let silent = |of: &&GrantPart| of.state == PartState::Asked;
                let silent = holding.parts.iter().find(silent).map(|of| of.node);
                if let Some(node) = silent {
                    self.distrust(node);
                }
                self.move_failed(epoch);
            }
            // Open sessions prove that the client is alive, even if it does not renew.
            Phase::Reserved { .. } | Phase::Active { .. } | Phase::Lapsed { .. } if used => {
                self.make_active(epoch);
            }
            Phase::Reserved { .. } | Phase::Active { .. } => self.end(epoch, EndReason::Expired),
            Phase::Lapsed { .. } => self.end(epoch, EndReason::ClientLost),
            Phase::Ending { .. } => {
                self.say_withdrawals(epoch);
                self.arm_grant(epoch);
            }
        }
    }

    /// Extends a live lease whose holder has renewed it or has sessions open.
    pub(super) fn make_active(&mut self, epoch: Epoch) {
        let until = self.now.after(self.policy.timing.lease);
        let Some(holding) = self.grants.get_mut(&epoch).filter(|of| of.is_live()) else {
            return;
        };
        let reserved = matches!(holding.phase, Phase::Reserved { .. });
        holding.phase = Phase::Active { until };
        self.holder_heard(epoch);
        if reserved {
            self.store_lease(epoch);
        }
        self.arm_grant(epoch);
    }

    pub(super) fn sessions(&mut self, of: GrantReport, count: u32) {
        if !self.knows(of.node, of.lease, of.epoch) {
            return;
        }
        let lapse: Time = self.now.after(self.policy.timing.grace);
        let Some(holding) = self.grants.get_mut(&of.epoch) else {
            return;
        };
        let before = holding.sessions();
        if let Some(part) = holding.part(of.node) {
            part.sessions = count;
        }
        let now = holding.sessions();
        if before > 0 || now > 0 {
            self.holder_heard(of.epoch);
        }
        let Some(holding) = self.grants.get_mut(&of.epoch) else {
            return;
        };
        match holding.phase {
            Phase::Active { until } if before > 0 && now == 0 => {
                holding.phase = Phase::Lapsed {
                    until: until.min(lapse),
                };
                self.arm_grant(of.epoch);
            }
            Phase::Reserved { .. } | Phase::Lapsed { .. } if now > 0 => self.make_active(of.epoch),
            _ => {}
        }
    }
}

impl Manager {
    /// Shortest time that the next manager gives a lease, after which it may end.
    #[must_use]
    pub fn least_after_takeover(&self) -> Span {
        silence::least(&self.policy.timing)
    }

    /// When the silence of a grant's holder is to be stored.
    pub(super) fn silence_due(&self, holding: &Holding) -> Option<Time> {
        // A reservation lasts for a few seconds only, and a new manager gives them again.
        let counts = matches!(holding.phase, Phase::Active { .. } | Phase::Lapsed { .. });
        let due = holding.silence.due(&self.policy.timing, holding.epoch);
        due.filter(|_| counts)
    }

    /// Notes that a lease's holder was heard.
    pub(super) fn holder_heard(&mut self, epoch: Epoch) {
        let now = self.now;
        let Some(holding) = self.grants.get_mut(&epoch) else {
            return;
        };
        let before = std::mem::replace(&mut holding.silence, Silence::heard(now));
        if before.stored() != Span(0) && holding.is_live() {
            self.store_lease(epoch);
        }
    }

    /// Stores the silence of a grant's holder, unless open sessions prove that the holder lives.
    pub(super) fn note_silence(&mut self, epoch: Epoch) {
        let now = self.now;
        let Some(holding) = self.grants.get_mut(&epoch) else {
            return;
        };
        if holding.sessions() > 0 {
            self.holder_heard(epoch);
        } else {
            holding.silence = holding.silence.noted(now);
            self.store_lease(epoch);
        }
        self.arm_grant(epoch);
    }
}

impl From<Exceeded> for Refusal {
    fn from(exceeded: Exceeded) -> Self {
        match exceeded {
            Exceeded::Devices => Self::QuotaOfDevices,
            Exceeded::Memory => Self::QuotaOfMemory,
            Exceeded::Time => Self::QuotaOfTime,
            Exceeded::Class => Self::Class,
        }
    }
}

/// Memory of units, as quotas count it.
pub(super) fn memory_of(units: &[Chosen]) -> u64 {
    let memory = units.iter().map(|of| of.memory);
    memory.fold(0, u64::saturating_add)
}

impl Manager {
    /// A node does not serve its part, and never will: the part's units become free.
    pub(super) fn part_lost(&mut self, epoch: Epoch, node: NodeId) {
        let Some(holding) = self.grants.get(&epoch) else {
            return;
        };
        let (phase, lease) = (holding.phase, holding.demand.lease);
        if holding.is_replaceable() {
            self.part_gone(epoch, node);
            self.seek(epoch, node);
            return;
        }
        // The time has to be charged before the part is gone: `settle_time` skips parts that are gone.
        if holding.is_live() {
            self.settle_time(epoch, Some(node));
        }
        self.part_gone(epoch, node);
        self.uncount(epoch, Some(node));
        let gone = self.grants.get(&epoch).is_some_and(Holding::is_gone);
        match phase {
            Phase::Offered { .. } => self.offer_failed(epoch),
            Phase::Moving { .. } => self.move_failed(epoch),
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
            // What is gone and still counts is being replaced.
            if live && (part.state != PartState::Gone || part.counted) {
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
    pub(super) fn drop_offer(&mut self, epoch: Epoch) -> Option<(Arc<NewRequest>, Option<Queued>)> {
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
        self.end_move_of(epoch);
        if self.sought.remove(&epoch).is_some() {
            self.uncount(epoch, None);
        }
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
            Some(Phase::Moving { .. }) => self.move_failed(epoch),
            _ => self.end(epoch, reason),
        }
    }

    /// Withdraws a grant from its nodes. The grant is kept until the last part is gone.
    pub(super) fn wind_up(&mut self, epoch: Epoch, reason: Option<EndReason>) {
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
