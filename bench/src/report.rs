//! The table and the JSON: medians over rounds, p99 over all samples, ratios within the run.

use std::fmt;

use serde::Serialize;

use crate::Options;
use crate::rows::{Row, Unit};
use crate::runner::{median, quantile};

/// The samples of one row: a list a round and side.
pub(crate) struct Line {
    /// What was measured.
    pub(crate) row: Row,
    /// On the node's own driver.
    pub(crate) native: Vec<Vec<u64>>,
    /// Over bare TCP; empty where nothing compares.
    pub(crate) socket: Vec<Vec<u64>>,
    /// Through Causeway.
    pub(crate) causeway: Vec<Vec<u64>>,
}

impl Line {
    /// Nothing measured yet.
    pub(crate) fn new(row: Row) -> Line {
        Line {
            row,
            native: Vec::new(),
            socket: Vec::new(),
            causeway: Vec::new(),
        }
    }

    /// Its figures.
    pub(crate) fn figures(&self) -> Figures {
        let side = |rounds: &[Vec<u64>]| Side::of(self.row, rounds);
        Figures {
            name: self.row.name(),
            unit: self.row.unit(),
            bytes: self.row.bytes(),
            upload: self.row.is_upload(),
            native: side(&self.native),
            socket: side(&self.socket),
            causeway: side(&self.causeway),
        }
    }
}

/// A row of the report.
#[derive(Debug, Serialize)]
pub(crate) struct Figures {
    /// The row's name.
    pub(crate) name: String,
    /// What the figures count.
    pub(crate) unit: Unit,
    /// Bytes it moves.
    pub(crate) bytes: u64,
    /// Whether they go to the node.
    pub(crate) upload: bool,
    /// The node's own driver.
    pub(crate) native: Option<Side>,
    /// Bare TCP.
    pub(crate) socket: Option<Side>,
    /// Causeway.
    pub(crate) causeway: Option<Side>,
}

/// One side's figures, in the row's unit.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Side {
    /// The median over rounds of each round's median.
    pub(crate) median: f64,
    /// The 99th percentile of all samples (for rates, of the slow end).
    pub(crate) p99: f64,
}

impl Side {
    fn of(row: Row, rounds: &[Vec<u64>]) -> Option<Side> {
        let medians: Vec<u64> = rounds
            .iter()
            .filter(|round| !round.is_empty())
            .map(|round| median(round))
            .collect();
        let all: Vec<u64> = rounds.concat();
        let value = |nanoseconds: u64| match row.unit() {
            Unit::Nanoseconds => nanoseconds as f64,
            Unit::BytesPerSecond => row.bytes() as f64 * 1e9 / nanoseconds as f64,
            Unit::CommandsPerSecond => 1e9 / nanoseconds as f64,
        };
        (!all.is_empty()).then(|| Side {
            median: value(median(&medians)),
            p99: value(quantile(&all, 0.99)),
        })
    }
}

/// All rows of a run, and the circumstances.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    devices: Vec<String>,
    carrier: String,
    rounds: usize,
    cores: usize,
    congestion_control: String,
    /// The rows.
    pub(crate) figures: Vec<Figures>,
}

impl Report {
    /// Nothing measured yet.
    pub(crate) fn new(options: &Options) -> Report {
        let congestion = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control");
        Report {
            devices: Vec::new(),
            carrier: options.carrier.clone(),
            rounds: options.rounds,
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            congestion_control: congestion.unwrap_or_default().trim().to_owned(),
            figures: Vec::new(),
        }
    }

    /// Names a device that was measured.
    pub(crate) fn device(&mut self, name: &str) {
        if self.devices.iter().all(|known| known != name) {
            self.devices.push(name.to_owned());
        }
    }

    /// Adds rows.
    pub(crate) fn add(&mut self, lines: Vec<Line>) {
        self.figures.extend(lines.iter().map(Line::figures));
    }

    /// As JSON.
    pub(crate) fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "device: {}", self.devices.join("; "))?;
        writeln!(
            f,
            "{} cores, {} rounds in turn, carrier {}, TCP {}; median, p99 in brackets\n",
            self.cores, self.rounds, self.carrier, self.congestion_control
        )?;
        writeln!(
            f,
            "| what | native | bare TCP | Causeway | / native | / TCP |\n|---|---|---|---|---|---|"
        )?;
        for row in &self.figures {
            let cell =
                |side: Option<Side>| side.map_or("–".to_owned(), |side| text(row.unit, side));
            let ratio = |base: Option<Side>| match (row.causeway, base) {
                (Some(ours), Some(base)) => format!("{:.2}", ours.median / base.median),
                _ => "–".to_owned(),
            };
            writeln!(
                f,
                "| {} | {} | {} | {} | {} | {} |",
                row.name,
                cell(row.native),
                cell(row.socket),
                cell(row.causeway),
                ratio(row.native),
                ratio(row.socket),
            )?;
        }
        Ok(())
    }
}

fn text(unit: Unit, side: Side) -> String {
    match unit {
        Unit::Nanoseconds if side.median >= 1e6 => {
            format!("{:.1} ms ({:.1})", side.median / 1e6, side.p99 / 1e6)
        }
        Unit::Nanoseconds => format!("{:.2} µs ({:.1})", side.median / 1e3, side.p99 / 1e3),
        Unit::BytesPerSecond => format!("{:.2} GB/s ({:.2})", side.median / 1e9, side.p99 / 1e9),
        Unit::CommandsPerSecond => format!("{:.0} k/s", side.median / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_come_from_times_and_sizes() {
        let mut line = Line::new(Row::Write(1000));
        line.causeway = vec![vec![1000, 2000, 1000], vec![500]];
        let figures = line.figures();
        assert!(figures.native.is_none());
        // Round medians are 1000 and 500 ns; of two, the later in order counts.
        assert!((figures.causeway.unwrap().median - 1e9).abs() < 1.0);
    }
}
