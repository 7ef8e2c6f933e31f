//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use causeway_cutter::Plan;

use crate::cutting;
use crate::managed::{self, Manner};
use crate::mode::Mode;

/// Runs programs natively and through Causeway and compares what they do.
#[derive(Debug, Parser)]
#[command(name = "conformance", version)]
pub(crate) struct Options {
    /// Suites to run, or `all`. `list` names them, `build` only builds the C programs, and `coverage`
    /// shows which entry points the cases of `api` call. `forward HOST:PORT` only forwards to a daemon, and cuts.
    /// `managers` lets device managers and their etcd fail under programs that lease devices, and judges the history.
    #[arg(required = true, value_name = "SUITE")]
    suites: Vec<String>,

    /// Run only cases whose name contains this text; if given more than once, all of the texts.
    #[arg(long)]
    pub(crate) filter: Vec<String>,

    /// Number of cases that run at once. Most cases wait: for a time to pass, for a program that hangs natively, or for
    /// the end of a fault.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) jobs: u16,

    /// Compare the native driver with itself: checks the cases, starts no daemon.
    #[arg(long = "self")]
    pub(crate) against_itself: bool,

    /// Use this running daemon (`host:port`) instead of starting one.
    #[arg(long, conflicts_with = "against_itself")]
    pub(crate) server: Option<String>,

    /// Directory of `.icd` files for the native side and for the daemon.
    #[arg(long, env = "CONFORMANCE_NATIVE_VENDORS", value_name = "DIR")]
    pub(crate) native_vendors: Option<PathBuf>,

    /// Directory of programs built by `build`, for machines without a compiler.
    #[arg(long, value_name = "DIR")]
    pub(crate) programs: Option<PathBuf>,

    /// The daemon to start instead of the one beside this runner.
    #[arg(long, value_name = "FILE")]
    pub(crate) daemon: Option<PathBuf>,

    /// The `libcauseway.so` to load instead of the one beside this runner.
    #[arg(long, value_name = "FILE")]
    pub(crate) library: Option<PathBuf>,

    /// Where the native driver fails a case, require only the specification's answers from Causeway (for
    /// drivers that the cases were not written on).
    #[arg(long)]
    pub(crate) against_spec: bool,

    /// Lease the devices from a device manager, with TLS everywhere.
    #[arg(long, conflicts_with_all = ["against_itself", "server"])]
    pub(crate) managed: bool,

    /// The device manager to start instead of the one beside this runner.
    #[arg(long, value_name = "FILE")]
    pub(crate) devmgr: Option<PathBuf>,

    /// With `--managed`: number of device managers of each set of nodes. Several share one member of etcd.
    #[arg(long, default_value_t = 1, requires = "managed", value_parser = clap::value_parser!(u8).range(1..=5))]
    managers: u8,

    /// Kill the device manager that leads at this interval, 20s at least, and start it again.
    #[arg(long, value_name = "TIME", value_parser = kill_interval, requires = "managers")]
    kill_leader: Option<Duration>,

    /// Run the suites at the same time, against the same daemon where they allow it.
    #[arg(long)]
    pub(crate) at_once: bool,

    /// Let the daemons serve the sessions of a domain in one process (`[sharing] together`).
    #[arg(long, env = "CAUSEWAYD_TOGETHER", value_name = "DOMAIN")]
    together: Option<String>,

    /// Time limit for a program in seconds (suites with long programs set their own).
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,

    /// Where the programs' devices are; if given more than once, the suites run once for each mode.
    #[arg(long = "mode", value_enum, value_name = "MODE")]
    pub(crate) modes: Vec<Mode>,

    /// Carrier of commands to the nodes (`faults` has cases of both in any case).
    #[arg(long, value_enum, default_value = "direct")]
    pub(crate) carrier: Carrier,

    /// Number of nodes in modes with several nodes.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(2..=16))]
    pub(crate) nodes: u8,

    /// Run every mode of every suite, and random suites at full length (hours).
    #[arg(long)]
    pub(crate) nightly: bool,

    /// First seed of the random suites.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// Number of clients of `managers` that lease devices at the same time.
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u16).range(1..=400))]
    pub(crate) clients: u16,

    /// How long `managers` lets processes, hosts, disks and clocks fail.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub(crate) minutes: u64,

    /// Number of random event graphs that `graphs` makes on the fake driver.
    #[arg(long)]
    graphs: Option<u32>,

    /// Number of random programs that `coherence` makes on the fake driver.
    #[arg(long)]
    rounds: Option<u32>,

    /// Forward the programs' connections to the nodes, and cut each after a random number of bytes of this
    /// mean, such as 4MiB. Shared memory is off.
    #[arg(long, value_name = "SIZE", value_parser = cutting::size, conflicts_with_all = ["against_itself", "server"])]
    cut: Option<u64>,

    /// Forward the programs' connections to the nodes, and cut all of them at this interval, such as 2s.
    #[arg(long, value_name = "TIME", value_parser = cutting::duration,
        conflicts_with_all = ["against_itself", "server", "cut"])]
    cut_every: Option<Duration>,

    /// Mean time between the faults of `survival`.
    #[arg(long, default_value = "2s", value_name = "TIME", value_parser = cutting::duration)]
    mtbf: Duration,

    /// Number of faults of `survival`, in all programs together.
    #[arg(long, default_value_t = 120)]
    faults: u32,

    /// Only these kinds of faults of `survival`. `--faults` is then the number of moves and re-executions that programs
    /// survive.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "KIND")]
    kinds: Vec<FaultKind>,

    /// In `survival`, heartbeats, silences and stops take a tenth of their usual time.
    #[arg(long)]
    tenth: bool,

    /// Print every note: where the native driver departs from the specification, and the
    /// figures of suites that measure.
    #[arg(long)]
    pub(crate) notes: bool,

    /// Output directory of `build`.
    #[arg(
        long,
        default_value = "target/conformance/programs",
        value_name = "DIR"
    )]
    out: PathBuf,
}

