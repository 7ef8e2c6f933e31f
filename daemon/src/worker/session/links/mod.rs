//! Links: the direct paths to the workers of other sessions of the same client.
//!
//! The client tells both ends of a link its name, a secret, and where the other end may be found; one end
//! dials, or the other when the first could not, and both tell the client what became of it. A link has one
//! connection for words about events and [`LINK_LANES`] for bulk data, which belong to
//! [`crate::bulk`].
//!
//! - [`link`]: one link, its connections, its states;
//! - [`dial`]: this end's part in making the connections; [`incoming`]: the other end's;
//! - [`words`]: the connection for events.
//!
//! What it is not: it knows no command and no buffer. Invariants: nothing that a peer says is heard before
//! the link's secret was proved; the thread that reads commands waits for no network here; a peer that is
//! gone costs its link and nothing else; a link that the client has dropped leaves nothing behind, and naming it
//! does no harm, for the client may learn of a peer's end between two commands.
#![forbid(unsafe_code)]

mod dial;
mod incoming;
mod link;
mod words;

use std::collections::HashMap;
use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_proto::command::{AddLink, DialLink, DropLink, RouteViaClient};
use causeway_proto::id::{LinkId, SessionId, SessionSecret};
#[cfg(doc)]
use causeway_proto::limits::LINK_LANES;
use causeway_proto::limits::{MAX_LINK_ADDRESSES, MAX_LINKS};
use causeway_proto::preamble::EVENT_LANE;
use causeway_security::Fingerprint;
use parking_lot::{Condvar, Mutex};

use self::dial::Diallers;
pub(crate) use self::link::{Link, Place};
use super::hash::ById;
use super::{Shared, Violation};
use crate::bulk::Path;
use crate::worker::socket;

/// Bytes of an address.
const MAX_ADDRESS: usize = 512;
/// Silence of the other end's machine after which the link is lost.
const SILENCE: Duration = Duration::from_secs(4);

/// The links of a session.
pub(crate) struct Links {
    own: SessionId,
    table: Mutex<Table>,
    added: Condvar,
    diallers: Diallers,
}

#[derive(Default)]
struct Table {
    links: HashMap<LinkId, Arc<Link>, ById>,
    // The client names them in ascending order: what is not there and not above this was dropped.
    newest: Option<LinkId>,
}

/// A link that the client has told of.
pub(crate) enum Found {
    /// It is there.
    Here(Arc<Link>),
    /// The client has taken it back.
    Dropped,
}

impl Links {
    /// None yet.
    pub(crate) fn new(own: SessionId) -> Links {
        Links {
            own,
            table: Mutex::default(),
            added: Condvar::new(),
            diallers: Diallers::default(),
        }
    }

    /// A link that the client has told of.
    ///
    /// # Errors
    /// [`Violation::Unknown`].
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

    /// The same for another worker, which may have heard of the link before this one.
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

    /// A connection of the link's `incarnation`, as told when it was attached, is lost or carried nonsense:
    /// the whole link goes down, which its other connections' threads will see. Once for all of them.
    ///
    /// Not to be called from within [`attach_peer`](crate::bulk::Engine::attach_peer).
    pub(crate) fn lane_broke(
        &self,
        shared: &Arc<Shared>,
        link: LinkId,
        incarnation: u64,
        reason: String,
    ) {
        if let Some(link) = self.present(link) {
            link.come_down(shared, incarnation, reason);
        }
    }

    /// Ends every link.
    pub(crate) fn stop(&self) {
        let all: Vec<_> = self.table.lock().links.values().map(Arc::clone).collect();
        for link in all {
            link.stop();
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

/// A new link.
///
/// # Errors
/// [`Violation`] for what no client of ours sends.
pub(crate) fn add(shared: &Arc<Shared>, add: AddLink) -> Result<(), Violation> {
    let peer = <[u8; 16]>::try_from(&add.session[..]).ok().map(SessionId);
    let secret = <[u8; 32]>::try_from(&add.secret[..])
        .ok()
        .map(SessionSecret);
    let (Some(peer), Some(secret)) = (peer, secret) else {
        return Err(Violation::Malformed("a link without session or secret"));
    };
    let fingerprint = match &add.certificate_sha256[..] {
        [] => None,
        digest => Some(Fingerprint::from_wire(digest).ok_or(Violation::Malformed(
            "a link with a certificate's digest that is none",
        ))?),
    };
    if add.link == 0 || peer == shared.links.own {
        return Err(Violation::Malformed("a link of a worker with itself"));
    }
    let long = |address: &String| address.len() > MAX_ADDRESS;
    if add.addresses.len() > MAX_LINK_ADDRESSES || add.addresses.iter().any(long) {
        return Err(Violation::Malformed("too many addresses, or too long ones"));
    }
    let id = LinkId(add.link);
    let link = Link::new(
        id,
        shared.links.own,
        peer,
        secret,
        fingerprint,
        add.addresses,
    );
    let link = Arc::new(link);
    shared.links.add(Arc::clone(&link))?;
    if add.dial {
        dial::start(shared, &link);
    }
    Ok(())
}

/// The other end could not dial; this one tries.
///
/// # Errors
/// [`Violation::Unknown`] for a link that was not added.
pub(crate) fn dial(shared: &Arc<Shared>, dial: &DialLink) -> Result<(), Violation> {
    if let Found::Here(link) = shared.links.find(LinkId(dial.link))? {
        dial::start(shared, &link);
    }
    Ok(())
}

/// Nobody could dial.
///
/// # Errors
/// As [`dial()`].
pub(crate) fn route_via_client(
    shared: &Arc<Shared>,
    route: &RouteViaClient,
) -> Result<(), Violation> {
    if let Found::Here(link) = shared.links.find(LinkId(route.link))? {
        link.go_via_client(shared);
    }
    Ok(())
}

/// Nobody needs the link any more.
///
/// # Errors
/// As [`dial()`].
pub(crate) fn drop_link(shared: &Arc<Shared>, drop: &DropLink) -> Result<(), Violation> {
    let id = LinkId(drop.link);
    // Out of the table first, so that nothing finds it that would make its path anew.
    let Found::Here(link) = shared.links.find(id)? else {
        return Ok(());
    };
    shared.links.table.lock().links.remove(&id);
    link.drop_it(shared);
    Ok(())
}

/// The way of a link's transfers, which lead nowhere when it was dropped.
///
/// # Errors
/// As [`dial()`].
pub(crate) fn path(shared: &Arc<Shared>, link: LinkId) -> Result<Arc<Path>, Violation> {
    if link.0 == 0 {
        return Ok(shared.bulk.path(shared, link));
    }
    Ok(match shared.links.find(link)? {
        Found::Here(_) => shared.bulk.path(shared, link),
        Found::Dropped => Arc::new(Path::dropped(link)),
    })
}

/// Sets the options of a link's fresh connection.
///
/// # Errors
/// What the system says.
pub(crate) fn set_options(connection: &TcpStream, lane: u8) -> io::Result<()> {
    causeway_proto::socket::set_options(connection)?;
    socket::keep_alive(connection)?;
    if lane == EVENT_LANE {
        // Bulk data may lie unread while its place is busy; words are always taken at once.
        socket::give_up_after(connection, SILENCE)?;
        socket::hurry(connection);
    }
    Ok(())
}
