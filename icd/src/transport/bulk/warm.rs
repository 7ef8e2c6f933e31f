//! Memory that stays in the process between two uses.
//!
//! The kernel clears each page of fresh memory when it is first written, which takes longer than the copy that goes there.
//! So the log's memory is kept when a checkpoint frees it, and used again. Not here: what is in the memory.
//!
//! Invariant: memory in use and idle memory together exceed `limit` only if memory in use does. Idle memory is freed when
//! none was needed for [`QUIET`].
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::memory::HostRegion;

/// Without a use for so long, idle memory is freed.
const QUIET: Duration = Duration::from_secs(10);
/// The smallest block, in bytes.
const LEAST: usize = 4096;

/// The memory; see the module.
#[derive(Default)]
pub(in crate::transport) struct WarmMemory {
    limit: usize,
    used: usize,
    idle: BTreeMap<usize, Vec<Vec<u8>>>,
    idle_bytes: usize,
    was_needed: bool,
    quiet_since: Duration,
    // Blocks that are to be freed without a lock.
    freed: Vec<Vec<u8>>,
}

/// The size of a new block for `length` bytes: one of eight sizes for each power of two, so that blocks fit again.
fn size_of_block(length: usize) -> usize {
    let step = (length.max(LEAST).next_power_of_two() / 16).max(LEAST / 8);
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

    /// Number of bytes in use.
    pub(in crate::transport) fn used(&self) -> usize {
        self.used
    }

    /// Takes memory for `length` bytes, which may hold old bytes. `None` if the system has not so much.
    pub(in crate::transport) fn take(&mut self, length: u64) -> Option<HostRegion> {
        self.was_needed = true;
        let size = size_of_block(usize::try_from(length).ok()?);
        // A larger block would waste the rest of its pages.
        let fitting = self.idle.range(size..=size + size / 4).next();
        let region = match fitting.map(|(size, _)| *size) {
            Some(size) => HostRegion::owned(self.take_idle(size)?, length)?,
            None => {
                self.free_until(self.limit.saturating_sub(self.used.saturating_add(size)));
                let fresh = HostRegion::zeroed(size as u64)?;
                HostRegion::owned(fresh.into_owned()?, length)?
            }
        };
        self.used += region.owned_length();
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

    /// Frees idle memory if none was needed for long.
    pub(in crate::transport) fn look(&mut self, now: Duration) {
        if std::mem::take(&mut self.was_needed) {
            self.quiet_since = now;
        } else if now.saturating_sub(self.quiet_since) >= QUIET {
            self.free_until(0);
        }
    }

    /// Blocks that are to be freed. The caller drops them without locks, because that takes time for large ones.
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
    fn memory_is_used_again_and_freed_after_a_quiet_time() {
        let mut memory = WarmMemory::new(LIMIT);
        let first = memory.take(100_000).unwrap();
        let (address, size) = (first.address(), first.owned_length());
        assert_eq!(memory.used(), size);
        memory.look(seconds(1));
        memory.give(Arc::new(first));
        assert_eq!((memory.used(), memory.idle_bytes), (0, size));
        // Too small for this one, and too large for the next.
        let (large, small) = (memory.take(200_000).unwrap(), memory.take(50_000).unwrap());
        assert!(large.address() != address && small.address() != address);
        let again = memory.take(99_000).unwrap();
        assert_eq!((again.address(), again.length()), (address, 99_000));
        memory.give(Arc::new(again));
        memory.look(seconds(2));
        memory.look(seconds(11));
        assert_eq!(memory.idle_bytes, size);
        memory.look(seconds(12));
        assert_eq!(memory.idle_bytes, 0);
        assert_eq!(memory.freed().len(), 1);
        assert!(memory.freed().is_empty());
    }

    #[test]
    fn memory_that_somebody_else_has_is_not_used_again() {
        let mut memory = WarmMemory::new(LIMIT);
        let shared = Arc::new(memory.take(5000).unwrap());
        memory.give(Arc::clone(&shared));
        assert_eq!((memory.used(), memory.idle_bytes), (0, 0));
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
