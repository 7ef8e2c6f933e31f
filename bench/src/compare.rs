//! Compares two reports by ratios, not by times: which rows became better or worse.
//!
//! Each row is judged by its marks' values. Without marks, it is judged by Causeway over the yardstick or the
//! native driver. A value has one sample for each round. It has changed if each report's median is outside all
//! rounds of the other, and by more than [`LEAST`]. Other differences are noise.
#![forbid(unsafe_code)]

use std::path::PathBuf;

use crate::figures::{Unit, quantile};
use crate::marks::{Bound, Value};
use crate::report::{Figures, Report};

/// Arguments of `bench compare`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// The report of before
    old: PathBuf,
    /// The report of after
    new: PathBuf,
    /// Also print what has not changed
    #[arg(long)]
    all: bool,
}

/// Smallest relative change that is reported.
const LEAST: f64 = 0.05;

/// The change of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    None,
    Better,
    Worse,
}

/// Prints the changes. Returns whether nothing became worse.
pub(crate) fn run(options: &Options) -> Result<bool, Box<dyn std::error::Error>> {
    let (old, new) = (Report::read(&options.old)?, Report::read(&options.new)?);
    if old.device != new.device {
        println!("devices differ: {} and {}", old.device, new.device);
    }
    println!(
        "| what | of what | old (rounds) | new (rounds) | change | |\n|---|---|---|---|---|---|"
    );
    let mut good = true;
    for row in &new.rows {
        let Some(before) = old.rows.iter().find(|old| old.id == row.id) else {
            println!("| {} | | | | | new |", row.name);
            continue;
        };
        for line in lines(before, row) {
            good &= line.change != Change::Worse && !line.newly_missed;
            if options.all || line.change != Change::None || line.newly_missed {
                println!("| {} | {}", row.name, line.text(row.unit));
            }
        }
        if before.causeway.is_some() && row.causeway.is_none() {
            good &= row.trouble.is_none();
            println!("| {} | | | | | no longer measured |", row.name);
        }
    }
    for row in &old.rows {
        if new.rows.iter().all(|new| new.id != row.id) {
            println!("| {} | | | | | gone |", row.name);
        }
    }
    Ok(good)
}

/// One value of a row in both reports.
struct Line {
    value: Value,
    old: Vec<f64>,
    new: Vec<f64>,
    change: Change,
    newly_missed: bool,
}

fn lines(old: &Figures, new: &Figures) -> Vec<Line> {
    let (Some(before), Some(after)) = (old.sides(), new.sides()) else {
        return Vec::new();
    };
    let mut values: Vec<(Value, bool)> = new
        .marks
        .iter()
        .map(|mark| (mark.value, matches!(mark.bound, Bound::AtLeast(_))))
        .collect();
    if values.is_empty() {
        let ratio = if new.bare.is_some() {
            Value::OverBare
        } else {
            Value::OverNative
        };
        values.push((ratio, new.unit.is_more_better()));
    }
    let line = |(value, more_is_better): (Value, bool)| {
        // A tail has few samples in a round. It is printed, and judged by its mark alone.
        let (old_rounds, new_rounds) = (value.rounds(&before), value.rounds(&after));
        let change = if value.is_tail() {
            Change::None
        } else {
            change(&old_rounds, &new_rounds, more_is_better)
        };
        let met = |figures: &Figures| {
            let mark = figures.marks.iter().find(|mark| mark.value == value);
            mark.is_none_or(|mark| mark.met)
        };
        Line {
            value,
            old: old_rounds,
            new: new_rounds,
            change,
            newly_missed: met(old) && !met(new),
        }
    };
    values
        .into_iter()
        .map(line)
        .filter(|line| !line.old.is_empty() && !line.new.is_empty())
        .collect()
}

fn range(rounds: &[f64]) -> (f64, f64) {
    let (low, high) = (f64::INFINITY, f64::NEG_INFINITY);
    rounds.iter().fold((low, high), |(low, high), value| {
        (low.min(*value), high.max(*value))
    })
}

fn change(old: &[f64], new: &[f64], more_is_better: bool) -> Change {
    let outside = |value: f64, (low, high): (f64, f64)| value < low || value > high;
    let (before, after) = (quantile(old, 0.5), quantile(new, 0.5));
    let step = (after - before).abs() / before.abs().max(after.abs()).max(f64::MIN_POSITIVE);
    if step <= LEAST || !outside(after, range(old)) || !outside(before, range(new)) {
        Change::None
    } else if (after > before) == more_is_better {
        Change::Better
    } else {
        Change::Worse
    }
}

impl Line {
    fn text(&self, unit: Unit) -> String {
        let side = |rounds: &[f64]| {
            let (low, high) = range(rounds);
            let [median, low, high] =
                [quantile(rounds, 0.5), low, high].map(|value| self.value.text(value, unit));
            format!("{median} ({low} … {high})")
        };
        let (before, after) = (quantile(&self.old, 0.5), quantile(&self.new, 0.5));
        let percent = (after - before) / before.abs().max(f64::MIN_POSITIVE) * 100.0;
        let verdict = match (self.change, self.newly_missed) {
            (Change::Worse, true) => "**worse, mark missed**",
            (Change::Worse, false) => "**worse**",
            (_, true) => "**mark missed**",
            (Change::Better, _) => "better",
            (Change::None, _) => "noise",
        };
        format!(
            "{} | {} | {} | {percent:+.0} % | {verdict} |",
            self.value.name(),
            side(&self.old),
            side(&self.new)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_within_the_spread_is_noise() {
        let old = [1.0, 1.1, 1.2, 1.3, 1.6];
        assert_eq!(change(&old, &[1.5, 1.5, 1.5], false), Change::None);
        assert_eq!(change(&old, &[1.7, 1.8, 1.9], false), Change::Worse);
        assert_eq!(change(&old, &[1.7, 1.8, 1.9], true), Change::Better);
        // The old median is among the new rounds.
        assert_eq!(change(&old, &[1.15, 1.8, 1.9], false), Change::None);
    }

    #[test]
    fn small_steps_are_none_however_sure() {
        assert_eq!(change(&[1.0, 1.0], &[1.04, 1.04], false), Change::None);
    }
}
