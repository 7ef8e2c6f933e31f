//! Limits, in total and for each key: connections of an address, sessions and memory of a user.
//!
//! Invariant: each [`CountedAmount`] or [`Permit`] is subtracted from the counts when it is dropped, whatever
//! happened.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::hash::Hash;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Counts amounts in total and by key, up to limits. Clones share their counts.
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

/// An amount that was counted. Dropping it gives the amount back.
pub struct CountedAmount<Key: Eq + Hash> {
    inside: Arc<Mutex<Inside<Key>>>,
    key: Key,
    amount: u64,
}

/// The reason why a limit refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// The total limit is reached.
    InAll,
    /// The limit of this key is reached.
    OfThisOne,
}

impl<Key: Clone + Eq + Hash> Tally<Key> {
    /// Creates limits: `limit` in total, `each` for each key.
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

    /// Counts an amount for a key.
    ///
    /// # Errors
    /// [`Full`] when a limit would be exceeded. Nothing is counted then.
    pub fn take(&self, key: Key, amount: u64) -> Result<CountedAmount<Key>, Full> {
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
        Ok(CountedAmount {
            inside: Arc::clone(&self.inside),
            key,
            amount,
        })
    }
}

impl<Key: Eq + Hash> Drop for CountedAmount<Key> {
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

/// Admits connections, with limits in total and for each peer. Clones share their counts.
///
/// A connection is *silent* until its peer has shown what it wants, and *settled* afterwards. When a limit
/// is reached, a newcomer displaces the connection that has been silent for longest, so silent peers cannot
/// keep others out. A connection younger than [`GRACE`] is not displaced, because honest peers need that
/// time. Meanwhile the limits may be exceeded by the factor [`BURST`].
#[derive(Clone)]
pub struct Admission(Arc<Gate>);

/// Age from which a silent connection may be displaced by a newcomer.
pub const GRACE: Duration = Duration::from_secs(1);
/// Factor by which connections may exceed the limits while each of them is younger than [`GRACE`].
pub const BURST: usize = 4;
/// Shortest time between two log lines about displaced connections, and between two about refused ones.
const REPORT_EVERY: Duration = Duration::from_secs(10);

struct Gate {
    limit: usize,
    per_peer: usize,
    rooms: Mutex<Rooms>,
}

#[derive(Default)]
struct Rooms {
    of: HashMap<IpAddr, Room>,
    silent: usize,
    settled: usize,
    last: u64,
    /// Displaced connections since the last log line about them.
    displaced: u64,
    displaced_told: Option<Instant>,
    refused: u64,
    refused_told: Option<Instant>,
}

/// The connections of one peer: of an IPv4 address, or of an IPv6 /64.
#[derive(Default)]
struct Room {
    /// The silent connections: since when each is silent, and the channel that tells it to close.
    silent: BTreeMap<(Instant, u64), oneshot::Sender<()>>,
    settled: usize,
}

/// The admission of one connection. Dropping it gives the place back.
pub struct Permit {
    gate: Arc<Gate>,
    peer: IpAddr,
    number: u64,
    /// When the connection became silent. `None` if it has settled.
    silent_since: Option<Instant>,
    told: Option<oneshot::Receiver<()>>,
}

impl Admission {
    /// Creates limits: `limit` connections in total, `per_peer` for each peer.
    #[must_use]
    pub fn new(limit: usize, per_peer: usize) -> Admission {
        Admission(Arc::new(Gate {
            limit,
            per_peer,
            rooms: Mutex::default(),
        }))
    }

    /// Admits a connection. `None` if settled connections fill the total limit or this peer's.
    #[must_use]
    pub fn admit(&self, peer: IpAddr) -> Option<Permit> {
        self.admit_at(peer, Instant::now())
    }

