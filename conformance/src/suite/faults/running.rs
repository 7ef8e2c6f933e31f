//! A running program: its progress, its output and its end.
//!
//! Invariant: a dropped program is ended with its process group, and no wait here is unbounded.

use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::stage::{LOOK, Node, PATIENCE, Stage, Way, command_on, lines_of};
use super::{LOST, Wrong};
use crate::process::{Exit, exit_of};

/// How a program ended, and its output.
pub(super) struct Ended {
    /// The exit.
    pub(super) exit: Exit,
    /// The lines of the standard output.
    pub(super) said: Vec<String>,
    /// The standard error.
    pub(super) warned: String,
}

impl Ended {
    /// Returns the first call that failed: `clFinish -> CL_…`.
    pub(super) fn saw(&self) -> Result<&str, Wrong> {
        let saw = self.said.iter().find_map(|line| line.strip_prefix("saw "));
        match saw {
            Some(saw) if self.exit == Exit::Code(3) => Ok(saw),
            _ => Err(self.wrong("no call failed")),
        }
    }

    /// Checks that a call failed because the device is lost. Returns the call and its error.
    pub(super) fn saw_lost(&self) -> Result<&str, Wrong> {
        let saw = self.saw()?;
        if saw.ends_with(&format!("-> {LOST}")) {
            return Ok(saw);
        }
        Err(self.wrong(&format!("not {LOST}")))
    }

    /// As [`Self::saw_lost`]; also checks that the context's callback was called.
    pub(super) fn lost(&self) -> Result<String, Wrong> {
        let saw = self.saw_lost()?;
        self.assert_told("lost")?;
        Ok(saw.to_owned())
    }

    /// Checks that the context's callback was called with a text that contains this.
    pub(super) fn assert_told(&self, text: &str) -> Result<(), Wrong> {
        let told = |line: &String| line.starts_with("told ") && line.contains(text);
        match self.said.iter().any(told) {
            true => Ok(()),
            false => Err(self.wrong(&format!("the context's callback was not told \"{text}\""))),
        }
    }

    /// Makes an error that shows the whole end.
    pub(super) fn wrong(&self, what: &str) -> Wrong {
        Wrong::new(format!(
            "{what}: {} after\n{}\n{}",
            self.exit,
            self.said.join("\n"),
            self.warned
        ))
    }

    /// Checks that the program exited with 0 and has printed this line.
    pub(super) fn assert_said(&self, line: &str) -> Result<(), Wrong> {
        if self.exit == Exit::Code(0) && self.said.iter().any(|said| said == line) {
            return Ok(());
        }
        Err(self.wrong(&format!("it should have said \"{line}\"")))
    }

    /// Checks that the program's library printed this warning.
    pub(super) fn assert_warned(&self, text: &str) -> Result<(), Wrong> {
        if self.warned.contains(text) {
            return Ok(());
        }
        Err(self.wrong(&format!("no warning has \"{text}\"")))
    }
}

/// A running program with its own process group.
pub(super) struct RunningProgram {
    child: Child,
    lines: Receiver<String>,
    warnings: Receiver<String>,
    said: Vec<String>,
}

impl RunningProgram {
    /// Starts `programs/faults.c` in one of its modes.
    pub(super) fn program(stage: &Stage, mode: &str, way: &Way<'_>) -> Result<Self, Wrong> {
        Self::other(stage, &stage.program, mode, way)
    }

    /// Starts another program, with one argument.
    pub(super) fn other(
        stage: &Stage,
        program: &Path,
        argument: &str,
        way: &Way<'_>,
    ) -> Result<Self, Wrong> {
        Self::with(stage, program, &[argument], way)
    }

    /// Starts another program, with arguments.
    pub(super) fn with(
        stage: &Stage,
        program: &Path,
        arguments: &[&str],
        way: &Way<'_>,
    ) -> Result<Self, Wrong> {
        let place = stage.place()?;
        let mut command = command_on(way.host, program);
        command
            .args(arguments)
            .env("OCL_ICD_VENDORS", stage.client_vendors.join(""))
            .env_remove("CAUSEWAY_SERVERS")
            .env_remove("CAUSEWAY_CONFIG")
            .current_dir(&place);
        way.set_variables(&mut command);
        if let Some(text) = way.settings()? {
            let file = place.join("servers.toml");
            fs::write(&file, text)?;
            command.env("CAUSEWAY_CONFIG", file);
        } else {
            command.env("CAUSEWAY_SERVERS", way.servers.join(","));
        }
        Self::start(command)
    }

    /// Starts any program.
    pub(super) fn start(mut command: Command) -> Result<Self, Wrong> {
        let mut child = command
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        Ok(Self {
            lines: lines_of(child.stdout.take()),
            warnings: lines_of(child.stderr.take()),
            child,
            said: Vec::new(),
        })
    }

