//! Hashing of ids.
//!
//! Ids come from a counter, so one multiplication spreads them well. A client that picks colliding ids
//! slows down only its own worker.
#![forbid(unsafe_code)]

use std::hash::{BuildHasherDefault, Hasher};

/// The hasher of maps that are keyed by an id.
pub(crate) type ById = BuildHasherDefault<IdHasher>;

/// Hashes one id.
#[derive(Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }

    fn write_u64(&mut self, n: u64) {
        // The map uses the upper bits within a group and the lower bits for the bucket, so
        // both halves are folded.
        let product = u128::from(self.0 ^ n) * 0x9e37_79b9_7f4a_7c15_u128;
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }
}
