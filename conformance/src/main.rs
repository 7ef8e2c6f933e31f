//! Checks that programs behave through Causeway as on the native driver.
//!
//! The runner executes each program twice: natively, and through a `causewayd` that it starts on loopback.
//! The runner compares what a user would see: printed text, exit code, files. The runner uses Causeway
//! only from outside, by the daemon's command line, the `.icd` file and environment variables. The
//! programs do not know Causeway at all. Invariant: a case that is not compared is listed as skipped, with the reason.
#![forbid(unsafe_code)]

mod case;
mod coverage;
mod cutting;
mod daemon;
mod managed;
mod managers;
mod mode;
mod options;
mod places;
mod process;
mod programs;
mod report;
mod sides;
mod suite;

use std::iter;
use std::process::ExitCode;

use case::Case;
use clap::Parser;
use mode::Mode;
use options::{Options, Request};
use programs::Programs;
use report::Report;
use sides::Sides;
use suite::Suite;

/// Why the runner could not start a run at all.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SetupError {
    /// A name on the command line is not a suite.
    #[error("there is no suite `{0}`; `list` names them")]
    UnknownSuite(String),
    /// A C program did not compile.
    #[error("cannot build {program}:\n{output}")]
    Build {
        /// The program's name.
        program: String,
        /// The output of the compiler or cargo.
        output: String,
    },
    /// A file that the run needs does not exist.
    #[error("{0}")]
    Missing(String),
    /// The daemon did not start.
    #[error("causewayd did not start: {0}")]
    Daemon(String),
    /// The cluster could not be started.
    #[error(transparent)]
    Cluster(#[from] causeway_cluster::Error),
    /// The network could not be made or changed.
    #[error(transparent)]
    Network(#[from] causeway_network::Error),
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// The attempted operation.
        what: String,
        /// The system's error.
        source: std::io::Error,
    },
}

/// Adds the attempted operation to an error of the operating system.
pub(crate) fn io_error(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> SetupError {
    let what = what.into();
    move |source| SetupError::Io { what, source }
}

fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("conformance: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(options: &Options) -> Result<bool, SetupError> {
    match options.request() {
        Request::Build(out) => {
            for program in Programs::build_into(&out)? {
                println!("{}", program.display());
            }
            Ok(true)
        }
        Request::List => {
            for suite in suite::ALL {
                println!("{:<12} {}", suite.name, suite.about);
            }
            Ok(true)
        }
        Request::Coverage => coverage::run(options),
        Request::Managers => managers::run(options),
        Request::Forward(target) => suite::forward(options, &target),
        Request::Suites(names) => run_suites(options, &names),
    }
}

fn run_suites(options: &Options, names: &[String]) -> Result<bool, SetupError> {
    let programs = Programs::open(options.programs.as_deref())?;
    let sides = Sides::open(options)?;
    let is_cut = sides.is_cut();
    if is_cut {
        println!("connections are cut, seed {}", options.seed);
    }
    let mut report = Report::new(options.notes);
    let chosen = suite::chosen(names, options)?;
    if options.at_once {
        let plain = chosen.iter().filter(|(_, mode)| *mode == Mode::Plain);
        let suites: Vec<&Suite> = plain.map(|(suite, _)| *suite).collect();
        return run_at_once(&suites, options, &programs, &sides, report);
    }
    for (suite, mode) in chosen {
        report.begin_suite(&mode.title(suite.name));
        if mode == Mode::Plain {
            run_suite(suite, mode, options, &programs, &sides, &mut report)?;
            continue;
        }
        match sides.in_mode(mode, options.nodes.into(), &programs.span()?)? {
            Some(sides) => run_suite(suite, mode, options, &programs, &sides, &mut report)?,
            None => {
                let reason = "--server names too few nodes";
                let case = Case::skipped(suite.name, reason).in_mode(mode);
                case::run_all(vec![case], &[&sides], &mut report);
            }
        }
    }
    drop(sides);
    if is_cut {
        println!("{}", cutting::summary());
    }
    for summary in [managed::summary(), suite::survived()]
        .into_iter()
        .flatten()
    {
        println!("{summary}");
    }
    Ok(report.finish())
}

/// Runs the suites at the same time. Those that want to be alone run their cases one after the other, beside the
/// other suites.
fn run_at_once(
    suites: &[&Suite],
    options: &Options,
    programs: &Programs,
    sides: &Sides,
    mut report: Report,
) -> Result<bool, SetupError> {
    let names: Vec<&str> = suites.iter().map(|suite| suite.name).collect();
    report.begin_suite(&names.join(", "));
    let mut runs = Vec::new();
    for suite in suites {
        let several = !suite.alone && sides.serves_several();
        let jobs = if several { options.jobs } else { 1 };
        let cases = (suite.cases)(programs, sides)?;
        runs.push((chosen_cases(cases, options), vec![sides; jobs.into()]));
    }
    case::run_at_once(runs, &mut report);
    Ok(report.finish())
}

fn chosen_cases(cases: Vec<Case>, options: &Options) -> Vec<Case> {
    let is_chosen = |case: &Case| options.filter.iter().all(|part| case.name.contains(part));
    cases.into_iter().filter(is_chosen).collect()
}

fn run_suite(
    suite: &Suite,
    mode: Mode,
    options: &Options,
    programs: &Programs,
    sides: &Sides,
    report: &mut Report,
) -> Result<(), SetupError> {
    let cases = (suite.cases)(programs, sides)?.into_iter();
    let cases = chosen_cases(cases.map(|case| case.in_mode(mode)).collect(), options);
    let jobs = if suite.alone { 1 } else { options.jobs };
    if sides.serves_several() {
        case::run_all(cases, &vec![sides; jobs.into()], report);
        return Ok(());
    }
    // No two programs can lease the same device at once, so each job has a device manager and nodes of its own.
    let others: Result<Vec<Sides>, SetupError> = match mode {
        Mode::Plain => (2..=usize::from(jobs).min(cases.len()))
            .map(|job| sides.for_job(suite.name, job))
            .collect(),
        _ => Ok(Vec::new()),
    };
    let others = others?;
    let all: Vec<&Sides> = iter::once(sides).chain(&others).collect();
    case::run_all(cases, &all, report);
    Ok(())
}
