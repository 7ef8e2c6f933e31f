//! Judges the history of a proof: what all clients saw, on one clock.
//!
//! Pure. A use is a part of the time for which a client had its lease: from the start of its program to the
//! program's end. So an overlap of two uses of one unit is always a fault of the managers or nodes.
//! Invariant: the judgement depends on the history alone.

use std::time::Duration;

/// One client's run: the request, and the use that it got.
#[derive(Clone, Debug)]
pub(super) struct Run {
    /// Names the run, for people.
    pub(super) name: String,
    /// The leased unit.
    pub(super) unit: String,
    /// When the program began and ended, if it did.
    pub(super) used: Option<(Duration, Duration)>,
    /// What the client reported instead of success.
    pub(super) failure: Option<String>,
}

/// The violations of a history, for people.
pub(super) fn violations(history: &[Run]) -> Vec<String> {
    let mut found = Vec::new();
    for run in history {
        if let Some(failure) = &run.failure {
            // No client releases early, and nobody revokes, so every run has to succeed.
            found.push(format!(
                "{} has lost its lease or its place: {failure}",
                run.name
            ));
        }
    }
    for (position, one) in history.iter().enumerate() {
        for other in &history[position + 1..] {
            if let (Some(first), Some(second)) = (one.used, other.used)
                && one.unit == other.unit
                && first.0 < second.1
                && second.0 < first.1
            {
                found.push(format!(
                    "{} ({first:?}) and {} ({second:?}) used {} at the same time",
                    one.name, other.name, one.unit
                ));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str, unit: &str, begin: u64, end: u64) -> Run {
        Run {
            name: name.to_owned(),
            unit: unit.to_owned(),
            used: Some((Duration::from_secs(begin), Duration::from_secs(end))),
            failure: None,
        }
    }

    #[test]
    fn uses_of_one_unit_one_after_the_other_are_right() {
        let history = [
            run("a", "x", 0, 2),
            run("b", "x", 2, 3),
            run("c", "y", 0, 3),
        ];
        assert_eq!(violations(&history), [""; 0]);
    }

    #[test]
    fn an_overlap_and_a_lost_lease_are_found() {
        let mut history = vec![run("a", "x", 0, 2), run("b", "x", 1, 3)];
        assert_eq!(violations(&history).len(), 1);
        history[1].failure = Some("no such lease".to_owned());
        history[1].used = None;
        let found = violations(&history);
        assert!(
            found.len() == 1 && found[0].contains("no such lease"),
            "{found:?}"
        );
    }
}
