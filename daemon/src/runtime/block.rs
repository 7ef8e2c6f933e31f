//! Reusable host memory for single transfers. Reuse pays because fresh pages cost as much as copying into
//! them.
//!
//! The memory is not pinned. Invariant: a block has exactly one holder. The total size of spare blocks is
//! bounded, and so is the size of those from [`Blocks::take_within`].
#![forbid(unsafe_code)]

use std::sync::Arc;

use parking_lot::Mutex;

/// Maximum total size of spare blocks, in bytes.
const MOST_SPARE: usize = 4 << 20;

/// A pool of blocks.
#[derive(Debug, Default)]
pub struct Blocks(Arc<Mutex<Pool>>);

#[derive(Debug, Default)]
struct Pool {
    spare: Vec<Vec<u8>>,
    // Total size of blocks from `take_within` that have not been returned, in bytes.
    bounded: usize,
}

/// A block of memory. Its initial content is arbitrary old data of the same session.
#[derive(Debug)]
pub struct Block {
    bytes: Vec<u8>,
    length: usize,
    // Bytes that this block counts against the bound of `take_within`.
    counted: usize,
    home: Arc<Mutex<Pool>>,
}

impl Blocks {
    /// Takes a block of `length` bytes.
    #[must_use]
    pub fn take(&self, length: usize) -> Block {
        let found = self.0.lock().find(length);
        self.block(found, length, 0)
    }

    /// Takes a block of `length` bytes that counts against a bound. Returns `None` if the blocks taken in
    /// this way would together exceed `most` bytes.
    #[must_use]
    pub fn take_within(&self, most: usize, length: usize) -> Option<Block> {
        let mut pool = self.0.lock();
        if pool.bounded + length > most {
            return None;
        }
        pool.bounded += length;
        let found = pool.find(length);
        drop(pool);
        Some(self.block(found, length, length))
    }

    #[cfg(test)]
    fn bounded(&self) -> usize {
        self.0.lock().bounded
    }

    fn block(&self, found: Option<Vec<u8>>, length: usize, counted: usize) -> Block {
        Block {
            bytes: found.unwrap_or_else(|| vec![0; length]),
            length,
            counted,
            home: Arc::clone(&self.0),
        }
    }
}

impl Pool {
    fn find(&mut self, length: usize) -> Option<Vec<u8>> {
        // Only blocks of up to twice the length are used: a larger one would then be missing for a large
        // transfer.
        let fits = |bytes: &Vec<u8>| (length..=2 * length).contains(&bytes.len());
        let place = self.spare.iter().position(fits)?;
        Some(self.spare.swap_remove(place))
    }
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl AsMut<[u8]> for Block {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.length]
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let mut pool = self.home.lock();
        pool.bounded -= self.counted;
        let kept: usize = pool.spare.iter().map(Vec::len).sum();
        if kept + self.bytes.len() <= MOST_SPARE {
            pool.spare.push(std::mem::take(&mut self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_used_again_for_their_size_and_do_not_pile_up() {
        let blocks = Blocks::default();
        drop(blocks.take(1 << 20));
        let small = blocks.take(64 << 10);
        let large = blocks.take(700 << 10);
        assert_eq!((small.bytes.len(), large.bytes.len()), (64 << 10, 1 << 20));
        assert_eq!(large.as_ref().len(), 700 << 10);
        drop((small, large));
        let many: Vec<_> = (0..10).map(|_| blocks.take(1 << 20)).collect();
        drop(many);
        let kept: usize = blocks.0.lock().spare.iter().map(Vec::len).sum();
        assert!(kept <= MOST_SPARE);
    }
    #[test]
    fn what_is_taken_within_a_bound_counts_until_it_is_back() {
        let blocks = Blocks::default();
        let all: Vec<_> = (0..4).map(|_| blocks.take_within(100, 25)).collect();
        assert!(all.iter().all(Option::is_some));
        assert!(blocks.take_within(100, 1).is_none());
        assert_eq!(blocks.bounded(), 100);
        let other = blocks.take(50);
        drop(all);
        assert!(blocks.take_within(100, 100).is_some());
        drop(other);
        assert_eq!(blocks.bounded(), 0);
    }
}
