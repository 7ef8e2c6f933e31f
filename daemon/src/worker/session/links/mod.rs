//! Links: direct connections to the workers of other sessions of the same client.
//!
//! The client gives both ends a link's id, a secret, and the addresses of the other end. One end dials;
//! if it fails, the other end dials. Both report the result to the client. A link has one connection for
//! events, and [`LINK_LANES`] connections for bulk data, which belong to [`crate::worker::bulk`].
//!
//! - [`link`]: one link, its connections and its states;
//! - [`dial`]: making the connections from this end; [`incoming`]: accepting those of the other end;
//! - [`messages`]: the connection for events.
//!
//! This module knows no commands and no buffers. Invariants: no message of a peer is read before the peer
//! has proved the link's secret. The thread that reads commands never waits for the network here. The
//! loss of a peer costs only its link. A link that the client has dropped leaves no state. Its id stays
//! valid, because the client may learn of a peer's end between two commands.
#![forbid(unsafe_code)]

mod dial;
mod incoming;
mod link;
mod messages;

use std::collections::HashMap;
use std::io;
use std::net::TcpStream;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use causeway_proto::command::{AddLink, DialLink, DropLink, RouteViaClient};
use causeway_proto::id::{EventId, LinkId, SessionId, SessionSecret};
#[cfg(doc)]
use causeway_proto::limits::LINK_LANES;
use causeway_proto::limits::{MAX_LINK_ADDRESSES, MAX_LINKS};
use causeway_proto::preamble::EVENT_LANE;
use causeway_proto::status::Status;
use causeway_security::Fingerprint;
use parking_lot::{Condvar, Mutex};

use self::dial::Diallers;
pub(crate) use self::link::{Link, LinkSeat};
use super::violation::Violation;
use crate::worker::bulk::Engine;
use crate::worker::objects::hash::ById;
use crate::worker::objects::outbox::Outbox;
use crate::worker::socket;
use crate::worker::threads::Scope;

/// Longest address, in bytes.
const MAX_ADDRESS: usize = 512;
/// The link is lost after the other end's machine has acknowledged nothing for so long.
const SILENCE: Duration = Duration::from_secs(4);

/// The mirrors of this worker, whose ends other workers report.
pub(crate) trait Mirrors: Send + Sync {
    /// Ends a mirror, because the other end of `link` has sent its status. Makes no driver call and does
    /// not wait.
    ///
    /// # Errors
    /// [`Foreign`] if the event is no mirror of the link; it is then unchanged.
    fn ended(self: Arc<Self>, link: LinkId, mirror: EventId, status: Status)
    -> Result<(), Foreign>;
}

/// The other end of a link named an event that is no mirror of that link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the other end named {0:?}, which is not a mirror event of this link")]
pub(crate) struct Foreign(pub(super) EventId);

/// The links of a session.
pub(crate) struct Links {
    own: SessionId,
    bulk: Arc<Engine>,
    outbox: Arc<Outbox>,
    scope: Scope,
    // Weak, because the session owns its links.
    mirrors: Weak<dyn Mirrors>,
    table: Mutex<Table>,
    added: Condvar,
    diallers: Diallers,
    /// How long a link may wait for the next connection of a broken lane.
    resume: Duration,
}

#[derive(Default)]
struct Table {
    links: HashMap<LinkId, Arc<Link>, ById>,
    // The client adds ids in ascending order. So an id up to this one that is not in the table was dropped.
    newest: Option<LinkId>,
}

/// The state of a link that the client has added.
pub(crate) enum Found {
    /// The link exists.
    Here(Arc<Link>),
    /// The client has dropped the link.
    Dropped,
}

impl Links {
    /// Makes an empty table.
    pub(crate) fn new(
        own: SessionId,
        bulk: &Arc<Engine>,
        outbox: &Arc<Outbox>,
        scope: Scope,
        mirrors: Weak<dyn Mirrors>,
        resume: Duration,
    ) -> Arc<Links> {
        Arc::new(Links {
            own,
            bulk: Arc::clone(bulk),
            outbox: Arc::clone(outbox),
            scope,
            mirrors,
            table: Mutex::default(),
            added: Condvar::new(),
            diallers: Diallers::default(),
            resume,
        })
    }

    /// Finds a link that the client has added.
    ///
    /// # Errors
    /// [`Violation::Unknown`] if the client has never added the link.
    pub(crate) fn find(&self, link: LinkId) -> Result<Found, Violation> {
        let table = self.table.lock();
        match table.links.get(&link) {
            Some(found) => Ok(Found::Here(Arc::clone(found))),
            None if link.0 > 0 && Some(link) <= table.newest => Ok(Found::Dropped),
            None => Err(Violation::Unknown(format!("{link:?}"))),
        }
    }

    fn present(&self, link: LinkId) -> Option<Arc<Link>> {
        self.table.lock().links.get(&link).map(Arc::clone)
    }

    /// Finds a link for a connection of another worker. Waits until `until`, because that worker may
    /// learn of the link before this one does.
    pub(crate) fn wait_for(&self, link: LinkId, until: Instant) -> Option<Arc<Link>> {
        let mut table = self.table.lock();
        loop {
            if let Some(found) = table.links.get(&link) {
                return Some(Arc::clone(found));
            }
            if Some(link) <= table.newest || self.added.wait_until(&mut table, until).timed_out() {
                return None;
            }
        }
    }

