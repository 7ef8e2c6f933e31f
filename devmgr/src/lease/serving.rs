//! Decides which request is served when units become free.
//!
//! 1. The *head* is tried first. It is the oldest request that has waited longer than `Timing::patience`
//!    and could be served. So its client is connected, its quotas have room, and open nodes have the
//!    devices. If it asks for several units and not all are free, units are *set aside* for it. These are
//!    the units of open nodes that are free soonest, by their leases' time limits. Units that are set
//!    aside go only to leases that are certain to end before the head could start.
//! 2. All others by dominant-resource fairness, each user's oldest request first. Requests that do not
//!    fit are passed over (back-filling), which takes nothing from the head.
//!
//! The waiting time is bounded. Let L be the longest duration of a lease (its time limit, or until its
//! release). Let G be the time that a node takes to release units. Count only the time in which a request
//! could be served. With r older servable ones, it starts after `patience + (r + 1) × (L + G)` at the
//! latest. The reason: each head starts when the leases on its units are over, and no later request is
//! ever head before it. Invariant: a unit that is set aside and ready is taken in the cluster.

use std::collections::{BTreeMap, BTreeSet};

use super::action::Refusal;
use super::holding::{Queued, Waiting};
use super::manager::Manager;
use super::nodes::Node;
use crate::inventory::{Level, NodeId, Unit};
use crate::policy::queue::QueuePlace;
use crate::time::Time;

/// Number of requests of different shape that are tried without success, before the rest waits for the
/// next pass.
const TRIES: usize = 1000;

/// The units that are set aside for the head.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Aside {
    /// The head's place in the queue.
    pub(super) place: QueuePlace,
    units: BTreeMap<(NodeId, Unit), SetAside>,
}

/// The state of a unit that is set aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum SetAside {
    /// The unit is free, and reserved for the head.
    Ready,
    /// A lease has the unit until this time. `None`: until its holder releases it.
    Until(Option<Time>),
}

impl Aside {
    /// The number of units that are free, and of all.
    pub(super) fn count(&self) -> (usize, usize) {
        let ready = self.units.values().filter(|of| **of == SetAside::Ready);
        (ready.count(), self.units.len())
    }

    /// When all units are free. `None`: unknown.
    pub(super) fn start(&self, now: Time) -> Option<Time> {
        self.units.values().try_fold(now, |start, unit| match unit {
            SetAside::Ready => Some(start),
            SetAside::Until(end) => end.map(|end| start.max(end)),
        })
    }
}

impl Manager {
    /// Serves all requests that can be served.
    pub(super) fn serve(&mut self) {
        self.offer_again();
        if !std::mem::take(&mut self.chance) {
            return;
        }
        self.update_totals(false);
        let mut head = self.find_head();
        // What was set aside for another request may be free now.
        self.begin_takeovers();
        while let Some(place) = head {
            if !self.try_head(place) {
                break;
            }
            // The head may have got other units than those that were set aside for it.
            self.begin_takeovers();
            head = self.find_head();
        }
        self.note_head(head);
        self.serve_in_order();
        if !self.settling {
            self.refuse_held_back();
        }
        // Changes that this pass itself made do not make further requests servable.
        self.chance = false;
    }

    /// Finds the head, and frees what is set aside for another request.
    fn find_head(&mut self) -> Option<QueuePlace> {
        if let Some(aside) = &self.aside
            && !self.is_eligible(aside.place)
        {
            self.drop_aside();
        }
        let overdue: Vec<QueuePlace> = {
            let late = |waiting: &Waiting| waiting.away.is_none() && waiting.overdue <= self.now;
            let queue = self.queue.iter();
            queue
                .take_while(|(_, waiting)| waiting.overdue <= self.now || waiting.away.is_some())
                .filter(|(_, waiting)| late(waiting))
                .map(|(place, _)| place)
                // Bounds a pass where many overdue requests cannot be served.
                .take(TRIES)
                .collect()
        };
        let head = overdue.into_iter().find(|place| self.is_eligible(*place));
        if self.aside.as_ref().is_some_and(|of| Some(of.place) != head) {
            self.drop_aside();
        }
        head
    }

    /// Whether a request could be served if all units of open nodes were free.
    fn is_eligible(&mut self, place: QueuePlace) -> bool {
        let Some(waiting) = self.queue.get(place).filter(|of| of.away.is_none()) else {
            return false;
        };
        let demand = waiting.demand.clone();
        let Ok(room) = self
            .is_counted(&demand.party)
            .and_then(|()| self.room(&demand))
        else {
            return false;
        };
        let manner = self.manner(demand.devices.placement(), room.memory);
        let choice = self.cluster.choose(Level::Open, &demand.devices, manner);
        choice.is_ok()
    }

