//! The farm's core: names of work that workers take, and that become visible again when a worker is lost or late.
//!
//! Pure: times and events come in, names go out; no processes, matrices or clocks. This is the part of the paper's tuple
//! space that a farm needs. Taken work is not removed but invisible, until its result is there. Invariants: every open
//! name is visible, or held by exactly one worker; a worker holds one name at most; of each name, the first result counts
//! and no other.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// The name of a piece of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Name {
    /// The number of the product in the chain.
    pub(crate) round: u64,
    /// The first row.
    pub(crate) row: u64,
}

/// A worker of the farm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct WorkerId(pub(crate) usize);

/// A name that a worker has taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taken {
    /// The name.
    pub(crate) name: Name,
    /// When the worker took it.
    pub(crate) at: Duration,
}

/// The work that is put, taken, and finished.
#[derive(Debug)]
pub(crate) struct Farm {
    /// From taking a name until it is late.
    late: Duration,
    /// Names without a result.
    open: BTreeSet<Name>,
    /// Names that can be taken. Those that have been finished meanwhile are skipped.
    visible: VecDeque<Name>,
    held: BTreeMap<WorkerId, Taken>,
}

impl Farm {
    /// A farm without work, whose work is late after `late`.
    pub(crate) fn new(late: Duration) -> Farm {
        Farm {
            late,
            open: BTreeSet::new(),
            visible: VecDeque::new(),
            held: BTreeMap::new(),
        }
    }

    /// Puts work. A name is put once, because a late result of its first time would count for the second.
    pub(crate) fn put(&mut self, name: Name) {
        if self.open.insert(name) {
            self.visible.push_back(name);
        }
    }

    /// Whether all work has a result.
    pub(crate) fn is_done(&self) -> bool {
        self.open.is_empty()
    }

    /// Takes the next visible name, which becomes invisible. `None` if there is none, or the worker holds one.
    pub(crate) fn take(&mut self, worker: WorkerId, now: Duration) -> Option<Name> {
        if self.held.contains_key(&worker) {
            return None;
        }
        while let Some(name) = self.visible.pop_front() {
            if self.open.contains(&name) {
                self.held.insert(worker, Taken { name, at: now });
                return Some(name);
            }
        }
        None
    }

    /// A worker has a result. Returns whether it is the first for this name, and counts.
    pub(crate) fn finish(&mut self, worker: WorkerId, name: Name) -> bool {
        if self
            .held
            .get(&worker)
            .is_some_and(|taken| taken.name == name)
        {
            self.held.remove(&worker);
        }
        self.open.remove(&name)
    }

    /// A worker or its node is lost. Its work is visible again, before all other. Returns what the worker held.
    pub(crate) fn lose(&mut self, worker: WorkerId) -> Option<Taken> {
        let taken = self.held.remove(&worker)?;
        self.show(taken.name);
        Some(taken)
    }

    /// Makes late work visible again.
    pub(crate) fn tick(&mut self, now: Duration) {
        let late = self.late;
        let mut names = Vec::new();
        self.held.retain(|_, taken| {
            let is_late = now >= taken.at + late;
            if is_late {
                names.push(taken.name);
            }
            !is_late
        });
        for name in names {
            self.show(name);
        }
    }

    /// When the next work is late.
    pub(crate) fn next_late(&self) -> Option<Duration> {
        self.held.values().map(|taken| taken.at + self.late).min()
    }

