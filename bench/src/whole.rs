//! Whole programs with `[survival] reexecute` and without, in turn: what it costs them to be able to outlive a node's process.
//!
//! The programs are ordinary OpenCL programs of others and of this project. With `reexecute`, checkpoints are a minute apart.
//! Not here: single calls (`survive/*` of `bench resume`), and failures (`bench matrix --mtbf`). Invariant: a program that
//! fails in one of its runs, or that the library stops protecting, has no figure.
#![forbid(unsafe_code)]

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use clap::Args;
use serde::Serialize;

use crate::experiment::{Common, median, seconds};
use crate::nodes::{Driver, Nodes, said_within};

type Error = Box<dyn std::error::Error>;

/// The largest ratio that meets the mark.
const MARK: f64 = 1.05;
const SURVIVAL: &str = "[survival]\nreexecute = true\ninterval = \"1min\"\n";
/// How the library says that it cannot execute a program's commands again.
const UNPROTECTED: &str = "commands are not executed again";
const VIENNACL: &str = include_str!("../programs/viennacl_cg.cpp");

/// How to run it.
#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    /// The .icd folder of the node [default: the system's]
    #[arg(long, value_name = "DIR")]
    native_vendors: Option<PathBuf>,
    /// Only programs whose name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Another program and its arguments, instead of the known ones
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// A program that can be measured, or the reason why not.
struct Whole {
    name: String,
    command: Result<Vec<String>, String>,
}

/// Runs each program with and without, and reports.
pub(crate) fn run(options: &Options) -> Result<(), Error> {
    let limit = options.common.limit();
    let driver = Driver::native(options.native_vendors.clone(), limit)?;
    let nodes = Nodes::start(driver, 1, limit)?;
    let survival = nodes.scratch().join("survival.toml");
    std::fs::write(&survival, SURVIVAL)?;
    let mut rows = Vec::new();
    for whole in programs(options, &nodes)? {
        let row = match whole.command {
            Ok(command) => measure(options, &nodes, &survival, &whole.name, &command),
            Err(reason) => Row::skipped(&whole.name, reason),
        };
        eprint!("\r{:60}\r", "");
        rows.push(row);
    }
    let report = Report {
        rounds: options.common.rounds,
        cores: std::thread::available_parallelism().map_or(0, usize::from),
        mark: MARK,
        rows,
    };
    print!("{report}");
    options.common.write_json(&report)?;
    let failed = report.rows.iter().find_map(|row| row.failed.as_ref());
    failed.map_or(Ok(()), |failure| Err(failure.clone().into()))
}

fn programs(options: &Options, nodes: &Nodes) -> io::Result<Vec<Whole>> {
    if let Some(program) = options.command.first() {
        return Ok(vec![Whole {
            name: program.clone(),
            command: Ok(options.command.clone()),
        }]);
    }
    let own = std::env::current_exe()?.display().to_string();
    let of = |words: &str| words.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let with_own = |words: &str| {
        let mut command = vec![own.clone()];
        command.extend(of(words));
        command
    };
    let state = nodes.scratch().join("whole.state");
    let mut matrix = with_own(
        "matrix-plain --size 256 --multiplications 50 --seed 1 --devices 1 --interval inf --state",
    );
    // The path may have spaces.
    matrix.push(state.display().to_string());
    let mut programs = vec![
        (
            "Mandelbrot",
            Ok(with_own(
                "mandelbrot-program --width 1024 --height 768 --iterations 1000",
            )),
        ),
        ("matrix chain", Ok(matrix)),
        (
            "CLBlast's tuner",
            installed("clblast_tuner_xaxpy", "clblast-utils", of("-n 4194304")),
        ),
        ("ViennaCL", viennacl(nodes.scratch())),
    ];
    let only = options.only.as_deref().unwrap_or_default();
    programs.retain(|(name, _)| name.contains(only));
    let programs = programs.into_iter().map(|(name, command)| Whole {
        name: name.to_owned(),
        command,
    });
    Ok(programs.collect())
}

/// A program of the system with these arguments, or which package has it.
fn installed(program: &str, package: &str, arguments: Vec<String>) -> Result<Vec<String>, String> {
    let path = Path::new("/usr/bin").join(program);
    let command = vec![path.display().to_string()];
    let missing = || format!("{program} is missing; {package} has it");
    let found = path.is_file().then_some(command).ok_or_else(missing);
    found.map(|found| [found, arguments].concat())
}

/// Compiles the program that uses ViennaCL.
fn viennacl(folder: &Path) -> Result<Vec<String>, String> {
    let (source, program) = (folder.join("viennacl_cg.cpp"), folder.join("viennacl_cg"));
    std::fs::write(&source, VIENNACL).map_err(|error| error.to_string())?;
    let output = Command::new("g++")
        .args(["-O2", "-w", "-o"])
        .args([&program, &source])
        .arg("-lOpenCL")
        .output()
        .map_err(|error| format!("g++: {error}"))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        let first = errors.lines().find(|line| line.contains("error"));
        return Err(format!(
            "viennacl_cg.cpp does not compile ({}); libviennacl-dev has the headers",
            first.unwrap_or_default()
        ));
    }
    Ok(vec![program.display().to_string()])
}

