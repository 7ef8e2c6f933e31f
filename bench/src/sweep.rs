//! Experiment: how long it takes to measure all pairs of hosts: DOCL's figures 22 to 26, and our plan of rounds.
//!
//! - [`protocol`]: DOCL's protocol of mutual exclusion, in simulated time; pure.
//! - [`ours`]: `causeway links --measure` among real daemons on an emulated network.
//!
//! The reference is Dillon's dissertation on DOCL (2012). Invariant: the report says of each figure whether it was
//! simulated or measured.
#![forbid(unsafe_code)]

mod ours;
mod protocol;

use std::fmt;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use crate::experiment::{Common, median};
use crate::lines::{self, Chart, Curve, Style};
use crate::random::Random;

type Error = Box<dyn std::error::Error>;

/// Networks of DOCL's experiment.
const NETWORKS: u32 = 2;

/// How to run it.
#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    /// Numbers of hosts
    #[arg(long, value_delimiter = ',', value_name = "N,…", default_value = "3,4,5,6,7,8", value_parser = clap::value_parser!(u16).range(2..=16))]
    hosts: Vec<u16>,
    /// Simulated runs on each of two networks, for each number of hosts
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// The seed of the simulated runs
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Seconds of each direction of ours, up to 10
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10))]
    seconds: u32,
    /// Only simulate; needs no root
    #[arg(long)]
    simulated: bool,
}

/// The figures for one number of hosts.
#[derive(Debug, Serialize)]
struct Row {
    hosts: u16,
    /// The least possible number of rounds.
    rounds: usize,
    /// The mean of DOCL's simulated times, as a multiple of the least time.
    simulated: f64,
    /// Simulated rounds above the least number, on average.
    simulated_extra: f64,
    /// The time of ours as a multiple of the least one; the median.
    measured: Option<f64>,
}

/// The table.
#[derive(Debug, Serialize)]
struct Report {
    rows: Vec<Row>,
    /// Shares of the simulated times that are near a multiple of 60 s: within 1 s, and within 10 s.
    near: [f64; 2],
}

/// Mark for ours, as a multiple of the least time. With fewer than 20 rounds, one more would miss it.
const MARK: f64 = 1.05;

/// Simulates, measures, and reports. Returns whether the mark was met.
pub(crate) fn run(options: &Options) -> Result<bool, Error> {
    let plots = options.common.plots()?;
    let (mut rows, mut all) = (Vec::new(), Vec::new());
    for hosts in &options.hosts {
        let count = usize::from(*hosts);
        let rounds = causeway_links::rounds(count).len();
        let mut random = Random::new(options.seed ^ u64::from(*hosts));
        let times: Vec<f64> = (0..options.runs * NETWORKS)
            .map(|_| protocol::sweep(count, &mut random))
            .collect();
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        all.extend(&times);
        let mut measured = Vec::new();
        for _ in 0..if options.simulated {
            0
        } else {
            options.common.rounds
        } {
            measured.push(ours::sweep(count, options.seconds, options.common.limit())?);
        }
        let factors: Vec<f64> = (measured.iter())
            .map(|seconds| seconds / (rounds as f64 * 2.0 * f64::from(options.seconds)))
            .collect();
        rows.push(Row {
            hosts: *hosts,
            rounds,
            simulated: mean / (rounds as f64 * protocol::DURATION),
            simulated_extra: mean / protocol::DURATION - rounds as f64,
            measured: median(&factors),
        });
    }
    let share = |within: f64| {
        let near = |of: &&f64| (*of - (*of / 60.0).round() * 60.0).abs() <= within;
        all.iter().filter(near).count() as f64 / all.len() as f64
    };
    let report = Report {
        rows,
        near: [share(1.0), share(10.0)],
    };
    print!("{report}");
    options.common.write_json(&report)?;
    println!("plot: {}", report.draw(plots)?.display());
    let mut measured = report.rows.iter().filter_map(|row| row.measured);
    let is_met = measured.all(|factor| factor <= MARK);
    if !is_met {
        println!("missed: ours takes {MARK} times the least time at most");
    }
    Ok(is_met)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "time to measure all pairs, as a multiple of the least time"
        )?;
        writeln!(f, "hosts  rounds  DOCL, simulated  extra rounds  ours")?;
        for row in &self.rows {
            let ours = row.measured.map_or("-".to_owned(), |of| format!("{of:.3}"));
            writeln!(
                f,
                "{:5}  {:6}  {:15.3}  {:12.2}  {ours:>5}",
                row.hosts, row.rounds, row.simulated, row.simulated_extra
            )?;
        }
        let [one, ten] = self.near.map(|of| of * 100.0);
        writeln!(
            f,
            "simulated times within 1 s of a multiple of 60 s: {one:.0} % (DOCL: 37 %), within 10 s: {ten:.0} % (DOCL: 85 %)"
        )
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
            title: "Time to measure all pairs".to_owned(),
            x: "hosts",
            y: "multiple of the least time",
            curves: vec![
                curve("least", 5, Style::Limit, &|_| Some(1.0)),
                curve("DOCL's protocol, simulated", 3, Style::Measured, &|row| {
                    Some(row.simulated)
                }),
                curve("Causeway, measured", 0, Style::Measured, &|row| {
                    row.measured
                }),
            ],
        };
        let file = folder.join("sweep.svg");
        lines::draw(&[chart], &file)?;
        Ok(file)
    }
}
