//! What clients and administrators ask.
//!
//! Invariant: who names a lease that is not his learns nothing, not even that it exists.

use std::sync::Arc;

use super::action::{Action, EndReason, Outcome, Refusal};
use super::alarm::Alarm;
use super::change::{Change, WaitingRow};
use super::event::NewRequest;
use super::holding::{Demand, Phase, Queued, Waiting};
use super::id::LeaseId;
use super::manager::{Manager, Standing};
use crate::inventory::{Level, Unfit};
use crate::policy::UserName;
use crate::policy::queue::Place;

impl Manager {
    pub(super) fn request(&mut self, new: NewRequest) {
        let lease = new.lease;
        if let Some(standing) = self.leases.get(&lease).copied() {
            if self.is_of(lease, &new.user) {
                self.client_back(lease, standing);
            } else {
                self.tell(lease, Outcome::Refused(Refusal::IdInUse));
            }
            return;
        }
        let demand = Arc::new(Demand::from(new));
        let outcome = match self.answer(&demand) {
            Ok(outcome) => outcome,
            Err(refusal) => Outcome::Refused(refusal),
        };
        self.tell(lease, outcome);
    }

    /// An offer, a place in the queue, or why neither.
    fn answer(&mut self, demand: &Arc<Demand>) -> Result<Outcome, Refusal> {
        let devices = demand.devices.count();
        let limit = self.longest(demand);
        let memory = self
            .ledger
            .conceivable(&demand.party, devices, limit, demand.class)?;
        // The usual case: it is free, and nobody of this user's waits before it.
        let waits = demand.wait && self.queue.first_of(&demand.party.user).is_some();
        let mut why = Refusal::NothingFree;
        if !waits {
            match self.offer(demand, None) {
                Ok(()) => {
                    if demand.wait {
                        self.keep_place(demand);
                    }
                    return Ok(Outcome::Offered);
                }
                Err(refusal) => why = refusal,
            }
        }
        let manner = self.manner(demand.devices.placement(), memory);
        let ever = self.cluster.choose(Level::Known, &demand.devices, manner);
        match ever {
            Err(Unfit::Memory) => return Err(Refusal::QuotaOfMemory),
            // Nodes that have not come yet since the start may have what fits.
            Err(Unfit::Devices) if self.awaited.is_empty() => return Err(Refusal::NothingFits),
            _ => {}
        }
        let held_back = self.settling && why == Refusal::NothingFree;
        if !demand.wait && !held_back {
            return Err(why);
        }
        if self.queue.len() >= self.policy.longest_queue as usize {
            return Err(Refusal::QueueFull);
        }
        let place = self.queue.new_place();
        let queued = self.queued(place);
        self.enqueue(demand, queued);
        // What is set aside for another may be free for long enough.
        self.chance |= self.aside.is_some();
        Ok(self.position(place))
    }

    fn queued(&self, place: Place) -> Queued {
        Queued {
            place,
            since: self.wall(),
            overdue: self.now.after(self.policy.timing.patience),
            away: None,
            stored: false,
        }
    }

    /// A request that would wait and got an offer at once has a place to go back to.
    fn keep_place(&mut self, demand: &Arc<Demand>) {
        let place = self.queue.new_place();
        let queued = self.queued(place);
        if let Some(Standing::Granted(epoch)) = self.leases.get(&demand.lease)
            && let Some(holding) = self.grants.get_mut(epoch)
        {
            holding.queued = Some(queued);
        }
    }

    /// Puts a request at its place, durably if it asked to wait.
    pub(super) fn enqueue(&mut self, demand: &Arc<Demand>, queued: Queued) {
        if demand.wait && !queued.stored {
            self.store(Change::PutWaiting(WaitingRow {
                lease: demand.lease,
                place: queued.place,
                user: demand.party.user.clone(),
                groups: demand.party.groups.clone(),
                devices: demand.devices.clone(),
                class: demand.class,
                limit: demand.limit,
                reserve: demand.reserve,
                since: queued.since,
            }));
        }
        let (place, user) = (queued.place, demand.party.user.clone());
        let waiting = Waiting {
            demand: demand.clone(),
            since: queued.since,
            overdue: queued.overdue,
            away: queued.away,
            stored: demand.wait,
            told: 0,
        };
        let present = waiting.away.is_none();
        if !demand.wait {
            self.held_back.insert(place);
        }
        self.leases.insert(demand.lease, Standing::Waiting(place));
        self.queue.insert(place, user.clone(), waiting);
        self.queue.set_present(place, present);
        self.refresh(&user);
        self.arm_waiting(place);
    }

    /// A request whose offer came to nothing is where it was before.
    pub(super) fn requeue(&mut self, demand: &Arc<Demand>, queued: Queued) {
        if demand.wait || self.settling {
            self.enqueue(demand, queued);
            self.chance = true;
        } else {
            self.again.push(demand.clone());
        }
    }

