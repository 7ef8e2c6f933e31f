//! Where bytes lie that have gaps between their rows.
//!
//! What it is not: it touches no memory. Invariant: every byte of a run is in one part, and the parts are in order.

use causeway_proto::region::Segment;

/// Rows of bytes with gaps between them: an image in the application's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// Bytes of a row.
    pub length: u64,
    /// Rows of a slice.
    pub count: u64,
    /// Bytes from row to row, a row's at least.
    pub pitch: u64,
    /// Bytes from slice to slice, a slice's at least.
    pub slice_pitch: u64,
}

impl Rows {
    /// Where a byte lies that would be the `byte`th without gaps.
    pub(super) fn place(&self, byte: u64) -> u64 {
        let (row, within) = (byte / self.length, byte % self.length);
        row / self.count * self.slice_pitch + row % self.count * self.pitch + within
    }

    /// A run of bytes, row by row.
    pub(super) fn split(self, run: Segment) -> impl Iterator<Item = Segment> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let byte = run.offset + at;
            let length = (self.length - byte % self.length).min(run.length - at);
            let part = Segment {
                offset: self.place(byte),
                packed: run.packed + at,
                length,
            };
            at += length;
            (length > 0).then_some(part)
        })
    }
}
