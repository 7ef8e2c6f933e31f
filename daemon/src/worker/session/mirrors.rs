//! Mirrors: local events that stand for events of other sites, and the messages that end them.
//!
//! A mirror is a node of the session's graph, like a user event. Two parties may end it: the other site's
//! worker and the client. For an event of another native context of this worker, this worker is the first
//! party. The first message counts, whatever the order. A message may come before the command that
//! creates the mirror, and is then kept ([`super::early`]). A mirror belongs to one link, or to none. The
//! other ends of other links must not end it.
//!
//! The thread that ends a mirror may read a link or be a driver's callback, and must not make driver
//! calls that might block. So [`hear`] only changes the graph, and leaves the released commands to the
//! session's `mirrors` thread. The client's message is different: the thread that reads commands applies
//! it and runs the released commands.
//!
//! This module opens no connections; see [`super::links`]. Invariant: nothing here waits.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::Arc;

use causeway_proto::command::{CreateMirror, TellEvent};
use causeway_proto::id::{EventId, LinkId};
use causeway_proto::status::Status;

use super::early::OWN;
use super::links::{Foreign, Found, Mirrors};
use super::run::Runner;
use super::shared::Shared;
use super::violation::Violation;
use crate::worker::objects::command::{Command, Kind, MirrorHost, Tell, To};

impl Mirrors for Shared {
    fn ended(
        self: Arc<Self>,
        link: LinkId,
        mirror: EventId,
        status: Status,
    ) -> Result<(), Foreign> {
        hear(&self, link, mirror, status)
    }
}

impl MirrorHost for Shared {
    /// Ends a mirror on behalf of this worker itself; otherwise as [`hear`].
    fn end_mirror(self: Arc<Self>, mirror: EventId, status: Status) {
        if let Err(error) = hear(&self, OWN, mirror, status) {
            tracing::warn!(%error, "cannot end a mirror event");
        }
    }
}

/// Applies [`CreateMirror`].
///
/// # Errors
/// [`Violation`] when the id is in use, or there are too many objects.
pub(crate) fn create(shared: &Arc<Shared>, create: &CreateMirror) -> Result<(), Violation> {
    let id = EventId(create.mirror);
    let link = LinkId(create.link);
    let mirror = Command::new(id, Kind::Mirror(link), false, &shared.outbox);
    let mut core = shared.core.lock();
    // A mirror needs no native object, so one above the limit is not refused.
    let _ = core.room(shared)?;
    core.add_user_event(&mirror)?;
    if let Some(status) = core.early.take(link, id) {
        // The mirror is new, so no command waits for it and no other mirror is notified.
        mirror.close(status);
        core.graph.end(id, status, &mut VecDeque::new());
        core.forget_if_well(id, status);
    }
    Ok(())
}

/// Applies [`TellEvent`].
///
/// # Errors
/// [`Violation`] when the event or link never existed, or when too many mirrors want reports of one event.
pub(crate) fn tell(shared: &Arc<Shared>, tell: &TellEvent) -> Result<(), Violation> {
    let id = EventId(tell.event);
    let to = if tell.link == 0 {
        To::Here(Arc::<Shared>::clone(shared))
    } else {
        match shared.links.find(LinkId(tell.link))? {
            Found::Here(link) => To::Peer(link),
            // The mirror is gone together with the peer of the dropped link.
            Found::Dropped => To::Nobody,
        }
    };
    let tell = Tell {
        mirror: EventId(tell.mirror),
        to,
        order_only: tell.order_only,
    };
    let named = shared.core.lock().named(id)?;
    match named {
        Some(event) => event
            .tell(tell)
            .map_err(|_| Violation::Malformed("one event has too many mirror events")),
        // The event has ended well and is forgotten.
        None => {
            tell.say(Status::SUCCESS);
            Ok(())
        }
    }
}

/// Ends a mirror because of a message on a link, and in turn the mirrors in this worker that stand for it.
///
/// May be called wherever no lock of the session is held: it makes no driver calls and does not wait.
///
/// # Errors
/// [`Foreign`] if the event is no mirror of the link; it is then unchanged.
fn hear(
    shared: &Arc<Shared>,
    link: LinkId,
    mirror: EventId,
    status: Status,
) -> Result<(), Foreign> {
    // A list instead of recursion, because mirrors may stand for mirrors.
    let mut ends = VecDeque::from([(link, mirror)]);
    let mut freed = VecDeque::new();
    let mut result = Ok(());
    while let Some((from, mirror)) = ends.pop_front() {
        let told = {
            let mut core = shared.core.lock();
            let Some(event) = core.graph.known(mirror).map(Arc::clone) else {
                core.early.keep((from, mirror), status);
                continue;
            };
            if !event.is_mirror_of(from) {
                result = Err(Foreign(mirror));
                continue;
            }
            let Some(told) = event.close(status) else {
                continue;
            };
            core.graph.end(mirror, status, &mut freed);
            core.forget_if_well(mirror, status);
            told
        };
        // The session's lock is released here: a notification must not be sent under it.
        for tell in told.into_iter().filter(|tell| tell.is_for(status)) {
            match tell.to {
                To::Here(_) => ends.push_back((OWN, tell.mirror)),
                To::Peer(_) | To::Nobody => tell.say(status),
            }
        }
    }
    if shared.freed.put(freed) {
        let shared = Arc::clone(shared);
        let scope = shared.scope.clone();
        scope.spawn("mirrors", move || {
            while let Some(freed) = shared.freed.take() {
                Runner::new(&shared).take(freed);
            }
        });
    }
    result
}
