//! Experiment 1: one Mandelbrot picture on 1 to 16 nodes, its lines dealt round-robin.
//!
//! - [`program`]: the ordinary OpenCL program that draws it, in a process of its own.
//! - [`picture`]: its points, their cost, and their check; pure.
//! - [`mpi`]: the same by MPI and OpenCL, as the peer.
//! - [`report`]: table, JSON, plot.
//!
//! By default the devices are the fake driver's. A launch occupies its device for as long as its rows would take, but
//! no processor. So sixteen devices fit into a small machine, and the experiment measures what Causeway adds. With native
//! drivers, kernels and pictures are real.
#![forbid(unsafe_code)]

mod mpi;
pub(crate) mod picture;
pub(crate) mod program;
mod report;

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

use crate::experiment::{Common, Phases, powers_up_to};
use crate::nodes::{Driver, Nodes};
use mpi::Mpi;
use picture::View;
use program::Outcome;
use report::{Report, Row};

type Error = Box<dyn std::error::Error>;

/// How to run it.
#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    view: View,
    /// Numbers of nodes; with native drivers, powers of two up to the number of devices
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    nodes: Vec<usize>,
    /// Seconds that one fake device takes for the whole picture
    #[arg(long, default_value_t = 32.0)]
    device_seconds: f64,
    /// Draw for real, on the system's drivers
    #[arg(long)]
    real: bool,
    /// Draw for real, on the drivers of this .icd folder
    #[arg(long, value_name = "DIR")]
    native_vendors: Option<PathBuf>,
    /// Run the program natively too, on as many devices of one machine
    #[arg(long)]
    native: bool,
    /// Leave out MPI
    #[arg(long)]
    no_mpi: bool,
    /// Leave out Causeway
    #[arg(long)]
    no_causeway: bool,
}

impl Options {
    fn is_real(&self) -> bool {
        self.real || self.native_vendors.is_some()
    }
}

/// A side of the experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Causeway,
    Native,
    Mpi,
}

struct Experiment<'a> {
    options: &'a Options,
    nodes: Nodes,
    mpi: Result<Mpi, String>,
    /// The picture that all others must equal, by its checksum.
    reference: Option<u64>,
    /// The smallest share of right pixels in a run.
    right: f64,
    names: Vec<String>,
}

/// Smallest share of right pixels in a right picture. Rounding is the same everywhere, but a compiler may ignore
/// `FP_CONTRACT OFF`. Orbits near the edge then differ from the host's.
const RIGHT_ENOUGH: f64 = 0.98;

/// Runs all sides for all numbers of nodes, and reports.
pub(crate) fn run(options: &Options) -> Result<(), Error> {
    let folder = tempfile::tempdir()?;
    let driver = driver(options, folder.path())?;
    let counts = match &options.nodes[..] {
        [] if options.is_real() => powers_up_to(driver.devices()),
        [] => vec![1, 2, 4, 8, 16],
        given => given.to_vec(),
    };
    let most = counts.iter().copied().max().unwrap_or(1);
    let daemons = if options.no_causeway { 0 } else { most };
    let nodes = Nodes::start(driver, daemons, options.common.limit())?;
    let mpi = if options.no_mpi {
        Err("left out".to_owned())
    } else {
        Mpi::find(nodes.scratch())
    };
    let mut experiment = Experiment {
        options,
        nodes,
        mpi,
        reference: None,
        right: 1.0,
        names: Vec::new(),
    };
    let rows = experiment.measure(&counts)?;
    let report = Report::new(&experiment, rows);
    print!("{report}");
    options.common.write_json(&report)?;
    let plots = options.common.plots()?;
    println!("plot: {}", report.draw(plots)?.display());
    if options.is_real() {
        println!("picture: {}", plots.join("mandelbrot.png").display());
    }
    Ok(())
}

