//! Memory that stays in the process between two uses.
//!
//! The kernel clears each page of fresh memory when it is first written, which takes longer than the copy that goes there.
//! So the log's memory is kept when a checkpoint frees it, and used again. Not here: what is in the memory.
//!
//! Invariant: memory in use and idle memory together exceed `limit` only if memory in use does. After each [`PERIOD`], they
//! are not more than the memory that was in use at a time in that period.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::memory::HostRegion;

/// Idle memory that was not in use at any time of such a period is freed at its end.
const PERIOD: Duration = Duration::from_secs(10);
/// The smallest block, in bytes.
const LEAST: usize = 4096;
/// The most that the size of a block is rounded up, in bytes.
const LARGEST_STEP: usize = 4 << 20;

/// The memory; see the module.
#[derive(Default)]
pub(in crate::transport) struct WarmMemory {
    limit: usize,
    used: usize,
    idle: BTreeMap<usize, Vec<Vec<u8>>>,
    idle_bytes: usize,
    // The most that was in use at a time since the period began.
    most_used: usize,
    since: Duration,
    // Blocks that are to be freed without a lock.
    freed: Vec<Vec<u8>>,
}

/// The size of a new block for `length` bytes, so that blocks fit again: one of eight sizes for each power of two, up to
/// 64 MiB.
fn size_of_block(length: usize) -> usize {
    let step = length.max(LEAST).next_power_of_two() / 16;
    let step = step.clamp(LEAST / 8, LARGEST_STEP);
    length.max(LEAST).next_multiple_of(step)
}

impl WarmMemory {
    /// No memory yet.
    pub(in crate::transport) fn new(limit: usize) -> WarmMemory {
        WarmMemory {
            limit,
            ..WarmMemory::default()
        }
    }

    /// Takes memory for `length` bytes, which may hold old bytes. `None` if the system has not so much.
    pub(in crate::transport) fn take(&mut self, length: u64) -> Option<HostRegion> {
        let size = size_of_block(usize::try_from(length).ok()?);
        // A larger block would waste the rest of its pages.
        let fitting = self.idle.range(size..=size + size / 4).next();
        let region = match fitting.map(|(size, _)| *size) {
            Some(size) => HostRegion::owned(self.take_idle(size)?, length)?,
            None => {
                self.free_until(self.limit.saturating_sub(self.used.saturating_add(size)));
                let fresh = HostRegion::zeroed(size as u64)?;
                fresh.prefer_large_pages();
                HostRegion::owned(fresh.into_owned()?, length)?
            }
        };
        self.used += region.owned_length();
        self.most_used = self.most_used.max(self.used);
        Some(region)
    }

    /// Handles that memory is not in use any more. If somebody still has it, it is freed when they let it go.
    pub(in crate::transport) fn give(&mut self, region: Arc<HostRegion>) {
        let size = region.owned_length();
        self.used -= size;
        let block = Arc::try_unwrap(region)
            .ok()
            .and_then(HostRegion::into_owned);
        let Some(block) = block else { return };
        if self.used + self.idle_bytes + size <= self.limit {
            self.idle_bytes += size;
            self.idle.entry(size).or_default().push(block);
        } else {
            self.freed.push(block);
        }
    }

    /// At the end of a period, frees idle memory that was not needed.
    pub(in crate::transport) fn look(&mut self, now: Duration) {
        if now.saturating_sub(self.since) >= PERIOD {
            self.free_until(self.most_used - self.used);
            (self.since, self.most_used) = (now, self.used);
        }
    }

