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
use super::viewers::Views;
use crate::experiment::seconds;
use crate::figures::quantile;
use crate::manager::{Engine, Manager};

/// The marks: the 99th percentile from request to lease, and a restart, over a file and over etcd; the manager's
/// memory.
const LEASE_P99: (f64, f64) = (0.010, 0.015);
const RESTART: (f64, f64) = (2.0, 5.0);
const MEMORY: u64 = 300 << 20;
/// The rate of leases over etcd, as a part of the rate over a file.
const RATE: f64 = 0.4;

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

/// The store's transactions.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Commits {
    count: u64,
    grants: u64,
    microseconds: u64,
}

impl Commits {
    /// All transactions so far.
    pub(super) fn of(manager: &Manager) -> io::Result<Commits> {
        Ok(Commits {
            count: manager.counter("causeway_manager_commit_seconds_count")? as u64,
            grants: manager.counter("causeway_manager_grants_total")? as u64,
            microseconds: (manager.counter("causeway_manager_commit_seconds_sum")? * 1e6) as u64,
        })
    }

    pub(super) fn since(self, earlier: Commits) -> Commits {
        Commits {
            count: self.count - earlier.count,
            grants: self.grants - earlier.grants,
            microseconds: self.microseconds - earlier.microseconds,
        }
    }
}

impl fmt::Display for Commits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.count.max(1) as f64;
        let (grants, each) = (self.grants as f64 / count, self.microseconds as f64 / count);
        let each = seconds(each / 1e6);
        write!(f, "{} of {each} with {grants:.1} grants each", self.count)
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
    store: Engine,
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
    /// The transactions at the rate, and while all devices were leased.
    pub(super) rate_commits: Commits,
    pub(super) fill_commits: Commits,
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
    /// What the pages got that looked at the dashboard.
    pub(super) views: Option<Views>,
}

impl Report {
    pub(super) fn new(options: &Options, store: Engine, disk: Times) -> Report {
        Report {
            store,
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
            rate_commits: Commits::default(),
            fill_commits: Commits::default(),
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
            views: None,
        }
    }

    pub(super) fn fill(&mut self, took: Duration, cpu: Cpu, filled: Filled) {
        self.fill_seconds = took.as_secs_f64();
        self.fill_cpu = cpu;
        (self.leases, self.waiting) = (filled.leases, filled.waiting);
    }

    /// Leases and requests a second while all devices were leased.
    fn fill_rate(&self) -> f64 {
        (self.leases + self.waiting) as f64 / self.fill_seconds.max(1e-9)
    }

    /// Name, result, mark, and whether it is met.
    fn marks(&self) -> [(&'static str, String, String, bool); 3] {
        let restart = self.restart.map_or(f64::INFINITY, |of| of.all_known);
        let of = |(redb, etcd)| match self.store {
            Engine::Redb => redb,
            Engine::Etcd => etcd,
        };
        let (lease_p99, most): (f64, f64) = (of(LEASE_P99), of(RESTART));
        [
            (
                "request to lease, p99",
                seconds(self.lease.p99),
                seconds(lease_p99),
                self.lease.p99 < lease_p99,
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
                seconds(most),
                restart < most,
            ),
        ]
    }

    /// Whether all marks are met.
    pub(super) fn is_met(&self) -> bool {
        self.marks().iter().all(|(.., is_met)| *is_met)
    }
}

/// The reports over a file and over etcd, of one run.
#[derive(Debug, Serialize)]
pub(super) struct Both {
    pub(super) redb: Report,
    pub(super) etcd: Report,
}

impl Both {
    fn rate(&self) -> f64 {
        self.etcd.fill_rate() / self.redb.fill_rate().max(1e-9)
    }

    /// Whether all marks are met.
    pub(super) fn is_met(&self) -> bool {
        self.redb.is_met() && self.etcd.is_met() && self.rate() >= RATE
    }
}

impl fmt::Display for Both {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = self.rate();
        let verdict = if rate >= RATE { "met" } else { "**missed**" };
        writeln!(
            f,
            "| leases a second, of redb's rate ≥ {RATE} | {rate:.2} | {verdict} |"
        )
    }
}

pub(super) fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_course(f)?;
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

impl Report {
    /// Writes the lines before the tables.
    fn write_course(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:?}: {} nodes of {} devices, {} clients, at most {} connected at a time, {} requests a second held for {} ms each; {} cores",
            self.store,
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
            self.fill_rate(),
            self.fill_cpu.manager,
            self.fill_cpu.load,
        )?;
        writeln!(
            f,
            "transactions: {}; while all devices were leased {}",
            self.rate_commits, self.fill_commits
        )?;
        writeln!(
            f,
            "memory: {} with the nodes, {} at most at the rate, {} with all leases, {} after the restart",
            mebibytes(self.with_nodes),
            mebibytes(self.at_the_rate),
            mebibytes(self.full),
            mebibytes(self.restarted),
        )?;
        self.write_rest(f)
    }

    // What not every run has.
    fn write_rest(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(views) = &self.views {
            writeln!(
                f,
                "{} pages looked at the dashboard: {:.1} events a second each of {} KiB on average, the longest pause of one was {}",
                views.viewers,
                views.events as f64 / f64::from(views.viewers) / views.seconds.max(1e-9),
                (views.bytes / views.events.max(1)) >> 10,
                seconds(views.pause),
            )?;
        }
        if let Some(restart) = self.restart {
            writeln!(
                f,
                "restart: listening after {}, all known after {}, all nodes back after {}",
                seconds(restart.listening),
                seconds(restart.all_known),
                seconds(restart.nodes_back)
            )?;
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
