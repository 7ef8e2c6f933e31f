//! `bench manager`: the paper's experiment with the device manager.
//!
//! Several applications use one device each, at the same time, of nodes with one device each. Without a manager, each
//! application finds all devices and takes the first, as programs do. With it, each requests one device and gets its
//! own. Devices compute for real: GPUs, one for each node, or equal slices of a processor's cores ([`Slice`]). The nodes
//! with and without the manager run in the same slices, because an idle node costs nothing.
//!
//! Invariant: all pictures of a run are the same. With the manager, no two applications had the same device according
//! to its own list.
#![forbid(unsafe_code)]

mod report;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::experiment::{Common, Phases};
use crate::manager::{Manager, Watcher};
use crate::mandelbrot::picture::View;
use crate::mandelbrot::program::Outcome;
use crate::nodes::{Driver, run_within};
use crate::setup::{Build, Process};
use crate::slices::Slice;
use report::{Report, Row};

type Error = Box<dyn std::error::Error>;

/// The share of a processor for its devices. The rest is for the applications.
const FOR_DEVICES: f64 = 0.8;

/// Time between two queries of the manager's list.
const LOOK: Duration = Duration::from_millis(50);

/// How to run it.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    /// Nodes with a device each; with native drivers, as many as there are devices
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    nodes: u16,
    /// Numbers of applications, at most the number of nodes [default: all]
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    applications: Vec<usize>,
    /// Pixels a line of each application's picture
    #[arg(long, default_value_t = 1200)]
    width: u32,
    /// Lines of it
    #[arg(long, default_value_t = 800)]
    height: u32,
    /// Steps a point at most
    #[arg(long, default_value_t = 1000)]
    iterations: u32,
    /// Compute on the devices of this .icd folder, one a node, not on slices of the processor
    #[arg(long, value_name = "DIR")]
    native_vendors: Option<PathBuf>,
}

/// A node's two daemons and its slice, which outlives them.
struct Node {
    plain: (Process, String),
    _managed: (Process, String),
    _slice: Option<Slice>,
}

struct Experiment<'a> {
    options: &'a Options,
    build: Build,
    client: PathBuf,
    view: View,
    nodes: Vec<Node>,
    watcher: Watcher,
    manager: Manager,
    /// The picture that all others must equal, by its checksum.
    reference: Option<u64>,
    device: String,
}

/// Runs all numbers of applications, without and with the manager, and reports.
pub(crate) fn run(options: &Options) -> Result<(), Error> {
    let mut experiment = Experiment::start(options)?;
    let nodes = experiment.nodes.len();
    let counts = match &options.applications[..] {
        [] => (1..=nodes).collect(),
        given => given.to_vec(),
    };
    if let Some(many) = counts.iter().find(|count| !(1..=nodes).contains(*count)) {
        return Err(format!("{many} applications on {nodes} nodes").into());
    }
    let mut rows: Vec<Row> = counts.into_iter().map(Row::new).collect();
    for round in 1..=options.common.rounds {
        for row in &mut rows {
            eprint!("\rround {round}: {} applications   ", row.applications);
            let runs = experiment.without(row.applications)?;
            row.without.push(runs);
            let runs = experiment.with(row.applications)?;
            row.with.push(runs);
        }
    }
    eprint!("\r{:40}\r", "");
    let report = Report::new(&experiment, &rows);
    print!("{report}");
    options.common.write_json(&report)?;
    println!("plot: {}", report.draw(options.common.plots()?)?.display());
    Ok(())
}

