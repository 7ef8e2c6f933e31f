//! Handles the requests of clients and administrators.
//!
//! Invariant: a caller who names another user's lease learns nothing, not even whether it exists.

use std::sync::Arc;

use super::action::{Action, EndReason, Outcome, Refusal, Refused};
use super::change::Change;
use super::event::NewRequest;
use super::holding::{Demand, PartState, Phase};
use super::id::LeaseId;
use super::manager::{Manager, Standing};
use crate::inventory::{Level, NodeId, SelectionError, Unit};
use crate::policy::UserName;

impl Manager {
    pub(super) fn request(&mut self, new: NewRequest) {
        let lease = new.lease;
        if let Some(standing) = self.leases.get(&lease).copied() {
            if self.is_of(lease, &new.user) {
                self.client_back(lease, standing);
            } else {
                self.tell(lease, Outcome::Unknown);
            }
            return;
        }
        let demand = Arc::new(Demand::from(new));
        let outcome = match self.answer(&demand) {
            Ok(outcome) => outcome,
            Err(why) => Outcome::Refused(self.explained(&demand, why)),
        };
        self.tell(lease, outcome);
    }

    /// Returns the units that a request would get if it were made now. Changes nothing.
    ///
    /// # Errors
    /// Why the request would be refused, or would have to wait.
    pub fn consider(&mut self, new: NewRequest) -> Result<Vec<(NodeId, Unit)>, Refused> {
        let demand = Demand::from(new);
        let considered = self.conceivable(&demand).and_then(|memory| {
            let choice = self.choice(&demand);
            choice.map_err(|why| self.never(&demand, memory).unwrap_or(why))
        });
        match considered {
            Ok((_, chosen)) => Ok(chosen.iter().map(|of| (of.node, of.unit)).collect()),
            Err(why) => Err(self.explained(&demand, why)),
        }
    }

    /// The most memory that quotas could ever leave for a request.
    pub(super) fn conceivable(&self, demand: &Demand) -> Result<u64, Refusal> {
        let (devices, limit) = (demand.devices.count(), self.longest(demand));
        let memory = self
            .ledger
            .conceivable(&demand.party, devices, limit, demand.class);
        Ok(memory?)
    }

    /// Why a request could not be served even if everything were free; `None` if it could.
    pub(super) fn never(&mut self, demand: &Demand, memory: u64) -> Option<Refusal> {
        let manner = self.manner(demand.devices.placement(), memory);
        match self.cluster.choose(Level::Known, &demand.devices, manner) {
            Err(SelectionError::Memory) => Some(Refusal::QuotaOfMemory),
            // In the start phase, nodes that have not joined yet may have fitting devices.
            Err(SelectionError::Devices) if !self.settling => Some(Refusal::NothingFits),
            _ => None,
        }
    }

    /// Makes an offer or queues the request, or returns why neither is possible.
    fn answer(&mut self, demand: &Arc<Demand>) -> Result<Outcome, Refusal> {
        let memory = self.conceivable(demand)?;
        // The usual case: the devices are free, and the user has no earlier request in the queue.
        let waits = demand.wait && self.queue.first_of(&demand.party.user).is_some();
        let mut why = Refusal::NothingFree;
        if !waits {
            match self.offer(demand, None) {
                Ok(()) => {
                    if demand.wait {
                        // If the offer fails, the request has its place by its time of arrival.
                        self.keep_place(demand);
                    }
                    return Ok(Outcome::Offered);
                }
                Err(refusal) => why = refusal,
            }
        }
        let never = self.never(demand, memory);
        let may_come = demand.wait && never == Some(Refusal::NothingFits);
        if let Some(never) = never.filter(|_| !may_come) {
            return Err(never);
        }
        // In the start phase, the devices may be on a node that has not joined yet.
        let held_back = || self.settling && why == Refusal::NothingFree;
        if !demand.wait && !held_back() && !self.is_coming_back(demand, why) {
            return Err(why);
        }
        self.check_queue(demand)?;
        let place = self.queue.new_place();
        let queued = self.queued(place);
        self.enqueue(demand, queued);
        if !demand.wait {
            self.hold_back(place, why);
        }
        if self.settling {
            self.unchecked.insert(place);
        }
        if may_come {
            self.hope(place);
        }
        // Units that are set aside for another request may be free for as long as this one needs.
        self.chance |= self.aside.is_some();
        Ok(self.position(place))
    }

    /// Whether the units or quota that a request lacks are just being released, for example because the
    /// user's previous program has just ended.
    pub(super) fn is_coming_back(&mut self, demand: &Demand, why: Refusal) -> bool {
        let mut units = Vec::new();
        let mut is_own = false;
        for epoch in &self.ending {
            let Some(holding) = self.grants.get(epoch) else {
                continue;
            };
            is_own |= holding.demand.party.user == demand.party.user;
            for part in &holding.parts {
                let connected = self.nodes.get(&part.node).is_some_and(|of| of.connected);
                if part.state == PartState::Withdrawing && connected {
                    units.extend(part.units.iter().map(|of| (part.node, of.unit)));
                }
            }
        }
        if units.is_empty() {
            return false;
        }
        match why {
            Refusal::NothingFree => {
                let manner = self.manner(demand.devices.placement(), u64::MAX);
                let choice = self.cluster.choose_with(&units, &demand.devices, manner);
                choice.is_some()
            }
            Refusal::QuotaOfDevices | Refusal::QuotaOfMemory => is_own,
            _ => false,
        }
    }

