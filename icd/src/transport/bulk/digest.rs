//! The digest of a read's bytes, of parts that arrive in any order.
//!
//! A part is what a node sends at a time: it begins at a multiple of the chunk's size, and is as long as a chunk or ends
//! the bytes. Each part is digested by XXH3 with 128 bits, with its offset as the seed. The digest of all bytes is the sum
//! of those. Not here: when bytes are digested.
//!
//! Invariant: the digest depends on the bytes only, not on the order of the parts or on how they came.
#![forbid(unsafe_code)]

use causeway_proto::limits::BULK_CHUNK;
use twox_hash::XxHash3_128;

const CHUNK: u64 = BULK_CHUNK as u64;

/// The digest of a part, from its bytes in their order.
pub(super) struct PartDigest(XxHash3_128);

impl PartDigest {
    /// No byte yet of the part that begins at `offset`.
    pub(super) fn of(offset: u64) -> PartDigest {
        PartDigest(XxHash3_128::with_seed(offset))
    }

    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    pub(super) fn end(self) -> u128 {
        self.0.finish_128()
    }
}

/// The parts that have come of some bytes.
#[derive(Default)]
pub(super) struct Digested {
    sum: u128,
    bytes: u64,
}

impl Digested {
    /// Notes the digest of bytes of `total`. If they are not a part, the digest of all bytes stays unknown.
    pub(super) fn note(&mut self, offset: u64, length: u64, total: u64, digest: u128) {
        let is_part =
            offset.is_multiple_of(CHUNK) && offset < total && length == CHUNK.min(total - offset);
        if is_part {
            self.sum = self.sum.wrapping_add(digest);
            self.bytes += length;
        }
    }

    /// The digest of `total` bytes, if all have come as parts.
    pub(super) fn whole(&self, total: u64) -> Option<u128> {
        (self.bytes == total).then_some(self.sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(offset: u64, bytes: &[u8]) -> u128 {
        let mut part = PartDigest::of(offset);
        part.add(bytes);
        part.end()
    }

    // The parts of `total` bytes: offset and length.
    fn parts(total: u64) -> impl Iterator<Item = (u64, u64)> {
        let offsets = (0..total).step_by(BULK_CHUNK);
        offsets.map(move |offset| (offset, CHUNK.min(total - offset)))
    }

    fn sum(parts: impl Iterator<Item = u128>) -> u128 {
        parts.fold(0, u128::wrapping_add)
    }

    #[test]
    fn parts_in_any_order_have_the_digest_of_all_bytes() {
        let bytes: Vec<u8> = (0..2 * CHUNK + 5).map(|at| (at * 7 / 3) as u8).collect();
        let total = bytes.len() as u64;
        let of = |(offset, length): (u64, u64)| {
            let part = &bytes[offset as usize..(offset + length) as usize];
            (offset, length, digest(offset, part))
        };
        let all: Vec<_> = parts(total).map(of).collect();
        assert_eq!(all.len(), 3);
        let whole = sum(all.iter().map(|(.., digest)| *digest));
        for order in [[0, 1, 2], [2, 0, 1], [1, 2, 0]] {
            let mut digested = Digested::default();
            for part in order {
                assert_eq!(digested.whole(total), None);
                let (offset, length, digest) = all[part];
                digested.note(offset, length, total, digest);
            }
            assert_eq!(digested.whole(total), Some(whole));
        }
        // Equal parts at other places are another digest.
        let swapped = sum([1, 0, 2].into_iter().zip(&all).map(|(place, part)| {
            digest(
                part.0,
                &bytes[all[place].0 as usize..][..all[place].1 as usize],
            )
        }));
        assert_ne!(swapped, whole);
    }

    #[test]
    fn bytes_that_are_no_part_leave_the_digest_unknown() {
        let total = 2 * CHUNK;
        for (offset, length) in [(1, CHUNK), (0, CHUNK - 1), (CHUNK, 1), (total, 0)] {
            let mut digested = Digested::default();
            digested.note(offset, length, total, 3);
            digested.note(CHUNK, CHUNK, total, 4);
            assert_eq!(digested.whole(total), None, "{offset} {length}");
        }
        assert_eq!(Digested::default().whole(0), Some(0));
    }
}
