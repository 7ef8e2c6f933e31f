//! The `causewayd` of a run. It starts on a free loopback port when it is first needed, starts again when
//! it has died, and stops at the end.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use causeway_cutter::{Forwarder, Plan, Target};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};

use crate::cutting;
use crate::managed::Cluster;
use crate::process::exit_of;
use crate::sides::HOLD;
use crate::sides::STEADY;
use crate::{SetupError, io_error};

/// Time limit for the daemon to listen.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time limit for the daemon to end after a request: its `drain_limit`, and the longest `resume` of a program, which may be
/// away while its session is to be parked.
const ENDS_WITHIN: Duration = Duration::from_secs(180);

/// The variable for the size of the daemon's build cache. The runner sets it to 0, so that every run
/// builds, unless the runner's own environment sets it (with a directory, `CAUSEWAYD_BUILD_CACHE_DIR`).
pub(crate) const BUILD_CACHE: &str = "CAUSEWAYD_BUILD_CACHE_SIZE";
/// The variable for the daemon's `[sharing] together`.
const TOGETHER: &str = "CAUSEWAYD_TOGETHER";
/// The daemon's output when it is ready, followed by its address.
const READY: &str = "listening on ";

/// The module whose line in the daemon's log shows that the drivers were queried for devices,
/// with or without success.
const ASKED: &str = "supervisor::inventory: ";

/// A daemon that is started when needed.
pub(crate) struct Daemon {
    program: PathBuf,
    vendors: PathBuf,
    logs: PathBuf,
    /// Arguments besides the listening address.
    arguments: Vec<String>,
    /// Environment variables for the daemon and its drivers.
    variables: Vec<(String, String)>,
    /// The setting `together`, if it is set.
    together: Option<String>,
    /// How a forwarder in front of the daemon cuts connections; without a plan there is none.
    plan: Option<Plan>,
    state: Mutex<DaemonState>,
}

#[derive(Default)]
struct DaemonState {
    running: Option<DaemonProcess>,
    started: usize,
    /// It stays the same when the daemon starts again.
    forwarder: Option<Arc<Forwarder>>,
}

struct DaemonProcess {
    child: Child,
    address: String,
    log: PathBuf,
}

impl Daemon {
    /// Makes a daemon that will run `program` over the drivers in `vendors`.
    pub(crate) fn new(program: PathBuf, vendors: PathBuf, logs: PathBuf) -> Self {
        Self {
            program,
            vendors,
            logs,
            arguments: Vec::new(),
            variables: Vec::new(),
            together: None,
            plan: None,
            state: Mutex::default(),
        }
    }

    /// Makes a daemon of the same program over other drivers, with variables for these.
    pub(crate) fn over(
        &self,
        vendors: PathBuf,
        logs: PathBuf,
        variables: &[(&str, String)],
    ) -> Self {
        let mut daemon = Self::new(self.program.clone(), vendors, logs);
        daemon.together.clone_from(&self.together);
        daemon.plan = self.plan;
        daemon.variables = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect();
        daemon
    }

    /// Sets the daemon's `[sharing] together`.
    pub(crate) fn together(mut self, domain: Option<&str>) -> Self {
        self.together = domain.map(str::to_owned);
        self
    }

    /// Puts a forwarder in front of the daemon.
    pub(crate) fn cut(mut self, plan: Option<Plan>) -> Self {
        self.plan = plan;
        self
    }

    /// Keeps no worker ready, so that each worker has a session.
    pub(crate) fn without_spares(mut self) -> Self {
        let argument = ["--spare-workers".to_owned(), "0".to_owned()];
        self.arguments.extend(argument);
        self
    }

    /// Adds a configuration file.
    pub(crate) fn with_file(mut self, file: &Path) -> Self {
        let argument = ["--config".to_owned(), file.display().to_string()];
        self.arguments.extend(argument);
        self
    }

