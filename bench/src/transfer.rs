//! Experiment 4 of the paper: transfers of 1 to 1024 MiB, beside iperf3 on the same link.
//!
//! - [`program`]: the ordinary OpenCL program that transfers, in a process of its own.
//! - [`iperf`]: the yardstick, with one stream as in the paper.
//! - [`report`]: tables, JSON, plots.
//!
//! Three hosts of [`causeway_network`] on this machine, joined by cables of a given rate: the
//! program on the first, a daemon on each other. Invariant: program and iperf3 use the same cables.
#![forbid(unsafe_code)]

pub(crate) mod program;
mod report;

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use causeway_network::{Network, Rate};
use clap::Args;

use crate::cables::{Cables, PROGRAM};
use crate::experiment::Common;
use crate::iperf;
use crate::nodes::run_within;
use program::{Outcome, Way};
use report::{Report, Runs};

type Error = Box<dyn std::error::Error>;

/// How to run it.
#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    /// Rates of the links, Gbit/s
    #[arg(long, value_delimiter = ',', value_name = "G,…", default_values_t = [1, 10])]
    rates: Vec<u32>,
    /// The largest transfer, MiB
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..))]
    largest: u32,
    /// The node's .icd folder
    #[arg(long, value_name = "DIR")]
    native_vendors: Option<PathBuf>,
    /// Leave out transfers from node to node
    #[arg(long)]
    no_between: bool,
}

/// Hosts with daemons.
const NODES: [usize; 2] = [1, 2];

/// Seconds of iperf3.
const SECONDS: u64 = 3;

/// Cables of one rate.
struct Rated<'a> {
    options: &'a Options,
    rate: u32,
    cables: Cables,
}

/// Runs it at all rates, and reports; without root or iperf3 it says so and does nothing.
pub(crate) fn run(options: &Options) -> Result<(), Error> {
    if let Err(reason) = iperf::find() {
        println!("transfer: skipped: {reason}");
        return Ok(());
    }
    let mut links = Vec::new();
    for rate in &options.rates {
        let network = match network(*rate) {
            Err(error) if error.is_unavailable() => {
                println!("transfer: skipped: {error}");
                return Ok(());
            }
            network => network?,
        };
        let cables = Cables::start(network, options.native_vendors.as_deref())?;
        let rated = Rated {
            options,
            rate: *rate,
            cables,
        };
        links.push(rated.measure()?);
    }
    let report = Report::new(options.common.rounds, links);
    print!("{report}");
    options.common.write_json(&report)?;
    for file in report.draw(options.common.plots()?)? {
        println!("plot: {}", file.display());
    }
    Ok(())
}

fn network(rate: u32) -> causeway_network::Result<Network> {
    let network = Network::builder()
        .hosts(1 + NODES.len())
        .rate(Rate::gbit(rate.into()));
    if rate > 1 {
        // On a busy machine, the bucket's owner does not run for longer than the default burst lasts.
        network.burst(Duration::from_millis(2)).build()
    } else {
        network.build()
    }
}

impl Rated<'_> {
    fn measure(&self) -> Result<Runs, Error> {
        let mut runs = Runs::new(self.rate);
        for round in 1..=self.options.common.rounds {
            eprint!("\rround {round}: {} Gbit/s, iperf3   ", self.rate);
            self.iperf(&mut runs.iperf)?;
            eprint!("\rround {round}: {} Gbit/s, transfers   ", self.rate);
            runs.add(self.transfers(1, false)?, None);
            if !self.options.no_between {
                eprint!("\rround {round}: {} Gbit/s, between nodes   ", self.rate);
                let before = self.cables.network.traffic()?;
                let outcome = self.transfers(NODES.len(), true)?;
                let crossed = self.cables.network.traffic()?.since(&before);
                let between = crossed.between(NODES[0], NODES[1]);
                runs.add(outcome, Some(between));
            }
        }
        eprint!("\r{:50}\r", "");
        Ok(runs)
    }

    fn iperf(&self, reached: &mut HashMap<Way, Vec<f64>>) -> io::Result<()> {
        let [first, second] = NODES;
        let mut ways = vec![(Way::Write, PROGRAM, first), (Way::Read, first, PROGRAM)];
        if !self.options.no_between {
            ways.push((Way::Between, first, second));
        }
        for (way, from, to) in ways {
            let speed = iperf::measure(&self.cables.network, from, to, 1, SECONDS)?;
            reached.entry(way).or_default().push(speed);
        }
        Ok(())
    }

    /// The program, over the first `count` nodes.
    fn transfers(&self, count: usize, between: bool) -> Result<Outcome, Error> {
        let mut command = self.cables.program("transfer-program", count)?;
        let sizes: Vec<String> = crate::experiment::powers_up_to(self.options.largest as usize)
            .iter()
            .map(|size| (size << 20).to_string())
            .collect();
        command.args(["--sizes", &sizes.join(",")]);
        if between {
            command.arg("--between");
        }
        let text = run_within(&mut command, self.options.common.limit())?;
        Ok(serde_json::from_str(
            text.lines().last().unwrap_or_default(),
        )?)
    }
}
