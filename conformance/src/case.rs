//! A case, what came of it, and running many.

use std::collections::VecDeque;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::SetupError;
use crate::mode::Mode;
use crate::report::Report;
use crate::sides::Sides;

/// What a comparison came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Both sides agree.
    Passed,
    /// They agree as far as they must; the note says where the native side departs,
    /// or gives figures.
    Noted(String),
    /// They agree; the note as above, and parts that were not compared, each with its reason.
    Partly(String, Vec<(String, String)>),
    /// A fault ended as it must: what the program saw of it, and how long it took to end.
    Ended {
        /// The error or message.
        saw: String,
        /// From the fault to the end.
        took: Duration,
    },
    /// They do not; why, on one or more lines.
    Failed(String),
    /// Not compared, and why.
    Skipped(String),
}

/// What makes a comparison.
type Run = dyn Fn(&Sides) -> Result<Verdict, SetupError> + Send;

/// A comparison, ready to be made.
pub(crate) struct Case {
    /// `suite/what`.
    pub(crate) name: String,
    run: Box<Run>,
}

impl Case {
    /// A case that `run` decides.
    pub(crate) fn new(
        name: impl Into<String>,
        run: impl Fn(&Sides) -> Result<Verdict, SetupError> + Send + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            run: Box::new(run),
        }
    }

    /// The same under its name in a mode.
    pub(crate) fn in_mode(mut self, mode: Mode) -> Self {
        self.name = mode.title(&self.name);
        self
    }

    /// A case that is skipped for a reason known beforehand.
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

/// Runs the cases, `jobs` at a time, and reports each as it ends.
pub(crate) fn run_all(cases: Vec<Case>, jobs: u16, sides: &Sides, report: &mut Report) {
    let waiting = Mutex::new(VecDeque::from(cases));
    let (done, outcomes) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..jobs {
            let done = done.clone();
            let waiting = &waiting;
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

/// The first line in which two texts differ, told for a report.
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
