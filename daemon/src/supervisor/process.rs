//! Starts processes of the daemon's own binary, and describes how a process ended.

use std::io::IsTerminal;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};

use causeway_proto::RECURSION_GUARD;
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, PidfdFlags, Signal};
use tokio::io::unix::AsyncFd;
use tokio::process::{Child, Command};

use super::inherited;
use super::leaving::DIE_WITHIN;
use super::worker_env::{WorkerEnv, WorkerEnvs};
use crate::sys;
use causeway_serving::logging::Logging;

/// The role of a process.
#[derive(Clone, Copy, Debug)]
pub(super) enum Role {
    /// Serves a session.
    Worker,
    /// Lists the devices.
    Probe,
    /// Lists the devices outside the sandbox, to find out whether the sandbox hides any.
    Trial,
    /// Measures what a process takes of each card by itself.
    Measure,
    /// Reads the use of cards.
    Cards,
    /// Announces the node on its networks.
    Announce,
    /// Measures a link.
    Link,
    /// Looks for the device manager.
    Find,
}

/// Starts processes, each in an environment of its own.
#[derive(Clone)]
pub(super) struct Processes {
    logging: Logging,
    worker_envs: WorkerEnvs,
}

impl Processes {
    pub(super) fn new(logging: Logging, worker_envs: WorkerEnvs) -> Processes {
        Processes {
            logging,
            worker_envs,
        }
    }

    /// Returns the environments of the processes.
    pub(super) fn worker_envs(&self) -> &WorkerEnvs {
        &self.worker_envs
    }

    /// Starts a process. `channel` becomes its descriptor 0; standard output is discarded; standard error
    /// is the daemon's log. The process leads a process group, so that helpers of a driver can be killed
    /// with it. This also makes a terminal's Ctrl-C reach only the daemon.
    pub(super) fn start(&self, role: Role, channel: OwnedFd) -> std::io::Result<Process> {
        let flag = match role {
            Role::Worker => "--internal-worker",
            Role::Probe | Role::Trial => "--internal-probe",
            Role::Measure => "--internal-measure",
            Role::Cards => "--internal-cards",
            Role::Announce => "--internal-announce",
            Role::Link => "--internal-link",
            Role::Find => "--internal-find",
        };
        let worker_env = self.worker_envs.create()?;
        // This path refers to the running binary even if the file on disk was replaced.
        let mut command = Command::new("/proc/self/exe");
        command
            .arg0("causewayd")
            .arg(flag)
            .env_clear()
            .envs(inherited::of(
                std::env::vars_os(),
                self.worker_envs.inherited(),
            ))
            // With this variable, Causeway's own driver reports no platform, so the daemon never forwards
            // to itself.
            .env(RECURSION_GUARD, "1")
            .envs(self.logging.environment())
            .stdin(Stdio::from(channel))
            .stdout(Stdio::null())
            .stderr(log())
            .process_group(0)
            .kill_on_drop(true);
        for (name, value) in worker_env.variables(role).map_err(std::io::Error::other)? {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let child = command.spawn()?;
        if let Some(pid) = child.id() {
            worker_env.is_for(pid);
        }
        let exited = pid(&child).and_then(|pid| {
            // A kernel without pidfds cannot report the end before reaping. In that case, processes that a
            // driver started are left to end by themselves.
            let opened = rustix::process::pidfd_open(pid, PidfdFlags::NONBLOCK).ok()?;
            sys::readable(opened).ok()
        });
        Ok(Process {
            child,
            exited,
            _worker_env: worker_env,
        })
    }
}

/// Returns the daemon's standard error for a worker. A terminal is opened again for writing only, because
/// kernels must not read what is typed there. A terminal that belongs to another user cannot be opened
/// again and is passed on unchanged.
fn log() -> Stdio {
    if !std::io::stderr().is_terminal() {
        return Stdio::inherit();
    }
    let flags = OFlags::WRONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open("/proc/self/fd/2", flags, Mode::empty())
        .map_or_else(|_| Stdio::inherit(), Stdio::from)
}

/// A process that has not been reaped; killed when dropped.
pub(super) struct Process {
    child: Child,
    /// Pidfd that becomes readable when the process has ended, before it is reaped.
    exited: Option<AsyncFd<OwnedFd>>,
    _worker_env: WorkerEnv,
}

impl Process {
    /// Waits until the process has ended. Then kills the processes that are left in its group. Cancel safe.
    pub(super) async fn wait(&mut self) -> std::io::Result<ExitStatus> {
        if let Some(exited) = &self.exited {
            // The process is not reaped yet, so its group number cannot belong to another group.
            exited.readable().await?.retain_ready();
            self.kill();
        }
        self.child.wait().await
    }

    /// Returns the process id until the process has been reaped.
    pub(super) fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Kills and reaps the process. If it does not end soon, a background task reaps it. Returns whether it
    /// has ended.
    pub(super) async fn end(mut self) -> bool {
        self.kill();
        if tokio::time::timeout(DIE_WITHIN, self.wait()).await.is_ok() {
            return true;
        }
        tracing::error!(
            pid = self.id(),
            "a process was killed and has not ended; the kernel may be freeing its memory, or a device driver may hang"
        );
        tokio::spawn(async move {
            let _ = self.wait().await;
        });
        false
    }

    /// Kills the process and its group, unless the process has been reaped.
    pub(super) fn kill(&self) {
        if let Some(pid) = pid(&self.child) {
            // The process may have ended by itself just now.
            let _ = rustix::process::kill_process_group(pid, Signal::KILL);
        }
    }
}

fn pid(child: &Child) -> Option<Pid> {
    let id = child.id().and_then(|id| i32::try_from(id).ok());
    id.and_then(Pid::from_raw)
}

/// Describes an exit status for logs and problem reports.
pub(super) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {}", signal_name(signal)),
        (None, None) => status.to_string(),
    }
}

/// Returns whether the signal indicates a crash of a driver or a kernel.
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
