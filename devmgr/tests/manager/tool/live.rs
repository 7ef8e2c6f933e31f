//! `causeway top`: once as text and JSON, and live on a terminal.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use super::super::node::FakeNode;
use super::super::process::{AT_MOST, Manager, request};
use super::Tool;

/// The tool on a terminal that `script` provides.
pub(crate) struct Terminal {
    script: Child,
    keys: ChildStdin,
    output: Receiver<Vec<u8>>,
    /// The output since the last wait.
    shown: String,
}

impl Terminal {
    pub(crate) fn start(tool: &Tool, arguments: &str) -> Terminal {
        let program = env!("CARGO_BIN_EXE_causeway");
        let mut script = tool.program("script");
        script
            .args(["-q", "-f", "-e", "-c"])
            .arg(format!("stty cols 100 rows 30; exec {program} {arguments}"))
            .arg("/dev/null")
            .env("TERM", "xterm")
            .env("SHELL", "/bin/sh")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut script = script.spawn().unwrap();
        let (keys, mut out) = (script.stdin.take().unwrap(), script.stdout.take().unwrap());
        let (tell, output) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = out.read(&mut buffer) {
                if tell.send(buffer[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Terminal {
            script,
            keys,
            output,
            shown: String::new(),
        }
    }

    /// Waits until this text is drawn.
    pub(crate) fn see(&mut self, text: &str) {
        let begin = Instant::now();
        while !self.shown.contains(text) {
            let left = AT_MOST.saturating_sub(begin.elapsed());
            let more = self.output.recv_timeout(left);
            let more = more.unwrap_or_else(|_| panic!("no {text:?} in {:?}", self.shown));
            self.shown += &String::from_utf8_lossy(&more);
        }
        self.shown.clear();
    }

    /// The tool's process id; the tool is the only child of `script`.
    pub(crate) fn pid(&self) -> u32 {
        let pid = self.script.id();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        children.unwrap().trim().parse().unwrap()
    }

    fn resize(&self, columns: u32, rows: u32) {
        let input = PathBuf::from(format!("/proc/{}/fd/0", self.pid()));
        let status = Command::new("stty")
            .arg("-F")
            .arg(std::fs::read_link(input).unwrap())
            .args(["cols", &columns.to_string(), "rows", &rows.to_string()])
            .status();
        assert!(status.unwrap().success());
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for the end, and returns the exit code.
    pub(crate) fn end(mut self) -> Option<i32> {
        // The tool restores the terminal.
        self.see("\u{1b}[?1049l");
        self.script.wait().unwrap().code()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

fn tool(manager: &Manager) -> Tool {
    Tool::of("admin").with("CAUSEWAY_MANAGER", manager.address.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn once_it_prints_what_there_is() {
    let manager = Manager::start();
    let _node = FakeNode::start(manager.address, 1, 2);
    let mut ann = manager.user("ann").await;
    ann.see_nodes(1).await;
    ann.granted(request("1")).await;
    let tool = tool(&manager);
    let load = tool.json("top --interval 100ms");
    assert_eq!(load["nodes"][0]["connected"], true);
    assert_eq!(load["nodes"][0]["devices"].as_array().unwrap().len(), 2);
    assert!(load["nodes"][0]["bytes_per_second"].is_number());
    assert_eq!(load["leases"][0]["user"], "ann");
    let text = tool.does("top --once --interval 100ms");
    assert!(
        text.contains("units leased 1/2") && text.contains("ann"),
        "{text}"
    );
    // Standard output is no terminal, and `--once` is missing.
    let refused = tool.refuses("top");
    assert!(refused.contains("--once"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn live_it_survives_resizing_and_a_manager_that_goes_and_comes_back() {
    let mut manager = Manager::start();
    let _node = FakeNode::start(manager.address, 1, 2);
    let mut ann = manager.user("ann").await;
    ann.see_nodes(1).await;
    let tool = tool(&manager);
    let mut top = Terminal::start(&tool, "top --interval 100ms");
    // Only the changed cells are drawn again.
    top.see("node1");
    ann.granted(request("1")).await;
    top.see("ann");
    top.resize(70, 12);
    top.see("Devices");
    manager.kill();
    top.see("LOST");
    manager.kill_and_restart();
    top.see("q quits");
    top.press("\tq");
    assert_eq!(top.end(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_that_is_not_there_at_the_beginning_is_an_error() {
    let mut manager = Manager::start();
    let tool = tool(&manager);
    manager.kill();
    let mut top = Terminal::start(&tool, "top");
    top.see("cannot be reached");
    assert_eq!(top.script.wait().unwrap().code(), Some(1));
}
