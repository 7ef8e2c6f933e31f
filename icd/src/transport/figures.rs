//! Figures of links that the user has had measured: this machine's own, and those that nodes keep.
//!
//! No program measures. Invariants: this machine's figures are read once in a process, and only if somebody asks. Old figures
//! are not returned. A node's answer counts for a minute, also if there is none. A node that is not available is not asked.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use causeway_links::{LinkEntry, seconds_now};
use causeway_proto::control::Link;
use parking_lot::Mutex;

use super::{links, speeds};
use crate::config::{self, ServerSettings};
use crate::fork;

/// For how long a node's answer counts.
const ANSWER_COUNTS: Duration = Duration::from_secs(60);
/// How long a node is not asked again that has not answered.
const SILENCE_COUNTS: Duration = Duration::from_secs(2);
/// Longest wait for a node's answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// What a node has answered, and until when that counts.
type Answer = (Instant, Arc<Vec<Link>>);

/// A node at an end of links, with what is needed to ask for its figures.
#[derive(Clone, Debug)]
pub struct LinkedNode {
    /// The node's uuid.
    pub uuid: Bytes,
    /// Where the node is.
    pub server: ServerSettings,
    /// The signed lease on the node's devices; empty without one.
    pub credential: Bytes,
    /// Whether the node has answered last time.
    pub is_available: bool,
}

/// The figures between two nodes, in the direction from the first to the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// Shortest round trip.
    pub round_trip: Duration,
    /// Bytes per second; 0 if there are none.
    pub bandwidth: u64,
    /// How old the figures are.
    pub age: Duration,
}

/// This machine's figures for the node of this uuid, one for each address, the newest first.
#[must_use]
pub fn kept(uuid: &[u8]) -> &'static [LinkEntry] {
    static KEPT: OnceLock<HashMap<String, Vec<LinkEntry>>> = OnceLock::new();
    let kept = KEPT.get_or_init(|| {
        let Some(memory) = config::link_memory() else {
            return HashMap::new();
        };
        let table = memory.table().unwrap_or_else(|error| {
            tracing::warn!(%error, "the kept figures of links are not used");
            Default::default()
        });
        let mut kept: HashMap<String, Vec<LinkEntry>> = HashMap::new();
        let now = seconds_now();
        for of in table.entries().iter().filter(|of| !of.is_old(now)) {
            kept.entry(of.peer.clone()).or_default().push(of.clone());
        }
        for entries in kept.values_mut() {
            entries.sort_by_key(|of| std::cmp::Reverse(of.when));
        }
        kept
    });
    let uuid: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    kept.get(&uuid).map_or(&[], Vec::as_slice)
}

/// This machine's figures for a node: of its addresses the fastest, or else the newest.
#[must_use]
pub fn kept_of(node: &LinkedNode) -> Option<&'static LinkEntry> {
    let kept = kept(&node.uuid);
    let addresses = node.server.addresses();
    let of_addresses = addresses.filter_map(|address| speeds::of_address(address, kept));
    let fastest = of_addresses.max_by_key(|of| of.outward.min(of.inward));
    fastest.or(kept.first())
}

/// How old an entry is.
#[must_use]
pub fn age_of(when: u64) -> Duration {
    Duration::from_secs(seconds_now().saturating_sub(when))
}

/// The figures that the user has had measured from one node to another one. Asks each node at most once a minute, and waits
/// a second at most for each.
#[must_use]
pub fn between(from: &LinkedNode, to: &LinkedNode) -> Option<Figures> {
    fork::check().ok()?;
    // The tool has the node with the smaller uuid dial, and the one that dials keeps the figures.
    let asks = match from.uuid <= to.uuid {
        true => [(from, to, false), (to, from, true)],
        false => [(to, from, true), (from, to, false)],
    };
    asks.into_iter().find_map(|(asked, far, is_reversed)| {
        newest(&links_of(asked), &far.uuid, is_reversed, seconds_now())
    })
}

/// The newest figures for a far end that are not old.
fn newest(links: &[Link], far: &[u8], is_reversed: bool, now: u64) -> Option<Figures> {
    let age = |of: &&Link| Duration::from_secs(now.saturating_sub(of.when));
    let fresh = links
        .iter()
        .filter(|of| of.node_uuid == far && !causeway_links::is_old(of.when, now));
    let of = fresh.max_by_key(|of| of.when)?;
    Some(Figures {
        round_trip: Duration::from_nanos(of.least_ns),
        bandwidth: match is_reversed {
            false => of.outward,
            true => of.inward,
        },
        age: age(&of),
    })
}

fn links_of(node: &LinkedNode) -> Arc<Vec<Link>> {
    static ANSWERS: LazyLock<Mutex<HashMap<Bytes, Answer>>> = LazyLock::new(Mutex::default);
    let known = ANSWERS.lock().get(&node.uuid).cloned();
    if let Some((_, links)) = known.filter(|(until, _)| Instant::now() < *until) {
        return links;
    }
    // Nodes of a device manager give their figures to that alone.
    if !node.is_available || !node.credential.is_empty() {
        return Arc::default();
    }
    let answered = links::links_within(&node.server, ANSWER_WITHIN);
    let (counts, links) = match answered {
        Ok(links) => (ANSWER_COUNTS, links),
        Err(error) => {
            tracing::debug!(%error, "the figures of a node's links are not known");
            (SILENCE_COUNTS, Vec::new())
        }
    };
    let links = Arc::new(links);
    let answer = (Instant::now() + counts, Arc::clone(&links));
    ANSWERS.lock().insert(node.uuid.clone(), answer);
    links
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_fresh_figures_count_in_their_direction() {
        let link = |far: u8, outward, when| Link {
            node_uuid: vec![far; 16].into(),
            least_ns: 7,
            outward,
            inward: outward + 1,
            when,
            ..Link::default()
        };
        let links = [link(1, 10, 1_000), link(1, 20, 2_000), link(2, 30, 2_500)];
        let now = 2_060;
        let of = |far: u8, is_reversed| newest(&links, &[far; 16], is_reversed, now);
        let figures = Figures {
            round_trip: Duration::from_nanos(7),
            bandwidth: 20,
            age: Duration::from_secs(60),
        };
        assert_eq!(of(1, false), Some(figures));
        assert_eq!(of(1, true).unwrap().bandwidth, 21);
        assert_eq!(of(2, false).unwrap().age, Duration::ZERO);
        assert_eq!(of(3, false), None);
        assert_eq!(newest(&links, &[1; 16], false, 2_000 + 31 * 86_400), None);
        // A figure of the future displaces no other one.
        assert_eq!(
            newest(&links, &[1; 16], false, 1_060).unwrap().bandwidth,
            10
        );
    }
}
