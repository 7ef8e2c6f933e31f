//! Test cases: their results, and running many of them.

use std::collections::VecDeque;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::SetupError;
use crate::mode::Mode;
use crate::report::Report;
use crate::sides::Sides;

/// The result of a comparison.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Both sides agree.
    Passed,
    /// Both sides agree as far as required. The note says where the native side departs, or gives figures.
    Noted(String),
    /// Both sides agree. The note is as above; the parts that were not compared follow, each with its reason.
    Partly(String, Vec<(String, String)>),
    /// A fault ended as required.
    Ended {
        /// The error or message that the program saw.
        saw: String,
        /// Time from the fault to its end.
        took: Duration,
    },
    /// The sides differ; the reasons, on one or more lines.
    Failed(String),
    /// The case was not compared, for this reason.
    Skipped(String),
}

/// The function that makes a comparison.
type Run = dyn Fn(&Sides) -> Result<Verdict, SetupError> + Send;

/// A comparison that can be run.
pub(crate) struct Case {
    /// The name: `suite/what`.
    pub(crate) name: String,
    run: Box<Run>,
}

impl Case {
    /// Makes a case whose result `run` decides.
    pub(crate) fn new(
        name: impl Into<String>,
        run: impl Fn(&Sides) -> Result<Verdict, SetupError> + Send + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            run: Box::new(run),
        }
    }

    /// Adds the mode to the case's name.
    pub(crate) fn in_mode(mut self, mode: Mode) -> Self {
        self.name = mode.title(&self.name);
        self
    }

    /// Makes a case that is skipped for a reason known beforehand.
    pub(crate) fn skipped(name: impl Into<String>, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self::new(name, move |_| Ok(Verdict::Skipped(reason.clone())))
    }
}

/// A case that has been run.
pub(crate) struct Outcome {
    pub(crate) name: String,
    pub(crate) verdict: Verdict,
    pub(crate) took: Duration,
}

/// Runs the cases, as many at a time as there are `sides`, and reports each as it ends.
pub(crate) fn run_all(cases: Vec<Case>, sides: &[&Sides], report: &mut Report) {
    run_at_once(vec![(cases, sides.to_vec())], report);
}

/// Runs several lists of cases at the same time, each as [`run_all`].
pub(crate) fn run_at_once(runs: Vec<(Vec<Case>, Vec<&Sides>)>, report: &mut Report) {
    let (done, outcomes) = mpsc::channel();
    thread::scope(|scope| {
        for (cases, sides) in runs {
            let waiting = Arc::new(Mutex::new(VecDeque::from(cases)));
            for sides in sides {
                let (done, waiting) = (done.clone(), Arc::clone(&waiting));
                scope.spawn(move || {
                    loop {
                        let Some(case) = waiting.lock().pop_front() else {
                            return;
                        };
                        if done.send(run_one(case, sides)).is_err() {
                            return;
                        }
                    }
                });
            }
        }
        drop(done);
        for outcome in outcomes {
            report.add(outcome);
        }
    });
}

fn run_one(case: Case, sides: &Sides) -> Outcome {
    let begin = Instant::now();
    let mut verdict = (case.run)(sides).unwrap_or_else(|error| Verdict::Failed(error.to_string()));
    if let Some(obituary) = sides.obituary() {
        verdict = Verdict::Failed(match verdict {
            Verdict::Failed(why) => format!("{obituary}\n{why}"),
            _ => obituary,
        });
    }
    Outcome {
        name: case.name,
        verdict,
        took: begin.elapsed(),
    }
}

/// Returns the first line in which two texts differ, formatted for a report.
pub(crate) fn first_difference(native: &str, causeway: &str) -> Option<String> {
    let (mut left, mut right) = (native.lines(), causeway.lines());
    let mut number = 0;
    loop {
        number += 1;
        match (left.next(), right.next()) {
            (None, None) => return None,
            (a, b) if a == b => {}
            (a, b) => {
                return Some(format!(
                    "line {number}\n  native:   {}\n  causeway: {}",
                    a.unwrap_or("(nothing)"),
                    b.unwrap_or("(nothing)")
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_do_not_differ() {
        assert_eq!(first_difference("a\nb\n", "a\nb"), None);
    }

    #[test]
    fn the_first_difference_is_told() {
        let told = first_difference("a\nb\nc", "a\nx\ny").unwrap();
        assert_eq!(told, "line 2\n  native:   b\n  causeway: x");
        assert!(
            first_difference("a", "a\nb")
                .unwrap()
                .contains("native:   (nothing)")
        );
    }
}
