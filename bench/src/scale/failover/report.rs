//! The report of `failover`: the table, the JSON and the marks.
#![forbid(unsafe_code)]

use std::fmt;
use std::io;
use std::time::Duration;

use serde::Serialize;

use super::super::clients::Timed;
use super::super::report::{Times, mebibytes};
use super::{How, Options};
use crate::experiment::seconds;
use crate::figures::quantile;

/// The marks of a change, in seconds: the median if there is one, and the most.
fn marks(how: How) -> (Option<f64>, f64) {
    match how {
        How::Kill => (Some(3.5), 5.0),
        How::Sigterm | How::StepDown => (None, 1.0),
        How::Stop | How::Unplug => (None, 8.0),
    }
}

/// One change of the leader, in seconds from its cause.
#[derive(Debug, Serialize)]
pub(super) struct Change {
    /// Until the first client that waited was granted a device.
    pub(super) granted: f64,
    /// Until the first node was with the next leader, and until all were.
    pub(super) node: f64,
    pub(super) nodes: f64,
    /// Until a request that does not wait was answered, and how.
    pub(super) request: f64,
    pub(super) answer: String,
    /// The part of a core that nodes and clients took.
    pub(super) cpu: f64,
    /// The machine's load.
    pub(super) load: f64,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!(
            "granted {:.2} s, nodes {:.2} to {:.2} s, answered {:.2} s (load {:.1}; {:.0} % of a core)",
            self.granted,
            self.node,
            self.nodes,
            self.request,
            self.load,
            self.cpu * 100.0
        );
        f.pad(&text)
    }
}

/// The requests at a rate.
#[derive(Debug, Serialize)]
struct Rated {
    rate: u32,
    seconds: u32,
    lease: Times,
    late: Times,
    memory: Memory,
}

/// Peaks in bytes, up to the end of the requests at a rate.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Memory {
    pub(super) leader: u64,
    /// Of the standby that took most.
    pub(super) standby: u64,
    /// The largest database of a member of etcd, at the end.
    pub(super) database: u64,
}

impl Rated {
    /// The names, the figures and their marks, in bytes. A short run says nothing about the database.
    fn memory(&self) -> Vec<(&'static str, u64, u64)> {
        let Memory {
            leader,
            standby,
            database,
        } = self.memory;
        let mut rows = vec![
            ("memory of the leader: 300 MiB", leader, 300 << 20),
            ("memory of a standby: 40 MiB", standby, 40 << 20),
        ];
        if self.seconds >= 600 && self.rate >= 1000 {
            rows.push(("etcd's database: 256 MiB", database, 256 << 20));
        }
        rows
    }
}

/// The whole report.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    how: How,
    nodes: u32,
    leases: u32,
    waiting: u32,
    cores: usize,
    /// Seconds until all leases were there.
    filled: f64,
    pub(super) changes: Vec<Change>,
    /// Leases that ended though nobody had ended them, and what their holders were told.
    pub(super) ended: usize,
    pub(super) reasons: Vec<String>,
    /// Changes of the leader without a cause.
    pub(super) uncaused: u64,
    rated: Option<Rated>,
    /// The machine's load at the beginning and at the end of the requests at a rate.
    loads: Vec<f64>,
}

impl Report {
    pub(super) fn new(options: &Options, filled: Duration) -> Report {
        Report {
            how: options.how,
            nodes: options.nodes,
            leases: options.leases,
            waiting: options.waiting,
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            filled: filled.as_secs_f64(),
            changes: Vec::new(),
            ended: 0,
            reasons: Vec::new(),
            uncaused: 0,
            rated: None,
            loads: load().into_iter().collect(),
        }
    }

    /// Adds the times of the requests at a rate.
    pub(super) fn at_a_rate(
        &mut self,
        (rate, seconds): (u32, u32),
        timed: &Timed,
        memory: Memory,
    ) -> io::Result<()> {
        self.rated = Some(Rated {
            rate,
            seconds,
            lease: Times::of(&timed.leases),
            late: Times::of(&timed.late),
            memory,
        });
        self.loads.push(load()?);
        Ok(())
    }

