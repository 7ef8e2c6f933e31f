//! Measured links: the figures that nodes report. What users get of them is in `users`.
//!
//! The figures are in memory only: nodes keep them, and report them again to each manager. Invariants: a node reports its
//! own links only, over its current connection, to nodes that the manager knows. A node has [`MOST_OF_NODE`] figures at
//! most, and all nodes together [`MOST`]; no node displaces figures of one that has fewer.

mod users;

use std::collections::btree_map;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use causeway_links::LinkEntry;
use causeway_proto::control::Link;
use causeway_proto::manager as pb;
use parking_lot::Mutex;

pub(super) use self::users::{SeenNode, allowed, list, seen, seen_nodes};
use super::book::Book;
use super::input::ConnectionId;
use crate::dashboard::view::ReportedLink;
use crate::inventory::NodeId;
use crate::time::Wall;

/// Most figures of a heartbeat that are taken.
const MOST_NEWS: usize = 64;
/// Most figures of one node.
const MOST_OF_NODE: usize = 4096;
/// Most figures of all nodes: those of all pairs of 512 nodes.
const MOST: usize = 1 << 17;
/// Most figures of one part of a list.
const MOST_OF_PART: usize = 512;
/// The figures that nodes have reported. Clones share them.
#[derive(Clone, Default)]
pub(super) struct ReportedLinks(Arc<Mutex<Reported>>);

#[derive(Default)]
struct Reported {
    /// By the node that has measured and the other one. The names of entries are empty.
    of: BTreeMap<NodeId, BTreeMap<NodeId, LinkEntry>>,
    count: usize,
    /// Changes with each figure.
    version: u64,
    slowest: Slowest,
    /// Whether the log says that there are too many.
    is_told: bool,
}

/// The slowest links, as of a version.
#[derive(Default)]
struct Slowest {
    version: u64,
    links: Arc<Vec<ReportedLink>>,
}

impl ReportedLinks {
    /// Notes figures of a node's links to nodes that the manager knows.
    pub(super) fn note(&self, node: NodeId, figures: Vec<(NodeId, LinkEntry)>, now: Wall) {
        let now = now.0 / 1000;
        let mut reported = self.0.lock();
        for (peer, entry) in figures {
            // A node whose clock is ahead must not hide the other end's figures for long.
            let when = entry.when.min(now);
            reported.note(node, peer, LinkEntry { when, ..entry });
        }
    }

    /// Forgets a node that is removed.
    pub(super) fn forget(&self, node: NodeId) {
        let mut reported = self.0.lock();
        reported.of.remove(&node);
        for links in reported.of.values_mut() {
            links.remove(&node);
        }
        reported.count = reported.of.values().map(BTreeMap::len).sum();
        reported.version += 1;
    }

    /// Figures of links among these nodes, those behind a link, up to [`MOST_OF_PART`] of them.
    fn among(
        &self,
        nodes: &BTreeSet<NodeId>,
        behind: Option<(NodeId, NodeId)>,
    ) -> Vec<pb::NodeLink> {
        let mut list = Vec::new();
        let first = behind.map_or(Bound::Unbounded, |(from, _)| Bound::Included(from));
        for from in nodes.range((first, Bound::Unbounded)) {
            // Locked for one node at a time, because heartbeats wait for the lock.
            let reported = self.0.lock();
            let seen = behind.filter(|(node, _)| node == from);
            let after = seen.map_or(Bound::Unbounded, |(_, peer)| Bound::Excluded(peer));
            let links = reported.of.get(from).into_iter();
            let links = links.flat_map(|of| of.range((after, Bound::Unbounded)));
            let links = links.filter(|(to, _)| nodes.contains(to));
            let room = MOST_OF_PART - list.len();
            list.extend(links.take(room).map(|(to, of)| pb::NodeLink {
                node_uuid: from.0.to_vec().into(),
                link: Some(Link {
                    node_uuid: to.0.to_vec().into(),
                    ..of.to_wire()
                }),
            }));
            if list.len() == MOST_OF_PART {
                break;
            }
        }
        list
    }

