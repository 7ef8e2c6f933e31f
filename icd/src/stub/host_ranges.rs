//! Which host memory incomplete commands will still write.
//!
//! A read or map writes the application's memory some time after its enqueue; a later write from the
//! same memory must not take its bytes before that (the ordinary halo exchange). Specification: the
//! contents of `ptr` are undefined until the read completes.
//!
//! A write that meets such memory waits at a *gate*: a user event of our own that opens when the last
//! of those commands has ended, however it ended. So the worker asks for the bytes only then, and the
//! failure of a read is not made a failure of a write that the application did not tie to it.
//!
//! So does a read into such memory, unless its bytes come inside a completion that waits for the earlier
//! one's: bytes travel on several connections, and those of the earlier must not land last.
//!
//! A gate stands in the table for the commands that it waits for: a later command waits for the gate in their
//! place. So the next command looks at few entries, however many are under way. It may wait for more than it
//! must, where what it meets is only a part of what the gate stands for.
//!
//! Invariant: no edge that can block for ever is invented. A read that may wait for the application
//! itself (an unset user event) holds back only what the application put behind it: by an
//! in-order queue, a barrier or a wait list, directly or through others. So a gate stands for nothing else
//! while the application may hold one of its commands back.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Weak};

use causeway_proto::id::EventId;
use causeway_proto::region::Region;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};

use super::range_table::RangeTable;
use super::{Context, Event, Queue, next_id, precedence};
use crate::error::ClResult;

/// A gate with more ranges stands in the table from its first byte to its last.
const MOST_RANGES: usize = 8;

/// The process's table of such ranges.
#[derive(Debug, Default)]
pub struct HostRanges {
    // How many there are: without any, the table is not looked at.
    count: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    // The writers, by key.
    table: RangeTable<u64>,
    writers: FxHashMap<u64, Writer>,
}

/// A command that will write memory, or a gate in the place of several.
#[derive(Debug)]
struct Writer {
    event: Weak<Event>,
    // Where it stands in the table: nowhere any more, once a gate does so for it.
    ranges: Ranges,
    // Held to keep them closed.
    gates: Vec<Arc<Gate>>,
    // Let go of when the command has ended.
    followers: Vec<Arc<dyn Follower>>,
}

type Ranges = SmallVec<[Region; 1]>;

/// Something that is to happen when commands have ended: by its drop.
pub(super) trait Follower: std::fmt::Debug + Send + Sync {}

/// Opens when it is dropped: when no command that it stands for is left.
#[derive(Debug)]
struct Gate {
    event: Arc<Event>,
    // As a writer.
    key: u64,
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.event.open();
    }
}

/// A command's word that it will write host memory; ends with [`HostWrite::end`], or when dropped.
#[derive(Debug)]
pub(super) struct HostWrite {
    key: u64,
    addresses: Region,
}

impl State {
    fn add(&mut self, key: u64, event: &Arc<Event>, ranges: Ranges) {
        for range in &ranges {
            self.table.insert(key, *range, key);
        }
        let writer = Writer {
            event: Arc::downgrade(event),
            ranges,
            gates: Vec::new(),
            followers: Vec::new(),
        };
        self.writers.insert(key, writer);
    }

    fn remove(&mut self, key: u64) -> Option<Writer> {
        let writer = self.writers.remove(&key)?;
        self.leave(key, &writer.ranges);
        Some(writer)
    }

    fn leave(&mut self, key: u64, ranges: &Ranges) {
        for range in ranges {
            self.table.remove(key, range);
        }
    }

    fn meet(&mut self, addresses: &Region, mut each: impl FnMut(u64, &mut Writer)) {
        let mut keys: Vec<u64> = self
            .table
            .overlapping(addresses)
            .map(|met| *met.1)
            .collect();
        keys.sort_unstable();
        keys.dedup();
        for key in keys {
            if let Some(writer) = self.writers.get_mut(&key) {
                each(key, writer);
            }
        }
    }

    // The gate takes the place of these in the table.
    fn replace(&mut self, replaced: Vec<u64>, gate: &Gate) {
        let mut ranges = Vec::new();
        for key in replaced {
            if let Some(writer) = self.writers.get_mut(&key) {
                let of_writer = std::mem::take(&mut writer.ranges);
                self.leave(key, &of_writer);
                ranges.extend(of_writer);
            }
        }
        self.add(gate.key, &gate.event, joined(ranges));
    }
}

// The same bytes in few regions; beyond that, all that lies between too.
fn joined(mut ranges: Vec<Region>) -> Ranges {
    ranges.sort_by_key(|range| (range.offset(), range.end()));
    let mut few = Ranges::new();
    for range in ranges {
        match few.last_mut() {
            Some(last) if *last == range => {}
            Some(last) if last.is_linear() && range.is_linear() && range.offset() <= last.end() => {
                *last = hull(*last, range);
            }
            _ => few.push(range),
        }
    }
    if few.len() > MOST_RANGES {
        few = few.into_iter().reduce(hull).into_iter().collect();
    }
    few
}

fn hull(one: Region, other: Region) -> Region {
    let start = one.offset().min(other.offset());
    let length = one.end().max(other.end()) - start;
    // Both end below the largest number, so this does.
    Region::linear(start, length).unwrap_or(one)
}

