//! The tracks of a timeline, in groups of tracks that show the same thing.
//!
//! Invariant: a track is never removed, and its number and place never change. Beyond [`MOST_GROUPS`] groups,
//! further queues and threads share one.

use std::borrow::Cow;

use rustc_hash::FxHashMap;

use super::{Category, Slice};
use crate::lanes::Lanes;
use crate::record::Moment;

/// Maximum number of groups of tracks.
const MOST_GROUPS: usize = 4096;
/// Maximum number of tracks on which the commands of one queue run side by side.
const MOST_RUNNING: usize = 1024;
/// Maximum number of tracks for anything else that happens side by side.
const MOST_LANES: usize = 64;

/// The process whose timeline this is.
#[derive(Clone, Debug)]
pub struct Process {
    /// The system's id of the process.
    pub id: u32,
    /// The program's name.
    pub name: String,
    /// A random number, by which the tracks of several processes differ in one file.
    pub salt: u64,
}

/// A track.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Track {
    /// The track above this one; `None` for the process.
    pub parent: Option<u64>,
    /// The name.
    pub name: String,
    /// The kind.
    pub kind: TrackKind,
}

/// The kind of a track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrackKind {
    /// The process.
    Process {
        /// The system's id.
        id: u32,
    },
    /// A thread.
    Thread {
        /// The system's id of the process.
        process: u32,
        /// The system's id.
        id: u32,
    },
    /// Anything else.
    Plain,
}

/// Tracks by their numbers.
#[derive(Debug, Default)]
pub struct Tracks {
    // Their numbers count from the first.
    tracks: Vec<Track>,
    first: u64,
}

impl Tracks {
    /// Returns a track.
    #[must_use]
    pub fn get(&self, track: u64) -> Option<&Track> {
        self.placed(track).map(|(_, track)| track)
    }

    /// Returns the place of a track among all, and the track.
    pub(crate) fn placed(&self, track: u64) -> Option<(usize, &Track)> {
        let place = track.checked_sub(self.first)? as usize;
        Some((place, self.tracks.get(place)?))
    }

    /// Returns the number of the process's track.
    #[must_use]
    pub fn process(&self) -> u64 {
        self.first
    }

    fn add(&mut self, track: Track) -> u64 {
        // Below 2^24 tracks, numbers of different processes differ if their salts do.
        let number = self.first + self.tracks.len() as u64;
        self.tracks.push(track);
        number
    }
}

/// What a group of tracks shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    Thread(u32),
    Wire(u32),
    Transfers(u32),
    Builds(u32),
    Queue(u64),
    Waiting(u64),
    /// Queues beyond the limit.
    FurtherQueues,
    /// Threads beyond the limit.
    FurtherThreads,
}

#[derive(Debug)]
struct Group {
    lanes: Lanes,
    tracks: Vec<u64>,
}

/// All groups; see the module.
#[derive(Debug)]
pub(super) struct Groups {
    process: u32,
    tracks: Tracks,
    groups: FxHashMap<Key, Group>,
    nodes: FxHashMap<u32, u64>,
    threads: FxHashMap<u32, String>,
    // The track above a queue's, and the name.
    queues: FxHashMap<u64, (u64, String)>,
}

impl Groups {
    pub(super) fn new(process: Process) -> Groups {
        let mut tracks = Tracks {
            tracks: Vec::new(),
            first: (process.salt << 24) | 1,
        };
        tracks.add(Track {
            parent: None,
            name: process.name,
            kind: TrackKind::Process { id: process.id },
        });
        Groups {
            process: process.id,
            tracks,
            groups: FxHashMap::default(),
            nodes: FxHashMap::default(),
            threads: FxHashMap::default(),
            queues: FxHashMap::default(),
        }
    }

    pub(super) fn tracks(&self) -> &Tracks {
        &self.tracks
    }

    /// Names a node. Only the first name counts.
    pub(super) fn name_node(&mut self, node: u32, name: String) {
        self.node(node, || name);
    }