    /// Makes a daemon of the same program over the same drivers, with this configuration file.
    pub(crate) fn configured(&self, file: &Path, logs: PathBuf) -> Self {
        let mut daemon = Self::new(self.program.clone(), self.vendors.clone(), logs);
        daemon.variables = self.variables.clone();
        daemon.together.clone_from(&self.together);
        daemon.plan = self.plan;
        daemon.arguments = vec!["--config".to_owned(), file.display().to_string()];
        daemon
    }

    /// Makes a similar daemon for another node of the run, with one device.
    pub(crate) fn another(&self, number: usize) -> Self {
        let logs = self.logs.join(format!("node-{number}"));
        let mut daemon = Self::new(self.program.clone(), self.vendors.clone(), logs);
        daemon.variables = self.variables.clone();
        daemon.together.clone_from(&self.together);
        daemon.plan = self.plan;
        let mut set = |name: &str, value: String| daemon.variables.push((name.to_owned(), value));
        set("POCL_DEVICES", "pthread".to_owned());
        // Nodes do not share a disk. PoCL 3.1 fails to link if two processes use one cache at once.
        let cache = daemon.logs.with_extension("pocl-cache");
        set("POCL_CACHE_DIR", cache.display().to_string());
        daemon
    }

    /// Makes the daemon the node of this number in a cluster.
    pub(crate) fn joining(mut self, cluster: Option<&Cluster>, number: usize) -> Self {
        if let Some(cluster) = cluster {
            let (arguments, variable) = cluster.of_node(number);
            self.arguments.extend(arguments);
            self.variables.push(variable);
        }
        self
    }

    /// The program that is run.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// Whether a forwarder is in front of the daemon.
    pub(crate) fn is_cut(&self) -> bool {
        self.plan.is_some()
    }

    /// Returns the forwarder in front of the daemon, once that has started.
    pub(crate) fn forwarder(&self) -> Option<Arc<Forwarder>> {
        self.state.lock().forwarder.clone()
    }

    /// Returns the daemon's process, once it has started.
    pub(crate) fn pid(&self) -> Option<Pid> {
        let state = self.state.lock();
        let running = state.running.as_ref();
        running.map(|running| Pid::from_child(&running.child))
    }

    /// Returns the daemon's address for programs. Starts the daemon if it does not run.
    pub(crate) fn address(&self) -> Result<String, SetupError> {
        let mut state = self.state.lock();
        if let Some(running) = &mut state.running
            && matches!(running.child.try_wait(), Ok(None))
        {
            let own = running.address.clone();
            let forwarder = state.forwarder.as_ref();
            return Ok(forwarder.map_or(own, |of| of.address().to_string()));
        }
        state.started += 1;
        let log = self.logs.join(format!("causewayd-{}.log", state.started));
        if let (Some(plan), None) = (self.plan, &state.forwarder) {
            let forwarder = Forwarder::start(None).map_err(io_error("cannot forward"))?;
            forwarder.set_plan(plan);
            state.forwarder = Some(Arc::new(forwarder));
        }
        let public = state.forwarder.as_ref().map(|of| of.address().to_string());
        let running = self.start(log, public.as_deref())?;
        let address = running.address.clone();
        state.running = Some(running);
        if let (Some(forwarder), Ok(target)) = (&state.forwarder, address.parse()) {
            forwarder.set_target(Target::Tcp(target));
        }
        Ok(public.unwrap_or(address))
    }

    /// Ends the daemon as a service manager does, and starts it again.
    pub(crate) fn restart(&self) -> Result<(), SetupError> {
        if let Some(running) = &mut self.state.lock().running {
            stop(&mut running.child);
        }
        self.address().map(drop)
    }

    /// Kills the daemon, and starts it again. Its workers end with it.
    pub(crate) fn kill_and_restart(&self) -> Result<(), SetupError> {
        if let Some(running) = &mut self.state.lock().running {
            let _ = running.child.kill();
            let _ = running.child.wait();
        }
        self.address().map(drop)
    }

