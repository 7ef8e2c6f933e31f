//! Waiting requests: how they get their places in the queue, what their clients are told, and how they
//! leave it.
//!
//! [`requests`](super::requests) handles clients' calls; [`serving`](super::serving) decides whose turn
//! it is. Invariant: a request has at most one place, and its alarm exists as long as that place.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use causeway_proto::request::DeviceRequest;

use super::action::{Action, EndReason, Outcome, Refusal};
use super::alarm::Alarm;
use super::change::{Change, WaitingRow};
use super::holding::{Demand, Queued, Waiting};
use super::manager::{HeldBack, Manager, Standing};
use super::shortfall::Shortfall;
use crate::policy::queue::QueuePlace;

/// Number of waiting requests, from the oldest on, whose shortfall is computed.
const MOST_SHORTFALLS: usize = 1000;
/// Maximum number of a user's waiting requests that name single devices. Each of them is checked against
/// all devices again and again; other requests are checked against the few classes of devices.
const NAMING: usize = 16;

impl Manager {
    /// Checks that neither the queue nor the user's part of it is full.
    pub(super) fn check_queue(&self, demand: &Demand) -> Result<(), Refusal> {
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
    pub(super) fn hold_back(&mut self, place: QueuePlace, why: Refusal) {
        let until = self.now.after(self.policy.timing.hand_over);
        self.held_back.insert(place, HeldBack { until, why });
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
    pub(super) fn keep_place(&mut self, demand: &Arc<Demand>) {
        let place = self.queue.new_place();
        let queued = self.queued(place);
        if let Some(Standing::Granted(epoch)) = self.leases.get(&demand.lease)
            && let Some(holding) = self.grants.get_mut(epoch)
        {
            holding.queued = Some(queued);
        }
    }

    /// Puts a request at its place, durably if it is willing to wait.
    pub(super) fn enqueue(&mut self, demand: &Arc<Demand>, queued: Queued) {
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
    pub(super) fn requeue(&mut self, demand: &Arc<Demand>, queued: Queued) {
        if demand.wait || self.settling {
            let place = queued.place;
            self.enqueue(demand, queued);
            if !demand.wait {
                self.hold_back(place, Refusal::NothingFree);
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
        let held_back = self.held_back.get(&place).map(|of| of.until);
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
        }
    }

    /// Tells waiting clients their position and what they lack, where that has changed.
    pub(super) fn tell_positions(&mut self) {
        self.update_totals(true);
        let shortfalls = self.shortfalls();
        let of = self.queue.len() as u32;
        let mut told = Vec::new();
        for (position, (_, waiting)) in (1..).zip(self.queue.iter_mut()) {
            let shortfall = shortfalls.get(&waiting.demand.devices);
            if (waiting.told.0, waiting.told.1.as_ref()) != (position, shortfall) {
                waiting.told = (position, shortfall.cloned());
                // An absent client has no stream. It gets its position when it returns.
                if waiting.away.is_none() {
                    told.push((waiting.demand.lease, waiting.told.clone()));
                }
            }
        }
        for (lease, (position, shortfall)) in told {
            self.tell(
                lease,
                Outcome::Waiting {
                    position,
                    of,
                    shortfall,
                },
            );
        }
    }

    /// The shortfalls of waiting requests, by the devices requested.
    fn shortfalls(&mut self) -> BTreeMap<DeviceRequest, Shortfall> {
        let asked = self.queue.iter().map(|(_, of)| of.demand.clone());
        // Each shortfall counts devices of the whole cluster. Clients further back get their position only.
        let asked: Vec<_> = asked.take(MOST_SHORTFALLS).collect();
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
