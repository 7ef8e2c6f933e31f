//! How many at once, in all and from one peer.
//!
//! Invariant: what was counted in is counted out when its [`Permit`] is dropped, whatever happened.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

/// Counts who is inside.
#[derive(Clone)]
pub struct Admission {
    limit: usize,
    per_peer: usize,
    inside: Arc<Mutex<Inside>>,
}

#[derive(Default)]
struct Inside {
    total: usize,
    peers: HashMap<IpAddr, usize>,
}

/// One place, given back when dropped.
pub struct Permit {
    admission: Admission,
    peer: IpAddr,
}

impl Admission {
    /// At most `limit`, and at most `per_peer` from one address.
    #[must_use]
    pub fn new(limit: usize, per_peer: usize) -> Admission {
        Admission {
            limit,
            per_peer,
            inside: Arc::default(),
        }
    }

    /// A place, if there is one for this peer.
    pub fn admit(&self, peer: IpAddr) -> Option<Permit> {
        let peer = household(peer);
        let mut inside = self.inside.lock();
        let of_peer = inside.peers.get(&peer).copied().unwrap_or(0);
        if inside.total >= self.limit || of_peer >= self.per_peer {
            return None;
        }
        inside.total += 1;
        inside.peers.insert(peer, of_peer + 1);
        Some(Permit {
            admission: self.clone(),
            peer,
        })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut inside = self.admission.inside.lock();
        inside.total -= 1;
        let left = inside.peers.get(&self.peer).map_or(0, |n| n - 1);
        if left == 0 {
            inside.peers.remove(&self.peer);
        } else {
            inside.peers.insert(self.peer, left);
        }
    }
}

/// Whoever has one IPv6 address has its whole /64.
fn household(peer: IpAddr) -> IpAddr {
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
    fn nothing_is_kept_of_who_has_left() {
        let admission = Admission::new(9, 9);
        drop(admission.admit(ip("10.0.0.1")));
        assert!(admission.inside.lock().peers.is_empty());
    }
}
