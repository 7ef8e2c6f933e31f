//! The table, the JSON and the plot of the applications.
#![forbid(unsafe_code)]

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::Experiment;
use crate::bars::{self, Bar, Group};
use crate::experiment::{Figure, Phases, seconds};
use crate::mandelbrot::picture::View;

/// The runs of one number of applications: a list a round.
#[derive(Debug)]
pub(super) struct Row {
    /// Number of applications.
    pub(super) applications: usize,
    /// Every application takes the first device.
    pub(super) without: Vec<Vec<Phases>>,
    /// Every application requests a device from the manager.
    pub(super) with: Vec<Vec<Phases>>,
}

impl Row {
    /// Makes a row without any runs.
    pub(super) fn new(applications: usize) -> Row {
        Row {
            applications,
            without: Vec::new(),
            with: Vec::new(),
        }
    }
}

/// A row of the report.
#[derive(Debug, Serialize)]
struct Figures {
    applications: usize,
    without: Option<Figure>,
    /// The shortest and the longest computation of all runs.
    without_range: [f64; 2],
    with: Option<Figure>,
    with_range: [f64; 2],
}

/// The whole report.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    view: View,
    nodes: usize,
    device: String,
    /// Whether devices are slices of the processor.
    sliced: bool,
    rounds: u16,
    cores: usize,
    rows: Vec<Figures>,
}

impl Report {
    /// The report of all runs.
    pub(super) fn new(experiment: &Experiment<'_>, rows: &[Row]) -> Report {
        let options = experiment.options;
        let figures = |row: &Row| {
            let (without, with) = (row.without.concat(), row.with.concat());
            Figures {
                applications: row.applications,
                without: Figure::of(&without),
                without_range: range(&without),
                with: Figure::of(&with),
                with_range: range(&with),
            }
        };
        Report {
            view: experiment.view,
            nodes: experiment.nodes.len(),
            device: experiment.device.clone(),
            sliced: options.native_vendors.is_none(),
            rounds: options.common.rounds,
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            rows: rows.iter().map(figures).collect(),
        }
    }

    /// Draws the bars into a folder.
    pub(super) fn draw(&self, folder: &Path) -> Result<PathBuf, Box<dyn std::error::Error>> {
        let group = |row: &Figures| Group {
            caption: match row.applications {
                1 => "1 application".to_owned(),
                many => format!("{many} applications"),
            },
            bars: [("first device", row.without), ("manager", row.with)]
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
        let title = format!("Applications that want one of {} devices each", self.nodes);
        let file = folder.join("manager.svg");
        bars::draw(&title, &groups, &file)?;
        Ok(file)
    }
}

fn range(runs: &[Phases]) -> [f64; 2] {
    let times = runs.iter().map(|run| run.computation);
    times.fold([f64::INFINITY, 0.0], |[least, most], time| {
        [least.min(time), most.max(time)]
    })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let View {
            width,
            height,
            iterations,
        } = self.view;
        let devices = if self.sliced {
            "each an equal slice of the processor's cores, "
        } else {
            ""
        };
        writeln!(
            f,
            "applications that draw {width} × {height} points, up to {iterations} iterations, on one device each; {} nodes \
             with one device, {devices}{}; {} rounds on {} cores",
            self.nodes, self.device, self.rounds, self.cores
        )?;
        writeln!(
            f,
            "\n| applications | all take the first device: computation | shortest, longest | initialisation | each asks \
             the manager: computation | shortest, longest | initialisation |\n|---|---|---|---|---|---|---|"
        )?;
        for row in &self.rows {
            let cells = |figure: Option<Figure>, [least, most]: [f64; 2]| match figure {
                Some(Figure { phases, .. }) => format!(
                    "{} | {}, {} | {}",
                    seconds(phases.computation),
                    seconds(least),
                    seconds(most),
                    seconds(phases.initialisation)
                ),
                None => "– | – | –".to_owned(),
            };
            writeln!(
                f,
                "| {} | {} | {} |",
                row.applications,
                cells(row.without, row.without_range),
                cells(row.with, row.with_range)
            )?;
        }
        Ok(())
    }
}
