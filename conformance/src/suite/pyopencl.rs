//! PyOpenCL's own tests. Tests that pass natively must pass through Causeway, on the system's driver and
//! on the newest PoCL of PyPI.
//!
//! pip downloads exact versions from PyPI into `target/conformance/pyopencl`: the wheels (PyOpenCL's
//! contains an OpenCL loader) and the source archive with the tests. Tests that fail or are skipped
//! natively are not judged.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::SetupError;
use crate::case::{Case, Verdict};
use crate::io_error;
use crate::places::work_directory;
use crate::process::{self, Finished};
use crate::programs::Programs;
use crate::sides::{Launch, Side, Sides};
use crate::suite::on_path;

const PYOPENCL: &str = "pyopencl==2026.1.4";
const ARCHIVE: &str = "pyopencl-2026.1.4";
/// The newest PoCL of PyPI, from 2022.
const POCL: &str = "pocl-binary-distribution==3.0";
const OTHERS: [&str; 5] = [
    "numpy==2.4.6",
    "pytest==9.2.0",
    "mako==1.4.3",
    "pytools==2026.1.1",
    "siphash24==1.9",
];

/// The test files, quick ones first.
const FILES: [&str; 7] = [
    "test_wrapper",
    "test_enqueue_copy",
    "test_arrays_in_structs",
    "test_clmath",
    "test_clrandom",
    "test_algorithm",
    "test_array",
];

/// Tests that may be skipped because our devices lack something: a part of the name, and what is lacking.
/// A failure is never excused.
const RIGHT: &[(&str, &str)] = &[("fine_grain_svm", "of one host's memory")];

/// Why a failing test is not Causeway's fault: see [`fail_by_name`].
const BY_NAME: &str = "fails on the native driver too when the platform has another vendor's name";

/// Time limit for one file's tests on one side. The longest takes minutes on two cores.
const LIMIT: Duration = Duration::from_secs(2400);

/// Time limit for one call of pip.
const INSTALL_LIMIT: Duration = Duration::from_secs(400);

/// The cases on the system's driver.
pub(super) fn cases(_: &Programs, _: &Sides) -> Result<Vec<Case>, SetupError> {
    Ok(cases_over("pyopencl", |_| Ok(None)))
}

/// The cases on PyPI's PoCL.
pub(super) fn cases_on_pypi(_: &Programs, _: &Sides) -> Result<Vec<Case>, SetupError> {
    Ok(cases_over("pyopencl-pypi", |place| {
        install_pocl(place).map(Some)
    }))
}

/// Makes a case for each test file. `get` provides the driver; `None` means the system's.
fn cases_over(
    suite: &'static str,
    get: impl FnOnce(&Path) -> Result<Option<PathBuf>, String>,
) -> Vec<Case> {
    if !on_path("python3") {
        return vec![Case::skipped(suite, "python3 is not installed")];
    }
    let place = work_directory().join("pyopencl");
    let driver = match install(&place).and_then(|()| get(&place)) {
        Ok(driver) => driver,
        Err(error) => {
            return vec![Case::skipped(suite, format!("cannot install it: {error}"))];
        }
    };
    let case = |file| {
        let (place, driver) = (place.clone(), driver.clone());
        let name = format!("{suite}/{file}");
        Case::new(name.clone(), move |sides| {
            let Some(driver) = &driver else {
                return compare(sides, &place, &name, file);
            };
            let (variable, value) = NEEDS_OF_POCL;
            match sides.over(driver, &[(variable, value.to_owned())])? {
                Some(over) => compare(&over, &place, &name, file),
                None => Ok(Verdict::Skipped("--server has its own driver".into())),
            }
        })
    };
    FILES.into_iter().map(case).collect()
}

/// Installs PyPI's PoCL into the directory, unless it is there. Returns its library. It is kept apart
/// from the wheels, because PyOpenCL's loader would find it beside them.
fn install_pocl(place: &Path) -> Result<PathBuf, String> {
    let target = place.join("pocl");
    let folder = target.join("pyopencl/.libs");
    if !folder.is_dir() {
        step(
            Command::new(place.join("venv/bin/python"))
                .args(["-m", "pip", "install", "-q", "--no-deps", POCL])
                .arg("--target")
                .arg(&target),
        )?;
    }
    let files = fs::read_dir(&folder).map_err(|error| error.to_string())?;
    let mut paths = files.flatten().map(|entry| entry.path());
    let is_driver = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("libpocl-") && name.ends_with(".so")
    };
    let driver = paths.find(is_driver);
    driver.ok_or_else(|| format!("no libpocl in {}", folder.display()))
}

