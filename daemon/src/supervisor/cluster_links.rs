//! The figures of links from this node to others of its device manager. They count for everyone, and the manager gets them
//! with heartbeats.
//!
//! Nothing here measures. Invariants: there is one figure for each address of each other node, and 4,096 at most. A heartbeat
//! carries [`MOST_NEWS`] figures at most, and each connection to the manager sends each figure once. No heartbeat waits for
//! the disk.
#![forbid(unsafe_code)]

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use causeway_links::{LinkEntry, LinkMemory, LinkTable};
use causeway_proto::control::Link;
use parking_lot::Mutex;

/// Most figures of a heartbeat.
const MOST_NEWS: usize = 64;

/// The figures. Clones share them.
#[derive(Clone)]
pub(super) struct ClusterLinks(Arc<Shared>);

struct Shared {
    /// `None` without a state folder: the figures end with the daemon.
    memory: Option<LinkMemory>,
    /// `None`: not read yet.
    known: Mutex<Option<Known>>,
    is_loading: AtomicBool,
}

/// The other node's uuid, and its address.
type FarEnd = (String, IpAddr);

/// The figures, numbered in the order of their arrival. Pure.
#[derive(Debug, Default)]
struct Known {
    table: LinkTable,
    numbers: HashMap<FarEnd, u64>,
    last: u64,
}

fn far_end(of: &LinkEntry) -> FarEnd {
    (of.peer.clone(), of.to.ip())
}

impl Known {
    fn of(table: LinkTable) -> Known {
        let entries = table.entries().iter();
        let mut ends: Vec<_> = entries.map(|of| (of.when, far_end(of))).collect();
        ends.sort();
        let last = ends.len() as u64;
        let ends = ends.into_iter().map(|(_, end)| end);
        Known {
            numbers: ends.zip(1..).collect(),
            table,
            last,
        }
    }

    fn note(&mut self, entry: LinkEntry) {
        let end = far_end(&entry);
        if !self.table.note(entry) {
            return;
        }
        self.last += 1;
        self.numbers.insert(end, self.last);
        if self.numbers.len() > self.table.entries().len() {
            let ends: HashSet<FarEnd> = self.table.entries().iter().map(far_end).collect();
            self.numbers.retain(|end, _| ends.contains(end));
        }
    }

    /// The oldest figures with numbers above this one, and the number up to which they go.
    fn after(&self, number: u64) -> (Vec<&LinkEntry>, u64) {
        if number >= self.last {
            return (Vec::new(), self.last);
        }
        let numbered = self.table.entries().iter();
        let numbered = numbered.filter_map(|of| Some((*self.numbers.get(&far_end(of))?, of)));
        let mut news: Vec<_> = numbered.filter(|(of, _)| *of > number).collect();
        news.sort_unstable_by_key(|(number, _)| *number);
        news.truncate(MOST_NEWS);
        let up_to = news.last().map_or(self.last, |(number, _)| *number);
        (news.into_iter().map(|(_, of)| of).collect(), up_to)
    }
}

impl ClusterLinks {
    pub(super) fn new(memory: Option<LinkMemory>) -> ClusterLinks {
        ClusterLinks(Arc::new(Shared {
            memory,
            known: Mutex::default(),
            is_loading: AtomicBool::new(false),
        }))
    }

    /// Keeps a figure of every user. Waits for the disk.
    pub(super) fn keep(&self, entry: LinkEntry) {
        self.0.load();
        if let Some(known) = self.0.known.lock().as_mut() {
            known.note(entry.clone());
        }
        let kept = self.0.memory.as_ref().map(|of| of.keep(vec![entry]));
        if let Some(Err(error)) = kept {
            tracing::warn!(%error, "the figures of a link are lost when the daemon ends");
        }
    }

    /// The figures that are new after this number, and the number to ask with the next time. There are none until the file
    /// was read, which begins here.
    pub(super) fn news(&self, after: u64) -> (Vec<Link>, u64) {
        let known = self.0.known.lock();
        let Some(known) = known.as_ref() else {
            if !self.0.is_loading.swap(true, Ordering::Relaxed) {
                let shared = Arc::clone(&self.0);
                tokio::task::spawn_blocking(move || shared.load());
            }
            return (Vec::new(), after);
        };
        let (news, up_to) = known.after(after);
        (news.into_iter().map(LinkEntry::to_wire).collect(), up_to)
    }
}

