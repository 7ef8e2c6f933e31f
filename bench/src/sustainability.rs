//! Experiment: what failures cost a run, after the model of the paper's reference, and what tolerating them is worth.
//!
//! - [`model`]: the formulas; pure.
//! - [`simulation`]: runs with random failures, to check them; pure.
//! - [`overheads`]: the curves of the reference's figure 9; pure.
//! - [`parking`]: the one time that is measured here, of a session that is parked and taken back.
//! - [`report`]: table, JSON, plot.
//!
//! The reference is the paper of Shi, Taifi, Khreishah and Wu on a tuple switching network. Invariant: the report says of
//! each time whether it was given or measured.
#![forbid(unsafe_code)]

pub(crate) mod model;
mod overheads;
pub(crate) mod parking;
mod report;
mod simulation;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::experiment::Common;
use crate::measured::{Kept, Loss, Parking};
use model::Model;
use overheads::Overhead;
use report::{Given, Report};

type Error = Box<dyn std::error::Error>;

/// How to run it.
#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    /// Mean time between failures of any process
    #[arg(long, value_name = "TIME", default_value = "3h", value_parser = time)]
    mtbf: Duration,
    /// K0: the time that a checkpoint takes
    #[arg(long, value_name = "TIME", default_value = "10min", value_parser = time)]
    k0: Duration,
    /// K1: the time of a recovery from a checkpoint
    #[arg(long, value_name = "TIME", default_value = "10min", value_parser = time)]
    k1: Duration,
    /// X: the time that a tolerated failure of a worker costs
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = time)]
    x: Duration,
    /// P: the number of processes, one of which is critical
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..))]
    processors: u32,
    /// S: how much slower the program is that tolerates failures
    #[arg(long, value_name = "FACTOR", default_value = "3", value_parser = factor)]
    slowdown: f64,
    /// The length of a run without failures, for the question whether it needs checkpoints
    #[arg(long, value_name = "TIME", default_value = "30h", value_parser = time)]
    run: Duration,
    /// Overheads of checkpoints in the plot, percent
    #[arg(long, value_delimiter = ',', value_name = "PERCENT,…", default_value = "5,15,25,35", value_parser = percent)]
    overheads: Vec<f64>,
    /// Intervals of each simulated run
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..))]
    intervals: u32,
    /// The seed of the simulated failures
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Measure the parking of a session with this much device memory, MiB, and write it to DIR/parking.json
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..))]
    park: Option<u32>,
    /// The .icd folder of the node whose sessions are parked [default: the system's]
    #[arg(long, value_name = "DIR")]
    native_vendors: Option<PathBuf>,
}

/// A time such as `90s`.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text)
        .map_err(|_| format!("invalid duration `{text}`; expected e.g. `90s`"))?;
    match time.is_zero() {
        true => Err(format!("invalid duration `{text}`; expected more than 0")),
        false => Ok(time),
    }
}

/// How many times slower, at least 1.
fn factor(text: &str) -> Result<f64, String> {
    let factor = text
        .parse()
        .ok()
        .filter(|factor| (1.0..1e6).contains(factor));
    factor.ok_or_else(|| format!("invalid factor `{text}`; expected e.g. `3`"))
}

/// A share in percent.
fn percent(text: &str) -> Result<f64, String> {
    let share = text
        .parse()
        .ok()
        .filter(|share| *share > 0.0 && *share <= 100.0);
    share.ok_or_else(|| format!("invalid percentage `{text}`; expected e.g. `35`"))
}

impl Options {
    fn model(&self) -> Model {
        Model {
            mtbf: self.mtbf.as_secs_f64(),
            create: self.k0.as_secs_f64(),
            recover: self.k1.as_secs_f64(),
            loss: self.x.as_secs_f64(),
            processors: self.processors.into(),
        }
    }
}

/// Calculates, measures parking if requested, and reports.
pub(crate) fn run(options: &Options) -> Result<(), Error> {
    let plots = options.common.plots()?;
    if let Some(mebibytes) = options.park {
        let bytes = u64::from(mebibytes) << 20;
        let parking = parking::measure(&options.common, options.native_vendors.clone(), bytes)?;
        parking.write(plots)?;
    }
    let model = options.model();
    let overhead = |percent: &f64| Overhead::new(&model, percent / 100.0);
    let report = Report::new(Given {
        model,
        slowdown: options.slowdown,
        run: options.run.as_secs_f64(),
        intervals: options.intervals,
        seed: options.seed,
        overheads: options.overheads.iter().map(overhead).collect(),
        parking: Parking::read(plots)?,
        loss: Loss::read(plots)?,
    });
    print!("{report}");
    options.common.write_json(&report)?;
    println!("plot: {}", report.draw(plots)?.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit_and_are_positive() {
        assert_eq!(time("3h"), Ok(Duration::from_secs(10_800)));
        for wrong in ["9x", "", "0s"] {
            assert!(time(wrong).unwrap_err().contains(wrong));
        }
    }

    #[test]
    fn factors_and_percentages_have_a_range() {
        assert_eq!((factor("1.5"), percent("35")), (Ok(1.5), Ok(35.0)));
        for wrong in ["0.5", "x", "NaN", "inf"] {
            assert!(factor(wrong).unwrap_err().contains(wrong));
        }
        for wrong in ["0", "-1", "101", "NaN"] {
            assert!(percent(wrong).unwrap_err().contains(wrong));
        }
    }
}
