//! The lease manager's timers.
//!
//! Invariant: each alarm is set at most once; setting it again moves it.

use std::collections::{BTreeMap, BTreeSet};

use super::id::Epoch;
use crate::inventory::NodeId;
use crate::policy::queue::QueuePlace;
use crate::time::Time;

/// The purpose of an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Alarm {
    /// A grant: its acknowledgement, its end, or the repetition of its withdrawal.
    Grant(Epoch),
    /// A node: the end of its distrust, the end of leases that it can no longer serve, repeated
    /// withdrawals.
    Node(NodeId),
    /// A waiting request: the end of its patience, of its client's absence, or of its hold-back.
    Waiting(QueuePlace),
    /// The end of the start phase, in which known nodes are expected to join.
    Settle,
    /// The next report of positions to waiting clients.
    Positions,
    /// The next removal of old accounting hours.
    Accounts,
    /// The next look at lost nodes: absences are stored, and old nodes forgotten.
    Absences,
}

/// All alarms, by time and by purpose.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Alarms {
    due: BTreeSet<(Time, Alarm)>,
    set: BTreeMap<Alarm, Time>,
}

impl Alarms {
    /// Sets, moves or clears (`None`) an alarm.
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

    pub(super) fn is_set(&self, alarm: Alarm) -> bool {
        self.set.contains_key(&alarm)
    }

    /// When the earliest alarm is due.
    pub(super) fn next(&self) -> Option<Time> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Removes and returns the earliest alarm, if it is due.
    pub(super) fn take_due(&mut self, now: Time) -> Option<Alarm> {
        let (at, alarm) = *self.due.first()?;
        if at > now {
            return None;
        }
        self.set(alarm, None);
        Some(alarm)
    }
}
