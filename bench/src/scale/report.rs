//! The report of `manager-scale`: the table, the JSON and the marks.
#![forbid(unsafe_code)]

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::Options;
use super::clients::Filled;
use crate::experiment::seconds;
use crate::figures::quantile;

/// The marks: the 99th percentile from request to lease, the manager's memory, and a restart.
const LEASE_P99: f64 = 0.010;
const MEMORY: u64 = 300 << 20;
const RESTART: f64 = 2.0;

/// Quantiles of times, in seconds.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Times {
    p50: f64,
    p99: f64,
    most: f64,
}

impl Times {
    pub(super) fn of(samples: &[f64]) -> Times {
        Times {
            p50: quantile(samples, 0.5),
            p99: quantile(samples, 0.99),
            most: quantile(samples, 1.0),
        }
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [p50, p99, most] = [self.p50, self.p99, self.most].map(seconds);
        write!(f, "{p50} | {p99} | {most}")
    }
}

/// Seconds of processor.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Cpu {
    /// The manager's.
    pub(super) manager: f64,
    /// This process's: all nodes and all clients.
    pub(super) load: f64,
}

impl Cpu {
    pub(super) fn since(self, earlier: Cpu) -> Cpu {
        Cpu {
            manager: self.manager - earlier.manager,
            load: self.load - earlier.load,
        }
    }
}

/// Seconds from the start of the process.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Restart {
    /// Time until it printed that it listens.
    pub(super) listening: f64,
    /// Time until a client had received all leases and requests.
    pub(super) all_known: f64,
    /// Time until all nodes were accepted again.
    pub(super) nodes_back: f64,
}

/// The whole report.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    nodes: u32,
    devices: u32,
    clients: u32,
    connections: u32,
    rate: u32,
    hold_ms: u64,
    cores: usize,
    /// Times of one synchronisation with the store's disk, alone.
    disk: Times,
    /// Seconds for all nodes to join, one batch after the other.
    pub(super) joined: f64,
    /// The requests at a rate.
    pub(super) seconds: f64,
    pub(super) cpu: Cpu,
    pub(super) lease: Times,
    pub(super) release: Times,
    pub(super) late: Times,
    fill_seconds: f64,
    fill_cpu: Cpu,
    leases: usize,
    waiting: usize,
    /// The manager's memory, bytes: with nodes, the most at the rate, with all leases, at the peak, after the restart
    /// and with its nodes.
    pub(super) with_nodes: u64,
    pub(super) at_the_rate: u64,
    pub(super) full: u64,
    pub(super) peak: u64,
    pub(super) restarted: u64,
    pub(super) restart: Option<Restart>,
}

impl Report {
    pub(super) fn new(options: &Options, disk: Times) -> Report {
        Report {
            nodes: options.nodes,
            devices: options.devices,
            clients: options.clients,
            connections: options.connections.min(options.clients),
            rate: options.rate,
            hold_ms: options.hold,
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            disk,
            joined: 0.0,
            seconds: 0.0,
            cpu: Cpu::default(),
            lease: Times::default(),
            release: Times::default(),
            late: Times::default(),
            fill_seconds: 0.0,
            fill_cpu: Cpu::default(),
            leases: 0,
            waiting: 0,
            with_nodes: 0,
            at_the_rate: 0,
            full: 0,
            peak: 0,
            restarted: 0,
            restart: None,
        }
    }

    pub(super) fn fill(&mut self, took: Duration, cpu: Cpu, filled: Filled) {
        self.fill_seconds = took.as_secs_f64();
        self.fill_cpu = cpu;
        (self.leases, self.waiting) = (filled.leases, filled.waiting);
    }

    /// Name, result, mark, and whether it is met.
    fn marks(&self) -> [(&'static str, String, String, bool); 3] {
        let restart = self.restart.map_or(f64::INFINITY, |of| of.all_known);
        [
            (
                "request to lease, p99",
                seconds(self.lease.p99),
                seconds(LEASE_P99),
                self.lease.p99 < LEASE_P99,
            ),
            (
                "the manager's memory at the peak",
                mebibytes(self.peak),
                mebibytes(MEMORY),
                self.peak < MEMORY,
            ),
            (
                "restart until all leases are known",
                seconds(restart),
                seconds(RESTART),
                restart < RESTART,
            ),
        ]
    }

    /// Whether all marks are met.
    pub(super) fn is_met(&self) -> bool {
        self.marks().iter().all(|(.., is_met)| *is_met)
    }
}

fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} nodes of {} devices, {} clients, at most {} connected at a time, {} requests a second held for {} ms each; {} cores",
            self.nodes,
            self.devices,
            self.clients,
            self.connections,
            self.rate,
            self.hold_ms,
            self.cores
        )?;
        let share = |cpu: f64| cpu / self.seconds.max(1e-9) * 100.0;
        writeln!(
            f,
            "nodes joined in {}; at the rate the manager used {:.2} s of processor ({:.0} % of a core), nodes and clients \
             {:.2} s ({:.0} %)",
            seconds(self.joined),
            self.cpu.manager,
            share(self.cpu.manager),
            self.cpu.load,
            share(self.cpu.load),
        )?;
        writeln!(
            f,
            "then {} leases and {} waiting requests in {}: {:.0} a second, {:.2} s of the manager's processor, {:.2} s of \
             the others'",
            self.leases,
            self.waiting,
            seconds(self.fill_seconds),
            (self.leases + self.waiting) as f64 / self.fill_seconds.max(1e-9),
            self.fill_cpu.manager,
            self.fill_cpu.load,
        )?;
        writeln!(
            f,
            "memory: {} with the nodes, {} at most at the rate, {} with all leases, {} after the restart",
            mebibytes(self.with_nodes),
            mebibytes(self.at_the_rate),
            mebibytes(self.full),
            mebibytes(self.restarted),
        )?;
        if let Some(restart) = self.restart {
            writeln!(
                f,
                "restart: listening after {}, all known after {}, all nodes back after {}",
                seconds(restart.listening),
                seconds(restart.all_known),
                seconds(restart.nodes_back)
            )?;
        }
        writeln!(f, "\n| what | p50 | p99 | most |\n|---|---|---|---|")?;
        writeln!(f, "| request to lease | {} |", self.lease)?;
        writeln!(f, "| release | {} |", self.release)?;
        writeln!(f, "| requests sent late by | {} |", self.late)?;
        writeln!(
            f,
            "| one synchronisation with the disk, alone | {} |",
            self.disk
        )?;
        writeln!(f, "\n| mark | reached | |\n|---|---|---|")?;
        for (name, reached, mark, is_met) in self.marks() {
            let verdict = if is_met { "met" } else { "**missed**" };
            writeln!(f, "| {name} < {mark} | {reached} | {verdict} |")?;
        }
        Ok(())
    }
}

/// Times of a synchronisation with the disk of the store. Every durable change takes at least that long.
pub(super) fn synchronisations(store: &Path) -> io::Result<Times> {
    const COUNT: usize = 100;
    const BLOCK: usize = 16 << 10;
    let path = store.with_extension("probe");
    let file = File::create(&path)?;
    file.write_all_at(&vec![1; COUNT * BLOCK], 0)?;
    file.sync_all()?;
    let mut samples = Vec::with_capacity(COUNT);
    for place in 0..COUNT {
        file.write_all_at(&[place as u8; BLOCK], (place * BLOCK) as u64)?;
        let begun = Instant::now();
        file.sync_data()?;
        samples.push(begun.elapsed().as_secs_f64());
    }
    std::fs::remove_file(path)?;
    Ok(Times::of(&samples))
}
