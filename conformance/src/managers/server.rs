//! A process of a proof, on a host of its network: it can be killed, stopped, and started again.
//!
//! Invariant: a dropped process has ended. A process that is started again has the same addresses and files.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use causeway_network::Network;
use rustix::process::{Pid, Signal, kill_process};

use crate::{SetupError, io_error};

/// The exit code of a Rust program that has panicked.
const PANICKED: i32 = 101;

/// The process. See the module.
pub(super) struct Server {
    pub(super) name: String,
    pub(super) host: usize,
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
    pub(super) variables: Vec<(String, String)>,
    log: PathBuf,
    child: Option<Child>,
}

/// How a process has ended by itself.
pub(super) struct Ended {
    /// For people.
    pub(super) what: String,
    /// Whether the process has panicked, or was ended by a signal.
    pub(super) has_crashed: bool,
}

impl Server {
    /// A process on the host of this number, with its log in this folder.
    pub(super) fn new(
        name: String,
        host: usize,
        program: PathBuf,
        folder: &std::path::Path,
    ) -> Server {
        Server {
            log: folder.join(format!("{name}.log")),
            name,
            host,
            program,
            arguments: Vec::new(),
            variables: Vec::new(),
            child: None,
        }
    }

    /// Starts the process, if it does not run.
    pub(super) fn start(&mut self, network: &Network) -> Result<(), SetupError> {
        if self.child.is_some() {
            return Ok(());
        }
        let log = File::options().create(true).append(true).open(&self.log);
        let log = log.map_err(io_error("cannot write a log"))?;
        let output = log.try_clone().map_err(io_error("cannot write a log"))?;
        let mut command = network.host(self.host).command(&self.program);
        let variables = self.variables.iter();
        let child = command
            .args(&self.arguments)
            .envs(variables.map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(log)
            .spawn();
        let failed = io_error(format!("cannot run {}", self.program.display()));
        self.child = Some(child.map_err(failed)?);
        Ok(())
    }

    /// Kills the process, as a crash would.
    pub(super) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Fails only if the process has ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Stops the process, or lets it go on.
    pub(super) fn stop(&mut self, stops: bool) {
        let signal = if stops { Signal::STOP } else { Signal::CONT };
        if let Some(child) = &self.child {
            // Fails only if the process has ended.
            let _ = kill_process(Pid::from_child(child), signal);
        }
    }

    /// Whether the process has ended without having been killed. It can then be started again.
    pub(super) fn ended(&mut self) -> Option<Ended> {
        let status = self.child.as_mut()?.try_wait().ok()??;
        self.child = None;
        Some(Ended {
            what: format!("{} has ended by itself: {status}", self.name),
            has_crashed: status.code() == Some(PANICKED) || status.signal().is_some(),
        })
    }

    /// The log so far.
    pub(super) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
