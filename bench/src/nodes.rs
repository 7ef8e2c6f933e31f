//! Nodes on this machine: daemons on loopback ports, one for each device, and programs that use them.
//!
//! Invariant: no program outlives its limit, and no daemon the [`Nodes`].
#![forbid(unsafe_code)]

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;

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
}

/// Daemons. The first one is node 0.
pub(crate) struct Nodes {
    build: Build,
    driver: Driver,
    vendors: Option<PathBuf>,
    /// The client's library, which is looked for only if there are daemons.
    client: Option<PathBuf>,
    daemons: Vec<(Process, String)>,
    limit: Duration,
}

impl Nodes {
    /// Starts `count` daemons.
    pub(crate) fn start(driver: Driver, count: usize, limit: Duration) -> io::Result<Nodes> {
        let build = Build::find()?;
        let vendors = match &driver {
            Driver::Fake(_) => Some(build.vendors("fake", "libfake_opencl.so")?),
            Driver::Native { vendors, .. } => vendors.clone(),
        };
        let client = (count > 0)
            .then(|| build.vendors("causeway", "libcauseway.so"))
            .transpose()?;
        let mut daemons = Vec::with_capacity(count);
        for node in 0..count {
            let variables = match &driver {
                Driver::Fake(config) => ["FAKE_OPENCL_CONFIG", "CAUSEWAYD_SANDBOX_READ"]
                    .map(|name| (name, config.display().to_string()))
                    .to_vec(),
                Driver::Native { devices, .. } => vec![(
                    "CUDA_VISIBLE_DEVICES",
                    (node % (*devices).max(1)).to_string(),
                )],
            };
            daemons.push(build.daemon_with(vendors.as_deref(), &variables)?);
        }
        Ok(Nodes {
            build,
            driver,
            vendors,
            client,
            daemons,
            limit,
        })
    }

    /// Kills the last daemon. Its workers end with it.
    pub(crate) fn lose_last(&mut self) {
        self.daemons.pop();
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
        let servers: Vec<&str> = self.daemons[..count]
            .iter()
            .map(|(_, address)| address.as_str())
            .collect();
        command.env("CAUSEWAY_SERVERS", servers.join(","));
        Ok(command)
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
        Some(status) if status.success() => Ok(out),
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