    fn show(&mut self, name: Name) {
        // A late worker may have finished a name that another one holds.
        if self.open.contains(&name) {
            self.visible.push_front(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LATE: Duration = Duration::from_millis(100);

    fn name(row: u64) -> Name {
        Name { round: 0, row }
    }

    fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn a_lost_workers_name_is_taken_next() {
        let mut farm = Farm::new(LATE);
        (0..3).for_each(|row| farm.put(name(row)));
        let (a, b) = (WorkerId(0), WorkerId(1));
        assert_eq!(farm.take(a, at(0)), Some(name(0)));
        assert_eq!(farm.take(a, at(0)), None, "one at a time");
        let taken = farm.lose(a).unwrap();
        assert_eq!((taken.name, taken.at), (name(0), at(0)));
        assert_eq!(farm.take(b, at(1)), Some(name(0)));
        assert_eq!(farm.lose(a), None);
    }

    #[test]
    fn the_first_result_of_a_late_name_counts() {
        let mut farm = Farm::new(LATE);
        farm.put(name(7));
        let (slow, quick) = (WorkerId(0), WorkerId(1));
        assert_eq!(farm.take(slow, at(0)), Some(name(7)));
        farm.tick(at(99));
        assert_eq!(farm.take(quick, at(99)), None);
        assert_eq!(farm.next_late(), Some(at(100)));
        farm.tick(at(100));
        assert_eq!(farm.take(quick, at(100)), Some(name(7)));
        assert!(farm.finish(slow, name(7)), "late, but first");
        assert!(!farm.finish(quick, name(7)));
        assert!(farm.is_done() && farm.next_late().is_none());
    }

    #[derive(Debug, Clone)]
    enum Step {
        Put,
        Take(usize),
        /// A worker reports the oldest work that it has begun, also if that is late.
        Finish(usize),
        Lose(usize),
        Wait(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            2 => Just(Step::Put),
            4 => (0..4usize).prop_map(Step::Take),
            3 => (0..4usize).prop_map(Step::Finish),
            1 => (0..4usize).prop_map(Step::Lose),
            2 => (1..80u64).prop_map(Step::Wait),
        ];
        prop::collection::vec(step, 0..200)
    }

    fn check(farm: &Farm) {
        let held: Vec<Name> = farm.held.values().map(|taken| taken.name).collect();
        let distinct: BTreeSet<Name> = held.iter().copied().collect();
        assert_eq!(held.len(), distinct.len(), "two workers hold one name");
        for name in &farm.open {
            let visible = farm.visible.iter().filter(|other| *other == name).count();
            let held = usize::from(distinct.contains(name));
            assert_eq!(visible + held, 1, "{name:?}");
        }
    }

    proptest! {
        #[test]
        fn no_work_is_lost_and_none_counts_twice(steps in steps()) {
            let mut farm = Farm::new(LATE);
            let mut now = Duration::ZERO;
            let mut put = 0;
            // What each worker computes, as it knows it.
            let mut begun: [VecDeque<Name>; 4] = Default::default();
            let mut counted = BTreeSet::new();
            for step in steps {
                match step {
                    Step::Put => {
                        farm.put(name(put));
                        put += 1;
                    }
                    Step::Take(worker) => {
                        if let Some(name) = farm.take(WorkerId(worker), now) {
                            prop_assert!(!counted.contains(&name));
                            begun[worker].push_back(name);
                        }
                    }
                    Step::Finish(worker) => {
                        if let Some(name) = begun[worker].pop_front() {
                            let counts = farm.finish(WorkerId(worker), name);
                            prop_assert_eq!(counts, counted.insert(name));
                        }
                    }
                    Step::Lose(worker) => {
                        begun[worker].clear();
                        farm.lose(WorkerId(worker));
                    }
                    Step::Wait(milliseconds) => {
                        now += at(milliseconds);
                        farm.tick(now);
                        prop_assert!(farm.next_late().is_none_or(|late| late > now));
                    }
                }
                check(&farm);
            }
            // One worker that never fails finishes whatever the others have left.
            for worker in 0..4 {
                farm.lose(WorkerId(worker));
            }
            while let Some(name) = farm.take(WorkerId(9), now) {
                prop_assert!(farm.finish(WorkerId(9), name) && counted.insert(name));
            }
            prop_assert!(farm.is_done());
            prop_assert_eq!(counted.len() as u64, put);
        }
    }
}