    /// What is measured of each change: its name, the times, and whether there is a mark.
    fn rows(&self) -> [(&'static str, Vec<f64>, bool); 4] {
        let of = |time: fn(&Change) -> f64| self.changes.iter().map(time).collect();
        [
            ("the first who waits is granted", of(|of| of.granted), true),
            ("the first node is back", of(|of| of.node), false),
            ("all nodes are back", of(|of| of.nodes), true),
            (
                "a request that does not wait is answered",
                of(|of| of.request),
                true,
            ),
        ]
    }

    /// Whether all marks are met.
    pub(super) fn is_met(&self) -> bool {
        let (median, most) = marks(self.how);
        let is_in_time = |times: &[f64]| {
            let median = median.is_none_or(|mark| quantile(times, 0.5) <= mark);
            median && quantile(times, 1.0) <= most
        };
        let mut rows = self.rows().into_iter().filter(|(.., has_mark)| *has_mark);
        let nothing_lost = self.ended == 0 && self.uncaused == 0;
        let memory = self.rated.iter().flat_map(Rated::memory);
        let is_small = memory.into_iter().all(|(_, bytes, mark)| bytes <= mark);
        nothing_lost && is_small && rows.all(|(_, times, _)| is_in_time(&times))
    }

    fn write_changes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (median, most) = marks(self.how);
        let mark = match median {
            Some(median) => format!("p50 ≤ {}, most ≤ {}", seconds(median), seconds(most)),
            None => format!("most ≤ {}", seconds(most)),
        };
        let least = self.changes.iter().map(|of| of.load);
        let (least, greatest) = least.fold((f64::MAX, 0.0_f64), |(least, greatest), load| {
            (least.min(load), greatest.max(load))
        });
        writeln!(
            f,
            "{} changes, load {least:.1} to {greatest:.1}\n\n| until | p50 | most | mark | |\n|---|---|---|---|---|",
            self.changes.len()
        )?;
        for (name, times, has_mark) in self.rows() {
            let (p50, longest) = (quantile(&times, 0.5), quantile(&times, 1.0));
            let is_met = median.is_none_or(|mark| p50 <= mark) && longest <= most;
            let (mark, verdict) = match (has_mark, is_met) {
                (false, _) => ("–", ""),
                (true, true) => (&mark[..], "met"),
                (true, false) => (&mark[..], "**missed**"),
            };
            let [p50, longest] = [p50, longest].map(seconds);
            writeln!(f, "| {name} | {p50} | {longest} | {mark} | {verdict} |")?;
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "three managers over three members of etcd, {} nodes, {} leases (made in {}), {} cores, {:?}",
            self.nodes,
            self.leases,
            seconds(self.filled),
            self.cores,
            self.how
        )?;
        match &self.rated {
            None => {
                writeln!(f, "{} clients wait", self.waiting)?;
                self.write_changes(f)?;
            }
            Some(of) => writeln!(
                f,
                "{} requests a second for {} s; load {:.1?}\n\n| what | p50 | p99 | most |\n|---|---|---|---|\n| request to \
                 lease | {} |\n| requests sent late by | {} |",
                of.rate, of.seconds, self.loads, of.lease, of.late
            )?,
        }
        writeln!(f, "\n| mark | reached | |\n|---|---|---|")?;
        let ended = u64::try_from(self.ended).unwrap_or(u64::MAX);
        for (name, count) in [
            ("leases that ended though nobody ended them: 0", ended),
            ("changes of the leader without a cause: 0", self.uncaused),
        ] {
            let verdict = if count == 0 { "met" } else { "**missed**" };
            writeln!(f, "| {name} | {count} | {verdict} |")?;
        }
        for (name, bytes, mark) in self.rated.iter().flat_map(Rated::memory) {
            let verdict = if bytes <= mark { "met" } else { "**missed**" };
            writeln!(f, "| {name} | {} | {verdict} |", mebibytes(bytes))?;
        }
        for reason in &self.reasons {
            writeln!(f, "a holder was told: {reason}")?;
        }
        Ok(())
    }
}

/// The machine's load over the last minute.
pub(super) fn load() -> io::Result<f64> {
    let text = std::fs::read_to_string("/proc/loadavg")?;
    let first = text.split(' ').next().and_then(|load| load.parse().ok());
    first.ok_or_else(|| io::Error::other("/proc/loadavg has no number"))
}
