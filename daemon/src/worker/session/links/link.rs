//! One link: who may connect, what is connected, what is yet to be said.
//!
//! Its connections come all together or not at all: [`EVENT_LANE`] first, which begins an attempt, then the
//! lanes. When both ends dial, the attempt of the one with the smaller session id counts: that one takes no
//! connection while it dials, and dials only when none of the other's attempts is under way.
//!
//! Invariant: at most one thread dials, and who is asked to dial tells that the link is up, or is not; at most one set of connections is up, and what is told of the link, to the client and to the
//! bulk engine, is told in the order in which it happened.
#![forbid(unsafe_code)]

use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_proto::bulk::Header;
use causeway_proto::command::LinkState;
use causeway_proto::id::{LinkId, SessionId, SessionSecret};
use causeway_proto::limits::LINK_LANES;
use causeway_proto::preamble::Verdict;
use causeway_security::{Fingerprint, Line};
use parking_lot::{Condvar, Mutex};

use super::incoming::{Connections, Incoming, Seat};
use super::words::{self, Heard, Words};
use crate::worker::session::{Shared, spawn};

/// How often somebody who waits looks whether the peer has closed a connection that is not in use yet.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Words kept until the link is up. The client tells the other end as well, so the rest may go.
const MAX_KEPT: usize = 1 << 16;

/// See the module.
pub(crate) struct Link {
    pub(super) id: LinkId,
    /// The other end.
    pub(super) peer: SessionId,
    pub(super) secret: SessionSecret,
    /// Of the other end's certificate, if its connections are secured.
    pub(super) fingerprint: Option<Fingerprint>,
    pub(super) addresses: Vec<String>,
    /// When both ends dial, this one's attempt counts.
    leads: bool,
    state: Mutex<State>,
    changed: Condvar,
    // Held from a change of the path until others have been told of it.
    turning: Mutex<()>,
}

struct State {
    path: Path,
    dialler: Dialler,
    incoming: Incoming,
    // Counts the times that the link came up.
    incarnation: u64,
}

/// This end's one thread that makes connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialler {
    Nobody,
    /// It is there and waits for an attempt of the other end to be over.
    Waits,
    Dials,
}

enum Path {
    /// Neither made nor given up: what there is to say waits.
    Open(Vec<Header>),
    Up(Up),
    Down,
    ViaClient,
    /// The client has taken the link back.
    Dropped,
}

struct Up {
    words: Arc<Words>,
    handles: Vec<TcpStream>,
}

/// A seat that a connection has claimed; free again unless the connection takes it.
pub(crate) struct Place {
    link: Arc<Link>,
    attempt: u64,
    lane: u8,
}

impl Link {
    pub(super) fn new(
        id: LinkId,
        own: SessionId,
        peer: SessionId,
        secret: SessionSecret,
        fingerprint: Option<Fingerprint>,
        addresses: Vec<String>,
    ) -> Link {
        Link {
            id,
            peer,
            secret,
            fingerprint,
            addresses,
            leads: own.0 < peer.0,
            state: Mutex::new(State {
                path: Path::Open(Vec::new()),
                dialler: Dialler::Nobody,
                incoming: Incoming::default(),
                incarnation: 0,
            }),
            changed: Condvar::new(),
            turning: Mutex::new(()),
        }
    }

    /// What every connection must prove.
    pub(crate) fn secret(&self) -> &SessionSecret {
        &self.secret
    }

    /// A seat for a connection of the other end that has proved the secret.
    ///
    /// # Errors
    /// [`Verdict::TooMany`] while another attempt is under way or the link is up: to be tried again.
    pub(crate) fn claim(self: &Arc<Self>, lane: u8) -> Result<Place, Verdict> {
        let mut state = self.state.lock();
        match state.path {
            Path::Open(_) | Path::Down => {}
            Path::Up(_) => return Err(Verdict::TooMany),
            Path::ViaClient | Path::Dropped => return Err(Verdict::UnknownLink),
        }
        if state.dialler == Dialler::Dials && self.leads {
            return Err(Verdict::TooMany);
        }
        let attempt = state.incoming.claim(lane)?;
        Ok(Place {
            link: Arc::clone(self),
            attempt,
            lane,
        })
    }

    /// Says something to the other end, now or when the link is up; never blocks.
    pub(crate) fn say(&self, word: Header) {
        let words = {
            let mut state = self.state.lock();
            match &mut state.path {
                Path::Open(kept) => {
                    if kept.len() < MAX_KEPT {
                        kept.push(word);
                    }
                    return;
                }
                Path::Up(up) => Arc::clone(&up.words),
                Path::Down | Path::ViaClient | Path::Dropped => return,
            }
        };
        words.put(word);
    }

    /// Whether a thread is to be started that dials: not when there is one, which tells how it went, or
    /// nobody needs to any more. Then [`Link::begin_dial`] or [`Link::not_made`] must follow.
    pub(super) fn engage(&self) -> bool {
        let mut state = self.state.lock();
        if state.dialler != Dialler::Nobody || state.is_settled() {
            return false;
        }
        state.dialler = Dialler::Waits;
        true
    }

    /// Waits until an attempt of the other end is over. Whether the engaged thread is to dial still; then
    /// [`Link::dialled`] or [`Link::not_made`] must follow.
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

    /// Whether no path has to be made any more: there is one, or none is wanted.
    pub(super) fn is_settled(&self) -> bool {
        self.state.lock().is_settled()
    }

