//! The batches of commands that were written and not yet applied. After a break they are written again.
//!
//! Pure: no socket, no clock, no lock. Invariants: the kept batches are consecutive, and each contains a command
//! that the worker has not reported as applied. Small batches that follow each other share one buffer. Buffers
//! go back to a pool, whose warmest buffer is used first, so steady traffic allocates nothing.
//!
//! If another worker may execute the session's commands again, batches are *retained* when they are applied.
#![forbid(unsafe_code)]

use std::collections::VecDeque;

use causeway_proto::frame::PREFIX;

/// With more bytes than this, no further batch is written until the worker has applied some.
pub(super) const MOST: usize = 64 << 20;
/// Batches share a buffer up to this size.
const SHARED: usize = 64 << 10;
/// The pool keeps buffers up to this sum of their capacities. A flood of writes inside of commands fills one for each
/// 64 KiB, and the worker reports what it has applied after each MiB.
const POOLED: usize = 4 << 20;
/// Capacity of a new buffer: a batch that is written as soon as it is large enough, so that no buffer has to grow.
const CAPACITY: usize = 128 << 10;

/// A written batch: room for the frame's prefix, then encoded commands, without the batch's number.
#[derive(Debug)]
pub struct Batch {
    /// Number of the first command.
    pub first: u64,
    /// Number of the last command.
    pub last: u64,
    /// See [`Batch`].
    pub bytes: Vec<u8>,
}

/// The worker claims a position that is not possible.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Impossible {
    /// More commands than were written.
    #[error("the node claims to have applied {claimed} commands, but only {written} were written")]
    Unwritten {
        /// The number that the worker named.
        claimed: u64,
        /// The number of the last written command.
        written: u64,
    },
    /// The position of a worker that does not have the session.
    #[error(
        "the node has put another worker into the place of one that had not parked the whole session"
    )]
    NotRestored,
    /// Another worker has taken the place of one that has died, and the commands cannot be executed again.
    #[error(
        "the node's process of the session died, and its commands cannot be executed again: {0}"
    )]
    NotAgain(String),
    /// A lane through shared memory ended, and with it bytes of transfers.
    #[error(
        "the node's process of the session has closed the memory that it shared with the program"
    )]
    SharedLaneEnded,
}

/// The kept batches; see the module.
#[derive(Debug, Default)]
pub struct KeptBatches {
    batches: VecDeque<Batch>,
    bytes: usize,
    applied: u64,
    written: u64,
    // Batches that were applied; `None` if they are not retained.
    retained: Option<VecDeque<Batch>>,
    retained_bytes: usize,
    // The number of the last command before a checkpoint that is not whole yet. No batch has commands on both sides.
    mark: u64,
    pool: Vec<Vec<u8>>,
    // Sum of the capacities in the pool.
    pooled: usize,
}

impl KeptBatches {
    /// Keeps a written batch.
    pub fn keep(&mut self, batch: Batch) {
        self.written = batch.last;
        // The report that the batch is applied may have come before its writer got here.
        if batch.last <= self.applied {
            return self.retire(batch);
        }
        self.bytes += batch.bytes.len() - PREFIX;
        if let Some(buffer) = append(&mut self.batches, batch) {
            self.reuse(buffer);
        }
    }

    /// Retains what is applied from now on.
    pub fn retain(&mut self) {
        self.retained = Some(VecDeque::new());
    }

    /// Retains nothing any more.
    pub fn let_go(&mut self) {
        self.retained = None;
        self.retained_bytes = 0;
    }

    /// Forgets what is retained, because a checkpoint covers it. Returns the number of the last command. `None` if the
    /// worker has not applied it.
    pub fn cut(&mut self) -> Option<u64> {
        if !self.batches.is_empty() {
            return None;
        }
        if let Some(retained) = &mut self.retained {
            retained.clear();
        }
        self.retained_bytes = 0;
        Some(self.written)
    }

    /// Marks the cut of a checkpoint that is not whole yet. Returns the number of the last command before it. `None` if the
    /// worker has not applied it.
    pub fn mark(&mut self) -> Option<u64> {
        if !self.batches.is_empty() {
            return None;
        }
        self.mark = self.written;
        Some(self.mark)
    }

