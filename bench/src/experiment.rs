//! Common parts of the paper's experiments: options, medians, the phases of a run.
//!
//! Invariant: a figure in a report is the median of runs of this process, all of which succeeded.
#![forbid(unsafe_code)]

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Options of every experiment.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Common {
    /// Also write the results to this file
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "bench.json")]
    pub(crate) json: Option<PathBuf>,
    /// Plots and pictures go into this folder
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    pub(crate) plots: PathBuf,
    /// Rounds; the table shows medians over them
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) rounds: u16,
    /// Timeout for a program, s
    #[arg(long, default_value_t = 300)]
    pub(crate) timeout: u64,
}

impl Common {
    /// The timeout for a program.
    pub(crate) fn limit(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }

    /// Writes the report's JSON, if requested.
    pub(crate) fn write_json(&self, report: &impl Serialize) -> io::Result<()> {
        match &self.json {
            Some(path) => std::fs::write(path, serde_json::to_string_pretty(report)?),
            None => Ok(()),
        }
    }

    /// Makes the folder for plots.
    pub(crate) fn plots(&self) -> io::Result<&Path> {
        std::fs::create_dir_all(&self.plots)?;
        Ok(&self.plots)
    }
}

/// Seconds of the phases of a run, one after the other, and of its preparation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Phases {
    /// Time until the first kernel could be launched.
    pub(crate) initialisation: f64,
    /// Time until the kernels had ended.
    pub(crate) computation: f64,
    /// Time until the results had arrived.
    pub(crate) transfer: f64,
    /// Time for the pages of the program's own memory, which is not part of the total.
    #[serde(default)]
    pub(crate) pages: f64,
}

impl Phases {
    /// The sum of the phases.
    pub(crate) fn total(&self) -> f64 {
        self.initialisation + self.computation + self.transfer
    }

    /// The phases in the order of a plot's bars.
    pub(crate) fn stack(&self) -> [f64; 3] {
        [self.initialisation, self.computation, self.transfer]
    }
}

/// The figures of several equal runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Figure {
    /// Medians of each phase.
    #[serde(flatten)]
    pub(crate) phases: Phases,
    /// The median of the totals. The phases' medians may have another sum.
    pub(crate) total: f64,
    /// The median of the totals with the program's own pages.
    pub(crate) total_with_pages: f64,
    /// The shortest and the longest total.
    pub(crate) range: [f64; 2],
}

impl Figure {
    /// The figures of some runs; `None` without any.
    pub(crate) fn of(runs: &[Phases]) -> Option<Figure> {
        let totals: Vec<f64> = runs.iter().map(Phases::total).collect();
        Some(Figure {
            total: median(&totals)?,
            total_with_pages: median_by(runs, |run| run.total() + run.pages)?,
            range: [
                totals.iter().copied().fold(f64::INFINITY, f64::min),
                totals.iter().copied().fold(0.0, f64::max),
            ],
            phases: Phases {
                initialisation: median_by(runs, |run| run.initialisation)?,
                computation: median_by(runs, |run| run.computation)?,
                transfer: median_by(runs, |run| run.transfer)?,
                pages: median_by(runs, |run| run.pages)?,
            },
        })
    }
}

fn median_by(runs: &[Phases], pick: impl Fn(&Phases) -> f64) -> Option<f64> {
    median(&runs.iter().map(pick).collect::<Vec<_>>())
}

/// The median of some values. For an even number, it is the mean of the two in the middle.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = sorted.get(middle)?;
    if sorted.len() % 2 == 1 {
        return Some(*upper);
    }
    Some((sorted[middle - 1] + upper) / 2.0)
}

/// Seconds as the tables show them.
pub(crate) fn seconds(value: f64) -> String {
    if value < 1.0 {
        format!("{:.1} ms", value * 1e3)
    } else {
        format!("{value:.3} s")
    }
}

/// The total of a figure, or a dash.
pub(crate) fn total(figure: Option<Figure>) -> String {
    figure.map_or("–".to_owned(), |figure| seconds(figure.total))
}

/// The total with the program's own pages, or a dash.
pub(crate) fn total_with_pages(figure: Option<Figure>) -> String {
    figure.map_or("–".to_owned(), |figure| seconds(figure.total_with_pages))
}

/// A number of nodes in words.
pub(crate) fn nodes(count: usize) -> String {
    if count == 1 {
        "1 node".to_owned()
    } else {
        format!("{count} nodes")
    }
}

/// Powers of two up to a number.
pub(crate) fn powers_up_to(most: usize) -> Vec<usize> {
    std::iter::successors(Some(1usize), |power| power.checked_mul(2))
        .take_while(|power| *power <= most)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_even_and_none() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn powers_end_with_the_devices() {
        assert_eq!(powers_up_to(5), [1, 2, 4]);
        assert_eq!(powers_up_to(1), [1]);
        assert_eq!(powers_up_to(0), [0; 0]);
    }

    #[test]
    fn a_figure_takes_each_phase_by_itself() {
        let run = |a, b, c| Phases {
            initialisation: a,
            computation: b,
            transfer: c,
            pages: 0.5,
        };
        let figure = Figure::of(&[
            run(1.0, 10.0, 5.0),
            run(2.0, 30.0, 3.0),
            run(3.0, 20.0, 4.0),
        ])
        .unwrap();
        assert_eq!(figure.phases, run(2.0, 20.0, 4.0));
        assert_eq!(figure.total, 27.0);
        assert_eq!(figure.total_with_pages, 27.5);
        assert_eq!(figure.range, [16.0, 35.0]);
        assert!(Figure::of(&[]).is_none());
    }
}