    /// Offers the head free units and those that are set aside for it. If that fails, makes sure that
    /// units are set aside.
    fn try_head(&mut self, place: QueuePlace) -> bool {
        // The choice below sees free units only, so those that are set aside become free for a moment.
        let ready = self.lend_aside();
        if self.offer_waiting(place).is_ok() {
            self.aside = None;
            return true;
        }
        // The offer failed and has taken nothing, so all of them are free again.
        self.take_aside(&ready, None);
        if self.aside.is_none() {
            self.set_aside(place);
        }
        false
    }

    /// Sets units aside for a request for several units.
    fn set_aside(&mut self, place: QueuePlace) {
        let Some(waiting) = self.queue.get(place) else {
            return;
        };
        let demand = waiting.demand.clone();
        // A request for one unit needs nothing set aside: the head is tried before all others whenever a
        // unit is free. Only leases that move or are replaced come first, and their time limits go on.
        if demand.devices.count() < 2 {
            return;
        }
        let Ok(room) = self.room(&demand) else {
            return;
        };
        let manner = self.manner(demand.devices.placement(), room.memory);
        let later = self.units_by_end();
        let units: Vec<_> = later.iter().map(|(_, unit)| *unit).collect();
        let choice = self.cluster.choose_with(&units, &demand.devices, manner);
        let Some((_, chosen)) = choice else {
            return;
        };
        let ends: BTreeMap<(NodeId, Unit), Time> =
            later.into_iter().map(|(end, unit)| (unit, end)).collect();
        let mut units = BTreeMap::new();
        for of in chosen {
            let unit = (of.node, of.unit);
            let end = ends.get(&unit).copied().filter(|end| *end < Time(u64::MAX));
            let state = match self.cluster.take(of.node, of.unit) {
                true => SetAside::Ready,
                false => SetAside::Until(end),
            };
            units.insert(unit, state);
        }
        self.aside = Some(Aside { place, units });
    }

    /// Units of open nodes that are in use, by the end of their leases, the soonest first.
    fn units_by_end(&self) -> Vec<(Time, (NodeId, Unit))> {
        let mut units = Vec::new();
        for holding in self.grants.values() {
            // The units of an ending lease are being released, so they count as free now.
            let end = match holding.is_ending() {
                true => self.now,
                // A lease without a time limit comes last, because its end is unknown.
                false => holding.ends.unwrap_or(Time(u64::MAX)),
            };
            for part in &holding.parts {
                let there = part.units.iter().map(|of| (end, (part.node, of.unit)));
                let is_open = self.nodes.get(&part.node).is_some_and(Node::is_open);
                if is_open && part.state != super::holding::PartState::Gone {
                    units.extend(there);
                }
            }
        }
        units.sort_unstable();
        units
    }

    /// Returns units that are set aside and ready to the cluster for a moment, and lists them.
    fn lend_aside(&mut self) -> Vec<(NodeId, Unit)> {
        let units = self.aside.iter().flat_map(|of| &of.units);
        let ready = units.filter(|(_, state)| **state == SetAside::Ready);
        let ready: Vec<_> = ready.map(|(unit, _)| *unit).collect();
        for (node, unit) in &ready {
            self.cluster.give(*node, *unit);
        }
        ready
    }

    /// Takes those units again. A unit that a lease has got meanwhile is free at `end`.
    fn take_aside(&mut self, lent: &[(NodeId, Unit)], end: Option<Time>) {
        for (node, unit) in lent {
            let state = match self.cluster.take(*node, *unit) {
                true => SetAside::Ready,
                false => SetAside::Until(end),
            };
            if let Some(aside) = &mut self.aside {
                aside.units.insert((*node, *unit), state);
            }
        }
    }

    /// Sets nothing aside any more.
    pub(super) fn drop_aside(&mut self) {
        self.lend_aside();
        self.aside = None;
        self.chance = true;
    }

    /// Sets nothing aside any more, if a unit on this node was.
    pub(super) fn drop_aside_on(&mut self, node: NodeId) {
        let on_node = |of: &Aside| of.units.keys().any(|(at, _)| *at == node);
        if self.aside.as_ref().is_some_and(on_node) {
            self.drop_aside();
        }
    }