impl HostRanges {
    /// The process's table.
    #[must_use]
    pub fn of_process() -> &'static HostRanges {
        static RANGES: LazyLock<HostRanges> = LazyLock::new(HostRanges::default);
        &RANGES
    }

    /// `command` will write these addresses (a region counted from 0) until the [`HostWrite`] with this
    /// key is dropped.
    fn begin(&self, key: u64, addresses: Region, command: &Arc<Event>) {
        self.count.fetch_add(1, Ordering::AcqRel);
        self.state.lock().add(key, command, smallvec![addresses]);
    }

    fn end(&self, key: u64) {
        self.remove(key)
            .into_iter()
            .for_each(|writer| self.let_go(writer));
    }

    fn remove(&self, key: u64) -> Option<Writer> {
        let writer = self.state.lock().remove(key)?;
        self.count.fetch_sub(1, Ordering::AcqRel);
        Some(writer)
    }

    // Opens gates, which sends, and lets followers act: not under the lock. A gate may be the last that
    // another waits for, and so on: a loop, since thousands may stand behind each other.
    fn let_go(&self, ended: Writer) {
        let mut left = vec![ended];
        while let Some(Writer {
            gates, followers, ..
        }) = left.pop()
        {
            for gate in gates.into_iter().filter_map(Arc::into_inner) {
                let key = gate.key;
                drop(gate);
                left.extend(self.remove(key));
            }
            drop(followers);
        }
    }

    /// What a command about to be enqueued on `queue` with this wait list must wait for before it takes the
    /// bytes at these addresses or brings others: an event that completes once the commands that write them
    /// before it have ended.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the session of the queue is lost.
    pub fn gate(
        &self,
        addresses: &Region,
        queue: &Arc<Queue>,
        wait: &[Arc<Event>],
    ) -> ClResult<Option<Arc<Event>>> {
        self.gate_behind(addresses, queue.context(), |gated| {
            precedence::retain_before(gated, queue, wait);
        })
    }

    /// The same for a command of a distributed context that is being sent. What the application puts before
    /// it has been sent, so what is still held back is of other contexts, and not waited for. Takes no lock
    /// of a queue.
    ///
    /// # Errors
    /// As [`HostRanges::gate`].
    pub(super) fn gate_of_sent(
        &self,
        addresses: &Region,
        context: &Arc<Context>,
    ) -> ClResult<Option<Arc<Event>>> {
        self.gate_behind(addresses, context, HashSet::clear)
    }

    // `retain` leaves those of the commands which the application may hold back that come before.
    fn gate_behind(
        &self,
        addresses: &Region,
        context: &Arc<Context>,
        retain: impl FnOnce(&mut HashSet<EventId>),
    ) -> ClResult<Option<Arc<Event>>> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Ok(None);
        }
        // Kept until the lock is free: letting go of an event sends.
        let mut events = Vec::new();
        self.state.lock().meet(addresses, |_, writer| {
            events.extend(writer.event.upgrade());
        });
        let (gated, free): (Vec<_>, Vec<_>) = events.iter().partition(|event| event.is_gated());
        let mut gated: HashSet<EventId> = gated.into_iter().map(|event| event.id()).collect();
        retain(&mut gated);
        if free.is_empty() && gated.is_empty() {
            return Ok(None);
        }
        // Made without the lock, since this sends. Who ended meanwhile need not be waited for; who came
        // meanwhile stands perhaps for one that was met.
        let event = Event::gate(context, !gated.is_empty())?;
        let gate = Arc::new(Gate {
            event: event.clone(),
            key: next_id(),
        });
        {
            let mut state = self.state.lock();
            let mut replaced = Vec::new();
            state.meet(addresses, |key, writer| {
                let Some(event) = writer.event.upgrade() else {
                    return;
                };
                if gated.contains(&event.id()) || !event.is_gated() {
                    writer.gates.push(gate.clone());
                    replaced.push(key);
                }
                events.push(event);
            });
            if gated.is_empty() && !replaced.is_empty() {
                state.replace(replaced, &gate);
                self.count.fetch_add(1, Ordering::AcqRel);
            }
        }
        // All may have ended by now.
        if let Some(gate) = Arc::into_inner(gate) {
            let key = gate.key;
            drop(gate);
            self.end(key);
        }
        Ok(Some(event))
    }

    /// What has been sent and will write these bytes: when it has ended, it has written them.
    pub(super) fn writers(&self, addresses: &Region) -> Vec<Weak<Event>> {
        let mut writers = Vec::new();
        if self.count.load(Ordering::Acquire) > 0 {
            let mut state = self.state.lock();
            state.meet(addresses, |_, writer| writers.push(writer.event.clone()));
        }
        writers.retain(|writer| writer.upgrade().is_some_and(|writer| !writer.is_gated()));
        writers
    }

    /// Whatever writes these bytes now keeps the follower until its end.
    pub(super) fn follow(&self, addresses: &Region, follower: &Arc<impl Follower + 'static>) {
        if self.count.load(Ordering::Acquire) > 0 {
            let mut state = self.state.lock();
            state.meet(addresses, |_, writer| {
                writer.followers.push(follower.clone());
            });
        }
    }
}

impl HostWrite {
    /// For a command that will write these addresses (a region counted from 0).
    #[must_use]
    pub(super) fn new(addresses: Region) -> HostWrite {
        HostWrite {
            key: next_id(),
            addresses,
        }
    }

    /// What [`HostWrite::new`] made has this command, which is about to be sent. The value itself goes
    /// into the command's finisher, which runs later.
    pub(super) fn beginning(&self) -> impl FnOnce(&Arc<Event>) + use<> {
        let (key, addresses) = (self.key, self.addresses);
        move |command| HostRanges::of_process().begin(key, addresses, command)
    }
}

impl Drop for HostWrite {
    fn drop(&mut self) {
        HostRanges::of_process().end(self.key);
    }
}
