//! Starting a process of our own binary, and how one ended.

use std::io::IsTerminal;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};

use causeway_proto::RECURSION_GUARD;
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, PidfdFlags, Signal};
use tokio::io::unix::AsyncFd;
use tokio::process::{Child, Command};

use super::cells::{Cell, Cells};
use super::inherited;
use super::leaving::DIE_WITHIN;
use crate::sys;
use causeway_serving::logging::Logging;

/// What the process is to be.
#[derive(Clone, Copy, Debug)]
pub(super) enum Role {
    /// Serves a session.
    Worker,
    /// Lists the devices.
    Probe,
    /// Lists them outside of the sandbox, to see whether it keeps any away.
    Trial,
    /// Builds a program for the build cache.
    Compiler,
}

/// Starts processes.
#[derive(Clone)]
pub(super) struct Processes {
    logging: Logging,
    cells: Cells,
}

impl Processes {
    pub(super) fn new(logging: Logging, cells: Cells) -> Processes {
        Processes { logging, cells }
    }

    /// Where they live.
    pub(super) fn cells(&self) -> &Cells {
        &self.cells
    }

    /// Starts one: `channel` is its descriptor 0, standard output goes nowhere, standard error is the
    /// daemon's log. It leads a process group, so that a driver's helpers can be ended with it, and the
    /// terminal's Ctrl-C reaches the daemon alone.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn start(&self, role: Role, channel: OwnedFd) -> std::io::Result<Process> {
        let flag = match role {
            Role::Worker => "--internal-worker",
            Role::Probe | Role::Trial => "--internal-probe",
            Role::Compiler => "--internal-compile",
        };
        let cell = self.cells.cell()?;
        // Even when the binary on disk was replaced, this is the same one.
        let mut command = Command::new("/proc/self/exe");
        command
            .arg0("causewayd")
            .arg(flag)
            .env_clear()
            .envs(inherited::of(std::env::vars_os(), self.cells.variables()))
            .env(RECURSION_GUARD, "1")
            .envs(self.logging.environment())
            .stdin(Stdio::from(channel))
            .stdout(Stdio::null())
            .stderr(log())
            .process_group(0)
            .kill_on_drop(true);
        for (name, value) in cell.environment(role).map_err(std::io::Error::other)? {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let child = command.spawn()?;
        if let Some(pid) = child.id() {
            cell.is_for(pid);
        }
        let exited = pid(&child).and_then(|pid| {
            // A kernel without it leaves what a driver started to end by itself.
            let opened = rustix::process::pidfd_open(pid, PidfdFlags::NONBLOCK).ok()?;
            sys::readable(opened).ok()
        });
        Ok(Process {
            child,
            exited,
            _cell: cell,
        })
    }
}

/// The daemon's standard error; where that is a terminal, for writing alone, because what is typed there is not for
/// kernels. A terminal of another user's than the daemon's cannot be opened again and is passed on as it is.
fn log() -> Stdio {
    if !std::io::stderr().is_terminal() {
        return Stdio::inherit();
    }
    let flags = OFlags::WRONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open("/proc/self/fd/2", flags, Mode::empty())
        .map_or_else(|_| Stdio::inherit(), Stdio::from)
}

/// One that has not been reaped; it is killed when its value goes.
pub(super) struct Process {
    child: Child,
    /// Readable once it has ended, before it is reaped.
    exited: Option<AsyncFd<OwnedFd>>,
    _cell: Cell,
}

impl Process {
    /// Waits for its end, and ends what it has left behind in its process group. Can be given up and called
    /// again.
    ///
    /// # Errors
    /// What the system says.
    pub(super) async fn wait(&mut self) -> std::io::Result<ExitStatus> {
        if let Some(exited) = &self.exited {
            // Not reaped yet, so the group's number is nobody else's.
            exited.readable().await?.retain_ready();
            self.kill();
        }
        self.child.wait().await
    }

    /// The system's number of it, while it has not been reaped.
    pub(super) fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Kills it and reaps it; if it is not gone soon, beside its caller. Says whether it is gone.
    pub(super) async fn end(mut self) -> bool {
        self.kill();
        if tokio::time::timeout(DIE_WITHIN, self.wait()).await.is_ok() {
            return true;
        }
        tracing::error!(
            pid = self.id(),
            "a process was killed and is not gone: the kernel may be freeing its memory, or be inside a device's driver"
        );
        tokio::spawn(async move {
            let _ = self.wait().await;
        });
        false
    }

    /// Ends it, and what it started, unless it has been waited for.
    pub(super) fn kill(&self) {
        if let Some(pid) = pid(&self.child) {
            // It may have ended by itself in this moment.
            let _ = rustix::process::kill_process_group(pid, Signal::KILL);
        }
    }
}

fn pid(child: &Child) -> Option<Pid> {
    let id = child.id().and_then(|id| i32::try_from(id).ok());
    id.and_then(Pid::from_raw)
}

/// In words: what a log or a problem report says of an end.
pub(super) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {}", signal_name(signal)),
        (None, None) => status.to_string(),
    }
}

/// Whether it was the driver's or a kernel's crash, as far as a signal tells.
pub(super) fn is_crash(status: ExitStatus) -> bool {
    let crash = [
        Signal::SEGV,
        Signal::BUS,
        Signal::FPE,
        Signal::ILL,
        Signal::ABORT,
    ];
    status
        .signal()
        .is_some_and(|signal| crash.iter().any(|s| s.as_raw() == signal))
}

fn signal_name(signal: i32) -> String {
    let known = [
        (Signal::SEGV, "SIGSEGV"),
        (Signal::BUS, "SIGBUS"),
        (Signal::FPE, "SIGFPE"),
        (Signal::ILL, "SIGILL"),
        (Signal::ABORT, "SIGABRT"),
        (Signal::KILL, "SIGKILL"),
        (Signal::TERM, "SIGTERM"),
        (Signal::INT, "SIGINT"),
        (Signal::XCPU, "SIGXCPU"),
        (Signal::SYS, "SIGSYS"),
    ];
    known
        .iter()
        .find(|(s, _)| s.as_raw() == signal)
        .map_or_else(|| signal.to_string(), |(_, name)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_told_in_words() {
        assert_eq!(describe(ExitStatus::from_raw(3 << 8)), "exit code 3");
        assert_eq!(describe(ExitStatus::from_raw(11)), "signal SIGSEGV");
        assert_eq!(describe(ExitStatus::from_raw(50)), "signal 50");
        assert!(is_crash(ExitStatus::from_raw(8)));
        assert!(!is_crash(ExitStatus::from_raw(9)));
        assert!(!is_crash(ExitStatus::from_raw(0)));
    }
}