impl Experiment<'_> {
    fn start(options: &Options) -> Result<Experiment<'_>, Error> {
        if options.native_vendors.is_none() {
            Slice::possible()?;
        }
        let build = Build::find()?;
        let manager = Manager::start()?;
        let vendors = options.native_vendors.clone();
        let count = match &vendors {
            Some(_) => Driver::native(vendors.clone(), options.common.limit())?.devices(),
            None => options.nodes.into(),
        };
        let nodes = (0..count).map(|node| Node::start(&build, &manager, options, node, count));
        let nodes = nodes.collect::<io::Result<Vec<_>>>()?;
        let watcher = Watcher::new(manager.address())?;
        watcher.see_devices(count)?;
        Ok(Experiment {
            options,
            client: build.vendors("causeway", "libcauseway.so")?,
            build,
            view: View {
                width: options.width,
                height: options.height,
                iterations: options.iterations,
            },
            nodes,
            watcher,
            manager,
            reference: None,
            device: String::new(),
        })
    }

    fn program(&self) -> io::Result<Command> {
        let mut command = self
            .build
            .own("mandelbrot-program", Some(&self.client), None)?;
        let view = self.view;
        command
            .args(["--width", &view.width.to_string()])
            .args(["--height", &view.height.to_string()])
            .args(["--iterations", &view.iterations.to_string()])
            .args(["--devices", "1"])
            // The manager must see each application as a program of its own.
            .env_remove("CAUSEWAY_MANAGER")
            .env_remove("CAUSEWAY_REQUEST");
        Ok(command)
    }

    /// Every application sees all nodes.
    fn without(&mut self, applications: usize) -> Result<Vec<Phases>, Error> {
        let servers: Vec<&str> = self
            .nodes
            .iter()
            .map(|node| node.plain.1.as_str())
            .collect();
        let servers = servers.join(",");
        let mut commands = Vec::new();
        for _ in 0..applications {
            let mut command = self.program()?;
            command.env("CAUSEWAY_SERVERS", &servers);
            commands.push(command);
        }
        self.outcomes(commands)
    }

    /// Every application requests one device.
    fn with(&mut self, applications: usize) -> Result<Vec<Phases>, Error> {
        let mut commands = Vec::new();
        for _ in 0..applications {
            let mut command = self.program()?;
            command
                .env("CAUSEWAY_MANAGER", self.manager.address())
                .env("CAUSEWAY_REQUEST", "1");
            commands.push(command);
        }
        let over = Arc::new(AtomicBool::new(false));
        let seen = std::thread::scope(|scope| {
            let looking = scope.spawn({
                let (over, watcher) = (Arc::clone(&over), &self.watcher);
                move || {
                    let mut seen = BTreeMap::new();
                    while !over.load(Ordering::Relaxed) {
                        watcher.add_leases(&mut seen)?;
                        std::thread::sleep(LOOK);
                    }
                    Ok::<_, io::Error>(seen)
                }
            });
            let runs = run_all(commands, self.options.common.limit());
            over.store(true, Ordering::Relaxed);
            let seen = looking.join().unwrap_or_else(|_| Err(lost()));
            Ok::<_, Error>((runs?, seen?))
        });
        let (outcomes, seen) = seen?;
        let mut devices: Vec<&String> = seen.values().flatten().collect();
        devices.sort_unstable();
        devices.dedup();
        if seen.len() != applications || devices.len() != applications {
            let text = format!("{applications} applications had these devices by lease: {seen:?}");
            return Err(text.into());
        }
        self.judged(outcomes)
    }

    fn outcomes(&mut self, commands: Vec<Command>) -> Result<Vec<Phases>, Error> {
        let outcomes = run_all(commands, self.options.common.limit())?;
        self.judged(outcomes)
    }

    /// The phases of runs that all drew the right picture, on one device.
    fn judged(&mut self, outcomes: Vec<Outcome>) -> Result<Vec<Phases>, Error> {
        for outcome in &outcomes {
            if outcome.devices != 1 {
                let devices = outcome.devices;
                return Err(format!("an application had {devices} devices").into());
            }
            match self.reference.replace(outcome.checksum) {
                Some(before) if before != outcome.checksum => {
                    return Err("an application has drawn another picture".into());
                }
                _ => {}
            }
            if let Some(name) = outcome.names.first() {
                self.device.clone_from(name);
            }
        }
        Ok(outcomes.into_iter().map(|outcome| outcome.phases).collect())
    }
}

impl Node {
    fn start(
        build: &Build,
        manager: &Manager,
        options: &Options,
        node: usize,
        count: usize,
    ) -> io::Result<Node> {
        let vendors = options.native_vendors.as_deref();
        let slice = match vendors {
            Some(_) => None,
            None => {
                let cores = std::thread::available_parallelism().map_or(1, usize::from);
                let cores = cores as f64 * FOR_DEVICES / count as f64;
                Some(Slice::new(&node.to_string(), cores)?)
            }
        };
        let start = |is_managed: bool| {
            let mut command = build.daemon_command("127.0.0.1:0", vendors)?;
            // Every application compiles, because one's cached kernels would help the others on a shared node.
            command.env("POCL_KERNEL_CACHE", "0");
            if vendors.is_some() {
                command.env("CUDA_VISIBLE_DEVICES", node.to_string());
            }
            if is_managed {
                let state = build.scratch().join(format!("node-{node}"));
                std::fs::create_dir_all(&state)?;
                command
                    .args(["--manager", manager.address()])
                    .env("STATE_DIRECTORY", state);
            }
            match &slice {
                Some(slice) => Build::listening(&mut slice.command(&command)),
                None => Build::listening(&mut command),
            }
        };
        Ok(Node {
            plain: start(false)?,
            _managed: start(true)?,
            _slice: slice,
        })
    }
}

/// Runs programs at the same time to their ends.
fn run_all(commands: Vec<Command>, limit: Duration) -> Result<Vec<Outcome>, Error> {
    let running: Vec<_> = commands
        .into_iter()
        .map(|mut command| std::thread::spawn(move || run_within(&mut command, limit)))
        .collect();
    // All threads are joined before an error is returned.
    let texts: Vec<_> = running.into_iter().map(|run| run.join()).collect();
    let mut outcomes = Vec::with_capacity(texts.len());
    for text in texts {
        let text = text.unwrap_or_else(|_| Err(lost()))?;
        let line = text.lines().last().unwrap_or_default();
        outcomes.push(serde_json::from_str(line)?);
    }
    Ok(outcomes)
}

fn lost() -> io::Error {
    io::Error::other("a thread has panicked")
}