    /// Forgets what is retained before the mark `number`, because its checkpoint is whole.
    pub fn cut_at(&mut self, number: u64) {
        let Some(retained) = &mut self.retained else {
            return;
        };
        while let Some(oldest) = retained.front()
            && oldest.last <= number
            && let Some(oldest) = retained.pop_front()
        {
            self.retained_bytes -= oldest.bytes.len() - PREFIX;
        }
    }

    /// Number of retained bytes.
    #[must_use]
    pub fn retained_bytes(&self) -> usize {
        self.retained_bytes
    }

    /// The batches that the present worker got: the retained ones, and those that it has not applied, as far as is known.
    pub fn written(&self) -> impl Iterator<Item = &Batch> {
        self.retained.iter().flatten().chain(&self.batches)
    }

    /// Takes all batches for another worker, which has applied `position` commands.
    #[must_use]
    pub fn take_all(&mut self, position: u64) -> VecDeque<Batch> {
        let mut all = self
            .retained
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default();
        all.append(&mut self.batches);
        (self.bytes, self.retained_bytes) = (0, 0);
        (self.applied, self.written) = (position, position);
        all
    }

    fn retire(&mut self, batch: Batch) {
        let Some(retained) = &mut self.retained else {
            return self.reuse(batch.bytes);
        };
        self.retained_bytes += batch.bytes.len() - PREFIX;
        let is_behind_mark = retained.back().is_some_and(|of| of.last == self.mark);
        let buffer = match is_behind_mark {
            true => {
                retained.push_back(batch);
                None
            }
            false => append(retained, batch),
        };
        match buffer {
            Some(buffer) => self.reuse(buffer),
            // The one before gets no further commands.
            None => {
                if let Some(before) = retained.len().checked_sub(2) {
                    retained[before].bytes.shrink_to_fit();
                }
            }
        }
    }

    /// An empty buffer for the next batch.
    pub(super) fn buffer(&mut self) -> Vec<u8> {
        if let Some(buffer) = self.pool.pop() {
            self.pooled -= buffer.capacity();
            return buffer;
        }
        let mut empty = Vec::with_capacity(CAPACITY);
        empty.resize(PREFIX, 0);
        empty
    }

    /// Forgets what the worker has applied.
    pub fn applied(&mut self, number: u64) {
        self.applied = self.applied.max(number);
        while let Some(oldest) = self.batches.front()
            && oldest.last <= self.applied
            && let Some(oldest) = self.batches.pop_front()
        {
            self.bytes -= oldest.bytes.len() - PREFIX;
            self.retire(oldest);
        }
    }

    /// Number of the commands that the worker is known to have applied.
    pub(super) fn known_applied(&self) -> u64 {
        self.applied
    }

    /// Whether the next batch must wait.
    pub(super) fn is_full(&self) -> bool {
        self.bytes > MOST
    }

    /// Number of kept bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Forgets what a worker has received that has applied `position` commands.
    ///
    /// # Errors
    /// [`Impossible`] if so many commands were never written.
    pub fn skip_to(&mut self, position: u64) -> Result<(), Impossible> {
        if position > self.written {
            return Err(Impossible::Unwritten {
                claimed: position,
                written: self.written,
            });
        }
        // The position may be older than a report that came over the connection before.
        self.applied(position);
        Ok(())
    }

    /// Takes all batches, to write them again. They must be [put back](KeptBatches::put_back) in their order.
    #[must_use]
    pub fn take(&mut self) -> VecDeque<Batch> {
        std::mem::take(&mut self.batches)
    }

    /// Puts a batch back behind those that were put back before. The batches that were taken count all the time.
    pub fn put_back(&mut self, batch: Batch) {
        self.batches.push_back(batch);
        self.applied(self.applied);
    }

    fn reuse(&mut self, mut buffer: Vec<u8>) {
        if self.pooled + buffer.capacity() <= POOLED {
            buffer.truncate(PREFIX);
            self.pooled += buffer.capacity();
            self.pool.push(buffer);
        }
    }
}

