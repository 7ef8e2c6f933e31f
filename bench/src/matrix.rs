//! Experiment: a chain of matrix products, Aᵢ = Aᵢ₋₁ · B, by a farm and a plain program through Causeway, and by MPI natively.
//!
//! ```text
//! bench matrix ──► matrix-master ──► matrix-worker ──► causewayd   one for each node
//!         │           farm.rs: who gets what
//!         ├──────► matrix-plain ──► causewayd                      all nodes
//!         └──────► mpirun ──► matrix_mpi                           one for each node
//! ```
//! - [`farm`]: the farm's core; pure. [`field`]: the matrices and their check; pure. [`schedule`]: failures; pure.
//! - [`master`], [`pool`], [`worker`], [`frame`]: the farm's processes, and what they send each other.
//! - [`plain`]: the plain program, whose commands the library executes again if a node is lost.
//! - [`state`]: checkpoints; [`progress`]: what programs report; [`mpi`]: the peer.
//! - [`trial`]: one run, with failures or without.
//! - [`grains`]: the reference's figure 10, time by grain and nodes; [`failures`]: its figure 11, time by MTBF.
//!
//! The reference is the one of [`sustainability`](crate::sustainability). Invariant: all results of an experiment are
//! the same matrix, which the host has checked.
#![forbid(unsafe_code)]

mod failures;
mod farm;
mod field;
mod frame;
mod grains;
pub(crate) mod master;
mod mpi;
pub(crate) mod plain;
mod pool;
mod progress;
mod schedule;
mod state;
mod trial;
pub(crate) mod worker;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use crate::experiment::Common;
use crate::nodes::{Driver, Nodes, Settings};
use crate::sustainability::time;
use mpi::Mpi;
use schedule::Schedule;
use state::ChainState;
use trial::{Outcome, Side, Trial};

type Error = Box<dyn std::error::Error>;

/// How to run it.
#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    /// Rows and columns of the matrices
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u16).range(1..=16384))]
    size: u16,
    /// Number of products [default: 10; with --mtbf 400]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    multiplications: Option<u64>,
    /// Numbers of nodes [default: 1,2,4,8; with --mtbf, only the largest counts: 4]
    #[arg(long, value_delimiter = ',', value_name = "N,…", value_parser = clap::value_parser!(u16).range(1..=64))]
    nodes: Vec<u16>,
    /// Rows of a piece of the farm's work [default: a 64th to a quarter of the rows; with --mtbf, only the first counts]
    #[arg(long, value_delimiter = ',', value_name = "ROWS,…", value_parser = clap::value_parser!(u16).range(1..))]
    grains: Vec<u16>,
    /// Kill processes with these mean times between failures, e.g. 5s,20s, and measure the time until the result
    #[arg(long, value_delimiter = ',', value_name = "TIME,…", value_parser = time)]
    mtbf: Vec<Duration>,
    /// With --mtbf, at most this many failures in a run
    #[arg(long, value_name = "COUNT")]
    failures: Option<u64>,
    /// When work that a worker has taken is late
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = time)]
    late: Duration,
    /// The seed of matrices and failures
    #[arg(long, default_value_t = 1)]
    seed: u32,
    /// Threads that PoCL uses for a node's device; 0: as many as it wants
    #[arg(long, default_value_t = 1)]
    threads: u16,
    /// The .icd folder of the nodes [default: the system's]
    #[arg(long, value_name = "DIR")]
    native_vendors: Option<PathBuf>,
    /// Leave out MPI
    #[arg(long)]
    no_mpi: bool,
}

/// The chain of products.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Chain {
    /// Rows and columns.
    size: usize,
    /// Number of products.
    multiplications: u64,
    /// The seed of the first matrix; the factor has the next one.
    seed: u64,
    /// When a worker's work is late.
    late: Duration,
}

impl Chain {
    /// Checks a result on the host. Returns its checksum.
    fn check(&self, result: &ChainState) -> Result<u64, Error> {
        if result.round != self.multiplications {
            return Err(format!("the result has {} products", result.round).into());
        }
        let first = field::random(self.size, self.seed);
        let factor = field::random(self.size, self.seed + 1);
        let (times, size) = (self.multiplications, self.size);
        if !field::is_product(&first, &factor, times, &result.matrix, size) {
            return Err("the result is not the product that the host computes".into());
        }
        Ok(field::checksum(&result.matrix))
    }
}