    fn admit_at(&self, address: IpAddr, now: Instant) -> Option<Permit> {
        let (gate, peer) = (&self.0, household(address));
        let mut rooms = gate.rooms.lock();
        let room = rooms.of.get(&peer);
        let (own, own_settled) = room.map_or((0, 0), |room| (room.len(), room.settled));
        if rooms.settled >= gate.limit || own_settled >= gate.per_peer {
            rooms.tell_refused(address, now);
            return None;
        }
        // The peer's own limit comes first: a peer that exceeds it displaces only its own connections.
        let displaced =
            own >= gate.per_peer && rooms.displace(peer, now, own >= BURST * gate.per_peer);
        let all = rooms.silent + rooms.settled;
        if !displaced
            && all >= gate.limit
            && let Some(largest) = rooms.largest()
        {
            rooms.displace(largest, now, all >= BURST * gate.limit);
        }
        Some(gate.enter(&mut rooms, peer, now))
    }
}

impl Gate {
    fn enter(self: &Arc<Self>, rooms: &mut Rooms, peer: IpAddr, now: Instant) -> Permit {
        let (tell, told) = oneshot::channel();
        rooms.last += 1;
        rooms.silent += 1;
        let number = rooms.last;
        let room = rooms.of.entry(peer).or_default();
        room.silent.insert((now, number), tell);
        Permit {
            gate: Arc::clone(self),
            peer,
            number,
            silent_since: Some(now),
            told: Some(told),
        }
    }
}

impl Room {
    fn len(&self) -> usize {
        self.silent.len() + self.settled
    }
}

impl Rooms {
    /// The peer with the most silent connections. Of two equal ones, that with the oldest.
    fn largest(&self) -> Option<IpAddr> {
        let order = |room: &Room| {
            let oldest = room.silent.first_key_value().map(|((since, _), _)| *since);
            (room.silent.len(), std::cmp::Reverse(oldest))
        };
        let largest = self.of.iter().max_by_key(|(_, room)| order(room));
        largest.map(|(peer, _)| *peer)
    }

    /// Tells the peer's oldest silent connection to close. One younger than [`GRACE`] is displaced only if
    /// it must be.
    fn displace(&mut self, peer: IpAddr, now: Instant, must: bool) -> bool {
        let Some(room) = self.of.get_mut(&peer) else {
            return false;
        };
        let Some(oldest) = room.silent.first_entry() else {
            return false;
        };
        if !must && now.saturating_duration_since(oldest.key().0) < GRACE {
            return false;
        }
        // Its place is free from now on. The displaced connection's `Permit` gives nothing back later.
        let _ = oldest.remove().send(());
        let others = room.len();
        self.silent -= 1;
        self.displaced += 1;
        if is_due(&mut self.displaced_told, now) {
            let closed_in_all = std::mem::take(&mut self.displaced);
            tracing::warn!(
                address = %peer,
                others_of_it = others,
                closed_in_all,
                "the connection limit is reached: closed the connection of this address that was idle longest to admit \
                 a new one"
            );
        }
        true
    }

    /// Counts a refused newcomer, and logs it if the last line is old enough.
    fn tell_refused(&mut self, address: IpAddr, now: Instant) {
        self.refused += 1;
        if is_due(&mut self.refused_told, now) {
            let refused_in_all = std::mem::take(&mut self.refused);
            tracing::warn!(
                %address,
                refused_in_all,
                "connection from this address refused: the connection limit is reached by connections in use"
            );
        }
    }
}

/// Whether the next log line is due. If so, the time of this one is noted.
fn is_due(told: &mut Option<Instant>, now: Instant) -> bool {
    let is_due = told.is_none_or(|last| now.saturating_duration_since(last) >= REPORT_EVERY);
    if is_due {
        *told = Some(now);
    }
    is_due
}

impl Permit {
    /// Records that the peer has taken a step that is possible only once. Its silence counts from now on.
    pub fn progress(&mut self) {
        self.progress_at(Instant::now());
    }

    fn progress_at(&mut self, now: Instant) {
        let mut rooms = self.gate.rooms.lock();
        let room = rooms.of.get_mut(&self.peer);
        if let (Some(since), Some(room)) = (self.silent_since, room)
            && let Some(tell) = room.silent.remove(&(since, self.number))
        {
            room.silent.insert((now, self.number), tell);
            self.silent_since = Some(now);
        }
    }

    /// Records that the peer has shown what it wants. Nobody can displace the connection any more.
    ///
    /// # Errors
    /// [`Full`] when settled connections fill a limit, or this connection was displaced already.
    pub fn settle(&mut self) -> Result<(), Full> {
        let Some(since) = self.silent_since else {
            return Ok(());
        };
        let mut rooms = self.gate.rooms.lock();
        if rooms.settled >= self.gate.limit {
            return Err(Full::InAll);
        }
        let room = rooms.of.get_mut(&self.peer);
        let room = room.filter(|room| room.settled < self.gate.per_peer);
        let room = room.ok_or(Full::OfThisOne)?;
        let told = room.silent.remove(&(since, self.number));
        told.ok_or(Full::OfThisOne)?;
        room.settled += 1;
        rooms.silent -= 1;
        rooms.settled += 1;
        self.silent_since = None;
        self.told = None;
        Ok(())
    }

