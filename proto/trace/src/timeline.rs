//! Makes the slices of a timeline from records: pure.
//!
//! | track | slices |
//! |---|---|
//! | each thread | calls, and the waits inside of them |
//! | each node: wire | batches of commands, from the write until the node has applied them |
//! | each node: transfers | bulk bytes between client and node, and transfers between nodes |
//! | each node: builds | builds, compilations and links of programs |
//! | each queue | commands, from start to end |
//! | each queue: waiting | the same commands, queued and then submitted |
//!
//! Arrows lead from a call to the commands that it enqueued, and from a command to those that wait for it and
//! were enqueued before its end.
//!
//! Invariants: every command that was enqueued and has ended is drawn once, with the times of its record. Slices
//! of one track neither overlap nor touch, except for those inside of others. What is kept is bounded by the
//! commands in flight and by the constants here.

mod tracks;

use std::borrow::Cow;
use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use tracks::{Groups, Key};
pub use tracks::{Process, Track, TrackKind, Tracks};

use crate::record::{Batch, Call, Ended, Enqueued, Moment, Moved, Record, TracePlace};

/// Maximum number of arrows of one kind at a slice.
const MOST_ARROWS: usize = 256;

/// The kind of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Category {
    /// A call of OpenCL.
    Call,
    /// A wait inside of a call.
    Wait,
    /// A command of the application.
    Command,
    /// A command that waits for its start.
    Waiting,
    /// A batch of commands on a connection.
    Wire,
    /// Bytes between machines.
    Transfer,
    /// A build of a program.
    Build,
    /// What the file says of itself.
    Trace,
}

impl Category {
    /// The name in the file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Category::Call => "call",
            Category::Wait => "wait",
            Category::Command => "command",
            Category::Waiting => "waiting",
            Category::Wire => "wire",
            Category::Transfer => "transfer",
            Category::Build => "build",
            Category::Trace => "trace",
        }
    }
}

/// A value beside a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number.
    Number(u64),
    /// A number that may be negative.
    Signed(i64),
    /// A text.
    Text(Cow<'static, str>),
}

/// A slice of a track, or an instant if it has no end.
#[derive(Clone, Debug)]
pub struct Slice {
    /// The track.
    pub track: u64,
    /// The begin.
    pub begin: Moment,
    /// The end; `None` for an instant.
    pub end: Option<Moment>,
    /// The name.
    pub name: Cow<'static, str>,
    /// The kind.
    pub category: Category,
    /// Further values.
    pub values: Vec<(&'static str, Value)>,
    /// Arrows that begin here.
    pub arrows: Vec<u64>,
    /// Arrows that end here.
    pub arrow_ends: Vec<u64>,
    /// Slices inside of this one, in order, that do not overlap.
    pub inner: Vec<Slice>,
}

/// A program's timeline; see the module.
#[derive(Debug)]
pub struct Timeline {
    salt: u64,
    groups: Groups,
    open: FxHashMap<u64, Open>,
    calls: FxHashMap<u32, InCall>,
    wires: FxHashMap<u32, Wire>,
}

/// A command that has not ended.
#[derive(Debug)]
struct Open {
    place: TracePlace,
    name: Cow<'static, str>,
    bytes: Option<u64>,
    is_of_call: bool,
    // Commands before this one, and behind it.
    before: Vec<u64>,
    behind: Vec<u64>,
    moved: Option<Moved>,
}

/// The batches of a session on their way to a node.
#[derive(Debug, Default)]
struct Wire {
    /// Those that are not applied, as far as this is known.
    written: VecDeque<Batch>,
    /// The last command of the batches that were reported.
    last: u64,
    /// The last command that the node has applied, and when it said so.
    applied: (u64, Moment),
}

/// What a thread has done in a call that has not ended.
#[derive(Debug, Default)]
struct InCall {
    enqueued: Vec<u64>,
    waits: Vec<[Moment; 2]>,
}

impl Timeline {
    /// Makes the timeline of a process.
    #[must_use]
    pub fn new(process: Process) -> Timeline {
        Timeline {
            salt: process.salt,
            groups: Groups::new(process),
            open: FxHashMap::default(),
            calls: FxHashMap::default(),
            wires: FxHashMap::default(),
        }
    }

    /// Returns the tracks of all slices so far.
    #[must_use]
    pub fn tracks(&self) -> &Tracks {
        self.groups.tracks()
    }

    /// Takes the next record. Adds to `drawn` the slices that are complete now.
    pub fn take(&mut self, record: Record, drawn: &mut Vec<Slice>) {
        match record {
            Record::Node { node, name } => self.groups.name_node(node, name),
            Record::Queue {
                queue,
                node,
                device,
            } => self.groups.name_queue(queue, node, &device),
            Record::Thread { thread, name } => self.groups.name_thread(thread, name),
            Record::Enqueued(enqueued) => self.enqueued(enqueued),
            Record::Discarded { event } => drop(self.open.remove(&event)),
            Record::Ended(ended) => self.ended(ended, drawn),
            Record::Call(call) => drawn.push(self.call(call)),
            Record::Wait { thread, span } => {
                self.calls.entry(thread).or_default().waits.push(span);
            }
            Record::Batch(batch) => self.written(batch, drawn),
            Record::Applied { node, number, at } => self.applied(node, number, at, drawn),
            Record::Moved(moved) => self.moved(moved, drawn),
            Record::Build { node, name, span } => {
                drawn.push(self.slice(Key::Builds(node), span, name.into(), Category::Build));
            }
        }
    }

