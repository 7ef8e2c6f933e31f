//! The route of one link's transfers: the link's own lanes, or the client's lanes when there is no link.
//!
//! Messages wait until a route exists. Invariant: every queued item is in exactly one queue. Once a link
//! is routed via the client, it stays so and has no lanes of its own.
#![forbid(unsafe_code)]

use std::sync::Arc;

use causeway_lane::Stream;
use causeway_proto::bulk::Header;
use causeway_proto::id::LinkId;
use parking_lot::Mutex;

use super::outgoing::{Outgoing, Unsent};
use super::writer::LaneWriters;

/// The reason why nothing is sent on a link that the client has dropped.
pub(super) const DROPPED: &str = "the link's other worker is gone";

/// The route of one link, as the bulk engine sees it.
pub(crate) struct Path {
    id: LinkId,
    own: Outgoing,
    /// The lane writers of the link's present lanes.
    writers: LaneWriters,
    route: Mutex<Route>,
}

#[derive(Default)]
struct Route {
    state: RouteState,
    // Counts the changes of `state`. A timer compares it to find out whether it is outdated.
    turn: u64,
    // Incarnation of the link to which `lanes` belong. Lanes of earlier incarnations differ.
    incarnation: u64,
    lanes: Vec<Arc<Stream>>,
    // Whether a timer runs for this turn.
    timed: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum RouteState {
    /// The link is not up yet.
    #[default]
    Waiting,
    Up,
    /// The link was up and broke; the client has not replaced it yet.
    Broken,
    /// The wait for a route has timed out, or the link was dropped. The text is the reason.
    Lost(String),
    ViaClient,
}

/// Why transfers wait for a route; this sets the timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RouteWait {
    /// The link is being made.
    Making,
    /// The link broke.
    Broken,
}

impl Path {
    pub(super) fn new(id: LinkId) -> Path {
        Path {
            id,
            own: Outgoing::default(),
            writers: LaneWriters::default(),
            route: Mutex::default(),
        }
    }

    /// Makes the path of a link that the client has dropped.
    pub(crate) fn dropped(id: LinkId) -> Path {
        let path = Path::new(id);
        drop(path.give_up_for_good(DROPPED));
        path
    }

    pub(crate) fn id(&self) -> LinkId {
        self.id
    }

    /// The queue of the link's own lanes.
    pub(super) fn own(&self) -> &Outgoing {
        &self.own
    }

    /// The lane writers of the link's present lanes.
    pub(super) fn writers(&self) -> &LaneWriters {
        &self.writers
    }

    /// Calls `put` with the queue of the present route. The lock is held, so that the route
    /// cannot change meanwhile.
    pub(super) fn put<T>(&self, client: &Outgoing, put: impl FnOnce(&Outgoing) -> T) -> T {
        let route = self.route.lock();
        match route.state {
            RouteState::ViaClient => put(client),
            _ => put(&self.own),
        }
    }

    /// Adds a lane of this incarnation of the link. Returns `None` if the path takes no lanes, else
    /// whether this is the first lane after a break.
    pub(super) fn attached(&self, incarnation: u64, lane: Arc<Stream>) -> Option<bool> {
        let mut route = self.route.lock();
        let again = matches!(route.state, RouteState::Broken | RouteState::Lost(_));
        match route.state {
            RouteState::ViaClient => return None,
            RouteState::Up => {}
            _ => route.change(RouteState::Up),
        }
        route.incarnation = incarnation;
        route.lanes.push(lane);
        Some(again)
    }

    /// Handles the loss of the lanes. Returns their unsent data, which the caller drops;
    /// `None` if there were no lanes.
    pub(super) fn broken(&self) -> Option<Unsent> {
        let mut route = self.route.lock();
        if route.lanes.is_empty() {
            return None;
        }
        for lane in route.lanes.drain(..) {
            lane.shut_down();
        }
        route.change(RouteState::Broken);
        let unsent = self.own.break_off();
        drop(route);
        // A lane of the next incarnation has the same number.
        self.writers.shut_down();
        // Wakes the lanes' threads, which then see that their lanes are closed.
        self.own.look();
        Some(unsent)
    }

    /// Routes the link via the client's lanes from now on. Returns whether earlier messages may be lost.
    pub(super) fn via_client(&self, client: &Outgoing) -> bool {
        let mut route = self.route.lock();
        if route.state == RouteState::ViaClient {
            return false;
        }
        let again = route.state != RouteState::Waiting;
        route.change(RouteState::ViaClient);
        client.take_over(&self.own);
        again
    }