    /// Requests that do not wait and whose offer came to nothing: another offer, or a refusal.
    pub(super) fn offer_again(&mut self) {
        for demand in std::mem::take(&mut self.again) {
            match self.answer(&demand) {
                Ok(_) => {}
                Err(refusal) => self.tell(demand.lease, Outcome::Refused(refusal)),
            }
        }
    }

    /// Takes a request out of the queue, and its alarm.
    pub(super) fn dequeue(&mut self, place: Place) -> Option<Waiting> {
        let waiting = self.queue.remove(place)?;
        self.alarms.set(Alarm::Waiting(place), None);
        self.held_back.remove(&place);
        self.refresh(&waiting.demand.party.user);
        if self.aside.as_ref().is_some_and(|of| of.place == place) {
            self.drop_aside();
        }
        Some(waiting)
    }

    fn arm_waiting(&mut self, place: Place) {
        let Some(waiting) = self.queue.get(place) else {
            return;
        };
        let overdue = (waiting.overdue > self.now).then_some(waiting.overdue);
        let due = waiting.away.or(overdue);
        self.alarms.set(Alarm::Waiting(place), due);
    }

    pub(super) fn waiting_due(&mut self, place: Place) {
        let away = self.queue.get(place).and_then(|of| of.away);
        if away.is_some_and(|until| until <= self.now) {
            self.give_up(place, EndReason::Expired);
            return;
        }
        self.chance = true;
        self.arm_waiting(place);
    }

    /// A request waits no longer, and gets nothing.
    fn give_up(&mut self, place: Place, reason: EndReason) {
        let Some(waiting) = self.dequeue(place) else {
            return;
        };
        let demand = waiting.demand;
        self.leases.remove(&demand.lease);
        if waiting.stored {
            self.store(Change::DeleteWaiting(demand.lease));
        }
        self.act(Action::Ended {
            lease: demand.lease,
            user: demand.party.user.clone(),
            reason,
        });
        self.chance = true;
    }

    /// Refuses a request that does not wait.
    pub(super) fn refuse(&mut self, place: Place, refusal: Refusal) {
        if let Some(waiting) = self.dequeue(place) {
            self.leases.remove(&waiting.demand.lease);
            self.tell(waiting.demand.lease, Outcome::Refused(refusal));
        }
    }

    fn client_back(&mut self, lease: LeaseId, standing: Standing) {
        if let Standing::Waiting(place) = standing
            && let Some(waiting) = self.queue.get_mut(place)
        {
            waiting.away = None;
            let user = waiting.demand.party.user.clone();
            self.queue.set_present(place, true);
            self.refresh(&user);
            self.arm_waiting(place);
            self.chance = true;
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
                    self.give_up(place, EndReason::Released);
                    return;
                }
                waiting.away = Some(until);
                let user = waiting.demand.party.user.clone();
                self.queue.set_present(place, false);
                self.refresh(&user);
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

    /// Whether a request or lease is this user's.
    fn is_of(&self, lease: LeaseId, user: &UserName) -> bool {
        let demand = match self.leases.get(&lease) {
            Some(Standing::Waiting(place)) => self.queue.get(*place).map(|of| &of.demand),
            Some(Standing::Granted(epoch)) => self.grants.get(epoch).map(|of| &of.demand),
            None => None,
        };
        demand.is_some_and(|demand| demand.party.user == *user)
    }

    /// How a request or lease stands.
    fn outcome(&self, lease: LeaseId) -> Outcome {
        match self.leases.get(&lease) {
            Some(Standing::Waiting(place)) => self.position(*place),
            Some(Standing::Granted(epoch)) => {
                let Some(holding) = self.grants.get(epoch) else {
                    return Outcome::Unknown;
                };
                let granted = || holding.granted(self.skew);
                match holding.phase {
                    Phase::Offered { .. } => Outcome::Offered,
                    Phase::Reserved { .. } => Outcome::Reserved(granted()),
                    _ => Outcome::Leased(granted()),
                }
            }
            None => Outcome::Unknown,
        }
    }

    fn position(&self, place: Place) -> Outcome {
        Outcome::Waiting {
            position: self.queue.before(place) as u32 + 1,
            of: self.queue.len() as u32,
        }
    }

    /// Tells those who wait where they are, if they do not know.
    pub(super) fn tell_positions(&mut self) {
        self.update_totals(true);
        let of = self.queue.len() as u32;
        let mut told = Vec::new();
        for (position, (_, waiting)) in (1..).zip(self.queue.iter_mut()) {
            if waiting.told != position {
                waiting.told = position;
                if waiting.away.is_none() {
                    told.push((waiting.demand.lease, position));
                }
            }
        }
        for (lease, position) in told {
            self.tell(lease, Outcome::Waiting { position, of });
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
            self.tell(lease, Outcome::Unknown);
            return;
        }
        if let Some(Standing::Granted(epoch)) = self.leases.get(&lease).copied() {
            let phase = self.grants.get(&epoch).map(|of| of.phase);
            let reserved = matches!(phase, Some(Phase::Reserved { .. }));
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
