//! What users get of measured links: the nodes that they may see, the figures among these, and claims to measure.
//!
//! The owner's state says who may see a node. Invariant: a user gets neither name nor claim of a node that the policy
//! hides from them.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use causeway_proto::manager as pb;
use causeway_security::LeaseKey;
use tokio::sync::mpsc;
use tonic::Status;

use super::super::book::Book;
use super::super::link_place::LinkPlace;
use super::{MOST_OF_PART, ReportedLinks};
use crate::inventory::NodeId;
use crate::policy::UserName;
use crate::time::Wall;

/// Time for which a claim counts. A user who has lost their rights can measure for so long.
const CLAIMED_FOR: Duration = Duration::from_secs(300);

/// The nodes that a user may see: all, or those of the leases of `whose`.
pub(in crate::service) fn seen(book: &Book, whose: Option<&UserName>) -> BTreeSet<NodeId> {
    let Some(user) = whose else {
        return book.nodes.keys().copied().collect();
    };
    let own = book.leases.values().filter(|row| row.user == *user);
    let nodes = own.flat_map(|row| row.units.iter().map(|(node, _)| *node));
    nodes.filter(|node| book.nodes.contains_key(node)).collect()
}

/// A node that a user may see.
pub(in crate::service) struct SeenNode {
    node: NodeId,
    name: String,
    addresses: Vec<String>,
    /// `None`: not connected.
    place: Option<LinkPlace>,
}

/// The nodes that a user may see.
pub(in crate::service) fn seen_nodes(book: &Book, whose: Option<&UserName>) -> Vec<SeenNode> {
    let seen = seen(book, whose).into_iter();
    let nodes = seen.filter_map(|node| {
        let row = book.nodes.get(&node)?;
        Some(SeenNode {
            node,
            name: row.name.clone(),
            addresses: row.addresses.clone(),
            place: book.connected.get(&node).map(|of| of.place.clone()),
        })
    });
    nodes.collect()
}

/// The claims for those of these nodes that are connected. Signing thousands takes a while.
pub(in crate::service) fn allowed(
    key: &LeaseKey,
    nodes: Vec<SeenNode>,
    (user, is_admin): (&UserName, bool),
    now: Wall,
) -> pb::MeasuringAllowed {
    let lifetime_ms = u64::try_from(CLAIMED_FOR.as_millis()).unwrap_or(u64::MAX);
    let not_after_unix_ms = now.0.saturating_add(lifetime_ms);
    let node = |of: SeenNode| {
        let place = of.place?;
        let peers = place.addresses();
        let uuid = of.node.0.to_vec();
        let credential = key.sign_measuring(&pb::MeasuringClaim {
            node_uuid: uuid.clone().into(),
            user: user.to_string(),
            admin: is_admin,
            not_after_unix_ms,
        });
        let place = key.sign_place(&pb::NodePlace {
            node_uuid: uuid.clone().into(),
            name: of.name.clone(),
            addresses: of.addresses.clone(),
            not_after_unix_ms,
            link_key: place.key().clone(),
            peer_addresses: peers.addresses,
            link_speeds: peers.speeds,
        });
        Some(pb::MeasurableNode {
            node_uuid: uuid.into(),
            name: of.name,
            addresses: of.addresses,
            credential: credential.into(),
            place: place.into(),
        })
    };
    pb::MeasuringAllowed {
        nodes: nodes.into_iter().filter_map(node).collect(),
        lifetime_ms,
    }
}

/// Sends the figures among the nodes that a reader may see, in parts. `seen` returns what is left of these nodes, and is asked
/// before each further part, because a slow reader may lose rights meanwhile. Such a reader costs two parts.
pub(in crate::service) async fn list<Seen>(
    links: ReportedLinks,
    nodes: Vec<SeenNode>,
    reader: mpsc::Sender<Result<pb::LinkList, Status>>,
    seen: impl Fn() -> Seen,
) where
    Seen: Future<Output = Result<BTreeSet<NodeId>, Status>>,
{
    let (mut parts, first) = LinkParts::begin(links, nodes);
    if reader.send(Ok(first)).await.is_err() {
        return;
    }
    while !parts.is_whole
        && let Ok(room) = reader.reserve().await
    {
        let part = seen().await.map(|seen| parts.next(&seen)).transpose();
        let is_last = !matches!(part, Some(Ok(_)));
        if let Some(part) = part {
            room.send(part);
        }
        if is_last {
            return;
        }
    }
}

