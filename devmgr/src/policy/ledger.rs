//! Each user's and group's present and past use, compared with quotas.
//!
//! Three amounts are counted: units at once, their memory, and unit time in the accounting window. A
//! running lease counts with its whole time limit from the start, so that it cannot exceed a quota later.
//! Invariant: whatever is added is removed again by the same amount.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Class, GroupName, Quota, Subject, UserName};
use crate::time::{Span, Wall};

const HOUR: u64 = 3_600_000;

/// The shortest time limit that a lease gets from a nearly exhausted quota of device time.
const SHORTEST: Span = Span::seconds(60);

/// Quotas, and each subject's use of them. See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ledger {
    quotas: BTreeMap<Subject, Quota>,
    has: BTreeMap<Subject, Holdings>,
    had: BTreeMap<Subject, BTreeMap<Hour, Span>>,
}

/// A subject's present use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Holdings {
    /// Number of units.
    pub devices: u32,
    /// Bytes of the units' memory.
    pub memory: u64,
    /// Unit time that the subject's running leases may still use, in total.
    pub promised: Span,
}

/// An hour of the host's clock: hours since 1970.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Hour(pub u64);

/// Unit time that a subject used in an hour.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct UseRow {
    /// The subject; never `EveryUser`.
    pub subject: Subject,
    /// The hour.
    pub hour: Hour,
    /// The time used, summed over all units.
    pub used: Span,
}

/// The user and groups that a lease counts for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Party {
    /// The user.
    pub user: UserName,
    /// The user's groups.
    pub groups: Vec<GroupName>,
}

impl Party {
    /// The user, then each group once.
    pub fn subjects(&self) -> impl Iterator<Item = Subject> + '_ {
        let first = |at: usize| !self.groups[..at].contains(&self.groups[at]);
        let groups = (0..self.groups.len()).filter(move |at| first(*at));
        std::iter::once(Subject::User(self.user.clone()))
            .chain(groups.map(|at| Subject::Group(self.groups[at].clone())))
    }
}

/// The kind of quota that a request exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exceeded {
    /// Units at once.
    Devices,
    /// Memory at once.
    Memory,
    /// Unit time.
    Time,
    /// The priority class.
    Class,
}

/// A quota that is exceeded, and its subject's use. A group's use is not shown to its members.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InTheWay {
    subject: Subject,
    limit: Limit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Limit {
    Devices { most: u32, has: u32 },
    Memory { most: u64, has: u64 },
    Time { most: Span },
    Class { most: Class },
}

/// The room that quotas leave for a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes of memory.
    pub memory: u64,
    /// Time limit of the lease.
    pub limit: Option<Span>,
}

impl Ledger {
    /// Sets a subject's quota, or removes it.
    pub fn set_quota(&mut self, subject: Subject, quota: Option<Quota>) {
        match quota {
            Some(quota) => self.quotas.insert(subject, quota),
            None => self.quotas.remove(&subject),
        };
    }

    /// All quotas.
    pub fn quotas(&self) -> impl Iterator<Item = (&Subject, &Quota)> {
        self.quotas.iter()
    }

    /// The quota that applies to a subject, if any.
    #[must_use]
    pub fn quota(&self, subject: &Subject) -> Option<&Quota> {
        let own = self.quotas.get(subject);
        own.or_else(|| match subject {
            Subject::User(_) => self.quotas.get(&Subject::EveryUser),
            _ => None,
        })
    }

    /// A subject's present use.
    #[must_use]
    pub fn holdings(&self, subject: &Subject) -> Holdings {
        self.has.get(subject).copied().unwrap_or_default()
    }

    /// All subjects that use something now, or have unit time on record.
    pub fn subjects(&self) -> impl Iterator<Item = &Subject> {
        let past = self.had.keys().filter(|of| !self.has.contains_key(of));
        self.has.keys().chain(past)
    }

    /// The most memory that a party may ever have, if `devices` with this time limit could be granted to
    /// it at some time.
    ///
    /// # Errors
    /// The quota that forbids it.
    pub fn conceivable(
        &self,
        of: &Party,
        devices: u32,
        limit: Option<Span>,
        class: Class,
    ) -> Result<u64, Exceeded> {
        let mut memory = u64::MAX;
        for subject in of.subjects() {
            let Some(quota) = self.quota(&subject) else {
                continue;
            };
            // Without a limit, the request accepts the shortest lease that a quota may leave.
            let shortest = limit.unwrap_or(SHORTEST).0.saturating_mul(devices.into());
            if quota.class.is_some_and(|most| class > most) {
                return Err(Exceeded::Class);
            }
            if quota.devices.is_some_and(|most| devices > most) {
                return Err(Exceeded::Devices);
            }
            if quota.device_time.is_some_and(|most| shortest > most.0) {
                return Err(Exceeded::Time);
            }
            memory = memory.min(quota.memory.unwrap_or(u64::MAX));
        }
        Ok(memory)
    }