    /// This end's attempt has failed; tells the client, unless the other end's succeeds.
    pub(super) fn not_made(&self, shared: &Shared, until: Instant, reason: String) {
        let mut state = self.state.lock();
        state.dialler = Dialler::Waits;
        while state.incoming.is_alive() && !state.is_settled() && Instant::now() < until {
            let soon = Instant::now() + LOOK_AGAIN;
            self.changed.wait_until(&mut state, soon);
        }
        drop(state);
        let _turning = self.turning.lock();
        {
            // With the look at the path, so that a wish to dial is heard by this thread or starts another.
            let mut state = self.state.lock();
            state.dialler = Dialler::Nobody;
            if state.is_settled() {
                return;
            }
            state.path = Path::Down;
        }
        tracing::info!(link = ?self.id, peer = ?self.peer, reason, "no link");
        shared.outbox.link(self.told(false, reason));
    }

    /// The engaged thread has made them.
    pub(super) fn dialled(self: &Arc<Self>, shared: &Arc<Shared>, connections: Connections) {
        // Before the link is up: who is to dial after a break must not take this thread for one that will.
        self.state.lock().dialler = Dialler::Nobody;
        self.come_up(shared, connections);
    }

    /// All connections are there. They are dropped when the link is up already.
    fn come_up(self: &Arc<Self>, shared: &Arc<Shared>, connections: Connections) {
        let _turning = self.turning.lock();
        let (words, heard, kept, incarnation) = {
            let mut state = self.state.lock();
            if state.is_settled() {
                return;
            }
            let handles = match connections.handles() {
                Ok(handles) => handles,
                Err(error) => {
                    // The other end sees it close.
                    tracing::warn!(link = ?self.id, %error, "a link's connections");
                    return;
                }
            };
            let (words, heard) = match Words::new(connections.events) {
                Ok(halves) => halves,
                Err(error) => {
                    tracing::warn!(link = ?self.id, %error, "a link's connections");
                    return;
                }
            };
            let words = Arc::new(words);
            let up = Up {
                words: Arc::clone(&words),
                handles,
            };
            state.incarnation += 1;
            state.incoming.begin();
            let kept = match std::mem::replace(&mut state.path, Path::Up(up)) {
                Path::Open(kept) => kept,
                _ => Vec::new(),
            };
            (words, heard, kept, state.incarnation)
        };
        self.changed.notify_all();
        for word in kept {
            words.put(word);
        }
        for (lane, line) in (0..LINK_LANES).zip(connections.lanes) {
            shared
                .bulk
                .attach_peer(shared, self.id, incarnation, lane, line.into());
        }
        self.serve(shared, words, heard, incarnation);
        tracing::info!(link = ?self.id, peer = ?self.peer, "a link is up");
        shared.outbox.link(self.told(true, String::new()));
    }

    fn serve(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        words: Arc<Words>,
        heard: Heard,
        incarnation: u64,
    ) {
        spawn("link-out", move || words.write());
        let (link, shared) = (Arc::clone(self), Arc::clone(shared));
        spawn("link-in", move || {
            let reason = words::hear(heard, &shared, link.id);
            link.come_down(&shared, incarnation, reason);
        });
    }

    /// A connection of this incarnation is lost, and so is the link. Nothing for an earlier one.
    pub(super) fn come_down(&self, shared: &Arc<Shared>, incarnation: u64, reason: String) {
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
        up.close();
        tracing::info!(link = ?self.id, peer = ?self.peer, reason, "a link has ended");
        shared.bulk.link_failed(shared, self.id, &reason);
        shared.outbox.link(self.told(false, reason));
    }

    /// The client carries what the link would have.
    pub(super) fn go_via_client(&self, shared: &Arc<Shared>) {
        let _turning = self.turning.lock();
        let up = self.settle(Path::ViaClient);
        if let Some(up) = up {
            up.close();
            let reason = "the client carries it from now on".to_owned();
            shared.bulk.link_failed(shared, self.id, &reason);
            shared.outbox.link(self.told(false, reason));
        }
        shared.bulk.route_via_client(shared, self.id);
    }

    /// The client has taken it back, and wants to hear nothing more of it.
    pub(super) fn drop_it(&self, shared: &Arc<Shared>) {
        let _turning = self.turning.lock();
        if let Some(up) = self.settle(Path::Dropped) {
            up.close();
        }
        shared.bulk.drop_path(self.id);
    }

    /// Takes the place of connections, which come no more.
    fn settle(&self, path: Path) -> Option<Up> {
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
        if let Path::Up(up) = &self.state.lock().path {
            up.close();
        }
    }

    fn told(&self, up: bool, reason: String) -> LinkState {
        LinkState {
            link: self.id.0,
            up,
            reason,
        }
    }
}

impl State {
    fn is_settled(&self) -> bool {
        matches!(self.path, Path::Up(_) | Path::ViaClient | Path::Dropped)
    }

    /// The link is down, if it was up.
    fn take_up(&mut self) -> Option<Up> {
        match std::mem::replace(&mut self.path, Path::Down) {
            Path::Up(up) => Some(up),
            other => {
                self.path = other;
                None
            }
        }
    }
}

impl Up {
    fn close(&self) {
        for handle in &self.handles {
            let _ = handle.shutdown(Shutdown::Both);
        }
        self.words.close();
    }
}

impl Place {
    /// The connection is ready. The last one of an attempt brings the link up.
    pub(crate) fn take(self, shared: &Arc<Shared>, line: Line) {
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
            self.link.come_up(shared, connections);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.link.state.lock();
        if state.incoming.attempt == self.attempt
            && let Some(seat @ Seat::Promised) = state.incoming.seat(self.lane)
        {
            *seat = Seat::Free;
        }
    }
}
