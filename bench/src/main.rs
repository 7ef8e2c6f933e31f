//! Measurements: native, a bare TCP socket and Causeway, in one run.
//!
//! ```text
//! runner ──spawns──► probe (native driver)      the same measuring code, in turns,
//!    │   ├─────────► probe (through Causeway)   a round each
//!    │   ├─────────► causewayd
//!    └── socket      bare TCP against a child process
//! ```
//! - [`rows`]: what is measured, and what each row is compared with.
//! - [`probe`]: the measuring side, one process per platform; talks JSON lines with the runner.
//! - [`opencl`]: the few OpenCL calls that probes make, through the system's loader.
//! - [`socket`]: the floor: the same bytes over bare TCP.
//! - [`report`], [`plot`]: table, JSON, SVG.
//!
//! The paper's experiments, one command each, are ordinary OpenCL programs over several nodes:
//! - [`mandelbrot`]: one picture on 1 to 16 nodes, and by MPI.
//! - [`osem`]: the reconstruction of a PET image on 1 to 4 nodes.
//! - [`transfer`]: 1 to 1024 MiB over a link of a given rate, beside iperf3.
//! - [`devices`]: the side of such a program; [`nodes`]: the daemons on loopback that it runs over.
//! - [`experiment`], [`bars`], [`png`], [`dealing`]: what they share.
//!
//! No time is asserted anywhere: the figures are reported, with the ratios that matter. Invariant: what
//! stands in one line was measured in one run, in alternating rounds.

mod bars;
mod dealing;
mod devices;
mod experiment;
mod mandelbrot;
mod nodes;
mod opencl;
mod osem;
mod plot;
mod png;
mod probe;
mod report;
mod rows;
mod runner;
mod setup;
mod socket;
mod transfer;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Measure native OpenCL, a bare TCP socket and Causeway in one run.
#[derive(Debug, Parser)]
#[command(name = "bench", version)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Enqueue, launch and finish, small reads, builds, enumeration
    Latency(Options),
    /// Blocking writes and reads of 4 KiB to 1 GiB, map and unmap
    Bandwidth(Options),
    /// Commands a second on the fake driver
    Commands(Options),
    /// Latency, bandwidth and commands
    All(Options),
    /// The paper's Mandelbrot on several nodes, and by MPI
    Mandelbrot(mandelbrot::Options),
    /// The paper's list-mode OSEM on several nodes
    Osem(osem::Options),
    /// The reconstruction itself; started by the experiment
    #[command(hide = true)]
    OsemProgram(osem::program::Arguments),
    /// The paper's transfers over links of 1 and 10 Gbit/s, beside iperf3; needs root
    Transfer(transfer::Options),
    /// The transfers themselves; started by the experiment
    #[command(hide = true)]
    TransferProgram(transfer::program::Arguments),
    /// The Mandelbrot itself; started by the experiment
    #[command(hide = true)]
    MandelbrotProgram(mandelbrot::program::Arguments),
    /// Prints how many devices a program finds; started by the experiments
    #[command(hide = true)]
    DeviceCount,
    /// The measuring side; started by the others
    #[command(hide = true)]
    Probe,
    /// Prints how long this process's first clGetDeviceIDs took; started by the others
    #[command(hide = true)]
    FirstDevices,
    /// The other end of the bare socket; started by the others
    #[command(hide = true)]
    SocketPeer,
}

/// How to measure.
#[derive(Debug, Clone, clap::Args)]
struct Options {
    /// Also write the results to this file
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "bench.json")]
    json: Option<PathBuf>,
    /// Draw the plots into this folder
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    plots: PathBuf,
    /// Alternating rounds; the table shows medians over them
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// The largest transfer, MiB
    #[arg(long, default_value_t = 1024)]
    largest: u64,
    /// The node's .icd folder: what the daemon and the native side load
    #[arg(long, value_name = "DIR")]
    native_vendors: Option<PathBuf>,
    /// The command carrier to measure
    #[arg(long, default_value = "direct")]
    carrier: String,
}

fn main() -> ExitCode {
    let result = match Arguments::parse().verb {
        Verb::Latency(options) => runner::run(&options, &[rows::Group::Latency]),
        Verb::Bandwidth(options) => runner::run(&options, &[rows::Group::Bandwidth]),
        Verb::Commands(options) => runner::run(&options, &[rows::Group::Commands]),
        Verb::All(options) => runner::run(
            &options,
            &[
                rows::Group::Latency,
                rows::Group::Bandwidth,
                rows::Group::Commands,
            ],
        ),
        Verb::Mandelbrot(options) => mandelbrot::run(&options),
        Verb::MandelbrotProgram(arguments) => mandelbrot::program::run(&arguments),
        Verb::Osem(options) => osem::run(&options),
        Verb::OsemProgram(arguments) => osem::program::run(&arguments),
        Verb::Transfer(options) => transfer::run(&options),
        Verb::TransferProgram(arguments) => transfer::program::run(&arguments),
        Verb::DeviceCount => devices::count()
            .map(|count| println!("{count}"))
            .map_err(Into::into),
        Verb::Probe => probe::serve(),
        Verb::FirstDevices => probe::first_devices(),
        Verb::SocketPeer => socket::peer(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}
