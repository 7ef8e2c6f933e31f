//! The index of entries: their sizes and the order of their last use. Pure.
//!
//! Invariant: [`Index::total`] is the sum of the sizes in the index. After an insertion it is at most the
//! limit.

use std::collections::{BTreeMap, HashMap};

/// Entries by name, in the order of their last use.
#[derive(Debug)]
pub struct Index<N> {
    limit: u64,
    total: u64,
    last: u64,
    entries: HashMap<N, Kept>,
    by_use: BTreeMap<u64, N>,
}

#[derive(Clone, Copy, Debug)]
struct Kept {
    size: u64,
    used: u64,
}

impl<N: Copy + Eq + std::hash::Hash> Index<N> {
    /// Makes an empty index for at most `limit` bytes.
    #[must_use]
    pub fn new(limit: u64) -> Index<N> {
        Index {
            limit,
            total: 0,
            last: 0,
            entries: HashMap::new(),
            by_use: BTreeMap::new(),
        }
    }

    /// Returns the total size of all entries, in bytes.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns the number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether the index is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns whether an entry is in the index.
    #[must_use]
    pub fn has(&self, name: &N) -> bool {
        self.entries.contains_key(name)
    }

    /// Returns whether an entry of `size` bytes may be inserted at all.
    #[must_use]
    pub fn fits(&self, size: u64) -> bool {
        size <= self.limit
    }

    /// Marks an entry as the most recently used one.
    pub fn touch(&mut self, name: &N) {
        if let Some(Kept { size, .. }) = self.remove(name) {
            self.add(*name, size);
        }
    }

    /// Inserts an entry as the most recently used one. Returns the names of the entries that were evicted
    /// for it. The new entry is among them if it does not [fit](Index::fits).
    pub fn insert(&mut self, name: N, size: u64) -> Vec<N> {
        self.remove(&name);
        self.add(name, size);
        let mut gone = Vec::new();
        while self.total > self.limit {
            let Some(oldest) = self.by_use.values().next().copied() else {
                break;
            };
            self.remove(&oldest);
            gone.push(oldest);
        }
        gone
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        *self = Index::new(self.limit);
    }

    /// Removes an entry.
    pub fn forget(&mut self, name: &N) {
        self.remove(name);
    }

    fn add(&mut self, name: N, size: u64) {
        self.last += 1;
        let used = self.last;
        self.total += size;
        self.entries.insert(name, Kept { size, used });
        self.by_use.insert(used, name);
    }

    fn remove(&mut self, name: &N) -> Option<Kept> {
        let kept = self.entries.remove(name)?;
        self.by_use.remove(&kept.used);
        self.total -= kept.size;
        Some(kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u8, u64),
        Touch(u8),
        Forget(u8),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..12u8, 0..60u64).prop_map(|(name, size)| Step::Insert(name, size)),
            (0..12u8).prop_map(Step::Touch),
            (0..12u8).prop_map(Step::Forget),
        ]
    }

    proptest! {
        #[test]
        fn it_is_a_list_in_the_order_of_use(steps in prop::collection::vec(step(), 0..60)) {
            const LIMIT: u64 = 100;
            let mut index = Index::new(LIMIT);
            // Ordered by last use, the oldest first.
            let mut model: Vec<(u8, u64)> = Vec::new();
            for step in steps {
                match step {
                    Step::Insert(name, size) => {
                        model.retain(|(n, _)| *n != name);
                        model.push((name, size));
                        let mut gone = Vec::new();
                        while model.iter().map(|(_, size)| size).sum::<u64>() > LIMIT {
                            gone.push(model.remove(0).0);
                        }
                        prop_assert_eq!(index.insert(name, size), gone);
                    }
                    Step::Touch(name) => {
                        index.touch(&name);
                        if let Some(at) = model.iter().position(|(n, _)| *n == name) {
                            let used = model.remove(at);
                            model.push(used);
                        }
                    }
                    Step::Forget(name) => {
                        index.forget(&name);
                        model.retain(|(n, _)| *n != name);
                    }
                }
                prop_assert_eq!(index.len(), model.len());
                prop_assert_eq!(index.total(), model.iter().map(|(_, size)| size).sum::<u64>());
                prop_assert!(index.total() <= LIMIT);
                prop_assert!(model.iter().all(|(name, _)| index.has(name)));
            }
        }
    }
}
