//! Processes that still run on a network's hosts. Only they can outlive a network, and they
//! would keep its namespaces alive.
//!
//! This module reads `/proc`. It ends only such processes, and never the calling one.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::host::VARIABLE;

/// Time limit for killed processes to be gone.
const PATIENCE: Duration = Duration::from_secs(2);

/// A process that `network clean` ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// The process number.
    pub process: u32,
    /// The program, from the command line.
    pub command: String,
    /// The network that the process belonged to.
    pub network: String,
}

/// Ends every process on hosts of networks whose builder no longer lives. The namespaces go
/// with the last process.
#[must_use]
pub fn clean() -> Vec<Leftover> {
    let orphans = processes().filter_map(|process| {
        let network = network_of(process)?;
        (process != std::process::id() && !lives(&network)).then(|| Leftover {
            process,
            command: command_of(process),
            network,
        })
    });
    let orphans: Vec<Leftover> = orphans.collect();
    for orphan in &orphans {
        end(orphan.process);
    }
    orphans
}

/// Ends every other process whose network namespace is one of `labels`. Waits until they are
/// gone, within a limit.
pub(crate) fn end_occupants(labels: &[String]) {
    let begin = Instant::now();
    loop {
        let found: Vec<u32> = processes()
            .filter(|process| *process != std::process::id() && occupies(*process, labels))
            .collect();
        // A process in an uninterruptible system call ends with that call, so it is not waited for longer.
        if found.is_empty() || begin.elapsed() > PATIENCE {
            return;
        }
        found.into_iter().for_each(end);
        thread::sleep(Duration::from_millis(1));
    }
}

fn occupies(process: u32, labels: &[String]) -> bool {
    let label = fs::read_link(format!("/proc/{process}/ns/net"));
    label.is_ok_and(|label| {
        let label = label.to_string_lossy();
        labels.iter().any(|known| *known == *label)
    })
}

/// Whether the process that built the network `name` still lives.
pub(crate) fn lives(name: &str) -> bool {
    let mut parts = name.split('-').map(str::parse::<u64>);
    let (Some(Ok(process)), Some(Ok(started))) = (parts.next(), parts.next()) else {
        return false;
    };
    u32::try_from(process).is_ok_and(|process| start_time(process) == Some(started))
}

/// Returns when a process started, in the kernel's ticks since boot. Number and start time together
/// identify a process. `None` if there is no such process, or only a zombie.
pub(crate) fn start_time(process: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name before the last parenthesis may contain anything.
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?;
    let started = fields.nth(18)?;
    (!matches!(state, "Z" | "X")).then(|| started.parse().ok())?
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn network_of(process: u32) -> Option<String> {
    let environment = fs::read(format!("/proc/{process}/environ")).ok()?;
    let ours = format!("{VARIABLE}=");
    environment.split(|byte| *byte == 0).find_map(|entry| {
        let name = entry.strip_prefix(ours.as_bytes())?;
        String::from_utf8(name.to_vec()).ok()
    })
}

fn command_of(process: u32) -> String {
    let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line)
        .replace('\0', " ")
        .trim()
        .to_owned()
}

fn end(process: u32) {
    let number = i32::try_from(process).ok().and_then(Pid::from_raw);
    if let Some(number) = number {
        // The process may have ended by itself meanwhile.
        let _ = kill_process(number, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_whether_its_builder_lives() {
        let process = std::process::id();
        let started = start_time(process).unwrap();
        assert!(lives(&format!("{process}-{started}-0")));
        assert!(!lives(&format!("{process}-{}-0", started + 1)));
        assert!(!lives("0-0-0") && !lives("x") && !lives(""));
    }
}
