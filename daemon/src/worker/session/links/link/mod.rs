//! One link: which connections it accepts, which are up, and which event messages wait for it.
//!
//! The connections of a link come up all together or not at all. [`EVENT_LANE`] comes first
//! and begins an attempt; the lanes follow. When both ends dial, the attempt of the end with
//! the smaller session id wins. That end accepts no connection while it dials. It dials only
//! when no attempt of the other end is in progress.
//!
//! If both nodes have granted it, a link outlives its connections: [`again`] replaces those of broken lanes, when
//! [`mending`] says so.
//!
//! Invariant: at most one thread dials. An end that was asked to dial always reports whether the link is
//! up. At most one set of connections is up. The client and the bulk engine get reports about the link in
//! the order in which things happened.
#![forbid(unsafe_code)]

mod again;
mod mending;

use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_proto::bulk::Header;
use causeway_proto::command::LinkState;
use causeway_proto::id::{EventId, LinkId, SessionId, SessionSecret};
use causeway_proto::limits::LINK_LANES;
use causeway_proto::preamble::Verdict;
use causeway_proto::status::Status;
use causeway_security::{Fingerprint, Line};
use parking_lot::{Condvar, Mutex};

pub(super) use self::again::Resumption;
use self::mending::Mending;
use super::Links;
use super::incoming::{Connections, Incoming, Seat};
use super::messages::{self, Handled, Heard, Messages};
use crate::takeovers::Takeovers;
use crate::worker::objects::command::MirrorHost;

/// How often a waiting thread checks whether the peer has closed a connection that is not in use yet.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Limit on messages kept until the link is up. More may be dropped, because the client
/// informs the other end as well.
const MAX_KEPT: usize = 1 << 16;

/// A link to another worker. See the module.
pub(crate) struct Link {
    pub(super) id: LinkId,
    /// The session at the other end.
    pub(super) peer: SessionId,
    pub(super) secret: SessionSecret,
    /// Fingerprint of the other end's certificate, if its connections use TLS.
    pub(super) fingerprint: Option<Fingerprint>,
    pub(super) addresses: Vec<String>,
    /// Whether this end's attempt wins when both ends dial.
    leads: bool,
    /// How long the link waits for the next connection of a broken lane. 0: a broken lane breaks the link.
    resume: Duration,
    state: Mutex<LinkConnections>,
    changed: Condvar,
    // Held from a change of the path until that change has been reported.
    turning: Mutex<()>,
}

struct LinkConnections {
    path: LinkPath,
    dialler: Dialler,
    incoming: Incoming,
    // Counts how often the link came up.
    incarnation: u64,
}

/// State of this end's single thread that makes connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialler {
    Nobody,
    /// The thread exists, and waits for an attempt of the other end to finish.
    Waits,
    Dials,
}

enum LinkPath {
    /// The link is neither up nor given up. Messages wait here.
    Open(Vec<Header>),
    Up(Up),
    Down,
    ViaClient,
    /// The client has dropped the link.
    Dropped,
}

struct Up {
    messages: Arc<Messages>,
    handles: Vec<TcpStream>,
    handled: Arc<Handled>,
    /// Names the connections of this incarnation, at both ends.
    generation: u64,
    /// Where this end has reached the other one; `None` if the other end dials.
    at: Option<SocketAddr>,
    mending: Mending,
    /// Whether the thread that mends exists.
    is_mending: bool,
    takeovers: Takeovers,
}

impl MirrorHost for Link {
    /// Sends the end to the other worker.
    fn end_mirror(self: Arc<Self>, mirror: EventId, status: Status) {
        self.send(Header::event(mirror, status.0));
    }
}

/// A seat that a connection has claimed. The seat is free again unless the connection takes it.
pub(crate) struct LinkSeat {
    link: Arc<Link>,
    attempt: u64,
    lane: u8,
    resumed: Option<Resumption>,
}

