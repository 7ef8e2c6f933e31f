//! What a case of `faults` puts on: nodes of its own, and the program at work against them.
//!
//! Everything runs as real processes. Invariant: what a [`Node`] or a [`Running`] started is gone
//! when it is dropped, and no wait here is unbounded.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::Wrong;
use super::processes::{self, Process};
use crate::SetupError;
use crate::process::{Exit, exit_of};
use crate::programs::Programs;
use crate::sides::{STEADY, Sides, fake_driver, tool, vendors_of};

/// How long anything that must happen may take on a busy machine; what a fault may cost is checked
/// apart.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// How often something is looked at that cannot be waited for.
pub(super) const LOOK: Duration = Duration::from_millis(2);

/// The files that cases need.
pub(super) struct Stage {
    daemon: PathBuf,
    client_vendors: PathBuf,
    pocl_vendors: PathBuf,
    fake_vendors: PathBuf,
    program: PathBuf,
    directory: PathBuf,
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
            directory,
        }))
    }

    /// A directory of its own for a case.
    pub(super) fn place(&self) -> Result<PathBuf, Wrong> {
        let place = tempfile::Builder::new().tempdir_in(&self.directory)?;
        Ok(place.keep())
    }

    /// `causeway run PROGRAM MODE` with a private daemon over the fake driver.
    pub(super) fn under_the_tool(&self, mode: &str, fake: &str) -> Result<Running, Wrong> {
        let place = self.place()?;
        let mut command = Command::new(tool());
        command
            .args(["run", "--"])
            .arg(&self.program)
            .arg(mode)
            .env("CAUSEWAY_LIBRARY", self.library()?)
            .env("CAUSEWAY_DAEMON", &self.daemon)
            .env("FAKE_OPENCL_CONFIG", fake)
            .env("OCL_ICD_VENDORS", self.fake_vendors.join(""))
            .env("HOME", &place)
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("CAUSEWAY_CONFIG")
            .env_remove("CAUSEWAY_SERVERS")
            .current_dir(&place);
        Running::start(command)
    }

    fn library(&self) -> Result<String, Wrong> {
        let named = fs::read_to_string(self.client_vendors.join("causeway.icd"))?;
        Ok(named.trim().to_owned())
    }
}

/// How a program reaches its nodes.
pub(super) struct Way {
    /// `host:port`, in order.
    servers: Vec<String>,
    grpc: bool,
    namespace: Option<String>,
}

impl Way {
    /// Straight to one address.
    pub(super) fn to(address: &str) -> Self {
        Self {
            servers: vec![address.to_owned()],
            grpc: false,
            namespace: None,
        }
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

    /// From within a network namespace.
    pub(super) fn from_namespace(mut self, name: &str) -> Self {
        self.namespace = Some(name.to_owned());
        self
    }
}

/// A command, in a network namespace if one is named. `ip` becomes the program, so that its number
/// is the program's.
fn command_in(namespace: Option<&str>, program: &Path) -> Command {
    match namespace {
        None => Command::new(program),
        Some(name) => {
            let mut command = Command::new("ip");
            command.args(["netns", "exec", name]).arg(program);
            command
        }
    }
}

/// A `causewayd` without spare workers, so that each worker is a session's.
pub(super) struct Node {
    child: Child,
    address: String,
    log: PathBuf,
}

impl Node {
    /// Starts one on a free port of loopback.
    pub(super) fn start(stage: &Stage, driver: Driver) -> Result<Self, Wrong> {
        Self::start_at(stage, driver, "127.0.0.1:0", None)
    }

