//! Experiment 4 of the paper: transfers of 1 to 1024 MiB, beside what iperf3 reaches on the link.
//!
//! - [`program`]: the ordinary OpenCL program that transfers, in a process of its own.
//! - [`iperf`]: the measure.
//! - [`report`]: tables, JSON, plots.
//!
//! Three hosts of [`causeway_network`] on this machine, joined by cables of a given rate: the
//! program on the first, a daemon on each other. Invariant: program and iperf3 use the same cables.
#![forbid(unsafe_code)]

mod iperf;
pub(crate) mod program;
mod report;

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use causeway_network::{Network, Rate};
use clap::Args;

use crate::experiment::Common;
use crate::nodes::run_within;
use crate::setup::{Build, Process, set_vendors};
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

/// Hosts of the network.
const PROGRAM: usize = 0;
const NODES: [usize; 2] = [1, 2];

/// Hosts with cables of one rate, and daemons on two of them.
struct Cables<'a> {
    options: &'a Options,
    rate: u32,
    network: Network,
    build: Build,
    client: PathBuf,
    daemons: Vec<(Process, String)>,
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
        links.push(Cables::new(options, *rate, network)?.measure()?);
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
        // A busy machine gives the bucket's owner no turn for longer than the default lasts.
        network.burst(Duration::from_millis(2)).build()
    } else {
        network.build()
    }
}

impl<'a> Cables<'a> {
    fn new(options: &'a Options, rate: u32, network: Network) -> Result<Cables<'a>, Error> {
        let build = Build::find()?;
        let client = build.vendors("causeway", "libcauseway.so")?;
        let mut daemons = Vec::new();
        for node in NODES {
            let host = network.host(node);
            let mut command = host.command(build.part("causewayd")?);
            let listen = format!("{}:0", host.address());
            // Nobody else can reach these hosts.
            command.args(["--listen", &listen, "--insecure", "--log", "error"]);
            set_vendors(&mut command, options.native_vendors.as_deref());
            daemons.push(Build::listening(&mut command)?);
        }
        Ok(Cables {
            options,
            rate,
            network,
            build,
            client,
            daemons,
        })
    }

    fn measure(&self) -> Result<Runs, Error> {
        let mut runs = Runs::new(self.rate);
        for round in 1..=self.options.common.rounds {
            eprint!("\rround {round}: {} Gbit/s, iperf3   ", self.rate);
            self.iperf(&mut runs.iperf)?;
            eprint!("\rround {round}: {} Gbit/s, transfers   ", self.rate);
            runs.add(self.transfers(1, false)?, None);
            if !self.options.no_between {
                eprint!("\rround {round}: {} Gbit/s, between nodes   ", self.rate);
                let before = self.network.traffic()?;
                let outcome = self.transfers(NODES.len(), true)?;
                let crossed = self.network.traffic()?.since(&before);
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
            let speed = iperf::measure(&self.network, from, to)?;
            reached.entry(way).or_default().push(speed);
        }
        Ok(())
    }

    /// The program, over the first `count` nodes.
    fn transfers(&self, count: usize, between: bool) -> Result<Outcome, Error> {
        let mut command = self.network.host(PROGRAM).command(self.build.own_path()?);
        set_vendors(&mut command, Some(&self.client));
        let servers: Vec<&str> = self.daemons[..count]
            .iter()
            .map(|(_, address)| address.as_str())
            .collect();
        let sizes: Vec<String> = crate::experiment::powers_up_to(self.options.largest as usize)
            .iter()
            .map(|size| (size << 20).to_string())
            .collect();
        command
            .args(["transfer-program", "--sizes", &sizes.join(",")])
            .env("CAUSEWAY_SERVERS", servers.join(","))
            .env_remove("CAUSEWAY_CONFIG");
        if between {
            command.arg("--between");
        }
        let text = run_within(&mut command, self.options.common.limit())?;
        Ok(serde_json::from_str(
            text.lines().last().unwrap_or_default(),
        )?)
    }
}
