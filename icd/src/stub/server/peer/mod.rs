//! The direct links between the workers of this process's sessions, and the transfers over them.
//!
//! A link is made when two sessions first need one. Both workers get its id, a secret and the other's
//! addresses, and one dials. Only the workers find out which of them can reach the other (`path`). If
//! neither can, the client forwards the bytes, and this pair of nodes is not tried again.
//!
//! While the ends make a broken link again, what has begun waits for it. What begins meanwhile takes a *detour*: a
//! second link between the same ends, through the client.
//!
//! Not here: moving bytes (the transport's relay). Nothing waits. Invariants: a link is announced to both
//! workers before any caller gets its id, so every command that names it comes later. Every transfer that
//! has begun and not ended is recorded, so that the other end is told when a session is lost. Workers drop
//! links to lost sessions, but accept commands that still name a dropped link.
//!
//! Large transfers show how fast a link is (`learnt`). One lock protects everything else. Under it, commands are only appended,
//! no callback runs, and no event ends: ends of events take this lock.
#![forbid(unsafe_code)]

mod address;
mod learnt;
mod path;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use bytes::Bytes;
use causeway_proto::command::{
    self, AddLink, DialLink, DropLink, LinkState, RouteViaClient, command::Kind,
};
use causeway_proto::id::{EventId, LinkId};
use causeway_proto::status::Status;
use parking_lot::Mutex;
use rand::TryRngCore;
use rustc_hash::{FxHashMap, FxHashSet};

pub use self::learnt::LearntRate;
use self::learnt::{LEAST_BYTES, Learnt};
use self::path::{EndIndex, Path, PathAction};
use crate::coherence::Route;
use crate::error::ClResult;
use crate::fork;
use crate::stub::{Event, SessionLink, next_id};
use crate::transport::Location;

/// Maximum length, in characters, of a node's text about a failure.
const MOST_SAID: usize = 300;

// What transfers have shown. Locked without the other lock, because ends of events come here.
static LEARNT: LazyLock<Mutex<Learnt>> = LazyLock::new(Mutex::default);

static PEERS: LazyLock<Mutex<Peers>> = LazyLock::new(Mutex::default);

// Incremented when a link is made and when a worker reports the state of one.
static CHANGES: AtomicU64 = AtomicU64::new(0);

/// The path between a worker and itself, which always exists.
const OWN: LinkId = LinkId(0);

#[derive(Default)]
struct Peers {
    links: FxHashMap<LinkId, Link>,
    // By the two ends, in normalised order.
    by_ends: FxHashMap<(usize, usize), LinkId>,
    transfers: FxHashMap<EventId, LinkId>,
    // Pairs of nodes that cannot reach each other, in normalised order.
    no_path: FxHashSet<(Bytes, Bytes)>,
}

struct Link {
    id: LinkId,
    ends: [Arc<SessionLink>; 2],
    path: Path,
    // The latest failure text of each end.
    said: [String; 2],
    // The link for what begins while this one is interrupted.
    detour: Option<LinkId>,
    open: FxHashMap<EventId, Open>,
}

/// A transfer that has begun and not ended.
#[derive(Clone, Copy)]
struct Open {
    sender: EndIndex,
    bytes: u64,
}

/// Returns the link between the workers of two sessions, and makes it if necessary. While it is interrupted, returns
/// the detour. 0 stands for a worker's link to itself. Does not wait. Commands that name the link must be sent after
/// this returns.
///
/// # Errors
/// `CL_DEVICE_NOT_AVAILABLE` when one of the sessions is lost.
pub fn link(one: &Arc<SessionLink>, other: &Arc<SessionLink>) -> ClResult<LinkId> {
    if Arc::ptr_eq(one, other) {
        return Ok(OWN);
    }
    fork::check()?;
    PEERS.lock().link(one, other)
}

/// Returns the route between the workers of two sessions, as far as known: direct until both ends have
/// failed to connect, or while the link is interrupted.
#[must_use]
pub fn route(one: &Arc<SessionLink>, other: &Arc<SessionLink>) -> Route {
    if Arc::ptr_eq(one, other) || fork::check().is_err() {
        return Route::Direct;
    }
    let peers = PEERS.lock();
    let via_client = match peers.find(one, other) {
        Some(link) => link.path.is_via_client() || link.path.is_interrupted(),
        None => peers.is_hopeless(one.session().location(), other.session().location()),
    };
    if via_client {
        Route::ViaClient
    } else {
        Route::Direct
    }
}

