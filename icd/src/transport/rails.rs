//! The rails of a session: the addresses of its server, and which of them lead there now.
//!
//! Commands and heartbeats take one rail, and lanes are dealt by speed over all that work ([`Dealing`]). The speeds are those
//! that are known when the session opens. Invariants: no call here waits for a connection. A connection that was dialled before
//! a move says nothing about the rails after it.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use causeway_security::Fingerprint;
use parking_lot::{Condvar, Mutex};

use super::dealing::Dealing;
use super::local::Peer;
use super::resolve::Candidate;
use crate::config::{Address, ServerSettings};

/// A rail, and where it led when it was last used.
#[derive(Clone, Debug)]
pub(super) struct Rail {
    /// Number of the address in the settings.
    pub(super) number: usize,
    pub(super) peer: Peer,
    /// The moves of the session before the rail was dialled.
    pub(super) moves: u64,
}

/// The server at which a session goes on.
#[derive(Clone, Debug)]
pub(super) struct Destination {
    pub(super) server: ServerSettings,
    /// How often the devices have changed their place.
    pub(super) changes: u64,
    /// The same count when the lease had lost the devices last. A session that was opened before has to begin anew.
    pub(super) replaced: u64,
}

/// The rails of a session; see the module.
#[derive(Debug)]
pub(super) struct Rails {
    state: Mutex<RailsState>,
    moved: Condvar,
}

#[derive(Debug)]
struct RailsState {
    // Their number never shrinks, because threads may have the number of any rail.
    addresses: Vec<Address>,
    /// The server to which the session has moved.
    moved: Option<ServerSettings>,
    /// Number of moves.
    moves: u64,
    /// Fingerprint of the session's certificate, if its connections use TLS.
    fingerprint: Option<Fingerprint>,
    /// Whether no address of that server has answered yet.
    is_unproven: bool,
    /// Whether the move is news to the thread that dials.
    is_news: bool,
    /// Of the last [`Destination`] that is known.
    changes: u64,
    replaced: u64,
    /// How often the devices had changed their place when the session was opened last.
    opened_after: u64,
    dealing: Dealing,
    peers: Vec<Option<Peer>>,
}

impl Rails {
    /// The rails of a server that was reached by one of them. `speeds` are those of the addresses; empty if they are not known.
    /// `fingerprint`: of the session's certificate, if its connections use TLS.
    pub(super) fn new(
        server: &ServerSettings,
        reached: Rail,
        speeds: &[u64],
        fingerprint: Option<Fingerprint>,
    ) -> Rails {
        let addresses: Vec<Address> = server.addresses().cloned().collect();
        let dealing = Dealing::new(addresses.len(), reached.number, Instant::now());
        let dealing = dealing.with_speeds(speeds);
        let mut peers = vec![None; dealing.count()];
        peers[reached.number] = Some(reached.peer.clone());
        Rails {
            state: Mutex::new(RailsState {
                addresses,
                moved: None,
                moves: reached.moves,
                fingerprint,
                is_unproven: false,
                is_news: false,
                changes: 0,
                replaced: 0,
                opened_after: 0,
                dealing,
                peers,
            }),
            moved: Condvar::new(),
        }
    }

    /// Sets how often the devices had changed their place when the session was opened.
    pub(super) fn opened_after(mut self, changes: u64) -> Rails {
        let state = self.state.get_mut();
        (state.changes, state.opened_after) = (changes, changes);
        self
    }

    /// Replaces all rails, because the session goes on at another server. The first that answers is used from then on.
    /// Returns whether the session has to be opened anew there. An old destination changes nothing.
    pub(super) fn lead_to(&self, destination: &Destination) -> bool {
        let mut state = self.state.lock();
        if destination.changes <= state.changes {
            return false;
        }
        let server = &destination.server;
        (state.changes, state.replaced) = (destination.changes, destination.replaced);
        let new: Vec<Address> = server.addresses().cloned().collect();
        let count = new.len().max(state.dealing.count());
        state.addresses = new.iter().cycle().take(count).cloned().collect();
        state.dealing = Dealing::new(count, 0, Instant::now());
        state.peers = vec![None; count];
        state.moved = Some(server.clone());
        state.moves += 1;
        (state.is_unproven, state.is_news) = (true, true);
        self.moved.notify_all();
        state.begins_anew()
    }

    /// Waits until the session moves, or for this time.
    pub(super) fn wait_for_news(&self, limit: Duration) {
        let mut state = self.state.lock();
        self.moved
            .wait_while_for(&mut state, |of| !of.is_news, limit);
    }

