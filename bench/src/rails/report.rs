//! The table, the JSON and the plot of transfers over several links.
#![forbid(unsafe_code)]

use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use plotters::prelude::*;
use serde::Serialize;

use super::program::Outcome;
use super::wires::Sample;
use super::{Direction, Links};
use crate::experiment::median;

/// Fewer bytes than this are no progress: acknowledgements and heartbeats.
const PROGRESS: u64 = 64 << 10;
/// The rate after a cut is measured from so much later.
const SETTLED: Duration = Duration::from_millis(1500);
/// The steps of the plot.
const STEP: Duration = Duration::from_millis(100);

/// Speed of two links over that of one.
const TWO: f64 = 1.9;
/// Seconds without bytes after a cut.
const WITHOUT: f64 = 1.0;
/// Speed of the link that is left over that of one.
const LEFT: f64 = 0.95;

/// One run.
#[derive(Debug, Serialize)]
pub(super) struct Run {
    direction: Direction,
    links: Links,
    /// Bytes of the program a second.
    speed: f64,
    /// Bytes a second that arrived at the receiver; after a cut, those of the rest.
    arrived: f64,
    /// Longest time without bytes, in seconds.
    without: f64,
    /// When the link was cut, in seconds from the begin.
    cut: Option<f64>,
    /// Bytes a second over each link, in steps of 100 ms.
    steps: Vec<[f64; 2]>,
}

impl Run {
    /// The figures of a run.
    pub(super) fn new(
        direction: Direction,
        links: Links,
        bytes: u64,
        outcome: Outcome,
        samples: &[Sample],
        cut: Option<Instant>,
    ) -> Run {
        let begun = samples.first().map(|sample| sample.at);
        let since = |at: Instant| begun.map_or(0.0, |begun| (at - begun).as_secs_f64());
        let settled = samples
            .iter()
            .filter(|sample| cut.is_none_or(|cut| sample.at >= cut + SETTLED));
        Run {
            direction,
            links,
            speed: bytes as f64 / outcome.seconds,
            arrived: rate(&settled.copied().collect::<Vec<_>>()),
            without: longest_without(samples).as_secs_f64(),
            cut: cut.map(since),
            steps: steps(samples),
        }
    }
}

fn rate(samples: &[Sample]) -> f64 {
    match samples {
        [first, .., last] => (last.sum() - first.sum()) as f64 / (last.at - first.at).as_secs_f64(),
        _ => 0.0,
    }
}

/// The longest time in which fewer than [`PROGRESS`] bytes arrived.
fn longest_without(samples: &[Sample]) -> Duration {
    let Some(mut last) = samples.first().copied() else {
        return Duration::ZERO;
    };
    let mut longest = Duration::ZERO;
    for sample in samples {
        if sample.sum() - last.sum() >= PROGRESS {
            longest = longest.max(sample.at - last.at);
            last = *sample;
        }
    }
    longest
}

fn steps(samples: &[Sample]) -> Vec<[f64; 2]> {
    let mut steps = Vec::new();
    let Some(mut last) = samples.first().copied() else {
        return steps;
    };
    for sample in samples {
        let passed = sample.at - last.at;
        if passed >= STEP {
            let of =
                |link: usize| (sample.bytes[link] - last.bytes[link]) as f64 / passed.as_secs_f64();
            steps.push([of(0), of(1)]);
            last = *sample;
        }
    }
    steps
}

/// The whole report.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    rounds: u16,
    gbit: u32,
    cores: usize,
    runs: Vec<Run>,
}

/// A figure with its mark.
struct Judged {
    text: String,
    mark: String,
    is_met: bool,
}

