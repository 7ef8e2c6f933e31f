//! The tables, the JSON and the plot of the reconstruction.
#![forbid(unsafe_code)]

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::merit::Merit;
use super::program::Outcome;
use super::{Experiment, Reconstruction};
use crate::bars::{self, Bar, Group};
use crate::experiment::{Figure, Phases, median, nodes, seconds, total};

/// The runs on one number of nodes.
#[derive(Debug, Default)]
pub(crate) struct Row {
    /// Number of nodes.
    pub(crate) nodes: usize,
    /// Through Causeway.
    pub(crate) causeway: Vec<Outcome>,
    /// On one machine with as many devices.
    pub(crate) native: Vec<Outcome>,
    /// On one native device, whatever the number of nodes.
    pub(crate) plain: Vec<Outcome>,
    /// The largest difference of an image to the plain run's.
    pub(crate) difference: f64,
}

impl Row {
    /// Makes a row without any runs.
    pub(crate) fn new(nodes: usize) -> Row {
        Row {
            nodes,
            ..Row::default()
        }
    }
}

/// The runs of one kind, in one row.
#[derive(Debug, Clone, Copy, Serialize)]
struct Runs {
    #[serde(flatten)]
    figure: Figure,
    /// The median of all iterations, s.
    iteration: f64,
}

impl Runs {
    fn of(outcomes: &[Outcome]) -> Option<Runs> {
        let phases: Vec<Phases> = outcomes.iter().map(|outcome| outcome.phases).collect();
        let iterations: Vec<f64> = outcomes
            .iter()
            .flat_map(|outcome| outcome.iterations.iter().copied())
            .collect();
        Some(Runs {
            figure: Figure::of(&phases)?,
            iteration: median(&iterations)?,
        })
    }
}

#[derive(Debug, Serialize)]
struct Figures {
    nodes: usize,
    causeway: Option<Runs>,
    native: Option<Runs>,
    /// The largest difference to the plain run's image, over its largest value.
    difference: f64,
}

/// The whole report.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    reconstruction: Reconstruction,
    events: usize,
    devices: Vec<String>,
    rounds: u16,
    cores: usize,
    /// The largest difference of a device's sum along a line to the host's.
    sums: f64,
    plain: Option<Runs>,
    rows: Vec<Figures>,
    /// The merits of the plain run, by iteration.
    merits: Vec<Merit>,
}

impl Report {
    /// The report of all runs.
    pub(crate) fn new(experiment: &Experiment<'_>, rows: Vec<Row>, merits: Vec<Merit>) -> Report {
        let options = experiment.options;
        Report {
            reconstruction: options.reconstruction,
            events: experiment.events,
            devices: experiment.names.clone(),
            rounds: options.common.rounds,
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            sums: experiment.sums,
            plain: rows.first().and_then(|row| Runs::of(&row.plain)),
            rows: rows
                .iter()
                .map(|row| Figures {
                    nodes: row.nodes,
                    causeway: Runs::of(&row.causeway),
                    native: Runs::of(&row.native),
                    difference: row.difference,
                })
                .collect(),
            merits,
        }
    }

    /// Draws the bars into a folder.
    pub(crate) fn draw(&self, folder: &Path) -> Result<PathBuf, Box<dyn std::error::Error>> {
        let bar = |label: &str, runs: Option<Runs>| {
            runs.map(|runs| Bar {
                label: label.to_owned(),
                seconds: runs.figure.phases.stack(),
            })
        };
        let plain = Group {
            caption: "one device".to_owned(),
            bars: bar("plain", self.plain).into_iter().collect(),
        };
        let rows = self.rows.iter().map(|row| Group {
            caption: nodes(row.nodes),
            bars: [bar("ours", row.causeway), bar("one box", row.native)]
                .into_iter()
                .flatten()
                .collect(),
        });
        let groups: Vec<Group> = std::iter::once(plain).chain(rows).collect();
        let title = format!(
            "list-mode OSEM, {} events, {} iterations of {} subsets",
            self.events, self.reconstruction.iterations, self.reconstruction.subsets
        );
        let file = folder.join("osem.svg");
        bars::draw(&title, &groups, &file)?;
        Ok(file)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Reconstruction {
            size,
            iterations,
            subsets,
        } = self.reconstruction;
        writeln!(
            f,
            "list-mode OSEM: {size} × {size} × {} voxels, {} events, {iterations} iterations of \
             {subsets} subsets; {} rounds on {} cores",
            (size / 4).max(1),
            self.events,
            self.rounds,
            self.cores
        )?;
        writeln!(
            f,
            "devices: {}; sums along lines within {:.1e} of the host's\n",
            self.devices.join("; "),
            self.sums
        )?;
        writeln!(
            f,
            "| nodes | initialisation | transfer | computation | total | an iteration | to plain | \
             difference of the image | one box |\n|---|---|---|---|---|---|---|---|---|"
        )?;
        if let Some(plain) = self.plain {
            self.line(f, "plain", Some(plain), None, None)?;
        }
        for row in &self.rows {
            let name = row.nodes.to_string();
            self.line(f, &name, row.causeway, Some(row.difference), row.native)?;
        }
        writeln!(
            f,
            "\n| iteration | log-likelihood | hot / background (4) | cold / background (0) | error |\n\
             |---|---|---|---|---|"
        )?;
        for (iteration, merit) in (1..).zip(&self.merits) {
            let Merit {
                likelihood,
                hot,
                cold,
                error,
            } = merit;
            writeln!(
                f,
                "| {iteration} | {likelihood:.4} | {hot:.3} | {cold:.3} | {error:.3} |"
            )?;
        }
        Ok(())
    }
}

impl Report {
    fn line(
        &self,
        f: &mut fmt::Formatter<'_>,
        name: &str,
        runs: Option<Runs>,
        difference: Option<f64>,
        native: Option<Runs>,
    ) -> fmt::Result {
        let dash = || "–".to_owned();
        let cell = |pick: fn(&Runs) -> f64| runs.map_or_else(dash, |runs| seconds(pick(&runs)));
        let faster = match (runs, self.plain) {
            (Some(runs), Some(plain)) => format!("{:.2}×", plain.iteration / runs.iteration),
            _ => dash(),
        };
        writeln!(
            f,
            "| {name} | {} | {} | {} | {} | {} | {faster} | {} | {} |",
            cell(|runs| runs.figure.phases.initialisation),
            cell(|runs| runs.figure.phases.transfer),
            cell(|runs| runs.figure.phases.computation),
            cell(|runs| runs.figure.total),
            cell(|runs| runs.iteration),
            difference.map_or_else(dash, |difference| format!("{difference:.1e}")),
            total(native.map(|runs| runs.figure)),
        )
    }
}
