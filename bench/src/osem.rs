//! Experiment 2: list-mode OSEM, the reconstruction of a PET image from a list of single events.
//!
//! - [`program`]: the ordinary OpenCL program that reconstructs, in a process of its own.
//! - [`phantom`]: the scanned object and its events; [`siddon`]: lines through voxels; [`merit`]: the quality of an
//!   image. All of them are pure.
//! - [`report`]: tables, JSON, plot, pictures.
//!
//! The image of every run is compared with that of a plain run on one native device. Devices add to the correction
//! image in no fixed order, so the images are equal within the tolerance of `float`.
#![forbid(unsafe_code)]

mod merit;
pub(crate) mod phantom;
pub(crate) mod program;
mod report;
mod siddon;

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use serde::Serialize;

use crate::experiment::Common;
use crate::nodes::{Driver, Nodes};
use merit::{Merit, difference};
use phantom::Scanner;
use program::{Outcome, floats};
use report::{Report, Row};

type Error = Box<dyn std::error::Error>;

/// The image and its iterations.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Args)]
pub(crate) struct Reconstruction {
    /// Voxels along x and y; a quarter of it along z
    #[arg(long, default_value_t = 48, value_parser = at_least_one)]
    pub(crate) size: usize,
    /// Passes over all events
    #[arg(long, default_value_t = 5, value_parser = at_least_one)]
    pub(crate) iterations: usize,
    /// Parts of the events, each of which updates the image
    #[arg(long, default_value_t = 4, value_parser = at_least_one)]
    pub(crate) subsets: usize,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("at least 1".to_owned()),
        Ok(number) => Ok(number),
        Err(error) => Err(format!("{error}")),
    }
}

/// How to run it.
#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    reconstruction: Reconstruction,
    /// Number of events [default: 8 for each voxel]
    #[arg(long)]
    events: Option<usize>,
    /// Seed of the events
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Numbers of nodes [default: 1,2,4; at most one for each device where there are several]
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    nodes: Vec<usize>,
    /// The node's .icd folder
    #[arg(long, value_name = "DIR")]
    native_vendors: Option<PathBuf>,
    /// Run the program natively too, on as many devices of one machine
    #[arg(long)]
    native: bool,
    /// Leave out Causeway
    #[arg(long)]
    no_causeway: bool,
}

/// Largest difference to the plain run's image, divided by the image's largest value.
const TOLERANCE: f64 = 1e-3;

struct Experiment<'a> {
    options: &'a Options,
    scanner: Scanner,
    events: usize,
    nodes: Nodes,
    list: PathBuf,
    /// The plain run's last image.
    reference: Vec<f32>,
    names: Vec<String>,
    /// The largest difference of a device's sum along a line to the host's.
    sums: f64,
}

/// Runs it on all numbers of nodes, and reports.
pub(crate) fn run(options: &Options) -> Result<(), Error> {
    let driver = Driver::native(options.native_vendors.clone(), options.common.limit())?;
    let counts = match &options.nodes[..] {
        [] => vec![1, 2, 4],
        given => given.to_vec(),
    };
    let counts: Vec<usize> = match driver.devices() {
        several @ 2.. if options.nodes.is_empty() => counts
            .into_iter()
            .filter(|count| *count <= several)
            .collect(),
        _ => counts,
    };
    let most = counts.iter().copied().max().unwrap_or(1);
    let daemons = if options.no_causeway { 0 } else { most };
    let nodes = Nodes::start(driver, daemons, options.common.limit())?;
    let scanner = Scanner::new(options.reconstruction.size);
    let events = options.events.unwrap_or(8 * scanner.voxels());
    let mut experiment = Experiment {
        options,
        scanner,
        events,
        list: nodes.scratch().join("events"),
        nodes,
        reference: Vec::new(),
        names: Vec::new(),
        sums: 0.0,
    };
    let list = scanner.events(events, options.seed);
    let bytes: Vec<u8> = list.iter().flat_map(|part| part.to_ne_bytes()).collect();
    std::fs::write(&experiment.list, bytes)?;
    let (plain, images) = experiment.plain()?;
    let rows = experiment.measure(&counts, plain)?;
    let merits = images.iter().map(|image| Merit::of(&scanner, image, &list));
    let report = Report::new(&experiment, rows, merits.collect());
    print!("{report}");
    options.common.write_json(&report)?;
    let plots = options.common.plots()?;
    println!("plot: {}", report.draw(plots)?.display());
    for file in experiment.pictures(images, plots)? {
        println!("picture: {}", file.display());
    }
    Ok(())
}