    /// Whether no quota limits a party's units or their memory.
    ///
    /// # Errors
    /// The quota that does.
    pub fn without_quota_of_units(&self, of: &Party) -> Result<(), Exceeded> {
        for subject in of.subjects() {
            let quota = self.quota(&subject);
            if quota.is_some_and(|of| of.devices.is_some()) {
                return Err(Exceeded::Devices);
            }
            if quota.is_some_and(|of| of.memory.is_some()) {
                return Err(Exceeded::Memory);
            }
        }
        Ok(())
    }

    /// The room that quotas leave now for `devices` more units with this time limit.
    ///
    /// # Errors
    /// The quota that forbids it.
    pub fn room(
        &self,
        of: &Party,
        devices: u32,
        limit: Option<Span>,
        now: Wall,
        window: Span,
    ) -> Result<Room, Exceeded> {
        let mut room = Room {
            memory: u64::MAX,
            limit,
        };
        for subject in of.subjects() {
            let Some(quota) = self.quota(&subject) else {
                continue;
            };
            let has = self.holdings(&subject);
            if quota
                .devices
                .is_some_and(|most| has.devices.saturating_add(devices) > most)
            {
                return Err(Exceeded::Devices);
            }
            if let Some(most) = quota.memory {
                // How much memory the devices have is known only after the choice, so the rest is a bound
                // for it.
                if has.memory >= most {
                    return Err(Exceeded::Memory);
                }
                room.memory = room.memory.min(most - has.memory);
            }
            if let Some(most) = quota.device_time {
                let used = self.used(&subject, now, window).0;
                // Running leases count with their whole time limits, because they may use them.
                let left = most.0.saturating_sub(used).saturating_sub(has.promised.0);
                // All devices of the request use up the quota at the same time.
                let each = Span(left / u64::from(devices.max(1)));
                match limit {
                    Some(limit) if limit > each => return Err(Exceeded::Time),
                    // A request without a limit gets what is left, if that is enough for a lease.
                    None if each < SHORTEST => return Err(Exceeded::Time),
                    _ => room.limit = Some(room.limit.unwrap_or(each).min(each)),
                }
            }
        }
        Ok(room)
    }

    /// The quota of the exceeded kind that leaves the party the least.
    #[must_use]
    pub fn in_the_way(&self, of: &Party, exceeded: Exceeded) -> Option<InTheWay> {
        let limits = of.subjects().filter_map(|subject| {
            let (quota, has) = (self.quota(&subject)?, self.holdings(&subject));
            let (left, limit) = match exceeded {
                Exceeded::Devices => {
                    let (most, has) = (quota.devices?, has.devices);
                    let left = u64::from(most.saturating_sub(has));
                    (left, Limit::Devices { most, has })
                }
                Exceeded::Memory => {
                    let (most, has) = (quota.memory?, has.memory);
                    (most.saturating_sub(has), Limit::Memory { most, has })
                }
                Exceeded::Time => {
                    let most = quota.device_time?;
                    (most.0, Limit::Time { most })
                }
                Exceeded::Class => {
                    let most = quota.class?;
                    (most.weight(), Limit::Class { most })
                }
            };
            Some((left, InTheWay { subject, limit }))
        });
        limits.min_by_key(|(left, _)| *left).map(|(_, of)| of)
    }

    /// Adds to a party's use.
    pub fn add(&mut self, of: &Party, devices: u32, memory: u64, promised: Span) {
        for subject in of.subjects() {
            let has = self.has.entry(subject).or_default();
            has.devices += devices;
            has.memory = has.memory.saturating_add(memory);
            has.promised.0 = has.promised.0.saturating_add(promised.0);
        }
    }

    /// Removes from a party's use.
    pub fn remove(&mut self, of: &Party, devices: u32, memory: u64, promised: Span) {
        for subject in of.subjects() {
            let Some(has) = self.has.get_mut(&subject) else {
                continue;
            };
            has.devices = has.devices.saturating_sub(devices);
            has.memory = has.memory.saturating_sub(memory);
            has.promised.0 = has.promised.0.saturating_sub(promised.0);
            if *has == Holdings::default() {
                self.has.remove(&subject);
            }
        }
    }

