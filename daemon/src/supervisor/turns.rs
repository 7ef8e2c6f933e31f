//! Decides which lease may launch on a device whose shares have a `time`: the leases take turns. Pure.
//!
//! A *party* is a lease with a share of the device. While several parties want the device, one of them has the turn,
//! and the others hold their launches back. So the busy time that workers count is the device's, also with a native
//! context for each. A turn lasts for the party's part of a window, in busy time, or until the party wants nothing. By
//! the clock it lasts twice as long at most: then the party uses the device too little, its kernel does not end, or its
//! worker lies. Such a turn counts as used. The next turn goes to the party that has used the least of what it may use.
//! Kernels that run are not ended: the next turn begins when they have ended, or after [`DRAIN`].
//!
//! Invariants: a party that is not strict and that nobody competes with is never held back. A party that wants the
//! device gets a turn after a bounded time, whatever the workers report. A strict party never gets more than its part
//! of a window in advance, and pays for long kernels for [`DEBT`] at most.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};

/// The window to which the parts refer, in nanoseconds.
pub(super) const WINDOW: u64 = 100_000_000;
/// Time after which a party that has wanted nothing gives up its turn.
const QUIET: u64 = 4_000_000;
/// How far a party can be behind the others, as [`Known::due`], if the parts of all add up to 100. So a party makes up for
/// a few windows only.
const LAG: u64 = 4 * WINDOW;
/// Longest wait for the kernels of the previous turn.
const DRAIN: u64 = 30_000_000;
/// Longest time for which a strict party waits because of what it has used too much.
const DEBT: u64 = 1_000_000_000;
/// The time by which a worker's report may lie before the look at it.
const LATE: u64 = 2_000_000;

/// What a party has and does, as of now.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Party {
    /// Its part of the time, in percent.
    pub(super) time: u32,
    /// Whether it gets no more even if nobody else wants the device.
    pub(super) is_strict: bool,
    /// Its busy time in all, in nanoseconds.
    pub(super) used: u64,
    /// A count that grows with each launch.
    pub(super) asked: u64,
    /// Whether launches are held back now.
    pub(super) waits: bool,
    /// Whether commands are under way, be they launches or transfers.
    pub(super) is_under_way: bool,
}

/// The state of a party between two looks.
#[derive(Clone, Copy, Debug)]
struct Known {
    time: u64,
    used: u64,
    asked: u64,
    /// When the party's busy time was last seen to have grown.
    grew: u64,
    /// Busy time by its part: the party with the least gets the next turn.
    due: u64,
    /// Busy time of the latest window, which limits a strict party.
    spent: u64,
    is_exhausted: bool,
    /// Whether launches may be under way. Transfers alone ask for no turn.
    has_launched: bool,
    wanted: u64,
    wants: bool,
}

/// The turn that one of several parties has.
#[derive(Clone, Copy, Debug, Default)]
struct Current {
    /// When the party could first launch.
    begun: u64,
    /// Busy time that the turn has in all, and how much of it has been used.
    length: u64,
    used: u64,
}

/// The turns on one device.
#[derive(Debug)]
pub(super) struct Turns<K> {
    known: BTreeMap<K, Known>,
    holder: Option<K>,
    turn: Current,
    /// Since when the turn waits for kernels of the previous one, and whose these are.
    drains: Option<(u64, K)>,
    at: u64,
    /// The least `due` of those that have wanted the device lately. A party that comes back starts here.
    base: u64,
}

impl<K> Default for Turns<K> {
    fn default() -> Self {
        Turns {
            known: BTreeMap::new(),
            holder: None,
            turn: Current::default(),
            drains: None,
            at: 0,
            base: 0,
        }
    }
}

impl<K: Ord + Copy> Turns<K> {
    /// Returns the parties that may launch until the next call. `now` is in nanoseconds and never goes back.
    pub(super) fn tick(&mut self, now: u64, parties: &BTreeMap<K, Party>) -> BTreeSet<K> {
        let passed = now.saturating_sub(self.at).min(WINDOW);
        self.at = now;
        self.known.retain(|key, _| parties.contains_key(key));
        for (key, party) in parties {
            let used = self.note(*key, party, passed);
            if self.holder == Some(*key) {
                self.turn.used = self.turn.used.saturating_add(used);
            }
        }
        self.level();
        let eligible = |known: &Known| known.wants && !known.is_exhausted;
        let eligible: BTreeSet<K> = (self.known.iter())
            .filter_map(|(key, known)| eligible(known).then_some(*key))
            .collect();
        if eligible.len() < 2 {
            self.drains = None;
            // The party that has used the least gets the turn as soon as another party wants the device.
            (self.holder, self.turn) = (eligible.first().copied(), Current::default());
            let rested = self.known.iter().filter(|(_, known)| !known.is_exhausted);
            return rested.map(|(key, _)| *key).collect();
        }
        self.choose(parties, &eligible);
        let is_drained = self.drains.is_none_or(|(since, before)| {
            let runs = (self.known.get(&before)).is_some_and(|known| known.has_launched);
            !runs || now.saturating_sub(since) >= DRAIN
        });
        if !is_drained {
            self.turn.begun = now;
            return BTreeSet::new();
        }
        self.drains = None;
        self.holder.into_iter().collect()
    }

