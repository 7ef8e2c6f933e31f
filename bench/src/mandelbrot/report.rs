//! The table, the JSON and the plot of the Mandelbrot.
#![forbid(unsafe_code)]

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::Experiment;
use super::picture::View;
use crate::bars::{self, Bar, Group};
use crate::experiment::{Figure, Phases, median, nodes, seconds, total, total_with_pages};

/// The runs on one number of nodes.
#[derive(Debug, Default)]
pub(crate) struct Row {
    /// Number of nodes.
    pub(crate) nodes: usize,
    /// Through Causeway.
    pub(crate) causeway: Vec<Phases>,
    /// On one machine with as many devices.
    pub(crate) native: Vec<Phases>,
    /// By MPI.
    pub(crate) mpi: Vec<Phases>,
    /// On one native device, whatever the number of nodes. Only with real devices.
    pub(crate) plain: Vec<Phases>,
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

/// A row of the report.
#[derive(Debug, Serialize)]
struct Figures {
    nodes: usize,
    causeway: Option<Figure>,
    native: Option<Figure>,
    mpi: Option<Figure>,
    /// Seconds of computation on one device, divided by the nodes.
    ideal: f64,
}

impl Figures {
    /// The ideal over Causeway's total.
    fn efficiency(&self) -> Option<f64> {
        self.causeway.map(|figure| self.ideal / figure.total)
    }
}

/// The whole report.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    view: View,
    devices: Vec<String>,
    real: bool,
    rounds: u16,
    cores: usize,
    /// The smallest share of right pixels in any run.
    right: f64,
    checksum: Option<u64>,
    /// Why MPI was not measured.
    no_mpi: Option<String>,
    rows: Vec<Figures>,
}

impl Report {
    /// The report of all runs.
    pub(crate) fn new(experiment: &Experiment<'_>, rows: Vec<Row>) -> Report {
        let options = experiment.options;
        let one_device = |row: &Row| {
            let plain: Vec<f64> = row.plain.iter().map(|run| run.computation).collect();
            median(&plain).unwrap_or(options.device_seconds)
        };
        let figures = |row: &Row| Figures {
            nodes: row.nodes,
            causeway: Figure::of(&row.causeway),
            native: Figure::of(&row.native),
            mpi: Figure::of(&row.mpi),
            ideal: one_device(row) / row.nodes as f64,
        };
        Report {
            view: options.view,
            devices: experiment.names.clone(),
            real: options.is_real(),
            rounds: options.common.rounds,
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            right: experiment.right,
            checksum: experiment.reference,
            no_mpi: experiment.mpi.as_ref().err().cloned(),
            rows: rows.iter().map(figures).collect(),
        }
    }

    /// Draws the bars into a folder.
    pub(crate) fn draw(&self, folder: &Path) -> Result<PathBuf, Box<dyn std::error::Error>> {
        let group = |row: &Figures| Group {
            caption: nodes(row.nodes),
            bars: [
                ("ours", row.causeway),
                ("one box", row.native),
                ("MPI", row.mpi),
            ]
            .into_iter()
            .filter_map(|(label, figure)| {
                figure.map(|figure| Bar {
                    label: label.to_owned(),
                    seconds: figure.phases.stack(),
                })
            })
            .collect(),
        };
        let groups: Vec<Group> = self.rows.iter().map(group).collect();
        let View {
            width,
            height,
            iterations,
        } = self.view;
        let title = format!("Mandelbrot {width} × {height}, {iterations} iterations");
        let file = folder.join("mandelbrot.svg");
        bars::draw(&title, &groups, &file)?;
        Ok(file)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let View {
            width,
            height,
            iterations,
        } = self.view;
        writeln!(
            f,
            "Mandelbrot {width} × {height}, up to {iterations} iterations; {} rounds on {} cores",
            self.rounds, self.cores
        )?;
        writeln!(
            f,
            "devices: {}{}; pictures equal in every run, {:.2} % of the pixels looked at right",
            self.devices.join("; "),
            if self.real {
                ""
            } else {
                " (kernels take their time and no processor)"
            },
            self.right * 100.0
        )?;
        if let Some(reason) = &self.no_mpi {
            writeln!(f, "MPI: skipped: {reason}")?;
        }
        writeln!(
            f,
            "\n| nodes | initialisation | computation | transfer | total | with its pages | ideal | extra \
             | efficiency | one box | MPI |\n|---|---|---|---|---|---|---|---|---|---|---|"
        )?;
        for row in &self.rows {
            let phase = |pick: fn(&Phases) -> f64| match row.causeway {
                Some(figure) => seconds(pick(&figure.phases)),
                None => "–".to_owned(),
            };
            let extra = row.causeway.map(|figure| figure.total - row.ideal);
            writeln!(
                f,
                "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
                row.nodes,
                phase(|run| run.initialisation),
                phase(|run| run.computation),
                phase(|run| run.transfer),
                total(row.causeway),
                total_with_pages(row.causeway),
                seconds(row.ideal),
                extra.map_or("–".to_owned(), |extra| format!("{:.1} ms", extra * 1e3)),
                row.efficiency()
                    .map_or("–".to_owned(), |share| format!("{share:.3}")),
                total(row.native),
                total(row.mpi),
            )?;
        }
        Ok(())
    }
}
