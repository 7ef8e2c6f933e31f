//! A tool that runs for a while: what it says meanwhile, signals to it, and how it ends.

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

/// See the module; killed when dropped.
pub(crate) struct RunningTool {
    child: Child,
    out: Receiver<String>,
    err: Receiver<String>,
    _tool: Tool,
}

/// How a tool ended.
#[derive(Debug)]
pub(crate) struct ToolEnd {
    pub(crate) status: ExitStatus,
    /// What it had not been heard saying before.
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

    /// What it printed, as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// This user, who knows the manager.
pub(crate) fn tool(manager: &Manager, user: &str) -> Tool {
    Tool::of(user).with("CAUSEWAY_MANAGER", manager.address.to_string())
}

/// The same, with what `causeway run` needs. To build it may take longer than a lease lasts.
pub(crate) fn runner(manager: &Manager, user: &str) -> Tool {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    tool(manager, user).with("CAUSEWAY_LIBRARY", LIBRARY.get_or_init(library))
}

impl RunningTool {
    /// `causeway ARGUMENTS` of this user.
    pub(crate) fn start(manager: &Manager, user: &str, arguments: &[&str]) -> RunningTool {
        RunningTool::with(|tool| tool, manager, user, arguments)
    }

    /// The same in another environment.
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

    /// The next line on its, or its program's, standard output.
    pub(crate) fn line(&self) -> String {
        self.out.recv_timeout(AT_MOST).expect("a line")
    }

    /// The next line on standard error.
    pub(crate) fn error_line(&self) -> String {
        self.err.recv_timeout(AT_MOST).expect("a line")
    }

    /// The same; `None`: there is none so soon.
    pub(crate) fn error_line_within(&self, limit: Duration) -> Option<String> {
        self.err.recv_timeout(limit).ok()
    }

    /// To the tool alone.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Nothing more comes from its standard input.
    pub(crate) fn close(&mut self) {
        drop(self.child.stdin.take());
    }

    /// It is dead, as by `kill -9`; its program may live.
    pub(crate) fn killed(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Until it has ended.
    pub(crate) fn end(mut self) -> ToolEnd {
        let rest = |lines: &Receiver<String>| {
            let mut text = String::new();
            loop {
                match lines.recv_timeout(AT_MOST) {
                    Ok(line) => text += &(line + "\n"),
                    Err(RecvTimeoutError::Disconnected) => return text,
                    Err(error) => panic!("it does not end: {error}; so far: {text}"),
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

/// The whole of what it says, of one that ends by itself.
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