    /// Records that a party used `devices` from `start` to `end`, and returns the rows that changed. Only
    /// the window that ends at `end` is recorded. Otherwise a start long ago, from a clock that was not
    /// set, would fill the store.
    pub fn write_down(
        &mut self,
        of: &Party,
        devices: u32,
        (start, end): (Wall, Wall),
        window: Span,
    ) -> Vec<UseRow> {
        let mut rows = Vec::new();
        let mut from = start.0.max(first_of(end, window).0 * HOUR);
        while from < end.0 {
            let hour = Hour(from / HOUR);
            let to = end.0.min((hour.0 + 1) * HOUR);
            let used = (to - from).saturating_mul(u64::from(devices));
            for subject in of.subjects() {
                let hours = self.had.entry(subject.clone()).or_default();
                let all = hours.entry(hour).or_default();
                all.0 = all.0.saturating_add(used);
                rows.push(UseRow {
                    subject,
                    hour,
                    used: *all,
                });
            }
            from = to;
        }
        rows
    }

    /// Loads an hour from the store.
    pub fn restore(&mut self, row: UseRow) {
        let hours = self.had.entry(row.subject).or_default();
        hours.insert(row.hour, row.used);
    }

    /// Unit time that a subject has used in the window before `now`. Hours count as a whole.
    #[must_use]
    pub fn used(&self, subject: &Subject, now: Wall, window: Span) -> Span {
        let first = first_of(now, window);
        let hours = self.had.get(subject).into_iter();
        Span(
            hours
                .flat_map(|of| of.range(first..))
                .map(|(_, used)| used.0)
                .sum(),
        )
    }

    /// Moves hours of the future, recorded while the clock was ahead, into the present hour, so that they
    /// leave the window in time. Returns the hours to delete and the rows that changed.
    pub fn bring_back(&mut self, now: Wall) -> (Vec<(Subject, Hour)>, Vec<UseRow>) {
        let (mut gone, mut rows) = (Vec::new(), Vec::new());
        let this = Hour(now.0 / HOUR);
        for (subject, hours) in &mut self.had {
            // The clock was set back. These hours would otherwise count again when the clock reaches them.
            let to_come = hours.split_off(&Hour(this.0 + 1));
            if to_come.is_empty() {
                continue;
            }
            let used = hours.entry(this).or_default();
            for (hour, more) in to_come {
                used.0 = used.0.saturating_add(more.0);
                gone.push((subject.clone(), hour));
            }
            rows.push(UseRow {
                subject: subject.clone(),
                hour: this,
                used: *used,
            });
        }
        (gone, rows)
    }

    /// Removes hours that lie before the window, and returns them.
    pub fn forget(&mut self, now: Wall, window: Span) -> Vec<(Subject, Hour)> {
        let first = first_of(now, window);
        let mut gone = Vec::new();
        for (subject, hours) in &mut self.had {
            let kept = hours.split_off(&first);
            let old = std::mem::replace(hours, kept);
            gone.extend(old.into_keys().map(|hour| (subject.clone(), hour)));
        }
        self.had.retain(|_, hours| !hours.is_empty());
        gone
    }
}

/// The first hour of a window that ends now.
fn first_of(now: Wall, window: Span) -> Hour {
    Hour(now.0.saturating_sub(window.0) / HOUR)
}

impl InTheWay {
    /// The quota as numbers, for readers other than its subject.
    #[must_use]
    pub fn in_numbers(&self) -> String {
        let own = !matches!(self.subject, Subject::Group(_));
        // A group's use is not shown.
        let of = |has: String, most: String| match own {
            true => format!("{has} of {most}"),
            false => format!("{most} of a group"),
        };
        match self.limit {
            Limit::Devices { most, has } => of(has.to_string(), format!("{most} devices")),
            Limit::Memory { most, has } => {
                of((has >> 20).to_string(), format!("{} MiB", most >> 20))
            }
            Limit::Time { most } => {
                let hours = most.0 as f64 / HOUR as f64;
                format!("{hours:.2} hours of one device")
            }
            Limit::Class { most } => format!("priority {most} at most"),
        }
    }
}

