//! Where copies lie, and which bytes: the coordinates of a directory.

use causeway_proto::region::{Region, Segment};

/// Position of a site (a node's native context) in its Causeway context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SiteIndex(pub u16);

/// Where a copy of a buffer's bytes can be.
///
/// The client has no devices, but it is a place like the others: it holds what a buffer was made with,
/// what is mapped, and what a map for reading has fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// This process.
    Client,
    /// A native context.
    Site(SiteIndex),
}

/// The bytes `start..end` of a root buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

impl Span {
    /// `start..end`.
    #[must_use]
    pub fn new(start: u64, end: u64) -> Span {
        Span { start, end }
    }

    /// From a region's first byte to its last, gaps included.
    #[must_use]
    pub fn enclosing(region: &Region) -> Span {
        Span::new(region.offset(), region.end())
    }

    /// Where a row lies.
    #[must_use]
    pub fn of(row: &Segment) -> Span {
        Span::new(row.offset, row.offset + row.length)
    }

    /// Whether a region has a byte in it.
    #[must_use]
    pub fn meets(self, region: &Region) -> bool {
        region.touches(self.start, self.end)
    }

    /// Bytes.
    #[must_use]
    pub fn length(self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Whether there is no byte in it.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.end <= self.start
    }

    /// The bytes in both.
    #[must_use]
    pub fn intersection(self, other: Span) -> Span {
        Span::new(self.start.max(other.start), self.end.min(other.end))
    }
}
