//! The table, the JSON and the plot of `bench sharing`.
//!
//! Invariant: a figure is the median of the rounds of one run of the experiment.
#![forbid(unsafe_code)]

use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};

use plotters::prelude::*;
use serde::Serialize;

use super::parts::Parts;
use super::{KernelKind, Options, Run, Side};
use crate::experiment::{median, seconds};

/// The whole experiment.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// The device's name, as the native driver has it.
    device: String,
    rounds: u16,
    /// Seconds of each part of a run.
    seconds: f64,
    cores: usize,
    rows: Vec<Row>,
    /// Two tenants with 25 and 75 percent of the time.
    parts: Vec<Parts>,
}

/// One side with a number of tenants.
#[derive(Debug, Serialize)]
struct Row {
    kernel: KernelKind,
    tenants: u16,
    side: Side,
    runs: Vec<Run>,
    figures: Option<Figures>,
}

/// Medians over the rounds.
#[derive(Debug, Clone, Copy, Serialize)]
struct Figures {
    /// Launch and finish, s: the tenants' median, and the worst tenant's tail.
    p50: f64,
    p99: f64,
    /// Launches a second of all tenants.
    launches: f64,
    /// Jain's index of the tenants' launches: 1 if all have the same.
    fairness: f64,
    /// Seconds to the first context and to the first result, of the tenant in the middle.
    context: f64,
    first: f64,
    /// MiB of the card.
    memory: Option<f64>,
}

impl Report {
    pub(super) fn new(options: &Options) -> Report {
        Report {
            device: String::new(),
            rounds: options.common.rounds,
            seconds: options.seconds,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            rows: Vec::new(),
            parts: Vec::new(),
        }
    }

    pub(super) fn add_parts(&mut self, parts: Parts) {
        self.parts.push(parts);
    }

    /// Adds one run.
    pub(super) fn add(&mut self, kernel: KernelKind, tenants: u16, side: Side, run: Run) {
        if let (Side::Native, Some(started)) = (side, run.started.first()) {
            self.device.clone_from(&started.device);
        }
        let key = (kernel, tenants, side);
        let known = self
            .rows
            .iter()
            .position(|row| (row.kernel, row.tenants, row.side) == key);
        let place = known.unwrap_or_else(|| {
            self.rows.push(Row {
                kernel,
                tenants,
                side,
                runs: Vec::new(),
                figures: None,
            });
            self.rows.len() - 1
        });
        let row = &mut self.rows[place];
        row.runs.push(run);
        row.figures = Figures::of(&row.runs, kernel);
    }

    /// Draws launch and finish over the number of tenants, a panel for each kernel; the file.
    pub(super) fn draw(&self, folder: &Path) -> Result<PathBuf, Box<dyn Error>> {
        let file = folder.join("sharing.svg");
        let mut kernels: Vec<KernelKind> = self.rows.iter().map(|row| row.kernel).collect();
        kernels.dedup();
        {
            let area = SVGBackend::new(&file, (360 * kernels.len().max(1) as u32, 340))
                .into_drawing_area();
            area.fill(&WHITE)?;
            for (kernel, panel) in kernels.iter().zip(area.split_evenly((1, kernels.len()))) {
                self.panel(*kernel, &panel)?;
            }
            area.present()?;
        }
        Ok(file)
    }

