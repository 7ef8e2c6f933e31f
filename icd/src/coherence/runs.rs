//! Joins many spans into few regions: adjacent spans into runs, equal runs at equal distances into
//! rectangles, and equal rectangles at equal distances into boxes.
//!
//! Invariant: the regions of one [`Runs`] contain exactly the pushed spans, in ascending order, each
//! region with at most `limit` bytes.

use causeway_proto::region::Region;

use super::place::Span;

/// Collects spans and joins them; see the module.
#[derive(Debug)]
pub(super) struct Runs {
    limit: u64,
    // The last run, which adjacent spans extend.
    open: Option<Span>,
    rows: Option<Repeated<Span>>,
    slices: Option<Repeated<Repeated<Span>>>,
}

/// Equal shapes at equal distances.
#[derive(Clone, Copy, Debug)]
struct Repeated<T> {
    first: T,
    count: u64,
    pitch: u64,
}

/// A shape that can be repeated.
trait Shape: Copy {
    fn start(&self) -> u64;
    fn bytes(&self) -> u64;
    fn is_like(&self, other: &Self) -> bool;
    /// Whether a driver takes this shape repeated at this distance.
    fn repeats_at(&self, distance: u64) -> bool;
}

impl Runs {
    pub(super) fn new(limit: u64) -> Runs {
        Runs {
            limit: limit.max(1),
            open: None,
            rows: None,
            slices: None,
        }
    }

    /// Adds a span after all others. Returns a region if one is complete.
    ///
    /// The span must not cross a multiple of the limit.
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

    /// Returns the regions that are left, at most three.
    pub(super) fn finish(&mut self) -> impl Iterator<Item = Region> + use<> {
        let row = self.open.take().and_then(|open| self.add_row(open));
        let rows = self.rows.take().and_then(|rows| self.add_slice(rows));
        let slices = self.slices.take().map(Repeated::region);
        row.into_iter().chain(rows).chain(slices)
    }

    fn add_row(&mut self, row: Span) -> Option<Region> {
        let complete = Repeated::add(&mut self.rows, row, self.limit)?;
        self.add_slice(complete)
    }

    fn add_slice(&mut self, rows: Repeated<Span>) -> Option<Region> {
        Repeated::add(&mut self.slices, rows, self.limit).map(Repeated::region)
    }
}

impl Shape for Span {
    fn start(&self) -> u64 {
        self.start
    }

    fn bytes(&self) -> u64 {
        self.length()
    }

    fn is_like(&self, other: &Span) -> bool {
        self.length() == other.length()
    }

    fn repeats_at(&self, _: u64) -> bool {
        true
    }
}

impl<T: Shape> Shape for Repeated<T> {
    fn start(&self) -> u64 {
        self.first.start()
    }

    fn bytes(&self) -> u64 {
        self.first.bytes() * self.count
    }

    fn is_like(&self, other: &Repeated<T>) -> bool {
        self.first.is_like(&other.first) && (self.count, self.pitch) == (other.count, other.pitch)
    }

    // OpenCL specification, clEnqueueReadBufferRect: CL_INVALID_VALUE if the slice pitch is not a multiple of the row
    // pitch. Slices of one row each are rows.
    fn repeats_at(&self, distance: u64) -> bool {
        self.count == 1 || distance.is_multiple_of(self.pitch)
    }
}

impl<T: Shape> Repeated<T> {
    // Adds a shape after all others. If it does not fit, returns the finished repetition and starts a
    // new one.
    fn add(all: &mut Option<Repeated<T>>, next: T, limit: u64) -> Option<Repeated<T>> {
        if all.as_mut().is_some_and(|all| all.extend(next, limit)) {
            return None;
        }
        all.replace(Repeated {
            first: next,
            count: 1,
            pitch: 0,
        })
    }

    fn extend(&mut self, next: T, limit: u64) -> bool {
        let distance = next.start() - self.start();
        // The second shape sets the distance for all that follow.
        let pitch = if self.count == 1 {
            distance
        } else {
            self.pitch
        };
        let fits = self.first.is_like(&next)
            && distance == pitch * self.count
            && self.first.repeats_at(pitch)
            && self.bytes() + next.bytes() <= limit;
        if fits {
            (self.count, self.pitch) = (self.count + 1, pitch);
        }
        fits
    }
}

impl Repeated<Repeated<Span>> {
    fn region(self) -> Region {
        let rows = self.first;
        let size = [rows.first.length(), rows.count, self.count];
        let row_pitch = if rows.count == 1 { size[0] } else { rows.pitch };
        let slice_pitch = if self.count == 1 {
            row_pitch.saturating_mul(rows.count)
        } else {
            self.pitch
        };
        let region = Region::rect(rows.start(), size, row_pitch, slice_pitch);
        // Rows ascend inside of a buffer, so these numbers form a valid region.
        region.unwrap_or_else(|_| unreachable!("ascending spans of a buffer"))
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
        // Slices at 40 whose rows are at 30: no driver takes these pitches.
        let apart = joined([(278, 280), (308, 310), (318, 320), (348, 350)], 100);
        assert_eq!(
            apart,
            [278, 318].map(|start| Region::rect(start, [2, 2, 1], 30, 60).unwrap())
        );
        assert_eq!(
            joined(
                [(0, 4), (10, 14), (30, 34), (40, 44), (60, 64), (70, 74)],
                100
            ),
            [Region::rect(0, [4, 2, 3], 10, 30).unwrap()]
        );
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
