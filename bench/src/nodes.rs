//! Nodes on this machine: daemons on loopback ports, one for each device, and programs that use them.
//!
//! Invariant: no program outlives its limit, and no daemon the [`Nodes`].
#![forbid(unsafe_code)]

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde::de::DeserializeOwned;

use crate::process::{children, kill, resident};
use crate::setup::{Build, Process, set_vendors};

/// The drivers of a node.
#[derive(Debug, Clone)]
pub(crate) enum Driver {
    /// A device of the fake driver, with this settings file.
    Fake(PathBuf),
    /// The drivers in a folder, or the system's. Of several NVIDIA devices each node sees one, in turn. Other
    /// drivers show all of their devices to every node.
    Native {
        /// The `.icd` folder.
        vendors: Option<PathBuf>,
        /// Number of devices of the first platform that has any.
        devices: usize,
    },
}

impl Driver {
    /// Native drivers, whose devices are counted.
    pub(crate) fn native(vendors: Option<PathBuf>, limit: Duration) -> io::Result<Driver> {
        let build = Build::find()?;
        let mut command = build.own("device-count", vendors.as_deref(), None)?;
        let text = run_within(&mut command, limit)?;
        let devices = text.trim().parse().map_err(io::Error::other)?;
        Ok(Driver::Native { vendors, devices })
    }

    /// The number of devices. The fake driver has any number.
    pub(crate) fn devices(&self) -> usize {
        match self {
            Driver::Fake(_) => usize::MAX,
            Driver::Native { devices, .. } => *devices,
        }
    }

    /// The `.icd` folder, if it is not the system's or the fake driver's.
    pub(crate) fn vendors(&self) -> Option<&Path> {
        match self {
            Driver::Fake(_) => None,
            Driver::Native { vendors, .. } => vendors.as_deref(),
        }
    }

    /// Has a node's daemon see what its node has.
    pub(crate) fn narrow(&self, command: &mut Command, node: usize) {
        match self {
            Driver::Fake(config) => {
                for name in ["FAKE_OPENCL_CONFIG", "CAUSEWAYD_SANDBOX_READ"] {
                    command.env(name, config);
                }
            }
            Driver::Native { devices, .. } => {
                let device = node % (*devices).max(1);
                command.env("CUDA_VISIBLE_DEVICES", device.to_string());
            }
        }
    }
}

/// How daemons are started.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    /// Environment variables of the daemons, and of programs that use the drivers themselves.
    pub(crate) variables: Vec<(&'static str, String)>,
    /// Whether daemons park their sessions when they are told to end.
    pub(crate) parks: bool,
    /// The file for the logs of all daemons, which then say more.
    pub(crate) log: Option<PathBuf>,
}

/// The level of logs that are shown.
pub(crate) const LOGGED: &str = "debug";

/// A daemon that runs, or that has been killed and may be started anew.
struct Daemon {
    process: Option<Process>,
    address: String,
}

/// Daemons. The first one is node 0.
pub(crate) struct Nodes {
    build: Build,
    driver: Driver,
    settings: Settings,
    vendors: Option<PathBuf>,
    /// The client's library, which is looked for only if there are daemons.
    client: Option<PathBuf>,
    daemons: Vec<Daemon>,
    limit: Duration,
}

impl Nodes {
    /// Starts `count` daemons.
    pub(crate) fn start(driver: Driver, count: usize, limit: Duration) -> io::Result<Nodes> {
        Nodes::start_with(driver, count, limit, Settings::default())
    }

    /// Starts `count` daemons with these settings.
    pub(crate) fn start_with(
        driver: Driver,
        count: usize,
        limit: Duration,
        settings: Settings,
    ) -> io::Result<Nodes> {
        let build = Build::find()?;
        let vendors = match &driver {
            Driver::Fake(_) => Some(build.vendors("fake", "libfake_opencl.so")?),
            Driver::Native { .. } => driver.vendors().map(Path::to_owned),
        };
        let client = (count > 0)
            .then(|| build.vendors("causeway", "libcauseway.so"))
            .transpose()?;
        let mut nodes = Nodes {
            build,
            driver,
            settings,
            vendors,
            client,
            daemons: Vec::with_capacity(count),
            limit,
        };
        for node in 0..count {
            let mut command = nodes.daemon_command(node, "127.0.0.1:0")?;
            let (process, address) = Build::listening(&mut command)?;
            let process = Some(process);
            nodes.daemons.push(Daemon { process, address });
        }
        Ok(nodes)
    }