    fn panel(
        &self,
        kernel: KernelKind,
        area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    ) -> Result<(), Box<dyn Error>> {
        let points = |side: Side| {
            let of_side = move |row: &&Row| row.kernel == kernel && row.side == side;
            let rows = self.rows.iter().filter(of_side);
            rows.filter_map(|row| Some((f64::from(row.tenants), row.figures?.p50 * 1e6)))
                .collect::<Vec<_>>()
        };
        let all: Vec<(f64, f64)> = Side::ALL.into_iter().flat_map(points).collect();
        let most = |of: fn(&(f64, f64)) -> f64| all.iter().map(of).fold(1.0, f64::max);
        let least = all
            .iter()
            .map(|(_, time)| *time)
            .fold(f64::INFINITY, f64::min);
        let times = (least.min(1e6) * 0.5..most(|(_, time)| *time) * 2.0).log_scale();
        let mut chart = ChartBuilder::on(area)
            .caption(
                format!("{}: launch and finish, µs", kernel.name()),
                ("sans-serif", 14),
            )
            .margin(10)
            .x_label_area_size(30)
            .y_label_area_size(50)
            .build_cartesian_2d(0.0..most(|(tenants, _)| *tenants) + 1.0, times)?;
        chart.configure_mesh().x_desc("programs at once").draw()?;
        for (side, colour) in Side::ALL.into_iter().zip([
            RGBColor(120, 120, 120),
            RGBColor(0, 114, 178),
            RGBColor(230, 159, 0),
            RGBColor(0, 140, 90),
        ]) {
            chart
                .draw_series(LineSeries::new(points(side), colour).point_size(3))?
                .label(side.name())
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .draw()?;
        Ok(())
    }
}

impl Figures {
    fn of(runs: &[Run], kernel: KernelKind) -> Option<Figures> {
        // The first tenant may be the others' neighbour, which is not counted.
        let skipped = |run: &Run| usize::from(kernel.has_neighbour() && run.rates.len() > 1);
        let over = |figure: &dyn Fn(&Run) -> Option<f64>| {
            median(&runs.iter().filter_map(figure).collect::<Vec<_>>())
        };
        let of_tenants = |pick: fn(&super::Latency) -> f64| {
            move |run: &Run| -> Vec<f64> {
                run.latencies.iter().skip(skipped(run)).map(pick).collect()
            }
        };
        let rates = |run: &Run| -> Vec<f64> {
            let rates = run.rates.iter().skip(skipped(run));
            rates.map(|rate| rate.launches).collect()
        };
        let started = |pick: fn(&super::Started) -> f64| {
            move |run: &Run| median(&run.started.iter().map(pick).collect::<Vec<_>>())
        };
        Some(Figures {
            p50: over(&|run| median(&of_tenants(|of| of.p50)(run)))?,
            p99: over(&|run| of_tenants(|of| of.p99)(run).into_iter().reduce(f64::max))?,
            launches: over(&|run| Some(rates(run).iter().sum()))?,
            fairness: over(&|run| Some(jain(&rates(run))))?,
            context: over(&started(|of| of.context))?,
            first: over(&started(|of| of.first))?,
            memory: over(&|run| run.memory),
        })
    }
}

/// Jain's index of fairness.
fn jain(values: &[f64]) -> f64 {
    let (sum, squares) = values.iter().fold((0.0, 0.0), |(sum, squares), value| {
        (sum + value, squares + value * value)
    });
    if squares == 0.0 {
        return 1.0;
    }
    sum * sum / (values.len() as f64 * squares)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "programs that launch kernels on one device at the same time; {}; parts of {} s, {} rounds, {} cores",
            self.device, self.seconds, self.rounds, self.cores
        )?;
        writeln!(
            f,
            "\n| kernel | programs | side | launch + finish, p50 | p99 | launches a second, all | Jain's index | first \
             context | first result | card, MiB |\n|---|---|---|---|---|---|---|---|---|---|"
        )?;
        for row in &self.rows {
            let Some(figures) = row.figures else { continue };
            writeln!(
                f,
                "| {} | {} | {} | {:.1} µs | {:.1} µs | {:.0} | {:.3} | {} | {} | {} |",
                row.kernel.name(),
                row.tenants,
                row.side.name(),
                figures.p50 * 1e6,
                figures.p99 * 1e6,
                figures.launches,
                figures.fairness,
                seconds(figures.context),
                seconds(figures.first),
                figures
                    .memory
                    .map_or("–".to_owned(), |memory| format!("{memory:.0}")),
            )?;
        }
        for parts in &self.parts {
            let (side, part) = parts.of_the_smaller();
            writeln!(
                f,
                "\nparts of the time 25:75, kernels of 2 ms, {}: {part:.1} : {:.1}",
                side.name(),
                100.0 - part
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::program::{Latency, Rate};
    use super::*;

    #[test]
    fn equal_tenants_are_fair_and_a_hungry_one_is_not() {
        assert_eq!(jain(&[3.0, 3.0, 3.0]), 1.0);
        assert_eq!(jain(&[1.0, 0.0]), 0.5);
        assert_eq!(jain(&[]), 1.0);
    }

    #[test]
    fn the_tenant_with_the_long_kernel_is_not_counted() {
        let latency = |p50| Latency { p50, p99: p50 };
        let rate = |launches| Rate { launches };
        let started = super::super::Started {
            device: "a device".to_owned(),
            context: 1.0,
            first: 2.0,
        };
        let run = Run {
            started: vec![started.clone(), started],
            latencies: vec![latency(9.0), latency(1.0)],
            rates: vec![rate(1.0), rate(5.0)],
            memory: None,
        };
        let figures = Figures::of(std::slice::from_ref(&run), KernelKind::OneLong).unwrap();
        assert_eq!((figures.p50, figures.launches), (1.0, 5.0));
        let figures = Figures::of(&[run], KernelKind::Short).unwrap();
        assert_eq!((figures.p50, figures.launches), (5.0, 6.0));
    }
}
