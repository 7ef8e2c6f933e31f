//! The environment of a case of `faults`: nodes of its own, and the routes to them.
//!
//! All parts are real processes. Invariant: a dropped [`Node`] has ended everything that it started, and
//! no wait here is unbounded.

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
use super::running::RunningProgram;
use crate::SetupError;
use crate::daemon::{BUILD_CACHE, stop};
use crate::managed::{Cluster, Manner};
use crate::options::Carrier;
use crate::places::{fake_driver, tool, vendors_of};
use crate::process::exit_of;
use crate::programs::Programs;
use crate::sides::{STEADY, Sides};

/// Time limit for anything that must happen, on a busy machine. The cost of a fault is checked separately.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Polling interval for conditions that cannot be waited for.
pub(super) const LOOK: Duration = Duration::from_millis(2);

/// The shares of a managed node's device.
const SHARES: &str = "[[shares]]\ndevice = \"0.0\"\ncount = 4\n";

/// Hosts without sessions end soon, because cases wait for the ends of processes.
const HOST_IDLE: &str = "host_idle = \"1s\"\n";

/// The files that cases need.
pub(super) struct Stage {
    daemon: PathBuf,
    pub(super) client_vendors: PathBuf,
    pocl_vendors: PathBuf,
    fake_vendors: PathBuf,
    pub(super) program: PathBuf,
    /// The program that loads OpenCL by hand.
    pub(super) loader: PathBuf,
    /// All programs.
    pub(super) programs: Programs,
    directory: PathBuf,
    manager: Option<Manner>,
    /// The nodes' setting `together`, if their sessions have hosts.
    together: Option<String>,
}

/// The OpenCL driver of a node.
#[derive(Clone, Copy)]
pub(super) enum Driver {
    /// The system's driver, which compiles and computes.
    Native,
    /// The fake driver with these settings.
    Fake(&'static str),
}

impl Stage {
    /// Opens the stage. `None` if the daemon is given by `--server`, because it must not be broken.
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
            together: sides.together().map(str::to_owned),
        }))
    }

    /// Makes a directory for a case.
    pub(super) fn place(&self) -> Result<PathBuf, Wrong> {
        let place = tempfile::Builder::new().tempdir_in(&self.directory)?;
        Ok(place.keep())
    }

    /// Runs `causeway run PROGRAM MODE` in a directory, with a private daemon over the fake driver.
    pub(super) fn under_the_tool(
        &self,
        place: &Path,
        mode: &str,
        fake: &str,
    ) -> Result<RunningProgram, Wrong> {
        // Resets SIGINT, which a background process of a shell ignores.
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
            .env("CAUSEWAY_RESUME", "0s")
            .current_dir(place);
        RunningProgram::start(command)
    }

    fn library(&self) -> Result<String, Wrong> {
        let named = fs::read_to_string(self.client_vendors.join("causeway.icd"))?;
        Ok(named.trim().to_owned())
    }
}

/// The route of a program to its nodes.
pub(super) struct Way<'n> {
    /// The addresses `host:port`, in order.
    pub(super) servers: Vec<String>,
    /// The manager that leases the devices instead of `servers`.
    cluster: Option<&'n Cluster>,
    grpc: bool,
    /// How long the program waits for a node that is away. `None` is the default of the library.
    resume: Option<&'static str>,
    /// How long the node keeps a silent session. `None` is the default of the library.
    keep: Option<&'static str>,
    /// Whether the program's commands are executed again if the node's process dies.
    reexecutes: bool,
    /// The host on which the program runs; `None` for this machine itself.
    pub(super) host: Option<&'n Host>,
}

impl<'n> Way<'n> {
    /// Makes a route to one address.
    pub(super) fn to(address: &str) -> Self {
        Self {
            servers: vec![address.to_owned()],
            cluster: None,
            grpc: false,
            resume: Some("0s"),
            keep: None,
            reexecutes: false,
            host: None,
        }
    }

    /// Returns the program's `servers.toml`, if it needs one.
    pub(super) fn settings(&self) -> Result<Option<String>, Wrong> {
        let carrier = match self.grpc {
            true => Carrier::Grpc,
            false => Carrier::Direct,
        };
        if let Some(cluster) = self.cluster {
            return Ok(Some(cluster.settings_of(1, carrier, 1)?));
        }
        let keep = self.keep.map(|keep| format!("keep = \"{keep}\"\n"));
        let keep = keep.unwrap_or_default();
        let server = |address| {
            let carrier = carrier.name();
            format!("[[server]]\naddress = \"{address}\"\ncarrier = \"{carrier}\"\n{keep}")
        };
        let needs_file = self.grpc || self.keep.is_some();
        Ok(needs_file.then(|| self.servers.iter().map(server).collect()))
    }

