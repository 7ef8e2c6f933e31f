//! The table, the JSON and the plot of the model.
#![forbid(unsafe_code)]

use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::model::{Model, Workers};
use super::overheads::{Overhead, REFERENCE};
use super::simulation::{Failures, simulate};
use crate::experiment::seconds;
use crate::lines::{self, Chart, Curve, Style};
use crate::measured::{Loss, Parking};

/// What the report is made of. All times are in seconds.
pub(super) struct Given {
    /// The system and the program.
    pub(super) model: Model,
    /// S.
    pub(super) slowdown: f64,
    /// The length of a run.
    pub(super) run: f64,
    /// Intervals of each simulated run.
    pub(super) intervals: u32,
    /// The seed of the simulated failures.
    pub(super) seed: u64,
    /// The curves of the plot.
    pub(super) overheads: Vec<Overhead>,
    /// The last measured parking.
    pub(super) parking: Option<Parking>,
    /// What a lost node cost a farm when it was last measured.
    pub(super) loss: Option<Loss>,
}

/// What the model says of one kind of program.
#[derive(Debug, Serialize)]
struct Costs {
    /// The best interval between checkpoints, in seconds.
    interval: f64,
    /// Time over the time without failures.
    cost: f64,
    /// The same, simulated with at most one failure in an interval; not for tolerated failures, which are many there.
    simulated_once: Option<f64>,
    /// The same, simulated with any failures.
    simulated: f64,
    /// Fatal failures in an interval.
    failures_per_interval: f64,
}

/// When a slowdown breaks even.
#[derive(Debug, Serialize)]
struct Claim {
    slowdown: f64,
    /// S* of the given times at an MTBF of [`REFERENCE`].
    break_even: f64,
    /// The largest S* of any overhead while at most one failure is in an interval.
    largest: f64,
    /// The largest S* of any K0 = K1 while at most one failure is in an interval, if tolerated failures cost nothing.
    bound: f64,
    /// The model with K0 = K1 that breaks even at [`REFERENCE`] if tolerated failures cost nothing.
    needed: Model,
    /// Fatal failures in an interval of that.
    needed_failures_per_interval: f64,
    /// K0 = K1 that breaks even with what the tolerant program pays, in seconds; `None` if none does.
    needed_in_full: Option<f64>,
}

/// The interval between checkpoints on this machine.
#[derive(Debug, Serialize)]
struct Recommendation {
    /// The times that it is made of.
    model: Model,
    /// Seconds, if every failure is fatal.
    interval: f64,
    /// Time over the time without failures.
    cost: f64,
    /// Seconds, for the one critical process of a program that tolerates failures of workers.
    tolerated_interval: f64,
    /// Time over the time without failures.
    tolerated_cost: f64,
    parking: Parking,
    loss: Option<Loss>,
}

/// The whole report.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    model: Model,
    slowdown: f64,
    run: f64,
    intervals: u32,
    fatal: Costs,
    tolerated: Costs,
    break_even: f64,
    /// Seconds that each tolerated failure saves.
    saving: f64,
    needs_checkpoints: bool,
    claim: Claim,
    overheads: Vec<Overhead>,
    recommendation: Option<Recommendation>,
}

impl Report {
    pub(super) fn new(given: Given) -> Report {
        let model = given.model;
        let costs = |workers| {
            let run = |failures| simulate(&model, workers, failures, given.intervals, given.seed);
            Costs {
                interval: model.interval(workers),
                cost: model.cost(workers),
                simulated_once: (workers == Workers::Fatal).then(|| run(Failures::OncePerInterval)),
                simulated: run(Failures::Poisson),
                failures_per_interval: model.failures_per_interval(workers),
            }
        };
        Report {
            model,
            slowdown: given.slowdown,
            run: given.run,
            intervals: given.intervals,
            fatal: costs(Workers::Fatal),
            tolerated: costs(Workers::Tolerated),
            break_even: model.break_even(),
            saving: model.saving(model.interval(Workers::Fatal)),
            needs_checkpoints: model.needs_checkpoints(given.run),
            claim: Claim::new(&model, given.slowdown, &given.overheads),
            recommendation: given
                .parking
                .map(|parking| Recommendation::new(&model, parking, given.loss)),
            overheads: given.overheads,
        }
    }