    /// Takes a link down because one of its connections is lost or violated the protocol. The threads of
    /// its other connections then see theirs close. Only the first call for an `incarnation` has an effect.
    ///
    /// Must not be called from within [`attach_peer`](crate::worker::bulk::Engine::attach_peer).
    pub(crate) fn lane_broke(self: &Arc<Self>, link: LinkId, incarnation: u64, reason: String) {
        if let Some(link) = self.present(link) {
            link.come_down(self, incarnation, reason);
        }
    }

    /// Handles that a connection of a lane is broken, which can be replaced, or is replaced already. The caller may hold
    /// the lane's writing lock.
    pub(crate) fn lane_lost(
        self: &Arc<Self>,
        link: LinkId,
        incarnation: u64,
        lane: u8,
        connection: u64,
    ) {
        if let Some(link) = self.present(link) {
            link.lane_lost(self, incarnation, lane, connection);
        }
    }

    /// Ends every link.
    pub(crate) fn stop(&self) {
        let all: Vec<_> = self.table.lock().links.values().map(Arc::clone).collect();
        for link in all {
            link.stop();
        }
    }

    /// Drops every link, because the session ends and its host goes on.
    pub(crate) fn drop_all(self: &Arc<Self>) {
        let all = std::mem::take(&mut self.table.lock().links);
        for link in all.values() {
            link.drop_it(self);
        }
    }

    fn add(&self, link: Arc<Link>) -> Result<(), Violation> {
        let mut table = self.table.lock();
        if Some(link.id) <= table.newest {
            return Err(Violation::Taken(format!("{:?}", link.id)));
        }
        if table.links.len() >= MAX_LINKS {
            return Err(Violation::TooMany);
        }
        table.newest = Some(link.id);
        table.links.insert(link.id, link);
        drop(table);
        self.added.notify_all();
        Ok(())
    }
}

/// Adds a link.
pub(crate) fn add(links: &Arc<Links>, add: AddLink) -> Result<(), Violation> {
    let peer = <[u8; 16]>::try_from(&add.session[..]).ok().map(SessionId);
    let secret = <[u8; 32]>::try_from(&add.secret[..])
        .ok()
        .map(SessionSecret);
    let (Some(peer), Some(secret)) = (peer, secret) else {
        return Err(Violation::Malformed("a link has no session or no secret"));
    };
    let fingerprint = match &add.certificate_sha256[..] {
        [] => None,
        digest => Some(Fingerprint::from_wire(digest).ok_or(Violation::Malformed(
            "a link's certificate digest has the wrong length",
        ))?),
    };
    if add.link == 0 || peer == links.own {
        return Err(Violation::Malformed("a link connects a worker with itself"));
    }
    let long = |address: &String| address.len() > MAX_ADDRESS;
    if add.addresses.len() > MAX_LINK_ADDRESSES || add.addresses.iter().any(long) {
        return Err(Violation::Malformed(
            "a link has too many or too long addresses",
        ));
    }
    let id = LinkId(add.link);
    let granted = Duration::from_millis(add.resume_ms.into());
    let link = Link::new(
        id,
        links.own,
        peer,
        secret,
        fingerprint,
        add.addresses,
        granted.min(links.resume),
    );
    let link = Arc::new(link);
    links.add(Arc::clone(&link))?;
    if add.dial {
        dial::start(links, &link);
    }
    Ok(())
}

/// Dials, because the other end could not.
///
/// # Errors
/// [`Violation::Unknown`] for a link that was never added.
pub(crate) fn dial(links: &Arc<Links>, dial: &DialLink) -> Result<(), Violation> {
    if let Found::Here(link) = links.find(LinkId(dial.link))? {
        dial::start(links, &link);
    }
    Ok(())
}

/// Routes a link via the client, because neither end could dial.
///
/// # Errors
/// As [`dial()`].
pub(crate) fn route_via_client(
    links: &Arc<Links>,
    route: &RouteViaClient,
) -> Result<(), Violation> {
    if let Found::Here(link) = links.find(LinkId(route.link))? {
        link.go_via_client(links);
    }
    Ok(())
}

/// Drops a link that is no longer needed.
///
/// # Errors
/// As [`dial()`].
pub(crate) fn drop_link(links: &Arc<Links>, drop: &DropLink) -> Result<(), Violation> {
    let id = LinkId(drop.link);
    // The link leaves the table first. Otherwise a transfer could find it and make its path again.
    let Found::Here(link) = links.find(id)? else {
        return Ok(());
    };
    links.table.lock().links.remove(&id);
    link.drop_it(links);
    Ok(())
}

/// Opens the route of a link's transfers. If the link was dropped, its route is closed.
///
/// # Errors
/// As [`dial()`].
pub(crate) fn open_path(links: &Links, link: LinkId) -> Result<(), Violation> {
    if link.0 == 0 || matches!(links.find(link)?, Found::Here(_)) {
        links.bulk.open_path(link);
    }
    Ok(())
}

/// Sets the socket options of a new connection of a link.
pub(crate) fn set_options(connection: &TcpStream, lane: u8) -> io::Result<()> {
    causeway_proto::socket::set_options(connection)?;
    socket::keep_alive(connection)?;
    if lane == EVENT_LANE {
        // Only this connection gets the timeout. Event messages are always read at once, but
        // bulk data may wait long.
        socket::give_up_after(connection, SILENCE)?;
        socket::hurry(connection);
    }
    Ok(())
}