    /// Handles that records are missing: forgets what they might have ended. Returns the number of commands
    /// that will not be drawn for this reason.
    pub fn lose(&mut self) -> u64 {
        self.calls.clear();
        self.wires.clear();
        let lost = self.open.len() as u64;
        self.open.clear();
        lost
    }

    /// Adds to `drawn` the batches of which no report says that the node has applied them. They end with their write.
    ///
    /// A program may end before the report about its last commands has come.
    pub fn finish(&mut self, drawn: &mut Vec<Slice>) {
        let wires = std::mem::take(&mut self.wires);
        for batch in wires.into_values().flat_map(|wire| wire.written) {
            let [_, written] = batch.span;
            drawn.push(self.batch(batch, written));
        }
    }

    /// Returns the number of commands that have been enqueued and have not ended.
    #[must_use]
    pub fn open_commands(&self) -> u64 {
        self.open.len() as u64
    }

    fn enqueued(&mut self, enqueued: Enqueued) {
        let Enqueued {
            event,
            place,
            name,
            bytes,
            waits,
            thread,
        } = enqueued;
        let mut before = Vec::new();
        for wait in waits {
            if let Some(earlier) = self.open.get_mut(&wait)
                && earlier.behind.len() < MOST_ARROWS
                && before.len() < MOST_ARROWS
            {
                earlier.behind.push(event);
                before.push(wait);
            }
        }
        if let Some(thread) = thread {
            self.calls.entry(thread).or_default().enqueued.push(event);
        }
        let open = Open {
            place,
            name,
            bytes,
            is_of_call: thread.is_some(),
            before,
            behind: Vec::new(),
            moved: None,
        };
        self.open.insert(event, open);
    }

    fn ended(&mut self, ended: Ended, drawn: &mut Vec<Slice>) {
        // User events and markers of the library's own are no commands here.
        let Some(open) = self.open.remove(&ended.event) else {
            return;
        };
        if let Some(moved) = open.moved {
            drawn.push(self.transfer(moved));
        }
        let (key, category) = match open.place {
            TracePlace::Queue(queue) => (Key::Queue(queue), Category::Command),
            TracePlace::Transfers(node) => (Key::Transfers(node), Category::Transfer),
        };
        let mut slice = match ended.times {
            Some([queued, submitted, started, end, completed]) => {
                if let TracePlace::Queue(queue) = open.place {
                    self.waiting(
                        queue,
                        open.name.clone(),
                        [queued, submitted, started],
                        drawn,
                    );
                }
                let mut slice = self.slice(key, [started, end], open.name.clone(), category);
                let times = [("queued", queued), ("submitted", submitted)];
                let times = times.into_iter().chain([("completed", completed)]);
                slice.values.extend(times.map(number));
                slice
            }
            None => self
                .groups
                .instant(key, ended.at, open.name.clone(), category),
        };
        slice.values.push(number(("event", ended.event)));
        slice
            .values
            .extend(open.bytes.map(|bytes| number(("bytes", bytes))));
        if ended.status != 0 {
            slice.values.push(signed("status", ended.status));
        }
        if open.is_of_call {
            slice.arrow_ends.push(arrow(self.salt, ended.event, 0));
        }
        let from = open.before.iter();
        (slice.arrow_ends).extend(from.map(|before| arrow(self.salt, *before, ended.event)));
        let to = open.behind.iter();
        (slice.arrows).extend(to.map(|behind| arrow(self.salt, ended.event, *behind)));
        drawn.push(slice);
    }

    // Draws the time before a command's start. If too many commands wait at the same time, some are left out. The
    // times stand beside the command, too.
    fn waiting(
        &mut self,
        queue: u64,
        name: Cow<'static, str>,
        [queued, submitted, started]: [Moment; 3],
        drawn: &mut Vec<Slice>,
    ) {
        let Some(track) = self.groups.place(Key::Waiting(queue), [queued, started]) else {
            return;
        };
        let part = |name, begin, end| {
            Slice::new(
                track,
                begin,
                Some(end),
                Cow::Borrowed(name),
                Category::Waiting,
            )
        };
        let mut slice = Slice::new(track, queued, Some(started), name, Category::Waiting);
        slice.inner.push(part("queued", queued, submitted));
        slice.inner.push(part("submitted", submitted, started));
        drawn.push(slice);
    }

