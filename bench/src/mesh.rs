//! Experiment: how long until all nodes know each other: DOCL's figure 18, and our discovery.
//!
//! - [`rule`]: DOCL's printed rule for peering, in simulated time; pure.
//! - [`ours`]: real daemons that announce themselves, on an emulated network.
//!
//! The reference is Dillon's dissertation on DOCL (2012). Invariant: the report says of each time whether it was simulated
//! or measured.
#![forbid(unsafe_code)]

pub(crate) mod ours;
mod rule;

use std::fmt;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use crate::experiment::{Common, median};
use crate::lines::{self, Chart, Curve, Style};
use crate::random::Random;

type Error = Box<dyn std::error::Error>;

/// How to run it.
#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    /// Numbers of hosts
    #[arg(long, value_delimiter = ',', value_name = "N,…", default_value = "3,4,5,6,7,8,64", value_parser = clap::value_parser!(u16).range(2..=64))]
    hosts: Vec<u16>,
    /// Simulated runs for each number of hosts
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// The seed of the simulated runs
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only simulate; needs no root
    #[arg(long)]
    simulated: bool,
}

/// The times for one number of hosts, in seconds.
#[derive(Debug, Serialize)]
struct Row {
    hosts: u16,
    /// What DOCL predicted: 14 + 5 (n − 2).
    predicted: f64,
    /// The line through what DOCL observed, if its intercept of 15.16 s is that of no host.
    observed: f64,
    /// The median of the printed rule's simulated runs.
    simulated: f64,
    /// Medians of ours, from the moment when the last daemon listens.
    measured: Option<f64>,
}

/// The table.
#[derive(Debug, Serialize)]
struct Report {
    rows: Vec<Row>,
    /// Seconds that each further host adds to the simulated time, in DOCL's range of hosts.
    simulated_per_host: Option<f64>,
}

/// Mark for ours, in seconds.
const MARK: f64 = 2.0;
/// The largest number of hosts in DOCL's figure.
const MOST_OF_DOCL: u16 = 8;

/// Simulates, measures, and reports. Returns whether the mark was met.
pub(crate) fn run(options: &Options) -> Result<bool, Error> {
    let plots = options.common.plots()?;
    let mut rows = Vec::new();
    for hosts in &options.hosts {
        let mut random = Random::new(options.seed ^ u64::from(*hosts));
        let simulated: Vec<f64> = (0..options.runs)
            .map(|_| rule::full_mesh(usize::from(*hosts), &mut random))
            .collect();
        let mut measured = Vec::new();
        for _ in 0..if options.simulated {
            0
        } else {
            options.common.rounds
        } {
            measured.push(ours::all_know_all(
                usize::from(*hosts),
                options.common.limit(),
            )?);
        }
        rows.push(Row {
            hosts: *hosts,
            predicted: 14.0 + 5.0 * f64::from(hosts.saturating_sub(2)),
            observed: 15.16 + 3.37 * f64::from(*hosts),
            simulated: median(&simulated).unwrap_or_default(),
            measured: median(&measured),
        });
    }
    let of_docl = rows.iter().rev().find(|row| row.hosts <= MOST_OF_DOCL);
    let ends = rows.first().zip(of_docl);
    let per_host = ends.filter(|(first, last)| first.hosts < last.hosts);
    let report = Report {
        simulated_per_host: per_host.map(|(first, last)| {
            (last.simulated - first.simulated) / f64::from(last.hosts - first.hosts)
        }),
        rows,
    };
    print!("{report}");
    options.common.write_json(&report)?;
    println!("plot: {}", report.draw(plots)?.display());
    let mut measured = report.rows.iter().filter_map(|row| row.measured);
    let is_met = measured.all(|seconds| seconds <= MARK);
    if !is_met {
        println!("missed: ours takes {MARK} s at most");
    }
    Ok(is_met)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seconds until all hosts know all")?;
        writeln!(
            f,
            "hosts  DOCL predicted  DOCL observed  DOCL's rule, simulated  ours"
        )?;
        for row in &self.rows {
            let ours = row.measured.map_or("-".to_owned(), |of| format!("{of:.2}"));
            writeln!(
                f,
                "{:5}  {:14.1}  {:13.1}  {:22.1}  {ours:>4}",
                row.hosts, row.predicted, row.observed, row.simulated
            )?;
        }
        match self.simulated_per_host {
            Some(each) => writeln!(f, "the simulated rule takes {each:.2} s more for each host"),
            None => Ok(()),
        }
    }
}

impl Report {
    fn draw(&self, folder: &Path) -> Result<PathBuf, Error> {
        let curve = |name, colour, style, y: &dyn Fn(&Row) -> Option<f64>| {
            Curve::by_hosts((name, colour, style), &self.rows, |row| {
                Some((row.hosts, y(row)?))
            })
        };
        let chart = Chart {
            title: "Time until all hosts know all".to_owned(),
            x: "hosts",
            y: "s",
            curves: vec![
                curve("DOCL, predicted", 5, Style::Limit, &|row| {
                    Some(row.predicted)
                }),
                curve("DOCL, observed", 1, Style::Model, &|row| Some(row.observed)),
                curve("DOCL's rule, simulated", 3, Style::Measured, &|row| {
                    Some(row.simulated)
                }),
                curve("Causeway, measured", 0, Style::Measured, &|row| {
                    row.measured
                }),
            ],
        };
        let file = folder.join("mesh.svg");
        lines::draw(&[chart], &file)?;
        Ok(file)
    }
}
