//! The index of entries: their sizes, their owners and the order of their last use. Pure.
//!
//! No owner has more than a share of the cache. So one user can evict at most this share of other users'
//! entries, however much they store. Within these limits, the entry that was used least recently goes
//! first.
//!
//! Invariants: [`Index::total`] is the sum of the sizes in the index. After an insertion it is at most the
//! limit, and the owner's part of it is at most the share.

use std::collections::{BTreeMap, HashMap};

use super::key::{Key, Name, Owner};

/// Entries by name, in the order of their last use.
#[derive(Debug)]
pub struct Index {
    limit: u64,
    share: u64,
    total: u64,
    last: u64,
    entries: HashMap<Name, SizeAndUse>,
    by_use: BTreeMap<u64, Name>,
    owned: HashMap<Owner, Owned>,
}

#[derive(Clone, Copy, Debug)]
struct SizeAndUse {
    size: u64,
    used: u64,
}

/// The entries of one owner; at least one.
#[derive(Debug, Default)]
struct Owned {
    total: u64,
    by_use: BTreeMap<u64, Key>,
}

impl Index {
    /// Makes an empty index for at most `limit` bytes, of which one owner may have `share`.
    #[must_use]
    pub fn new(limit: u64, share: u64) -> Index {
        Index {
            limit,
            share: share.min(limit),
            total: 0,
            last: 0,
            entries: HashMap::new(),
            by_use: BTreeMap::new(),
            owned: HashMap::new(),
        }
    }

    /// Returns the total size of all entries, in bytes.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns the number of entries.
    pub fn count(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether an entry is in the index.
    #[must_use]
    pub fn has(&self, name: &Name) -> bool {
        self.entries.contains_key(name)
    }

    /// Returns whether an entry of `size` bytes may be inserted at all.
    #[must_use]
    pub fn fits(&self, size: u64) -> bool {
        size <= self.share
    }

    /// Marks an entry as the most recently used one.
    pub fn touch(&mut self, name: &Name) {
        if let Some(SizeAndUse { size, .. }) = self.remove(name) {
            self.add(*name, size);
        }
    }

    /// Inserts an entry as the most recently used one. Returns the names of the entries that were evicted
    /// for it. The new entry is among them if it does not [fit](Index::fits).
    pub fn insert(&mut self, name: Name, size: u64) -> Vec<Name> {
        self.remove(&name);
        self.add(name, size);
        let mut gone = Vec::new();
        while let Some(oldest) = self.surplus(name.owner) {
            self.remove(&oldest);
            gone.push(oldest);
        }
        gone
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        *self = Index::new(self.limit, self.share);
    }

    /// Removes an entry.
    pub fn forget(&mut self, name: &Name) {
        self.remove(name);
    }

    /// Returns the entry to evict next: the owner's oldest one while the owner has more than the share,
    /// then the oldest of all while there are more than the limit.
    fn surplus(&self, owner: Owner) -> Option<Name> {
        let owned = self.owned.get(&owner)?;
        if owned.total > self.share {
            let key = *owned.by_use.values().next()?;
            return Some(Name { owner, key });
        }
        let oldest = self.by_use.values().next().copied();
        oldest.filter(|_| self.total > self.limit)
    }

    fn add(&mut self, name: Name, size: u64) {
        self.last += 1;
        let used = self.last;
        self.total += size;
        self.entries.insert(name, SizeAndUse { size, used });
        self.by_use.insert(used, name);
        let owned = self.owned.entry(name.owner).or_default();
        owned.total += size;
        owned.by_use.insert(used, name.key);
    }

    fn remove(&mut self, name: &Name) -> Option<SizeAndUse> {
        let kept = self.entries.remove(name)?;
        self.by_use.remove(&kept.used);
        self.total -= kept.size;
        if let Some(owned) = self.owned.get_mut(&name.owner) {
            owned.total -= kept.size;
            owned.by_use.remove(&kept.used);
            if owned.by_use.is_empty() {
                self.owned.remove(&name.owner);
            }
        }
        Some(kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build_cache::key::KEY;
    use proptest::prelude::*;

    const LIMIT: u64 = 100;
    const SHARE: u64 = 60;

    #[derive(Clone, Debug)]
    enum Step {
        Insert(Name, u64),
        Touch(Name),
        Forget(Name),
    }

    fn name(owner: u8, n: u8) -> Name {
        Name {
            owner: Owner::of(Some(&owner.to_string())),
            key: Key([n; KEY]),
        }
    }

    fn step() -> impl Strategy<Value = Step> {
        let name = || (0..3u8, 0..6u8).prop_map(|(owner, n)| name(owner, n));
        prop_oneof![
            (name(), 0..60u64).prop_map(|(name, size)| Step::Insert(name, size)),
            name().prop_map(Step::Touch),
            name().prop_map(Step::Forget),
        ]
    }

    #[test]
    fn one_user_evicts_no_more_of_others_than_their_share() {
        let mut index = Index::new(LIMIT, SHARE);
        for n in 0..4 {
            assert_eq!(index.insert(name(1, n), 10), []);
            assert_eq!(index.insert(name(2, n), 10), []);
        }
        for n in 0..200 {
            index.insert(name(3, n), 10);
        }
        // Of the 80 bytes of others, the 40 that were used last are left.
        for owner in 1..=2 {
            let kept: Vec<u8> = (0..4).filter(|n| index.has(&name(owner, *n))).collect();
            assert_eq!(kept, [2, 3]);
        }
        assert_eq!((index.count(), index.total()), (10, LIMIT));
    }

    #[test]
    fn one_user_alone_may_have_all() {
        let mut index = Index::new(LIMIT, LIMIT);
        for n in 0..10 {
            assert_eq!(index.insert(name(1, n), 10), []);
        }
        assert_eq!(index.insert(name(1, 10), 10), [name(1, 0)]);
    }

    proptest! {
        #[test]
        fn it_is_a_list_in_the_order_of_use(steps in prop::collection::vec(step(), 0..60)) {
            let mut index = Index::new(LIMIT, SHARE);
            // Ordered by last use, the oldest first.
            let mut model: Vec<(Name, u64)> = Vec::new();
            let sum = |model: &[(Name, u64)], of: Option<Owner>| -> u64 {
                let counted = model.iter().filter(|(n, _)| of.is_none_or(|of| n.owner == of));
                counted.map(|(_, size)| size).sum()
            };
            for step in steps {
                match step {
                    Step::Insert(name, size) => {
                        model.retain(|(n, _)| *n != name);
                        model.push((name, size));
                        let mut gone = Vec::new();
                        while sum(&model, Some(name.owner)) > SHARE {
                            let at = model.iter().position(|(n, _)| n.owner == name.owner);
                            gone.push(model.remove(at.unwrap()).0);
                        }
                        while sum(&model, None) > LIMIT {
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
                prop_assert_eq!(index.count(), model.len());
                prop_assert_eq!(index.total(), sum(&model, None));
                prop_assert!(index.total() <= LIMIT);
                prop_assert!(model.iter().all(|(name, _)| index.has(name)));
            }
        }
    }
}
