//! The paper's model of a run with failures: the best interval between checkpoints, and what failures cost.
//!
//! Pure. Failures are a Poisson process. Of `P` processes, one is critical: its failure takes the whole run back to the
//! last checkpoint. A failure of a worker costs X, if the program tolerates it. The model's own simplifications: at most
//! one failure in an interval, and half of the interval lost. Invariant: all times of one model have the same unit,
//! which the caller chooses; costs are multiples of the time without failures.
#![forbid(unsafe_code)]

use serde::Serialize;

/// A system and a program.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Model {
    /// Mean time between failures of any process.
    pub(crate) mtbf: f64,
    /// K0: the time that a checkpoint takes.
    pub(crate) create: f64,
    /// K1: the time from a fatal failure until the run goes on from its checkpoint.
    pub(crate) recover: f64,
    /// X: the time that a tolerated failure costs the run.
    pub(crate) loss: f64,
    /// P: the number of processes, one of which is critical.
    pub(crate) processors: f64,
}

/// What a failure of a worker does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Workers {
    /// The run goes back to its checkpoint, as an MPI program does.
    Fatal,
    /// The run loses X and goes on.
    Tolerated,
}

impl Model {
    /// α: failures per unit of time.
    pub(crate) fn rate(&self) -> f64 {
        1.0 / self.mtbf
    }

    /// Fatal failures per unit of time: α, or α1 if those of workers are tolerated.
    pub(crate) fn fatal_rate(&self, workers: Workers) -> f64 {
        match workers {
            Workers::Fatal => self.rate(),
            Workers::Tolerated => self.rate() / self.processors,
        }
    }

    /// Tolerated failures per unit of time: none, or α2.
    pub(crate) fn tolerated_rate(&self, workers: Workers) -> f64 {
        self.rate() - self.fatal_rate(workers)
    }

    /// The best interval between checkpoints: t0, or t0'.
    pub(crate) fn interval(&self, workers: Workers) -> f64 {
        (2.0 * self.create / self.fatal_rate(workers)).sqrt()
    }

    /// Fatal failures in such an interval. The model is meant for values up to 1.
    pub(crate) fn failures_per_interval(&self, workers: Workers) -> f64 {
        self.fatal_rate(workers) * self.interval(workers)
    }

    /// The time of a run at the best interval over its time without failures: E_T / T, or E_T' / T.
    pub(crate) fn cost(&self, workers: Workers) -> f64 {
        let fatal = self.fatal_rate(workers);
        1.0 + (2.0 * self.create * fatal).sqrt()
            + fatal * self.recover
            + self.tolerated_rate(workers) * self.loss
    }

    /// What tolerating one failure of a worker saves, with checkpoints `interval` apart.
    pub(crate) fn saving(&self, interval: f64) -> f64 {
        self.recover + interval / 2.0 - self.loss
    }

    /// Whether a run of this length needs checkpoints of its master: it is longer than their best interval.
    pub(crate) fn needs_checkpoints(&self, run: f64) -> bool {
        run > self.interval(Workers::Tolerated)
    }

    /// S*: how much slower a program that tolerates failures may be, to take as long as one that does not.
    pub(crate) fn break_even(&self) -> f64 {
        self.cost(Workers::Fatal) / self.cost(Workers::Tolerated)
    }

    /// The model with checkpoints that take `create` and recoveries that take as long.
    pub(crate) fn with_checkpoints(self, create: f64) -> Model {
        Model {
            create,
            recover: create,
            ..self
        }
    }

    /// The model with K0 = K1 so that checkpoints take this share of the time without failures, at the best interval.
    pub(crate) fn with_overhead(self, share: f64) -> Model {
        // K0 / t0 = √(K0 α / 2).
        self.with_checkpoints(2.0 * share * share * self.mtbf)
    }

    /// The model with K0 = K1 so that a program to which every failure is fatal takes `cost` times as long as without
    /// failures. It breaks even with that slowdown if tolerating failures costs nothing.
    pub(crate) fn with_fatal_cost(self, cost: f64) -> Model {
        // α K0 + √(2 α K0) = cost − 1.
        let root = ((4.0 * cost - 2.0).sqrt() - 2f64.sqrt()) / 2.0;
        self.with_checkpoints(root * root * self.mtbf)
    }

