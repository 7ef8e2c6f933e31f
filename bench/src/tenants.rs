//! `bench sharing`: several programs on one device at the same time.
//!
//! Each tenant ([`program`]) is a process. The sides take turns in every round:
//! - native: the processes use the driver themselves;
//! - one context: one process uses the driver itself, with a thread and a queue for each tenant. No way of sharing can
//!   be faster than the driver is here;
//! - apart: through a daemon with a worker for each session;
//! - together: through a daemon with one host for all sessions of a user (`[sharing] together = "user"`).
//!
//! With `--kernels parts`, two tenants have parts of the device's time ([`parts`]).
//!
//! Invariant: all tenants of a run are in the same part of their work at the same time, and all their results are
//! right.
#![forbid(unsafe_code)]

mod parts;
pub(crate) mod program;
mod report;

use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::experiment::Common;
use crate::nodes::run_within;
use crate::setup::{Build, Process};
use parts::Parts;
use program::{Latency, Rate, Started};
use report::Report;

type Error = Box<dyn std::error::Error>;

/// A long kernel is this many times as long as the others'.
const LONG: u32 = 100;
/// Time after which a neighbour is in the middle of its work.
const UNDER_WAY: Duration = Duration::from_millis(100);

/// How to run it.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    /// Numbers of programs at once
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "N,…",
        default_value = "1,2,4,8"
    )]
    tenants: Vec<u16>,
    /// Kernels to launch
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "KERNEL,…",
        default_value = "empty,38us,2ms,one-long,beside-2ms,flood,stopped,killed,parts"
    )]
    kernels: Vec<KernelKind>,
    /// Length of each part of a run, s
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// The .icd folder of the native side and of the daemons
    #[arg(long, value_name = "DIR")]
    native_vendors: Option<PathBuf>,
}

/// What tenants launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Serialize)]
pub(crate) enum KernelKind {
    /// An empty kernel
    #[value(name = "empty")]
    Empty,
    /// A kernel of 38 µs
    #[value(name = "38us")]
    Short,
    /// A kernel of 2 ms
    #[value(name = "2ms")]
    Medium,
    /// A kernel of 38 µs, and one tenant's of 100 times that
    #[value(name = "one-long")]
    OneLong,
    /// An empty kernel, and one tenant's of 2 ms
    #[value(name = "beside-2ms")]
    Beside,
    /// A kernel of 38 µs, and one tenant that always has thousands of launches queued
    #[value(name = "flood")]
    Flood,
    /// A kernel of 38 µs, and one tenant that is stopped in the middle of its launches and reads
    #[value(name = "stopped")]
    Stopped,
    /// A kernel of 38 µs, and one tenant that is killed in the middle of its launches and reads
    #[value(name = "killed")]
    Killed,
    /// A kernel of 2 ms, of two tenants with 25 and 75 percent of the time
    #[value(name = "parts")]
    Parts,
}

impl KernelKind {
    /// Seconds of the kernel on an idle device, beyond those of an empty one. Beside the neighbour's kernel, the others
    /// are empty.
    fn seconds(self) -> f64 {
        match self {
            KernelKind::Empty => 0.0,
            KernelKind::Short
            | KernelKind::OneLong
            | KernelKind::Flood
            | KernelKind::Stopped
            | KernelKind::Killed => 38e-6,
            KernelKind::Medium | KernelKind::Beside | KernelKind::Parts => 2e-3,
        }
    }

    fn name(self) -> &'static str {
        match self {
            KernelKind::Empty => "empty",
            KernelKind::Short => "38 µs",
            KernelKind::Medium => "2 ms",
            KernelKind::OneLong => "38 µs, one tenant 3.8 ms",
            KernelKind::Beside => "empty, one tenant 2 ms",
            KernelKind::Flood => "38 µs, one tenant floods",
            KernelKind::Stopped => "38 µs, one is stopped",
            KernelKind::Killed => "38 µs, one is killed",
            KernelKind::Parts => "2 ms, 25:75 of the time",
        }
    }

    /// The steps of a tenant's kernel, if the kernel takes `steps`.
    fn steps_of(self, tenant: u16, steps: u32) -> u32 {
        match (self, tenant) {
            (KernelKind::OneLong, 0) => steps.saturating_mul(LONG),
            (KernelKind::Beside, 1..) => 0,
            _ => steps,
        }
    }

    /// Whether the first tenant is the others' neighbour and not measured.
    fn has_neighbour(self) -> bool {
        let neighbours = [KernelKind::OneLong, KernelKind::Beside, KernelKind::Flood];
        neighbours.contains(&self) || self.signal().is_some()
    }

    /// The arguments of the first tenant.
    fn neighbour_arguments(self) -> &'static [&'static str] {
        match self {
            KernelKind::Flood => &["--flood"],
            KernelKind::Stopped | KernelKind::Killed => &["--flood", "--reads"],
            _ => &[],
        }
    }

    /// What the neighbour's process gets while the others are measured.
    fn signal(self) -> Option<Signal> {
        match self {
            KernelKind::Stopped => Some(Signal::STOP),
            KernelKind::Killed => Some(Signal::KILL),
            _ => None,
        }
    }

    /// The sides that can run this: a process of several tenants cannot be stopped in part.
    fn sides(self) -> Vec<Side> {
        let mut sides = Side::ALL.to_vec();
        sides.retain(|side| self.signal().is_none() || *side != Side::OneContext);
        sides
    }
}

