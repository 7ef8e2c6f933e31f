//! What identifies processes of this host for good. A process id alone may be used again.
#![forbid(unsafe_code)]

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use causeway_proto::control::Client;

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
/// process.
pub(super) fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name is in parentheses, and may contain some. The time is the 20th field behind it.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// Those of these processes that were in this PID namespace and have ended.
pub(super) fn ended(processes: &[Client]) -> Vec<Client> {
    let (boot, namespace) = (boot_id(), pid_namespace());
    let has_ended = |process: &&Client| {
        !boot.is_empty()
            && process.boot_id == boot
            && namespace != 0
            && process.pid_namespace == namespace
            && process.start_time != 0
            && start_time(process.pid) != Some(process.start_time)
    };
    processes.iter().filter(has_ended).cloned().collect()
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
