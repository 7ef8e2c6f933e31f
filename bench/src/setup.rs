//! The processes of a run: daemon, probes, socket peer. All end with the run.
//!
//! Invariant: no wait for an answer is longer than [`ANSWER_LIMIT`].

use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Timeout for a process's next line.
const ANSWER_LIMIT: Duration = Duration::from_secs(120);

/// What comes next from a process.
#[derive(Debug)]
pub(crate) enum Next {
    /// A line of its output.
    Line(String),
    /// Its end.
    End(ExitStatus),
    /// Nothing until the time given.
    Nothing,
}

/// A child process, killed on drop, whose output is read line by line.
pub(crate) struct Process {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<io::Result<String>>,
}

impl Process {
    /// Starts a command with piped input and output.
    pub(crate) fn start(command: &mut Command) -> io::Result<Process> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let output = output.ok_or(io::ErrorKind::BrokenPipe)?;
        let (sender, lines) = channel();
        // The thread ends with the child, or when the receiver is dropped.
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Process {
            child,
            input,
            lines,
        })
    }

    /// The process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Reads the process's next line.
    pub(crate) fn line(&mut self) -> io::Result<String> {
        use RecvTimeoutError::{Disconnected, Timeout};
        self.lines
            .recv_timeout(ANSWER_LIMIT)
            .unwrap_or_else(|error| {
                Err(match error {
                    Timeout => {
                        let seconds = ANSWER_LIMIT.as_secs();
                        io::Error::other(format!("a process has said nothing for {seconds} s"))
                    }
                    Disconnected => io::Error::other("a process has ended too early"),
                })
            })
    }

    /// Waits for the process's next line or its end, until `until` at most.
    pub(crate) fn next_before(&mut self, until: Instant) -> io::Result<Next> {
        match self
            .lines
            .recv_timeout(until.saturating_duration_since(Instant::now()))
        {
            Ok(line) => line.map(Next::Line),
            Err(RecvTimeoutError::Timeout) => Ok(Next::Nothing),
            Err(RecvTimeoutError::Disconnected) => self.wait().map(Next::End),
        }
    }

    /// Waits for the end of the process.
    pub(crate) fn wait(&mut self) -> io::Result<ExitStatus> {
        let end = Instant::now() + ANSWER_LIMIT;
        while Instant::now() < end {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let seconds = ANSWER_LIMIT.as_secs();
        Err(io::Error::other(format!(
            "a process has not ended within {seconds} s"
        )))
    }

    /// Writes a line to the process.
    pub(crate) fn tell(&mut self, line: &str) -> io::Result<()> {
        let input = self.input.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        writeln!(input, "{line}")
    }

    /// Sends a signal to the process.
    pub(crate) fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    /// The address from a line `listening on ADDR:PORT`.
    pub(crate) fn address(&mut self) -> io::Result<String> {
        self.said_address("listening on ")
    }

    /// The address from a line that begins with `what`.
    pub(crate) fn said_address(&mut self, what: &str) -> io::Result<String> {
        let line = self.line()?;
        let address = line.strip_prefix(what).map(str::to_owned);
        address.ok_or_else(|| io::Error::other(format!("an address was expected, not: {line}")))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The folder with the parts of this build, which is the benchmark's own.
pub(crate) struct Build {
    folder: PathBuf,
    scratch: tempfile::TempDir,
}

impl Build {
    /// Finds the folder. `cargo build --release` must have made the parts.
    pub(crate) fn find() -> io::Result<Build> {
        let own = std::env::current_exe()?;
        let folder = own.parent().map(Path::to_path_buf).unwrap_or_default();
        Ok(Build {
            folder,
            scratch: tempfile::tempdir()?,
        })
    }

    /// A temporary folder of the run.
    pub(crate) fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// A file of the build.
    pub(crate) fn part(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.folder.join(name);
        if path.is_file() {
            Ok(path)
        } else {
            Err(io::Error::other(format!(
                "{} is missing: cargo build --release --workspace makes it",
                path.display()
            )))
        }
    }

    /// A folder of `.icd` files that names one library.
    pub(crate) fn vendors(&self, name: &str, library: &str) -> io::Result<PathBuf> {
        let folder = self.scratch.path().join(name);
        std::fs::create_dir_all(&folder)?;
        let path = self.part(library)?;
        std::fs::write(folder.join("one.icd"), format!("{}\n", path.display()))?;
        Ok(folder)
    }

    /// A command for a daemon over the OpenCL of `vendors` (`None`: the system's).
    pub(crate) fn daemon_command(
        &self,
        listen: &str,
        vendors: Option<&Path>,
    ) -> io::Result<Command> {
        self.daemon_command_logging(listen, vendors, "warn")
    }

    /// As [`Build::daemon_command`], with this level of its log.
    pub(crate) fn daemon_command_logging(
        &self,
        listen: &str,
        vendors: Option<&Path>,
        level: &str,
    ) -> io::Result<Command> {
        let mut command = Command::new(self.part("causewayd")?);
        command.args(["--listen", listen, "--log", level]);
        // A build cache would build beside a measurement. Rows that need one enable it.
        command.env("CAUSEWAYD_BUILD_CACHE_SIZE", "0");
        set_vendors(&mut command, vendors);
        Ok(command)
    }

    /// A command for a device manager over a store, without authentication.
    pub(crate) fn manager_command(&self, listen: &str, settings: &str) -> io::Result<Command> {
        let mut command = Command::new(self.part("causeway-devmgr")?);
        command.args(["--listen", listen, "--log", "error"]);
        // The run must not use this machine's own settings.
        let config = self.scratch.path().join("manager.toml");
        std::fs::write(&config, settings)?;
        command.arg("--config").arg(config);
        Ok(command)
    }

    /// Starts a daemon's command; its address.
    pub(crate) fn listening(command: &mut Command) -> io::Result<(Process, String)> {
        let mut daemon = Process::start(command)?;
        let address = daemon.address()?;
        Ok((daemon, address))
    }

    /// The path of this program.
    pub(crate) fn own_path(&self) -> io::Result<PathBuf> {
        std::env::current_exe()
    }

    /// A command for this program in another role, on the platform of `vendors`. `config` is the client's settings
    /// file.
    pub(crate) fn own(
        &self,
        role: &str,
        vendors: Option<&Path>,
        config: Option<&Path>,
    ) -> io::Result<Command> {
        let mut command = Command::new(self.own_path()?);
        command.arg(role).env_remove("CAUSEWAY_SERVERS");
        set_vendors(&mut command, vendors);
        if let Some(config) = config {
            command.env("CAUSEWAY_CONFIG", config);
        }
        Ok(command)
    }

    /// A `servers.toml` for one server, with more keys of it.
    pub(crate) fn config(
        &self,
        name: &str,
        address: &str,
        carrier: &str,
        keys: &str,
    ) -> io::Result<PathBuf> {
        let path = self.scratch.path().join(format!("{name}.toml"));
        std::fs::write(
            &path,
            format!("[[server]]\naddress = \"{address}\"\ncarrier = \"{carrier}\"\n{keys}"),
        )?;
        Ok(path)
    }
}

pub(crate) fn set_vendors(command: &mut Command, vendors: Option<&Path>) {
    match vendors {
        Some(folder) => command.env("OCL_ICD_VENDORS", folder),
        None => command.env_remove("OCL_ICD_VENDORS"),
    };
}
