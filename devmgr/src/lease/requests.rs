//! Handles the requests of clients and administrators. Then waiting requests: how they get their places in
//! the queue, what their clients are told, and how they leave it.
//!
//! [`serving`](super::serving) decides whose turn it is. Invariants: a caller who names another user's
//! lease learns nothing, not even whether it exists. A request has at most one place, and its alarm exists
//! as long as that place.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use causeway_proto::request::DeviceRequest;

use super::action::{Action, EndReason, Outcome, Refusal, Refused};
use super::alarm::Alarm;
use super::change::{Change, WaitingRow};
use super::event::NewRequest;
use super::holding::{PartState, Phase, Queued, Waiting};
use super::id::LeaseId;
use super::manager::{Manager, Standing};
use super::reasons::Reasons;
use super::shortfall::Shortfall;
use crate::inventory::{Level, NodeId, SelectionError, Unit};
use crate::policy::UserName;
use crate::policy::queue::QueuePlace;
use crate::time::Span;

impl Manager {
    pub(super) fn request(&mut self, new: NewRequest) {
        let lease = new.lease;
        if let Some(standing) = self.leases.get(&lease).copied() {
            if self.is_of(lease, &new.party.user) {
                self.client_back(lease, standing);
            } else {
                self.tell(lease, Outcome::Unknown);
            }
            return;
        }
        let demand = Arc::new(new);
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
    pub fn consider(&mut self, demand: &NewRequest) -> Result<Vec<(NodeId, Unit)>, Refused> {
        let considered = self.conceivable(demand).and_then(|memory| {
            let choice = self.choice(demand);
            choice.map_err(|why| self.never(demand, memory).unwrap_or(why))
        });
        match considered {
            Ok((_, chosen)) => Ok(chosen.iter().map(|of| (of.node, of.unit)).collect()),
            Err(why) => Err(self.explained(demand, why)),
        }
    }

    /// The most memory that quotas could ever leave for a request.
    pub(super) fn conceivable(&self, demand: &NewRequest) -> Result<u64, Refusal> {
        let (devices, limit) = (demand.devices.count(), self.longest(demand));
        let memory = self
            .ledger
            .conceivable(&demand.party, devices, limit, demand.class);
        Ok(memory?)
    }

    /// Why a request could not be served even if everything were free; `None` if it could.
    pub(super) fn never(&mut self, demand: &NewRequest, memory: u64) -> Option<Refusal> {
        let manner = self.manner(demand.devices.placement(), memory);
        match self.cluster.choose(Level::Known, &demand.devices, manner) {
            Err(SelectionError::Memory) => Some(Refusal::QuotaOfMemory),
            // In the start phase, nodes that have not joined yet may have fitting devices.
            Err(SelectionError::Devices) if !self.settling => Some(Refusal::NothingFits),
            _ => None,
        }
    }

    /// Makes an offer or queues the request, or returns why neither is possible.
    fn answer(&mut self, demand: &Arc<NewRequest>) -> Result<Outcome, Refusal> {
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
        // In the start phase, the devices may be on a node that has not joined yet, and use is not known yet.
        let may_change = matches!(
            why,
            Refusal::NothingFree | Refusal::QuotaOfDevices | Refusal::QuotaOfMemory
        );
        let held_back = || self.settling && may_change;
        if !demand.wait && !held_back() && !self.is_coming_back(demand, why) {
            return Err(why);
        }
        self.check_queue(demand)?;
        let place = self.queue.new_place();
        let queued = self.queued(place);
        self.enqueue(demand, queued);
        if !demand.wait {
            self.hold_back(place);
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
    pub(super) fn is_coming_back(&mut self, demand: &NewRequest, why: Refusal) -> bool {
        let mut units = Vec::new();
        let mut is_own = false;
        for epoch in &self.ending {
            let Some(holding) = self.grants.get(epoch) else {
                continue;
            };
            is_own |= holding.demand.party.user == demand.party.user;
            for part in &holding.parts {
                let connected = self.nodes.get(&part.node).is_some_and(|of| of.connected);
                // A disconnected node cannot report that its units are free, so they are not coming back
                // soon.
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
            // The new stream has not been told.
            waiting.told_reasons = None;
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

    /// Renews a lease, and confirms a reservation if `confirm` says so.
    pub(super) fn renewed(&mut self, lease: LeaseId, user: &UserName, confirm: bool) {
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

    /// Ends a lease or request.
    pub(super) fn over(&mut self, lease: LeaseId, reason: EndReason) {
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

/// Number of waiting requests, from the oldest on, whose shortfall and reasons are reported.
const MOST_EXPLAINED: usize = 1000;
/// Changed reasons are reported with each of so many reports of positions.
const REASONS_EVERY: u64 = 10;
/// Maximum number of a user's waiting requests that name single devices. Each of them is checked against
/// all devices again and again; other requests are checked against the few classes of devices.
const NAMING: usize = 16;

impl Manager {
    /// Checks that neither the queue nor the user's part of it is full.
    pub(super) fn check_queue(&self, demand: &NewRequest) -> Result<(), Refusal> {
        if self.queue.len() >= self.policy.longest_queue as usize {
            return Err(Refusal::QueueFull);
        }
        // The limit of one user keeps a user from filling the queue for everyone.
        let own = self.queue.count_of(&demand.party.user);
        if own >= self.policy.longest_queue_per_user as usize {
            return Err(Refusal::QueueFullOfOwn);
        }
        // Counted only for requests that name devices, because the count goes over the whole queue.
        let is_like = |of: &Waiting| {
            of.demand.party.user == demand.party.user && of.demand.devices.names_devices()
        };
        if demand.devices.names_devices()
            && self
                .queue
                .iter()
                .filter(|(_, of)| is_like(of))
                .take(NAMING)
                .count()
                >= NAMING
        {
            return Err(Refusal::QueueFullOfOwn);
        }
        Ok(())
    }

    /// Keeps a request that does not wait in the queue for `Timing::hand_over`, and refuses it after
    /// that.
    pub(super) fn hold_back(&mut self, place: QueuePlace) {
        let until = self.now.after(self.policy.timing.hand_over);
        self.held_back.insert(place, until);
        self.arm_waiting(place);
    }

    pub(super) fn queued(&self, place: QueuePlace) -> Queued {
        Queued {
            place,
            since: self.wall(),
            overdue: self.now.after(self.policy.timing.patience),
            away: None,
            stored: false,
        }
    }

    /// Gives a request that is willing to wait, and got an offer at once, a place to return to if the
    /// offer fails.
    pub(super) fn keep_place(&mut self, demand: &Arc<NewRequest>) {
        let place = self.queue.new_place();
        let queued = self.queued(place);
        if let Some(Standing::Granted(epoch)) = self.leases.get(&demand.lease)
            && let Some(holding) = self.grants.get_mut(epoch)
        {
            holding.queued = Some(queued);
        }
    }

    /// Puts a request at its place, durably if it is willing to wait.
    pub(super) fn enqueue(&mut self, demand: &Arc<NewRequest>, queued: Queued) {
        // A request that does not wait is answered soon. After a crash, its client asks anew.
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
                replace: demand.replace,
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
            // No client has position 0, so the first report is always a change.
            told: (0, None),
            told_reasons: None,
        };
        self.leases.insert(demand.lease, Standing::Waiting(place));
        self.queue.insert(place, user, waiting);
        self.show(place);
        self.arm_waiting(place);
    }

    /// Updates whether a request takes turns for its user: while its client is connected and some device
    /// may fit it.
    pub(super) fn show(&mut self, place: QueuePlace) {
        let Some(waiting) = self.queue.get(place) else {
            return;
        };
        // A request that cannot be served must not block its user's later requests.
        let present = waiting.away.is_none() && !self.hopeless.contains_key(&place);
        let user = waiting.demand.party.user.clone();
        self.queue.set_present(place, present);
        self.refresh(&user);
    }

    /// Returns a request whose offer failed to its place.
    pub(super) fn requeue(&mut self, demand: &Arc<NewRequest>, queued: Queued) {
        if demand.wait || self.settling {
            let place = queued.place;
            self.enqueue(demand, queued);
            if !demand.wait {
                self.hold_back(place);
            }
            self.chance = true;
        } else {
            self.again.push(demand.clone());
        }
    }

    /// Removes a request from the queue, with its alarm.
    pub(super) fn dequeue(&mut self, place: QueuePlace) -> Option<Waiting> {
        let waiting = self.queue.remove(place)?;
        self.alarms.set(Alarm::Waiting(place), None);
        self.held_back.remove(&place);
        self.unchecked.remove(&place);
        self.from_before.remove(&place);
        self.hopeless.remove(&place);
        // The user's next request takes its turn, so the user moves in the fair order.
        self.refresh(&waiting.demand.party.user);
        if self.aside.as_ref().is_some_and(|of| of.place == place) {
            self.drop_aside();
        }
        Some(waiting)
    }

    pub(super) fn arm_waiting(&mut self, place: QueuePlace) {
        let Some(waiting) = self.queue.get(place) else {
            return;
        };
        let overdue = (waiting.overdue > self.now).then_some(waiting.overdue);
        let held_back = self.held_back.get(&place).copied();
        let held_back = held_back.filter(|until| *until > self.now);
        // At most one of these matters: an absent client cannot be served, and a request that is held back
        // is refused before it is overdue.
        let due = waiting.away.or(held_back).or(overdue);
        let hopeless = self.hopeless.get(&place).copied();
        let due = due.into_iter().chain(hopeless).min();
        self.alarms.set(Alarm::Waiting(place), due);
    }

    pub(super) fn waiting_due(&mut self, place: QueuePlace) {
        let away = self.queue.get(place).and_then(|of| of.away);
        if away.is_some_and(|until| until <= self.now) {
            self.give_up(place, EndReason::Expired);
            return;
        }
        let hopeless = self.hopeless.get(&place);
        if hopeless.is_some_and(|until| *until <= self.now) {
            self.refuse(place, Refusal::NothingFits);
            return;
        }
        // The request has become overdue, so units may be set aside for it now.
        self.chance = true;
        self.arm_waiting(place);
    }

    /// Ends a waiting request that gets nothing.
    pub(super) fn give_up(&mut self, place: QueuePlace, reason: EndReason) {
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

    /// Refuses a request in the queue.
    pub(super) fn refuse(&mut self, place: QueuePlace, refusal: Refusal) {
        if let Some(waiting) = self.dequeue(place) {
            self.leases.remove(&waiting.demand.lease);
            if waiting.stored {
                self.store(Change::DeleteWaiting(waiting.demand.lease));
            }
            let refused = self.explained(&waiting.demand, refusal);
            self.tell(waiting.demand.lease, Outcome::Refused(refused));
        }
    }

    pub(super) fn position(&mut self, place: QueuePlace) -> Outcome {
        let demand = self.queue.get(place).map(|of| of.demand.clone());
        Outcome::Waiting {
            position: self.queue.before(place) as u32 + 1,
            of: self.queue.len() as u32,
            shortfall: demand.and_then(|of| self.shortfall_of_open(&of.devices)),
            // The next report of positions has them.
            reasons: None,
        }
    }

    /// Tells waiting clients their position, what they lack, and why they wait, where that has changed.
    pub(super) fn tell_positions(&mut self) {
        self.update_totals(true);
        let shortfalls = self.shortfalls();
        let mut changed = BTreeSet::new();
        for (position, (place, waiting)) in (1..).zip(self.queue.iter_mut()) {
            let shortfall = shortfalls.get(&waiting.demand.devices);
            if (waiting.told.0, waiting.told.1.as_ref()) != (position, shortfall) {
                waiting.told = (position, shortfall.cloned());
                changed.insert(place);
            }
        }
        // After the shortfalls, which are among the reasons.
        let mut reasons = self.reasons_to_tell();
        changed.extend(reasons.keys());
        let of = self.queue.len() as u32;
        for place in changed {
            // An absent client has no stream. It gets its position when it returns.
            let present = self.queue.get(place).filter(|of| of.away.is_none());
            let Some(waiting) = present else {
                continue;
            };
            let (position, shortfall) = waiting.told.clone();
            let outcome = Outcome::Waiting {
                position,
                of,
                shortfall,
                reasons: reasons.remove(&place).map(Box::new),
            };
            self.tell(waiting.demand.lease, outcome);
        }
    }

    /// The reasons that are to be reported now: those of new requests, and now and then those that have changed.
    fn reasons_to_tell(&mut self) -> BTreeMap<QueuePlace, Reasons> {
        // Shares change with every grant, and with them the reasons of many requests.
        let is_due = self.now >= self.reasons_due;
        let first = || self.queue.iter().take(MOST_EXPLAINED);
        if !is_due && first().all(|(_, of)| of.told_reasons.is_some()) {
            return BTreeMap::new();
        }
        if is_due {
            let interval = self.policy.timing.position.0;
            let next = interval.saturating_mul(REASONS_EVERY);
            self.reasons_due = self.now.after(Span(next));
        }
        let mut reasons = BTreeMap::new();
        // Each explanation may compare the quotas of several groups.
        let wanted = |of: &Waiting| is_due || of.told_reasons.is_none();
        for (place, _, of) in self.reasons_of_first(MOST_EXPLAINED, wanted) {
            let Some(waiting) = self.queue.get_mut(place) else {
                continue;
            };
            let now = of.without_times();
            let is_new = waiting.told_reasons.as_ref() != Some(&now);
            if is_new {
                waiting.told_reasons = Some(now);
                reasons.insert(place, of);
            }
        }
        reasons
    }

    /// The shortfalls of waiting requests, by the devices requested.
    fn shortfalls(&mut self) -> BTreeMap<DeviceRequest, Shortfall> {
        let asked = self.queue.iter().map(|(_, of)| of.demand.clone());
        // Each shortfall counts devices of the whole cluster. Clients further back get their position only.
        let asked: Vec<_> = asked.take(MOST_EXPLAINED).collect();
        let mut looked_at = BTreeSet::new();
        let mut shortfalls = BTreeMap::new();
        for demand in &asked {
            // Many requests are alike, and their shortfall is computed once.
            if looked_at.insert(&demand.devices)
                && let Some(shortfall) = self.shortfall_of_open(&demand.devices)
            {
                shortfalls.insert(demand.devices.clone(), shortfall);
            }
        }
        shortfalls
    }
}