/// Returns a number that changes whenever the result of [`route`] may have changed.
#[must_use]
pub fn changes() -> u64 {
    CHANGES.load(Ordering::Acquire)
}

/// Records a transfer over a link that is about to be sent to both ends. `transfer` is the event of its
/// `ReceiveRegion`. Call this after [`link`] and *before* appending the two commands; [`end_transfer`] must
/// follow.
pub fn begin_transfer(
    transfer: EventId,
    link: LinkId,
    from: &Arc<SessionLink>,
    to: &Arc<SessionLink>,
    bytes: u64,
) {
    if link == OWN || fork::check().is_err() {
        return;
    }
    PEERS.lock().begin(transfer, link, [from, to], bytes);
}

/// Records that a transfer's `ReceiveRegion` has ended or was not sent. Ignores unknown transfers.
pub fn end_transfer(transfer: EventId) {
    if fork::check().is_ok() {
        PEERS.lock().end(transfer);
    }
}

/// Learns the rate of a link from a large transfer, whose ends wait for no other command. Call this *before* appending the two
/// commands.
pub fn learn(
    received: &Event,
    link: LinkId,
    from: &Arc<SessionLink>,
    to: &Arc<SessionLink>,
    bytes: u64,
) {
    if link == OWN || bytes < LEAST_BYTES || fork::check().is_err() {
        return;
    }
    let (Some(sender), Some(receiver)) = (from.node_uuid(), to.node_uuid()) else {
        return;
    };
    let ends = [sender, receiver];
    LEARNT.lock().begin(&ends, Instant::now());
    // The client hears of the end by a message, and the node of the beginning by another one.
    let on_the_way = to.session().gauge().round_trip().unwrap_or_default();
    received.finish_first(move |status, _| {
        // In a child of `fork`, the locks may stay locked for ever.
        if fork::check().is_err() {
            return;
        }
        let counts = !status.is_error() && is_direct(link);
        let bytes = counts.then_some(bytes);
        (LEARNT.lock()).end(&ends, Instant::now(), bytes, on_the_way);
    });
}

/// The rate from one node to another, as transfers of this process have shown it.
#[must_use]
pub fn learnt_rate(from: &[u8], to: &[u8]) -> Option<LearntRate> {
    fork::check().ok()?;
    LEARNT.lock().rate(from, to)
}

fn is_direct(link: LinkId) -> bool {
    let peers = PEERS.lock();
    let link = peers.links.get(&link);
    link.is_some_and(|link| !link.path.is_via_client())
}

/// Applies a worker's report about the state of a link.
pub(in crate::stub) fn link_state(end: &SessionLink, state: &LinkState) {
    let news = PEERS.lock().handle_state(end, state);
    CHANGES.fetch_add(1, Ordering::AcqRel);
    if let Some(news) = news {
        tracing::warn!("{news}");
    }
}

/// Drops the links of a lost session, and cancels their transfers at the other ends.
pub(in crate::stub) fn lost(end: &SessionLink) {
    let gone = PEERS.lock().handle_loss(end);
    // Dropped after the lock is released: this may drop the last reference to a session.
    drop(gone);
}

impl Peers {
    fn find(&self, one: &Arc<SessionLink>, other: &Arc<SessionLink>) -> Option<&Link> {
        self.links.get(self.by_ends.get(&key(one, other))?)
    }

    fn link(&mut self, one: &Arc<SessionLink>, other: &Arc<SessionLink>) -> ClResult<LinkId> {
        let key = key(one, other);
        if let Some(id) = self.by_ends.get(&key) {
            return self.usable(*id);
        }
        // If the loss is reported after this check, `handle_loss` finds the link.
        if is_lost(one) || is_lost(other) {
            return Err(Status::DEVICE_NOT_AVAILABLE);
        }
        let [from, to] = [one, other].map(|end| end.session().location());
        let via_client = self.is_hopeless(from, to);
        let id = self.make([one.clone(), other.clone()], via_client)?;
        self.by_ends.insert(key, id);
        Ok(id)
    }

    // Returns this link, or its detour while it is interrupted.
    fn usable(&mut self, id: LinkId) -> ClResult<LinkId> {
        let link = self.links.get(&id);
        let Some(link) = link.filter(|link| link.path.is_interrupted()) else {
            return Ok(id);
        };
        if let Some(detour) = link.detour {
            return Ok(detour);
        }
        let detour = self.make(link.ends.clone(), true)?;
        if let Some(link) = self.links.get_mut(&id) {
            link.detour = Some(detour);
        }
        Ok(detour)
    }