impl Link {
    pub(super) fn new(
        id: LinkId,
        own: SessionId,
        peer: SessionId,
        secret: SessionSecret,
        fingerprint: Option<Fingerprint>,
        addresses: Vec<String>,
        resume: Duration,
    ) -> Link {
        Link {
            id,
            peer,
            secret,
            fingerprint,
            addresses,
            leads: own.0 < peer.0,
            resume,
            state: Mutex::new(LinkConnections {
                path: LinkPath::Open(Vec::new()),
                dialler: Dialler::Nobody,
                incoming: Incoming::default(),
                incarnation: 0,
            }),
            changed: Condvar::new(),
            turning: Mutex::new(()),
        }
    }

    /// The secret that every connection must prove to know.
    pub(crate) fn secret(&self) -> &SessionSecret {
        &self.secret
    }

    /// Reserves a seat for a connection of the other end that has proved the secret.
    ///
    /// # Errors
    /// [`Verdict::TooMany`] while another attempt is in progress or the link is up; the peer may retry.
    /// [`Verdict::UnknownLink`] when the link is no longer wanted.
    pub(crate) fn claim(self: &Arc<Self>, lane: u8, generation: u64) -> Result<LinkSeat, Verdict> {
        let mut state = self.state.lock();
        match state.path {
            LinkPath::Open(_) | LinkPath::Down => {}
            LinkPath::Up(ref mut up) => {
                // The other end makes a new link, so it has given up this one.
                up.mending.other_end_gave_up();
                self.changed.notify_all();
                return Err(Verdict::TooMany);
            }
            LinkPath::ViaClient | LinkPath::Dropped => return Err(Verdict::UnknownLink),
        }
        // Both ends may dial at the same time. The end that leads then keeps its own attempt.
        if state.dialler == Dialler::Dials && self.leads {
            return Err(Verdict::TooMany);
        }
        let attempt = state.incoming.claim(lane, generation)?;
        Ok(LinkSeat {
            link: Arc::clone(self),
            attempt,
            lane,
            resumed: None,
        })
    }

    /// Sends an event message to the other end, now or when the link is up. Never blocks.
    fn send(&self, message: Header) {
        loop {
            let messages = {
                let mut state = self.state.lock();
                match &mut state.path {
                    LinkPath::Open(kept) => {
                        if kept.len() < MAX_KEPT {
                            kept.push(message);
                        }
                        return;
                    }
                    LinkPath::Up(up) => Arc::clone(&up.messages),
                    LinkPath::Down | LinkPath::ViaClient | LinkPath::Dropped => return,
                }
            };
            if messages.put(message) {
                return;
            }
        }
    }

    /// Returns whether the caller has to start a dialing thread. That is not so if one exists, which will
    /// report, or if no link is needed. After true, [`Link::begin_dial`] or [`Link::not_made`] must follow.
    pub(super) fn engage(&self) -> bool {
        let mut state = self.state.lock();
        if let LinkPath::Up(up) = &mut state.path {
            // The client knows from the other end that the link is down.
            up.mending.other_end_gave_up();
            self.changed.notify_all();
        }
        if state.dialler != Dialler::Nobody || state.is_settled() {
            return false;
        }
        state.dialler = Dialler::Waits;
        true
    }

    /// Waits until an attempt of the other end is over. Returns whether the dialing thread still has to
    /// dial. After true, [`Link::dialled`] or [`Link::not_made`] must follow.
    pub(super) fn begin_dial(&self, until: Instant) -> bool {
        let mut state = self.state.lock();
        loop {
            if state.is_settled() {
                state.dialler = Dialler::Nobody;
                return false;
            }
            let now = Instant::now();
            if !state.incoming.is_alive() || now >= until {
                state.dialler = Dialler::Dials;
                return true;
            }
            self.changed
                .wait_until(&mut state, until.min(now + LOOK_AGAIN));
        }
    }

    /// Whether the link needs no connections: it is up, or no longer wanted.
    pub(super) fn is_settled(&self) -> bool {
        self.state.lock().is_settled()
    }

