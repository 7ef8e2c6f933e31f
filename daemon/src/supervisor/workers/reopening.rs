//! Opens a session again that was lost with its node's daemon, under the id and secret that its client still has.
//!
//! The client executes all of the session's commands again, or those behind a checkpoint that it holds and sends. So the worker
//! begins with nothing, as one that takes the place of a worker that has died before its first checkpoint
//! ([`reexecution`](super::reexecution)).
//!
//! Invariants: a session that is here is never opened twice. One that this daemon has ended stays ended, unless its lease
//! was lost or was granted to the node anew. The reply to a client may be lost, so the client may ask again until it has
//! connected, and gets the same session, also at a full node.

use std::time::{Duration, Instant};

use causeway_proto::id::{SessionId, SessionSecret};
use causeway_security::SessionCertificate;
use subtle::ConstantTimeEq;

use super::super::managed::{Epoch, LeaseId, LeasePlace};
use super::{Checkpoint, NotOpened, Opened, Opening, Workers, WorkersState};
use crate::handover::{Assignment, AwayTimes};

/// The session that a client opens again.
pub(in super::super) struct Reopened {
    pub(in super::super) id: SessionId,
    pub(in super::super) secret: SessionSecret,
}

/// A session that was opened again before.
pub(in super::super) struct OpenedAgain {
    pub(in super::super) opened: Opened,
    pub(in super::super) away: AwayTimes,
    /// How long the session waits for the next daemon.
    pub(in super::super) restart: Duration,
}

impl Opening {
    /// The assignment of a worker, which begins with the client's session if it is opened again.
    pub(super) fn begun_again(&self, assignment: Assignment) -> Assignment {
        match (&self.again, &self.checkpoint) {
            (Some(again), Some(checkpoint)) => Assignment {
                id: again.id,
                secret: again.secret.clone(),
                restores: Some(checkpoint.restores()),
                ..assignment
            },
            _ => assignment,
        }
    }
}

impl WorkersState {
    /// Checks whether a session that was lost with its node may open here, under this grant of its lease.
    ///
    /// # Errors
    /// [`NotOpened::IsHere`] if a session of its id is here, or if another session of its id has left for another node.
    /// [`NotOpened::HasEnded`] if this daemon has ended it for good.
    pub(super) fn may_open_again(
        &mut self,
        of: &Reopened,
        grant: Option<(LeaseId, Epoch)>,
    ) -> Result<(), NotOpened> {
        let Reopened { id, secret } = of;
        let ended = self.ended.end(id, secret, Instant::now());
        if let Some(end) = ended.filter(|end| end.forbids(grant)) {
            return Err(NotOpened::HasEnded(end.reason));
        }
        let is_here = self.sessions.contains_key(id) || self.parked.has(id);
        match is_here || self.moving.refuses(of) {
            true => Err(NotOpened::IsHere),
            false => Ok(()),
        }
    }
}

impl Workers {
    /// Returns the session if it is here, and its client has still to connect to a worker that begins with nothing. `grant`
    /// is that of the lease that the client shows.
    ///
    /// # Errors
    /// [`NotOpened::IsHere`] if it is here otherwise, or if it is another session.
    pub(in super::super) fn opened_again(
        &self,
        of: &Reopened,
        grant: Option<(LeaseId, Epoch)>,
    ) -> Result<Option<OpenedAgain>, NotOpened> {
        let state = self.0.state.lock();
        let Some(served) = state.sessions.get(&of.id) else {
            return Ok(None);
        };
        let begins = served
            .checkpoint
            .as_ref()
            .is_some_and(Checkpoint::is_nothing);
        let is_its = bool::from(served.secret.0.ct_eq(&of.secret.0));
        // One of a lease may be of an earlier grant, which is just ending.
        let is_of_it = served.place.as_ref().map(LeasePlace::grant) == grant;
        if !is_its || !begins || served.worker.is_connected() || !is_of_it {
            return Err(NotOpened::IsHere);
        }
        let certificate = served.certificate.as_ref();
        let opened = Opened {
            id: of.id,
            secret: of.secret.clone(),
            fingerprint: certificate.map(SessionCertificate::fingerprint),
            place: None,
        };
        Ok(Some(OpenedAgain {
            opened,
            away: served.away,
            restart: served.restart,
        }))
    }
}