    /// Ready when the connection must close for a newcomer.
    pub fn poll_displaced(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(told) = &mut self.told else {
            return Poll::Pending;
        };
        match Pin::new(told).poll(cx) {
            Poll::Ready(Ok(())) => {
                self.told = None;
                Poll::Ready(())
            }
            // The sender is gone, so no displacement can follow.
            Poll::Ready(Err(_)) => {
                self.told = None;
                Poll::Pending
            }
            Poll::Pending => Poll::Pending,
        }
    }

    /// Waits until the connection must close for a newcomer.
    pub async fn displaced(&mut self) {
        std::future::poll_fn(|cx| self.poll_displaced(cx)).await;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut rooms = self.gate.rooms.lock();
        let Some(room) = rooms.of.get_mut(&self.peer) else {
            return;
        };
        let left = match self.silent_since {
            Some(since) => room.silent.remove(&(since, self.number)).is_some(),
            None => {
                room.settled -= 1;
                true
            }
        };
        if room.len() == 0 {
            rooms.of.remove(&self.peer);
        }
        match self.silent_since {
            Some(_) if left => rooms.silent -= 1,
            // The connection was displaced, and its place was given away at that time.
            Some(_) => {}
            None => rooms.settled -= 1,
        }
    }
}

/// The peer that an address counts for. A host with one IPv6 address usually has its whole /64.
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

    fn is_displaced(permit: &mut Permit) -> bool {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        permit.poll_displaced(&mut cx).is_ready()
    }

    #[test]
    fn the_one_that_was_silent_for_longest_leaves_for_a_newcomer() {
        let admission = Admission::new(9, 2);
        let begun = Instant::now();
        let at = |of: u32| begun + GRACE * of;
        let admit = |of| admission.admit_at(ip("10.0.0.1"), at(of)).unwrap();
        let (mut first, mut second) = (admit(0), admit(1));
        first.progress_at(at(2));
        let mut third = admit(3);
        assert!(!is_displaced(&mut first) && is_displaced(&mut second));
        // The place of `second` was given away once, so dropping it frees nothing.
        drop(second);
        let fourth = admit(4);
        assert!(is_displaced(&mut first) && !is_displaced(&mut third));
        assert_eq!(first.settle(), Err(Full::OfThisOne));
        drop((first, third, fourth));
        assert!(admission.0.rooms.lock().of.is_empty());
    }

    #[test]
    fn newcomers_at_once_are_given_time() {
        let admission = Admission::new(99, 2);
        let now = Instant::now();
        let mut young: Vec<_> = (0..2 * BURST)
            .map(|_| admission.admit_at(ip("10.0.0.1"), now).unwrap())
            .collect();
        assert!(!young.iter_mut().any(is_displaced));
        let _last = admission.admit_at(ip("10.0.0.1"), now).unwrap();
        assert_eq!(
            young
                .iter_mut()
                .filter_map(|of| is_displaced(of).then_some(()))
                .count(),
            1
        );
    }

    #[test]
    fn those_with_most_make_room_for_others() {
        let admission = Admission::new(4, 3);
        let begun = Instant::now();
        let mut single = admission.admit_at(ip("10.0.0.2"), begun).unwrap();
        let mut many: Vec<_> = (0..3)
            .map(|_| admission.admit_at(ip("10.0.0.1"), begun).unwrap())
            .collect();
        let later = begun + GRACE;
        let mut newcomer = admission.admit_at(ip("10.0.0.3"), later).unwrap();
        assert!(is_displaced(&mut many[0]));
        assert!(!is_displaced(&mut single) && !is_displaced(&mut newcomer));
    }

    #[test]
    fn those_who_have_settled_stay() {
        let admission = Admission::new(3, 2);
        let now = Instant::now();
        let admit = |from: &str| admission.admit_at(ip(from), now + GRACE);
        let mut first = admission.admit_at(ip("10.0.0.1"), now).unwrap();
        first.settle().unwrap();
        first.settle().unwrap();
        let mut second = admit("::ffff:10.0.0.1").unwrap();
        let mut more = admit("10.0.0.1").unwrap();
        second.settle().unwrap();
        assert_eq!(more.settle(), Err(Full::OfThisOne));
        assert!(admit("10.0.0.1").is_none());
        let mut other = admit("10.0.0.2").unwrap();
        other.settle().unwrap();
        assert!(admit("10.0.0.3").is_none(), "the total is reached");
        drop(first);
        assert!(admit("10.0.0.3").is_some());
        assert_eq!(more.settle(), Ok(()));
    }

    #[test]
    fn a_v6_neighbourhood_counts_as_one() {
        let admission = Admission::new(9, 1);
        let mut one = admission.admit(ip("2001:db8::1")).unwrap();
        one.settle().unwrap();
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
        assert!(admission.0.rooms.lock().of.is_empty());
    }
}