impl fmt::Display for InTheWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let own = !matches!(self.subject, Subject::Group(_));
        match &self.subject {
            Subject::Group(name) => write!(f, "group {name} may have ")?,
            Subject::User(_) | Subject::EveryUser => write!(f, "you may have ")?,
        }
        match self.limit {
            Limit::Devices { most, has } => {
                write!(f, "{most} at once")?;
                if own {
                    write!(f, ", and you have {has}")?;
                }
            }
            Limit::Memory { most, has } => {
                write!(f, "{} MiB at once", most >> 20)?;
                if own {
                    write!(f, ", and you have {} MiB", has >> 20)?;
                }
            }
            Limit::Time { most } => {
                let hours = most.0 as f64 / HOUR as f64;
                write!(f, "{hours:.2} hours of one device (causeway quota)")?;
            }
            Limit::Class { most } => write!(f, "{most}: --priority {most}")?,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn party() -> Party {
        Party {
            user: "ada".into(),
            groups: vec!["lab".into(), "lab".into()],
        }
    }

    #[test]
    fn a_group_counts_all_its_members_and_each_lease_once() {
        let mut ledger = Ledger::default();
        let lab = Subject::Group("lab".into());
        let quota = Quota {
            devices: Some(3),
            ..Quota::default()
        };
        ledger.set_quota(lab.clone(), Some(quota));
        ledger.add(&party(), 2, 10, Span(0));
        assert_eq!(ledger.holdings(&lab).devices, 2);
        let room = |devices| ledger.room(&party(), devices, None, Wall(0), Span(0));
        assert!(room(1).is_ok());
        assert_eq!(room(2), Err(Exceeded::Devices));
    }

    #[test]
    fn device_time_limits_leases_before_they_can_exceed_it() {
        let mut ledger = Ledger::default();
        let quota = Quota {
            device_time: Some(Span(10 * HOUR)),
            ..Quota::default()
        };
        ledger.set_quota(Subject::EveryUser, Some(quota));
        let window = Span(24 * HOUR);
        let room = |ledger: &Ledger, limit| ledger.room(&party(), 2, limit, Wall(HOUR), window);
        let all = room(&ledger, None).map(|of| of.limit);
        assert_eq!(all, Ok(Some(Span(5 * HOUR))));
        ledger.add(&party(), 2, 0, Span(8 * HOUR));
        assert_eq!(room(&ledger, Some(Span(2 * HOUR))), Err(Exceeded::Time));
        assert!(room(&ledger, Some(Span(HOUR))).is_ok());
        ledger.remove(&party(), 2, 0, Span(8 * HOUR));
        let rows = ledger.write_down(&party(), 2, (Wall(HOUR / 2), Wall(2 * HOUR)), window);
        assert_eq!(rows.len(), 4);
        let user = Subject::User("ada".into());
        assert_eq!(ledger.used(&user, Wall(2 * HOUR), window), Span(3 * HOUR));
        assert_eq!(ledger.used(&user, Wall(25 * HOUR), window), Span(2 * HOUR));
        assert_eq!(ledger.forget(Wall(25 * HOUR), window).len(), 2);
    }

    #[test]
    fn a_lease_of_1970_fills_no_more_than_the_window() {
        let (mut ledger, window) = (Ledger::default(), Span(24 * HOUR));
        let now = Wall(500_000 * HOUR);
        let rows = ledger.write_down(&party(), 1, (Wall(0), now), window);
        assert_eq!(rows.len(), 2 * 24);
        let user = Subject::User("ada".into());
        assert_eq!(ledger.used(&user, now, window), window);
        // If the clock went back, nothing is recorded.
        assert_eq!(ledger.write_down(&party(), 1, (now, Wall(0)), window), []);
    }

    #[test]
    fn what_a_clock_that_was_ahead_has_written_leaves_the_window_like_all_else() {
        let (mut ledger, window) = (Ledger::default(), Span(24 * HOUR));
        let ahead = Wall(5000 * HOUR);
        ledger.write_down(&party(), 1, (ahead, Wall(ahead.0 + 3 * HOUR)), window);
        let (user, now) = (Subject::User("ada".into()), Wall(100 * HOUR));
        let (gone, rows) = ledger.bring_back(now);
        assert_eq!((gone.len(), rows.len()), (2 * 3, 2));
        assert!(
            rows.iter()
                .all(|row| row.hour == Hour(100) && row.used == Span(3 * HOUR))
        );
        assert_eq!(ledger.used(&user, now, window), Span(3 * HOUR));
        assert_eq!(ledger.bring_back(now), (Vec::new(), Vec::new()));
        assert_eq!(ledger.used(&user, Wall(126 * HOUR), window), Span(0));
    }
}