    /// The newest figure of each pair, of so many pairs, the slowest first. Takes a while if something has changed.
    pub(super) fn slowest(&self, most: usize) -> Arc<Vec<ReportedLink>> {
        let (version, figures) = {
            let reported = self.0.lock();
            if reported.slowest.version == reported.version {
                return Arc::clone(&reported.slowest.links);
            }
            (reported.version, reported.figures())
        };
        // Without the lock, for which heartbeats wait.
        let pairs = slowest(figures, most);
        let mut reported = self.0.lock();
        let links = pairs.into_iter().filter_map(|(from, to)| {
            let of = reported.of.get(&from)?.get(&to)?.clone();
            Some(ReportedLink { from, to, of })
        });
        let links = Arc::new(links.collect());
        reported.slowest = Slowest {
            version,
            links: Arc::clone(&links),
        };
        links
    }
}

/// The figures of one connection that the owner has not checked. Clones share them. Invariants: at most one task has them
/// checked, and there are [`MOST_OF_NODE`] at most.
#[derive(Clone, Default)]
pub(super) struct UncheckedLinks(Arc<Mutex<Unchecked>>);

#[derive(Default)]
struct Unchecked {
    figures: BTreeMap<NodeId, LinkEntry>,
    /// Whether a task has them checked.
    has_task: bool,
}

impl UncheckedLinks {
    /// Adds figures. Returns whether they need a task that has them checked.
    pub(super) fn add(&self, figures: Vec<(NodeId, LinkEntry)>) -> bool {
        let mut unchecked = self.0.lock();
        for (peer, entry) in figures {
            let count = unchecked.figures.len();
            match unchecked.figures.entry(peer) {
                btree_map::Entry::Occupied(mut of) => {
                    if of.get().when <= entry.when {
                        of.insert(entry);
                    }
                }
                btree_map::Entry::Vacant(of) if count < MOST_OF_NODE => {
                    of.insert(entry);
                }
                // No honest node reports so many at once.
                btree_map::Entry::Vacant(_) => {}
            }
        }
        let needs_task = !unchecked.has_task && !unchecked.figures.is_empty();
        unchecked.has_task |= needs_task;
        needs_task
    }

    /// Takes the figures for a check. `None`: there are none, and the task ends.
    pub(super) fn take(&self) -> Option<Vec<(NodeId, LinkEntry)>> {
        let mut unchecked = self.0.lock();
        let figures = std::mem::take(&mut unchecked.figures);
        unchecked.has_task = !figures.is_empty();
        unchecked.has_task.then(|| figures.into_iter().collect())
    }
}

/// Those figures of a connection that count: none, unless it is the node's current one, and those of links to nodes that the
/// manager knows.
pub(super) fn checked(
    book: &Book,
    (connection, node): (ConnectionId, NodeId),
    mut figures: Vec<(NodeId, LinkEntry)>,
) -> Vec<(NodeId, LinkEntry)> {
    let current = book.connected.get(&node);
    if current.is_none_or(|current| current.connection != connection) {
        return Vec::new();
    }
    figures.retain(|(peer, _)| book.nodes.contains_key(peer));
    figures
}

impl Reported {
    fn note(&mut self, node: NodeId, peer: NodeId, entry: LinkEntry) {
        let known = self.of.get_mut(&node).and_then(|of| of.get_mut(&peer));
        match known {
            // A report that was overtaken.
            Some(known) if known.when > entry.when => return,
            Some(known) => *known = entry,
            None => {
                self.make_room(node);
                self.of.entry(node).or_default().insert(peer, entry);
                self.count += 1;
            }
        }
        self.version += 1;
    }