    /// Returns how the daemon died, if it has died since [`Self::address`]. Reports each death once.
    pub(crate) fn obituary(&self) -> Option<String> {
        let mut state = self.state.lock();
        let running = state.running.as_mut()?;
        let status = running.child.try_wait().ok().flatten()?;
        let log = running.log.display().to_string();
        state.running = None;
        Some(format!(
            "causewayd ended with {} (log: {log})",
            exit_of(status)
        ))
    }

    /// Starts the process. `public` is the address by which others reach it, if not its own.
    fn start(&self, log: PathBuf, public: Option<&str>) -> Result<DaemonProcess, SetupError> {
        fs::create_dir_all(&self.logs).map_err(io_error("cannot make the log directory"))?;
        let stderr = File::create(&log).map_err(io_error("cannot write the daemon's log"))?;
        let mut command = Command::new(&self.program);
        if std::env::var_os(BUILD_CACHE).is_none() {
            command.env(BUILD_CACHE, "0");
        }
        let mut child = command
            .args(["--listen", "127.0.0.1:0"])
            .args(&self.arguments)
            .args(public.iter().flat_map(|address| ["--advertise", address]))
            .env("OCL_ICD_VENDORS", &self.vendors)
            .envs(STEADY)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            // A program that holds its checkpoints goes on at the same node only.
            .envs(std::env::var_os(HOLD).map(|_| ("STATE_DIRECTORY", &self.logs)))
            .envs(self.together.iter().map(|domain| (TOGETHER, domain)))
            .env_remove("CAUSEWAY_SERVERS")
            .env_remove("CAUSEWAY_CONFIG")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .map_err(io_error(format!("cannot run {}", self.program.display())))?;
        let Some(stdout) = child.stdout.take() else {
            return Err(SetupError::Daemon("its output is lost".into()));
        };
        let (line, lines) = mpsc::channel();
        // The thread reads on after the first line, so that the daemon never blocks on a full pipe.
        thread::spawn(move || {
            for text in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = line.send(text);
            }
        });
        let end = Instant::now() + PATIENCE;
        while let Ok(text) = lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            if let Some(address) = text.trim().strip_prefix(READY) {
                wait_for_inventory(&log, end);
                return Ok(DaemonProcess {
                    address: address.to_owned(),
                    child,
                    log,
                });
            }
        }
        let _ = child.kill();
        let status = child.wait().map(exit_of);
        let said = fs::read_to_string(&log).unwrap_or_default();
        Err(SetupError::Daemon(match status {
            Ok(exit) => format!("no line `{READY}…`; {exit}\n{}", said.trim_end()),
            Err(error) => error.to_string(),
        }))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        if let Some(forwarder) = &state.forwarder {
            cutting::add(forwarder.counts());
        }
        if let Some(mut running) = state.running.take() {
            stop(&mut running.child);
        }
    }
}

/// Waits until the daemon has queried its drivers. A program waits only one second for a node's devices, and
/// on a busy machine drivers take longer to load. If the log never shows it, the program itself will fail.
fn wait_for_inventory(log: &Path, end: Instant) {
    let is_told = || fs::read_to_string(log).is_ok_and(|text| text.contains(ASKED));
    while !is_told() && Instant::now() < end {
        thread::sleep(Duration::from_millis(20));
    }
}

/// Ends a daemon as a service manager does: kills it if it does not end within a while.
pub(crate) fn stop(child: &mut Child) {
    let pid = Pid::from_child(child);
    let _ = kill_process(pid, Signal::TERM);
    let (ended, end) = mpsc::channel::<()>();
    let insistence = thread::spawn(move || {
        if end.recv_timeout(ENDS_WITHIN) == Err(mpsc::RecvTimeoutError::Timeout) {
            eprintln!("conformance: causewayd did not end on SIGTERM; killed");
            let _ = kill_process(pid, Signal::KILL);
        }
    });
    let _ = child.wait();
    drop(ended);
    let _ = insistence.join();
}