    /// Whether several parties want the device, or one is limited, so that calls should be frequent.
    pub(super) fn is_tense(&self, parties: &BTreeMap<K, Party>) -> bool {
        let wanting = self.known.values().filter(|known| known.wants).count();
        wanting > 1 || (wanting > 0 && parties.values().any(|party| party.is_strict))
    }

    /// Whether a party wants the device.
    pub(super) fn is_wanted(&self) -> bool {
        self.known.values().any(|known| known.wants)
    }

    /// Takes over what a party reports. Returns the busy time since the last call.
    fn note(&mut self, key: K, party: &Party, passed: u64) -> u64 {
        let (time, now) = (u64::from(party.time.max(1)), self.at);
        let budget = WINDOW * time / 100;
        let known = self.known.entry(key).or_insert(Known {
            time,
            used: party.used,
            asked: party.asked,
            grew: now,
            due: self.base,
            spent: 0,
            is_exhausted: false,
            has_launched: party.is_under_way && party.asked > 0,
            wanted: now,
            wants: false,
        });
        // A device does not work for longer than time passes, whatever the worker says.
        let most = now.saturating_sub(known.grew).saturating_add(LATE);
        let used = party.used.saturating_sub(known.used).min(most);
        if used > 0 {
            known.grew = now;
        }
        let is_back = now.saturating_sub(known.wanted) >= WINDOW;
        let has_asked = party.asked != known.asked;
        known.has_launched = has_asked || (known.has_launched && party.is_under_way);
        let wants_now = party.waits || known.has_launched;
        (known.time, known.used, known.asked) = (time, party.used, party.asked);
        if wants_now {
            known.wanted = now;
        }
        let wants = wants_now || (known.wants && now.saturating_sub(known.wanted) < QUIET);
        if wants && !known.wants && is_back {
            known.due = known.due.max(self.base);
        }
        known.wants = wants;
        known.due = known.due.saturating_add(used.saturating_mul(100) / time);
        let most = budget.saturating_add(DEBT * time / 100);
        let rest = known.spent.saturating_sub(passed * time / 100);
        known.spent = rest.saturating_add(used).min(most);
        // A party that has used up its part rests for a while, because turns cost time.
        let enough = if known.is_exhausted { budget / 4 } else { 1 };
        known.is_exhausted = party.is_strict && known.spent.saturating_add(enough) > budget;
        used
    }

    /// Limits what parties that have been quiet or slow make up for.
    fn level(&mut self) {
        let now = self.at;
        let is_present = |known: &Known| now.saturating_sub(known.wanted) < WINDOW;
        let present = || self.known.values().filter(|known| is_present(known));
        let Some(most) = present().map(|known| known.due).max() else {
            return;
        };
        let least = present().map(|known| known.due).min().unwrap_or(most);
        // Parties whose parts add up to little gain much `due` in a window.
        let all: u64 = present().map(|known| known.time).sum();
        let lag = LAG.saturating_mul(100) / all.clamp(1, 100);
        self.base = self.base.max(least);
        // The smallest number is zero, so that the numbers do not grow for ever.
        let floor = self.base;
        self.base = 0;
        for known in self.known.values_mut() {
            let due = known.due.max(most.saturating_sub(lag));
            known.due = due.saturating_sub(floor);
        }
    }

    /// Passes the turn on if it is over.
    fn choose(&mut self, parties: &BTreeMap<K, Party>, eligible: &BTreeSet<K>) {
        let turn = self.turn;
        let passed = self.at.saturating_sub(turn.begun);
        let holds = self.holder.filter(|holder| eligible.contains(holder));
        if holds.is_some() && turn.used < turn.length && passed < 2 * turn.length {
            return;
        }
        self.charge(passed);
        let due = |key: &&K| self.known.get(*key).map_or(u64::MAX, |known| known.due);
        let next = eligible.iter().min_by_key(due).copied();
        let before = self.holder;
        self.begin(next, parties, eligible);
        if let Some(before) = before
            && next != Some(before)
        {
            self.drains = Some((self.at, before));
        }
    }

    /// Charges the turn that ends at least half of the time by the clock.
    fn charge(&mut self, passed: u64) {
        let unused = (passed / 2).min(self.turn.length);
        let unused = unused.saturating_sub(self.turn.used);
        if let Some(known) = self.holder.and_then(|holder| self.known.get_mut(&holder)) {
            let more = unused.saturating_mul(100) / known.time;
            known.due = known.due.saturating_add(more);
        }
    }

    fn begin(&mut self, next: Option<K>, parties: &BTreeMap<K, Party>, among: &BTreeSet<K>) {
        let time = |key: &K| parties.get(key).map_or(0, |party| u64::from(party.time));
        let all: u64 = among.iter().map(time).sum();
        self.holder = next;
        self.turn = Current {
            begun: self.at,
            length: next.map_or(0, |next| WINDOW * time(&next) / all.max(1)),
            used: 0,
        };
    }
}

#[cfg(test)]
#[path = "turns_tests.rs"]
mod tests;
