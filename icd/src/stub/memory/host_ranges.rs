//! Which host memory incomplete commands will still write, or will read only at their end.
//!
//! A read or map writes the application's memory some time after its enqueue. A later write from the same
//! memory must not read the bytes before that (as in a halo exchange). Specification: `ptr` is undefined
//! until the read completes.
//!
//! A write that meets such memory waits for a *gate*. A gate is an internal user event that opens when the
//! last of those commands has ended, successfully or not. So the worker asks for the bytes only then. A
//! failed read does not fail a write that the application did not make dependent on it. A bulk read into
//! such memory waits, too: bytes use several connections, and those of the earlier read must not arrive
//! last. A small read needs no gate: its bytes come inside a completion, which waits for the earlier one.
//!
//! In the table, a gate replaces the commands that it waits for. So a later command meets few entries,
//! however many commands are incomplete. It may wait for more than necessary, if it meets only a part of
//! what the gate stands for.
//!
//! Invariant: no dependency is added that can block for ever. A read that may wait for a user event of the
//! application delays only commands that the application put behind it. That order may come from an
//! in-order queue, a barrier or a wait list, directly or not. So a gate replaces nothing while the
//! application may hold back one of its commands.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Weak};

use causeway_proto::id::EventId;
use causeway_proto::region::Region;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};

use crate::error::ClResult;
use crate::stub::memory::range_table::RangeTable;
use crate::stub::{Context, Event, Queue, next_id, queue::precedence};

/// A gate with more ranges is entered with one range, from its first to its last byte.
const MOST_RANGES: usize = 8;

/// The process-wide table of memory that incomplete commands will write.
#[derive(Debug, Default)]
pub struct HostRanges {
    // Number of writers. At 0, the table need not be locked.
    count: AtomicUsize,
    state: Mutex<HostRangesState>,
}

#[derive(Debug, Default)]
struct HostRangesState {
    // The ranges of the writers; each value is the writer's key.
    table: RangeTable<u64>,
    writers: FxHashMap<u64, Writer>,
}

/// A command that will write memory, or a gate that replaces several.
#[derive(Debug)]
struct Writer {
    event: Weak<Event>,
    // The ranges in the table; empty once a gate has replaced them.
    ranges: Ranges,
    // References that keep these gates closed.
    gates: Vec<Arc<Gate>>,
    // Dropped when the command has ended.
    followers: Vec<Arc<dyn Follower>>,
}

type Ranges = SmallVec<[Region; 1]>;

/// An object whose drop does some work, when all commands that keep it have ended.
pub(in crate::stub) trait Follower: std::fmt::Debug + Send + Sync {}

/// Opens its event when dropped, that is, when no command that it waits for is left.
#[derive(Debug)]
struct Gate {
    event: Arc<Event>,
    // The key of the gate's own entry in the table.
    key: u64,
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.event.open();
    }
}

/// Announces that a command will write host memory, or will read it only at its end. The announcement ends when this is
/// dropped.
#[derive(Debug)]
pub(in crate::stub) struct HostWrite {
    key: u64,
    addresses: Region,
}

impl HostRangesState {
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