    /// Handles requests that do not wait and whose offer failed: makes another offer, or refuses.
    pub(super) fn offer_again(&mut self) {
        for demand in std::mem::take(&mut self.again) {
            match self.answer(&demand) {
                Ok(_) => {}
                Err(why) => {
                    let refused = self.explained(&demand, why);
                    self.tell(demand.lease, Outcome::Refused(refused));
                }
            }
        }
    }

    fn client_back(&mut self, lease: LeaseId, standing: Standing) {
        if let Standing::Waiting(place) = standing
            && let Some(waiting) = self.queue.get_mut(place)
        {
            waiting.away = None;
            self.show(place);
            self.arm_waiting(place);
            self.chance = true;
        }
        // If the offer fails, the request returns to the queue as one whose client is connected.
        if let Standing::Granted(epoch) = standing
            && let Some(queued) = self
                .grants
                .get_mut(&epoch)
                .and_then(|of| of.queued.as_mut())
        {
            queued.away = None;
        }
        let outcome = self.outcome(lease);
        self.tell(lease, outcome);
    }

    pub(super) fn request_lost(&mut self, lease: LeaseId) {
        let until = self.now.after(self.policy.timing.place);
        match self.leases.get(&lease).copied() {
            Some(Standing::Waiting(place)) => {
                let Some(waiting) = self.queue.get_mut(place) else {
                    return;
                };
                if !waiting.demand.wait {
                    // No client is left to answer, and a request that does not wait keeps no place.
                    self.give_up(place, EndReason::Released);
                    return;
                }
                waiting.away = Some(until);
                self.show(place);
                self.arm_waiting(place);
                if self.aside.as_ref().is_some_and(|of| of.place == place) {
                    self.drop_aside();
                }
                self.chance = true;
            }
            Some(Standing::Granted(epoch)) => {
                let holding = self.grants.get_mut(&epoch);
                if let Some(queued) = holding.and_then(|of| of.queued.as_mut()) {
                    queued.away = Some(until);
                }
            }
            None => {}
        }
    }

    /// Whether this id belongs to a request or lease of another user.
    #[must_use]
    pub fn is_anothers(&self, lease: LeaseId, user: &UserName) -> bool {
        self.leases.contains_key(&lease) && !self.is_of(lease, user)
    }

    /// Whether a request or lease belongs to this user.
    fn is_of(&self, lease: LeaseId, user: &UserName) -> bool {
        let demand = match self.leases.get(&lease) {
            Some(Standing::Waiting(place)) => self.queue.get(*place).map(|of| &of.demand),
            Some(Standing::Granted(epoch)) => self.grants.get(epoch).map(|of| &of.demand),
            None => None,
        };
        demand.is_some_and(|demand| demand.party.user == *user)
    }

    /// The state of a request or lease.
    fn outcome(&mut self, lease: LeaseId) -> Outcome {
        match self.leases.get(&lease).copied() {
            Some(Standing::Waiting(place)) => self.position(place),
            Some(Standing::Granted(epoch)) => {
                let Some(holding) = self.grants.get(&epoch) else {
                    return Outcome::Unknown;
                };
                match holding.phase {
                    Phase::Offered { .. } => Outcome::Offered,
                    _ => holding.outcome(self.skew),
                }
            }
            None => Outcome::Unknown,
        }
    }

    pub(super) fn confirm(&mut self, lease: LeaseId, user: &UserName) {
        self.renewed(lease, user, true);
    }

    pub(super) fn renew(&mut self, lease: LeaseId, user: &UserName) {
        self.renewed(lease, user, false);
    }

    fn renewed(&mut self, lease: LeaseId, user: &UserName, confirm: bool) {
        if !self.is_of(lease, user) {
            let reason = self.over.reason(lease, user);
            self.tell(lease, reason.map_or(Outcome::Unknown, Outcome::Ended));
            return;
        }
        if let Some(Standing::Granted(epoch)) = self.leases.get(&lease).copied() {
            let phase = self.grants.get(&epoch).map(|of| of.phase);
            let reserved = matches!(phase, Some(Phase::Reserved { .. }));
            // A renewal alone does not confirm a reservation.
            if confirm || !reserved {
                self.make_active(epoch);
            }
        }
        let outcome = self.outcome(lease);
        self.tell(lease, outcome);
    }

    pub(super) fn release(&mut self, lease: LeaseId, user: &UserName) {
        if !self.is_of(lease, user) {
            self.tell(lease, Outcome::Unknown);
            return;
        }
        self.over(lease, EndReason::Released);
        self.tell(lease, Outcome::Ended(EndReason::Released));
    }

    pub(super) fn revoke(&mut self, lease: LeaseId) {
        self.over(lease, EndReason::Revoked);
    }

    fn over(&mut self, lease: LeaseId, reason: EndReason) {
        match self.leases.get(&lease).copied() {
            Some(Standing::Waiting(place)) => self.give_up(place, reason),
            Some(Standing::Granted(epoch)) => {
                let live = self.grants.get(&epoch).is_some_and(|of| of.is_live());
                if live {
                    self.end(epoch, reason);
                } else if let Some((demand, queued)) = self.drop_offer(epoch) {
                    // An offer does not end by `end`, which reports only leases that clients know of.
                    if queued.is_some_and(|of| of.stored) {
                        self.store(Change::DeleteWaiting(lease));
                    }
                    self.act(Action::Ended {
                        lease,
                        user: demand.party.user.clone(),
                        reason,
                    });
                }
            }
            None => {}
        }
    }
}
