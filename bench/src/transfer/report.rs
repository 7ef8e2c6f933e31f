//! The tables, the JSON and the plots of the transfers.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};

use plotters::prelude::*;
use serde::Serialize;

use super::program::{Outcome, Way};
use crate::experiment::median;

const WAYS: [(Way, &str, RGBColor); 3] = [
    (Way::Write, "write", RGBColor(70, 130, 180)),
    (Way::Read, "read", RGBColor(200, 60, 40)),
    (Way::Between, "node to node", RGBColor(0, 140, 90)),
];

/// The figures on cables of one rate.
#[derive(Debug)]
pub(crate) struct Runs {
    rate: u32,
    name: String,
    /// Bytes a second that iperf3 reached.
    pub(crate) iperf: HashMap<Way, Vec<f64>>,
    /// Bytes a second of each transfer, by way and size.
    speeds: HashMap<(Way, usize), Vec<f64>>,
    /// Bytes that the nodes had to move between each other, and those that went over their link.
    moved: u64,
    between: u64,
}

impl Runs {
    /// Makes the figures of a link, still empty.
    pub(crate) fn new(rate: u32) -> Runs {
        Runs {
            rate,
            name: String::new(),
            iperf: HashMap::new(),
            speeds: HashMap::new(),
            moved: 0,
            between: 0,
        }
    }

    /// Adds a run. `crossed` are the bytes on the link between the nodes, for transfers between them.
    pub(crate) fn add(&mut self, outcome: Outcome, between: Option<u64>) {
        self.name = outcome.name;
        for sample in outcome.samples {
            let speeds = sample.seconds.iter().map(|s| sample.bytes as f64 / s);
            self.speeds
                .entry((sample.way, sample.bytes))
                .or_default()
                .extend(speeds);
        }
        if let Some(between) = between {
            self.moved += outcome.moved;
            self.between += between;
        }
    }

    fn link(self) -> Link {
        let mut sizes: Vec<usize> = self.speeds.keys().map(|(_, bytes)| *bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let ways = WAYS
            .into_iter()
            .filter_map(|(way, name, _)| {
                Some(Series {
                    way,
                    name,
                    iperf: median(self.iperf.get(&way)?)?,
                    speeds: sizes
                        .iter()
                        .filter_map(|bytes| {
                            let speed = median(self.speeds.get(&(way, *bytes))?)?;
                            Some((*bytes, speed))
                        })
                        .collect(),
                })
            })
            .collect();
        Link {
            gbit: self.rate,
            device: self.name,
            ways,
            moved: self.moved,
            between: self.between,
        }
    }
}

/// The medians of one kind on one link.
#[derive(Debug, Serialize)]
struct Series {
    way: Way,
    name: &'static str,
    /// Bytes a second that iperf3 reached.
    iperf: f64,
    /// Bytes a second, by size.
    speeds: Vec<(usize, f64)>,
}

#[derive(Debug, Serialize)]
struct Link {
    gbit: u32,
    device: String,
    ways: Vec<Series>,
    moved: u64,
    between: u64,
}

impl Link {
    /// Bytes a second by the link's rate.
    fn limit(&self) -> f64 {
        f64::from(self.gbit) * 1e9 / 8.0
    }
}

/// The whole report.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    rounds: u16,
    cores: usize,
    links: Vec<Link>,
}

impl Report {
    /// The report of all runs.
    pub(crate) fn new(rounds: u16, links: Vec<Runs>) -> Report {
        Report {
            rounds,
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            links: links.into_iter().map(Runs::link).collect(),
        }
    }

    /// Draws a plot for each link.
    pub(crate) fn draw(&self, folder: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
        let mut files = Vec::new();
        for link in &self.links {
            let file = folder.join(format!("transfer-{}gbit.svg", link.gbit));
            draw(link, &file)?;
            files.push(file);
        }
        Ok(files)
    }
}

const MIB: f64 = (1u64 << 20) as f64;