/// Who runs the tenants' commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum Side {
    /// The driver in each process.
    Native,
    /// The driver in one process, with a queue for each tenant.
    OneContext,
    /// A worker for each session.
    Apart,
    /// One worker for all sessions.
    Together,
}

impl Side {
    const ALL: [Side; 4] = [Side::Native, Side::OneContext, Side::Apart, Side::Together];

    fn name(self) -> &'static str {
        match self {
            Side::Native => "native",
            Side::OneContext => "one context",
            Side::Apart => "apart",
            Side::Together => "together",
        }
    }
}

/// What the tenants of one run reported, in their order.
#[derive(Debug, Clone, Default, Serialize)]
struct Run {
    started: Vec<Started>,
    latencies: Vec<Latency>,
    rates: Vec<Rate>,
    /// MiB of the card that the tenants take, if `nvidia-smi` tells.
    memory: Option<f64>,
}

struct Experiment<'a> {
    options: &'a Options,
    build: Build,
    client: PathBuf,
    apart: (Process, String),
    together: (Process, String),
}

/// Runs all numbers of tenants on all sides, and reports.
pub(crate) fn run(options: &Options) -> Result<(), Error> {
    let experiment = Experiment::start(options)?;
    let mut report = Report::new(options);
    for kind in &options.kernels {
        let steps = experiment.steps(*kind)?;
        if *kind == KernelKind::Parts {
            for side in [Side::Apart, Side::Together] {
                eprint!("\r{:<22} 2 tenants: {:<9}", kind.name(), side.name());
                report.add_parts(experiment.parts(side, steps)?);
            }
            continue;
        }
        for tenants in &options.tenants {
            if kind.has_neighbour() && *tenants < 2 {
                // The first tenant has no neighbour.
                continue;
            }
            for round in 1..=options.common.rounds {
                for side in kind.sides() {
                    eprint!(
                        "\r{:<22} {tenants} tenants, round {round}: {:<11}",
                        kind.name(),
                        side.name()
                    );
                    let run = experiment.run(side, *kind, *tenants, steps)?;
                    report.add(*kind, *tenants, side, run);
                }
            }
        }
    }
    eprint!("\r{:60}\r", "");
    print!("{report}");
    options.common.write_json(&report)?;
    println!("plot: {}", report.draw(options.common.plots()?)?.display());
    Ok(())
}

