//! Hashing of ids.
//!
//! Ids come from a counter, so one multiplication spreads them well; a client that picks ids to collide
//! slows down its own worker only.
#![forbid(unsafe_code)]

use std::hash::{BuildHasherDefault, Hasher};

/// For maps keyed by an id.
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
        // The upper bits of the product select within a group, the lower the bucket: fold both.
        let product = u128::from(self.0 ^ n) * 0x9e37_79b9_7f4a_7c15_u128;
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }
}