impl Report {
    pub(super) fn new(rounds: u16, gbit: u32) -> Report {
        Report {
            rounds,
            gbit,
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            runs: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, run: Run) {
        self.runs.push(run);
    }

    /// Whether all marks were met.
    pub(super) fn is_met(&self) -> bool {
        let all = [Direction::Write, Direction::Read].map(|direction| self.judge(direction));
        all.iter().flatten().all(|(_, judged)| judged.is_met)
    }

    fn of(&self, direction: Direction, links: Links, pick: impl Fn(&Run) -> f64) -> Vec<f64> {
        let runs = self.runs.iter();
        runs.filter(|run| run.direction == direction && run.links == links)
            .map(pick)
            .collect()
    }

    fn middle(&self, direction: Direction, links: Links, pick: impl Fn(&Run) -> f64) -> f64 {
        median(&self.of(direction, links, pick)).unwrap_or(0.0)
    }

    fn judge(&self, direction: Direction) -> Vec<(String, Judged)> {
        let speed = |links| self.middle(direction, links, |run| run.speed);
        let arrived = |links| self.middle(direction, links, |run| run.arrived);
        let two = speed(Links::Two) / speed(Links::One);
        let judged = |text, mark, is_met| Judged { text, mark, is_met };
        let mut lines = vec![(
            "two links over one".to_owned(),
            judged(format!("{two:.3}"), format!("≥ {TWO}"), two >= TWO),
        )];
        for (cable, name) in ["of commands", "without commands"].into_iter().enumerate() {
            let links = Links::Cut(cable);
            // No round may be worse.
            let without = self.of(direction, links, |run| run.without);
            let without = without.into_iter().fold(0.0, f64::max);
            let left = arrived(links) / arrived(Links::One);
            lines.push((
                format!("link {name} cut: longest time without bytes"),
                judged(
                    format!("{:.0} ms", without * 1e3),
                    format!("≤ {WITHOUT} s"),
                    without <= WITHOUT,
                ),
            ));
            lines.push((
                format!("link {name} cut: the other's rate over one"),
                judged(format!("{left:.3}"), format!("≥ {LEFT}"), left >= LEFT),
            ));
        }
        lines
    }

    /// Draws what arrived over each link in the last run with a cut of each kind.
    pub(super) fn draw(&self, folder: &Path) -> Result<PathBuf, Box<dyn Error>> {
        let file = folder.join("rails.svg");
        let area = SVGBackend::new(&file, (900, 560)).into_drawing_area();
        area.fill(&WHITE)?;
        let kinds = [Direction::Write, Direction::Read]
            .into_iter()
            .flat_map(|direction| [0, 1].map(|cable| (direction, cable)));
        for ((direction, cable), panel) in kinds.zip(area.split_evenly((2, 2))) {
            let is_it = |run: &&Run| run.direction == direction && run.links == Links::Cut(cable);
            if let Some(run) = self.runs.iter().rfind(is_it) {
                self.draw_run(run, &panel, cable)?;
            }
        }
        area.present()?;
        drop(area);
        Ok(file)
    }

    fn draw_run(
        &self,
        run: &Run,
        panel: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
        cable: usize,
    ) -> Result<(), Box<dyn Error>> {
        let name = ["of commands", "without commands"][cable];
        let limit = f64::from(self.gbit) * 1e9 / 8e6;
        let seconds = run.steps.len() as f64 * STEP.as_secs_f64();
        let mut chart = ChartBuilder::on(panel)
            .caption(
                format!("{:?}, the link {name} is cut", run.direction),
                ("sans-serif", 14),
            )
            .margin(8)
            .x_label_area_size(28)
            .y_label_area_size(44)
            .build_cartesian_2d(0.0..seconds.max(0.1), 0.0..2.2 * limit)?;
        chart
            .configure_mesh()
            .x_desc("s")
            .y_desc("MB/s")
            .light_line_style(WHITE)
            .draw()?;
        let time = |step: usize| (step as f64 + 0.5) * STEP.as_secs_f64();
        let steps = || run.steps.iter().enumerate();
        let colours = [RGBColor(70, 130, 180), RGBColor(200, 60, 40)];
        for link in [0, 1] {
            let points = steps().map(|(step, speeds)| (time(step), speeds[link] / 1e6));
            chart.draw_series(LineSeries::new(points, colours[link].stroke_width(2)))?;
        }
        let sums = steps().map(|(step, speeds)| (time(step), (speeds[0] + speeds[1]) / 1e6));
        chart.draw_series(LineSeries::new(sums, BLACK.mix(0.5)))?;
        if let Some(cut) = run.cut {
            let line = [(cut, 0.0), (cut, 2.2 * limit)];
            chart.draw_series(LineSeries::new(line, RGBColor(120, 120, 120)))?;
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "rails of {} Gbit/s; {} rounds on {} cores",
            self.gbit, self.rounds, self.cores
        )?;
        for direction in [Direction::Write, Direction::Read] {
            writeln!(
                f,
                "\n| {direction:?} | reached | mark | |\n|---|---|---|---|"
            )?;
            for (name, links) in [("one link", Links::One), ("two links", Links::Two)] {
                let speed = self.middle(direction, links, |run| run.speed);
                writeln!(f, "| {name} | {:.1} MB/s | – | |", speed / 1e6)?;
            }
            for (name, judged) in self.judge(direction) {
                let verdict = if judged.is_met { "met" } else { "**missed**" };
                let Judged { text, mark, .. } = judged;
                writeln!(f, "| {name} | {text} | {mark} | {verdict} |")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(sums: &[u64]) -> Vec<Sample> {
        let begun = Instant::now();
        let at = |step: usize| begun + Duration::from_millis(100) * step as u32;
        let of = |(step, sum): (usize, &u64)| Sample {
            at: at(step),
            bytes: [sum / 2, sum - sum / 2],
        };
        sums.iter().enumerate().map(of).collect()
    }

    #[test]
    fn a_trickle_is_no_progress() {
        let mib = 1 << 20;
        let found = longest_without(&samples(&[0, mib, mib + 10, mib + 20, 2 * mib, 3 * mib]));
        assert_eq!(found, Duration::from_millis(300));
    }

    #[test]
    fn the_rate_after_a_cut_begins_when_the_links_have_settled() {
        let sums: Vec<u64> = (0..40u64).map(|step| 1_000_000 * step.min(20)).collect();
        let samples = samples(&sums);
        let outcome = Outcome { seconds: 2.0 };
        let run = Run::new(
            Direction::Write,
            Links::Cut(0),
            4_000_000,
            outcome,
            &samples,
            Some(samples[5].at),
        );
        assert_eq!((run.speed, run.arrived), (2e6, 0.0));
        assert_eq!(run.cut, Some(0.5));
        assert_eq!(run.steps.len(), 39);
    }
}
