//! The reference's figure 11: the time until the result by the mean time between failures, and the model's curves.
//!
//! A run without failures gives the model its times. Then processes are killed: MPI's ranks, the farm's nodes and master,
//! or the nodes' sessions and the plain program. Invariant: the model knows K1 and X from the runs with failures, and no
//! elapsed time of theirs.
#![forbid(unsafe_code)]

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use super::schedule::Schedule;
use super::trial::Outcome;
use super::{Chain, Error, Experiment, Options, Program};
use crate::experiment::{median, seconds};
use crate::lines::{self, Chart, Curve, Style};
use crate::measured::{Kept, Loss, Origin};
use crate::sustainability::model::{Model, Workers};

/// Measures the programs, and reports.
pub(super) fn run(
    options: &Options,
    experiment: &mut Experiment,
    nodes: usize,
    grain: usize,
) -> Result<(), Error> {
    let common = &options.common;
    let mut times = options.mtbf.clone();
    times.sort_unstable();
    let series = measure(options, experiment, nodes, grain, &times)?;
    eprint!("\r{:50}\r", "");
    let plots = common.plots()?;
    let mut lines = series.iter();
    let farm = lines.find(|line| matches!(line.program, Program::Farm(_)));
    if let Some(loss) = farm.and_then(|line| line.loss(nodes)) {
        loss.write(plots)?;
    }
    let report = Report {
        chain: experiment.chain.clone(),
        nodes,
        rounds: common.rounds,
        cores: std::thread::available_parallelism().map_or(0, usize::from),
        series,
        no_mpi: experiment.mpi.as_ref().err().cloned(),
    };
    print!("{report}");
    common.write_json(&report)?;
    println!("plot: {}", report.draw(plots)?.display());
    Ok(())
}

/// Runs the programs in turn without failures, then with each mean time between them.
fn measure(
    options: &Options,
    experiment: &mut Experiment,
    nodes: usize,
    grain: usize,
    times: &[Duration],
) -> Result<Vec<Series>, Error> {
    let rounds = options.common.rounds;
    let programs = [Program::Mpi, Program::Farm(grain), Program::Plain];
    let programs = programs
        .into_iter()
        .filter(|program| experiment.has(*program));
    let programs: Vec<Program> = programs.collect();
    let mut plain = vec![Vec::new(); programs.len()];
    for round in 1..=rounds {
        for (program, runs) in programs.iter().zip(&mut plain) {
            eprint!("\rround {round}: {program:?}, no failures      ");
            runs.push(experiment.once(*program, nodes, f64::INFINITY, None)?);
        }
    }
    let new = |(program, runs): (&Program, &Vec<Outcome>)| Series::new(*program, nodes, runs);
    let mut series: Vec<Series> = programs.iter().zip(&plain).map(new).collect();
    for mtbf in times {
        for line in &mut series {
            let point = Point::new(line, *mtbf);
            line.points.push(point);
        }
        for round in 1..=rounds {
            // All programs meet the same failures.
            let seed = u64::from(options.seed) * 1000 + u64::from(round);
            for (program, line) in programs.iter().zip(&mut series) {
                eprint!("\rround {round}: {program:?}, MTBF {mtbf:?}      ");
                let schedule = Schedule::new(*mtbf, seed).at_most(options.failures);
                let interval = line
                    .points
                    .last()
                    .map_or(f64::INFINITY, |point| point.interval);
                let run = experiment.once(*program, nodes, interval, Some(schedule))?;
                line.add(run);
            }
        }
    }
    for line in &mut series {
        line.apply_model();
    }
    Ok(series)
}

/// The runs of one program.
#[derive(Debug, Serialize)]
struct Series {
    #[serde(skip)]
    program: Program,
    name: &'static str,
    workers: Workers,
    /// The processes of which one is killed at each failure.
    processes: usize,
    /// From the start until all devices are ready, in seconds.
    start: f64,
    /// K1: from a fatal failure until all devices are ready again, in seconds; the start, if no failure was fatal.
    recovery: f64,
    /// T: from the first product to the result without failures, in seconds.
    computation: f64,
    /// K0: a checkpoint, in seconds.
    checkpoint: f64,
    /// What each lost node cost: the farm in seconds of a worker, the plain program in seconds of the run.
    losses: Vec<f64>,
    /// X: the mean of these in seconds of the run. While a worker of the farm is lost, the others work.
    loss: f64,
    points: Vec<Point>,
    /// The model's curve: MTBF and time, in seconds.
    curve: Vec<(f64, f64)>,
}

/// One mean time between failures.
#[derive(Debug, Serialize)]
struct Point {
    /// In seconds.
    mtbf: f64,
    /// The best interval between checkpoints, in seconds.
    interval: f64,
    /// Fatal failures in an interval of that length, after the model.
    failures_per_interval: f64,
    /// Seconds of each run from the start to the result.
    elapsed: Vec<f64>,
    /// The same after the model.
    model: f64,
    /// Failures that met the runs.
    failures: usize,
    /// Those that were fatal.
    fatal: usize,
    /// Checkpoints of all runs, results included.
    checkpoints: usize,
    /// From each fatal failure until all devices were ready again, in seconds.
    recoveries: Vec<f64>,
}

