//! The reference's figure 10: the time of a chain of products by nodes and grain, without failures.
//!
//! Invariant: the cells of a table were measured in turn, round by round.
#![forbid(unsafe_code)]

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::trial::Outcome;
use super::{Chain, Error, Experiment, Options, Program};
use crate::experiment::{median, seconds};
use crate::lines::{self, Chart, Curve, Style};

/// Measures all cells, and reports.
pub(super) fn run(
    options: &Options,
    experiment: &mut Experiment,
    counts: &[usize],
    grains: &[usize],
) -> Result<(), Error> {
    let common = &options.common;
    let programs: Vec<Program> = grains
        .iter()
        .map(|grain| Program::Farm(*grain))
        .chain([Program::Mpi])
        .filter(|program| experiment.has(*program))
        .collect();
    let cells = counts.len() * programs.len();
    let mut runs: Vec<Vec<Outcome>> = vec![Vec::new(); cells];
    for round in 1..=common.rounds {
        let pairs = counts
            .iter()
            .flat_map(|count| programs.iter().map(move |program| (*count, *program)));
        for ((count, program), runs) in pairs.zip(&mut runs) {
            eprint!("\rround {round}: {count} nodes, {program:?}      ");
            runs.push(experiment.once(program, count, f64::INFINITY, None)?);
        }
    }
    eprint!("\r{:50}\r", "");
    let mut runs = runs.iter();
    let rows = counts.iter().map(|count| {
        let cells = programs.iter().zip(runs.by_ref());
        Row::new(*count, experiment.chain.size, cells)
    });
    let report = Report {
        chain: experiment.chain.clone(),
        rounds: common.rounds,
        cores: std::thread::available_parallelism().map_or(0, usize::from),
        threads: options.threads,
        grains: grains.to_vec(),
        rows: rows.collect(),
        no_mpi: experiment.mpi.as_ref().err().cloned(),
    };
    print!("{report}");
    common.write_json(&report)?;
    println!("plot: {}", report.draw(common.plots()?)?.display());
    Ok(())
}

/// Medians over the rounds of one program on some nodes, in seconds.
#[derive(Debug, Clone, Copy, Serialize)]
struct Cell {
    /// Rows of a piece of work.
    grain: usize,
    /// From the first product to the result.
    computation: f64,
    /// The shortest and the longest computation.
    range: [f64; 2],
    /// From the start of the program until the result was written.
    elapsed: f64,
}

impl Cell {
    /// `None` without any runs.
    fn of(grain: usize, runs: &[Outcome]) -> Option<Cell> {
        let computations: Vec<f64> = runs.iter().map(|run| run.computation).collect();
        let elapsed: Vec<f64> = runs.iter().map(|run| run.elapsed).collect();
        let ends = computations.iter().copied();
        Some(Cell {
            grain,
            computation: median(&computations)?,
            range: [
                ends.clone().fold(f64::INFINITY, f64::min),
                ends.fold(0.0, f64::max),
            ],
            elapsed: median(&elapsed)?,
        })
    }
}

/// All programs on some nodes.
#[derive(Debug, Serialize)]
struct Row {
    nodes: usize,
    /// The farm, by grain.
    farm: Vec<Cell>,
    /// MPI. Its grain is each rank's part of the rows.
    mpi: Option<Cell>,
}

impl Row {
    fn new<'a>(
        nodes: usize,
        size: usize,
        cells: impl Iterator<Item = (&'a Program, &'a Vec<Outcome>)>,
    ) -> Row {
        let mut row = Row {
            nodes,
            farm: Vec::new(),
            mpi: None,
        };
        for (program, runs) in cells {
            match program {
                Program::Farm(grain) => row.farm.extend(Cell::of(*grain, runs)),
                Program::Mpi => row.mpi = Cell::of(size.div_ceil(nodes), runs),
                // Of interest only with failures.
                Program::Plain => {}
            }
        }
        row
    }

    fn best(&self) -> Option<Cell> {
        let cells = self.farm.iter().copied();
        cells.min_by(|a, b| a.computation.total_cmp(&b.computation))
    }
}

/// The whole report.
#[derive(Debug, Serialize)]
struct Report {
    chain: Chain,
    rounds: u16,
    cores: usize,
    /// PoCL's threads of each device; 0: as many as it wants.
    threads: u16,
    grains: Vec<usize>,
    rows: Vec<Row>,
    /// Why MPI was not measured.
    no_mpi: Option<String>,
}