/// The figures among some nodes, in parts.
struct LinkParts {
    links: ReportedLinks,
    among: BTreeSet<NodeId>,
    /// The last link that was made.
    behind: Option<(NodeId, NodeId)>,
    is_whole: bool,
}

impl LinkParts {
    /// Makes the first part, which has the nodes' names.
    fn begin(links: ReportedLinks, nodes: Vec<SeenNode>) -> (LinkParts, pb::LinkList) {
        let mut parts = LinkParts {
            links,
            among: nodes.iter().map(|of| of.node).collect(),
            behind: None,
            is_whole: false,
        };
        let name = |of: SeenNode| pb::LinkNode {
            node_uuid: of.node.0.to_vec().into(),
            name: of.name,
        };
        let first = pb::LinkList {
            nodes: nodes.into_iter().map(name).collect(),
            links: parts.links(),
        };
        (parts, first)
    }

    /// The next part, for a reader who may see these nodes now. Nodes that were not seen at the first part, which has their
    /// names, are left out. `None`: there is no further part.
    fn next(&mut self, seen: &BTreeSet<NodeId>) -> Option<pb::LinkList> {
        if self.is_whole {
            return None;
        }
        self.among.retain(|node| seen.contains(node));
        Some(pb::LinkList {
            nodes: Vec::new(),
            links: self.links(),
        })
    }

