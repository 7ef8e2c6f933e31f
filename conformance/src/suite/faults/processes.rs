//! Processes as `/proc` shows them.
//!
//! Invariant: a process is identified by its number and its start time. So another process that later
//! gets the same number is not mistaken for it.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::Wrong;
use super::stage::LOOK;

/// A process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::suite) struct Process {
    pid: Pid,
    parent: i32,
    began: u64,
}

impl Process {
    /// Reads the process of this number. `None` if it has ended; a zombie has ended.
    fn read(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name before the last parenthesis may contain anything, even spaces and parentheses.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        if matches!(fields.first(), Some(&("Z" | "X"))) {
            return None;
        }
        Some(Self {
            pid: Pid::from_raw(pid)?,
            parent: fields.get(1)?.parse().ok()?,
            began: fields.get(19)?.parse().ok()?,
        })
    }

    /// Whether the process still runs.
    pub(super) fn is_alive(&self) -> bool {
        Self::read(self.pid.as_raw_pid()).is_some_and(|now| now.began == self.began)
    }

    /// The number of the process.
    pub(in crate::suite) fn pid(&self) -> Pid {
        self.pid
    }

    /// Sends SIGKILL to the process.
    pub(super) fn kill(&self) {
        if self.is_alive() {
            let _ = kill_process(self.pid, Signal::KILL);
        }
    }

    /// Resident memory of the process, in bytes.
    pub(super) fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid.as_raw_pid()));
        let status = status.unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|rest| rest.split_whitespace().next());
        number.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) << 10
    }

    /// Whether the process's command line has this argument.
    pub(in crate::suite) fn has_argument(&self, argument: &str) -> bool {
        let line = fs::read(format!("/proc/{}/cmdline", self.pid.as_raw_pid()));
        line.unwrap_or_default()
            .split(|byte| *byte == 0)
            .any(|part| part == argument.as_bytes())
    }
}

fn all() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter_map(Process::read).collect()
}

/// Returns the children of a process.
pub(in crate::suite) fn children_of(parent: Pid) -> Vec<Process> {
    let mut all = all();
    all.retain(|process| process.parent == parent.as_raw_pid());
    all
}

/// Returns a process, its children, their children, and so on.
pub(super) fn descendants_of(ancestor: Pid) -> Vec<Process> {
    let all = all();
    let is_it = |process: &&Process| process.pid == ancestor;
    let mut family: Vec<Process> = all.iter().filter(is_it).copied().collect();
    let mut next = 0;
    while let Some(parent) = family.get(next).copied() {
        let born = |process: &&Process| process.parent == parent.pid.as_raw_pid();
        family.extend(all.iter().filter(born));
        next += 1;
    }
    family
}

/// Returns the processes with this working directory.
pub(super) fn in_directory(directory: &Path) -> Vec<Process> {
    let mut all = all();
    all.retain(|process| {
        let link = format!("/proc/{}/cwd", process.pid.as_raw_pid());
        fs::read_link(link).is_ok_and(|found| found == directory)
    });
    all
}

/// Waits until a descendant has this argument.
pub(super) fn until_one_has(ancestor: Pid, argument: &str, limit: Duration) -> Result<(), Wrong> {
    let end = Instant::now() + limit;
    let has = |process: &Process| process.has_argument(argument);
    while !descendants_of(ancestor).iter().any(has) {
        if Instant::now() > end {
            return Err(Wrong::new(format!("no process with {argument}")));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Waits until all of these processes have ended.
pub(super) fn until_gone(processes: &[Process], limit: Duration) -> Result<(), Wrong> {
    let end = Instant::now() + limit;
    loop {
        let left = processes.iter().filter(|process| process.is_alive());
        match left.count() {
            0 => return Ok(()),
            left if Instant::now() > end => {
                let limit = limit.as_secs();
                return Err(Wrong::new(format!(
                    "{left} processes are still there after {limit} s"
                )));
            }
            _ => std::thread::sleep(LOOK),
        }
    }
}