    /// Draws S* over the MTBF for each overhead. A curve ends where the model's assumption does.
    pub(super) fn draw(&self, folder: &Path) -> Result<PathBuf, Box<dyn Error>> {
        let curve = |(colour, overhead): (usize, &Overhead)| Curve {
            name: format!("{:.0} % checkpoints at 6 h", overhead.share * 100.0),
            colour,
            style: Style::Model,
            points: overhead
                .within_assumption()
                .map(|point| (point.mtbf / 3600.0, point.break_even))
                .collect(),
        };
        let level = |name: String, colour, height| Curve {
            name,
            colour,
            style: Style::Limit,
            points: vec![(1.0, height), (48.0, height)],
        };
        let mut curves: Vec<Curve> = self.overheads.iter().enumerate().map(curve).collect();
        curves.push(level(format!("S = {}", self.slowdown), 4, self.slowdown));
        curves.push(level("bound of the model".to_owned(), 5, self.claim.bound));
        let chart = Chart {
            title: format!(
                "slowdown that breaks even, {} processors",
                self.model.processors
            ),
            x: "mean time between failures, h",
            y: "S*",
            curves,
        };
        let file = folder.join("sustainability.svg");
        lines::draw(&[chart], &file)?;
        Ok(file)
    }
}

impl Claim {
    fn new(model: &Model, slowdown: f64, overheads: &[Overhead]) -> Claim {
        let reference = Model {
            mtbf: REFERENCE,
            ..*model
        };
        let needed = reference.with_fatal_cost(slowdown);
        let in_full = reference.breaking_even_at(slowdown);
        // One failure in an interval: t0 = 1 / α, so K0 = 1 / (2 α).
        let edge = reference.with_checkpoints(REFERENCE / 2.0);
        let points = overheads.iter().flat_map(Overhead::within_assumption);
        Claim {
            slowdown,
            break_even: reference.break_even(),
            largest: points.map(|point| point.break_even).fold(0.0, f64::max),
            bound: edge.cost(Workers::Fatal),
            needed,
            needed_failures_per_interval: needed.failures_per_interval(Workers::Fatal),
            needed_in_full: in_full.map(|model| model.create),
        }
    }

    /// Whether the model can say at all that this slowdown is worth it.
    fn is_possible(&self) -> bool {
        self.slowdown < self.bound
    }
}

impl Recommendation {
    fn new(given: &Model, parking: Parking, loss: Option<Loss>) -> Recommendation {
        let model = Model {
            create: parking.create,
            recover: parking.recover,
            loss: loss.as_ref().map_or(given.loss, |loss| loss.seconds),
            ..*given
        };
        Recommendation {
            model,
            interval: model.interval(Workers::Fatal),
            cost: model.cost(Workers::Fatal),
            tolerated_interval: model.interval(Workers::Tolerated),
            tolerated_cost: model.cost(Workers::Tolerated),
            parking,
            loss,
        }
    }
}

/// A time in the largest unit that it has one of.
fn long(value: f64) -> String {
    match value {
        v if v >= 3600.0 * 2.0 => format!("{:.1} h", v / 3600.0),
        v if v >= 120.0 => format!("{:.1} min", v / 60.0),
        v => seconds(v),
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let model = &self.model;
        writeln!(
            f,
            "given: MTBF {}, K0 {}, K1 {}, X {}, {} processors; {} simulated intervals\n",
            long(model.mtbf),
            long(model.create),
            long(model.recover),
            long(model.loss),
            model.processors,
            self.intervals
        )?;
        self.write_costs(f)?;
        writeln!(
            f,
            "\nS*: tolerating failures is worth a slowdown of up to {:.3}; each tolerated failure saves {}",
            self.break_even,
            long(self.saving)
        )?;
        let verdict = if self.needs_checkpoints {
            "needs checkpoints of its master"
        } else {
            "needs no checkpoint of its master"
        };
        writeln!(f, "a run of {} {verdict}", long(self.run))?;
        self.write_four_rows(f)?;
        self.write_claim(f)?;
        self.write_recommendation(f)
    }
}