    fn daemon_command(&self, node: usize, listen: &str) -> io::Result<Command> {
        let (build, vendors) = (&self.build, self.vendors.as_deref());
        let mut command = match &self.settings.log {
            None => build.daemon_command(listen, vendors)?,
            Some(file) => {
                let mut command = build.daemon_command_logging(listen, vendors, LOGGED)?;
                let mut options = std::fs::OpenOptions::new();
                command.stderr(options.append(true).create(true).open(file)?);
                command
            }
        };
        self.driver.narrow(&mut command, node);
        command.envs(self.settings.variables.iter().cloned());
        if self.settings.parks {
            let parked = self.scratch().join(format!("parked-{node}"));
            command.arg("--survival-dir").arg(parked);
        }
        Ok(command)
    }

    /// Kills the last daemon. Its workers end with it.
    pub(crate) fn lose_last(&mut self) {
        self.daemons.pop();
    }

    /// Sends a signal to a node's daemon, if it runs.
    pub(crate) fn signal(&self, node: usize, signal: Signal) -> io::Result<()> {
        let process = self.daemons[node].process.as_ref();
        process.map_or(Ok(()), |process| process.signal(signal))
    }

    /// Waits for the end of a node's daemon, which must have been told to end.
    pub(crate) fn wait_for_end(&mut self, node: usize) -> io::Result<()> {
        match self.daemons[node].process.take() {
            Some(mut process) => process.wait().map(|_| ()),
            None => Ok(()),
        }
    }

    /// Starts a node's daemon anew, at the same address. A daemon that still runs is killed first.
    pub(crate) fn restart(&mut self, node: usize) -> io::Result<()> {
        self.daemons[node].process = None;
        let address = self.daemons[node].address.clone();
        let mut command = self.daemon_command(node, &address)?;
        // Its first start has already shown the warnings.
        let (process, _) = Build::listening(command.stderr(Stdio::null()))?;
        self.daemons[node].process = Some(process);
        Ok(())
    }

    /// Kills the process of a node's session with the most memory. Returns whether there was one.
    pub(crate) fn kill_session(&self, node: usize) -> io::Result<bool> {
        let Some(daemon) = &self.daemons[node].process else {
            return Ok(false);
        };
        let sessions = children(daemon.id())?;
        let largest = sessions.into_iter().max_by_key(|of| resident(*of));
        largest.map_or(Ok(false), |session| kill(session).map(|()| true))
    }

    /// Kills the processes of a node's sessions, and those that wait for sessions. Its daemon goes on. Returns whether there
    /// were any.
    pub(crate) fn kill_sessions(&self, node: usize) -> io::Result<bool> {
        let Some(daemon) = &self.daemons[node].process else {
            return Ok(false);
        };
        let sessions = children(daemon.id())?;
        sessions.iter().try_for_each(|session| kill(*session))?;
        Ok(!sessions.is_empty())
    }

    /// The addresses of the first `count` nodes.
    pub(crate) fn addresses(&self, count: usize) -> impl Iterator<Item = &str> {
        let daemons = self.daemons[..count].iter();
        daemons.map(|daemon| daemon.address.as_str())
    }

    /// The number of devices that a program finds on the drivers themselves.
    pub(crate) fn devices(&self) -> usize {
        self.driver.devices()
    }

    /// A temporary folder of the run.
    pub(crate) fn scratch(&self) -> &Path {
        self.build.scratch()
    }

