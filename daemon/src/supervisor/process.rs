//! Starting a process of our own binary, and how one ended.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};

use causeway_proto::RECURSION_GUARD;
use rustix::process::{Pid, Signal};
use tokio::process::{Child, Command};

use causeway_serving::logging::Logging;

/// What the process is to be.
#[derive(Clone, Copy, Debug)]
pub(super) enum Role {
    /// Serves a session.
    Worker,
    /// Lists the devices.
    Probe,
    /// Builds a program for the build cache.
    Compiler,
}

/// Starts one: `channel` is its descriptor 0, standard output goes nowhere, standard error is the
/// daemon's log. It leads a process group, so that a driver's helpers can be ended with it, and the
/// terminal's Ctrl-C reaches the daemon alone.
///
/// # Errors
/// What the system says.
pub(super) fn start(role: Role, channel: OwnedFd, logging: &Logging) -> std::io::Result<Child> {
    start_with(role, channel, logging, &[])
}

/// The same with variables of its own.
///
/// # Errors
/// What the system says.
pub(super) fn start_with(
    role: Role,
    channel: OwnedFd,
    logging: &Logging,
    variables: &[(&str, &OsStr)],
) -> std::io::Result<Child> {
    let flag = match role {
        Role::Worker => "--internal-worker",
        Role::Probe => "--internal-probe",
        Role::Compiler => "--internal-compile",
    };
    // Even when the binary on disk was replaced, this is the same one.
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("causewayd")
        .arg(flag)
        .env(RECURSION_GUARD, "1")
        .envs(logging.environment())
        .envs(variables.iter().copied())
        .stdin(Stdio::from(channel))
        .stdout(Stdio::null())
        .process_group(0)
        .kill_on_drop(true);
    for private in [
        "NOTIFY_SOCKET",
        "LISTEN_FDS",
        "LISTEN_PID",
        "LISTEN_FDNAMES",
    ] {
        command.env_remove(private);
    }
    command.spawn()
}

/// Ends a child that has not been waited for, and what it started.
pub(super) fn kill(child: &Child) {
    let pid = child
        .id()
        .and_then(|id| i32::try_from(id).ok())
        .and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // It may have ended by itself in this moment.
        let _ = rustix::process::kill_process_group(pid, Signal::KILL);
    }
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
