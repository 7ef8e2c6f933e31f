//! Runs with random failures, simulated: a check of the [`Model`].
//!
//! Pure and deterministic. Invariant: every interval's work is done once its checkpoint is written, whatever failed.
#![forbid(unsafe_code)]

use serde::Serialize;

use super::model::{Model, Workers};
use crate::random::Random;

/// How failures come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Failures {
    /// As the model assumes: at most one in an interval, while the program computes.
    OncePerInterval,
    /// As a Poisson process: any number, also while a checkpoint is written or read.
    Poisson,
}

/// Simulates `intervals` intervals of the best length. Returns the time over the time without failures and checkpoints.
pub(crate) fn simulate(
    model: &Model,
    workers: Workers,
    failures: Failures,
    intervals: u32,
    seed: u64,
) -> f64 {
    let mut run = Run {
        model: *model,
        interval: model.interval(workers),
        fatal: model.fatal_rate(workers),
        tolerated: model.tolerated_rate(workers),
        random: Random::new(seed),
    };
    let total: f64 = match failures {
        Failures::OncePerInterval => (0..intervals).map(|_| run.at_most_one_failure()).sum(),
        Failures::Poisson => (0..intervals).map(|_| run.any_failures()).sum(),
    };
    total / (f64::from(intervals) * run.interval)
}

struct Run {
    model: Model,
    /// Time of computation between two checkpoints.
    interval: f64,
    /// Fatal failures per unit of time.
    fatal: f64,
    /// Tolerated failures per unit of time.
    tolerated: f64,
    random: Random,
}

impl Run {
    /// The time of an interval in which one failure may happen.
    fn at_most_one_failure(&mut self) -> f64 {
        let plain = self.model.create + self.interval;
        let kind = self.random.unit();
        let fatal = self.fatal * self.interval;
        if kind < fatal {
            return plain + self.model.recover + self.random.unit() * self.interval;
        }
        match kind < fatal + self.tolerated * self.interval {
            true => plain + self.model.loss,
            false => plain,
        }
    }

    /// The time of an interval with any number of failures.
    fn any_failures(&mut self) -> f64 {
        let needed = self.interval + self.model.create;
        let mut spent = 0.0;
        loop {
            let failure = self.until_fatal();
            if failure >= needed {
                spent += needed;
                break;
            }
            spent += failure + self.recovery();
        }
        spent + self.tolerated_within(spent) * self.model.loss
    }

    /// The time of a recovery, which starts again when it fails itself.
    fn recovery(&mut self) -> f64 {
        let mut spent = 0.0;
        loop {
            let failure = self.until_fatal();
            if failure >= self.model.recover {
                return spent + self.model.recover;
            }
            spent += failure;
        }
    }

    fn until_fatal(&mut self) -> f64 {
        self.random.gap(1.0 / self.fatal)
    }

    /// The number of tolerated failures within some time.
    fn tolerated_within(&mut self, time: f64) -> f64 {
        if self.tolerated <= 0.0 {
            return 0.0;
        }
        let mut count = 0.0;
        let mut at = self.random.gap(1.0 / self.tolerated);
        while at < time {
            count += 1.0;
            at += self.random.gap(1.0 / self.tolerated);
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Workers::{Fatal, Tolerated};

    fn paper(mtbf: f64, checkpoint: f64) -> Model {
        Model {
            mtbf,
            create: checkpoint,
            recover: checkpoint,
            loss: 0.5,
            processors: 1024.0,
        }
    }

    fn error(model: &Model, workers: Workers, failures: Failures) -> f64 {
        let simulated = simulate(model, workers, failures, 100_000, 7);
        simulated / model.cost(workers) - 1.0
    }

    #[test]
    fn the_model_holds_within_its_own_assumption() {
        for mtbf in [60.0, 120.0, 180.0, 360.0] {
            let error = error(&paper(mtbf, 10.0), Fatal, Failures::OncePerInterval);
            assert!(error.abs() < 0.02, "{mtbf}: {error}");
        }
    }

    #[test]
    fn the_model_holds_for_any_failures_where_intervals_are_short() {
        // 0.033 fatal failures in an interval.
        let error_of = |workers| error(&paper(180.0, 0.1), workers, Failures::Poisson);
        assert!(error_of(Fatal).abs() < 0.02, "{}", error_of(Fatal));
        assert!(error_of(Tolerated).abs() < 0.02, "{}", error_of(Tolerated));
        // Fatal failures of one process of 1,024 are as rare with the paper's long checkpoints.
        let long = error(&paper(180.0, 10.0), Tolerated, Failures::Poisson);
        assert!(long.abs() < 0.02, "{long}");
    }

    #[test]
    fn the_model_is_too_low_where_intervals_are_long() {
        // 0.58 fatal failures in an interval: the exact mean is (MTBF + K1) (exp((t0 + K0) / MTBF) − 1) / t0 = 2.23
        // for recoveries that cannot fail.
        let high = error(&paper(60.0, 10.0), Fatal, Failures::Poisson);
        assert!(high > 0.2 && high < 0.35, "{high}");
    }
}
