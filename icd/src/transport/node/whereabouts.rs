//! Where a node's devices are now, the credential for them, and the session that has to know.
//!
//! It calls no session: callers do, without the lock. Invariant: a session learns every change of the place, either from the
//! caller that makes it, or from the caller that enters the session. So a session may learn a change twice.
#![forbid(unsafe_code)]

use std::sync::{Arc, Weak};

use bytes::Bytes;

use crate::config::ServerSettings;
use crate::transport::session::Session;

/// The server at which a session goes on.
#[derive(Clone, Debug)]
pub(in crate::transport) struct Destination {
    pub(in crate::transport) server: ServerSettings,
    /// How often the devices have changed their place.
    pub(in crate::transport) changes: u64,
    /// The same count when the lease had lost the devices last. A session that was opened before has to begin anew.
    pub(in crate::transport) replaced: u64,
}

/// See the module.
#[derive(Default)]
pub(super) struct Whereabouts {
    /// The node to which the lease has moved, or this node at other addresses, by the uuid.
    moved: Option<(Bytes, ServerSettings)>,
    /// The signed lease on the node's devices. A renewed lease replaces it.
    pub(super) credential: Bytes,
    /// Whether the device manager has equal devices take the place of lost ones.
    pub(super) is_replaceable: bool,
    pub(super) changes: u64,
    replaced: u64,
    session: Weak<Session>,
}

impl Whereabouts {
    /// The settings of the node that has the devices now, if that is another one than at first.
    pub(super) fn server(&self) -> Option<&ServerSettings> {
        self.moved.as_ref().map(|(_, server)| server)
    }

    /// The uuid of that node.
    pub(super) fn uuid(&self) -> Option<&Bytes> {
        self.moved.as_ref().map(|(uuid, _)| uuid)
    }

    /// Changes the place. `is_lost`: nothing of the sessions is at the place before.
    pub(super) fn change(&mut self, uuid: Bytes, server: ServerSettings, is_lost: bool) {
        self.moved = Some((uuid, server));
        self.changes += 1;
        if is_lost {
            self.replaced = self.changes;
        }
    }

    /// Enters a session that was just opened.
    pub(super) fn enter(&mut self, session: &Arc<Session>) {
        self.session = Arc::downgrade(session);
    }

    /// The open session, and where it goes on. `None` without a session, or if the place has never changed.
    pub(super) fn news(&self) -> Option<(Arc<Session>, Destination)> {
        let destination = Destination {
            server: self.server()?.clone(),
            changes: self.changes,
            replaced: self.replaced,
        };
        let session = self.session.upgrade();
        Some((session.filter(|of| !of.has_failed())?, destination))
    }
}