    /// The server to which the session has moved.
    pub(super) fn moved(&self) -> Option<ServerSettings> {
        self.state.lock().moved.clone()
    }

    /// Whether the session has to be opened anew.
    pub(super) fn begins_anew(&self) -> bool {
        self.state.lock().begins_anew()
    }

    /// Replaces the session's certificate, because it was opened again where the devices were after so many changes of
    /// their place.
    pub(super) fn note_reopened(&self, changes: u64, fingerprint: Option<Fingerprint>) {
        let mut state = self.state.lock();
        if state.replaced <= changes {
            (state.fingerprint, state.opened_after) = (fingerprint, changes);
        }
    }

    /// Fingerprint of the session's present certificate, if its connections use TLS.
    pub(super) fn fingerprint(&self) -> Option<Fingerprint> {
        self.state.lock().fingerprint
    }

    /// How often the session has moved.
    pub(super) fn moves(&self) -> u64 {
        self.state.lock().moves
    }

    /// Whether the session has moved.
    pub(super) fn have_moved(&self) -> bool {
        self.state.lock().moved.is_some()
    }

    /// Whether the session has moved since the last call.
    pub(super) fn take_news(&self) -> bool {
        std::mem::take(&mut self.state.lock().is_news)
    }

    /// Whether there is more than one rail.
    pub(super) fn are_several(&self) -> bool {
        let state = self.state.lock();
        state.addresses.len() > 1 && state.moved.is_none()
    }

    /// The number of the rail of commands and heartbeats.
    pub(super) fn current(&self) -> usize {
        self.state.lock().dealing.current()
    }

    /// Moves commands and heartbeats to a rail that has answered. Returns false if the session has moved since the rail was
    /// dialled.
    pub(super) fn set_current(&self, rail: Rail) -> bool {
        let before = {
            let mut state = self.state.lock();
            if rail.moves != state.moves {
                return false;
            }
            let before = state.dealing.current();
            state.dealing.set_current(rail.number, Instant::now());
            if std::mem::take(&mut state.is_unproven) {
                // The others may lead anywhere.
                let address = state.addresses[rail.number].clone();
                state.addresses.fill(address);
                state.peers.fill(Some(rail.peer.clone()));
            }
            state.peers[rail.number] = Some(rail.peer);
            before
        };
        if before != rail.number {
            self.note_dead(before, "another address answered first");
        }
        true
    }

    /// The rail of a lane.
    pub(super) fn of_lane(&self, lane: u8) -> usize {
        self.state.lock().dealing.of_lane(lane)
    }

    /// The address of a rail.
    pub(super) fn address(&self, rail: usize) -> Address {
        self.state.lock().addresses[rail].clone()
    }

    /// Where a rail led; `None` if that is not known.
    pub(super) fn peer(&self, rail: usize) -> Option<Peer> {
        self.state.lock().peers[rail].clone()
    }

    /// Notes where a rail leads, unless the session has moved since the rail was dialled.
    pub(super) fn note_peer(&self, rail: Rail) {
        let mut state = self.state.lock();
        if rail.moves == state.moves {
            state.peers[rail.number] = Some(rail.peer);
        }
    }

    /// Whether another rail works.
    pub(super) fn have_other(&self, rail: usize) -> bool {
        self.state.lock().dealing.has_other(rail)
    }

    /// Notes that a rail does not work, if another one does. Returns whether another one does.
    pub(super) fn note_dead(&self, rail: usize, reason: &str) -> bool {
        let mut state = self.state.lock();
        if !state.dealing.has_other(rail) {
            return false;
        }
        if state.dealing.note_dead(rail, Instant::now()) {
            let address = state.addresses[rail].clone();
            drop(state);
            tracing::warn!(
                address = address.as_str(),
                reason,
                "an address of the server does not work; its other addresses are used"
            );
        }
        true
    }

    /// Notes that a rail works.
    pub(super) fn note_works(&self, rail: usize) {
        let is_news = (self.state.lock().dealing).note_works(rail, Instant::now());
        if is_news {
            let address = self.address(rail);
            tracing::warn!(
                address = address.as_str(),
                "an address of the server works again"
            );
        }
    }

    /// A dead rail that is to be tried now.
    pub(super) fn due(&self, now: Instant) -> Option<usize> {
        self.state.lock().dealing.due(now)
    }

    /// What to try for commands: all rails, those that do not work last.
    pub(super) fn candidates(&self) -> Vec<Candidate> {
        let state = self.state.lock();
        let order = state.dealing.order().into_iter();
        order.map(|rail| state.candidate(rail)).collect()
    }

    /// What to try to reach a rail.
    pub(super) fn candidate(&self, rail: usize) -> Candidate {
        self.state.lock().candidate(rail)
    }
}

