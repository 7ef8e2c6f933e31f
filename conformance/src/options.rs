//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use crate::mode::Mode;

/// Runs programs natively and through Causeway and compares what they do.
#[derive(Debug, Parser)]
#[command(name = "conformance", version)]
pub(crate) struct Options {
    /// Suites to run, or `all`; `list` names them; `build` only builds the C programs;
    /// `coverage` tells which entry points the cases of `api` call.
    #[arg(required = true, value_name = "SUITE")]
    suites: Vec<String>,

    /// Run only cases whose name contains this (given more than once: all of them).
    #[arg(long)]
    pub(crate) filter: Vec<String>,

    /// How many cases run at once.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
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

    /// Directory of programs built by `build`, where there is no compiler.
    #[arg(long, value_name = "DIR")]
    pub(crate) programs: Option<PathBuf>,

    /// The daemon to start instead of the one beside this runner.
    #[arg(long, value_name = "FILE")]
    pub(crate) daemon: Option<PathBuf>,

    /// The `libcauseway.so` to load instead of the one beside this runner.
    #[arg(long, value_name = "FILE")]
    pub(crate) library: Option<PathBuf>,

    /// Where the native driver fails a case, ask Causeway for the specification's
    /// answers alone (for drivers that the cases were not written on).
    #[arg(long)]
    pub(crate) against_spec: bool,

    /// Give the nodes' devices out by a device manager, everything with TLS (one case at a time).
    #[arg(long, conflicts_with_all = ["against_itself", "server"])]
    pub(crate) managed: bool,

    /// The device manager to start instead of the one beside this runner.
    #[arg(long, value_name = "FILE")]
    pub(crate) devmgr: Option<PathBuf>,

    /// Seconds after which a program counts as hanging (suites of long programs
    /// set their own limit).
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,

    /// Where the programs' devices lie (given more than once: one run of the suites for each).
    #[arg(long = "mode", value_enum, value_name = "MODE")]
    pub(crate) modes: Vec<Mode>,

    /// What carries commands to the nodes (`faults` has cases of both in any case).
    #[arg(long, value_enum, default_value = "direct")]
    pub(crate) carrier: Carrier,

    /// How many nodes the modes of several nodes have.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(2..=16))]
    pub(crate) nodes: u8,

    /// Every mode of every suite, and random suites at full length (hours).
    #[arg(long)]
    pub(crate) nightly: bool,

    /// Where the numbers of the random suites begin.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// How many random event graphs `graphs` makes on the fake driver.
    #[arg(long)]
    graphs: Option<u32>,

    /// How many random programs `coherence` makes on the fake driver.
    #[arg(long)]
    rounds: Option<u32>,

    /// Print every note: where the native driver departs from the specification,
    /// and the figures of suites that measure.
    #[arg(long)]
    pub(crate) notes: bool,

    /// Where `build` puts the programs.
    #[arg(
        long,
        default_value = "target/conformance/programs",
        value_name = "DIR"
    )]
    out: PathBuf,
}

/// The client's setting of this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Carrier {
    /// Length-prefixed messages on a socket.
    Direct,
    /// A gRPC stream.
    Grpc,
}

impl Carrier {
    /// As `servers.toml` calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Grpc => "grpc",
        }
    }
}

/// How much random suites do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// The first of consecutive seeds.
    pub(crate) seed: u64,
    /// Event graphs over the fake driver; over a native one a share of it.
    pub(crate) graphs: u32,
    /// Programs over the fake driver; over a native one a share of it.
    pub(crate) rounds: u32,
}

/// What the command line asks for.
pub(crate) enum Request {
    /// Build the C programs into this directory.
    Build(PathBuf),
    /// Name the suites.
    List,
    /// Tell what the cases call.
    Coverage,
    /// Run these.
    Suites(Vec<String>),
}

impl Options {
    /// The command, told apart from suite names.
    pub(crate) fn request(&self) -> Request {
        match self.suites[0].as_str() {
            "build" => Request::Build(self.out.clone()),
            "list" => Request::List,
            "coverage" => Request::Coverage,
            _ => Request::Suites(self.suites.clone()),
        }
    }

    /// How much random suites do.
    pub(crate) fn effort(&self) -> Effort {
        let most = |everyday, nightly| if self.nightly { nightly } else { everyday };
        Effort {
            seed: self.seed,
            graphs: self.graphs.unwrap_or(most(400, 10_000)),
            rounds: self.rounds.unwrap_or(most(120, 5_000)),
        }
    }

    /// How long one ordinary program may run.
    pub(crate) fn limit(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}
