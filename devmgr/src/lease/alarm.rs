//! What the machine wants to be woken for, and when.
//!
//! Invariant: each alarm is set at most once; setting it again moves it.

use std::collections::{BTreeMap, BTreeSet};

use super::id::Epoch;
use super::time::Time;
use crate::inventory::NodeId;
use crate::policy::queue::Place;

/// What there is to see to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Alarm {
    /// A grant: its answer, its end, or its withdrawal said again.
    Grant(Epoch),
    /// A node: trust regained, leases that it cannot serve any more, withdrawals said again.
    Node(NodeId),
    /// A waiting request: its patience, or its client's absence.
    Waiting(Place),
    /// The time for known nodes to come is over.
    Settle,
    /// Those who wait want to know their position.
    Positions,
    /// Old accounts can go.
    Accounts,
    /// Lost nodes are written down, or can go.
    Absences,
}

/// All alarms.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Alarms {
    due: BTreeSet<(Time, Alarm)>,
    set: BTreeMap<Alarm, Time>,
}

impl Alarms {
    /// Sets, moves or clears an alarm.
    pub(super) fn set(&mut self, alarm: Alarm, at: Option<Time>) {
        let before = match at {
            Some(at) => self.set.insert(alarm, at),
            None => self.set.remove(&alarm),
        };
        if before == at {
            return;
        }
        if let Some(before) = before {
            self.due.remove(&(before, alarm));
        }
        if let Some(at) = at {
            self.due.insert((at, alarm));
        }
    }

    /// Whether an alarm is set.
    pub(super) fn is_set(&self, alarm: Alarm) -> bool {
        self.set.contains_key(&alarm)
    }

    /// When the first one rings.
    pub(super) fn next(&self) -> Option<Time> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Takes the first one that is due.
    pub(super) fn take_due(&mut self, now: Time) -> Option<Alarm> {
        let (at, alarm) = *self.due.first()?;
        if at > now {
            return None;
        }
        self.set(alarm, None);
        Some(alarm)
    }
}
