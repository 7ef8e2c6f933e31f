//! The way of one link's transfers: its own lanes, or the client's when there is no path.
//!
//! What is to be said waits until there is a way. Invariant: what was queued is on exactly one queue; once
//! the client's lanes are the way, they stay it, and the link has none of its own.
#![forbid(unsafe_code)]

use std::sync::Arc;

use causeway_lane::Stream;
use causeway_proto::bulk::Header;
use causeway_proto::id::LinkId;
use parking_lot::Mutex;

use super::outgoing::{Outgoing, Unsent};

/// The way of one link, as the bulk engine sees it.
pub(crate) struct Path {
    id: LinkId,
    own: Outgoing,
    route: Mutex<Route>,
}

#[derive(Default)]
struct Route {
    way: Way,
    // Grows with every change of the way: a timer of an earlier one is told by it.
    turn: u64,
    // Lanes of an earlier incarnation are told by it.
    incarnation: u64,
    lanes: Vec<Arc<Stream>>,
    // A timer runs for this turn.
    timed: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Way {
    /// Not up yet.
    #[default]
    Waiting,
    Up,
    /// It was up; the client has not said what now.
    Broken,
    /// Given up, until something new is said.
    Lost(String),
    ViaClient,
}

/// How long transfers wait for a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// The link is being made.
    Making,
    /// It broke.
    Broken,
}

impl Path {
    pub(super) fn new(id: LinkId) -> Path {
        Path {
            id,
            own: Outgoing::default(),
            route: Mutex::default(),
        }
    }

    /// Of a link that the client has dropped.
    pub(crate) fn dropped(id: LinkId) -> Path {
        let path = Path::new(id);
        drop(path.give_up_for_good(super::DROPPED));
        path
    }

    pub(crate) fn id(&self) -> LinkId {
        self.id
    }

    /// What its own lanes send from.
    pub(super) fn own(&self) -> &Outgoing {
        &self.own
    }

    /// Puts something on the queue of the present way.
    pub(super) fn put<T>(&self, client: &Outgoing, put: impl FnOnce(&Outgoing) -> T) -> T {
        let route = self.route.lock();
        match route.way {
            Way::ViaClient => put(client),
            _ => put(&self.own),
        }
    }

    /// Another lane is there, of this incarnation of the link. `None`: it is not wanted; else whether it
    /// is the first after a break.
    pub(super) fn attached(&self, incarnation: u64, lane: Arc<Stream>) -> Option<bool> {
        let mut route = self.route.lock();
        let again = matches!(route.way, Way::Broken | Way::Lost(_));
        match route.way {
            Way::ViaClient => return None,
            Way::Up => {}
            _ => route.change(Way::Up),
        }
        route.incarnation = incarnation;
        route.lanes.push(lane);
        Some(again)
    }

    /// The lanes are gone. What they had not sent, to be dropped by the caller; `None`: there were none.
    pub(super) fn broken(&self) -> Option<Unsent> {
        let mut route = self.route.lock();
        if route.lanes.is_empty() {
            return None;
        }
        for lane in route.lanes.drain(..) {
            lane.shut_down();
        }
        route.change(Way::Broken);
        let unsent = self.own.break_off();
        drop(route);
        self.own.look();
        Some(unsent)
    }

    /// The client's lanes are the way from now on; there are no others any more. Whether what was said
    /// before may be lost.
    pub(super) fn via_client(&self, client: &Outgoing) -> bool {
        let mut route = self.route.lock();
        if route.way == Way::ViaClient {
            return false;
        }
        let again = route.way != Way::Waiting;
        route.change(Way::ViaClient);
        client.take_over(&self.own);
        again
    }

    /// A transfer has to wait for the way, or something broke: for how long, if nobody counts yet.
    pub(super) fn count(&self) -> Option<(Patience, u64)> {
        let mut route = self.route.lock();
        let patience = match route.way {
            Way::Waiting => Patience::Making,
            Way::Broken => Patience::Broken,
            _ => return None,
        };
        (!std::mem::replace(&mut route.timed, true)).then_some((patience, route.turn))
    }

    /// The time that began with `turn` is up. The message, if nothing happened in between.
    pub(super) fn give_up(&self, turn: u64) -> Option<String> {
        let mut route = self.route.lock();
        let message = match route.way {
            Way::Waiting if route.turn == turn => {
                format!("link {} was not made in time", self.id.0)
            }
            Way::Broken if route.turn == turn => {
                format!("link {} broke and nothing replaced it", self.id.0)
            }
            _ => return None,
        };
        route.change(Way::Lost(message.clone()));
        Some(message)
    }

    /// There will be no way any more: its lanes end, and nothing is queued from now on. What was.
    pub(super) fn give_up_for_good(&self, message: &str) -> Unsent {
        self.stop();
        self.route.lock().change(Way::Lost(message.to_owned()));
        self.own.break_off()
    }

    /// Why it was given up.
    pub(super) fn lost(&self) -> Option<String> {
        match &self.route.lock().way {
            Way::Lost(message) => Some(message.clone()),
            _ => None,
        }
    }

    /// Whether lanes of `incarnation` are still its lanes.
    pub(super) fn is_present(&self, incarnation: u64) -> bool {
        let route = self.route.lock();
        !route.lanes.is_empty() && route.incarnation == incarnation
    }

    /// Ends its lanes.
    pub(super) fn stop(&self) {
        // Forgotten first, so that none of them looks like a break.
        let lanes = std::mem::take(&mut self.route.lock().lanes);
        self.own.stop();
        for lane in lanes {
            lane.shut_down();
        }
    }

    /// Says something by the present way. Whether there was room.
    pub(super) fn say(&self, client: &Outgoing, word: Header) -> bool {
        self.put(client, |queue| queue.push(word))
    }
}

impl Route {
    fn change(&mut self, way: Way) {
        self.way = way;
        self.turn += 1;
        self.timed = false;
    }
}