    /// Makes room for one more figure of a node.
    fn make_room(&mut self, node: NodeId) {
        let own = self.of.get(&node).map_or(0, BTreeMap::len);
        let from = match own {
            MOST_OF_NODE.. => Some(node),
            _ if self.count < MOST => return,
            // The node with most figures; if it has as many, this one.
            _ => {
                let largest =
                    |(of, links): &(&NodeId, &BTreeMap<_, _>)| (links.len(), **of == node);
                self.of.iter().max_by_key(largest).map(|(of, _)| *of)
            }
        };
        if !self.is_told {
            self.is_told = true;
            tracing::warn!(
                ?node,
                of_node = own,
                of_all = self.count,
                "measured links are too many; old figures are dropped"
            );
        }
        let links = from.and_then(|from| self.of.get_mut(&from));
        let oldest = links.and_then(|links| {
            let oldest = links.iter().min_by_key(|(_, of)| of.when);
            let oldest = oldest.map(|(peer, _)| *peer)?;
            links.remove(&oldest)
        });
        self.count -= usize::from(oldest.is_some());
    }

    fn figures(&self) -> Vec<Figure> {
        let all = (self.of.iter())
            .flat_map(|(from, links)| links.iter().map(move |(to, of)| (from, to, of)));
        let figure = |(from, to, of): (&NodeId, &NodeId, &LinkEntry)| Figure {
            from: *from,
            to: *to,
            when: of.when,
            rate: of.outward.min(of.inward),
        };
        all.map(figure).collect()
    }
}

/// What decides whether a link is one of the slowest.
struct Figure {
    from: NodeId,
    to: NodeId,
    when: u64,
    rate: u64,
}

/// The slowest pairs, each by its newest figure.
fn slowest(figures: Vec<Figure>, most: usize) -> Vec<(NodeId, NodeId)> {
    let mut pairs: BTreeMap<(NodeId, NodeId), Figure> = BTreeMap::new();
    for of in figures {
        let pair = (of.from.min(of.to), of.from.max(of.to));
        let known = pairs.get(&pair);
        // Of two figures of one second, one counts.
        if known.is_none_or(|known| (known.when, known.from) < (of.when, of.from)) {
            pairs.insert(pair, of);
        }
    }
    let mut pairs: Vec<_> = pairs.into_values().collect();
    pairs.sort_unstable_by_key(|of| (of.rate, of.from, of.to));
    pairs.truncate(most);
    pairs.into_iter().map(|of| (of.from, of.to)).collect()
}

/// The figures of a report of a node, with the other ends. Nonsense is skipped.
pub(super) fn figures(node: NodeId, links: &[Link]) -> Vec<(NodeId, LinkEntry)> {
    let figure = |link: &Link| {
        let peer = NodeId(<[u8; 16]>::try_from(&link.node_uuid[..]).ok()?);
        let entry = LinkEntry {
            peer: String::new(),
            name: String::new(),
            ..LinkEntry::from_wire(link)?
        };
        (peer != node).then_some((peer, entry))
    };
    links.iter().take(MOST_NEWS).filter_map(figure).collect()
}

#[cfg(test)]
mod tests {
    use super::super::link_place::LinkPlace;
    use super::*;
    use crate::lease::Change;
    use crate::lease::change::NodeRow;
    use crate::service::book::Connected;
    use causeway_proto::control::Inventory;
    use causeway_security::LeaseKey;

    pub(super) fn id(of: u64) -> NodeId {
        NodeId(u128::from(of).to_be_bytes())
    }

    pub(super) fn link(to: NodeId, outward: u64, when: u64) -> Link {
        Link {
            node_uuid: to.0.to_vec().into(),
            node_name: "what a node says".to_owned(),
            from: "10.0.0.1".to_owned(),
            to: "10.0.0.2:7079".to_owned(),
            outward,
            inward: 1_000_000,
            when,
            ..Link::default()
        }
    }

