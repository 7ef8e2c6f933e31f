//! Tests and tuners of CLBlast, as packaged by Debian: their output, without times and colours.

use std::time::Duration;

use crate::SetupError;
use crate::case::{Case, Verdict, first_difference};
use crate::programs::Programs;
use crate::sides::{Launch, Side, Sides};
use crate::suite::on_path;

/// Tests of `clblast-tests` that take seconds on a CPU.
const TESTS: [&str; 8] = [
    "xaxpy", "xscal", "xswap", "xcopy", "xdot", "xasum", "xamax", "xger",
];

/// Tuners of `clblast-utils` with few configurations.
const TUNERS: [&str; 2] = ["xdot", "invert"];

const LIMIT: Duration = Duration::from_secs(300);

pub(super) fn cases(_: &Programs, _: &Sides) -> Result<Vec<Case>, SetupError> {
    let tests = TESTS
        .iter()
        .map(|name| case("test", name, "clblast-tests", test_facts));
    let tuners = TUNERS
        .iter()
        .map(|name| case("tuner", name, "clblast-utils", tuner_facts));
    Ok(tests.chain(tuners).collect())
}

fn case(kind: &str, name: &str, package: &str, facts: fn(&str) -> String) -> Case {
    let program = format!("clblast_{kind}_{name}");
    let title = format!("clblast/{kind}_{name}");
    if !on_path(&program) {
        return Case::skipped(title, format!("the package {package} is not installed"));
    }
    Case::new(title, move |sides| {
        let run = |side| -> Result<_, SetupError> {
            // Tuners write their results into the working directory.
            let directory = sides.fresh_directory()?;
            sides.run(
                side,
                &Launch::new(&program).directory(directory).limit(LIMIT),
            )
        };
        // With PoCL's contexts of two devices, these programs crash at their end. Their output does not
        // depend on the number of devices.
        let native = run(if sides.mode.spans() {
            Side::NativeAlone
        } else {
            Side::Native
        })?;
        let causeway = run(Side::Causeway)?;
        if native.exit != causeway.exit {
            return Ok(Verdict::Failed(format!(
                "native: {}, causeway: {}\n{}",
                native.exit,
                causeway.exit,
                causeway.tail()
            )));
        }
        let (theirs, ours) = (facts(&native.stdout), facts(&causeway.stdout));
        Ok(match first_difference(&theirs, &ours) {
            None if theirs.is_empty() => Verdict::Failed("it printed no result".into()),
            None => Verdict::Passed,
            Some(difference) => Verdict::Failed(difference),
        })
    })
}

/// The facts of a test: its whole output.
fn test_facts(text: &str) -> String {
    without_colours(text)
}

/// The facts of a tuner: the rows of its table without times. These have number, parameters, ranges,
/// whether the kernel compiled and whether the results match.
fn tuner_facts(text: &str) -> String {
    let text = without_colours(text);
    let mut facts = String::new();
    for line in text.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if cells.len() < 10 || cells[1] == "ID" {
            continue;
        }
        let compiled = cells[6].split_whitespace().next().unwrap_or_default();
        facts.push_str(&[&cells[1..6], &[compiled, cells[9]]].concat().join(" | "));
        facts.push('\n');
    }
    facts
}

/// Removes ANSI colour sequences.
fn without_colours(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("\u{1b}[") {
        plain.push_str(&rest[..start]);
        rest = match rest[start..].find('m') {
            Some(end) => &rest[start + end + 1..],
            None => "",
        };
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_colours_go() {
        let row = "|    1 |     6 |   32 |      32       1 |    4096       1 |   \
                   \u{1b}[32mOK\u{1b}[0m    117 ms |      4.22 ms |    4.0 |     \
                   \u{1b}[32mresults match\u{1b}[0m |\n";
        assert_eq!(
            tuner_facts(row),
            "1 | 6 | 32 | 32       1 | 4096       1 | OK | results match\n"
        );
    }
}