fn draw(link: &Link, file: &Path) -> Result<(), Box<dyn Error>> {
    let area = SVGBackend::new(file, (800, 480)).into_drawing_area();
    area.fill(&WHITE)?;
    let sizes = || {
        link.ways
            .iter()
            .flat_map(|way| &way.speeds)
            .map(|(bytes, _)| *bytes as f64 / MIB)
    };
    let (first, last) = (
        sizes().fold(f64::INFINITY, f64::min),
        sizes().fold(2.0, f64::max),
    );
    let mut chart = ChartBuilder::on(&area)
        .caption(
            format!(
                "transfers on {} Gbit/s, share of the link's rate",
                link.gbit
            ),
            ("sans-serif", 18),
        )
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(48)
        .build_cartesian_2d((first.min(1.0)..last).log_scale(), 0.0..1.1)?;
    chart
        .configure_mesh()
        .x_desc("MiB")
        .y_desc("share")
        .light_line_style(WHITE)
        .draw()?;
    for way in &link.ways {
        let colour = WAYS
            .iter()
            .find(|(known, ..)| *known == way.way)
            .map_or(BLACK, |(.., c)| *c);
        let points = way
            .speeds
            .iter()
            .map(|(bytes, speed)| (*bytes as f64 / MIB, speed / link.limit()));
        chart
            .draw_series(LineSeries::new(points, colour.stroke_width(2)).point_size(3))?
            .label(way.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        let iperf = way.iperf / link.limit();
        let pale = colour.mix(0.4);
        chart
            .draw_series(LineSeries::new([(first, iperf), (last, iperf)], pale))?
            .label(format!("{}, iperf3", way.name))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], pale));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()?;
    area.present()?;
    Ok(())
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "transfers; {} rounds on {} cores",
            self.rounds, self.cores
        )?;
        self.links.iter().try_for_each(|link| link.fmt(f))
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let megabytes = |speed: f64| format!("{:.1} MB/s", speed / 1e6);
        writeln!(
            f,
            "\n{} Gbit/s ({}), {}",
            self.gbit,
            megabytes(self.limit()),
            self.device
        )?;
        write!(f, "\n| MiB |")?;
        for way in &self.ways {
            write!(f, " {} | / iperf3 | / link |", way.name)?;
        }
        writeln!(f, "\n|---|{}", "---|".repeat(3 * self.ways.len()))?;
        let cells = |f: &mut fmt::Formatter<'_>, way: &Series, speed: Option<f64>| match speed {
            Some(speed) => write!(
                f,
                " {} | {:.3} | {:.3} |",
                megabytes(speed),
                speed / way.iperf,
                speed / self.limit()
            ),
            None => write!(f, " – | – | – |"),
        };
        write!(f, "| iperf3 |")?;
        for way in &self.ways {
            cells(f, way, Some(way.iperf))?;
        }
        writeln!(f)?;
        let sizes = self
            .ways
            .iter()
            .map(|way| &way.speeds)
            .max_by_key(|speeds| speeds.len());
        for (bytes, _) in sizes.into_iter().flatten() {
            write!(f, "| {} |", bytes >> 20)?;
            for way in &self.ways {
                let found = way.speeds.iter().find(|(size, _)| size == bytes);
                cells(f, way, found.map(|(_, speed)| *speed))?;
            }
            writeln!(f)?;
        }
        if self.moved > 0 {
            writeln!(
                f,
                "\nbetween the nodes {} MiB had to move; over their link went {} MiB",
                self.moved >> 20,
                self.between >> 20
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::program::Sample;
    use super::*;

    #[test]
    fn speeds_are_medians_by_way_and_size() {
        let mut runs = Runs::new(1);
        runs.iperf.insert(Way::Write, vec![100e6, 120e6, 110e6]);
        let sample = |bytes, seconds| Sample {
            way: Way::Write,
            bytes,
            seconds,
        };
        runs.add(
            Outcome {
                name: "a device".to_owned(),
                samples: vec![sample(2_000_000, vec![0.02, 0.04, 0.01])],
                moved: 0,
            },
            None,
        );
        let text = Report::new(1, vec![runs]).to_string();
        assert!(
            text.contains("| iperf3 | 110.0 MB/s | 1.000 | 0.880 |"),
            "{text}"
        );
        assert!(
            text.contains("| 1 | 100.0 MB/s | 0.909 | 0.800 |"),
            "{text}"
        );
        assert!(!text.contains("between"), "{text}");
    }
}
