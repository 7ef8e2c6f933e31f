//! Opens a session again that was lost with its node, under the id and secret that its client still has.
//!
//! The client executes all of the session's commands again. So the worker begins with nothing, as one that takes the place
//! of a worker that has died before its first checkpoint ([`reexecution`](super::reexecution)).
//!
//! Invariants: a session that is here is never opened twice. The reply to a client may be lost, so the client may ask again
//! until it has connected, and gets the same session.

use causeway_proto::id::{SessionId, SessionSecret};
use causeway_security::SessionCertificate;
use subtle::ConstantTimeEq;

use super::{NotOpened, Opened, Opening, Place, WorkersState};
use crate::handover::Assignment;

/// The session that a client opens again.
pub(in super::super) struct Reopened {
    pub(in super::super) id: SessionId,
    pub(in super::super) secret: SessionSecret,
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
    /// Returns the session if the client has opened it here already, and has not connected since.
    ///
    /// # Errors
    /// [`NotOpened::IsHere`] if it is here otherwise, or if it is another session.
    pub(super) fn opened_again(&mut self, of: &Reopened) -> Result<Option<Opened>, NotOpened> {
        let Reopened { id, secret } = of;
        if let Some(served) = self.sessions.get(id) {
            let is_its = bool::from(served.secret.0.ct_eq(&secret.0));
            if !is_its || served.worker.is_connected() {
                return Err(NotOpened::IsHere);
            }
            let certificate = served.certificate.as_ref();
            return Ok(Some(Opened {
                id: *id,
                secret: secret.clone(),
                fingerprint: certificate.map(SessionCertificate::fingerprint),
                place: served.place.as_ref().map(Place::number),
            }));
        }
        match self.moving.forget_left(id) && !self.parked.has(id) {
            true => Ok(None),
            false => Err(NotOpened::IsHere),
        }
    }
}
