//! Where a node's devices are now, the credential for them, and the session that has to know.
//!
//! Pure. It calls no session: callers do, without the lock. Invariant: a session learns every change of the place, either from the
//! caller that makes it, or from the caller that enters the session. So a session may learn a change twice.
#![forbid(unsafe_code)]

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;

use crate::config::ServerSettings;
use crate::transport::rails::Destination;

/// See the module.
pub(super) struct Whereabouts<Session> {
    /// The node to which the lease has moved, or this node at other addresses, by the uuid.
    moved: Option<(Bytes, ServerSettings)>,
    /// The signed lease on the node's devices. A renewed lease replaces it.
    pub(super) credential: Bytes,
    /// Within which time the device manager has equal devices take the place of lost ones; zero: it does not.
    pub(super) replaced_within: Duration,
    pub(super) changes: u64,
    replaced: u64,
    session: Weak<Session>,
}

impl<Session> Default for Whereabouts<Session> {
    fn default() -> Self {
        Whereabouts {
            moved: None,
            credential: Bytes::new(),
            replaced_within: Duration::ZERO,
            changes: 0,
            replaced: 0,
            session: Weak::new(),
        }
    }
}

impl<Session> Whereabouts<Session> {
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

    /// The session, and where it goes on. `None` without a session, or if the place has never changed.
    pub(super) fn news(&self) -> Option<(Arc<Session>, Destination)> {
        let destination = Destination {
            server: self.server()?.clone(),
            changes: self.changes,
            replaced: self.replaced,
        };
        Some((self.session.upgrade()?, destination))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_learns_a_change_that_comes_before_or_after_its_entry() {
        let mut whereabouts = Whereabouts::default();
        let session = Arc::new(());
        let server = |text: &str| ServerSettings::at(text.parse().unwrap());
        whereabouts.enter(&session);
        assert!(whereabouts.news().is_none() && whereabouts.uuid().is_none());
        whereabouts.change(vec![1; 16].into(), server("a:1"), true);
        whereabouts.change(vec![2; 16].into(), server("b:1"), false);
        for _ in 0..2 {
            let (_, news) = whereabouts.news().unwrap();
            assert_eq!((news.changes, news.replaced), (2, 1));
            assert_eq!(news.server.address.to_string(), "b:1");
            whereabouts.enter(&session);
        }
        drop(session);
        assert!(whereabouts.news().is_none());
        assert_eq!(whereabouts.uuid().unwrap()[..], [2; 16]);
    }
}
