//! Runs `clpeak` one test at a time, and shows the figures side by side.

use std::time::Duration;

use crate::SetupError;
use crate::case::{Case, Verdict};
use crate::programs::Programs;
use crate::sides::{Launch, Side, Sides};
use crate::suite::on_path;

const TESTS: [&str; 7] = [
    "global-bandwidth",
    "compute-sp",
    "compute-dp",
    "compute-integer",
    "compute-intfast",
    "transfer-bandwidth",
    "kernel-latency",
];

pub(super) fn cases(_: &Programs, _: &Sides) -> Result<Vec<Case>, SetupError> {
    if !on_path("clpeak") {
        return Ok(vec![Case::skipped("clpeak", "clpeak is not installed")]);
    }
    Ok(TESTS
        .into_iter()
        .map(|test| Case::new(format!("clpeak/{test}"), move |sides| compare(sides, test)))
        .collect())
}

fn compare(sides: &Sides, test: &str) -> Result<Verdict, SetupError> {
    let launch = Launch::new("clpeak")
        .args([format!("--{test}")])
        .limit(Duration::from_secs(600));
    let native = sides.run(Side::Native, &launch)?;
    let causeway = sides.run(Side::Causeway, &launch)?;
    for (run, side) in [(&native, "native"), (&causeway, "causeway")] {
        if !run.succeeded() {
            return Ok(Verdict::Failed(format!(
                "{side}: {}\n{}",
                run.exit,
                run.tail()
            )));
        }
    }
    let (theirs, ours) = (figures(&native.stdout), figures(&causeway.stdout));
    let names = |of: &[(String, String)]| -> Vec<String> {
        of.iter().map(|(name, _)| name.clone()).collect()
    };
    if names(&theirs) != names(&ours) {
        return Ok(Verdict::Failed(format!(
            "figures for {:?} natively, for {:?} through Causeway\n{}",
            names(&theirs),
            names(&ours),
            causeway.tail()
        )));
    }
    Ok(Verdict::Noted(side_by_side(test, &theirs, &ours)))
}

/// Returns the lines `name : figure` after the device's own description.
fn figures(text: &str) -> Vec<(String, String)> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()))
        .filter(|(name, value)| {
            let described = [
                "Device",
                "Driver version",
                "Compute units",
                "Clock frequency",
            ];
            !described.contains(&name.as_str())
                && value.starts_with(|first: char| first.is_ascii_digit())
        })
        .collect()
}

fn side_by_side(test: &str, theirs: &[(String, String)], ours: &[(String, String)]) -> String {
    let mut text = format!("{test}: figure, native, causeway");
    for ((name, native), (_, causeway)) in theirs.iter().zip(ours) {
        text.push_str(&format!("\n{name:<34} {native:>14} {causeway:>14}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_and_the_device_is_not() {
        let text = "Platform: P\n  Device: 9000\n    Compute units   : 2\n\n    \
                    Kernel launch latency : 36.06 us\n      float   : 17.57\n";
        let found = figures(text);
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert!(names.contains(&"Kernel launch latency") && names.contains(&"float"));
        assert!(!names.contains(&"Compute units"));
    }
}