    // Makes a link and announces it to both ends.
    fn make(&mut self, ends: [Arc<SessionLink>; 2], via_client: bool) -> ClResult<LinkId> {
        let [one, other] = [0, 1].map(|end| ends[end].session().location());
        let dialler = address::dialler(one.peer, other.peer);
        let link = Link {
            id: LinkId(next_id()),
            path: if via_client {
                Path::via_client()
            } else {
                Path::new(dialler)
            },
            said: Default::default(),
            detour: None,
            open: FxHashMap::default(),
            ends,
        };
        let mut secret = [0; 32];
        rand::rngs::OsRng
            .try_fill_bytes(&mut secret)
            .map_err(|_| Status::OUT_OF_RESOURCES)?;
        for end in [0, 1] {
            if let Err(status) = link.add(end, &secret, !via_client && end == dialler) {
                for told in 0..end {
                    link.drop_at(told);
                }
                return Err(status);
            }
        }
        if via_client {
            link.route_via_client();
        }
        let id = link.id;
        self.links.insert(id, link);
        Ok(id)
    }

    fn is_hopeless(&self, one: &Location, other: &Location) -> bool {
        !self.no_path.is_empty() && self.no_path.contains(&nodes(one, other))
    }

    fn begin(
        &mut self,
        transfer: EventId,
        link: LinkId,
        [from, to]: [&Arc<SessionLink>; 2],
        bytes: u64,
    ) {
        let Some(link) = self.links.get_mut(&link) else {
            // A session was lost since the link was requested. Its loss has been handled already, so
            // nothing else would cancel this.
            for end in [from, to] {
                end.session().cancel_transfer(transfer);
            }
            return;
        };
        let open = Open {
            sender: link.end_of(from).unwrap_or_default(),
            bytes,
        };
        link.open.insert(transfer, open);
        self.transfers.insert(transfer, link.id);
        if link.path.is_via_client() {
            link.carry(transfer, open);
        }
    }

    fn end(&mut self, transfer: EventId) {
        let Some(id) = self.transfers.remove(&transfer) else {
            return;
        };
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        let open = link.open.remove(&transfer);
        if let Some(Open { sender, .. }) = open.filter(|_| link.path.is_via_client()) {
            link.ends[sender].session().end_transfer(transfer);
        }
    }

    // Returns a text to log, if the user should know about the change.
    fn handle_state(&mut self, end: &SessionLink, state: &LinkState) -> Option<String> {
        // `None` for a link of a session that was lost meanwhile, and for a node that reports a link of
        // others.
        let link = self.links.get_mut(&LinkId(state.link))?;
        let end = link.end_of(end)?;
        tracing::debug!(
            link = state.link,
            end,
            state.up,
            state.mending,
            state.reason,
            "a worker reported the state of a link"
        );
        let was_interrupted = link.path.is_interrupted();
        let mut step = PathAction::None;
        if state.up {
            link.path.handle_up(end);
        } else if state.mending {
            link.path.handle_mending(end);
        } else {
            link.said[end] = state.reason.chars().take(MOST_SAID).collect();
            step = link.path.handle_down(end);
        }
        match step {
            PathAction::None => {}
            PathAction::Dial(end) => {
                let dial = DialLink { link: link.id.0 };
                // If this fails the session is about to be lost, and its loss drops the link.
                let _ = link.post(end, Kind::DialLink(dial));
            }
            PathAction::GiveUp => {
                // Prepare the relay before the workers can send these transfers through the client.
                for (transfer, open) in &link.open {
                    link.carry(*transfer, *open);
                }
                link.route_via_client();
                // If a session is about to be lost, the failure says nothing about the path between the
                // nodes.
                if !link.has_lost_end() {
                    let nodes = link.nodes();
                    let news = link.why_no_path();
                    let known = nodes.0.is_empty() || self.no_path.insert(nodes);
                    return known.then_some(news);
                }
                return None;
            }
        }
        let is_news = link.path.is_interrupted() != was_interrupted && !link.has_lost_end();
        is_news.then(|| link.interruption())
    }

