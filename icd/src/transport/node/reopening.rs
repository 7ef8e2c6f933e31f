//! Opens a session again that was lost with its node's daemon: at the next daemon, or at the node that has the lease now.
//!
//! Invariant: the session keeps its id and secret. Only the node that the devices are of opens it, and only with the same
//! devices, or with equal ones of another node.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use causeway_proto::control::{Inventory, OpenSessionReply};
use causeway_proto::id::{SessionId, SessionSecret};
use causeway_proto::status::WireError;
use causeway_security::Fingerprint;

use super::{Node, OPEN_LIMIT, Target};
use crate::transport::control::{self, NotReopened, Supervisor};
use crate::transport::equal_devices::{has_equal_devices, shows_devices};

impl Node {
    /// Opens the session again if it `is_wanted` still; takes twice the time at most in which a session opens. Returns how
    /// often the devices had changed their place, and the fingerprint of the session's new certificate, if its connections use
    /// TLS.
    ///
    /// # Errors
    /// [`NotReopened`]. The session may be open, if only the answer was lost; then another attempt gets it.
    pub(in crate::transport) fn reopen(
        &self,
        session: SessionId,
        secret: &SessionSecret,
        is_wanted: impl Fn() -> bool,
    ) -> Result<(u64, Option<Fingerprint>), NotReopened> {
        let (target, changes) = self.target_now();
        let inventory = self.ask_inventory(target.clone());
        let inventory = inventory.map_err(NotReopened::NotReached)?;
        if !self.is(&inventory.node_uuid) {
            let why = self.unreachable("another node answers at its address");
            return Err(NotReopened::NotReached(why));
        }
        if self.is_replaceable() && !shows_devices(&inventory) {
            let why = self.unreachable("the node does not serve the lease");
            return Err(NotReopened::NotReached(why));
        }
        if !self.has_same_devices(&inventory) {
            let why = self.unreachable("the node's devices have changed");
            return Err(NotReopened::ForGood(why));
        }
        if !is_wanted() {
            let why = self.unreachable("the program has ended the session");
            return Err(NotReopened::ForGood(why));
        }
        let (reply, is_secured) =
            self.ask_again(target, inventory.generation, (session, secret.clone()))?;
        let fingerprint = Fingerprint::from_wire(&reply.certificate_sha256);
        let is_it = reply.session_id == session.0[..] && reply.reexecutes;
        match is_it && fingerprint.is_some() == is_secured {
            true => Ok((changes, fingerprint)),
            false => Err(NotReopened::ForGood(
                self.unreachable("the node has opened another session instead"),
            )),
        }
    }

    // The node may also have been found at another address.
    fn has_same_devices(&self, inventory: &Inventory) -> bool {
        let known = self.inventory();
        // What the program knows of its devices stays as another node has told it.
        if let Some(known) =
            known.filter(|of| of.node_uuid != inventory.node_uuid && self.is_replaceable())
        {
            return has_equal_devices(&known, inventory);
        }
        let inventory = Arc::new(inventory.clone());
        let is_known = (self.inventory()).is_some_and(|of| of.generation == inventory.generation);
        is_known || self.changed.get().is_some_and(|same| same(&inventory))
    }

    fn ask_inventory(&self, Target { server, credential }: Target) -> Result<Inventory, WireError> {
        let (limit, rail) = (self.open_limit(), self.rail.load(Ordering::Relaxed));
        let asked = control::converse(move || async move {
            let ask = async {
                let mut supervisor = Supervisor::reach(&server, OPEN_LIMIT, rail).await?;
                supervisor.inventory(credential).await
            };
            control::within(limit, &server.address, ask).await
        });
        asked.unwrap_or_else(|error| Err(self.unreachable(&error.to_string())))
    }

    fn ask_again(
        &self,
        Target { server, credential }: Target,
        generation: u64,
        (session, secret): (SessionId, SessionSecret),
    ) -> Result<(OpenSessionReply, bool), NotReopened> {
        let is_replaceable = self.is_replaceable();
        let (limit, rail) = (self.open_limit(), self.rail.load(Ordering::Relaxed));
        let asked = control::converse(move || async move {
            let ask = async {
                let mut supervisor = match Supervisor::reach(&server, OPEN_LIMIT, rail).await {
                    Ok(supervisor) => supervisor,
                    Err(error) => return Ok(Err(NotReopened::NotReached(error))),
                };
                let of = (session, &secret);
                let is_secured = supervisor.caller.is_secured;
                let opened =
                    supervisor.open_again(generation, &credential, &server, of, is_replaceable);
                Ok(opened.await.map(|reply| (reply, is_secured)))
            };
            let within = control::within(limit, &server.address, ask).await;
            within.unwrap_or_else(|error| Err(NotReopened::NotReached(error)))
        });
        asked.unwrap_or_else(|error| {
            let error = self.unreachable(&error.to_string());
            Err(NotReopened::NotReached(error))
        })
    }
}