impl Series {
    fn new(program: Program, nodes: usize, plain: &[Outcome]) -> Series {
        let middle = |pick: fn(&Outcome) -> f64| {
            let values: Vec<f64> = plain.iter().map(pick).collect();
            median(&values).unwrap_or_default()
        };
        let checkpoints: Vec<f64> = plain
            .iter()
            .flat_map(|run| run.checkpoints.clone())
            .collect();
        let (name, workers, processes) = match program {
            Program::Mpi => ("MPI", Workers::Fatal, nodes),
            // The nodes and the master.
            Program::Farm(_) => ("farm", Workers::Tolerated, nodes + 1),
            // The nodes and the program.
            Program::Plain => ("re-executed", Workers::Tolerated, nodes + 1),
        };
        Series {
            program,
            name,
            workers,
            processes,
            start: middle(|run| run.start),
            recovery: middle(|run| run.start),
            computation: middle(|run| run.computation),
            checkpoint: median(&checkpoints).unwrap_or_default(),
            losses: Vec::new(),
            loss: 0.0,
            points: Vec::new(),
            curve: Vec::new(),
        }
    }

    fn model(&self, mtbf: f64) -> Model {
        Model {
            mtbf,
            create: self.checkpoint,
            recover: self.recovery,
            loss: self.loss,
            processors: self.processes as f64,
        }
    }

    /// The time of a run after the model.
    fn expected(&self, mtbf: f64) -> f64 {
        self.start + self.computation * self.model(mtbf).cost(self.workers)
    }

    /// Adds a run to the last point.
    fn add(&mut self, run: Outcome) {
        if let Some(point) = self.points.last_mut() {
            point.add(&run);
        }
        self.losses.extend(run.losses);
    }

    /// Fills in what the model says, once all losses and recoveries are known.
    fn apply_model(&mut self) {
        let recoveries = self.points.iter().flat_map(|point| &point.recoveries);
        let recoveries: Vec<f64> = recoveries.copied().collect();
        self.recovery = median(&recoveries).unwrap_or(self.recovery);
        if !self.losses.is_empty() {
            let sum: f64 = self.losses.iter().sum();
            let workers = match self.program {
                Program::Farm(_) => self.processes - 1,
                Program::Mpi | Program::Plain => 1,
            };
            self.loss = sum / self.losses.len() as f64 / workers as f64;
        }
        for place in 0..self.points.len() {
            self.points[place].model = self.expected(self.points[place].mtbf);
        }
        let ends = self.points.first().zip(self.points.last());
        let Some((first, last)) = ends.map(|(first, last)| (first.mtbf, last.mtbf)) else {
            return;
        };
        // A step of a 20th of an octave, a little beyond the last point.
        let steps = ((last / first).log2() * 20.0).ceil() as i32 + 1;
        self.curve = (0..=steps)
            .map(|step| first * 2f64.powf(f64::from(step) / 20.0))
            .map(|mtbf| (mtbf, self.expected(mtbf)))
            .collect();
    }

    /// What a lost node cost, if any was lost.
    fn loss(&self, workers: usize) -> Option<Loss> {
        (!self.losses.is_empty()).then(|| Loss {
            seconds: self.loss,
            count: self.losses.len(),
            workers,
            origin: Origin::now("this machine"),
        })
    }
}

impl Point {
    fn new(line: &Series, mtbf: Duration) -> Point {
        let mtbf = mtbf.as_secs_f64();
        let model = line.model(mtbf);
        Point {
            mtbf,
            interval: model.interval(line.workers),
            failures_per_interval: model.failures_per_interval(line.workers),
            elapsed: Vec::new(),
            model: 0.0,
            failures: 0,
            fatal: 0,
            checkpoints: 0,
            recoveries: Vec::new(),
        }
    }

    fn add(&mut self, run: &Outcome) {
        self.elapsed.push(run.elapsed);
        self.failures += run.failures;
        self.fatal += run.recoveries.len();
        self.checkpoints += run.checkpoints.len();
        self.recoveries.extend(&run.recoveries);
    }

    fn middle(&self) -> f64 {
        median(&self.elapsed).unwrap_or_default()
    }
}

/// The whole report.
#[derive(Debug, Serialize)]
struct Report {
    chain: Chain,
    nodes: usize,
    rounds: u16,
    cores: usize,
    series: Vec<Series>,
    /// Why MPI was not measured.
    no_mpi: Option<String>,
}

