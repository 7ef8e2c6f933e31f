//! A server with two addresses: transfers over one link, over two, and over two of which one is cut.
//!
//! - [`program`]: the ordinary OpenCL program that transfers, in a process of its own.
//! - [`wires`]: the hosts, their two cables, and what arrives over them.
//! - [`report`]: table, JSON, plot.
//!
//! Invariant: what is compared used the same cables.
#![forbid(unsafe_code)]

pub(crate) mod program;
mod report;
mod wires;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use causeway_network::{Network, Rate};
use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::experiment::Common;
use crate::setup::Process;
use program::Outcome;
use report::{Report, Run};
use wires::{Sample, Wires};

type Error = Box<dyn std::error::Error>;

/// How to run it.
#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    /// The rate of each link, Gbit/s
    #[arg(long, default_value_t = 1)]
    rate: u32,
    /// Bytes of a run, MiB
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..))]
    size: u32,
    /// Bytes of each blocking call, MiB
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    piece: u32,
}

/// The direction of the transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Direction {
    /// To the node.
    Write,
    /// From the node.
    Read,
}

/// What happens to the links during a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Links {
    One,
    Two,
    /// Two, of which this one is cut when a third of the bytes has arrived.
    Cut(usize),
}

/// Runs it and reports. Returns whether all marks were met; without root it says so and does nothing.
pub(crate) fn run(options: &Options) -> Result<bool, Error> {
    match Network::possible() {
        Err(error) if error.is_unavailable() => {
            println!("rails: skipped: {error}");
            return Ok(true);
        }
        possible => possible?,
    }
    let wires = Wires::lay(Rate::gbit(options.rate.into()))?;
    let mut report = Report::new(options.common.rounds, options.rate);
    for round in 1..=options.common.rounds {
        for direction in [Direction::Write, Direction::Read] {
            for links in [Links::One, Links::Two, Links::Cut(0), Links::Cut(1)] {
                eprint!("\rround {round}: {direction:?}, {links:?}     ");
                report.add(measure(options, &wires, direction, links)?);
            }
        }
    }
    eprintln!("\r{:40}", "");
    print!("{report}");
    options.common.write_json(&report)?;
    let file = report.draw(options.common.plots()?)?;
    println!("plot: {}", file.display());
    Ok(report.is_met())
}

fn measure(
    options: &Options,
    wires: &Wires,
    direction: Direction,
    links: Links,
) -> Result<Run, Error> {
    let bytes = u64::from(options.size) << 20;
    let rails = if links == Links::One { 1 } else { 2 };
    let mut command = wires.program("rails-program", rails)?;
    command
        .args(["--bytes", &bytes.to_string()])
        .args(["--piece", &(u64::from(options.piece) << 20).to_string()])
        .args([
            "--direction",
            if direction == Direction::Read {
                "read"
            } else {
                "write"
            },
        ]);
    let mut program = Process::start(&mut command)?;
    until(&mut program, "begin")?;
    let is_over = AtomicBool::new(false);
    let (samples, cut, ended) = std::thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let (mut first, mut cut) = (None, None);
            let samples = wires.watch(direction, &is_over, |sample| {
                let begun = *first.get_or_insert(sample.sum());
                if let Links::Cut(cable) = links
                    && cut.is_none()
                    && sample.sum() - begun >= bytes / 3
                {
                    cut = Some(wires.cut(cable).map(|()| Instant::now()));
                }
            });
            (samples, cut)
        });
        let ended = until(&mut program, "end");
        is_over.store(true, Ordering::Release);
        let watched = watching.join();
        watched.map(|(samples, cut)| (samples, cut, ended))
    })
    .map_err(|_| "the watching thread panicked")?;
    let finished = ended.and_then(|()| Ok(program.line()?));
    let cut = cut.transpose()?;
    if cut.is_some() {
        wires.mend()?;
    }
    let outcome: Outcome = serde_json::from_str(&finished?)?;
    let samples: Vec<Sample> = samples?;
    Ok(Run::new(direction, links, bytes, outcome, &samples, cut))
}

/// Reads the program's lines up to this one.
fn until(program: &mut Process, wanted: &str) -> Result<(), Error> {
    while program.line()? != wanted {}
    Ok(())
}