impl RailsState {
    fn begins_anew(&self) -> bool {
        self.replaced > self.opened_after
    }

    fn candidate(&self, rail: usize) -> Candidate {
        Candidate {
            rail,
            address: self.addresses[rail].clone(),
            known: self.peers[rail].clone(),
            moves: self.moves,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(addresses: &[&str]) -> ServerSettings {
        let mut addresses = addresses.iter().map(|text| text.parse().unwrap());
        let mut settings = ServerSettings::at(addresses.next().unwrap());
        settings.further = addresses.collect();
        settings
    }

    fn destination(addresses: &[&str], changes: u64, replaced: u64) -> Destination {
        Destination {
            server: settings(addresses),
            changes,
            replaced,
        }
    }

    fn rail(number: usize, port: u16) -> Rail {
        let peer = Peer::Tcp(([127, 0, 0, 1], port).into());
        Rail {
            number,
            peer,
            moves: 0,
        }
    }

    #[test]
    fn a_session_that_has_moved_takes_the_first_address_that_answers_for_all_rails() {
        let rails = Rails::new(&settings(&["a:1", "b:1", "c:1"]), rail(2, 1), &[], None);
        assert!(rails.are_several() && !rails.have_moved() && !rails.take_news());
        std::thread::scope(|scope| {
            const LONG: Duration = Duration::from_secs(60);
            let (waits, begun) = (scope.spawn(|| rails.wait_for_news(LONG)), Instant::now());
            assert!(!rails.lead_to(&destination(&["d:2", "e:2"], 1, 0)));
            waits.join().unwrap();
            assert!(begun.elapsed() < LONG);
        });
        assert!(rails.have_moved() && rails.take_news() && !rails.take_news());
        // A thread may still have the number of an earlier rail.
        let tried = rails.candidates();
        assert_eq!(tried.len(), 3);
        assert!(tried.iter().all(|of| of.known.is_none()));
        let addresses: Vec<_> = (0..3).map(|at| rails.address(at).to_string()).collect();
        assert_eq!(addresses, ["d:2", "e:2", "d:2"]);
        // A connection that was dialled before is no answer of the new server.
        assert!(!rails.set_current(rail(1, 2)));
        rails.note_peer(rail(0, 1));
        assert!((0..3).all(|at| rails.peer(at).is_none()));
        let moves = rails.moves();
        assert!(tried.iter().all(|of| of.moves == moves));
        assert!(rails.set_current(Rail {
            moves,
            ..rail(1, 2)
        }));
        for at in 0..3 {
            assert_eq!(rails.address(at).to_string(), "e:2");
            assert_eq!(rails.peer(at), Some(rail(at, 2).peer));
        }
        assert!(!rails.are_several());
    }

    #[test]
    fn a_session_begins_anew_where_its_devices_are_now() {
        let rails = Rails::new(&settings(&["a:1"]), rail(0, 1), &[], None);
        assert!(!rails.begins_anew());
        assert!(rails.lead_to(&destination(&["b:1"], 1, 1)));
        assert!(rails.begins_anew() && rails.take_news());
        assert!(rails.lead_to(&destination(&["c:1"], 2, 2)));
        let certificate = Some(Fingerprint([7; 32]));
        // The server before has opened the session meanwhile.
        rails.note_reopened(1, certificate);
        assert!(rails.begins_anew() && rails.fingerprint().is_none());
        // A move for a drain brings no session along that is not open.
        assert!(rails.lead_to(&destination(&["d:1"], 3, 2)));
        assert!(rails.begins_anew());
        rails.note_reopened(3, certificate);
        assert!(!rails.begins_anew() && rails.fingerprint() == certificate);
        // A session that moves later goes on there.
        assert!(!rails.lead_to(&destination(&["e:1"], 4, 2)));
        assert_eq!(rails.address(0).to_string(), "e:1");
    }

    #[test]
    fn a_session_that_was_opened_after_a_replacement_does_not_begin_anew() {
        let rails = Rails::new(&settings(&["b:1"]), rail(0, 1), &[], None).opened_after(2);
        // The replacement is told late.
        for changes in [1, 2] {
            assert!(!rails.lead_to(&destination(&["b:1"], changes, changes)));
            assert!(!rails.begins_anew() && !rails.have_moved());
        }
        // The session is opened again before its rails learn why.
        rails.note_reopened(3, None);
        assert!(!rails.lead_to(&destination(&["c:1"], 3, 3)));
        assert!(!rails.begins_anew() && rails.have_moved());
        assert!(rails.lead_to(&destination(&["d:1"], 4, 4)));
    }
}
