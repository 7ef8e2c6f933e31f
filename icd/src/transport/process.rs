//! What identifies processes of this host for good. A process id alone may be used again.
#![forbid(unsafe_code)]

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use causeway_proto::control::Client;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// The id of the kernel's current boot; empty if unknown.
pub(super) fn boot_id() -> String {
    let read = fs::read_to_string("/proc/sys/kernel/random/boot_id");
    read.map(|id| id.trim().to_owned()).unwrap_or_default()
}

/// The PID namespace of this process; 0 if unknown.
pub(super) fn pid_namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino())
}

/// When a process of this PID namespace was started, in clock ticks since the boot. `None` if there is no such
/// process, or `/proc` hides it.
pub(super) fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name is in parentheses, and may contain some. The time is the 20th field behind it.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// Those of these processes that were in this PID namespace and have ended.
pub(super) fn ended(processes: &[Client]) -> Vec<Client> {
    let (boot, namespace) = (boot_id(), pid_namespace());
    let is_ours_and_ended = |process: &&Client| {
        !boot.is_empty()
            && process.boot_id == boot
            && namespace != 0
            && process.pid_namespace == namespace
            && process.start_time != 0
            && has_ended(process, is_present(process.pid), start_time(process.pid))
    };
    processes
        .iter()
        .filter(is_ours_and_ended)
        .cloned()
        .collect()
}

/// Whether a process has this id now. Unlike `/proc`, the system call hides no process of another user.
fn is_present(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_none_or(|pid| test_kill_process(pid) != Err(Errno::SRCH))
}

/// Whether a process has ended, if its id `is_present` and belongs to one that was started at `seen`.
fn has_ended(process: &Client, is_present: bool, seen: Option<u64>) -> bool {
    !is_present || seen.is_some_and(|seen| seen != process.start_time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn this() -> Client {
        Client {
            pid: std::process::id(),
            boot_id: boot_id(),
            pid_namespace: pid_namespace(),
            start_time: start_time(std::process::id()).unwrap(),
            ..Client::default()
        }
    }

    #[test]
    fn a_process_that_proc_hides_has_not_ended() {
        let hidden = this();
        assert!(!has_ended(&hidden, true, None));
        assert!(has_ended(&hidden, false, None));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        assert!(is_present(child.id()));
        child.wait().unwrap();
        assert!(!is_present(child.id()));
    }

    #[test]
    fn a_process_has_ended_if_its_id_belongs_to_another_one() {
        let (living, other_boot) = (
            this(),
            Client {
                boot_id: "x".into(),
                start_time: 1,
                ..this()
            },
        );
        let dead = Client {
            start_time: 1,
            ..this()
        };
        assert_eq!(ended(&[living, dead.clone(), other_boot]), [dead]);
    }
}