impl Report {
    fn write_costs(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| | every failure is fatal | failures of workers are tolerated |\n|---|---|---|"
        )?;
        let (fatal, tolerated) = (&self.fatal, &self.tolerated);
        let mut line = |name: &str, text: &dyn Fn(&Costs) -> String| {
            writeln!(f, "| {name} | {} | {} |", text(fatal), text(tolerated))
        };
        line("best interval between checkpoints", &|costs| {
            long(costs.interval)
        })?;
        line("fatal failures in an interval", &|costs| {
            format!("{:.3}", costs.failures_per_interval)
        })?;
        line("time over the time without failures", &|costs| {
            format!("{:.3}", costs.cost)
        })?;
        line(
            "the same, simulated, one failure an interval at most",
            &|costs| {
                costs
                    .simulated_once
                    .map_or("–".to_owned(), |cost| format!("{cost:.3}"))
            },
        )?;
        line("the same, simulated, any failures", &|costs| {
            format!("{:.3}", costs.simulated)
        })
    }

    /// The same for other times between failures.
    fn write_four_rows(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\n| MTBF | t0 | t0' | E_T / T | E_T' / T | S* |\n|---|---|---|---|---|---|"
        )?;
        for hours in [1.0, 2.0, 3.0, 6.0] {
            let model = Model {
                mtbf: hours * 3600.0,
                ..self.model
            };
            writeln!(
                f,
                "| {hours} h | {} | {} | {:.3} | {:.3} | {:.2} |",
                long(model.interval(Workers::Fatal)),
                long(model.interval(Workers::Tolerated)),
                model.cost(Workers::Fatal),
                model.cost(Workers::Tolerated),
                model.break_even()
            )?;
        }
        Ok(())
    }

    fn write_claim(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let claim = &self.claim;
        let slowdown = claim.slowdown;
        writeln!(f, "\n| overhead | K0 = K1 | S* at 6 h |\n|---|---|---|")?;
        for overhead in &self.overheads {
            let (share, checkpoint) = (overhead.share * 100.0, long(overhead.checkpoint));
            writeln!(
                f,
                "| {share:.0} % | {checkpoint} | {:.2} |",
                overhead.break_even
            )?;
        }
        let verdict = if claim.is_possible() {
            "is below the bound of the model"
        } else {
            "does not break even under the model's own assumptions"
        };
        writeln!(f, "\nS = {slowdown} {verdict}:")?;
        writeln!(
            f,
            "- The given times break even at {:.2} for an MTBF of 6 h. The overheads above reach {:.2} at any MTBF.",
            claim.break_even, claim.largest
        )?;
        writeln!(
            f,
            "- With at most one failure in an interval and K1 = K0, S* stays below {:.2}.",
            claim.bound
        )?;
        writeln!(
            f,
            "- At 6 h, S = {slowdown} needs checkpoints of {} (α K0 = {:.2}) if tolerated failures cost nothing. Then {:.2} \
             failures are in an interval; the model assumes one at most.",
            long(claim.needed.create),
            claim.needed.rate() * claim.needed.create,
            claim.needed_failures_per_interval
        )?;
        match claim.needed_in_full {
            Some(checkpoint) => {
                let checkpoint = long(checkpoint);
                writeln!(
                    f,
                    "- With what tolerating costs here, {checkpoint} are needed."
                )
            }
            None => writeln!(
                f,
                "- With what tolerating costs here, no checkpoint is long enough."
            ),
        }
    }

    fn write_recommendation(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(recommendation) = &self.recommendation else {
            return writeln!(
                f,
                "\nNo interval is recommended, because nothing was measured here; `--park 256` measures parking."
            );
        };
        let Recommendation { model, parking, .. } = recommendation;
        let percent = |cost: f64| format!("{:.2} % of the run", (cost - 1.0) * 100.0);
        writeln!(
            f,
            "\nRecommended on this machine, for an MTBF of {}:\n- If every failure is fatal: a checkpoint each {}, which \
             costs {}.\n- If failures of workers are tolerated: one of the critical process each {}, which costs {}.",
            long(model.mtbf),
            long(recommendation.interval),
            percent(recommendation.cost),
            long(recommendation.tolerated_interval),
            percent(recommendation.tolerated_cost)
        )?;
        writeln!(
            f,
            "- K0 = {} and K1 = {} are measured, {}: a session with {} MiB on {} was parked and taken back.",
            seconds(parking.create),
            seconds(parking.recover),
            parking.origin.age(),
            parking.bytes >> 20,
            parking.origin.device
        )?;
        writeln!(
            f,
            "- Parking stands in for a checkpoint, which Causeway does not have yet. It includes the end and the start of \
             the daemon."
        )?;
        match &recommendation.loss {
            Some(loss) => writeln!(
                f,
                "- X = {} is measured, {}: {} lost nodes of a farm of {} workers (`bench matrix --mtbf`).",
                seconds(loss.seconds),
                loss.origin.age(),
                loss.count,
                loss.workers
            )?,
            None => writeln!(
                f,
                "- X = {} is not measured; `bench matrix --mtbf` measures that of a farm.",
                long(model.loss)
            )?,
        }
        writeln!(
            f,
            "- The MTBF and the number of processes are given, not measured."
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::Origin;

    fn report(slowdown: f64, parking: Option<Parking>, loss: Option<Loss>) -> Report {
        let model = Model {
            mtbf: 3.0 * 3600.0,
            create: 600.0,
            recover: 600.0,
            loss: 30.0,
            processors: 1024.0,
        };
        Report::new(Given {
            model,
            slowdown,
            run: 30.0 * 3600.0,
            intervals: 1000,
            seed: 1,
            overheads: vec![Overhead::new(&model, 0.35)],
            parking,
            loss,
        })
    }

    #[test]
    fn three_times_slower_does_not_break_even() {
        let text = report(3.0, None, None).to_string();
        for part in [
            "S = 3 does not break even under the model's own assumptions",
            "break even at 1.25 for an MTBF of 6 h",
            "S* stays below 2.50",
            "needs checkpoints of 4.6 h (α K0 = 0.76)",
            "Then 1.24 failures are in an interval",
            "needs no checkpoint of its master",
            "nothing was measured here",
            "| 3 h | 60.0 min | 32.0 h | 1.389 | 1.013 | 1.37 |",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        assert!(
            report(1.2, None, None)
                .to_string()
                .contains("S = 1.2 is below the bound of the model")
        );
    }

    #[test]
    fn a_recommendation_names_what_is_measured() {
        let origin = Origin::now("a device");
        let parking = Parking {
            bytes: 256 << 20,
            create: 0.5,
            recover: 0.3,
            origin: origin.clone(),
        };
        let text = report(3.0, Some(parking.clone()), None).to_string();
        // √(2 · 0.5 s · 10,800 s).
        assert!(
            text.contains("a checkpoint each 103.923 s, which costs"),
            "{text}"
        );
        assert!(text.contains("X = 30.000 s is not measured"), "{text}");
        let loss = Loss {
            seconds: 0.4,
            count: 5,
            workers: 4,
            origin,
        };
        let text = report(3.0, Some(parking), Some(loss)).to_string();
        assert!(text.contains("X = 400.0 ms is measured"), "{text}");
    }
}