    /// The number of the process and of its process group.
    pub(super) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Waits until the program prints this line.
    pub(super) fn until(&mut self, marker: &str) -> Result<(), Wrong> {
        let end = Instant::now() + PATIENCE;
        while let Ok(line) = self.next(end) {
            let found = line == marker;
            self.said.push(line);
            if found {
                return Ok(());
            }
        }
        let _ = kill_process_group(self.pid(), Signal::KILL);
        let ended = self.end(PATIENCE)?;
        Err(ended.wrong(&format!("it never said \"{marker}\"")))
    }

    /// Waits for the next line that starts so, after the lines already printed.
    pub(super) fn until_next(&mut self, start: &str) -> Result<(), Wrong> {
        while let Ok(line) = self.lines.try_recv() {
            self.said.push(line);
        }
        let end = Instant::now() + PATIENCE;
        while let Ok(line) = self.next(end) {
            let found = line.starts_with(start);
            self.said.push(line);
            if found {
                return Ok(());
            }
        }
        Err(Wrong::new(format!("it said no further \"{start}\"")))
    }

    /// Waits until the program uses its device again, after its first marker in this mode.
    pub(super) fn until_it_goes_on(&mut self, mode: &str) -> Result<(), Wrong> {
        match mode {
            // Writes that were under way may be printed at once, so one more must follow.
            "transfer" => {
                self.until_next("wrote ")?;
                self.until_next("wrote ")
            }
            _ => self.until("round 1"),
        }
    }

    fn next(&self, end: Instant) -> Result<String, mpsc::RecvTimeoutError> {
        self.lines
            .recv_timeout(end.saturating_duration_since(Instant::now()))
    }

    /// Sends the program a line, so that it continues.
    pub(super) fn go_on(&mut self) -> Result<(), Wrong> {
        if let Some(stdin) = &mut self.child.stdin {
            match stdin.write_all(b"\n") {
                // The program has printed its last marker and is gone. Its end is judged by its output.
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
                written => written?,
            }
        }
        Ok(())
    }

    /// Waits for the program's end. Afterwards no member of its group is left.
    pub(super) fn end(&mut self, limit: Duration) -> Result<Ended, Wrong> {
        drop(self.child.stdin.take());
        let end = Instant::now() + limit;
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break Some(status);
            }
            if Instant::now() > end {
                break None;
            }
            thread::sleep(LOOK);
        };
        let _ = kill_process_group(self.pid(), Signal::KILL);
        let exit = match status {
            Some(status) => exit_of(status),
            None => {
                let _ = self.child.wait();
                Exit::TimedOut(limit)
            }
        };
        let end = Instant::now() + Duration::from_secs(1);
        while let Ok(line) = self.next(end) {
            self.said.push(line);
        }
        let mut warned = String::new();
        let left = || end.saturating_duration_since(Instant::now());
        while let Ok(line) = self.warnings.recv_timeout(left()) {
            warned += &line;
            warned.push('\n');
        }
        let ended = Ended {
            exit,
            said: std::mem::take(&mut self.said),
            warned,
        };
        match exit {
            Exit::TimedOut(_) => Err(ended.wrong("it hangs")),
            _ => Ok(ended),
        }
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        // After the end, another process may have the number. So only a process that was not
        // waited for is killed.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill_process_group(self.pid(), Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

/// A program that runs beside a fault and must not notice it.
pub(super) struct Bystander(RunningProgram);

impl Bystander {
    /// Starts the program and waits for its first result.
    pub(super) fn start(stage: &Stage, node: &Node) -> Result<Self, Wrong> {
        Self::on(stage, &node.way())
    }

    /// As [`Self::start`]; the program's commands are executed again if the node's process dies.
    pub(super) fn reexecuting(stage: &Stage, node: &Node) -> Result<Self, Wrong> {
        Self::on(stage, &node.way().reexecuting())
    }

    fn on(stage: &Stage, way: &Way<'_>) -> Result<Self, Wrong> {
        let mut program = RunningProgram::program(stage, "steady", way)?;
        program.until("round 0")?;
        Ok(Self(program))
    }

    /// Checks that the program still computes and ends well.
    pub(super) fn finish(mut self) -> Result<(), Wrong> {
        let wrong = |wrong: Wrong| Wrong::new(format!("the program beside it: {wrong}"));
        self.0.go_on()?;
        self.0.until("round 1").map_err(wrong)?;
        let ended = self.0.end(PATIENCE).map_err(wrong)?;
        ended.assert_said("done").map_err(wrong)
    }

    /// As [`Self::finish`] after the end of another session's process. If that was the host of both, the program has
    /// lost its device instead, and knows its domain and why: the text has `reason`.
    pub(super) fn finish_after_the_end(mut self, node: &Node, reason: &str) -> Result<(), Wrong> {
        if !node.has_hosts() {
            return self.finish();
        }
        let wrong = |wrong: Wrong| Wrong::new(format!("the program beside it: {wrong}"));
        self.0.go_on()?;
        let ended = self.0.end(PATIENCE).map_err(wrong)?;
        ended.lost().map_err(wrong)?;
        ended.assert_told("the sessions of ").map_err(wrong)?;
        ended.assert_told(reason).map_err(wrong)
    }
}