    /// Names a queue.
    pub(super) fn name_queue(&mut self, queue: u64, node: u32, device: &str) {
        if self.queues.len() < MOST_GROUPS {
            let name = format!("queue {}: {device}", self.queues.len() + 1);
            let node = self.node(node, || format!("node {node}"));
            self.queues.insert(queue, (node, name));
        }
    }

    /// Names a thread.
    pub(super) fn name_thread(&mut self, thread: u32, name: String) {
        if self.threads.len() < MOST_GROUPS {
            self.threads.insert(thread, name);
        }
    }

    fn node(&mut self, node: u32, name: impl FnOnce() -> String) -> u64 {
        let process = self.tracks.process();
        let tracks = &mut self.tracks;
        *self.nodes.entry(node).or_insert_with(|| {
            tracks.add(Track {
                parent: Some(process),
                name: name(),
                kind: TrackKind::Plain,
            })
        })
    }

    /// Returns the track of the group on which a slice has its place; `None` if all are taken.
    pub(super) fn place(&mut self, key: Key, [begin, end]: [Moment; 2]) -> Option<u64> {
        let key = self.known(key);
        let group = self.groups.entry(key).or_insert_with(|| Group {
            lanes: Lanes::new(match key {
                Key::Queue(_) | Key::FurtherQueues => MOST_RUNNING,
                _ => MOST_LANES,
            }),
            tracks: Vec::new(),
        });
        let lane = group.lanes.place(begin, end)?;
        Some(self.track(key, lane))
    }

    /// Returns an instant on the first track of the group.
    pub(super) fn instant(
        &mut self,
        key: Key,
        at: Moment,
        name: Cow<'static, str>,
        category: Category,
    ) -> Slice {
        let key = self.known(key);
        self.groups.entry(key).or_insert_with(|| Group {
            lanes: Lanes::new(MOST_LANES),
            tracks: Vec::new(),
        });
        Slice::new(self.track(key, 0), at, None, name, category)
    }

    fn known(&self, key: Key) -> Key {
        match key {
            Key::Queue(queue) | Key::Waiting(queue) if !self.queues.contains_key(&queue) => {
                Key::FurtherQueues
            }
            Key::Thread(thread) if !self.threads.contains_key(&thread) => Key::FurtherThreads,
            key => key,
        }
    }

    fn track(&mut self, key: Key, lane: usize) -> u64 {
        loop {
            let group = self.groups.get(&key);
            let there = group.map_or(0, |group| group.tracks.len());
            if let Some(track) = group.and_then(|group| group.tracks.get(lane)) {
                return *track;
            }
            let track = self.describe(key, there);
            let track = self.tracks.add(track);
            if let Some(group) = self.groups.get_mut(&key) {
                group.tracks.push(track);
            }
        }
    }

    // Tracks of one group have the same name, by which viewers put them together.
    fn describe(&mut self, key: Key, lane: usize) -> Track {
        let process = self.tracks.process();
        let mut of_node = |node: u32, name: &str| {
            (
                self.node(node, || format!("node {node}")),
                name.to_owned(),
                TrackKind::Plain,
            )
        };
        let (parent, name, kind) = match key {
            Key::Wire(node) => of_node(node, "wire"),
            Key::Transfers(node) => of_node(node, "transfers"),
            Key::Builds(node) => of_node(node, "builds"),
            Key::Thread(thread) => {
                let name = self.threads.get(&thread).cloned().unwrap_or_default();
                let kind = match lane {
                    0 => TrackKind::Thread {
                        process: self.process,
                        id: thread,
                    },
                    _ => TrackKind::Plain,
                };
                (process, name, kind)
            }
            Key::Queue(queue) | Key::Waiting(queue) => {
                let (node, name) = self.queues.get(&queue).cloned().unwrap_or_default();
                let is_waiting = matches!(key, Key::Waiting(_));
                let name = if is_waiting { name + ": waiting" } else { name };
                (node, name, TrackKind::Plain)
            }
            Key::FurtherQueues => (process, "further queues".to_owned(), TrackKind::Plain),
            Key::FurtherThreads => (process, "further threads".to_owned(), TrackKind::Plain),
        };
        Track {
            parent: Some(parent),
            name,
            kind,
        }
    }
}
