//! Who may have links of this node measured, and which other ends the node dials: by statements of the device manager.
//!
//! Users name the other end, and the figures count for everyone. So the node dials only where the manager says that another
//! node is, and only an end that this other node has proved to be its own. Invariant: no statement opens a session, and no lease measures.

use std::time::SystemTime;

use causeway_proto::control::{LinkEnd, LinkSpeed};
use causeway_security::{NotStated, is_end_of};
use tonic::Status;

use super::super::links;
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

    /// The other end of a link, with its node, name and addresses as the manager states them. `own` are the speeds of this
    /// node's interfaces.
    pub(in crate::supervisor) fn placed(
        &self,
        end: LinkEnd,
        own: &[LinkSpeed],
    ) -> Result<LinkEnd, NotAllowed> {
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
        let users = place.addresses;
        let ordered = links::ordered(
            LinkEnd {
                addresses: of_links(&users, place.peer_addresses),
                link_speeds: place.link_speeds,
                node_uuid: place.node_uuid,
                node_name: place.name,
                ..end
            },
            own,
        );
        Ok(with_others(ordered, users))
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

/// The addresses of a link between workers: a client first passes on that by which it has reached the node, and then those
/// that the node tells.
fn of_links(users: &[String], mut peers: Vec<String>) -> Vec<String> {
    let is_peers = |of: &&String| peers.contains(of);
    let Some(reached) = users.iter().find(is_peers).cloned() else {
        return peers;
    };
    peers.retain(|of| *of != reached);
    peers.insert(0, reached);
    peers
}

/// Puts the addresses of users behind those of links. The latter may all be of a network that only some nodes have.
fn with_others(mut end: LinkEnd, users: Vec<String>) -> LinkEnd {
    for address in users {
        if !end.addresses.contains(&address) {
            end.addresses.push(address);
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_links::link_speed;

    #[test]
    fn addresses_are_those_of_links_between_workers_and_then_those_of_users() {
        let texts = |of: &[&str]| of.iter().map(|&of| of.to_owned()).collect::<Vec<_>>();
        let [slow, fast, name] = ["10.0.0.2:7079", "10.1.0.2:7079", "gpu2:7079"];
        let speeds = |host: u8| {
            [(0, 1_000), (1, 10_000)]
                .map(|(net, mbits)| link_speed([10, net, 0, host].into(), 24, mbits))
        };
        let order = |users: &[&str], peers: &[&str], own: &[LinkSpeed]| {
            let end = LinkEnd {
                addresses: of_links(&texts(users), texts(peers)),
                link_speeds: speeds(2).to_vec(),
                ..LinkEnd::default()
            };
            with_others(links::ordered(end, own), texts(users)).addresses
        };
        assert_eq!(order(&[name], &[slow, fast], &[]), [slow, fast, name]);
        assert_eq!(
            order(&[name], &[slow, fast], &speeds(1)),
            [fast, slow, name]
        );
        let here = "127.0.0.1:7079";
        assert_eq!(
            order(&[name], &[here, slow, fast], &speeds(1)),
            [fast, slow, here, name]
        );
        assert_eq!(order(&[fast, name], &[slow, fast], &[]), [fast, slow, name]);
        assert_eq!(order(&[slow], &[slow, fast], &speeds(1)), [fast, slow]);
        assert_eq!(
            order(&[name, slow], &[], &[]),
            [name, slow],
            "an older manager"
        );
    }
}