    /// Handles a failed attempt of this end. Informs the client, unless the other end's attempt succeeds.
    pub(super) fn not_made(&self, links: &Links, until: Instant, reason: String) {
        let mut state = self.state.lock();
        state.dialler = Dialler::Waits;
        while state.incoming.is_alive() && !state.is_settled() && Instant::now() < until {
            let soon = Instant::now() + LOOK_AGAIN;
            self.changed.wait_until(&mut state, soon);
        }
        drop(state);
        let _turning = self.turning.lock();
        {
            // Both change under one lock. So a request to dial either counts for this thread or starts another.
            let mut state = self.state.lock();
            state.dialler = Dialler::Nobody;
            if state.is_settled() {
                return;
            }
            state.path = LinkPath::Down;
        }
        tracing::info!(
            link = ?self.id,
            peer = ?self.peer,
            reason,
            "the link cannot be made; its transfers go through the client"
        );
        links.outbox.link(self.told(false, reason));
    }

    /// Brings the link up with the connections that the dialing thread has made.
    pub(super) fn dialled(self: &Arc<Self>, links: &Arc<Links>, connections: Connections) {
        // Cleared before the link is up. If the link breaks, a request to dial must not rely
        // on this thread, which ends.
        self.state.lock().dialler = Dialler::Nobody;
        self.come_up(links, connections);
    }

    /// Brings the link up, now that all connections are there. Drops them if the link is up
    /// already or no longer wanted.
    fn come_up(self: &Arc<Self>, links: &Arc<Links>, connections: Connections) {
        let _turning = self.turning.lock();
        let (messages, heard, kept, incarnation, counted, lanes) = {
            let mut state = self.state.lock();
            if state.is_settled() {
                return;
            }
            let (up, connection, heard, lanes) = match Up::over(connections, self.resume) {
                Ok(up) => up,
                Err(error) => {
                    // The other end sees the connections close.
                    tracing::warn!(link = ?self.id, %error, "cannot use the connections of a new link");
                    return;
                }
            };
            let messages = Arc::clone(&up.messages);
            let counted = (Arc::clone(&up.handled), connection);
            state.incarnation += 1;
            state.incoming.begin();
            let kept = match std::mem::replace(&mut state.path, LinkPath::Up(up)) {
                LinkPath::Open(kept) => kept,
                _ => Vec::new(),
            };
            (messages, heard, kept, state.incarnation, counted, lanes)
        };
        self.changed.notify_all();
        for message in kept {
            let _ = messages.put(message);
        }
        for (lane, line) in (0..LINK_LANES).zip(lanes) {
            links
                .bulk
                .attach_peer(self.id, incarnation, lane, line.into());
        }
        self.serve(links, messages, heard, incarnation, counted);
        tracing::info!(link = ?self.id, peer = ?self.peer, "a link is up");
        links.outbox.link(self.told(true, String::new()));
    }

    fn serve(
        self: &Arc<Self>,
        links: &Arc<Links>,
        messages: Arc<Messages>,
        heard: Heard,
        incarnation: u64,
        (handled, connection): (Arc<Handled>, u64),
    ) {
        let own = Arc::clone(&messages);
        let scope = links.scope.clone();
        scope.spawn("link-out", move || messages.write());
        let (link, links) = (Arc::clone(self), Arc::clone(links));
        scope.spawn("link-in", move || {
            let counted = (&*handled, connection);
            match messages::hear(heard, &own, counted, &links.mirrors, link.id) {
                messages::ReadEnd::Broken(reason) if link.resume.is_zero() => {
                    link.come_down(&links, incarnation, reason);
                }
                messages::ReadEnd::Broken(_) => link.event_lost(&links, incarnation, connection),
                messages::ReadEnd::Nonsense(reason) => link.come_down(&links, incarnation, reason),
            }
        });
    }

    /// Takes the link down because a connection of this incarnation is lost. Does nothing for
    /// an earlier incarnation.
    pub(super) fn come_down(&self, links: &Arc<Links>, incarnation: u64, reason: String) {
        let _turning = self.turning.lock();
        let up = {
            let mut state = self.state.lock();
            if state.incarnation != incarnation {
                return;
            }
            match state.take_up() {
                Some(up) => up,
                None => return,
            }
        };
        self.changed.notify_all();
        up.close();
        tracing::info!(link = ?self.id, peer = ?self.peer, reason, "a link has ended");
        links.bulk.link_failed(self.id, &reason);
        links.outbox.link(self.told(false, reason));
    }