impl Experiment<'_> {
    /// The plain run: one native device. Its images become the reference.
    fn plain(&mut self) -> Result<(Outcome, Vec<Vec<f32>>), Error> {
        let command = self.nodes.native("osem-program", 1)?;
        let (outcome, images) = self.run(command, 1)?;
        self.reference = images.last().cloned().unwrap_or_default();
        Ok((outcome, images))
    }

    /// The rows of the table: rounds over all numbers of nodes, each side in turn.
    fn measure(&mut self, counts: &[usize], plain: Outcome) -> Result<Vec<Row>, Error> {
        let mut rows: Vec<Row> = counts.iter().map(|nodes| Row::new(*nodes)).collect();
        let mut plain = vec![plain];
        for round in 1..=self.options.common.rounds {
            if round > 1 {
                let command = self.nodes.native("osem-program", 1)?;
                plain.push(self.run(command, 1)?.0);
            }
            for row in &mut rows {
                eprint!("\rround {round}: {} nodes   ", row.nodes);
                if !self.options.no_causeway {
                    let command = self.nodes.program("osem-program", row.nodes)?;
                    let outcome = self.compared(command, row)?;
                    row.causeway.push(outcome);
                }
                if self.options.native && row.nodes <= self.nodes.devices() {
                    let command = self.nodes.native("osem-program", row.nodes)?;
                    let outcome = self.compared(command, row)?;
                    row.native.push(outcome);
                }
            }
        }
        eprint!("\r{:40}\r", "");
        for row in &mut rows {
            row.plain.clone_from(&plain);
        }
        Ok(rows)
    }

    /// Makes a run, whose image must be the plain run's.
    fn compared(&mut self, command: Command, row: &mut Row) -> Result<Outcome, Error> {
        let (outcome, images) = self.run(command, row.nodes)?;
        let image = images.last().map_or(&[][..], Vec::as_slice);
        let difference = difference(image, &self.reference);
        if difference > TOLERANCE {
            let nodes = row.nodes;
            return Err(format!("the image of {nodes} nodes is another: {difference:.2e}").into());
        }
        row.difference = row.difference.max(difference);
        Ok(outcome)
    }

    fn run(
        &mut self,
        mut command: Command,
        nodes: usize,
    ) -> Result<(Outcome, Vec<Vec<f32>>), Error> {
        let what = self.options.reconstruction;
        let file = self.nodes.scratch().join("images");
        command
            .args(["--size", &what.size.to_string()])
            .args(["--iterations", &what.iterations.to_string()])
            .args(["--subsets", &what.subsets.to_string()])
            .args(["--devices", &nodes.to_string()])
            .arg("--list")
            .arg(&self.list)
            .arg("--images")
            .arg(&file);
        let outcome: Outcome = self.nodes.outcome(&mut command)?;
        if outcome.devices != nodes {
            let found = outcome.devices;
            return Err(format!("{nodes} devices were expected, {found} found").into());
        }
        if outcome.sums > TOLERANCE {
            return Err(format!("sums along lines are wrong by {:.2e}", outcome.sums).into());
        }
        self.sums = self.sums.max(outcome.sums);
        for name in &outcome.names {
            if !self.names.contains(name) {
                self.names.push(name.clone());
            }
        }
        let values = floats(&std::fs::read(file)?);
        let images = values
            .chunks_exact(self.scanner.voxels())
            .map(<[f32]>::to_vec);
        Ok((outcome, images.collect()))
    }

    /// Each iteration's middle slice, and all of them beside the phantom.
    fn pictures(&self, images: Vec<Vec<f32>>, folder: &Path) -> Result<Vec<PathBuf>, Error> {
        let zoom = (192 / self.scanner.size[0]).max(1);
        let mut files = Vec::new();
        for (iteration, image) in (1..).zip(&images) {
            let file = folder.join(format!("osem-{iteration}.png"));
            merit::pictures(&self.scanner, std::slice::from_ref(image), zoom).write(&file)?;
            files.push(file);
        }
        let mut all = images;
        all.push(merit::truth(&self.scanner));
        let file = folder.join("osem.png");
        merit::pictures(&self.scanner, &all, zoom).write(&file)?;
        files.push(file);
        Ok(files)
    }
}
