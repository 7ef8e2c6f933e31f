//! Samples, and their medians over rounds and tails over all samples.
//!
//! Invariant: a line's sides are measured in the same rounds, in turn, so the `n`-th rounds of two sides may be
//! compared.
#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};

/// The unit of a row's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    /// Nanoseconds of a call.
    Nanoseconds,
    /// Bytes a second.
    BytesPerSecond,
    /// Commands a second.
    CommandsPerSecond,
    /// Bytes.
    Bytes,
    /// A number of things.
    Count,
    /// A ratio of which less is better.
    Share,
    /// A ratio of which more is better.
    Gain,
}

impl Unit {
    /// Whether more is better.
    pub(crate) fn is_more_better(self) -> bool {
        matches!(
            self,
            Unit::BytesPerSecond | Unit::CommandsPerSecond | Unit::Gain
        )
    }

    /// A value as the tables show it.
    pub(crate) fn text(self, value: f64) -> String {
        match self {
            Unit::Nanoseconds if value.abs() >= 1e6 => format!("{:.1} ms", value / 1e6),
            Unit::Nanoseconds => format!("{:.2} µs", value / 1e3),
            Unit::BytesPerSecond if value < 1e9 => format!("{:.1} MB/s", value / 1e6),
            Unit::BytesPerSecond => format!("{:.2} GB/s", value / 1e9),
            Unit::CommandsPerSecond => format!("{:.0} k/s", value / 1e3),
            Unit::Bytes => format!("{:.1} MiB", value / f64::from(1 << 20)),
            Unit::Count => format!("{value:.0}"),
            Unit::Share | Unit::Gain => format!("{value:.3}"),
        }
    }
}

/// A side of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The node's own driver.
    Native,
    /// The row's yardstick beside the native driver: a bare socket in most rows.
    Bare,
    /// Causeway.
    Causeway,
    /// Another platform of this machine.
    Peer,
    /// A plain ping-pong of as many bytes, with nothing in its middle.
    Plain,
}

/// The samples of all sides, in the row's unit: a list for each round.
#[derive(Debug, Default)]
pub(crate) struct Samples([Vec<Vec<f64>>; 5]);

impl Samples {
    /// Adds a round of a side.
    pub(crate) fn push(&mut self, side: Side, round: Vec<f64>) {
        if !round.is_empty() {
            self.0[side as usize].push(round);
        }
    }

    /// The rounds of a side.
    pub(crate) fn figure(&self, side: Side, unit: Unit) -> Option<Figure> {
        Figure::of(&self.0[side as usize], unit)
    }
}

/// One side's figures, in the row's unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figure {
    /// The median over rounds of each round's median.
    pub(crate) median: f64,
    /// The 99th percentile of all samples, at the bad end.
    pub(crate) p99: f64,
    /// The median over rounds of each round's mean, which includes pauses.
    pub(crate) mean: f64,
    /// The median of each round.
    pub(crate) rounds: Vec<f64>,
    /// The mean of each round.
    pub(crate) means: Vec<f64>,
    /// The 99th percentile of each round.
    pub(crate) tails: Vec<f64>,
}

impl Figure {
    /// The figures of some rounds; `None` without any.
    pub(crate) fn of(rounds: &[Vec<f64>], unit: Unit) -> Option<Figure> {
        let bad = if unit.is_more_better() { 0.01 } else { 0.99 };
        let each = |share| -> Vec<f64> {
            let rounds = rounds.iter().filter(|round| !round.is_empty());
            rounds.map(|round| quantile(round, share)).collect()
        };
        let medians = each(0.5);
        let full = rounds.iter().filter(|round| !round.is_empty());
        let mean = |round: &Vec<f64>| round.iter().sum::<f64>() / round.len() as f64;
        let means: Vec<f64> = full.map(mean).collect();
        (!medians.is_empty()).then(|| Figure {
            median: quantile(&medians, 0.5),
            p99: quantile(&rounds.concat(), bad),
            mean: quantile(&means, 0.5),
            rounds: medians,
            means,
            tails: each(bad),
        })
    }
}

/// The sample below which `share` of all are; 0 without samples.
pub(crate) fn quantile(samples: &[f64], share: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    let place = (last as f64 * share).round() as usize;
    sorted.get(place).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_few_and_of_none() {
        assert_eq!(quantile(&[3.0, 1.0, 2.0], 0.5), 2.0);
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.99), 5.0);
        assert_eq!(quantile(&[], 0.5), 0.0);
    }

    #[test]
    fn the_tail_is_at_the_bad_end() {
        let rounds = vec![vec![1.0, 2.0, 9.0], vec![2.0]];
        let times = Figure::of(&rounds, Unit::Nanoseconds).unwrap();
        assert_eq!((times.median, times.p99), (2.0, 9.0));
        assert_eq!(times.tails, [9.0, 2.0]);
        assert_eq!(times.means, [4.0, 2.0]);
        let rates = Figure::of(&rounds, Unit::BytesPerSecond).unwrap();
        assert_eq!(rates.p99, 1.0);
        assert!(Figure::of(&[], Unit::Count).is_none());
    }
}