    /// Starts the timeout for a route unless one is running. Returns which timeout to use and
    /// the turn it belongs to.
    pub(super) fn count(&self) -> Option<(RouteWait, u64)> {
        let mut route = self.route.lock();
        let cause = match route.state {
            RouteState::Waiting => RouteWait::Making,
            RouteState::Broken => RouteWait::Broken,
            _ => return None,
        };
        (!std::mem::replace(&mut route.timed, true)).then_some((cause, route.turn))
    }

    /// Handles the timeout that began with `turn`. Returns the failure message if the route
    /// has not changed since.
    pub(super) fn give_up(&self, turn: u64) -> Option<String> {
        let mut route = self.route.lock();
        let message = match route.state {
            RouteState::Waiting if route.turn == turn => {
                format!("link {} was not up before the timeout", self.id.0)
            }
            RouteState::Broken if route.turn == turn => {
                format!(
                    "link {} broke, and no other route replaced it before the timeout",
                    self.id.0
                )
            }
            _ => return None,
        };
        route.change(RouteState::Lost(message.clone()));
        Some(message)
    }

    /// Closes the path permanently: its lanes end and nothing is queued from now on. Returns the
    /// data that was queued.
    pub(super) fn give_up_for_good(&self, message: &str) -> Unsent {
        self.stop();
        self.route
            .lock()
            .change(RouteState::Lost(message.to_owned()));
        self.own.break_off()
    }

    /// Returns why the path was given up.
    pub(super) fn lost(&self) -> Option<String> {
        match &self.route.lock().state {
            RouteState::Lost(message) => Some(message.clone()),
            _ => None,
        }
    }

    /// Whether lanes of `incarnation` are the present lanes.
    pub(super) fn is_present(&self, incarnation: u64) -> bool {
        let route = self.route.lock();
        !route.lanes.is_empty() && route.incarnation == incarnation
    }

    /// Queues an acknowledgement of a lane of `incarnation`. Drops it if these are not the present lanes any more: it
    /// would name bytes of another lane. Returns false if the queue is full.
    pub(super) fn acknowledge(&self, incarnation: u64, header: Header) -> bool {
        let route = self.route.lock();
        let is_present = !route.lanes.is_empty() && route.incarnation == incarnation;
        !is_present || self.own.push(header)
    }

    /// Breaks the connections of the link's own lanes that outlive them.
    pub(super) fn break_lanes(&self) {
        let lanes = self.route.lock().lanes.clone();
        for resumed in lanes.iter().filter_map(|lane| lane.resumed()) {
            resumed.break_off();
        }
    }

    /// Ends the link's own lanes.
    pub(super) fn stop(&self) {
        // The list is cleared first, so that closing the lanes does not look like a break.
        let lanes = std::mem::take(&mut self.route.lock().lanes);
        self.own.stop();
        for lane in lanes {
            lane.shut_down();
        }
    }

    /// Queues a control message on the present route. Returns false if the queue is full.
    pub(super) fn send_header(&self, client: &Outgoing, header: Header) -> bool {
        self.put(client, |queue| queue.push(header))
    }
}

impl Route {
    fn change(&mut self, state: RouteState) {
        self.state = state;
        self.turn += 1;
        self.timed = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    fn lane() -> Arc<Stream> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Arc::new(
            TcpStream::connect(listener.local_addr().unwrap())
                .unwrap()
                .into(),
        )
    }

    #[test]
    fn an_acknowledgement_of_ended_lanes_goes_nowhere() {
        let (path, client) = (Path::new(LinkId(1)), Outgoing::default());
        let ack = Header::ack(0, 1 << 20);
        let is_sent = |incarnation| {
            assert!(path.acknowledge(incarnation, ack));
            let was_empty = path.own().is_empty();
            path.own().break_off().discard();
            !was_empty
        };
        assert!(!is_sent(1));
        path.attached(1, lane());
        assert!(is_sent(1));
        path.broken().unwrap().discard();
        assert!(!is_sent(1));
        path.attached(2, lane());
        assert!(!is_sent(1));
        assert!(is_sent(2));
        path.broken().unwrap().discard();
        path.via_client(&client);
        assert!(!is_sent(2) && client.is_empty());
    }
}