    // Puts the gate into the table in place of these writers.
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

// Merges ranges into few regions with the same bytes. Beyond the limit, the gaps between them are included.
fn joined(mut ranges: Vec<Region>) -> Ranges {
    ranges.sort_by_key(|range| (range.offset(), range.end()));
    let mut few = Ranges::new();
    for range in ranges {
        match few.last_mut() {
            Some(last) if *last == range => {}
            Some(last) if last.is_linear() && range.is_linear() && range.offset() <= last.end() => {
                *last = hull(*last, range);
            }
            // The table holds one entry of a gate for each first byte.
            Some(last) if last.offset() == range.offset() => *last = hull(*last, range),
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
    // Cannot fail: both ends are valid, so their hull is, too.
    Region::linear(start, length).unwrap_or(one)
}

impl HostRanges {
    /// Returns the process-wide table.
    #[must_use]
    pub fn of_process() -> &'static HostRanges {
        static RANGES: LazyLock<HostRanges> = LazyLock::new(HostRanges::default);
        &RANGES
    }

    /// Records that `command` will write these addresses (a region counted from 0), until the [`HostWrite`]
    /// with this key is dropped.
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

    // Opens the gates and drops the followers of a writer that has ended. Both may send, so the lock is not
    // held. A gate may itself keep other gates closed, and so on. This is a loop, because thousands may
    // wait for one another.
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

    /// Returns the gate for a command that is about to be enqueued on `queue`. The command must wait for it
    /// before it reads or writes these addresses. The gate opens when the commands before have written
    /// them. `None` if there are no such commands.
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

    /// Like [`HostRanges::gate`], for a command of a distributed context that is being sent. The commands
    /// that the application put before it have been sent already. Those that are still held back belong to
    /// other contexts, and are ignored. Takes no lock of a queue.
    ///
    /// # Errors
    /// Those of [`HostRanges::gate`].
    pub(in crate::stub) fn gate_of_sent(
        &self,
        addresses: &Region,
        context: &Arc<Context>,
    ) -> ClResult<Option<Arc<Event>>> {
        self.gate_behind(addresses, context, HashSet::clear)
    }

    // `retain` removes the gated commands that do not come before this one.
    fn gate_behind(
        &self,
        addresses: &Region,
        context: &Arc<Context>,
        retain: impl FnOnce(&mut HashSet<EventId>),
    ) -> ClResult<Option<Arc<Event>>> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Ok(None);
        }
        // Dropped after the lock is released, because dropping an event may send.
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
        // Made without the lock, because this sends. The writers are looked up again below: some may have
        // ended, and new gates may have replaced some.
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
        // All writers may have ended meanwhile; then nobody else would open the gate.
        if let Some(gate) = Arc::into_inner(gate) {
            let key = gate.key;
            drop(gate);
            self.end(key);
        }
        Ok(Some(event))
    }

    /// Returns the commands that were sent and will write these bytes. When they have ended, the bytes are
    /// in place.
    pub(in crate::stub) fn writers(&self, addresses: &Region) -> Vec<Weak<Event>> {
        let mut writers = Vec::new();
        if self.count.load(Ordering::Acquire) > 0 {
            let mut state = self.state.lock();
            state.meet(addresses, |_, writer| writers.push(writer.event.clone()));
        }
        writers.retain(|writer| writer.upgrade().is_some_and(|writer| !writer.is_gated()));
        writers
    }

    /// Keeps `follower` alive until all current writers of these bytes have ended.
    pub(in crate::stub) fn follow(
        &self,
        addresses: &Region,
        follower: &Arc<impl Follower + 'static>,
    ) {
        if self.count.load(Ordering::Acquire) > 0 {
            let mut state = self.state.lock();
            state.meet(addresses, |_, writer| {
                writer.followers.push(follower.clone());
            });
        }
    }
}

impl HostWrite {
    /// Makes the announcement of a command that will write these addresses (a region counted from 0).
    #[must_use]
    pub(in crate::stub) fn new(addresses: Region) -> HostWrite {
        HostWrite {
            key: next_id(),
            addresses,
        }
    }

    /// Returns a function that enters the announcement for its command, just before the command is sent.
    /// The [`HostWrite`] itself goes into the command's finisher, which runs later.
    pub(in crate::stub) fn beginning(&self) -> impl FnOnce(&Arc<Event>) + use<> {
        let (key, addresses) = (self.key, self.addresses);
        move |command| HostRanges::of_process().begin(key, addresses, command)
    }
}

impl Drop for HostWrite {
    fn drop(&mut self) {
        HostRanges::of_process().end(self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stub::memory::range_table::overlap;
    use proptest::prelude::*;

    fn rect() -> impl Strategy<Value = Region> {
        (0u64..40, 1u64..5, 1u64..4, 0u64..6).prop_map(|(offset, length, rows, gap)| {
            let pitch = length + gap;
            Region::rect(offset, [length, rows, 1], pitch, pitch * rows).unwrap()
        })
    }

    proptest! {
        // Two rectangles of one first byte and of different pitches were one entry once, so a write did not wait
        // for the second.
        #[test]
        fn a_gate_stands_for_every_byte_and_leaves_the_table_whole(
            replaced in prop::collection::vec(rect(), 1..20),
            asked in rect(),
        ) {
            let mut table = RangeTable::default();
            let ranges = joined(replaced.clone());
            for range in &ranges {
                table.insert(1, *range, ());
            }
            if replaced.iter().any(|range| overlap(range, &asked)) {
                prop_assert!(table.overlapping(&asked).next().is_some());
            }
            for range in &ranges {
                prop_assert!(table.remove(1, range).is_some());
            }
        }
    }
}
