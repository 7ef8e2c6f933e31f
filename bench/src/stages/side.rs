//! One side of a row: a probe on a platform, how it is started, and how it is asked to measure.
//!
//! No side uses a cache of an earlier run: PoCL's kernel cache is off, and daemons store their files in a folder
//! of the run.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::Command;

use super::Error;
use crate::probe::{Answer, Greeting, Request};
use crate::process::{children, kill};
use crate::rows::{Row, Task, Way};
use crate::setup::{Build, Process, set_vendors};

/// The client's variables. `0` keeps bulk on TCP, and `lz4` compresses it.
const SHARED_MEMORY: &str = "CAUSEWAY_SHARED_MEMORY";
const COMPRESSION: &str = "CAUSEWAY_COMPRESSION";

/// Separates a process from the caches of earlier runs.
pub(super) fn without_caches(command: &mut Command, build: &Build) {
    command
        .env("POCL_KERNEL_CACHE", "0")
        .env("POCL_CACHE_DIR", build.scratch().join("pocl"))
        .env("XDG_CACHE_HOME", build.scratch().join("cache"));
}

/// Sets how a client's bytes move.
pub(super) fn set_way(command: &mut Command, way: Way) {
    match way {
        Way::Own => command.env_remove(SHARED_MEMORY),
        Way::Tcp | Way::Lz4 => command.env(SHARED_MEMORY, "0"),
    };
    match way {
        Way::Own | Way::Tcp => command.env_remove(COMPRESSION),
        Way::Lz4 => command.env(COMPRESSION, "lz4"),
    };
}

/// A daemon over a driver, with the files by which a client finds it.
pub(crate) struct Node {
    pub(super) build: Build,
    pub(super) vendors: Option<PathBuf>,
    pub(super) ours: PathBuf,
    pub(super) config: PathBuf,
    pub(super) daemon: Process,
    /// The daemon's address.
    pub(super) address: String,
}

impl Node {
    /// Starts a daemon on loopback, over the drivers of `vendors` (`None`: the system's).
    pub(super) fn start(
        build: Build,
        vendors: Option<PathBuf>,
        carrier: &str,
    ) -> Result<Node, Error> {
        Node::with_cache(build, vendors, carrier, 0)
    }

    /// As [`Node::start`], with a build cache of this size in the run's folder.
    pub(super) fn with_cache(
        build: Build,
        vendors: Option<PathBuf>,
        carrier: &str,
        cache_bytes: u64,
    ) -> Result<Node, Error> {
        Node::with(build, vendors, carrier, "", |daemon| {
            daemon.env("CAUSEWAYD_BUILD_CACHE_SIZE", cache_bytes.to_string());
        })
    }

    /// As [`Node::start`]. `tell` adds to the daemon's command, and `keys` to the clients' `[[server]]`.
    pub(super) fn with(
        build: Build,
        vendors: Option<PathBuf>,
        carrier: &str,
        keys: &str,
        tell: impl FnOnce(&mut Command),
    ) -> Result<Node, Error> {
        let ours = build.vendors("causeway", "libcauseway.so")?;
        let mut command = build.daemon_command("127.0.0.1:0", vendors.as_deref())?;
        without_caches(&mut command, &build);
        tell(&mut command);
        let (daemon, address) = Build::listening(&mut command)?;
        let config = build.config("bench", &address, carrier, keys)?;
        Ok(Node {
            build,
            vendors,
            ours,
            config,
            daemon,
            address,
        })
    }

    /// The number of builds in the daemon's cache.
    pub(super) fn cached_builds(&self) -> usize {
        let folder = self.build.scratch().join("cache/causeway/builds");
        let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
        // Names of files that are being written, and of the folder where the daemon compiles.
        let others = ["new-", "scratch-"];
        let names = files.map(|file| file.file_name().to_string_lossy().into_owned());
        names
            .filter(|name| !others.iter().any(|other| name.starts_with(other)))
            .count()
    }

    /// A command for this program in another role, on the node's driver itself.
    pub(super) fn native(&self, role: &str) -> Result<Command, Error> {
        let mut command = self.build.own(role, self.vendors.as_deref(), None)?;
        without_caches(&mut command, &self.build);
        Ok(command)
    }

    /// A command for this program in another role, through Causeway.
    pub(super) fn causeway(&self, role: &str, way: Way) -> Result<Command, Error> {
        let mut command = self.build.own(role, Some(&self.ours), Some(&self.config))?;
        set_way(&mut command, way);
        Ok(command)
    }

    /// A command for this program in another role, on another platform of this machine.
    pub(super) fn peer(
        &self,
        role: &str,
        vendors: Option<&Path>,
        environment: &[(String, String)],
    ) -> Result<Command, Error> {
        let mut command = self.build.own(role, vendors, None)?;
        without_caches(&mut command, &self.build);
        set_vendors(&mut command, vendors);
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        Ok(command)
    }
}

/// A running probe.
pub(crate) struct Probed {
    process: Process,
    pub(super) greeting: Greeting,
}

impl Probed {
    /// Starts a probe and reads its greeting.
    pub(crate) fn start(command: &mut Command) -> Result<Probed, Error> {
        let mut process = Process::start(command)?;
        let greeting = serde_json::from_str(&process.line()?)?;
        Ok(Probed { process, greeting })
    }

    /// The process id.
    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Sends a request, without waiting for the answer.
    pub(super) fn begin(&mut self, task: Task, nonce: u64) -> Result<(), Error> {
        let request = Request { task, nonce };
        self.process.tell(&serde_json::to_string(&request)?)?;
        Ok(())
    }

    /// Reads the probe's next line.
    pub(super) fn line(&mut self) -> Result<String, Error> {
        Ok(self.process.line()?)
    }

    /// Lets the probe continue after a line.
    pub(super) fn go_on(&mut self) -> Result<(), Error> {
        Ok(self.process.tell("")?)
    }

    /// Reads the answer to the request.
    pub(super) fn end(&mut self) -> Result<Vec<u64>, Error> {
        let answer: Answer = serde_json::from_str(&self.process.line()?)?;
        match answer.error {
            Some(error) if answer.is_unavailable => Err(Error::Unavailable(error)),
            Some(error) => Err(Error::Call(error)),
            None => Ok(answer.values),
        }
    }

    /// Sends a request and reads the answer.
    pub(crate) fn ask(&mut self, task: Task, nonce: u64) -> Result<Vec<u64>, Error> {
        self.begin(task, nonce)?;
        self.end()
    }

    /// Kills the processes of this daemon's sessions. Fails unless the probe goes on: then the row has measured a session
    /// whose protection had ended.
    pub(super) fn survive(&mut self, daemon: u32) -> Result<(), Error> {
        for child in children(daemon)? {
            kill(child)?;
        }
        let read = self.ask(Task::ReadOnce, 0);
        read.map_err(|error| {
            Error::Call(format!(
                "the program did not outlive its session's process: {error}"
            ))
        })?;
        Ok(())
    }

    /// Measures a round of a row, in its unit.
    pub(super) fn round(&mut self, row: &Row, nonce: u64) -> Result<Vec<f64>, Error> {
        Ok(values(row, &self.ask(row.task, nonce)?))
    }
}

/// Converts nanoseconds to a row's unit.
pub(super) fn values(row: &Row, nanoseconds: &[u64]) -> Vec<f64> {
    nanoseconds.iter().map(|time| row.value(*time)).collect()
}
