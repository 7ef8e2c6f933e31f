//! A sequence of numbers that a seed determines (SplitMix64).
//!
//! Not for secrets. Invariant: equal seeds make equal sequences.

/// The sequence. See the module.
pub(super) struct Random(pub(super) u64);

impl Random {
    /// A number below a limit that is not 0.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = self.0;
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (number ^ (number >> 31)) % limit
    }

    /// A position in a list of this length, which is not empty.
    pub(super) fn position(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }
}
