//! Our own C programs. Each prints facts, which must be the same on both sides;
//! `programs/cltest.h` explains cases.
//!
//! The specification takes precedence over the native driver. If the native driver fails a case marked
//! `spec`, the case must pass through Causeway, and the driver's failure is noted.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::SetupError;
use crate::case::{Case, Verdict, first_difference};
use crate::mode::Mode;
use crate::process::{self, Exit, Finished};
use crate::programs::Programs;
use crate::sides::{Launch, Side, Sides};

/// The exit code of a case that the device cannot run.
const SKIPPED: Exit = Exit::Code(77);

pub(super) fn cases(programs: &Programs, _: &Sides) -> Result<Vec<Case>, SetupError> {
    let mut cases = Vec::new();
    for Listed {
        group,
        name,
        spec,
        path,
    } in all(programs)?
    {
        cases.push(Case::new(format!("api/{group}/{name}"), move |sides| {
            compare(sides, &path, &name, spec)
        }));
    }
    Ok(cases)
}

/// A case of a program.
pub(crate) struct Listed {
    /// The program's name.
    pub(crate) group: String,
    /// The case's name.
    pub(crate) name: String,
    /// Whether the case is marked `spec`.
    spec: bool,
    /// The program's path.
    pub(crate) path: PathBuf,
}

/// Lists the cases of all programs.
pub(crate) fn all(programs: &Programs) -> Result<Vec<Listed>, SetupError> {
    let mut all = Vec::new();
    for (group, path) in programs.with_prefix("api-")? {
        all.extend(listed(&path)?.into_iter().map(|(name, spec)| Listed {
            group: group.clone(),
            name,
            spec,
            path: path.clone(),
        }));
    }
    Ok(all)
}

/// Checks a case's run. Returns its failure, if any; a skipped case has none.
pub(crate) fn ran(run: &Finished) -> Result<(), String> {
    match run.succeeded() || run.exit == SKIPPED {
        true => Ok(()),
        false => Err(complaint(run)),
    }
}

/// A line that differs between equal devices of one native platform, because PoCL adds the device's
/// number to its vendor's id.
const NUMBERED: &str = "CL_DEVICE_VENDOR_ID: ";

/// Lines that differ for a share of a device, which has a part of its memory.
const DIVIDED: [&str; 2] = [
    "CL_DEVICE_GLOBAL_MEM_SIZE: ",
    "CL_DEVICE_MAX_MEM_ALLOC_SIZE: ",
];

/// Removes the lines with these beginnings.
fn without(mut run: Finished, beginnings: &[&str]) -> Finished {
    let mut kept: Vec<&str> = run.stdout.lines().collect();
    kept.retain(|line| !beginnings.iter().any(|of| line.starts_with(of)));
    run.stdout = kept.join("\n");
    run
}

/// Lists the cases in a program, and whether each is marked `spec`.
fn listed(program: &PathBuf) -> Result<Vec<(String, bool)>, SetupError> {
    let finished = process::run(Command::new(program).arg("--list"), Duration::from_secs(20))
        .map_err(crate::io_error(format!("cannot run {}", program.display())))?;
    Ok(finished
        .stdout
        .lines()
        .map(|line| match line.split_once(' ') {
            Some((name, mark)) => (name.to_owned(), mark == "spec"),
            None => (line.to_owned(), false),
        })
        .collect())
}

fn compare(
    sides: &Sides,
    program: &PathBuf,
    case: &str,
    spec: bool,
) -> Result<Verdict, SetupError> {
    let launch = || Launch::new(program).args([case]);
    // Some of these hang natively, so a short limit saves time.
    let native_launch = if spec {
        launch().limit(Duration::from_secs(10))
    } else {
        launch()
    };
    let native = steady_native(sides, &native_launch)?;
    let causeway = sides.run(Side::Causeway, &launch())?;
    let (native, causeway) = match sides.mode {
        Mode::Plain if sides.shares_devices() => {
            (without(native, &DIVIDED), without(causeway, &DIVIDED))
        }
        Mode::Plain => (native, causeway),
        _ => (without(native, &[NUMBERED]), without(causeway, &[NUMBERED])),
    };
    if sides.mode.spans() && !native.succeeded() && native.exit != SKIPPED && !causeway.succeeded()
    {
        return Ok(Verdict::Skipped(format!(
            "no program for a context of several devices: {}",
            complaint(&native).lines().next().unwrap_or_default()
        )));
    }
    let spec = spec || sides.against_spec || sides.mode.spans();
    Ok(judge(&native, &causeway, spec))
}

