//! A running tool: its output, signals to it, and its end.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::super::process::{AT_MOST, Manager};
use super::super::real_node::library;
use super::Tool;

/// A running tool; killed when dropped.
pub(crate) struct RunningTool {
    child: Child,
    out: Receiver<String>,
    err: Receiver<String>,
    _tool: Tool,
}

/// A tool's exit status and remaining output.
#[derive(Debug)]
pub(crate) struct ToolEnd {
    pub(crate) status: ExitStatus,
    /// The output that the test had not read before.
    pub(crate) out: String,
    pub(crate) err: String,
}

impl ToolEnd {
    /// The exit code.
    pub(crate) fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// The signal that ended it.
    pub(crate) fn signal(&self) -> Option<i32> {
        self.status.signal()
    }

    /// The output, parsed as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// A user whose environment names the manager.
pub(crate) fn tool(manager: &Manager, user: &str) -> Tool {
    Tool::of(user).with("CAUSEWAY_MANAGER", manager.address.to_string())
}

/// The same user, with the files that `causeway run` needs. They are built before, because that may take
/// longer than a lease lasts.
pub(crate) fn runner(manager: &Manager, user: &str) -> Tool {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    tool(manager, user).with("CAUSEWAY_LIBRARY", LIBRARY.get_or_init(library))
}

impl RunningTool {
    /// Starts `causeway ARGUMENTS` as this user.
    pub(crate) fn start(manager: &Manager, user: &str, arguments: &[&str]) -> RunningTool {
        RunningTool::with(|tool| tool, manager, user, arguments)
    }

    /// Starts the tool in this environment.
    pub(crate) fn with(
        change: impl FnOnce(Tool) -> Tool,
        manager: &Manager,
        user: &str,
        arguments: &[&str],
    ) -> RunningTool {
        let tool = change(match arguments {
            ["run", ..] => runner(manager, user),
            _ => tool(manager, user),
        });
        let mut child = tool
            .program(env!("CARGO_BIN_EXE_causeway"))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let out = lines(child.stdout.take().unwrap());
        let err = lines(child.stderr.take().unwrap());
        RunningTool {
            child,
            out,
            err,
            _tool: tool,
        }
    }

    /// The next line on standard output, of the tool or its program.
    pub(crate) fn line(&self) -> String {
        self.out.recv_timeout(AT_MOST).expect("a line")
    }

    /// The next line on standard error.
    pub(crate) fn error_line(&self) -> String {
        self.err.recv_timeout(AT_MOST).expect("a line")
    }

    /// The next line on standard error. `None`: no line came in this time.
    pub(crate) fn error_line_within(&self, limit: Duration) -> Option<String> {
        self.err.recv_timeout(limit).ok()
    }

    /// Sends a signal to the tool alone.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Closes the standard input.
    pub(crate) fn close(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Kills the tool with SIGKILL; its program may go on.
    pub(crate) fn killed(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits until the tool has ended.
    pub(crate) fn end(mut self) -> ToolEnd {
        let rest = |lines: &Receiver<String>| {
            let mut text = String::new();
            loop {
                match lines.recv_timeout(AT_MOST) {
                    Ok(line) => text += &(line + "\n"),
                    Err(RecvTimeoutError::Disconnected) => return text,
                    Err(error) => panic!("the tool does not end: {error}; so far: {text}"),
                }
            }
        };
        let (out, err) = (rest(&self.out), rest(&self.err));
        let status = self.child.wait().unwrap();
        ToolEnd { status, out, err }
    }
}

impl Drop for RunningTool {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a tool that ends by itself, and returns its whole output.
pub(crate) fn run(manager: &Manager, user: &str, arguments: &[&str]) -> ToolEnd {
    let mut running = RunningTool::start(manager, user, arguments);
    running.close();
    running.end()
}

fn lines(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (send, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if send.send(line).is_err() {
                return;
            }
        }
    });
    lines
}
