//! The figures of links from this node to others of its device manager. They count for everyone, and the manager gets them
//! with heartbeats.
//!
//! Nothing here measures. Invariants: there is one figure for each other node, and 4,096 at most. A heartbeat carries
//! [`MOST_NEWS`] figures at most, and each connection to the manager sends each figure once. No heartbeat waits for the disk.
#![forbid(unsafe_code)]

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use causeway_links::{Entry, LinkMemory, Table};
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

/// The figures, numbered in the order of their arrival. Pure.
#[derive(Debug, Default)]
struct Known {
    table: Table,
    /// By the other node's uuid.
    numbers: HashMap<String, u64>,
    last: u64,
}

impl Known {
    fn of(table: Table) -> Known {
        let entries = table.entries().iter();
        let mut peers: Vec<_> = entries.map(|of| (of.when, of.peer.clone())).collect();
        peers.sort();
        let last = peers.len() as u64;
        let peers = peers.into_iter().map(|(_, peer)| peer);
        Known {
            numbers: peers.zip(1..).collect(),
            table,
            last,
        }
    }

    fn note(&mut self, entry: Entry) {
        let peer = entry.peer.clone();
        if !self.table.note(entry) {
            return;
        }
        self.last += 1;
        self.numbers.insert(peer, self.last);
        if self.numbers.len() > self.table.entries().len() {
            let entries = self.table.entries().iter();
            let peers: HashSet<&str> = entries.map(|of| &*of.peer).collect();
            self.numbers.retain(|peer, _| peers.contains(&**peer));
        }
    }

    /// The oldest figures with numbers above this one, and the number up to which they go.
    fn after(&self, number: u64) -> (Vec<&Entry>, u64) {
        if number >= self.last {
            return (Vec::new(), self.last);
        }
        let numbered = self.table.entries().iter();
        let numbered = numbered.filter_map(|of| Some((*self.numbers.get(&of.peer)?, of)));
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
    pub(super) fn keep(&self, entry: Entry) {
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
        (news.into_iter().map(Entry::to_wire).collect(), up_to)
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
            Table::default()
        });
        Known::of(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(peer: u128, when: u64) -> Entry {
        Entry {
            peer: format!("{peer:032x}"),
            name: String::new(),
            user: String::new(),
            from: [10, 0, 0, 1].into(),
            to: ([10, 0, 0, 2], 7079).into(),
            least_ns: 1,
            median_ns: 2,
            lost: 0,
            outward: 3,
            inward: 4,
            stream_ms: 500,
            tls: true,
            when,
        }
    }

    fn numbers(of: &[&Entry]) -> Vec<u64> {
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
