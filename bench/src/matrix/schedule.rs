//! When processes are killed, and which: a Poisson process with a given mean time between failures.
//!
//! Pure and deterministic, so that both sides of a round meet the same failures. Invariant: times ascend.
#![forbid(unsafe_code)]

use std::time::Duration;

use crate::random::Random;

/// A failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Failure {
    /// Since the start of the run.
    pub(super) at: Duration,
    /// A number that picks the process.
    pub(super) pick: u64,
}

/// Failures, without end unless their number is limited.
pub(super) struct Schedule {
    random: Random,
    left: Option<u64>,
    /// Seconds.
    mtbf: f64,
    at: f64,
}

impl Schedule {
    /// Failures with this mean time between them.
    pub(super) fn new(mtbf: Duration, seed: u64) -> Schedule {
        Schedule {
            random: Random::new(seed),
            left: None,
            mtbf: mtbf.as_secs_f64(),
            at: 0.0,
        }
    }

    /// At most this many of the failures.
    pub(super) fn at_most(self, left: Option<u64>) -> Schedule {
        Schedule { left, ..self }
    }
}

impl Iterator for Schedule {
    type Item = Failure;

    fn next(&mut self) -> Option<Failure> {
        if let Some(left) = &mut self.left {
            *left = left.checked_sub(1)?;
        }
        self.at += self.random.gap(self.mtbf);
        Some(Failure {
            at: Duration::try_from_secs_f64(self.at).ok()?,
            pick: self.random.next(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_ascend_and_keep_their_mean() {
        let schedule = || Schedule::new(Duration::from_secs(5), 4);
        let failures: Vec<Failure> = schedule().take(4000).collect();
        assert_eq!(
            schedule().at_most(Some(2)).collect::<Vec<_>>(),
            failures[..2]
        );
        assert!(failures.windows(2).all(|pair| pair[0].at <= pair[1].at));
        let mean = failures[3999].at.as_secs_f64() / 4000.0;
        assert!((mean - 5.0).abs() < 0.3, "{mean}");
        assert!(schedule().take(100).eq(failures[..100].iter().copied()));
        // All processes are met.
        let first = failures.iter().filter(|failure| failure.pick % 5 == 0);
        assert!((700..900).contains(&first.count()));
    }
}