impl Shared {
    /// Reads the file, if it was not read yet. No lock is held meanwhile, because the daemon's thread waits for it.
    fn load(&self) {
        if self.known.lock().is_none() {
            let read = self.read();
            self.known.lock().get_or_insert(read);
        }
    }

    fn read(&self) -> Known {
        let Some(memory) = &self.memory else {
            return Known::default();
        };
        let table = memory.table().unwrap_or_else(|error| {
            tracing::warn!(%error, "the kept figures of links cannot be used");
            LinkTable::default()
        });
        Known::of(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(peer: u128, when: u64) -> LinkEntry {
        entry_at([10, 0, 0, 2], peer, when)
    }

    fn entry_at(address: [u8; 4], peer: u128, when: u64) -> LinkEntry {
        let (from, to) = ([10, 0, 0, 1].into(), (address, 7079).into());
        LinkEntry {
            outward: 3,
            when,
            ..LinkEntry::unmeasured(format!("{peer:032x}"), from, to)
        }
    }

    fn numbers(of: &[&LinkEntry]) -> Vec<u64> {
        of.iter().map(|of| of.when).collect()
    }

    #[test]
    fn each_figure_is_new_once_and_again_when_it_changes() {
        let mut known = Known::default();
        assert_eq!(known.after(0), (vec![], 0));
        (1..=70).for_each(|of| known.note(entry(u128::from(of), of)));
        let (first, up_to) = known.after(0);
        assert_eq!(numbers(&first), (1..=64).collect::<Vec<_>>());
        let (rest, up_to) = known.after(up_to);
        assert_eq!(numbers(&rest), (65..=70).collect::<Vec<_>>());
        assert_eq!(known.after(up_to), (vec![], up_to));
        known.note(entry(3, 100));
        assert_eq!(numbers(&known.after(up_to).0), [100]);
        // Another connection gets all, in the order of their arrival.
        let all = Known::of(known.table);
        assert_eq!(all.after(0).0.len(), 64);
        assert_eq!(numbers(&all.after(64).0), [66, 67, 68, 69, 70, 100]);
    }

    #[test]
    fn each_address_of_a_node_has_its_own_number() {
        let mut known = Known::default();
        known.note(entry(1, 5));
        known.note(entry_at([10, 1, 0, 2], 1, 6));
        let (first, up_to) = known.after(0);
        assert_eq!((numbers(&first), up_to), (vec![5, 6], 2));
        // The figure of the other address is not new.
        known.note(entry(1, 7));
        assert_eq!(numbers(&known.after(up_to).0), [7]);
        // A node with more addresses than fit into a heartbeat loses none.
        let mut many = Known::default();
        for host in 0..100 {
            many.note(entry_at([10, 0, 1, host], 1, u64::from(host)));
        }
        let again = Known::of(many.table.clone());
        for known in [many, again] {
            let (first, up_to) = known.after(0);
            let rest = known.after(up_to).0;
            let all = [numbers(&first), numbers(&rest)].concat();
            assert_eq!(all, (0..100).collect::<Vec<_>>());
        }
    }

    #[test]
    fn numbers_end_with_their_figures() {
        let mut known = Known::default();
        (0..4_100_u64).for_each(|of| known.note(entry(of.into(), of)));
        assert_eq!(known.table.entries().len(), 4096);
        assert_eq!(known.numbers.len(), 4096);
        assert_eq!(numbers(&known.after(4_090).0).len(), 10);
    }

    #[tokio::test]
    async fn a_figure_outlives_the_daemon() {
        let folder = tempfile::tempdir().unwrap();
        let memory = LinkMemory::of_cluster(folder.path(), &[1; 16]);
        let links = ClusterLinks::new(Some(memory.clone()));
        assert_eq!(links.news(0), (vec![], 0));
        links.keep(entry(7, 5));
        assert_eq!(links.news(0), (vec![entry(7, 5).to_wire()], 1));
        let again = ClusterLinks::new(Some(memory));
        assert_eq!(again.news(0), (vec![], 0), "not read yet");
        while again.news(0).0.is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(again.news(0).0, [entry(7, 5).to_wire()]);
    }
}
