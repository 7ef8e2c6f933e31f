//! The coordinates of a directory: the place of a copy and its range of bytes.

use causeway_proto::region::{Region, Segment};

/// Index of a site (a node's native context) in its Causeway context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SiteIndex(pub u16);

/// A place that can have a copy of a buffer's bytes.
///
/// The client has no devices but is a place like the others. Its copies are a buffer's initial contents,
/// mapped ranges, and the bytes that maps for reading have fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// The client: this process.
    Client,
    /// A site: one native context on a node.
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

    /// The span from a region's first byte to its last, gaps included.
    #[must_use]
    pub fn enclosing(region: &Region) -> Span {
        Span::new(region.offset(), region.end())
    }

    /// The span of one row.
    #[must_use]
    pub fn of(row: &Segment) -> Span {
        Span::new(row.offset, row.offset + row.length)
    }

    /// Whether a byte of the region is in the span.
    #[must_use]
    pub fn meets(self, region: &Region) -> bool {
        region.touches(self.start, self.end)
    }

    /// Number of bytes.
    #[must_use]
    pub fn length(self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Whether the span has no bytes.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.end <= self.start
    }

    /// The bytes that are in both spans.
    #[must_use]
    pub fn intersection(self, other: Span) -> Span {
        Span::new(self.start.max(other.start), self.end.min(other.end))
    }
}
