//! Waiting requests, in the order of their arrival, and by user in the fair order.
//!
//! Each user takes part in the fair order with their first request; their later requests come after it,
//! whatever they ask for. Requests whose client is disconnected keep their place but take no part.
//! Invariant: the fair order contains exactly the users with a request that is present.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use super::UserName;
use super::fairness::Share;

/// A place in the order of arrival; lower places came earlier.
pub type QueuePlace = u64;

/// Waiting requests, each with an entry `E` of the queue's owner.
#[derive(Clone, Debug, Hash)]
pub struct Queue<E> {
    entries: BTreeMap<QueuePlace, QueueEntry<E>>,
    present: BTreeMap<UserName, BTreeSet<QueuePlace>>,
    counts: BTreeMap<UserName, usize>,
    order: BTreeSet<(Share, QueuePlace, UserName)>,
    keys: BTreeMap<UserName, (Share, QueuePlace)>,
    next: QueuePlace,
}

#[derive(Clone, Debug, Hash)]
struct QueueEntry<E> {
    user: UserName,
    entry: E,
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            present: BTreeMap::new(),
            counts: BTreeMap::new(),
            order: BTreeSet::new(),
            keys: BTreeMap::new(),
            next: 1,
        }
    }
}

impl<E> Queue<E> {
    /// A place behind all places so far.
    pub fn new_place(&mut self) -> QueuePlace {
        self.next += 1;
        self.next - 1
    }

    /// Puts a request at its place, which must be free.
    pub fn insert(&mut self, place: QueuePlace, user: UserName, entry: E) {
        // Places from the store come without `new_place`.
        self.next = self.next.max(place.saturating_add(1));
        *self.counts.entry(user.clone()).or_default() += 1;
        self.entries.insert(place, QueueEntry { user, entry });
    }

    /// Removes a request.
    pub fn remove(&mut self, place: QueuePlace) -> Option<E> {
        // While the entry still names the user.
        self.set_present(place, false);
        let entry = self.entries.remove(&place)?;
        if let Entry::Occupied(mut count) = self.counts.entry(entry.user) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        Some(entry.entry)
    }

    /// Sets whether a request takes part in the fair order. Call [`Self::refresh`] for its user
    /// afterwards.
    pub fn set_present(&mut self, place: QueuePlace, is: bool) {
        let Some(entry) = self.entries.get(&place) else {
            return;
        };
        let places = self.present.entry(entry.user.clone()).or_default();
        if is {
            places.insert(place);
        } else {
            places.remove(&place);
        }
        if places.is_empty() {
            self.present.remove(&entry.user);
        }
    }

    /// The entry at a place.
    #[must_use]
    pub fn get(&self, place: QueuePlace) -> Option<&E> {
        self.entries.get(&place).map(|entry| &entry.entry)
    }

    /// The entry at a place, mutable.
    pub fn get_mut(&mut self, place: QueuePlace) -> Option<&mut E> {
        self.entries.get_mut(&place).map(|entry| &mut entry.entry)
    }

    /// Number of waiting requests.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Number of a user's waiting requests, present or not.
    #[must_use]
    pub fn count_of(&self, user: &UserName) -> usize {
        self.counts.get(user).copied().unwrap_or_default()
    }

    /// Whether no request waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All requests in the order of their arrival.
    pub fn iter(&self) -> impl Iterator<Item = (QueuePlace, &E)> {
        self.entries
            .iter()
            .map(|(place, entry)| (*place, &entry.entry))
    }

    /// All requests in the order of their arrival, mutable.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (QueuePlace, &mut E)> {
        let entries = self.entries.iter_mut();
        entries.map(|(place, entry)| (*place, &mut entry.entry))
    }

    /// Number of requests that came before this place.
    #[must_use]
    pub fn before(&self, place: QueuePlace) -> usize {
        // Fast path for the last place, because counting a range is linear.
        if self
            .entries
            .last_key_value()
            .is_some_and(|(last, _)| *last <= place)
        {
            return self.entries.len() - usize::from(self.entries.contains_key(&place));
        }
        self.entries.range(..place).count()
    }

    /// The first present request of a user.
    #[must_use]
    pub fn first_of(&self, user: &UserName) -> Option<QueuePlace> {
        self.present.get(user)?.first().copied()
    }

    /// Users with a present request.
    pub fn users(&self) -> impl Iterator<Item = &UserName> {
        self.present.keys()
    }

    /// Updates a user's position in the fair order. `share` computes the share from the user's first
    /// request.
    pub fn refresh(&mut self, user: &UserName, share: impl FnOnce(&E) -> Share) {
        // The order contains the share as of the last refresh, by which the old entry is found.
        if let Some((share, place)) = self.keys.remove(user) {
            self.order.remove(&(share, place, user.clone()));
        }
        let Some(place) = self.first_of(user) else {
            return;
        };
        let share = share(&self.entries[&place].entry);
        self.keys.insert(user.clone(), (share, place));
        self.order.insert((share, place, user.clone()));
    }

    /// The first request of each user, in the fair order.
    pub fn fair_order(&self) -> impl Iterator<Item = QueuePlace> {
        self.order.iter().map(|(_, place, _)| *place)
    }

    /// The next user behind `after` in the fair order.
    #[must_use]
    pub fn next_user(
        &self,
        after: Option<&(Share, QueuePlace, UserName)>,
    ) -> Option<(Share, QueuePlace, UserName)> {
        use std::ops::Bound::{Excluded, Unbounded};
        let start = after.map_or(Unbounded, Excluded);
        self.order.range((start, Unbounded)).next().cloned()
    }
}