    fn call(&mut self, call: Call) -> Slice {
        let InCall { enqueued, waits } = self.calls.remove(&call.thread).unwrap_or_default();
        let key = Key::Thread(call.thread);
        let mut slice = self.slice(key, call.span, call.name.into(), Category::Call);
        let arrows = enqueued.into_iter().take(MOST_ARROWS);
        slice.arrows = arrows.map(|event| arrow(self.salt, event, 0)).collect();
        if slice.end.is_some() {
            let inner = waits.into_iter().map(|[begin, end]| {
                let name = Cow::Borrowed("waits for the node");
                Slice::new(slice.track, begin, Some(end), name, Category::Wait)
            });
            slice.inner = inner.collect();
        }
        if call.status != 0 {
            slice.values.push(signed("status", call.status));
        }
        slice
    }

    fn written(&mut self, batch: Batch, drawn: &mut Vec<Slice>) {
        let wire = self.wires.entry(batch.node).or_default();
        // A session begins to count anew. The batches of the one before are not applied any more.
        if batch.first <= wire.last {
            *wire = Wire::default();
        }
        wire.last = batch.last;
        let (number, at) = wire.applied;
        if batch.last <= number {
            // The node's report was faster than that of the thread that wrote the batch.
            drawn.push(self.batch(batch, at));
        } else {
            wire.written.push_back(batch);
        }
    }

    fn applied(&mut self, node: u32, number: u64, at: Moment, drawn: &mut Vec<Slice>) {
        let wire = self.wires.entry(node).or_default();
        if number > wire.applied.0 {
            wire.applied = (number, at);
        }
        let is_applied = |batch: &&Batch| batch.last <= number;
        let applied = wire.written.iter().take_while(is_applied).count();
        let applied: Vec<Batch> = wire.written.drain(..applied).collect();
        for batch in applied {
            drawn.push(self.batch(batch, at));
        }
    }

    fn batch(&mut self, batch: Batch, at: Moment) -> Slice {
        let [begin, written] = batch.span;
        let (key, at) = (Key::Wire(batch.node), at.max(begin));
        let mut slice = self.slice(key, [begin, at], "batch".into(), Category::Wire);
        let values = [
            ("commands", batch.last - batch.first + 1),
            ("bytes", batch.bytes),
        ];
        slice.values.extend(values.map(number));
        if slice.end.is_some() {
            // The report may arrive before the write has returned.
            let end = Some(written.clamp(begin, at));
            let sent = Slice::new(slice.track, begin, end, "sent".into(), Category::Wire);
            slice.inner.push(sent);
        }
        slice
    }

    fn moved(&mut self, moved: Moved, drawn: &mut Vec<Slice>) {
        let Some(open) = self.open.get_mut(&moved.event) else {
            // The command's end was faster than this report.
            let transfer = self.transfer(moved);
            return drawn.push(transfer);
        };
        let sum = open.moved.get_or_insert(Moved { bytes: 0, ..moved });
        sum.bytes += moved.bytes;
        sum.span[0] = sum.span[0].min(moved.span[0]);
        sum.span[1] = sum.span[1].max(moved.span[1]);
    }

    fn transfer(&mut self, moved: Moved) -> Slice {
        let name = match moved.is_out {
            true => "client to node",
            false => "node to client",
        };
        let key = Key::Transfers(moved.node);
        let mut slice = self.slice(key, moved.span, name.into(), Category::Transfer);
        let values = [("bytes", moved.bytes), ("event", moved.event)];
        slice.values.extend(values.map(number));
        slice
    }

    // A slice on a free track of the group; an instant if there is none.
    fn slice(
        &mut self,
        key: Key,
        [begin, end]: [Moment; 2],
        name: Cow<'static, str>,
        category: Category,
    ) -> Slice {
        let end = end.max(begin);
        match self.groups.place(key, [begin, end]) {
            Some(track) => Slice::new(track, begin, Some(end), name, category),
            None => {
                let mut instant = self.groups.instant(key, begin, name, category);
                instant.values.push(number(("end", end)));
                instant
            }
        }
    }
}

impl Slice {
    /// Makes a slice without anything beside it.
    #[must_use]
    pub fn new(
        track: u64,
        begin: Moment,
        end: Option<Moment>,
        name: Cow<'static, str>,
        category: Category,
    ) -> Slice {
        Slice {
            track,
            begin,
            end,
            name,
            category,
            values: Vec::new(),
            arrows: Vec::new(),
            arrow_ends: Vec::new(),
            inner: Vec::new(),
        }
    }
}

fn number((name, value): (&'static str, u64)) -> (&'static str, Value) {
    (name, Value::Number(value))
}

fn signed(name: &'static str, value: i32) -> (&'static str, Value) {
    (name, Value::Signed(value.into()))
}

// The id of the arrow between two commands, or from a call to a command (`to` is 0). Different processes have
// different ids, because a file may contain several.
fn arrow(salt: u64, from: u64, to: u64) -> u64 {
    mixed(mixed(salt ^ from) ^ to)
}

// The finaliser of SplitMix64, a bijection.
fn mixed(of: u64) -> u64 {
    let of = (of ^ (of >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let of = (of ^ (of >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    of ^ (of >> 31)
}

#[cfg(test)]
mod tests;