/// A program that computes the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Program {
    /// The farm, with rows of a piece of work.
    Farm(usize),
    Mpi,
    /// The plain program, whose commands are executed again.
    Plain,
}

struct Experiment {
    chain: Chain,
    nodes: Nodes,
    mpi: Result<Mpi, String>,
    limit: Duration,
    /// The checksum that all results must have.
    reference: Option<u64>,
}

/// Runs the experiment, with failures if there is a mean time between them, and reports.
pub(crate) fn run(options: &Options) -> Result<(), Error> {
    let size = usize::from(options.size);
    let mut counts: Vec<usize> = options.nodes.iter().copied().map(usize::from).collect();
    if counts.is_empty() {
        counts = if options.mtbf.is_empty() {
            vec![1, 2, 4, 8]
        } else {
            vec![4]
        };
    }
    let most = counts.iter().copied().max().unwrap_or(1);
    let grains = chosen_grains(options, size, most)?;
    let default = if options.mtbf.is_empty() { 10 } else { 400 };
    let mut experiment = Experiment::start(options, size, most, default)?;
    if options.mtbf.is_empty() {
        grains::run(options, &mut experiment, &counts, &grains)
    } else {
        failures::run(options, &mut experiment, most, grains[0])
    }
}

/// The grains to measure, at least one. Each is a whole part of the rows, or as given.
fn chosen_grains(options: &Options, size: usize, nodes: usize) -> Result<Vec<usize>, Error> {
    let given: Vec<usize> = options.grains.iter().copied().map(usize::from).collect();
    if let Some(large) = given.iter().find(|grain| **grain > size) {
        return Err(
            format!("a grain of {large} rows is too large; expected at most {size}").into(),
        );
    }
    if !given.is_empty() {
        return Ok(given);
    }
    if !options.mtbf.is_empty() {
        return Ok(vec![(size / (4 * nodes)).max(1)]);
    }
    let mut grains: Vec<usize> = [64, 32, 16, 8, 4].map(|part| (size / part).max(1)).to_vec();
    grains.dedup();
    Ok(grains)
}

impl Experiment {
    fn start(options: &Options, size: usize, most: usize, times: u64) -> Result<Self, Error> {
        let limit = options.common.limit();
        let driver = Driver::native(options.native_vendors.clone(), limit)?;
        let variables = match options.threads {
            0 => Vec::new(),
            threads => vec![("POCL_MAX_PTHREAD_COUNT", threads.to_string())],
        };
        let settings = Settings {
            variables,
            ..Settings::default()
        };
        let nodes = Nodes::start_with(driver, most, limit, settings)?;
        let mpi = if options.no_mpi {
            Err("left out".to_owned())
        } else {
            Mpi::find(nodes.scratch())
        };
        Ok(Experiment {
            chain: Chain {
                size,
                multiplications: options.multiplications.unwrap_or(times),
                seed: options.seed.into(),
                late: options.late,
            },
            nodes,
            mpi,
            limit,
            reference: None,
        })
    }

    /// The programs that can be measured.
    fn has(&self, program: Program) -> bool {
        program != Program::Mpi || self.mpi.is_ok()
    }

    /// Runs a program once, on `count` nodes, with checkpoints `interval` seconds apart.
    fn once(
        &mut self,
        program: Program,
        count: usize,
        interval: f64,
        schedule: Option<Schedule>,
    ) -> Result<Outcome, Error> {
        let side = match program {
            Program::Farm(grain) => Side::Farm { grain },
            Program::Mpi => Side::Mpi(self.mpi.as_ref().map_err(Clone::clone)?),
            Program::Plain => Side::Plain,
        };
        let mut trial = Trial {
            nodes: &mut self.nodes,
            chain: &self.chain,
            side,
            count,
            interval,
            limit: self.limit,
        };
        let (outcome, checksum) = trial.run(schedule)?;
        match self.reference.replace(checksum) {
            Some(before) if before != checksum => Err("two runs have different results".into()),
            _ => Ok(outcome),
        }
    }
}