fn driver(options: &Options, folder: &Path) -> std::io::Result<Driver> {
    if options.is_real() {
        return Driver::native(options.native_vendors.clone(), options.common.limit());
    }
    let times = picture::row_times(&options.view.row_costs(8), options.device_seconds);
    let list: Vec<String> = times.iter().map(u64::to_string).collect();
    let file = folder.join("fake.toml");
    // Arguments 2 and 3 of the kernel are the first row and the stride.
    let text = format!(
        "[kernel.mandelbrot]\nrows = {{ first = 2, stride = 3, ns = [{}] }}\n",
        list.join(",")
    );
    std::fs::write(&file, text)?;
    Ok(Driver::Fake(file))
}

impl Experiment<'_> {
    /// The rows of the table: rounds over all numbers of nodes, each side in turn.
    fn measure(&mut self, counts: &[usize]) -> Result<Vec<Row>, Error> {
        let mut rows: Vec<Row> = counts.iter().map(|nodes| Row::new(*nodes)).collect();
        let mut plain = Vec::new();
        for round in 1..=self.options.common.rounds {
            if self.options.is_real() {
                plain.push(self.once(Side::Native, 1, true)?);
            }
            for row in &mut rows {
                eprint!("\rround {round}: {} nodes   ", row.nodes);
                if !self.options.no_causeway {
                    row.causeway
                        .push(self.once(Side::Causeway, row.nodes, false)?);
                }
                if self.options.native && row.nodes <= self.nodes.devices() {
                    row.native.push(self.once(Side::Native, row.nodes, false)?);
                }
                if self.mpi.is_ok() {
                    row.mpi.push(self.once(Side::Mpi, row.nodes, false)?);
                }
            }
        }
        eprint!("\r{:40}\r", "");
        for row in &mut rows {
            row.plain.clone_from(&plain);
        }
        Ok(rows)
    }

    fn once(&mut self, side: Side, nodes: usize, picture: bool) -> Result<Phases, Error> {
        if side == Side::Mpi {
            let mpi = self.mpi.as_ref().map_err(Clone::clone)?;
            let mut command = mpi.command(&self.nodes, &self.options.view, nodes);
            let told: mpi::Told = self.nodes.outcome(&mut command)?;
            self.compare(told.checksum, "MPI", nodes)?;
            return Ok(told.phases);
        }
        let mut command = match side {
            Side::Causeway => self.nodes.program("mandelbrot-program", nodes)?,
            _ => self.nodes.native("mandelbrot-program", nodes)?,
        };
        self.arguments(&mut command, nodes, picture)?;
        let outcome: Outcome = self.nodes.outcome(&mut command)?;
        if outcome.devices != nodes {
            let found = outcome.devices;
            return Err(format!("{nodes} devices were expected, {found} found").into());
        }
        if outcome.right < RIGHT_ENOUGH {
            let share = outcome.right * 100.0;
            return Err(format!("{side:?}, {nodes} nodes: {share:.1} % of pixels right").into());
        }
        self.right = self.right.min(outcome.right);
        self.compare(outcome.checksum, "a run", nodes)?;
        for name in &outcome.names {
            if !self.names.contains(name) {
                self.names.push(name.clone());
            }
        }
        Ok(outcome.phases)
    }

    fn arguments(&self, command: &mut Command, nodes: usize, picture: bool) -> Result<(), Error> {
        let view = self.options.view;
        command
            .args(["--width", &view.width.to_string()])
            .args(["--height", &view.height.to_string()])
            .args(["--iterations", &view.iterations.to_string()])
            .args(["--devices", &nodes.to_string()]);
        if !self.options.is_real() {
            command.arg("--fake");
        }
        if picture {
            let path = self.options.common.plots()?.join("mandelbrot.png");
            command.arg("--picture").arg(path);
        }
        Ok(())
    }

    /// All pictures of an experiment are the same, bit by bit.
    fn compare(&mut self, checksum: u64, what: &str, nodes: usize) -> Result<(), Error> {
        match self.reference.replace(checksum) {
            Some(before) if before != checksum => {
                Err(format!("the picture of {what} on {nodes} nodes is another").into())
            }
            _ => Ok(()),
        }
    }
}