    fn links(&mut self) -> Vec<pb::NodeLink> {
        let links = self.links.among(&self.among, self.behind);
        self.is_whole = links.len() < MOST_OF_PART;
        let ends = |of: &pb::NodeLink| {
            let far = &of.link.as_ref()?.node_uuid;
            let id = |bytes: &Bytes| Some(NodeId(bytes[..].try_into().ok()?));
            Some((id(&of.node_uuid)?, id(far)?))
        };
        self.behind = links.last().and_then(ends);
        links
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{id, link, with_nodes};
    use super::*;
    use crate::lease::change::LeaseRow;
    use crate::lease::{Change, Epoch, LeaseId};
    use crate::time::Span;
    use causeway_links::LinkEntry;
    use std::future::ready;

    #[test]
    fn a_list_comes_in_parts() {
        let links = ReportedLinks::default();
        let entry = |when| LinkEntry::from_wire(&link(id(2), 5, when)).unwrap();
        let seen: Vec<_> = (1..=50).map(id).collect();
        for from in &seen {
            for to in seen.iter().filter(|to| *to != from) {
                links.0.lock().note(*from, *to, entry(1));
            }
            // The reader does not see this one.
            links.0.lock().note(*from, id(99), entry(1));
        }
        let (mut parts, first) = LinkParts::begin(links.clone(), nodes(&seen));
        assert_eq!((first.nodes.len(), first.links.len()), (50, MOST_OF_PART));
        // What is reported meanwhile is in the parts that follow.
        links.0.lock().note(id(50), id(49), entry(2));
        let may_see = seen.iter().copied().collect();
        let rest = std::iter::from_fn(|| parts.next(&may_see));
        let rest: Vec<_> = rest.collect();
        assert!(rest.iter().all(|of| of.nodes.is_empty()));
        let counts: Vec<_> = rest.iter().map(|of| of.links.len()).collect();
        assert_eq!(counts, [512, 512, 512, 50 * 49 - 4 * 512]);
        let all = first
            .links
            .into_iter()
            .chain(rest.into_iter().flat_map(|of| of.links));
        let all: Vec<_> = all.map(|of| (of.node_uuid, of.link.unwrap())).collect();
        assert_eq!(all.last().unwrap().1.when, 2);
        let pairs: BTreeSet<_> = all.iter().map(|(from, of)| (from, &of.node_uuid)).collect();
        assert_eq!(pairs.len(), 50 * 49, "each once");
        // An empty list and one that fills its parts have an end, too.
        let counts = |links: &ReportedLinks, seen: &[NodeId]| {
            let (mut parts, first) = LinkParts::begin(links.clone(), nodes(seen));
            let seen = seen.iter().copied().collect();
            let rest = std::iter::from_fn(|| parts.next(&seen));
            let all = std::iter::once(first).chain(rest);
            all.map(|of| of.links.len()).collect::<Vec<_>>()
        };
        assert_eq!(counts(&links, &[]), [0]);
        let full = ReportedLinks::default();
        let many: Vec<_> = (0..=MOST_OF_PART as u64).map(id).collect();
        (1..=MOST_OF_PART as u64).for_each(|to| full.0.lock().note(id(0), id(to), entry(1)));
        assert_eq!(counts(&full, &many), [MOST_OF_PART, 0]);
    }

    fn nodes(of: &[NodeId]) -> Vec<SeenNode> {
        let node = |node: &NodeId| SeenNode {
            node: *node,
            name: "a node".to_owned(),
            addresses: Vec::new(),
            place: None,
        };
        of.iter().map(node).collect()
    }

    #[tokio::test]
    async fn rights_are_checked_before_each_part() {
        let links = ReportedLinks::default();
        let entry = LinkEntry::from_wire(&link(id(2), 5, 1)).unwrap();
        let all: Vec<_> = (0..60).map(id).collect();
        for (from, to) in all
            .iter()
            .flat_map(|from| all.iter().map(move |to| (from, to)))
        {
            links.0.lock().note(*from, *to, entry.clone());
        }
        // Who loses a node has no more figures of it, and one that they get comes too late for its name.
        let first = nodes(&all[..50]);
        let (reader, mut parts) = mpsc::channel::<Result<pb::LinkList, Status>>(1);
        let seen = || ready(Ok(all[30..].iter().copied().collect()));
        let reading = async {
            let first = parts.recv().await.unwrap().unwrap();
            assert_eq!((first.nodes.len(), first.links.len()), (50, MOST_OF_PART));
            let mut rest = BTreeSet::new();
            while let Some(part) = parts.recv().await {
                let links = part.unwrap().links.into_iter();
                rest.extend(links.flat_map(|of| [of.node_uuid, of.link.unwrap().node_uuid]));
            }
            rest
        };
        let ((), rest) = tokio::join!(list(links.clone(), first, reader, seen), reading);
        let expected = all[30..50].iter().map(|of| Bytes::from(of.0.to_vec()));
        assert_eq!(rest, expected.collect());
        // Who is no user any more gets no further part.
        let (reader, mut parts) = mpsc::channel::<Result<pb::LinkList, Status>>(1);
        let seen = || ready(Err(Status::unauthenticated("removed")));
        let reading = async {
            parts.recv().await.unwrap().unwrap();
            let mut rest = Vec::new();
            while let Some(part) = parts.recv().await {
                rest.push(part.map(|_| ()).map_err(|status| status.code()));
            }
            rest
        };
        let ((), rest) = tokio::join!(list(links, nodes(&all), reader, seen), reading);
        assert_eq!(rest, [Err(tonic::Code::Unauthenticated)]);
    }

    #[test]
    fn a_user_sees_the_nodes_of_their_leases_or_all() {
        let mut book = with_nodes(&[(1, "gpu1"), (2, "gpu2"), (3, "gpu3")]);
        for (number, user, nodes) in [(1, "ann", &[1, 2, 9][..]), (2, "bob", &[3])] {
            book.apply(Change::PutLease(LeaseRow {
                lease: LeaseId([number; 16]),
                epoch: Epoch(1),
                user: user.into(),
                groups: Vec::new(),
                devices: "1".parse().unwrap(),
                units: nodes.iter().map(|of| (id(*of), Vec::new())).collect(),
                lost: Vec::new(),
                moved: Vec::new(),
                replace: Vec::new(),
                since: Wall(0),
                limit: None,
                confirmed: true,
                silence: Span(0),
            }));
        }
        let names = |whose: Option<&str>| {
            let whose = whose.map(UserName::from);
            let seen = seen_nodes(&book, whose.as_ref()).into_iter();
            seen.map(|of| of.name).collect::<Vec<_>>()
        };
        assert_eq!(names(None), ["gpu1", "gpu2", "gpu3"]);
        assert_eq!(names(Some("ann")), ["gpu1", "gpu2"]);
        assert!(names(Some("carl")).is_empty());
        // Nodes that are not connected have no claims.
        let key = LeaseKey::generate().unwrap();
        let all = seen_nodes(&book, None);
        let allowed = allowed(&key, all, (&"ann".into(), false), Wall(0));
        assert!(allowed.nodes.is_empty() && allowed.lifetime_ms > 0);
    }
}