impl Report {
    fn draw(&self, folder: &Path) -> Result<PathBuf, Error> {
        let file = folder.join("matrix.svg");
        let size = self.chain.size;
        let title = |by: &str| {
            let products = self.chain.multiplications;
            format!("{products} products of {size} × {size}, by {by}")
        };
        let nodes = Chart {
            title: title("nodes"),
            x: "nodes",
            y: "s",
            curves: self.over_nodes(),
        };
        let grains = Chart {
            title: title("grain"),
            x: "rows of a piece of work",
            y: "s",
            curves: self.over_grains(),
        };
        lines::draw(&[nodes, grains], &file)?;
        Ok(file)
    }

    /// A curve for each grain, and MPI.
    fn over_nodes(&self) -> Vec<Curve> {
        let farm = |(colour, grain): (usize, &usize)| {
            let at = |row: &Row| {
                let cell = row.farm.iter().find(|cell| cell.grain == *grain)?;
                Some((row.nodes as f64, cell.computation))
            };
            measured(
                format!("farm, {grain} rows"),
                colour + 1,
                self.rows.iter().filter_map(at).collect(),
            )
        };
        let mpi = |row: &Row| row.mpi.map(|cell| (row.nodes as f64, cell.computation));
        let mpi = self.rows.iter().filter_map(mpi).collect();
        let mut curves = vec![measured("MPI".to_owned(), 0, mpi)];
        curves.extend(self.grains.iter().enumerate().map(farm));
        curves
    }

    /// A curve for each number of nodes. MPI has one grain for each of them.
    fn over_grains(&self) -> Vec<Curve> {
        let point = |cell: &Cell| (cell.grain as f64, cell.computation);
        let farm = |(colour, row): (usize, &Row)| {
            let name = format!("farm, {}", crate::experiment::nodes(row.nodes));
            measured(name, colour + 1, row.farm.iter().map(point).collect())
        };
        let mpi = self.rows.iter().filter_map(|row| row.mpi.as_ref());
        let name = "MPI, rows over nodes".to_owned();
        let mut curves = vec![measured(name, 0, mpi.map(point).collect())];
        curves.extend(self.rows.iter().enumerate().map(farm));
        curves
    }
}

fn measured(name: String, colour: usize, mut points: Vec<(f64, f64)>) -> Curve {
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    Curve {
        name,
        colour,
        style: Style::Measured,
        points,
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = self.chain.size;
        writeln!(
            f,
            "{} products of {size} × {size}; {} rounds on {} cores, {} PoCL threads a node (0: all); \
             all results equal and checked on the host",
            self.chain.multiplications, self.rounds, self.cores, self.threads
        )?;
        if let Some(reason) = &self.no_mpi {
            writeln!(f, "MPI: skipped: {reason}")?;
        }
        write!(f, "\n| nodes |")?;
        for grain in &self.grains {
            write!(f, " farm, {grain} rows |")?;
        }
        writeln!(
            f,
            " best grain | MPI, its grain | best farm / MPI | with start: farm, MPI |"
        )?;
        writeln!(f, "|{}", "---|".repeat(self.grains.len() + 5))?;
        for row in &self.rows {
            write!(f, "| {} |", row.nodes)?;
            for cell in &row.farm {
                write!(f, " {} |", seconds(cell.computation))?;
            }
            let dash = || "–".to_owned();
            let (best, mpi) = (row.best(), row.mpi);
            let ratio = best
                .zip(mpi)
                .map(|(best, mpi)| best.computation / mpi.computation);
            let elapsed = |cell: Option<Cell>| cell.map_or_else(dash, |cell| seconds(cell.elapsed));
            writeln!(
                f,
                " {} | {} | {} | {}, {} |",
                best.map_or_else(dash, |cell| cell.grain.to_string()),
                mpi.map_or_else(dash, |cell| {
                    format!("{}, {}", seconds(cell.computation), cell.grain)
                }),
                ratio.map_or_else(dash, |ratio| format!("{ratio:.2}")),
                elapsed(best),
                elapsed(mpi)
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(computation: f64, elapsed: f64) -> Outcome {
        Outcome {
            computation,
            elapsed,
            ..Outcome::default()
        }
    }

    #[test]
    fn a_row_has_medians_and_its_best_grain() {
        let runs = [
            vec![run(3.0, 4.0), run(1.0, 9.0), run(2.0, 5.0)],
            vec![run(1.5, 3.0)],
            vec![run(1.0, 2.0)],
        ];
        let programs = [Program::Farm(8), Program::Farm(16), Program::Mpi];
        let row = Row::new(3, 100, programs.iter().zip(&runs));
        assert_eq!((row.farm[0].computation, row.farm[0].elapsed), (2.0, 5.0));
        assert_eq!(row.farm[0].range, [1.0, 3.0]);
        assert_eq!(row.best().unwrap().grain, 16);
        assert_eq!(row.mpi.unwrap().grain, 34);
        assert!(Cell::of(8, &[]).is_none());
    }
}