    /// Adds another address.
    pub(super) fn and(mut self, address: &str) -> Self {
        self.servers.push(address.to_owned());
        self
    }

    /// Selects gRPC as the carrier of commands, or not.
    pub(super) fn grpc(mut self, grpc: bool) -> Self {
        self.grpc = grpc;
        self
    }

    /// Lets the program wait for nodes that are away, as long as the library does by default.
    pub(super) fn resuming(mut self) -> Self {
        self.resume = None;
        self
    }

    /// Lets the program wait for this time for nodes that are away.
    pub(super) fn resuming_for(mut self, resume: &'static str) -> Self {
        self.resume = Some(resume);
        self
    }

    /// Lets the program's commands be executed again if the node's process dies.
    pub(super) fn reexecuting(mut self) -> Self {
        self.reexecutes = true;
        self.resuming()
    }

    /// Asks the node to keep a silent session for this time.
    pub(super) fn keeping(mut self, keep: &'static str) -> Self {
        self.keep = Some(keep);
        self
    }

    /// Sets the client's variables.
    pub(super) fn set_variables(&self, command: &mut Command) {
        match self.resume {
            Some(time) => command.env("CAUSEWAY_RESUME", time),
            None => command.env_remove("CAUSEWAY_RESUME"),
        };
        if self.reexecutes {
            command.env("CAUSEWAY_REEXECUTE", "1");
        }
    }

    /// Runs the program on another host.
    pub(super) fn from(mut self, host: &'n Host) -> Self {
        self.host = Some(host);
        self
    }
}

/// Makes a command, on a host of a network if one is given.
pub(super) fn command_on(host: Option<&Host>, program: &Path) -> Command {
    host.map_or_else(|| Command::new(program), |host| host.command(program))
}

/// A `causewayd` without spare workers, so that each worker has a session.
pub(super) struct Node {
    child: Child,
    address: String,
    /// How the daemon is started.
    command: Command,
    /// The daemon's settings, and those beside its address.
    file: PathBuf,
    settings: String,
    log: PathBuf,
    /// The device manager that leases the node's devices.
    cluster: Option<Cluster>,
    has_hosts: bool,
}

impl Node {
    /// Starts a node on a free loopback port. With `--managed`, it has a device manager of its own.
    pub(super) fn start(stage: &Stage, driver: Driver) -> Result<Self, Wrong> {
        let cluster = stage.manager.as_ref().map(Cluster::start).transpose();
        Self::start_in(stage, driver, None, cluster?, "")
    }

    /// Starts a node on a free port of a host's address, or of loopback. Everyone who reaches it may use it.
    pub(super) fn start_on(
        stage: &Stage,
        driver: Driver,
        host: Option<&Host>,
    ) -> Result<Self, Wrong> {
        Self::start_in(stage, driver, host, None, "")
    }

    /// Starts a node without a manager on a free loopback port, with these tables of `daemon.toml`.
    pub(super) fn start_with(stage: &Stage, driver: Driver, tables: &str) -> Result<Self, Wrong> {
        Self::start_in(stage, driver, None, None, tables)
    }