    fn all(links: &ReportedLinks, nodes: &[NodeId]) -> Vec<(NodeId, NodeId, u64)> {
        let among = links.among(&nodes.iter().copied().collect(), None);
        let of = |of: pb::NodeLink| {
            let link = of.link.unwrap();
            assert_eq!(link.node_name, "");
            let id = |bytes: &[u8]| NodeId(bytes.try_into().unwrap());
            (id(&of.node_uuid), id(&link.node_uuid), link.outward)
        };
        among.into_iter().map(of).collect()
    }

    fn report(links: &ReportedLinks, node: NodeId, of: &[Link]) {
        links.note(node, figures(node, of), Wall(1_000_000));
    }

    #[test]
    fn a_figure_is_replaced_and_seen_by_those_who_see_both_nodes() {
        let links = ReportedLinks::default();
        report(&links, id(1), &[link(id(2), 5, 1), link(id(3), 6, 1)]);
        report(&links, id(1), &[link(id(2), 7, 2)]);
        let both = [(id(1), id(2), 7), (id(1), id(3), 6)];
        assert_eq!(all(&links, &[id(1), id(2), id(3)]), both);
        assert_eq!(all(&links, &[id(1), id(2)]), both[..1]);
        assert_eq!(all(&links, &[id(2), id(3)]), []);
        links.forget(id(2));
        assert_eq!(all(&links, &[id(1), id(2), id(3)]), both[1..]);
    }

    pub(super) fn with_nodes(names: &[(u64, &str)]) -> Book {
        let mut book = Book::default();
        for (number, name) in names {
            book.apply(Change::PutNode(NodeRow {
                node: id(*number),
                name: (*name).to_owned(),
                addresses: vec![format!("{name}:7079")],
                draining: false,
                account: None,
            }));
        }
        book
    }

    #[test]
    fn only_the_current_connection_of_a_node_reports_and_only_links_to_known_nodes() {
        let mut book = with_nodes(&[(1, "gpu1"), (2, "gpu2")]);
        let (current, other) = (ConnectionId::fresh(), ConnectionId::fresh());
        let reported = || figures(id(1), &[link(id(2), 5, 1), link(id(3), 6, 1)]);
        let count = |book: &Book, of| checked(book, (of, id(1)), reported()).len();
        assert_eq!(count(&book, current), 0, "not connected");
        let told = Inventory {
            peer_addresses: vec!["10.0.0.1:7079".to_owned()],
            link_speeds: vec![causeway_links::link_speed([10, 0, 0, 1].into(), 24, 1_000)],
            ..Inventory::default()
        };
        book.connected.insert(
            id(1),
            Connected {
                connection: current,
                devices: Vec::new(),
                stopping: false,
                insecure: false,
                place: LinkPlace::new(b"key", Some(&told)),
                load: Arc::default(),
            },
        );
        assert_eq!(count(&book, current), 1);
        let seen = seen_nodes(&book, None);
        let key = LeaseKey::generate().unwrap();
        let allowed = allowed(&key, seen, (&"ann".into(), false), Wall(0));
        let [node] = &allowed.nodes[..] else {
            panic!("one is connected");
        };
        let now = std::time::SystemTime::UNIX_EPOCH;
        let place = key.verifier().verify_place(&node.place, now).unwrap();
        assert_eq!(place.addresses, ["gpu1:7079"]);
        assert_eq!(place.peer_addresses, ["10.0.0.1:7079"]);
        assert_eq!(
            (place.link_speeds.len(), &place.link_key[..]),
            (1, &b"key"[..])
        );
        // A connection that was refused, or that another one has replaced.
        assert_eq!(count(&book, other), 0);
    }