    // The caller drops the result without holding the lock.
    fn handle_loss(&mut self, end: &SessionLink) -> Vec<Link> {
        let (by_ends, transfers) = (&mut self.by_ends, &mut self.transfers);
        let gone = self.links.extract_if(|_, link| link.end_of(end).is_some());
        let gone: Vec<Link> = gone.map(|(_, link)| link).collect();
        for link in &gone {
            // The end whose session still lives must forget the link.
            for end in [0, 1] {
                link.drop_at(end);
            }
            by_ends.remove(&key(&link.ends[0], &link.ends[1]));
            for transfer in link.open.keys() {
                transfers.remove(transfer);
                // If the client forwards the transfer, the transport has cancelled it already; a second
                // time does no harm. Nothing is sent to the lost session.
                for end in &link.ends {
                    end.session().cancel_transfer(*transfer);
                }
            }
        }
        gone
    }
}

impl Link {
    fn end_of(&self, session: &SessionLink) -> Option<EndIndex> {
        let is = |end: &Arc<SessionLink>| std::ptr::eq(&**end, session);
        self.ends.iter().position(is)
    }

    fn location(&self, end: EndIndex) -> &Location {
        self.ends[end].session().location()
    }

    fn nodes(&self) -> (Bytes, Bytes) {
        nodes(self.location(0), self.location(1))
    }

    fn post(&self, end: EndIndex, kind: Kind) -> ClResult {
        let command = command::Command { kind: Some(kind) };
        Ok(self.ends[end].session().post(&command)?)
    }

    fn add(&self, end: EndIndex, secret: &[u8; 32], dial: bool) -> ClResult {
        let far = 1 - end;
        self.post(
            end,
            Kind::AddLink(AddLink {
                link: self.id.0,
                session: Bytes::copy_from_slice(&self.ends[far].session().id().0),
                secret: Bytes::copy_from_slice(secret),
                addresses: address::of(self.location(far), self.location(end)),
                dial,
                certificate_sha256: self.ends[far]
                    .session()
                    .certificate()
                    .map_or_else(Bytes::new, |of| Bytes::copy_from_slice(&of.0)),
                resume_ms: self.resume_ms(),
            }),
        )
    }

    // For how long both nodes have granted that broken connections are made again.
    fn resume_ms(&self) -> u32 {
        let of = |end| self.location(end).resume.as_millis();
        of(0).min(of(1)).try_into().unwrap_or(u32::MAX)
    }

    fn route_via_client(&self) {
        for end in [0, 1] {
            let route = RouteViaClient { link: self.id.0 };
            // An error means a lost session, as in `handle_state`.
            let _ = self.post(end, Kind::RouteViaClient(route));
        }
    }

    fn drop_at(&self, end: EndIndex) {
        let drop = DropLink { link: self.id.0 };
        // An error means a lost session, as in `handle_state`.
        let _ = self.post(end, Kind::DropLink(drop));
    }

    fn carry(&self, transfer: EventId, open: Open) {
        let [from, to] = [open.sender, 1 - open.sender].map(|end| self.ends[end].session());
        if from.relay_transfer(to, transfer, open.bytes).is_err() {
            // One of the sessions is lost. The other must not wait until that loss is handled.
            for end in [from, to] {
                end.cancel_transfer(transfer);
            }
        }
    }

    fn has_lost_end(&self) -> bool {
        self.ends.iter().any(|end| end.session().has_failed())
    }

    fn interruption(&self) -> String {
        let [one, other] = [0, 1].map(|end| &self.location(end).name);
        let link = format!("the link between nodes {one} and {other} is");
        if self.path.is_interrupted() {
            format!("{link} interrupted; new transfers go through this client until it is back")
        } else {
            format!("{link} back; new transfers use it")
        }
    }

    fn why_no_path(&self) -> String {
        let [one, other] = [0, 1].map(|end| (&self.location(end).name, &self.said[end]));
        format!(
            "nodes {} and {} cannot connect to each other (from {}: {}; from {}: {}); transfers between them go \
             through this client; check firewalls and listen addresses",
            one.0, other.0, one.0, one.1, other.0, other.1,
        )
    }
}

fn is_lost(end: &SessionLink) -> bool {
    end.session().is_lost().is_some()
}

// By address. That is safe, because a link keeps its ends alive, so no other session can get the same
// address.
fn key(one: &Arc<SessionLink>, other: &Arc<SessionLink>) -> (usize, usize) {
    let [one, other] = [one, other].map(|end| Arc::as_ptr(end).addr());
    (one.min(other), one.max(other))
}

// The first UUID is empty if one of the nodes never reported its own.
fn nodes(one: &Location, other: &Location) -> (Bytes, Bytes) {
    let (one, other) = (one.uuid.clone(), other.uuid.clone());
    if one < other {
        (one, other)
    } else {
        (other, one)
    }
}
