//! Host memory for one transfer at a time, used again: fresh pages cost as much as copying into them.
//!
//! What it is not: pinned. Invariant: a block is one holder's alone, and what lies spare is bounded.
#![forbid(unsafe_code)]

use std::sync::Arc;

use parking_lot::Mutex;

/// Bytes that lie spare at most.
const MOST_SPARE: usize = 4 << 20;

/// Where blocks come from and go to.
#[derive(Debug, Default)]
pub struct Blocks(Arc<Mutex<Vec<Vec<u8>>>>);

/// Memory of its holder's; its first contents are anybody's bytes of this session.
#[derive(Debug)]
pub struct Block {
    bytes: Vec<u8>,
    length: usize,
    spare: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Blocks {
    /// A block of `length` bytes.
    #[must_use]
    pub fn take(&self, length: usize) -> Block {
        let mut spare = self.0.lock();
        // One of its size: a large one for few bytes would be missed.
        let fits = |bytes: &Vec<u8>| (length..=2 * length).contains(&bytes.len());
        let place = spare.iter().position(fits);
        let found = place.map(|place| spare.swap_remove(place));
        drop(spare);
        Block {
            bytes: found.unwrap_or_else(|| vec![0; length]),
            length,
            spare: Arc::clone(&self.0),
        }
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
        let mut spare = self.spare.lock();
        let kept: usize = spare.iter().map(Vec::len).sum();
        if kept + self.bytes.len() <= MOST_SPARE {
            spare.push(std::mem::take(&mut self.bytes));
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
        let kept: usize = blocks.0.lock().iter().map(Vec::len).sum();
        assert!(kept <= MOST_SPARE);
    }
}