    /// Blocks that are to be freed. The caller drops them without the lock of this, because that takes time for large
    /// ones.
    #[must_use]
    pub(in crate::transport) fn freed(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.freed)
    }

    // Frees the largest idle blocks until at most `most` bytes are idle.
    fn free_until(&mut self, most: usize) {
        while self.idle_bytes > most
            && let Some(size) = self.idle.keys().next_back().copied()
            && let Some(block) = self.take_idle(size)
        {
            self.freed.push(block);
        }
    }

    fn take_idle(&mut self, size: usize) -> Option<Vec<u8>> {
        let blocks = self.idle.get_mut(&size)?;
        let block = blocks.pop();
        if blocks.is_empty() {
            self.idle.remove(&size);
        }
        self.idle_bytes -= block.as_ref().map_or(0, Vec::len);
        block
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMIT: usize = 1 << 20;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn memory_is_used_again_and_freed_after_a_period_without_need() {
        let mut memory = WarmMemory::new(LIMIT);
        let first = memory.take(100_000).unwrap();
        let (address, size) = (first.address(), first.owned_length());
        assert_eq!(memory.used, size);
        memory.look(seconds(1));
        memory.give(Arc::new(first));
        assert_eq!((memory.used, memory.idle_bytes), (0, size));
        // Too small for this one, and too large for the next.
        let (large, small) = (memory.take(200_000).unwrap(), memory.take(50_000).unwrap());
        assert!(large.address() != address && small.address() != address);
        let again = memory.take(99_000).unwrap();
        assert_eq!((again.address(), again.length()), (address, 99_000));
        let all = memory.used;
        for region in [large, small, again] {
            memory.give(Arc::new(region));
        }
        for moment in [10, 19] {
            memory.look(seconds(moment));
            assert_eq!(memory.idle_bytes, all);
        }
        memory.look(seconds(20));
        assert_eq!(memory.idle_bytes, 0);
        assert_eq!(memory.freed().len(), 3);
        assert!(memory.freed().is_empty());
    }

    #[test]
    fn small_needs_keep_no_more_idle_memory_than_they_use() {
        let mut memory = WarmMemory::new(LIMIT);
        let all: Vec<_> = (0..8)
            .filter_map(|_| memory.take(LIMIT as u64 / 8))
            .collect();
        for region in all {
            memory.give(Arc::new(region));
        }
        memory.look(PERIOD);
        assert_eq!(memory.idle_bytes, LIMIT);
        for period in 2..4 {
            let small = memory.take(33 << 10).unwrap();
            memory.give(Arc::new(small));
            memory.look(PERIOD * period);
            assert!(memory.idle_bytes <= 36 << 10, "{}", memory.idle_bytes);
        }
    }

    #[test]
    fn much_memory_is_rounded_up_by_little() {
        for length in [1, 5000, 100_000, 1153 << 20] {
            let more = size_of_block(length) - length;
            assert!(
                more <= (length / 8).max(LEAST) && more < LARGEST_STEP,
                "{length}"
            );
        }
    }

    #[test]
    fn memory_that_somebody_else_has_is_not_used_again() {
        let mut memory = WarmMemory::new(LIMIT);
        let shared = Arc::new(memory.take(5000).unwrap());
        memory.give(Arc::clone(&shared));
        assert_eq!((memory.used, memory.idle_bytes), (0, 0));
        assert_ne!(memory.take(5000).unwrap().address(), shared.address());
    }

    proptest! {
        #[test]
        fn idle_memory_keeps_the_limit(
            steps in prop::collection::vec((0..300_000u64, any::<prop::sample::Index>(), any::<bool>()), 1..80),
        ) {
            let mut memory = WarmMemory::new(LIMIT);
            let mut held: Vec<Arc<HostRegion>> = Vec::new();
            for (length, place, takes) in steps {
                if takes || held.is_empty() {
                    let region = memory.take(length).unwrap();
                    prop_assert_eq!(region.length(), length);
                    held.push(Arc::new(region));
                } else {
                    memory.give(held.swap_remove(place.index(held.len())));
                }
                let used: usize = held.iter().map(|region| region.owned_length()).sum();
                let idle: usize = memory.idle.values().flatten().map(Vec::len).sum();
                prop_assert_eq!((memory.used, memory.idle_bytes), (used, idle));
                prop_assert!(used + idle <= LIMIT.max(used), "{} {}", used, idle);
                // No two hold the same memory.
                let mut spans: Vec<_> = held.iter().map(|of| (of.address(), of.owned_length())).collect();
                spans.sort_unstable();
                prop_assert!(spans.windows(2).all(|two| two[0].0 + two[0].1 <= two[1].0));
            }
        }
    }
}
