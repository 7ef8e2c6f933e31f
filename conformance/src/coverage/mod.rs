//! `conformance coverage`: shows which entry points the cases of `api` call, and with which results.
//!
//! Each case runs once through Causeway. Causeway's own log shows every call that reached it and the code
//! that the call returned (`CAUSEWAY_LOG=causeway::api::entry=trace`). Calls that a loader answers
//! itself, such as those with a NULL handle, are not counted. The table has a row for each function:
//! tested, or refused by design with the reason. The run fails if a function is neither. It also fails if
//! a function lacks a code of the specification without a reason why no case can see that code.
//!
//! Nothing is compared with the native driver here; `api` does that with the same cases.

mod refused;
mod specification;
mod table;
mod unreachable;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::SetupError;
use crate::case::{self, Case, Verdict};
use crate::options::Options;
use crate::programs::Programs;
use crate::report::Report;
use crate::sides::{Launch, Side, Sides};
use crate::suite::api;

/// The variable that makes the library log its calls on stderr.
pub(crate) const LOG: (&str, &str) = ("CAUSEWAY_LOG", "off,causeway::api::entry=trace");
/// The text before each call in the log.
pub(crate) const MARK: &str = " causeway::api::entry: ";

/// The cases that saw a code, by function and code.
type Seen = BTreeMap<(String, String), BTreeSet<String>>;

/// Runs the cases and prints the table. Returns whether nothing is missing.
pub(crate) fn run(options: &Options) -> Result<bool, SetupError> {
    let programs = Programs::open(options.programs.as_deref())?;
    let sides = Sides::open(options)?;
    let seen = Arc::new(Mutex::new(Seen::new()));
    let mut report = Report::new(options.notes);
    report.begin_suite("coverage");
    let mut cases = Vec::new();
    for api::Listed {
        group, name, path, ..
    } in api::all(&programs)?
    {
        let title = format!("{group}/{name}");
        if !options.filter.iter().all(|part| title.contains(part)) {
            continue;
        }
        let seen = Arc::clone(&seen);
        cases.push(Case::new(title.clone(), move |sides| {
            let launch = Launch::new(&path).args([&*name]).env(LOG.0, LOG.1);
            let ended = sides.run(Side::Causeway, &launch)?;
            let mut seen = seen.lock();
            for call in calls(&ended.stderr) {
                seen.entry(call).or_default().insert(title.clone());
            }
            Ok(match api::ran(&ended) {
                Ok(()) => Verdict::Passed,
                Err(why) => Verdict::Failed(why),
            })
        }));
    }
    let sides = vec![&sides; options.jobs.into()];
    case::run_all(cases, &sides, &mut report);
    let is_whole = table::print(&seen.lock());
    Ok(report.finish() && is_whole)
}

/// Returns the calls in a log with the codes that they returned.
pub(crate) fn calls(log: &str) -> impl Iterator<Item = (String, String)> {
    log.lines().filter_map(call)
}

/// Parses a line of the log: a function and the code that it returned.
fn call(line: &str) -> Option<(String, String)> {
    let (_, said) = line.split_once(MARK)?;
    let (function, answer) = said.split_once(": ")?;
    let code = answer.split(' ').next()?;
    let is_call = function.starts_with("cl") && code.starts_with("CL_");
    is_call.then(|| (function.to_owned(), code.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_told_by_its_line() {
        let line = "2026-11-22T03:12:00Z DEBUG causeway::api::entry: clGetDeviceIDs: CL_DEVICE_NOT_FOUND (-1)";
        let expected = (
            "clGetDeviceIDs".to_owned(),
            "CL_DEVICE_NOT_FOUND".to_owned(),
        );
        assert_eq!(call(line), Some(expected));
        assert_eq!(call("clGetDeviceIDs: CL_SUCCESS (0)"), None);
        assert_eq!(call("x causeway::api::entry: something else: y"), None);
    }
}