/// Setting for the daemon's sandbox, as a user would choose it. PyPI's PoCL consists of two folders, and
/// its hwloc finds no memory unless it may open `/`.
const NEEDS_OF_POCL: (&str, &str) = ("CAUSEWAYD_SANDBOX_READ", "/");

/// Installs wheel, archive and plugin into the directory, unless they are there.
fn install(place: &Path) -> Result<(), String> {
    let done = place.join(format!("{ARCHIVE}.done"));
    if !done.exists() {
        let _ = fs::remove_dir_all(place);
        fs::create_dir_all(place).map_err(|error| error.to_string())?;
        let python = place.join("venv/bin/python");
        step(
            Command::new("python3")
                .args(["-m", "venv"])
                .arg(place.join("venv")),
        )?;
        step(
            Command::new(&python)
                .args(["-m", "pip", "install", "-q", PYOPENCL])
                .args(OTHERS),
        )?;
        step(
            Command::new(&python)
                .args(["-m", "pip", "download", "-q", "--no-deps"])
                .args(["--no-binary", "pyopencl", PYOPENCL, "-d"])
                .arg(place),
        )?;
        step(
            Command::new("tar")
                .arg("xzf")
                .arg(place.join(format!("{ARCHIVE}.tar.gz")))
                .arg("-C")
                .arg(place),
        )?;
        // The tests are copied, because beside the package's sources Python would import
        // those instead of the wheel.
        step(
            Command::new("cp")
                .arg("-r")
                .arg(place.join(ARCHIVE).join("test"))
                .arg(place),
        )?;
        fs::write(&done, "").map_err(|error| error.to_string())?;
    }
    let plugin = include_str!("../../programs/outcomes.py");
    fs::write(place.join("test/outcomes.py"), plugin).map_err(|error| error.to_string())
}

fn step(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let finished =
        process::run(command, INSTALL_LIMIT).map_err(|error| format!("{program}: {error}"))?;
    if finished.succeeded() {
        return Ok(());
    }
    let last = finished
        .tail()
        .lines()
        .next_back()
        .unwrap_or_default()
        .to_owned();
    Err(format!("{program}: {}: {last}", finished.exit))
}

/// Test names and their outcomes.
type Outcomes = BTreeMap<String, String>;

fn compare(sides: &Sides, place: &Path, case: &str, file: &str) -> Result<Verdict, SetupError> {
    let (native_run, native) = run(sides, Side::Native, place, file, &[])?;
    let (causeway_run, causeway) = run(sides, Side::Causeway, place, file, &[])?;
    let passing: Vec<&String> = native
        .iter()
        .filter(|(_, outcome)| *outcome == "passed")
        .map(|(name, _)| name)
        .collect();
    if passing.is_empty() {
        return Ok(Verdict::Skipped(format!(
            "no test passes natively ({}): {}",
            native_run.exit,
            native_run.tail().lines().next_back().unwrap_or_default()
        )));
    }
    let mut wrong = Vec::new();
    let mut skipped = Vec::new();
    for name in &passing {
        let outcome = causeway.get(*name).map_or("not run", String::as_str);
        if outcome == "passed" {
            continue;
        }
        match RIGHT.iter().find(|(part, _)| name.contains(part)) {
            Some((_, lack)) if outcome == "skipped" => {
                let test = name.split('[').next().unwrap_or(name);
                skipped.push((format!("{case}: {test}"), (*lack).to_owned()));
            }
            _ => wrong.push((name.as_str(), outcome)),
        }
    }
    let by_name = fail_by_name(sides, place, file, &mut wrong)?;
    skipped.extend(
        by_name
            .into_iter()
            .map(|test| (format!("{case}: {test}"), BY_NAME.to_owned())),
    );
    let count = format!(
        "{} tests pass natively, {} of them through Causeway; {:.0} s and {:.0} s",
        passing.len(),
        passing.len() - wrong.len() - skipped.len(),
        native_run.took.as_secs_f64(),
        causeway_run.took.as_secs_f64()
    );
    if wrong.is_empty() {
        return Ok(Verdict::Partly(count, skipped));
    }
    let output = place.join(format!("{}.log", case.replace('/', "-")));
    fs::write(&output, &causeway_run.stdout).map_err(io_error("cannot keep pytest's output"))?;
    let wrong = wrong
        .iter()
        .map(|(name, outcome)| format!("{name}: {outcome}\n"));
    Ok(Verdict::Failed(format!(
        "{count}; {}\n{}its output: {}",
        causeway_run.exit,
        wrong.collect::<String>(),
        output.display()
    )))
}