impl Report {
    fn draw(&self, folder: &Path) -> Result<PathBuf, Error> {
        let mut curves = Vec::new();
        for (colour, line) in self.series.iter().enumerate() {
            let measured = line.points.iter().map(|point| (point.mtbf, point.middle()));
            curves.push(Curve {
                name: format!("{}, measured", line.name),
                colour,
                style: Style::Measured,
                points: measured.collect(),
            });
            curves.push(Curve {
                name: format!("{}, model", line.name),
                colour,
                style: Style::Limit,
                points: line.curve.clone(),
            });
        }
        let (products, size) = (self.chain.multiplications, self.chain.size);
        let chart = Chart {
            title: format!(
                "{products} products of {size} × {size} on {} nodes",
                self.nodes
            ),
            x: "mean time between failures, s",
            y: "time until the result, s",
            curves,
        };
        let file = folder.join("matrix-failures.svg");
        lines::draw(&[chart], &file)?;
        Ok(file)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = self.chain.size;
        writeln!(
            f,
            "{} products of {size} × {size} on {} nodes; {} rounds on {} cores; all results equal and checked on the host",
            self.chain.multiplications, self.nodes, self.rounds, self.cores
        )?;
        if let Some(reason) = &self.no_mpi {
            writeln!(f, "MPI: skipped: {reason}")?;
        }
        writeln!(
            f,
            "\n| | start | computation (T) | checkpoint (K0) | recovery (K1) | loss of a node (X) |\n|---|---|---|---|---|---|"
        )?;
        for line in &self.series {
            let loss = match line.losses.len() {
                0 => "–".to_owned(),
                count => format!("{}, mean of {count}", seconds(line.loss)),
            };
            writeln!(
                f,
                "| {} | {} | {} | {} | {} | {loss} |",
                line.name,
                seconds(line.start),
                seconds(line.computation),
                seconds(line.checkpoint),
                seconds(line.recovery)
            )?;
        }
        writeln!(
            f,
            "\n| MTBF | program | time: median (range) | model | failures, fatal ones | interval, checkpoints \
             |\n|---|---|---|---|---|---|"
        )?;
        let points = self.series.first().map_or(0, |line| line.points.len());
        for place in 0..points {
            for line in &self.series {
                line.points[place].write(f, line.name)?;
            }
        }
        Ok(())
    }
}

impl Point {
    fn write(&self, f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
        let ends = self.elapsed.iter().copied();
        // The model assumes one fatal failure in an interval at most.
        let doubt = if self.failures_per_interval > 1.0 {
            " (beyond its assumption)"
        } else {
            ""
        };
        writeln!(
            f,
            "| {} s | {name} | {} ({} to {}) | {}{doubt} | {}, {} | {}, {} |",
            self.mtbf,
            seconds(self.middle()),
            seconds(ends.clone().fold(f64::INFINITY, f64::min)),
            seconds(ends.fold(0.0, f64::max)),
            seconds(self.model),
            self.failures,
            self.fatal,
            seconds(self.interval),
            self.checkpoints
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain() -> Outcome {
        Outcome {
            elapsed: 12.0,
            start: 1.0,
            computation: 10.0,
            checkpoints: vec![0.02],
            ..Outcome::default()
        }
    }

    #[test]
    fn the_models_times_come_from_runs_without_failures() {
        let mut line = Series::new(Program::Mpi, 4, &[plain()]);
        line.points.push(Point::new(&line, Duration::from_secs(10)));
        line.points.push(Point::new(&line, Duration::from_secs(40)));
        line.apply_model();
        // √(2 · 0.02 · 10), and 1 + 10 · (1 + √(2 · 0.02 / 10) + 1 / 10).
        let point = &line.points[0];
        assert!((point.interval - 0.4f64.sqrt()).abs() < 1e-9);
        assert!((point.model - (1.0 + 10.0 * (1.1 + 0.004f64.sqrt()))).abs() < 1e-9);
        assert!(line.points[1].model < point.model);
        assert_eq!(line.curve[0], (10.0, point.model));
        assert!(line.curve.last().unwrap().0 >= 40.0);
        assert!(line.loss(4).is_none());
    }

    #[test]
    fn a_lost_node_costs_the_farm_its_share() {
        let mut line = Series::new(Program::Farm(8), 4, &[plain()]);
        let point = Point::new(&line, Duration::from_secs(10));
        let run = Outcome {
            elapsed: 15.0,
            losses: vec![0.5, 1.5],
            recoveries: vec![0.7],
            failures: 3,
            ..plain()
        };
        line.points.push(point);
        line.add(run);
        line.apply_model();
        assert_eq!(line.loss, 0.25);
        assert_eq!((line.points[0].failures, line.points[0].fatal), (3, 1));
        // α1 = 1 / 50, α2 = 4 / 50.
        let cost = 1.0 + (2.0 * 0.02 / 50.0f64).sqrt() + 0.7 / 50.0 + 4.0 / 50.0 * 0.25;
        assert!((line.points[0].model - (1.0 + 10.0 * cost)).abs() < 1e-9);
        assert_eq!(line.loss(4).unwrap().count, 2);
    }

    #[test]
    fn a_lost_node_costs_the_plain_program_all_of_it() {
        let mut line = Series::new(Program::Plain, 4, &[plain()]);
        line.points.push(Point::new(&line, Duration::from_secs(10)));
        line.add(Outcome {
            losses: vec![0.5, 1.5],
            ..plain()
        });
        line.apply_model();
        assert_eq!((line.loss, line.processes), (1.0, 5));
    }
}