    /// A command for this program in another role, through Causeway over the first `count` nodes.
    pub(crate) fn program(&self, role: &str, count: usize) -> io::Result<Command> {
        let mut command = self.build.own(role, self.client.as_deref(), None)?;
        let servers: Vec<&str> = self.addresses(count).collect();
        command.env("CAUSEWAY_SERVERS", servers.join(","));
        Ok(command)
    }

    /// A command for another program, through Causeway over the first `count` nodes.
    /// Settings for re-execution that this process has are not passed on.
    pub(crate) fn through(&self, program: &Path, count: usize) -> Command {
        let mut command = Command::new(program);
        set_vendors(&mut command, self.client.as_deref());
        for name in ["CAUSEWAY_CONFIG", "CAUSEWAY_REEXECUTE"] {
            command.env_remove(name);
        }
        let servers: Vec<&str> = self.addresses(count).collect();
        command.env("CAUSEWAY_SERVERS", servers.join(","));
        command
    }

    /// A command for this program in another role, on `count` devices of the drivers themselves.
    pub(crate) fn native(&self, role: &str, count: usize) -> io::Result<Command> {
        let mut command = self.build.own(role, self.vendors.as_deref(), None)?;
        self.devices_for(&mut command, count)?;
        Ok(command)
    }

    /// A command for another program. Its processes find one device each, or with native drivers all.
    pub(crate) fn other(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        set_vendors(&mut command, self.vendors.as_deref());
        command.envs(self.settings.variables.iter().cloned());
        if let Driver::Fake(config) = &self.driver {
            command.env("FAKE_OPENCL_CONFIG", config);
        }
        command
    }

    // The fake driver shows as many devices as its settings say. Others show the devices that they have.
    fn devices_for(&self, command: &mut Command, count: usize) -> io::Result<()> {
        if let Driver::Fake(config) = &self.driver {
            let text = format!("devices = {count}\n{}", std::fs::read_to_string(config)?);
            let file = self.scratch().join(format!("fake-{count}.toml"));
            std::fs::write(&file, text)?;
            command.env("FAKE_OPENCL_CONFIG", file);
        }
        Ok(())
    }

    /// Runs a program to its end and reads the last line that it prints.
    pub(crate) fn outcome<T: DeserializeOwned>(&self, command: &mut Command) -> io::Result<T> {
        let text = run_within(command, self.limit)?;
        let line = text.lines().last().unwrap_or_default();
        serde_json::from_str(line)
            .map_err(|error| io::Error::other(format!("{error} in what it printed: {line}")))
    }
}

/// Runs a program to its end or the limit; its output.
pub(crate) fn run_within(command: &mut Command, limit: Duration) -> io::Result<String> {
    said_within(command, limit).map(|[out, _]| out)
}

/// Runs a program to its end or the limit; its output, and what it wrote to its standard error.
pub(crate) fn said_within(command: &mut Command, limit: Duration) -> io::Result<[String; 2]> {
    let end = Instant::now() + limit;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    // The output is read while the program runs, because a full pipe would stop it.
    let read = |stream: Option<Box<dyn io::Read + Send>>| {
        std::thread::spawn(move || {
            let mut text = Vec::new();
            if let Some(mut stream) = stream {
                let _ = stream.read_to_end(&mut text);
            }
            String::from_utf8_lossy(&text).into_owned()
        })
    };
    let out = read(child.stdout.take().map(|stream| Box::new(stream) as _));
    let errors = read(child.stderr.take().map(|stream| Box::new(stream) as _));
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if Instant::now() > end {
            child.kill()?;
            child.wait()?;
            break None;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let lost = |_| io::Error::other("a reader panicked");
    let (out, errors) = (out.join().map_err(lost)?, errors.join().map_err(lost)?);
    match status {
        Some(status) if status.success() => Ok([out, errors]),
        Some(status) => Err(io::Error::other(format!(
            "{} ended with {status}\n{}",
            command.get_program().display(),
            errors.trim_end()
        ))),
        None => Err(io::Error::other(format!(
            "{} took more than {} s\n{}",
            command.get_program().display(),
            limit.as_secs(),
            errors.trim_end()
        ))),
    }
}