/// Removes from `wrong` the tests that also fail on the native driver under another platform name. PyOpenCL's
/// tests work around some of their own faults by the vendor's name. Returns the functions of these tests.
fn fail_by_name(
    sides: &Sides,
    place: &Path,
    file: &str,
    wrong: &mut Vec<(&str, &str)>,
) -> Result<Vec<String>, SetupError> {
    let mut functions: Vec<&str> = wrong.iter().map(|(name, _)| function_of(name)).collect();
    functions.dedup();
    if functions.is_empty() {
        return Ok(Vec::new());
    }
    let renamed = ["-k".to_owned(), functions.join(" or ")];
    let (_, outcomes) = run(sides, Side::Native, place, file, &renamed)?;
    let mut taken = Vec::new();
    wrong.retain(|(name, _)| {
        let fails = outcomes
            .get(*name)
            .is_some_and(|outcome| outcome == "failed");
        if fails {
            taken.push(function_of(name).to_owned());
        }
        !fails
    });
    Ok(taken)
}

/// Returns `test_a` of `test_file.py::test_a[…]`.
fn function_of(name: &str) -> &str {
    let inside = name.split_once("::").map_or(name, |(_, test)| test);
    inside.split('[').next().unwrap_or(inside)
}

/// Runs pytest. With `only`, the selection for pytest, the platform has Causeway's vendor name.
fn run(
    sides: &Sides,
    side: Side,
    place: &Path,
    file: &str,
    only: &[String],
) -> Result<(Finished, Outcomes), SetupError> {
    let outcomes = sides.fresh_directory()?.join("outcomes");
    let python: PathBuf = place.join("venv/bin/python");
    let launch = Launch::new(python)
        .args([
            "-m",
            "pytest",
            "-q",
            "--tb=short",
            "-p",
            "no:cacheprovider",
            "-p",
            "outcomes",
        ])
        .args([format!("{file}.py")])
        .args(only.iter().cloned())
        .env(
            "OUTCOMES_VENDOR",
            if only.is_empty() { "" } else { "Causeway" },
        )
        .directory(place.join("test"))
        .env("OUTCOMES", outcomes.to_string_lossy())
        .env("PYTHONPATH", ".")
        .env("PYOPENCL_NO_CACHE", "1")
        .limit(LIMIT);
    let finished = sides.run(side, &launch)?;
    let text = fs::read_to_string(&outcomes).unwrap_or_default();
    let outcomes = text
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .map(|(outcome, name)| (without_platform(name), outcome.to_owned()))
        .collect();
    Ok((finished, outcomes))
}

/// Removes the platform from a test's name. The name contains device and platform, and the platform differs.
fn without_platform(name: &str) -> String {
    let mut plain = name.to_owned();
    for mark in [" on '", "pyopencl.Platform '"] {
        let mut from = 0;
        while let Some(start) = plain[from..].find(mark).map(|at| from + at + mark.len()) {
            let end = plain[start..]
                .find('\'')
                .map_or(plain.len(), |at| start + at);
            plain.replace_range(start..end, "");
            from = start;
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_same_on_both_platforms() {
        let on = |platform: &str| {
            without_platform(&format!(
                "test_a.py::test_b[<context factory for <pyopencl.Device 'd' on '{platform}'>>-1]"
            ))
        };
        assert_eq!(on("Portable Computing Language"), on("Causeway"));
        assert!(on("x").ends_with("'d' on ''>>-1]"));
        let platform = without_platform("test_unload[<pyopencl.Platform 'Causeway'>]");
        assert_eq!(platform, "test_unload[<pyopencl.Platform ''>]");
    }

    #[test]
    fn a_tests_function_is_known_from_its_name() {
        assert_eq!(function_of("test_a.py::test_b[<x 'y::z[1]'>-1]"), "test_b");
        assert_eq!(function_of("test_a.py::test_b"), "test_b");
    }
}