/// Parses the interval at which a leader is killed. Each leader gives the leases that it finds their whole time again.
/// So the lease of a program that could not release it never expires if leaders change more often.
fn kill_interval(text: &str) -> Result<Duration, String> {
    let interval = cutting::duration(text)?;
    if interval < managed::SHORTEST_LEAD {
        let least = managed::SHORTEST_LEAD;
        return Err(format!("a leader has to lead for {least:?} at least"));
    }
    Ok(interval)
}

/// The client's setting `carrier`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Carrier {
    /// Length-prefixed messages on a socket.
    Direct,
    /// A gRPC stream.
    Grpc,
}

impl Carrier {
    /// The name in `servers.toml`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Grpc => "grpc",
        }
    }
}

/// A kind of faults that `survival` may be limited to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum FaultKind {
    /// Daemons are started anew, or with `--managed` drained, and sessions move.
    Move,
    /// Workers are killed, and others execute the commands again.
    Kill,
}

/// Length of the random suites.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// The first of consecutive seeds.
    pub(crate) seed: u64,
    /// Number of event graphs on the fake driver. A native driver gets a fraction of it.
    pub(crate) graphs: u32,
    /// Number of programs on the fake driver. A native driver gets a fraction of it.
    pub(crate) rounds: u32,
}

/// The settings of `survival`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Survival {
    /// Mean time between faults.
    pub(crate) mtbf: Duration,
    /// Number of faults in all programs together.
    pub(crate) faults: u32,
    /// Whether heartbeats, silences and stops take a tenth of their usual time.
    pub(crate) tenth: bool,
    /// Whether sessions move and whether workers are killed, if nothing else happens.
    pub(crate) only: Option<(bool, bool)>,
}

/// The request on the command line.
pub(crate) enum Request {
    /// Build the C programs into this directory.
    Build(PathBuf),
    /// List the suites.
    List,
    /// Show which entry points the cases call.
    Coverage,
    /// Forward to the daemon at this address until the runner is killed.
    Forward(String),
    /// Let device managers fail under programs that lease devices.
    Managers,
    /// Run these suites.
    Suites(Vec<String>),
}

impl Options {
    /// Returns the command, as distinguished from suite names.
    pub(crate) fn request(&self) -> Request {
        match self.suites[0].as_str() {
            "build" => Request::Build(self.out.clone()),
            "list" => Request::List,
            "coverage" => Request::Coverage,
            "managers" => Request::Managers,
            "forward" => Request::Forward(self.suites.get(1).cloned().unwrap_or_default()),
            _ => Request::Suites(self.suites.clone()),
        }
    }

    /// Returns how the nodes are managed by this program.
    pub(crate) fn manner(&self, program: PathBuf) -> Manner {
        Manner {
            program,
            managers: self.managers.into(),
            kill_leader: self.kill_leader,
        }
    }

    /// Returns the length of the random suites.
    pub(crate) fn effort(&self) -> Effort {
        let most = |everyday, nightly| if self.nightly { nightly } else { everyday };
        Effort {
            seed: self.seed,
            graphs: self.graphs.unwrap_or(most(400, 10_000)),
            rounds: self.rounds.unwrap_or(most(120, 5_000)),
        }
    }

    /// Returns the plan by which forwarders cut connections, if the programs' connections are cut.
    pub(crate) fn plan(&self) -> Option<Plan> {
        cutting::plan(self.cut, self.cut_every, self.seed)
    }

    /// Returns the settings of `survival`.
    pub(crate) fn survival(&self) -> Survival {
        Survival {
            mtbf: self.mtbf,
            faults: self.faults,
            tenth: self.tenth,
            only: (!self.kinds.is_empty()).then(|| {
                let has = |kind| self.kinds.contains(&kind);
                (has(FaultKind::Move), has(FaultKind::Kill))
            }),
        }
    }

    /// Returns the daemons' setting `together`, if their sessions have hosts.
    pub(crate) fn together(&self) -> Option<&str> {
        self.together.as_deref().filter(|domain| *domain != "none")
    }

    /// Returns the time limit of an ordinary program.
    pub(crate) fn limit(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}