    /// Routes the link via the client from now on.
    pub(super) fn go_via_client(&self, links: &Arc<Links>) {
        let _turning = self.turning.lock();
        let up = self.settle(LinkPath::ViaClient);
        if let Some(up) = up {
            up.close();
            let reason = "the client carries it from now on".to_owned();
            links.bulk.link_failed(self.id, &reason);
            links.outbox.link(self.told(false, reason));
        }
        links.bulk.route_via_client(self.id);
    }

    /// Drops the link. The client wants no further reports about it.
    pub(super) fn drop_it(&self, links: &Arc<Links>) {
        let _turning = self.turning.lock();
        if let Some(up) = self.settle(LinkPath::Dropped) {
            up.close();
        }
        links.bulk.drop_path(self.id);
    }

    /// Sets a final path. The link accepts no more connections.
    fn settle(&self, path: LinkPath) -> Option<Up> {
        let up = {
            let mut state = self.state.lock();
            state.incoming.begin();
            let up = state.take_up();
            state.path = path;
            up
        };
        self.changed.notify_all();
        up
    }

    /// Ends every connection; the process is about to exit.
    pub(super) fn stop(&self) {
        if let LinkPath::Up(up) = &self.state.lock().path {
            up.close();
        }
    }

    fn told(&self, up: bool, reason: String) -> LinkState {
        LinkState {
            link: self.id.0,
            up,
            reason,
            mending: false,
        }
    }
}

impl LinkConnections {
    fn is_settled(&self) -> bool {
        matches!(
            self.path,
            LinkPath::Up(_) | LinkPath::ViaClient | LinkPath::Dropped
        )
    }

    /// Takes the connections of a link that was up; the link is then down.
    fn take_up(&mut self) -> Option<Up> {
        match std::mem::replace(&mut self.path, LinkPath::Down) {
            LinkPath::Up(up) => Some(up),
            other => {
                self.path = other;
                None
            }
        }
    }
}

impl Up {
    /// Makes the state of a link over its first connections. Returns also the receiving half for event messages, and
    /// the lanes.
    ///
    /// # Errors
    /// Returns the system's error if it has no more descriptors.
    fn over(connections: Connections, resume: Duration) -> io::Result<(Up, u64, Heard, Vec<Line>)> {
        let handles = connections.handles()?;
        let (messages, heard) = Messages::new(connections.events)?;
        if !resume.is_zero() {
            messages.keep();
        }
        let handled = Arc::new(Handled::default());
        let (_, connection) = handled.next_connection();
        let up = Up {
            messages: Arc::new(messages),
            handles,
            handled,
            generation: connections.generation,
            at: connections.at,
            mending: Mending::new(resume, connections.at.is_some()),
            is_mending: false,
            takeovers: Takeovers::default(),
        };
        Ok((up, connection, heard, connections.lanes))
    }

    fn close(&self) {
        for handle in &self.handles {
            let _ = handle.shutdown(Shutdown::Both);
        }
        self.messages.close();
    }
}

impl LinkSeat {
    /// How much this end has received over the lane's earlier connections.
    pub(crate) fn position(&self) -> u64 {
        self.resumed.map_or(0, |resumed| resumed.after.position)
    }

    /// Hands over the connection, which is ready. The last connection of an attempt brings the link up.
    pub(crate) fn take(self, links: &Arc<Links>, line: Line, received: u64) {
        if let Some(resumed) = self.resumed {
            self.link.resume(links, resumed, line, received);
            return;
        }
        let complete = {
            let mut state = self.link.state.lock();
            if state.incoming.attempt != self.attempt {
                return;
            }
            if let Some(seat) = state.incoming.seat(self.lane) {
                *seat = Seat::Taken(line);
            }
            state.incoming.complete()
        };
        if let Some(connections) = complete {
            self.link.come_up(links, connections);
        }
    }
}

impl Drop for LinkSeat {
    fn drop(&mut self) {
        let mut state = self.link.state.lock();
        if self.resumed.is_none()
            && state.incoming.attempt == self.attempt
            && let Some(seat @ Seat::Promised) = state.incoming.seat(self.lane)
        {
            *seat = Seat::Free;
        }
    }
}