/// Runs a program once without a figure, and then in turn without and with `reexecute`.
fn measure(options: &Options, nodes: &Nodes, survival: &Path, name: &str, words: &[String]) -> Row {
    let mut row = Row::skipped(name, String::new());
    row.skipped = None;
    for round in 0..=options.common.rounds {
        for is_on in [false, true] {
            eprint!(
                "\rround {round}: {name}, reexecute {}      ",
                if is_on { "on" } else { "off" }
            );
            // Programs leave files in their folder, and the matrix chain would go on from its result.
            let folder = nodes.scratch().join("whole");
            let state = nodes.scratch().join("whole.state");
            let _ = std::fs::remove_dir_all(&folder);
            let _ = std::fs::remove_file(state);
            let run = std::fs::create_dir(&folder).and_then(|()| {
                let mut command = nodes.through(Path::new(&words[0]), 1);
                command.args(&words[1..]).current_dir(&folder);
                if is_on {
                    command.env("CAUSEWAY_CONFIG", survival);
                }
                let begin = Instant::now();
                let [_, errors] = said_within(&mut command, options.common.limit())?;
                let seconds = begin.elapsed().as_secs_f64();
                match errors.lines().find(|line| line.contains(UNPROTECTED)) {
                    Some(line) if is_on => Err(io::Error::other(line.to_owned())),
                    _ => Ok(seconds),
                }
            });
            match run {
                // The first run fills the driver's caches.
                Ok(_) if round == 0 => {}
                Ok(seconds) if is_on => row.on.push(seconds),
                Ok(seconds) => row.off.push(seconds),
                Err(error) => {
                    row.failed = Some(format!("{name}: {error}"));
                    return row;
                }
            }
        }
    }
    row.ratio = median(&row.on)
        .zip(median(&row.off))
        .map(|(on, off)| on / off);
    row
}

/// A program and its times, in seconds.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    off: Vec<f64>,
    on: Vec<f64>,
    /// The median with `reexecute` over the one without.
    ratio: Option<f64>,
    /// Why the program was not measured.
    skipped: Option<String>,
    /// How a run failed.
    failed: Option<String>,
}

impl Row {
    fn skipped(name: &str, reason: String) -> Row {
        Row {
            name: name.to_owned(),
            off: Vec::new(),
            on: Vec::new(),
            ratio: None,
            skipped: Some(reason),
            failed: None,
        }
    }

    fn verdict(&self) -> String {
        match (&self.skipped, &self.failed, self.ratio) {
            (Some(reason), ..) => format!("skipped: {reason}"),
            (_, Some(failure), _) => {
                format!("failed: {}", failure.lines().next().unwrap_or_default())
            }
            (.., Some(ratio)) if ratio <= MARK => "met".to_owned(),
            _ => "missed".to_owned(),
        }
    }
}

/// The whole report.
#[derive(Debug, Serialize)]
struct Report {
    rounds: u16,
    cores: usize,
    mark: f64,
    rows: Vec<Row>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "whole programs, medians of {} rounds on {} cores; with reexecute, checkpoints a minute apart\n\n\
             | program | without | with `reexecute` | ratio (mark {:.2}) | |\n|---|---|---|---|---|",
            self.rounds, self.cores, self.mark
        )?;
        for row in &self.rows {
            let time = |runs: &[f64]| median(runs).map_or("–".to_owned(), seconds);
            let ratio = row
                .ratio
                .map_or("–".to_owned(), |ratio| format!("{ratio:.3}"));
            let (off, on) = (time(&row.off), time(&row.on));
            let verdict = row.verdict();
            writeln!(f, "| {} | {off} | {on} | {ratio} | {verdict} |", row.name)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_is_judged_by_medians() {
        let mut row = Row::skipped("a program", "not here".to_owned());
        assert_eq!(row.verdict(), "skipped: not here");
        row.skipped = None;
        for (ratio, verdict) in [(1.05, "met"), (1.06, "missed")] {
            row.ratio = Some(ratio);
            assert_eq!(row.verdict(), verdict);
        }
        row.failed = Some("ended with 1\nmore".to_owned());
        assert_eq!(row.verdict(), "failed: ended with 1");
    }

    #[test]
    fn a_program_that_is_not_installed_names_its_package() {
        let missing = installed("no_such_program", "no-such-package", Vec::new());
        assert_eq!(
            missing.unwrap_err(),
            "no_such_program is missing; no-such-package has it"
        );
    }
}
