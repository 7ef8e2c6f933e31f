//! One child process with a time limit.
//!
//! Every child leads its own process group. No member of that group outlives the call.

use std::fmt;
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// Most lines of one kind in a failure's report.
const LINES: usize = 5;

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The child exited with this code.
    Code(i32),
    /// This signal ended the child.
    Signal(i32),
    /// The runner killed the child after this time.
    TimedOut(Duration),
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::TimedOut(limit) => write!(f, "still running after {} s", limit.as_secs()),
        }
    }
}

/// The result of a child process.
#[derive(Clone, Debug)]
pub(crate) struct Finished {
    pub(crate) exit: Exit,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) took: Duration,
}

impl Finished {
    /// Whether the exit code is 0.
    pub(crate) fn succeeded(&self) -> bool {
        self.exit == Exit::Code(0)
    }

    /// Describes a failure: how the process ended, the lines in which it says so, the last error, and the last lines.
    pub(crate) fn failure(&self) -> String {
        let (exit, tail) = (self.exit.to_string(), self.tail());
        let said = self.stdout.lines().chain(self.stderr.lines());
        let failures = said.filter(|line| line.contains("FAILED")).take(LINES);
        let mut errors = self.stderr.lines().rev();
        let error = errors.find(|line| line.to_lowercase().contains("error"));
        let last = self.stdout.lines().rfind(|line| !line.trim().is_empty());
        let mut told = vec![exit.as_str()];
        for line in failures.chain(error).chain(last).chain(tail.lines()) {
            if !told.contains(&line) {
                told.push(line);
            }
        }
        told.join("\n")
    }

    /// Returns the last lines of the output for a failure's report, of stderr if there are any.
    pub(crate) fn tail(&self) -> String {
        let said = if self.stderr.trim().is_empty() {
            &self.stdout
        } else {
            &self.stderr
        };
        let lines: Vec<&str> = said
            .lines()
            .filter(|line| !line.trim().is_empty())
            .collect();
        lines[lines.len().saturating_sub(LINES)..].join("\n")
    }
}

/// Runs the command to its end, or kills its group after `limit`.
pub(crate) fn run(command: &mut Command, limit: Duration) -> io::Result<Finished> {
    run_watched(command, limit, |_| {})
}

/// As [`run`]; calls `started` when the process exists.
pub(crate) fn run_watched(
    command: &mut Command,
    limit: Duration,
    started: impl FnOnce(Pid),
) -> io::Result<Finished> {
    let begin = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()?;
    let group = Pid::from_child(&child);
    started(group);
    let stdout = child.stdout.take().map(collect);
    let stderr = child.stderr.take().map(collect);

    let (ended, end) = mpsc::channel::<()>();
    let watchdog = thread::spawn(move || {
        let late = end.recv_timeout(limit) == Err(RecvTimeoutError::Timeout);
        if late {
            let _ = kill_process_group(group, Signal::KILL);
        }
        late
    });
    let status = child.wait()?;
    drop(ended);
    let late = watchdog.join().unwrap_or(false);
    // Grandchildren, of which there are usually none, would keep the pipes open.
    let _ = kill_process_group(group, Signal::KILL);

    Ok(Finished {
        exit: if late {
            Exit::TimedOut(limit)
        } else {
            exit_of(status)
        },
        stdout: stdout.map(join_text).unwrap_or_default(),
        stderr: stderr.map(join_text).unwrap_or_default(),
        took: begin.elapsed(),
    })
}

/// Converts an exit status.
pub(crate) fn exit_of(status: ExitStatus) -> Exit {
    match status.code() {
        Some(code) => Exit::Code(code),
        None => Exit::Signal(status.signal().unwrap_or(0)),
    }
}

fn collect(mut pipe: impl Read + Send + 'static) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        bytes
    })
}

fn join_text(reader: thread::JoinHandle<Vec<u8>>) -> String {
    String::from_utf8_lossy(&reader.join().unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn text_and_code_are_kept() {
        let finished = run(
            &mut shell("echo out; echo err >&2; exit 3"),
            Duration::from_secs(20),
        )
        .unwrap();
        assert_eq!(finished.exit, Exit::Code(3));
        assert_eq!(
            (finished.stdout.as_str(), finished.stderr.as_str()),
            ("out\n", "err\n")
        );
    }

    #[test]
    fn a_failures_report_has_the_failure_and_the_last_error_once() {
        let script = "echo 'FAILED: seed 7: it hangs'; seq 20; echo 'error: early' >&2; echo 'ERROR lost' >&2; \
                      echo; seq 30 40 >&2; exit 1";
        let finished = run(&mut shell(script), Duration::from_secs(20)).unwrap();
        let expected = [
            "exit code 1",
            "FAILED: seed 7: it hangs",
            "ERROR lost",
            "20",
        ];
        let tail = (36..=40).map(|number| number.to_string());
        let expected: Vec<String> = expected
            .map(str::to_owned)
            .into_iter()
            .chain(tail)
            .collect();
        assert_eq!(finished.failure(), expected.join("\n"));
    }

    #[test]
    fn a_hanging_group_is_killed() {
        let finished = run(
            &mut shell("sleep 100 & sleep 100"),
            Duration::from_millis(100),
        )
        .unwrap();
        assert!(matches!(finished.exit, Exit::TimedOut(_)));
        assert!(finished.took < Duration::from_secs(50));
    }

    #[test]
    fn what_a_child_leaves_running_does_not_hold_us() {
        let finished = run(&mut shell("sleep 100 & echo done"), Duration::from_secs(20)).unwrap();
        assert_eq!(finished.exit, Exit::Code(0));
        assert!(finished.took < Duration::from_secs(15));
    }

    #[test]
    fn a_signal_is_told() {
        let finished = run(&mut shell("kill -9 $$"), Duration::from_secs(20)).unwrap();
        assert_eq!(finished.exit, Exit::Signal(9));
    }
}
