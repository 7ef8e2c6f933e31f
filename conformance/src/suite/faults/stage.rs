//! What a case of `faults` puts on: nodes of its own, and the ways to them.
//!
//! Everything runs as real processes. Invariant: what a [`Node`] started is gone when it is dropped,
//! and no wait here is unbounded.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use causeway_network::Host;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::Wrong;
use super::processes::{self, Process};
use super::running::Running;
use crate::SetupError;
use crate::daemon::BUILD_CACHE;
use crate::managed::Cluster;
use crate::options::Carrier;
use crate::places::{fake_driver, tool, vendors_of};
use crate::process::exit_of;
use crate::programs::Programs;
use crate::sides::{STEADY, Sides};

/// How long anything that must happen may take on a busy machine; what a fault may cost is checked
/// apart.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// How often something is looked at that cannot be waited for.
pub(super) const LOOK: Duration = Duration::from_millis(2);

/// How a managed node's device is offered.
const SHARES: &str = "[[shares]]\ndevice = \"0.0\"\ncount = 4\n";

/// The files that cases need.
pub(super) struct Stage {
    daemon: PathBuf,
    pub(super) client_vendors: PathBuf,
    pocl_vendors: PathBuf,
    fake_vendors: PathBuf,
    pub(super) program: PathBuf,
    /// The one that loads OpenCL by hand.
    pub(super) loader: PathBuf,
    /// All of them.
    pub(super) programs: Programs,
    directory: PathBuf,
    manager: Option<PathBuf>,
}

/// What a node's OpenCL is.
#[derive(Clone, Copy)]
pub(super) enum Driver {
    /// The system's: it compiles and computes.
    Native,
    /// The fake driver with these settings.
    Fake(&'static str),
}

impl Stage {
    /// `None` where the daemon is not ours to start and to break.
    pub(super) fn open(programs: &Programs, sides: &Sides) -> Result<Option<Self>, SetupError> {
        let Some(parts) = sides.parts() else {
            return Ok(None);
        };
        let directory = sides.fresh_directory()?;
        Ok(Some(Self {
            daemon: parts.daemon,
            client_vendors: parts.client_vendors,
            pocl_vendors: parts.native_vendors,
            fake_vendors: vendors_of(&fake_driver(), &directory)?,
            program: programs.path("faults")?,
            loader: programs.path("faults_dlclose")?,
            programs: programs.clone(),
            directory,
            manager: parts.manager,
        }))
    }

    /// A directory of its own for a case.
    pub(super) fn place(&self) -> Result<PathBuf, Wrong> {
        let place = tempfile::Builder::new().tempdir_in(&self.directory)?;
        Ok(place.keep())
    }

    /// `causeway run PROGRAM MODE` in a place, with a private daemon over the fake driver.
    pub(super) fn under_the_tool(
        &self,
        place: &Path,
        mode: &str,
        fake: &str,
    ) -> Result<Running, Wrong> {
        // Not ignoring SIGINT, as what a shell runs in the background does.
        let mut command = Command::new("env");
        command
            .arg("--default-signal=INT")
            .arg(tool())
            .args(["run", "--"])
            .arg(&self.program)
            .arg(mode)
            .env("CAUSEWAY_LIBRARY", self.library()?)
            .env("CAUSEWAY_DAEMON", &self.daemon)
            .env("FAKE_OPENCL_CONFIG", fake)
            .env("OCL_ICD_VENDORS", self.fake_vendors.join(""))
            .env("HOME", place)
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("CAUSEWAY_CONFIG")
            .env_remove("CAUSEWAY_SERVERS")
            .current_dir(place);
        Running::start(command)
    }

    fn library(&self) -> Result<String, Wrong> {
        let named = fs::read_to_string(self.client_vendors.join("causeway.icd"))?;
        Ok(named.trim().to_owned())
    }
}

/// How a program reaches its nodes.
pub(super) struct Way<'n> {
    /// `host:port`, in order.
    pub(super) servers: Vec<String>,
    /// By a lease of the manager's instead.
    cluster: Option<&'n Cluster>,
    grpc: bool,
    /// Where the program runs; `None` for this machine itself.
    pub(super) host: Option<&'n Host>,
}

impl<'n> Way<'n> {
    /// Straight to one address.
    pub(super) fn to(address: &str) -> Self {
        Self {
            servers: vec![address.to_owned()],
            cluster: None,
            grpc: false,
            host: None,
        }
    }

    /// What a program's `servers.toml` has to say, if it needs one.
    pub(super) fn settings(&self) -> Result<Option<String>, Wrong> {
        let carrier = match self.grpc {
            true => Carrier::Grpc,
            false => Carrier::Direct,
        };
        if let Some(cluster) = self.cluster {
            return Ok(Some(cluster.settings_of(1, carrier, 1)?));
        }
        let server = |address| {
            let carrier = carrier.name();
            format!("[[server]]\naddress = \"{address}\"\ncarrier = \"{carrier}\"\n")
        };
        Ok(self.grpc.then(|| self.servers.iter().map(server).collect()))
    }

    /// And to another.
    pub(super) fn and(mut self, address: &str) -> Self {
        self.servers.push(address.to_owned());
        self
    }

    /// With the commands over gRPC, if so.
    pub(super) fn grpc(mut self, grpc: bool) -> Self {
        self.grpc = grpc;
        self
    }

    /// From another host.
    pub(super) fn from(mut self, host: &'n Host) -> Self {
        self.host = Some(host);
        self
    }
}