    /// Frees a unit: for the head if the unit is set aside, else for all.
    pub(super) fn unit_back(&mut self, node: NodeId, unit: Unit) {
        let set_aside = self.aside.as_mut();
        if let Some(state) = set_aside.and_then(|of| of.units.get_mut(&(node, unit))) {
            *state = SetAside::Ready;
        } else {
            self.cluster.give(node, unit);
        }
    }

    /// Makes offers to users in the fair order.
    fn serve_in_order(&mut self) {
        let mut hopeless = BTreeSet::new();
        let mut at = None;
        while let Some(next) = self.queue.next_user(at.as_ref()) {
            // No device is free, and none is set aside that a request could use meanwhile.
            if self.cluster.is_exhausted() && self.aside.is_none() {
                break;
            }
            let place = next.1;
            at = Some(next);
            let Some(waiting) = self.queue.get(place) else {
                continue;
            };
            let demand = waiting.demand.clone();
            if self.aside.as_ref().is_some_and(|of| of.place == place) {
                continue;
            }
            let fits = !hopeless.contains(&demand.devices);
            let served = match fits {
                true => self.offer_waiting(place),
                false => Err(Refusal::NothingFree),
            };
            if served == Err(Refusal::NothingFree) && !self.fill_aside(place) && fits {
                // An equal request would fail as well, because nothing becomes free during this pass.
                hopeless.insert(demand.devices.clone());
                if hopeless.len() >= TRIES {
                    break;
                }
            }
        }
    }

    /// Offers units that are set aside to a request that is certain to end before the head could start.
    fn fill_aside(&mut self, place: QueuePlace) -> bool {
        // If the start of the head is unknown, no other lease is certain to end before it.
        let Some(start) = self.aside.as_ref().and_then(|of| of.start(self.now)) else {
            return false;
        };
        let Some(demand) = self.queue.get(place).map(|of| of.demand.clone()) else {
            return false;
        };
        let slack = self.release_time().0;
        let limit = self.room(&demand).ok().and_then(|room| room.limit);
        let end = limit.map(|limit| self.now.after(limit));
        if end.is_none_or(|end| end.0.saturating_add(slack) > start.0) {
            return false;
        }
        let lent = self.lend_aside();
        let served = self.offer_waiting(place).is_ok();
        self.take_aside(&lent, end);
        served
    }

    /// Makes an offer to a request in the queue. If that succeeds, the request leaves the queue.
    fn offer_waiting(&mut self, place: QueuePlace) -> Result<(), Refusal> {
        let Some(waiting) = self.queue.get(place) else {
            return Err(Refusal::NothingFree);
        };
        let demand = waiting.demand.clone();
        let queued = Queued {
            place,
            since: waiting.since,
            overdue: waiting.overdue,
            away: waiting.away,
            stored: waiting.stored,
        };
        self.offer(&demand, Some(queued))?;
        // `dequeue` would drop what is set aside for this place, which the caller still needs.
        let aside = self.aside.take();
        self.dequeue(place);
        self.aside = aside;
        Ok(())
    }

    /// Refuses requests that do not wait, once nothing that they need is being released any more.
    fn refuse_held_back(&mut self) {
        let held: Vec<_> = self.held_back.iter().map(|(at, of)| (*at, *of)).collect();
        for (place, until) in held {
            let Some(waiting) = self.queue.get(place) else {
                continue;
            };
            let demand = waiting.demand.clone();
            // What is lacking may differ from what was lacking when the request was made.
            let why = self.choice(&demand).err().unwrap_or(Refusal::NothingFree);
            if self.now >= until || !self.is_coming_back(&demand, why) {
                self.refuse(place, why);
            }
        }
    }

    /// Recomputes the fair order if the cluster's size has changed by more than an eighth, or with
    /// `exactly` at all.
    pub(super) fn update_totals(&mut self, exactly: bool) {
        let (now, before) = (self.cluster.totals(), self.totals);
        // Small changes hardly move the order, and recomputing it looks at every user.
        let apart = |now: u64, before: u64| now.abs_diff(before) > before / 8;
        let enough = apart(now.0, before.0) || apart(now.1, before.1);
        if now == before || !(exactly || enough) {
            return;
        }
        self.totals = now;
        let users: Vec<_> = self.queue.users().cloned().collect();
        for user in users {
            self.refresh(&user);
        }
    }
}

#[cfg(test)]
impl Manager {
    /// Units of a node that are set aside and ready.
    pub(super) fn aside_ready(&self, node: NodeId) -> usize {
        let units = self.aside.iter().flat_map(|of| &of.units);
        units
            .filter(|((at, _), state)| *at == node && **state == SetAside::Ready)
            .count()
    }
}
