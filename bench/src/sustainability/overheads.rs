//! The paper's figure 9: the slowdown that breaks even, over the mean time between failures, for some overheads.
//!
//! Pure. The paper does not say what its percentages refer to. Here, an overhead is the time of all checkpoints over the
//! time without failures, at the best interval and an MTBF of [`REFERENCE`]. That fixes K0 = K1 for the whole curve.
//! Invariant: the points of a curve share all of the model but its MTBF.
#![forbid(unsafe_code)]

use serde::Serialize;

use super::model::{Model, Workers};

/// The mean time between failures of the paper's main claim, in seconds.
pub(super) const REFERENCE: f64 = 6.0 * 3600.0;
/// Points of a curve.
const POINTS: u32 = 25;

/// A point of a curve.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Point {
    /// Mean time between failures, in seconds.
    pub(super) mtbf: f64,
    /// S*.
    pub(super) break_even: f64,
    /// Fatal failures in an interval of the program that tolerates none.
    pub(super) failures_per_interval: f64,
}

/// The curve of one overhead.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Overhead {
    /// The share of the run that its checkpoints take, at [`REFERENCE`].
    pub(super) share: f64,
    /// K0 and K1, in seconds.
    pub(super) checkpoint: f64,
    /// S* at [`REFERENCE`].
    pub(super) break_even: f64,
    /// From 1 h to 48 h.
    pub(super) points: Vec<Point>,
}

impl Overhead {
    /// The curve of an overhead, for the X and the processors of `model`.
    pub(super) fn new(model: &Model, share: f64) -> Overhead {
        let reference = Model {
            mtbf: REFERENCE,
            ..*model
        }
        .with_overhead(share);
        let point = |step: u32| {
            let hours = 48f64.powf(f64::from(step) / f64::from(POINTS - 1));
            let model = Model {
                mtbf: hours * 3600.0,
                ..reference
            };
            Point {
                mtbf: model.mtbf,
                break_even: model.break_even(),
                failures_per_interval: model.failures_per_interval(Workers::Fatal),
            }
        };
        Overhead {
            share,
            checkpoint: reference.create,
            break_even: reference.break_even(),
            points: (0..POINTS).map(point).collect(),
        }
    }

    /// The points at which the model's assumption holds: at most one failure in an interval.
    pub(super) fn within_assumption(&self) -> impl Iterator<Item = &Point> {
        let points = self.points.iter();
        points.filter(|point| point.failures_per_interval <= 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paper() -> Model {
        Model {
            mtbf: REFERENCE,
            create: 600.0,
            recover: 600.0,
            loss: 30.0,
            processors: 1024.0,
        }
    }

    #[test]
    fn no_overhead_breaks_even_at_three_within_the_assumption() {
        for share in [0.05, 0.15, 0.25, 0.35] {
            let overhead = Overhead::new(&paper(), share);
            let most = overhead.within_assumption().map(|point| point.break_even);
            assert!(most.fold(0.0, f64::max) < 2.5, "{share}");
        }
    }

    #[test]
    fn rarer_failures_and_smaller_overheads_are_worth_less() {
        let (small, large) = (Overhead::new(&paper(), 0.15), Overhead::new(&paper(), 0.35));
        for (a, b) in small.points.iter().zip(&large.points) {
            assert!(a.break_even < b.break_even);
        }
        let pairs = large.points.windows(2);
        assert!(
            pairs
                .into_iter()
                .all(|pair| pair[0].mtbf < pair[1].mtbf && pair[0].break_even > pair[1].break_even)
        );
        // 1 + 2 · 0.35 + 2 · 0.35², less what the tolerant program pays.
        assert!(large.break_even < 1.945 && large.break_even > 1.85);
        assert!((large.checkpoint - 2.0 * 0.35 * 0.35 * REFERENCE).abs() < 1e-6);
    }
}