// Appends a batch, or its commands to the last one. Returns the buffer if it is not needed any more.
fn append(batches: &mut VecDeque<Batch>, batch: Batch) -> Option<Vec<u8>> {
    if let Some(newest) = batches.back_mut()
        && newest.bytes.len() + batch.bytes.len() - PREFIX <= SHARED
    {
        newest.bytes.extend_from_slice(&batch.bytes[PREFIX..]);
        newest.last = batch.last;
        return Some(batch.bytes);
    }
    batches.push_back(batch);
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn batch(first: u64, last: u64, size: usize) -> Batch {
        let bytes = vec![7; PREFIX + size];
        Batch { first, last, bytes }
    }

    #[test]
    fn the_pool_retains_little_after_a_flood_and_is_used() {
        let mut kept = KeptBatches::default();
        for number in 1..=64 {
            kept.keep(batch(number, number, 1 << 20));
        }
        kept.applied(64);
        let retained: usize = kept.pool.iter().map(Vec::capacity).sum();
        assert!(retained > POOLED / 2 && retained <= POOLED, "{retained}");
        assert_eq!(kept.pooled, retained);
        while !kept.pool.is_empty() {
            assert_eq!(kept.buffer().len(), PREFIX);
        }
        assert_eq!(kept.pooled, 0);
    }

    #[test]
    fn a_batch_that_was_applied_before_it_is_kept_is_forgotten() {
        let mut kept = KeptBatches::default();
        kept.applied(3);
        kept.keep(batch(1, 3, 10));
        assert_eq!(kept.bytes(), 0);
        kept.skip_to(3).unwrap();
        assert!(kept.take().is_empty());
    }

    #[test]
    fn positions_that_cannot_be_are_refused() {
        let mut kept = KeptBatches::default();
        kept.keep(batch(1, 3, 10));
        kept.applied(2);
        assert!(kept.skip_to(4).is_err());
        kept.skip_to(2).unwrap();
        assert_eq!(kept.take().len(), 1);
    }

    proptest! {
        // The batches behind a mark are those that were kept behind it, whatever their sizes, and none before it is left.
        #[test]
        fn a_mark_parts_what_is_retained(
            before in prop::collection::vec((1u64..9, 1usize..50_000), 0..9),
            behind in prop::collection::vec((1u64..9, 1usize..50_000), 0..9),
        ) {
            let mut kept = KeptBatches::default();
            kept.retain();
            let mut written = 0;
            let mut keep = |kept: &mut KeptBatches, (count, size): (u64, usize)| {
                kept.keep(batch(written + 1, written + count, size));
                written += count;
                kept.applied(written);
            };
            before.iter().for_each(|of| keep(&mut kept, *of));
            let mark = kept.mark().unwrap();
            prop_assert_eq!(mark, before.iter().map(|of| of.0).sum::<u64>());
            behind.iter().for_each(|of| keep(&mut kept, *of));
            kept.cut_at(mark);
            prop_assert_eq!(kept.retained_bytes(), behind.iter().map(|of| of.1).sum::<usize>());
            let first = kept.written().next().map(|of| of.first);
            prop_assert_eq!(first, (!behind.is_empty()).then_some(mark + 1));
        }

        // Batches of random sizes, reports and breaks: a worker that skips what it has receives every command once,
        // in order, and nothing is kept that it has reported.
        #[test]
        fn a_worker_gets_every_command_once(steps in prop::collection::vec((0usize..3, 1u64..40, 1usize..50_000), 1..200)) {
            let mut kept = KeptBatches::default();
            let (mut written, mut arrived, mut reported) = (0u64, 0u64, 0u64);
            for (kind, count, size) in steps {
                match kind {
                    0 => {
                        kept.keep(batch(written + 1, written + count, size));
                        written += count;
                    }
                    1 => {
                        arrived = (arrived + count).min(written);
                        reported = arrived;
                        kept.applied(reported);
                    }
                    _ => {
                        // A break: the worker may have received more than it has reported.
                        arrived = (arrived + count / 4).min(written);
                        kept.skip_to(arrived).unwrap();
                        let again = kept.take();
                        let mut next = arrived + 1;
                        for batch in again {
                            prop_assert!(batch.first <= next && batch.last >= next);
                            next = batch.last + 1;
                            kept.put_back(batch);
                        }
                        prop_assert_eq!(next, written + 1);
                        reported = arrived;
                        arrived = written;
                    }
                }
                prop_assert!(kept.batches.iter().all(|batch| batch.last > reported));
                let bytes: usize = kept.batches.iter().map(|batch| batch.bytes.len() - PREFIX).sum();
                prop_assert_eq!(bytes, kept.bytes());
            }
        }
    }
}
