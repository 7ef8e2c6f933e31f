//! The rails of a session: the addresses of its server, and which of them lead there now.
//!
//! Commands and heartbeats take one rail, and lanes are dealt over all that work ([`Dealing`]). Invariant: no call here
//! waits for the network.
#![forbid(unsafe_code)]

use std::time::Instant;

use parking_lot::Mutex;

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
}

/// The rails of a session; see the module.
#[derive(Debug)]
pub(super) struct Rails {
    addresses: Vec<Address>,
    state: Mutex<RailsState>,
}

#[derive(Debug)]
struct RailsState {
    dealing: Dealing,
    peers: Vec<Option<Peer>>,
}

impl Rails {
    /// The rails of a server that was reached by one of them.
    pub(super) fn new(server: &ServerSettings, reached: Rail) -> Rails {
        let addresses: Vec<Address> = server.addresses().cloned().collect();
        let dealing = Dealing::new(addresses.len(), reached.number, Instant::now());
        let mut peers = vec![None; dealing.count()];
        peers[reached.number] = Some(reached.peer);
        Rails {
            addresses,
            state: Mutex::new(RailsState { dealing, peers }),
        }
    }

    /// Whether there is more than one rail.
    pub(super) fn are_several(&self) -> bool {
        self.addresses.len() > 1
    }

    /// The number of the rail of commands and heartbeats.
    pub(super) fn current(&self) -> usize {
        self.state.lock().dealing.current()
    }

    /// Moves commands and heartbeats to a rail that has answered.
    pub(super) fn set_current(&self, rail: Rail) {
        let before = self.current();
        {
            let mut state = self.state.lock();
            state.dealing.set_current(rail.number, Instant::now());
            state.peers[rail.number] = Some(rail.peer);
        }
        if before != rail.number {
            self.note_dead(before, "another address answered first");
        }
    }

    /// The rail of a lane.
    pub(super) fn of_lane(&self, lane: u8) -> usize {
        self.state.lock().dealing.of_lane(lane)
    }

    /// The address of a rail.
    pub(super) fn address(&self, rail: usize) -> &Address {
        &self.addresses[rail]
    }

    /// Where a rail led; `None` if that is not known.
    pub(super) fn peer(&self, rail: usize) -> Option<Peer> {
        self.state.lock().peers[rail].clone()
    }

    /// Notes where a rail leads.
    pub(super) fn note_peer(&self, rail: Rail) {
        self.state.lock().peers[rail.number] = Some(rail.peer);
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
            drop(state);
            tracing::warn!(
                address = self.addresses[rail].as_str(),
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
            tracing::warn!(
                address = self.addresses[rail].as_str(),
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
        let order = self.state.lock().dealing.order();
        order.into_iter().map(|rail| self.candidate(rail)).collect()
    }

    /// What to try to reach a rail.
    pub(super) fn candidate(&self, rail: usize) -> Candidate {
        Candidate {
            rail,
            address: self.addresses[rail].clone(),
            known: self.state.lock().peers[rail].clone(),
        }
    }
}