// PoCL 3.1 sometimes crashes when a program exits with unfinished work. So a crashed native run is repeated.
fn steady_native(sides: &Sides, launch: &Launch) -> Result<Finished, SetupError> {
    let mut native = sides.run(Side::Native, launch)?;
    for _ in 0..3 {
        if !matches!(native.exit, Exit::Signal(_)) {
            break;
        }
        native = sides.run(Side::Native, launch)?;
    }
    Ok(native)
}

fn judge(native: &Finished, causeway: &Finished, spec: bool) -> Verdict {
    if native.exit == SKIPPED && causeway.exit == SKIPPED {
        return Verdict::Skipped(last_line(native));
    }
    if native.succeeded() || native.exit == SKIPPED {
        if causeway.exit != native.exit {
            return Verdict::Failed(complaint(causeway));
        }
        return match first_difference(&native.stdout, &causeway.stdout) {
            None => Verdict::Passed,
            Some(difference) => Verdict::Failed(difference),
        };
    }
    if !spec {
        return Verdict::Failed(format!("the native run failed: {}", complaint(native)));
    }
    if causeway.succeeded() {
        return Verdict::Noted(format!("native: {}", complaint(native)));
    }
    Verdict::Failed(format!(
        "against the specification: {}\nnative: {}",
        complaint(causeway),
        complaint(native)
    ))
}

/// Returns the failed expectations of a run, or how it ended.
fn complaint(run: &Finished) -> String {
    let failed: Vec<&str> = run
        .stdout
        .lines()
        .filter_map(|line| line.strip_prefix("FAILED: "))
        .take(8)
        .collect();
    if run.exit == Exit::Code(1) && !failed.is_empty() {
        return failed.join("\n");
    }
    let mut lines = vec![format!("{} after \"{}\"", run.exit, last_line(run))];
    lines.extend(failed.iter().map(ToString::to_string));
    lines.extend(run.stderr.lines().rev().take(3).map(ToOwned::to_owned));
    lines.join("\n")
}

fn last_line(run: &Finished) -> String {
    let last = run.stdout.lines().next_back().unwrap_or_default();
    last.strip_prefix("skipped: ").unwrap_or(last).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(exit: Exit, stdout: &str) -> Finished {
        Finished {
            exit,
            stdout: stdout.into(),
            stderr: String::new(),
            took: Duration::ZERO,
        }
    }

    #[test]
    fn equal_runs_pass() {
        let run = ended(Exit::Code(0), "a -> CL_SUCCESS\n");
        assert_eq!(judge(&run, &run, false), Verdict::Passed);
    }

    #[test]
    fn a_different_text_fails() {
        let native = ended(Exit::Code(0), "a -> CL_SUCCESS\n");
        let causeway = ended(Exit::Code(0), "a -> CL_INVALID_VALUE\n");
        assert!(matches!(
            judge(&native, &causeway, true),
            Verdict::Failed(_)
        ));
    }

    #[test]
    fn a_native_failure_is_noted_only_for_spec_cases() {
        let native = ended(Exit::Code(1), "FAILED: line 3: x\n");
        let causeway = ended(Exit::Code(0), "fine\n");
        assert_eq!(
            judge(&native, &causeway, true),
            Verdict::Noted("native: line 3: x".into())
        );
        assert!(matches!(
            judge(&native, &causeway, false),
            Verdict::Failed(_)
        ));
    }

    #[test]
    fn a_native_crash_does_not_excuse_causeway() {
        let crash = ended(Exit::Signal(11), "half a li");
        assert!(matches!(judge(&crash, &crash, true), Verdict::Failed(_)));
    }

    #[test]
    fn a_skip_must_be_on_both_sides() {
        let skip = ended(SKIPPED, "skipped: no out-of-order queues\n");
        let ran = ended(Exit::Code(0), "ran\n");
        assert_eq!(
            judge(&skip, &skip, false),
            Verdict::Skipped("no out-of-order queues".into())
        );
        assert!(matches!(judge(&ran, &skip, false), Verdict::Failed(_)));
        assert!(matches!(judge(&skip, &ran, false), Verdict::Failed(_)));
    }
}
