//! The processes of a run: daemon, probes, socket peer; all ended with it.

use std::io::{self, BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::probe::{Request, Samples};

/// A child process, killed on drop, whose output is read line by line.
pub(crate) struct Process {
    child: Child,
    input: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts it with piped input and output.
    pub(crate) fn start(command: &mut Command) -> io::Result<Process> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let output = output.ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Process {
            child,
            input,
            lines: BufReader::new(output).lines(),
        })
    }

    /// Its next line.
    pub(crate) fn line(&mut self) -> io::Result<String> {
        self.lines
            .next()
            .unwrap_or_else(|| Err(io::ErrorKind::UnexpectedEof.into()))
    }

    /// The address from a line `listening on ADDR:PORT`.
    pub(crate) fn address(&mut self) -> io::Result<String> {
        let line = self.line()?;
        let address = line.strip_prefix("listening on ").map(str::to_owned);
        address.ok_or_else(|| io::Error::other(format!("an address was expected, not: {line}")))
    }

    /// Asks a probe.
    pub(crate) fn ask(&mut self, request: &Request) -> io::Result<Samples> {
        let input = self.input.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        writeln!(input, "{}", serde_json::to_string(request)?)?;
        Ok(serde_json::from_str(&self.line()?)?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where the parts of this build lie: next to the benchmark itself.
pub(crate) struct Build {
    folder: PathBuf,
    scratch: tempfile::TempDir,
}

impl Build {
    /// Finds the folder; `cargo build --release` must have made what is asked for later.
    pub(crate) fn find() -> io::Result<Build> {
        let own = std::env::current_exe()?;
        let folder = own.parent().map(Path::to_path_buf).unwrap_or_default();
        Ok(Build {
            folder,
            scratch: tempfile::tempdir()?,
        })
    }

    /// A folder that goes with the run.
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

    /// A daemon over the OpenCL of `vendors` (the system's for `None`), and its address.
    pub(crate) fn daemon(&self, vendors: Option<&Path>) -> io::Result<(Process, String)> {
        self.daemon_with(vendors, &[])
    }

    /// The same, with variables for its drivers.
    pub(crate) fn daemon_with(
        &self,
        vendors: Option<&Path>,
        variables: &[(&str, String)],
    ) -> io::Result<(Process, String)> {
        let mut command = Command::new(self.part("causewayd")?);
        command.args(["--listen", "127.0.0.1:0", "--log", "warn"]);
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        set_vendors(&mut command, vendors);
        Build::listening(&mut command)
    }

    /// Starts a daemon as the command says; where it listens.
    pub(crate) fn listening(command: &mut Command) -> io::Result<(Process, String)> {
        let mut daemon = Process::start(command)?;
        let address = daemon.address()?;
        Ok((daemon, address))
    }

    /// This program.
    pub(crate) fn own_path(&self) -> io::Result<PathBuf> {
        std::env::current_exe()
    }

    /// This program again, in another role, on the platform of `vendors`; through Causeway when
    /// `server` names a daemon.
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

    /// A `servers.toml` for one server.
    pub(crate) fn config(&self, name: &str, address: &str, carrier: &str) -> io::Result<PathBuf> {
        let path = self.scratch.path().join(format!("{name}.toml"));
        std::fs::write(
            &path,
            format!("[[server]]\naddress = \"{address}\"\ncarrier = \"{carrier}\"\n"),
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
