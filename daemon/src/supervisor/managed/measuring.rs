//! Who may have links of this node measured, and which other ends the node dials: by statements of the device manager.
//!
//! Users name the other end, and the figures count for everyone. So the node dials only where the manager says that another
//! node is, and only an end that this other node has proved to be its own. Invariant: no statement opens a session, and no lease measures.

use std::time::SystemTime;

use causeway_proto::control::LinkEnd;
use causeway_security::{NotStated, is_end_of};
use tonic::Status;

use super::{Managed, User};

/// A user who may measure.
pub(in crate::supervisor) struct Measurer {
    pub(in crate::supervisor) user: String,
    /// Whether the node's limits need not apply to the user.
    pub(in crate::supervisor) is_admin: bool,
}

/// Why a caller may not measure.
#[derive(Debug, thiserror::Error)]
pub(in crate::supervisor) enum NotAllowed {
    #[error(
        "this node measures with a claim of its device manager only; causeway links --measure gets one, if the manager is \
         configured"
    )]
    Missing,
    #[error("this node has not joined its device manager yet; try again later")]
    NoManager,
    #[error("the claim for measuring: {0}")]
    Claim(NotStated),
    #[error("the place of the other end: {0}")]
    Place(NotStated),
    #[error(
        "the other end of the link has not proved that it is the node of its place; ask for new claims and measure again"
    )]
    NotProved,
    #[error("the claim for measuring belongs to another user")]
    OtherUser,
    #[error("the other end of the link is this node itself")]
    Itself,
}

impl From<NotAllowed> for Status {
    fn from(error: NotAllowed) -> Status {
        match error {
            NotAllowed::NoManager => Status::unavailable(error.to_string()),
            _ => Status::permission_denied(error.to_string()),
        }
    }
}

impl Managed {
    /// Verifies a claim for measuring. `user` is the caller, if the node authenticates callers.
    pub(in crate::supervisor) fn measurer(
        &self,
        credential: &[u8],
        User(user): &User,
    ) -> Result<Measurer, NotAllowed> {
        if credential.is_empty() {
            return Err(NotAllowed::Missing);
        }
        let verifier = self.0.state.lock().verifier.ok_or(NotAllowed::NoManager)?;
        let claim = verifier.verify_measuring(credential, &self.0.node, SystemTime::now());
        let claim = claim.map_err(NotAllowed::Claim)?;
        // Where callers also authenticate, a stolen claim is useless to other users.
        if user.as_ref().is_some_and(|user| *user != claim.user) {
            return Err(NotAllowed::OtherUser);
        }
        Ok(Measurer {
            user: claim.user,
            is_admin: claim.admin,
        })
    }

    /// The other end of a link, with its node, name and addresses as the manager states them.
    pub(in crate::supervisor) fn placed(&self, end: LinkEnd) -> Result<LinkEnd, NotAllowed> {
        let verifier = self.0.state.lock().verifier.ok_or(NotAllowed::NoManager)?;
        let place = verifier.verify_place(&end.place, SystemTime::now());
        let place = place.map_err(NotAllowed::Place)?;
        if place.node_uuid[..] == self.0.node[..] {
            return Err(NotAllowed::Itself);
        }
        let id = <[u8; 16]>::try_from(&end.id[..]).map_err(|_| NotAllowed::NotProved)?;
        if !is_end_of(&place.link_key, &id, &end.certificate_sha256, &end.proof) {
            return Err(NotAllowed::NotProved);
        }
        Ok(LinkEnd {
            addresses: place.addresses,
            node_uuid: place.node_uuid,
            node_name: place.name,
            ..end
        })
    }

    /// Proves that this end is the node's own.
    pub(in crate::supervisor) fn proved(&self, end: LinkEnd) -> LinkEnd {
        let Ok(id) = <[u8; 16]>::try_from(&end.id[..]) else {
            return end;
        };
        let proof = self.0.end_key.prove(&id, &end.certificate_sha256);
        LinkEnd {
            proof: proof.into(),
            ..end
        }
    }
}
