//! The bytes of bulk writes, as far as they were sent: the part of the log that is large.
//!
//! Lanes copy bytes here just before they send them, each lane those of its chunk, at the same time. The lock of
//! [`SentBytes`] is not held meanwhile. Not here: when bytes are sent again.
//!
//! Invariant: a write of which the worker may have all bytes [is whole](Copied::is_whole), until this is closed.
#![forbid(unsafe_code)]

use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use causeway_proto::id::EventId;
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};

use super::bulk::memory::HostRegion;
use super::bulk::warm::WarmMemory;

/// The bytes; see the module.
pub(super) struct SentBytes {
    of: FxHashMap<EventId, Arc<Copied>>,
    // Of all writes in `of`.
    bytes: u64,
    memory: WarmMemory,
    is_closed: bool,
    // The writes before the cut of a checkpoint that is not whole yet.
    marked: Vec<EventId>,
}

/// The bytes of a write.
pub(super) struct Copied {
    bytes: Arc<HostRegion>,
    copied: AtomicU64,
    /// Where the copied parts begin, by their offset, with their lengths.
    parts: Mutex<FxHashMap<u64, u64>>,
}

impl Copied {
    /// Copies bytes of the write's `source`. Does nothing if all were copied: then a write is sent again.
    pub(super) fn copy(&self, source: &HostRegion, offset: u64, length: u64) {
        if self.is_whole() {
            return;
        }
        self.bytes.copy_part(source, offset, length);
        // A late lane of a dead worker may copy a part that a lane of the next worker copies, too. It counts once.
        let earlier = self.parts.lock().insert(offset, length);
        let more = length.saturating_sub(earlier.unwrap_or(0));
        self.copied.fetch_add(more, Ordering::AcqRel);
    }

    fn is_whole(&self) -> bool {
        self.copied.load(Ordering::Acquire) == self.bytes.length()
    }
}

impl SentBytes {
    /// No bytes yet. About `limit` of them are going to be kept.
    pub(super) fn new(limit: usize) -> SentBytes {
        SentBytes {
            of: FxHashMap::default(),
            bytes: 0,
            memory: WarmMemory::new(limit),
            is_closed: false,
            marked: Vec::new(),
        }
    }

    /// No bytes, and none will be kept.
    pub(super) fn closed() -> SentBytes {
        SentBytes {
            is_closed: true,
            ..SentBytes::new(0)
        }
    }

    /// Where to copy the bytes of a write with `length` bytes. `None` if there is no memory, or if this is closed.
    pub(super) fn place(&mut self, event: EventId, length: u64) -> Option<Arc<Copied>> {
        if self.is_closed {
            return None;
        }
        Some(match self.of.entry(event) {
            Entry::Occupied(copy) => Arc::clone(copy.get()),
            Entry::Vacant(place) => {
                let bytes = Arc::new(self.memory.take(length)?);
                self.bytes += length;
                Arc::clone(place.insert(Arc::new(Copied {
                    bytes,
                    copied: AtomicU64::new(0),
                    parts: Mutex::default(),
                })))
            }
        })
    }

    /// All bytes of a write, if the worker may have them.
    pub(super) fn whole(&self, event: EventId) -> Option<Arc<HostRegion>> {
        let copy = self.of.get(&event).filter(|copy| copy.is_whole())?;
        Some(Arc::clone(&copy.bytes))
    }

    /// Number of the writes' bytes. Their memory may be a little more.
    pub(super) fn bytes(&self) -> usize {
        usize::try_from(self.bytes).unwrap_or(usize::MAX)
    }

    /// Keeps these writes only.
    pub(super) fn keep(&mut self, is_kept: &dyn Fn(EventId) -> bool) {
        self.keep_if(|event, _| is_kept(event));
    }

    /// Handles that a checkpoint is copied, which is not whole yet. It covers all writes but these.
    pub(super) fn mark(&mut self, is_behind: &dyn Fn(EventId) -> bool) {
        let events = self.of.keys().copied();
        self.marked = events.filter(|event| !is_behind(*event)).collect();
    }

    /// Handles that the marked checkpoint is whole: forgets the writes that it covers.
    pub(super) fn cut_at_mark(&mut self) {
        let marked: FxHashSet<_> = std::mem::take(&mut self.marked).into_iter().collect();
        self.keep_if(|event, _| !marked.contains(&event));
    }

    /// Handles that the marked checkpoint does not become whole.
    pub(super) fn forget_mark(&mut self) {
        self.marked = Vec::new();
    }

    /// Forgets writes of which the worker has not had all bytes, because another one gets them from the start. A lane that
    /// still copies does so to memory that nobody reads.
    pub(super) fn keep_whole(&mut self) {
        self.keep_if(|_, copy| copy.is_whole());
    }

    /// Frees memory that was not needed for some time.
    pub(super) fn look(&mut self, now: Duration) {
        self.memory.look(now);
    }

    /// Memory that is to be freed. The caller drops it without the lock of this.
    #[must_use]
    pub(super) fn freed(&mut self) -> Vec<Vec<u8>> {
        self.memory.freed()
    }

