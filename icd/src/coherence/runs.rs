//! Joins many spans into few regions: neighbours into runs, equal runs at equal distances into rectangles.
//!
//! Invariant: the regions of one [`Runs`] hold exactly the spans that were pushed, in ascending order,
//! each of at most `limit` bytes.

use causeway_proto::region::Region;

use super::place::Span;

/// Collects spans; see the module.
#[derive(Debug)]
pub(super) struct Runs {
    limit: u64,
    // Grows to the right.
    open: Option<Span>,
    rows: Option<Rows>,
}

#[derive(Clone, Copy, Debug)]
struct Rows {
    first: Span,
    count: u64,
    pitch: u64,
}

impl Runs {
    pub(super) fn new(limit: u64) -> Runs {
        Runs {
            limit: limit.max(1),
            open: None,
            rows: None,
        }
    }

    /// Adds a span after all others; gives a region that is complete.
    ///
    /// The span does not cross a multiple of the limit.
    pub(super) fn push(&mut self, span: Span) -> Option<Region> {
        if let Some(open) = &mut self.open
            && open.end == span.start
            && !span.start.is_multiple_of(self.limit)
        {
            open.end = span.end;
            return None;
        }
        let complete = self.open.replace(span)?;
        self.add_row(complete)
    }

    /// What is left, at most two regions.
    pub(super) fn finish(&mut self) -> impl Iterator<Item = Region> + use<> {
        let last = self.open.take().and_then(|open| self.add_row(open));
        let rest = self.rows.take().map(Rows::region);
        last.into_iter().chain(rest)
    }

    fn add_row(&mut self, row: Span) -> Option<Region> {
        let Some(rows) = &mut self.rows else {
            self.rows = Some(Rows::one(row));
            return None;
        };
        if rows.extend(row, self.limit) {
            return None;
        }
        self.rows.replace(Rows::one(row)).map(Rows::region)
    }
}

impl Rows {
    fn one(first: Span) -> Rows {
        Rows {
            first,
            count: 1,
            pitch: 0,
        }
    }

    fn extend(&mut self, row: Span, limit: u64) -> bool {
        let length = self.first.length();
        let distance = row.start - self.first.start;
        let pitch = if self.count == 1 {
            distance
        } else {
            self.pitch
        };
        let fits = row.length() == length
            && distance == pitch * self.count
            && length * (self.count + 1) <= limit;
        if fits {
            (self.count, self.pitch) = (self.count + 1, pitch);
        }
        fits
    }

    fn region(self) -> Region {
        let length = self.first.length();
        let pitch = if self.count == 1 { length } else { self.pitch };
        let slice = pitch.saturating_mul(self.count);
        let rect = Region::rect(self.first.start, [length, self.count, 1], pitch, slice);
        // Rows ascend inside of a buffer, so the numbers are those of a region.
        rect.unwrap_or_else(|_| unreachable!("ascending spans of a buffer"))
    }
}