    /// The model with K0 = K1 so long that `slowdown` breaks even; `None` if no such time is shorter than a thousand
    /// times the mean time between failures.
    pub(crate) fn breaking_even_at(self, slowdown: f64) -> Option<Model> {
        let (mut low, mut high) = (0.0, 1000.0 * self.mtbf);
        if self.with_checkpoints(high).break_even() < slowdown {
            return None;
        }
        for _ in 0..200 {
            let middle = (low + high) / 2.0;
            match self.with_checkpoints(middle).break_even() < slowdown {
                true => low = middle,
                false => high = middle,
            }
        }
        Some(self.with_checkpoints(high))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Workers::{Fatal, Tolerated};

    // The paper's times, in minutes.
    fn paper(mtbf: f64) -> Model {
        Model {
            mtbf,
            create: 10.0,
            recover: 10.0,
            loss: 0.5,
            processors: 1024.0,
        }
    }

    #[test]
    fn the_papers_figures_are_reproduced() {
        assert_eq!(paper(180.0).saving(60.0), 39.5);
        assert!((paper(180.0).interval(Tolerated) - 1920.0).abs() < 1e-9);
        // 1,920 minutes are 32 hours.
        assert!(!paper(180.0).needs_checkpoints(30.0 * 60.0));
        assert!(paper(180.0).needs_checkpoints(33.0 * 60.0));
    }

    #[test]
    fn the_table_of_four_times_between_failures() {
        // MTBF, t0, t0', E_T / T, E_T' / T, S*. The intervals are rounded to what the table prints.
        let rows = [
            (60.0, 34.6, 1109.0, 1.744, 1.027, 1.70),
            (120.0, 49.0, 1568.0, 1.492, 1.017, 1.47),
            (180.0, 60.0, 1920.0, 1.389, 1.013, 1.37),
            (360.0, 84.9, 2715.0, 1.264, 1.009, 1.25),
        ];
        for (mtbf, interval, tolerant, fatal, tolerated, break_even) in rows {
            let model = paper(mtbf);
            let near = |value: f64, wanted: f64, within: f64| {
                assert!(
                    (value - wanted).abs() <= within,
                    "{mtbf}: {value}, {wanted}"
                );
            };
            near(model.interval(Fatal), interval, 0.05);
            near(model.interval(Tolerated), tolerant, 0.5);
            near(model.cost(Fatal), fatal, 0.001);
            near(model.cost(Tolerated), tolerated, 0.001);
            near(model.break_even(), break_even, 0.005);
        }
    }

    #[test]
    fn the_best_interval_is_the_best() {
        let model = paper(180.0);
        let at = |interval: f64| {
            1.0 + model.create / interval + model.rate() * (model.recover + interval / 2.0)
        };
        let best = at(model.interval(Fatal));
        assert!((best - model.cost(Fatal)).abs() < 1e-12);
        for other in [0.5, 0.9, 1.1, 2.0] {
            assert!(at(model.interval(Fatal) * other) > best);
        }
    }

    #[test]
    fn an_overhead_is_the_checkpoints_share_of_the_run() {
        for share in [0.05, 0.15, 0.25, 0.35] {
            let model = paper(360.0).with_overhead(share);
            assert!((model.create / model.interval(Fatal) - share).abs() < 1e-12);
        }
    }

    #[test]
    fn a_slowdown_of_three_breaks_even_only_outside_of_the_assumption() {
        // If tolerating costs nothing: 4.6 hours, α K0 = 0.76, α t0 = 1.24.
        let model = paper(360.0).with_fatal_cost(3.0);
        assert!((model.cost(Fatal) - 3.0).abs() < 1e-12);
        assert!((model.create / 60.0 - 4.6).abs() < 0.05);
        assert!((model.rate() * model.create - 0.76).abs() < 0.005);
        assert!((model.failures_per_interval(Fatal) - 1.24).abs() < 0.005);
        // With what it costs, more.
        let model = paper(360.0).breaking_even_at(3.0).unwrap();
        assert!((model.break_even() - 3.0).abs() < 1e-6);
        assert!(model.failures_per_interval(Fatal) > 1.24);
        // With one failure an interval at most, no slowdown above 2.5 breaks even.
        let edge = paper(360.0).with_checkpoints(180.0);
        assert!((edge.failures_per_interval(Fatal) - 1.0).abs() < 1e-12);
        assert!((edge.cost(Fatal) - 2.5).abs() < 1e-12);
        assert!(edge.break_even() < 2.5);
    }

    #[test]
    fn without_enough_processors_no_checkpoint_is_long_enough() {
        let alone = Model {
            processors: 1.0,
            ..paper(360.0)
        };
        assert_eq!(alone.break_even(), 1.0);
        assert!(alone.breaking_even_at(3.0).is_none());
    }
}