/// A command, on a host of a network if one is named.
pub(super) fn command_on(host: Option<&Host>, program: &Path) -> Command {
    host.map_or_else(|| Command::new(program), |host| host.command(program))
}

/// A `causewayd` without spare workers, so that each worker is a session's.
pub(super) struct Node {
    child: Child,
    address: String,
    log: PathBuf,
    /// Who gives its devices out.
    cluster: Option<Cluster>,
}

impl Node {
    /// Starts one on a free port of loopback; with `--managed`, one that a manager of its own gives out.
    pub(super) fn start(stage: &Stage, driver: Driver) -> Result<Self, Wrong> {
        let cluster = stage.manager.as_deref().map(Cluster::start).transpose();
        Self::start_in(stage, driver, None, cluster?)
    }

    /// Starts one on a free port of a host's address, or of loopback, that whoever reaches it may use.
    pub(super) fn start_on(
        stage: &Stage,
        driver: Driver,
        host: Option<&Host>,
    ) -> Result<Self, Wrong> {
        Self::start_in(stage, driver, host, None)
    }

    fn start_in(
        stage: &Stage,
        driver: Driver,
        host: Option<&Host>,
        cluster: Option<Cluster>,
    ) -> Result<Self, Wrong> {
        let place = stage.place()?;
        let log = place.join("causewayd.log");
        let mut command = command_on(host, &stage.daemon);
        let address = host.map_or(Ipv4Addr::LOCALHOST, Host::address);
        command.args(["--listen", &format!("{address}:0"), "--spare-workers", "0"]);
        if host.is_some() {
            command.arg("--insecure");
        }
        if let Some(cluster) = &cluster {
            // Programs beside each other share its device.
            let shares = place.join("daemon.toml");
            fs::write(&shares, SHARES)?;
            let (arguments, (name, value)) = cluster.of_node(1);
            command.args(arguments).env(name, value);
            command.arg("--config").arg(shares);
        }
        match driver {
            Driver::Native => command.env("OCL_ICD_VENDORS", stage.pocl_vendors.join("")),
            Driver::Fake(settings) => command
                .env("OCL_ICD_VENDORS", stage.fake_vendors.join(""))
                .env("FAKE_OPENCL_CONFIG", settings),
        };
        let mut child = command
            .envs(STEADY)
            // Each run builds, and none meets what another has left.
            .env(BUILD_CACHE, "0")
            .env_remove("CAUSEWAY_SERVERS")
            .env_remove("CAUSEWAY_CONFIG")
            .current_dir(&place)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&log)?)
            .spawn()?;
        let lines = lines_of(child.stdout.take());
        let end = Instant::now() + PATIENCE;
        while let Ok(line) = lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            if let Some(address) = line.trim().strip_prefix("listening on ") {
                let address = address.to_owned();
                return Ok(Self {
                    child,
                    address,
                    log,
                    cluster,
                });
            }
        }
        let _ = child.kill();
        let _ = child.wait();
        let said = fs::read_to_string(&log).unwrap_or_default();
        Err(Wrong::new(format!("causewayd did not start:\n{said}")))
    }

    /// `host:port`.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// The way to it.
    pub(super) fn way(&self) -> Way<'_> {
        Way {
            cluster: self.cluster.as_ref(),
            ..Way::to(&self.address)
        }
    }

    /// Its workers.
    pub(super) fn workers(&self) -> Vec<Process> {
        processes::children_of(Pid::from_child(&self.child))
            .into_iter()
            .filter(|child| child.has_argument("--internal-worker"))
            .collect()
    }

    /// The worker that there is with these others.
    pub(super) fn worker_beside(&self, others: &[Process]) -> Result<Process, Wrong> {
        let mut workers = self.workers();
        workers.retain(|worker| !others.contains(worker));
        match workers[..] {
            [worker] => Ok(worker),
            _ => Err(Wrong::new(format!("{} workers, not one", workers.len()))),
        }
    }

    /// What it and its workers hold in memory, in bytes.
    pub(super) fn resident(&self) -> u64 {
        let own = Pid::from_child(&self.child);
        let family = processes::descendants_of(own);
        family.iter().map(Process::resident).sum()
    }

    /// Ends it without a word, as a crash or the lack of memory would.
    pub(super) fn kill(&mut self) -> Result<(), Wrong> {
        kill_process(Pid::from_child(&self.child), Signal::KILL)?;
        self.child.wait()?;
        Ok(())
    }

    /// That it still runs.
    pub(super) fn assert_alive(&mut self) -> Result<(), Wrong> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => Err(Wrong::new(format!(
                "causewayd ended with {}:\n{}",
                exit_of(status),
                fs::read_to_string(&self.log).unwrap_or_default()
            ))),
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let family = processes::descendants_of(Pid::from_child(&self.child));
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
        for process in family {
            process.kill();
        }
    }
}

/// The lines of a pipe, as they come; the reader ends with the pipe.
pub(super) fn lines_of(pipe: Option<impl std::io::Read + Send + 'static>) -> Receiver<String> {
    let (line, lines) = mpsc::channel();
    if let Some(pipe) = pipe {
        thread::spawn(move || {
            for text in BufReader::new(pipe).lines().map_while(Result::ok) {
                // Nobody listens any more: read on, so that the writer never meets a full pipe.
                let _ = line.send(text);
            }
        });
    }
    lines
}
