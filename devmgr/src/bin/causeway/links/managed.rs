//! The device manager's part: its nodes, the figures that they have reported, and claims for measuring.
//!
//! Invariant: a claim is shown only to the node that it is for.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use causeway::config::Settings;
use causeway_links::LinkEntry;
use causeway_proto::manager::{
    AllowMeasuringRequest, LinkList, ListLinksRequest, MeasurableNode, MeasuringAllowed,
};
use parking_lot::Mutex;

use super::ends::{NodeEnd, shown};
use super::matrix::Shown;
use crate::context::Context;
use crate::failure::Failure;
use crate::json::id;
use crate::say::say;

/// The nodes and figures that the user may see.
///
/// # Errors
/// The manager does not answer, or cannot be reached.
pub(crate) fn listed(context: &Context) -> Result<LinkList, Failure> {
    context.read_from_manager(async |manager| {
        let request = manager.request(ListLinksRequest {});
        let mut leases = manager.leases();
        let parts = manager.parts_of(leases.list_links(request)).await?;
        let mut list = LinkList::default();
        for part in parts {
            list.nodes.extend(part.nodes);
            list.links.extend(part.links);
        }
        Ok(list)
    })
}

/// The figures of a list.
pub(crate) fn figures(list: &LinkList) -> Vec<Shown> {
    let of = list.links.iter().filter_map(|of| {
        let entry = LinkEntry::from_wire(of.link.as_ref()?)?;
        Some(shown(&id(&of.node_uuid), entry))
    });
    of.collect()
}

/// The nodes of a list. Those that can be measured have addresses.
pub(crate) fn nodes(list: &LinkList, claims: Option<&Claims>, settings: &Settings) -> Vec<NodeEnd> {
    let nodes = list.nodes.iter().filter_map(|of| {
        let uuid = <[u8; 16]>::try_from(&of.node_uuid[..]).ok()?;
        let claim = claims.and_then(|claims| claims.nodes.get(&uuid));
        Some(NodeEnd {
            name: of.name.clone(),
            uuid,
            server: claim.and_then(|of| settings.server_at(&of.addresses, &of.name)),
            is_managed: true,
        })
    });
    nodes.collect()
}

/// What a node of the manager needs to measure.
#[derive(Clone, Default)]
pub(crate) struct Claim {
    /// The claim for this node.
    pub(crate) credential: Bytes,
    /// Where this node is, for other nodes.
    pub(crate) place: Bytes,
}

/// Pause after the manager has not renewed claims.
const RENEWED_AGAIN_AFTER: Duration = Duration::from_secs(10);

/// The claims for all nodes. They are renewed in time.
pub(crate) struct Claims {
    nodes: HashMap<[u8; 16], MeasurableNode>,
    renewed_from: Instant,
}

impl Claims {
    /// Asks the manager for claims.
    ///
    /// # Errors
    /// The manager does not answer, or refuses.
    pub(crate) fn ask(context: &Context) -> Result<Claims, Failure> {
        let asked = Instant::now();
        let allowed: MeasuringAllowed = context.read_from_manager(async |manager| {
            let request = manager.request(AllowMeasuringRequest {});
            manager
                .answer_to(manager.leases().allow_measuring(request))
                .await
        })?;
        let nodes = allowed.nodes.into_iter();
        let nodes = nodes.filter_map(|of| Some((of.node_uuid[..].try_into().ok()?, of)));
        Ok(Claims {
            nodes: nodes.collect(),
            renewed_from: asked + Duration::from_millis(allowed.lifetime_ms) / 3,
        })
    }

    /// Renews the claims if it is time.
    fn renew(&mut self, context: &Context) {
        if Instant::now() < self.renewed_from {
            return;
        }
        match Claims::ask(context) {
            Ok(claims) => *self = claims,
            // The earlier ones count for a while.
            Err(failure) => {
                self.renewed_from = Instant::now() + RENEWED_AGAIN_AFTER;
                say!("causeway links: {failure}");
            }
        }
    }

    /// The claim for a node. Empty if the manager has none: a configured node needs none.
    fn of(&self, uuid: &[u8; 16]) -> Claim {
        let node = self.nodes.get(uuid);
        node.map_or_else(Claim::default, |of| Claim {
            credential: of.credential.clone(),
            place: of.place.clone(),
        })
    }
}

/// The claims as threads share them. A pair may wait for busy nodes for minutes before it uses a claim.
pub(crate) struct SharedClaims<'a> {
    context: &'a Context,
    claims: Mutex<Claims>,
}

impl<'a> SharedClaims<'a> {
    pub(crate) fn new(context: &'a Context, claims: Claims) -> SharedClaims<'a> {
        SharedClaims {
            context,
            claims: Mutex::new(claims),
        }
    }

    /// The claim for a node that counts now; see [`Claims::of`].
    pub(crate) fn of(&self, uuid: &[u8; 16]) -> Claim {
        let mut claims = self.claims.lock();
        claims.renew(self.context);
        claims.of(uuid)
    }
}