    fn start_in(
        stage: &Stage,
        driver: Driver,
        host: Option<&Host>,
        cluster: Option<Cluster>,
        tables: &str,
    ) -> Result<Self, Wrong> {
        let place = stage.place()?;
        let log = place.join("causewayd.log");
        let mut command = command_on(host, &stage.daemon);
        command.args(["--spare-workers", "0"]);
        if host.is_some() {
            command.arg("--insecure");
        }
        let mut settings = tables.to_owned();
        if let Some(together) = &stage.together {
            settings += &format!("[sharing]\ntogether = \"{together}\"\n{HOST_IDLE}");
        }
        if let Some(cluster) = &cluster {
            // Concurrent programs share the node's device.
            settings += SHARES;
            let (arguments, (name, value)) = cluster.of_node(1);
            command.args(arguments).env(name, value);
        }
        let file = place.join("daemon.toml");
        command.arg("--config").arg(&file);
        match driver {
            Driver::Native => command.env("OCL_ICD_VENDORS", stage.pocl_vendors.join("")),
            Driver::Fake(settings) => command
                .env("OCL_ICD_VENDORS", stage.fake_vendors.join(""))
                .env("FAKE_OPENCL_CONFIG", settings),
        };
        command
            .envs(STEADY)
            // Each run builds, without results of other runs.
            .env(BUILD_CACHE, "0")
            .env_remove("CAUSEWAY_SERVERS")
            .env_remove("CAUSEWAY_CONFIG")
            .current_dir(&place)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&log)?);
        let address = host.map_or(Ipv4Addr::LOCALHOST, Host::address);
        write_settings(&file, &format!("{address}:0"), &settings)?;
        let (child, address) = listening(&mut command, &log)?;
        Ok(Self {
            child,
            address,
            command,
            file,
            settings,
            log,
            cluster,
            has_hosts: stage.together.is_some(),
        })
    }

    /// Ends the daemon as a service manager does, and starts it again at the same address.
    pub(super) fn restart(&mut self) -> Result<(), Wrong> {
        stop(&mut self.child);
        write_settings(&self.file, &self.address, &self.settings)?;
        (self.child, self.address) = listening(&mut self.command, &self.log)?;
        Ok(())
    }

    /// The node's address, `host:port`.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// The route to the node.
    pub(super) fn way(&self) -> Way<'_> {
        Way {
            cluster: self.cluster.as_ref(),
            ..Way::to(&self.address)
        }
    }

    /// The node's workers.
    pub(super) fn workers(&self) -> Vec<Process> {
        processes::children_of(Pid::from_child(&self.child))
            .into_iter()
            .filter(|child| child.has_argument("--internal-worker"))
            .collect()
    }

    /// Whether the node's sessions have a host, so that the end of its process ends all of them.
    pub(super) fn has_hosts(&self) -> bool {
        self.has_hosts
    }

    /// Returns the only worker besides these others, or the host of all sessions.
    pub(super) fn worker_beside(&self, others: &[Process]) -> Result<Process, Wrong> {
        let mut workers = self.workers();
        workers.retain(|worker| self.has_hosts || !others.contains(worker));
        match workers[..] {
            [worker] => Ok(worker),
            _ => Err(Wrong::new(format!("{} workers, not one", workers.len()))),
        }
    }

    /// Resident memory of the node and its workers, in bytes.
    pub(super) fn resident(&self) -> u64 {
        let own = Pid::from_child(&self.child);
        let family = processes::descendants_of(own);
        family.iter().map(Process::resident).sum()
    }

    /// Kills the node without warning, as a crash or a lack of memory would.
    pub(super) fn kill(&mut self) -> Result<(), Wrong> {
        kill_process(Pid::from_child(&self.child), Signal::KILL)?;
        self.child.wait()?;
        Ok(())
    }

    /// Checks that the node still runs.
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

fn write_settings(file: &Path, address: &str, tables: &str) -> Result<(), Wrong> {
    fs::write(file, format!("listen = [\"{address}\"]\n{tables}"))?;
    Ok(())
}

/// Starts a daemon, and waits until it listens. Returns its address too.
fn listening(command: &mut Command, log: &Path) -> Result<(Child, String), Wrong> {
    let mut child = command.spawn()?;
    let lines = lines_of(child.stdout.take());
    let end = Instant::now() + PATIENCE;
    while let Ok(line) = lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
        if let Some(address) = line.trim().strip_prefix("listening on ") {
            return Ok((child, address.to_owned()));
        }
    }
    let _ = child.kill();
    let _ = child.wait();
    let said = fs::read_to_string(log).unwrap_or_default();
    Err(Wrong::new(format!("causewayd did not start:\n{said}")))
}

/// Returns the lines of a pipe as they come. The reader ends with the pipe.
pub(super) fn lines_of(pipe: Option<impl std::io::Read + Send + 'static>) -> Receiver<String> {
    let (line, lines) = mpsc::channel();
    if let Some(pipe) = pipe {
        thread::spawn(move || {
            for text in BufReader::new(pipe).lines().map_while(Result::ok) {
                // Read on without a receiver, so that the writer never blocks on a full pipe.
                let _ = line.send(text);
            }
        });
    }
    lines
}
