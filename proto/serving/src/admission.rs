//! How much at once, in all and of one: connections of an address, sessions and memory of a user.
//!
//! Invariant: what was counted in is counted out when its [`Place`] is dropped, whatever happened.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

/// Counts what is inside, by who it is of. A clone counts with it.
#[derive(Clone)]
pub struct Tally<Key> {
    limit: u64,
    each: u64,
    inside: Arc<Mutex<Inside<Key>>>,
}

struct Inside<Key> {
    total: u64,
    of: HashMap<Key, u64>,
}

/// What one holds of it, given back when dropped.
pub struct Place<Key: Eq + Hash> {
    inside: Arc<Mutex<Inside<Key>>>,
    key: Key,
    amount: u64,
}

/// There is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// For anybody.
    InAll,
    /// For this one.
    OfThisOne,
}

impl<Key: Clone + Eq + Hash> Tally<Key> {
    /// For so much in all, and so much of each.
    #[must_use]
    pub fn new(limit: u64, each: u64) -> Tally<Key> {
        let inside = Inside {
            total: 0,
            of: HashMap::new(),
        };
        Tally {
            limit,
            each,
            inside: Arc::new(Mutex::new(inside)),
        }
    }

    /// A place for so much.
    ///
    /// # Errors
    /// [`Full`], and nothing was counted.
    pub fn take(&self, key: Key, amount: u64) -> Result<Place<Key>, Full> {
        let mut inside = self.inside.lock();
        let has = inside.of.get(&key).copied().unwrap_or(0);
        let fits = |has: u64, limit: u64| has.checked_add(amount).is_some_and(|sum| sum <= limit);
        if !fits(inside.total, self.limit) {
            return Err(Full::InAll);
        }
        if !fits(has, self.each) {
            return Err(Full::OfThisOne);
        }
        inside.total += amount;
        inside.of.insert(key.clone(), has + amount);
        Ok(Place {
            inside: Arc::clone(&self.inside),
            key,
            amount,
        })
    }
}

impl<Key: Eq + Hash> Drop for Place<Key> {
    fn drop(&mut self) {
        let mut inside = self.inside.lock();
        inside.total -= self.amount;
        if let Some(has) = inside.of.get_mut(&self.key) {
            *has -= self.amount;
            if *has == 0 {
                inside.of.remove(&self.key);
            }
        }
    }
}

/// Counts connections by the addresses that they come from. A clone counts with it.
#[derive(Clone)]
pub struct Admission(Tally<IpAddr>);

/// One connection's place.
pub type Permit = Place<IpAddr>;

impl Admission {
    /// At most `limit`, and at most `per_peer` from one address.
    #[must_use]
    pub fn new(limit: usize, per_peer: usize) -> Admission {
        Admission(Tally::new(limit as u64, per_peer as u64))
    }

    /// A place, if there is one for this peer.
    pub fn admit(&self, peer: IpAddr) -> Option<Permit> {
        self.0.take(household(peer), 1).ok()
    }
}

/// Whose an address is: whoever has one IPv6 address has its whole /64.
pub fn household(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() >> 64 << 64).into()),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn one_peer_leaves_room_for_others() {
        let admission = Admission::new(3, 2);
        let first = admission.admit(ip("10.0.0.1")).unwrap();
        let _second = admission.admit(ip("::ffff:10.0.0.1")).unwrap();
        assert!(admission.admit(ip("10.0.0.1")).is_none());
        let _other = admission.admit(ip("10.0.0.2")).unwrap();
        assert!(
            admission.admit(ip("10.0.0.3")).is_none(),
            "the total is reached"
        );
        drop(first);
        assert!(admission.admit(ip("10.0.0.1")).is_some());
    }

    #[test]
    fn a_v6_neighbourhood_counts_as_one() {
        let admission = Admission::new(9, 1);
        let _one = admission.admit(ip("2001:db8::1")).unwrap();
        assert!(admission.admit(ip("2001:db8::2:3")).is_none());
        assert!(admission.admit(ip("2001:db8:0:1::1")).is_some());
    }

    #[test]
    fn amounts_count_and_too_much_takes_nothing() {
        let memory = Tally::new(100, 60);
        let first = memory.take("a", 60).unwrap();
        assert_eq!(memory.take("a", 1).err(), Some(Full::OfThisOne));
        assert_eq!(memory.take("b", 41).err(), Some(Full::InAll));
        assert_eq!(memory.take("b", u64::MAX).err(), Some(Full::InAll));
        let _second = memory.take("b", 40).unwrap();
        drop(first);
        assert!(memory.take("a", 60).is_ok());
    }

    #[test]
    fn nothing_is_kept_of_who_has_left() {
        let admission = Admission::new(9, 9);
        drop(admission.admit(ip("10.0.0.1")));
        assert!(admission.0.inside.lock().of.is_empty());
    }
}