    /// Starts one that listens at an address, in a namespace if one is named.
    pub(super) fn start_at(
        stage: &Stage,
        driver: Driver,
        listen: &str,
        namespace: Option<&str>,
    ) -> Result<Self, Wrong> {
        let place = stage.place()?;
        let log = place.join("causewayd.log");
        let mut command = command_in(namespace, &stage.daemon);
        command.args(["--listen", listen, "--spare-workers", "0"]);
        if namespace.is_some() {
            command.arg("--insecure");
        }
        match driver {
            Driver::Native => command.env("OCL_ICD_VENDORS", stage.pocl_vendors.join("")),
            Driver::Fake(settings) => command
                .env("OCL_ICD_VENDORS", stage.fake_vendors.join(""))
                .env("FAKE_OPENCL_CONFIG", settings),
        };
        let mut child = command
            .envs(STEADY)
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
    pub(super) fn way(&self) -> Way {
        Way::to(&self.address)
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

/// How a program ended, and what it had said.
pub(super) struct Ended {
    /// How.
    pub(super) exit: Exit,
    /// The lines of its standard output.
    pub(super) said: Vec<String>,
    /// Its standard error.
    pub(super) warned: String,
}

impl Ended {
    /// The first call that failed: `clFinish -> CL_…`.
    pub(super) fn saw(&self) -> Result<&str, Wrong> {
        let saw = self.said.iter().find_map(|line| line.strip_prefix("saw "));
        match saw {
            Some(saw) if self.exit == Exit::Code(3) => Ok(saw),
            _ => Err(self.wrong("no call failed")),
        }
    }

    /// A complaint that shows the whole end.
    pub(super) fn wrong(&self, what: &str) -> Wrong {
        Wrong::new(format!(
            "{what}: {} after\n{}\n{}",
            self.exit,
            self.said.join("\n"),
            self.warned
        ))
    }

    /// That it ended by itself, having said this.
    pub(super) fn assert_said(&self, line: &str) -> Result<(), Wrong> {
        if self.exit == Exit::Code(0) && self.said.iter().any(|said| said == line) {
            return Ok(());
        }
        Err(self.wrong(&format!("it should have said \"{line}\"")))
    }

    /// That its library warned of this.
    pub(super) fn assert_warned(&self, text: &str) -> Result<(), Wrong> {
        if self.warned.contains(text) {
            return Ok(());
        }
        Err(self.wrong(&format!("no warning has \"{text}\"")))
    }
}

/// A program at work, in a process group of its own.
pub(super) struct Running {
    child: Child,
    lines: Receiver<String>,
    warnings: Receiver<String>,
    said: Vec<String>,
}

impl Running {
    /// Starts `programs/faults.c` in one of its modes.
    pub(super) fn program(stage: &Stage, mode: &str, way: &Way) -> Result<Self, Wrong> {
        let place = stage.place()?;
        let mut command = command_in(way.namespace.as_deref(), &stage.program);
        command
            .arg(mode)
            .env("OCL_ICD_VENDORS", stage.client_vendors.join(""))
            .env_remove("CAUSEWAY_SERVERS")
            .env_remove("CAUSEWAY_CONFIG")
            .current_dir(&place);
        if way.grpc {
            let mut text = String::new();
            for server in &way.servers {
                text += &format!("[[server]]\naddress = \"{server}\"\ncarrier = \"grpc\"\n");
            }
            let file = place.join("servers.toml");
            fs::write(&file, text)?;
            command.env("CAUSEWAY_CONFIG", file);
        } else {
            command.env("CAUSEWAY_SERVERS", way.servers.join(","));
        }
        Self::start(command)
    }

    fn start(mut command: Command) -> Result<Self, Wrong> {
        let mut child = command
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        Ok(Self {
            lines: lines_of(child.stdout.take()),
            warnings: lines_of(child.stderr.take()),
            child,
            said: Vec::new(),
        })
    }

    /// Its number; its process group's as well.
    pub(super) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Waits until it says this.
    pub(super) fn until(&mut self, marker: &str) -> Result<(), Wrong> {
        let end = Instant::now() + PATIENCE;
        while let Ok(line) = self.next(end) {
            let found = line == marker;
            self.said.push(line);
            if found {
                return Ok(());
            }
        }
        let _ = kill_process_group(self.pid(), Signal::KILL);
        let ended = self.end(PATIENCE)?;
        Err(ended.wrong(&format!("it never said \"{marker}\"")))
    }

    /// Waits for the next line that starts so, beyond those there are already.
    pub(super) fn until_next(&mut self, start: &str) -> Result<(), Wrong> {
        while let Ok(line) = self.lines.try_recv() {
            self.said.push(line);
        }
        let end = Instant::now() + PATIENCE;
        while let Ok(line) = self.next(end) {
            let found = line.starts_with(start);
            self.said.push(line);
            if found {
                return Ok(());
            }
        }
        Err(Wrong::new(format!("it said no further \"{start}\"")))
    }

    fn next(&self, end: Instant) -> Result<String, mpsc::RecvTimeoutError> {
        self.lines
            .recv_timeout(end.saturating_duration_since(Instant::now()))
    }

    /// Gives it a line to read.
    pub(super) fn go_on(&mut self) -> Result<(), Wrong> {
        if let Some(stdin) = &mut self.child.stdin {
            stdin.write_all(b"\n")?;
        }
        Ok(())
    }

    /// Waits for its end, after which no member of its group is left.
    pub(super) fn end(&mut self, limit: Duration) -> Result<Ended, Wrong> {
        drop(self.child.stdin.take());
        let end = Instant::now() + limit;
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break Some(status);
            }
            if Instant::now() > end {
                break None;
            }
            thread::sleep(LOOK);
        };
        let _ = kill_process_group(self.pid(), Signal::KILL);
        let exit = match status {
            Some(status) => exit_of(status),
            None => {
                let _ = self.child.wait();
                Exit::TimedOut(limit)
            }
        };
        let end = Instant::now() + Duration::from_secs(1);
        while let Ok(line) = self.next(end) {
            self.said.push(line);
        }
        let mut warned = String::new();
        let left = || end.saturating_duration_since(Instant::now());
        while let Ok(line) = self.warnings.recv_timeout(left()) {
            warned += &line;
            warned.push('\n');
        }
        let ended = Ended {
            exit,
            said: std::mem::take(&mut self.said),
            warned,
        };
        match exit {
            Exit::TimedOut(_) => Err(ended.wrong("it hangs")),
            _ => Ok(ended),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // After its end the number may be another's: only who has not been waited for is killed.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill_process_group(self.pid(), Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

/// A program that works beside a fault, and must not notice.
pub(super) struct Bystander(Running);

impl Bystander {
    /// Starts one and waits for its first result.
    pub(super) fn start(stage: &Stage, node: &Node) -> Result<Self, Wrong> {
        let mut program = Running::program(stage, "steady", &node.way())?;
        program.until("round 0")?;
        Ok(Self(program))
    }

    /// That it still computes, and ends well.
    pub(super) fn finish(mut self) -> Result<(), Wrong> {
        let wrong = |wrong: Wrong| Wrong::new(format!("the program beside it: {wrong}"));
        self.0.go_on()?;
        self.0.until("round 1").map_err(wrong)?;
        let ended = self.0.end(PATIENCE).map_err(wrong)?;
        ended.assert_said("done").map_err(wrong)
    }
}

/// The lines of a pipe, as they come; the reader ends with the pipe.
fn lines_of(pipe: Option<impl std::io::Read + Send + 'static>) -> Receiver<String> {
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
