//! The layout of bytes that have gaps between their rows.
//!
//! No memory is accessed here. Invariant: every byte of a run is in exactly one part, and the parts are
//! in order.

use causeway_proto::region::Segment;

/// Rows of bytes with gaps between them: an image in the application's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// Number of bytes in a row.
    pub length: u64,
    /// Number of rows in a slice.
    pub count: u64,
    /// Distance between the starts of two rows in bytes, at least `length`.
    pub pitch: u64,
    /// Distance between the starts of two slices in bytes, at least a slice's size.
    pub slice_pitch: u64,
}

impl Rows {
    /// Converts an offset that does not count gaps into one that does.
    pub(super) fn place(&self, byte: u64) -> u64 {
        let (row, within) = (byte / self.length, byte % self.length);
        row / self.count * self.slice_pitch + row % self.count * self.pitch + within
    }

    /// Splits a run of bytes into its rows.
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
