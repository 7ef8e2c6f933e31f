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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn joined(spans: impl IntoIterator<Item = (u64, u64)>, limit: u64) -> Vec<Region> {
        let mut runs = Runs::new(limit);
        let mut regions = Vec::new();
        for (start, end) in spans {
            regions.extend(runs.push(Span::new(start, end)));
        }
        regions.extend(runs.finish());
        regions
    }

    #[test]
    fn neighbours_are_one_run_and_equal_rows_one_rectangle() {
        assert_eq!(
            joined([(0, 4), (4, 8)], 100),
            [Region::linear(0, 8).unwrap()]
        );
        assert_eq!(
            joined([(0, 4), (10, 14), (20, 24)], 100),
            [Region::rect(0, [4, 3, 1], 10, 30).unwrap()]
        );
        assert_eq!(joined([(0, 4), (10, 14), (20, 25)], 100).len(), 2);
    }

    proptest! {
        #[test]
        fn regions_hold_the_spans_within_the_limit(
            gaps in prop::collection::vec((0u64..4, 1u64..5), 0..30),
            limit in 1u64..20,
        ) {
            let (mut spans, mut at) = (Vec::new(), 0);
            for (gap, length) in gaps {
                let mut start = at + gap;
                let end = start + length;
                at = end;
                while start < end {
                    let boundary = ((start / limit + 1) * limit).min(end);
                    spans.push((start, boundary));
                    start = boundary;
                }
            }
            let bytes: Vec<u64> = spans.iter().flat_map(|(start, end)| *start..*end).collect();
            let regions = joined(spans, limit);
            prop_assert!(regions.iter().all(|region| region.packed_length() <= limit));
            let held: Vec<u64> = regions
                .iter()
                .flat_map(|region| region.segments(0, u64::MAX))
                .flat_map(|row| row.offset..row.offset + row.length)
                .collect();
            prop_assert_eq!(held, bytes);
        }
    }
}