    fn keep_if(&mut self, keeps: impl Fn(EventId, &Copied) -> bool) {
        let gone = (self.of).extract_if(|event, copy| !keeps(*event, copy));
        for (_, copy) in gone {
            self.bytes -= copy.bytes.length();
            // A lane may still copy.
            let bytes = match Arc::try_unwrap(copy) {
                Ok(copy) => copy.bytes,
                Err(copy) => Arc::clone(&copy.bytes),
            };
            self.memory.give(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENT: EventId = EventId(1);
    const LENGTH: u64 = 10_000;

    fn source() -> HostRegion {
        let bytes = (0..LENGTH).map(|at| (at % 251) as u8).collect();
        HostRegion::owned(bytes, LENGTH).unwrap()
    }

    #[test]
    fn a_write_is_whole_when_all_lanes_have_copied_their_bytes() {
        let (mut sent, source) = (SentBytes::new(1 << 20), source());
        let lanes = [(); 2].map(|()| sent.place(EVENT, LENGTH).unwrap());
        lanes[0].copy(&source, 6000, 4000);
        assert!(sent.whole(EVENT).is_none());
        lanes[1].copy(&source, 0, 6000);
        assert_eq!(sent.whole(EVENT).unwrap().copy_out(), source.copy_out());
        // Bytes that are sent once more may be others by now.
        lanes[1].copy(&HostRegion::zeroed(LENGTH).unwrap(), 0, 6000);
        assert_eq!(sent.whole(EVENT).unwrap().copy_out(), source.copy_out());
    }

    #[test]
    fn what_a_dead_workers_lane_copies_late_does_not_count() {
        let (mut sent, source) = (SentBytes::new(1 << 20), source());
        let late = sent.place(EVENT, LENGTH).unwrap();
        late.copy(&source, 0, 6000);
        sent.keep_whole();
        assert_eq!(sent.bytes(), 0);
        let again = sent.place(EVENT, LENGTH).unwrap();
        late.copy(&source, 6000, 4000);
        again.copy(&source, 6000, 4000);
        assert!(sent.whole(EVENT).is_none());
        again.copy(&source, 0, 6000);
        assert_eq!(sent.whole(EVENT).unwrap().copy_out(), source.copy_out());
    }

    #[test]
    fn a_part_that_is_copied_twice_counts_once() {
        let (mut sent, source) = (SentBytes::new(1 << 20), source());
        let lanes = [(); 2].map(|()| sent.place(EVENT, LENGTH).unwrap());
        for lane in &lanes {
            lane.copy(&source, 0, 5000);
        }
        assert!(sent.whole(EVENT).is_none());
        lanes[0].copy(&source, 5000, 5000);
        assert_eq!(sent.whole(EVENT).unwrap().copy_out(), source.copy_out());
    }

    #[test]
    fn bytes_are_counted_without_what_their_memory_is_larger() {
        let mut sent = SentBytes::new(1 << 20);
        let copy = sent.place(EVENT, LENGTH).unwrap();
        assert!(copy.bytes.owned_length() > LENGTH as usize);
        assert_eq!(sent.bytes(), LENGTH as usize);
        sent.place(EVENT, LENGTH).unwrap();
        assert_eq!(sent.bytes(), LENGTH as usize);
        sent.keep(&|_| false);
        assert_eq!(sent.bytes(), 0);
    }

    #[test]
    fn what_a_lane_sends_behind_the_end_of_the_protection_is_not_kept() {
        let mut sent = SentBytes::closed();
        assert!(sent.place(EVENT, LENGTH).is_none());
        assert_eq!(sent.bytes(), 0);
    }

    #[test]
    fn a_marked_checkpoint_frees_its_writes_when_it_is_whole() {
        let (mut sent, source) = (SentBytes::new(1 << 20), source());
        let [before, open, behind] = [1, 2, 3].map(EventId);
        for event in [before, open] {
            sent.place(event, LENGTH).unwrap().copy(&source, 0, LENGTH);
        }
        sent.mark(&|event| event == open);
        sent.forget_mark();
        sent.cut_at_mark();
        assert_eq!(sent.bytes(), 2 * LENGTH as usize);
        sent.mark(&|event| event == open);
        sent.place(behind, LENGTH).unwrap().copy(&source, 0, LENGTH);
        sent.cut_at_mark();
        assert!(sent.whole(before).is_none());
        assert!(sent.whole(open).is_some() && sent.whole(behind).is_some());
        assert_eq!(sent.bytes(), 2 * LENGTH as usize);
    }

    #[test]
    fn a_checkpoint_frees_memory_for_the_next_write() {
        let (mut sent, source) = (SentBytes::new(1 << 20), source());
        sent.place(EVENT, LENGTH).unwrap().copy(&source, 0, LENGTH);
        let address = sent.whole(EVENT).unwrap().address();
        sent.keep(&|_| false);
        assert!(sent.bytes() == 0 && sent.whole(EVENT).is_none());
        let next = sent.place(EventId(2), LENGTH).unwrap();
        assert_eq!(next.bytes.address(), address);
        assert!(sent.whole(EventId(2)).is_none());
    }
}
