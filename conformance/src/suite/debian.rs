//! Programs from Debian's archive, each run by a script of `programs/debian`: their output,
//! natively and through Causeway.
//!
//! A script names its packages in its head. Invariant: a program that launched no kernel through Causeway
//! proves nothing, and fails.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::case::{Case, Verdict, first_difference};
use crate::coverage::{self, calls};
use crate::process::Finished;
use crate::programs::Programs;
use crate::sides::{Launch, Side, Sides};
use crate::{SetupError, io_error};

const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/debian");
const LIMIT: Duration = Duration::from_secs(300);
/// Number of further native runs if the two sides differ.
const AGAIN: usize = 3;
/// Debian's own interpreter, which has Debian's modules, even if others are installed.
const PYTHON: &str = "/usr/bin/python3";

/// A script, with the data from its head.
struct Script {
    path: PathBuf,
    name: String,
    package: String,
}

pub(super) fn cases(_: &Programs, _: &Sides) -> Result<Vec<Case>, SetupError> {
    let listed = fs::read_dir(SCRIPTS).map_err(io_error(format!("no scripts in {SCRIPTS}")))?;
    let mut scripts: Vec<Script> = listed
        .flatten()
        .filter_map(|of| script(of.path()))
        .collect();
    scripts.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(scripts.into_iter().map(case).collect())
}

fn script(path: PathBuf) -> Option<Script> {
    let text = fs::read_to_string(&path).ok()?;
    let package = text
        .lines()
        .find_map(|line| line.strip_prefix("# package: "))?;
    Some(Script {
        name: path.file_stem()?.to_string_lossy().into_owned(),
        package: package.to_owned(),
        path,
    })
}

fn case(script: Script) -> Case {
    let title = format!("debian/{}", script.name);
    if !is_installed(&script.package) {
        let package = script.package;
        return Case::skipped(title, format!("apt-get install {package}"));
    }
    Case::new(title, move |sides| compare(sides, &script.path))
}

fn compare(sides: &Sides, script: &Path) -> Result<Verdict, SetupError> {
    let run = |side, log: Option<(&str, &str)>| -> Result<Finished, SetupError> {
        let launch = match script.extension().is_some_and(|of| of == "py") {
            // `-P` keeps the script's own folder out of the module path.
            true => Launch::new(PYTHON).args(["-P"]),
            false => Launch::new("sh").args(["-e"]),
        };
        let launch = launch
            .args([script.to_string_lossy()])
            .directory(sides.fresh_directory()?)
            .limit(LIMIT);
        let launch = match log {
            Some((name, value)) => launch.env(name, value),
            None => launch,
        };
        sides.run(side, &launch)
    };
    let native = run(Side::Native, None)?;
    let causeway = run(Side::Causeway, Some(coverage::LOG))?;
    if !native.succeeded() || native.stdout.is_empty() {
        return Ok(Verdict::Failed(format!(
            "natively: {}\n{}",
            native.exit,
            native.tail()
        )));
    }
    if native.exit != causeway.exit {
        let said = causeway
            .stderr
            .lines()
            .filter(|line| !line.contains(coverage::MARK));
        let said: Vec<&str> = said.collect();
        let tail = said[said.len().saturating_sub(8)..].join("\n");
        return Ok(Verdict::Failed(format!(
            "causeway: {}\n{tail}",
            causeway.exit
        )));
    }
    let difference = first_difference(&native.stdout, &causeway.stdout);
    if let Some(difference) = &difference
        && !is_native_answer(&causeway, || run(Side::Native, None))?
    {
        return Ok(Verdict::Failed(difference.clone()));
    }
    let launches = calls(&causeway.stderr)
        .filter(|(function, code)| function == "clEnqueueNDRangeKernel" && code == "CL_SUCCESS")
        .count();
    Ok(match launches {
        0 if sides.is_causeway() => {
            Verdict::Failed("it launched no kernel through Causeway".to_owned())
        }
        _ => Verdict::Noted(format!(
            "{launches} kernels; {:.1} s natively, {:.1} s through Causeway{}",
            native.took.as_secs_f64(),
            causeway.took.as_secs_f64(),
            match difference {
                Some(_) => "; natively not always the same",
                None => "",
            }
        )),
    })
}

/// Whether the program sometimes prints this output natively too. For example, pyFAI's sum was different
/// in 2 of 60 native runs on busy cores.
fn is_native_answer(
    causeway: &Finished,
    native: impl Fn() -> Result<Finished, SetupError>,
) -> Result<bool, SetupError> {
    for _ in 0..AGAIN {
        if native()?.stdout == causeway.stdout {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether all of these packages are installed.
fn is_installed(packages: &str) -> bool {
    packages.split_whitespace().all(|package| {
        let asked = Command::new("dpkg-query")
            .args(["--show", "--showformat", "${db:Status-Status}", package])
            .stderr(Stdio::null())
            .output();
        asked.is_ok_and(|asked| asked.stdout == b"installed")
    })
}