impl Experiment<'_> {
    fn start(options: &Options) -> Result<Experiment<'_>, Error> {
        let build = Build::find()?;
        let vendors = options.native_vendors.as_deref();
        let daemon = |together: &str| {
            let mut command = build.daemon_command("127.0.0.1:0", vendors)?;
            command.args(["--together", together]);
            // The first tenant builds, and the others take its build from the cache, as on a node in use.
            command.env_remove("CAUSEWAYD_BUILD_CACHE_SIZE");
            command.env("CAUSEWAYD_BUILD_CACHE_DIR", build.scratch().join(together));
            Build::listening(&mut command)
        };
        Ok(Experiment {
            options,
            client: build.vendors("causeway", "libcauseway.so")?,
            apart: daemon("none")?,
            together: daemon("user")?,
            build,
        })
    }

    /// The steps of a kernel, as the native device needs them.
    fn steps(&self, kind: KernelKind) -> io::Result<u32> {
        let seconds = kind.seconds();
        if seconds == 0.0 {
            return Ok(0);
        }
        let mut command = self.tenant(Side::Native)?;
        command.arg("--calibrate").arg(seconds.to_string());
        let text = run_within(&mut command, self.options.common.limit())?;
        text.trim().parse().map_err(io::Error::other)
    }

    fn tenant(&self, side: Side) -> io::Result<Command> {
        let vendors = match side {
            Side::Native | Side::OneContext => self.options.native_vendors.as_deref(),
            Side::Apart | Side::Together => Some(self.client.as_path()),
        };
        let mut command = self.build.own("tenant", vendors, None)?;
        match side {
            Side::Native | Side::OneContext => {}
            Side::Apart => drop(command.env("CAUSEWAY_SERVERS", &self.apart.1)),
            Side::Together => drop(command.env("CAUSEWAY_SERVERS", &self.together.1)),
        }
        Ok(command)
    }

    /// Runs two tenants with parts of the time.
    fn parts(&self, side: Side, steps: u32) -> io::Result<Parts> {
        let vendors = self.options.native_vendors.as_deref();
        let seconds = self.options.seconds.max(1.0);
        Parts::run(&self.build, &self.client, vendors, side, steps, seconds)
    }

    /// Runs the tenants of one side.
    fn run(&self, side: Side, kind: KernelKind, tenants: u16, steps: u32) -> io::Result<Run> {
        let before = card_memory();
        let of_all: Vec<String> = (0..tenants)
            .map(|tenant| kind.steps_of(tenant, steps).to_string())
            .collect();
        // The tenants of each process.
        let processes = match side {
            Side::OneContext => of_all.chunks(of_all.len().max(1)),
            _ => of_all.chunks(1),
        };
        let mut all = Vec::with_capacity(tenants.into());
        for (place, steps) in processes.enumerate() {
            let mut command = self.tenant(side)?;
            command.arg("--steps").arg(steps.join(","));
            if place == 0 {
                command.args(kind.neighbour_arguments());
            }
            command
                .arg("--seconds")
                .arg(self.options.seconds.to_string());
            all.push((Process::start(&mut command)?, steps.len()));
        }
        let mut run = Run {
            started: answers(&mut all)?,
            ..Run::default()
        };
        run.memory = before.zip(card_memory()).map(|(before, now)| now - before);
        run.latencies = part(kind, &mut all)?;
        run.rates = part(kind, &mut all)?;
        Ok(run)
    }
}

/// Has all tenants do their next part; what they say. A neighbour that is stopped goes on afterwards, and one that is
/// killed says nothing.
fn part<T: DeserializeOwned + Default>(
    kind: KernelKind,
    processes: &mut [(Process, usize)],
) -> io::Result<Vec<T>> {
    let (Some(signal), [(neighbour, _), others @ ..]) = (kind.signal(), &mut *processes) else {
        go_on(processes)?;
        return answers(processes);
    };
    // One that was killed before hears nothing.
    let is_there = neighbour.tell("go").is_ok();
    std::thread::sleep(UNDER_WAY);
    if is_there && signal == Signal::STOP {
        neighbour.signal(signal)?;
    }
    go_on(others)?;
    if is_there && signal == Signal::KILL {
        std::thread::sleep(UNDER_WAY);
        neighbour.signal(signal)?;
    }
    let of_others = answers::<T>(others)?;
    let of_neighbour = match signal {
        Signal::KILL => T::default(),
        _ => {
            neighbour.signal(Signal::CONT)?;
            serde_json::from_str(&neighbour.line()?)?
        }
    };
    Ok([of_neighbour].into_iter().chain(of_others).collect())
}

/// The next answer of each tenant. A process has one tenant or more.
fn answers<T: DeserializeOwned>(processes: &mut [(Process, usize)]) -> io::Result<Vec<T>> {
    let mut answers = Vec::new();
    for (process, tenants) in processes {
        for _ in 0..*tenants {
            answers.push(serde_json::from_str(&process.line()?)?);
        }
    }
    Ok(answers)
}

/// Has all tenants begin their next part.
fn go_on(processes: &mut [(Process, usize)]) -> io::Result<()> {
    processes
        .iter_mut()
        .try_for_each(|(process, _)| process.tell("go"))
}

/// MiB in use on all cards; `None` where `nvidia-smi` does not tell.
fn card_memory() -> Option<f64> {
    let query = ["--query-gpu=memory.used", "--format=csv,noheader,nounits"];
    let output = Command::new("nvidia-smi").args(query).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let cards: Result<Vec<f64>, _> = text.lines().map(|line| line.trim().parse()).collect();
    cards
        .ok()
        .filter(|cards| !cards.is_empty())
        .map(|cards| cards.iter().sum())
}