    #[test]
    fn a_connection_has_one_check_at_a_time_of_all_that_has_come() {
        let unchecked = UncheckedLinks::default();
        assert!(!unchecked.add(Vec::new()));
        assert!(unchecked.add(figures(id(1), &[link(id(2), 5, 1)])));
        assert!(!unchecked.add(figures(id(1), &[link(id(2), 6, 2), link(id(3), 7, 1)])));
        assert!(!unchecked.add(figures(id(1), &[link(id(2), 5, 1)])), "late");
        let taken = unchecked.take().unwrap();
        let rates: Vec<_> = taken.iter().map(|(_, of)| of.outward).collect();
        assert_eq!(rates, [6, 7]);
        // The check is under way.
        assert!(!unchecked.add(figures(id(1), &[link(id(4), 8, 1)])));
        assert_eq!(unchecked.take().unwrap().len(), 1);
        assert!(unchecked.take().is_none());
        assert!(unchecked.add(figures(id(1), &[link(id(4), 9, 2)])));
        for to in 10..10_000 {
            unchecked.add(figures(id(1), &[link(id(to), 5, 1)]));
        }
        assert_eq!(unchecked.take().unwrap().len(), MOST_OF_NODE);
    }

    #[test]
    fn nonsense_and_a_link_to_itself_are_skipped() {
        let links = ReportedLinks::default();
        let wrong = Link {
            to: "nowhere".to_owned(),
            ..link(id(2), 5, 1)
        };
        report(&links, id(1), &[wrong, Link::default(), link(id(1), 5, 1)]);
        assert_eq!(links.0.lock().count, 0);
        // A heartbeat has a limit.
        let many: Vec<_> = (10..110).map(|to| link(id(to), 5, 1)).collect();
        report(&links, id(1), &many);
        assert_eq!(links.0.lock().count, MOST_NEWS);
    }

    #[test]
    fn a_node_and_all_nodes_have_a_limit() {
        let mut reported = Reported::default();
        let entry = |when| LinkEntry::from_wire(&link(id(2), 5, when)).unwrap();
        for to in 0..5_000 {
            reported.note(id(9_999), id(to), entry(to));
        }
        assert_eq!(reported.count, MOST_OF_NODE);
        assert!(!reported.of[&id(9_999)].contains_key(&id(0)), "the oldest");
        for node in 10_000..10_033 {
            for to in 0..4_000 {
                reported.note(id(node), id(to), entry(to));
            }
        }
        assert_eq!(reported.count, MOST);
        // What is known is replaced all the same, by what is newer.
        reported.note(id(9_999), id(4_999), entry(77));
        assert_eq!(reported.of[&id(9_999)][&id(4_999)].when, 4_999);
        reported.note(id(9_999), id(4_999), entry(6_000));
        assert_eq!(reported.of[&id(9_999)][&id(4_999)].when, 6_000);
        // Those who report much give way to the others.
        (0..100).for_each(|to| reported.note(id(20_000), id(to), entry(1)));
        assert_eq!(
            (reported.count, reported.of[&id(20_000)].len()),
            (MOST, 100)
        );
        assert!(reported.is_told);
    }

    #[test]
    fn a_clock_that_is_ahead_hides_no_later_figure() {
        let links = ReportedLinks::default();
        report(&links, id(1), &[link(id(2), 5, u64::MAX)]);
        assert_eq!(links.slowest(9)[0].of.when, 1_000);
        links.note(
            id(2),
            figures(id(2), &[link(id(1), 7, 1_001)]),
            Wall(1_001_000),
        );
        assert_eq!(links.slowest(9)[0].of.outward, 7);
    }

    #[test]
    fn the_slowest_come_first_and_a_pair_once() {
        let links = ReportedLinks::default();
        report(
            &links,
            id(1),
            &[link(id(2), 500, 1), link(id(3), 50, 1), link(id(4), 5, 1)],
        );
        report(&links, id(4), &[link(id(1), 70, 2)]);
        let rates = |most| {
            let of = |of: &ReportedLink| (of.from, of.to, of.of.outward);
            links.slowest(most).iter().map(of).collect::<Vec<_>>()
        };
        let slow = [(id(1), id(3), 50), (id(4), id(1), 70)];
        assert_eq!(rates(2), slow);
        report(&links, id(1), &[link(id(4), 6, 2)]);
        assert_eq!(rates(2), slow, "of one second, one counts");
    }
}
