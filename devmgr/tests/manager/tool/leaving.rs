//! `causeway run` without its terminal, standard error or network, and with signals other than Ctrl-C. The
//! tool abandons neither the program nor the lease.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::super::process::AT_MOST;
use super::run::{run_with, see_none, with_a_device};
use super::running::{RunningTool, runner};
use super::waiting::waiting;

#[tokio::test(flavor = "multi_thread")]
async fn a_standard_error_that_takes_nothing_ends_neither_the_wait_nor_the_program() {
    let (manager, _node, mut ann) = with_a_device("[policy.timing]\nposition = 50\n").await;
    let mut holder = RunningTool::start(&manager, "ann", &run_with(&["--request", "1"]));
    holder.line();
    let bob = runner(&manager, "bob");
    let mut waiter = bob
        .command("run --wait --request 1 -- sh -c exit${IFS}7")
        .stderr(File::options().write(true).open("/dev/full").unwrap())
        .spawn()
        .unwrap();
    let begin = Instant::now();
    while waiting(&mut ann).await == 0 {
        assert!(
            begin.elapsed() < AT_MOST,
            "it does not wait: {:?}",
            waiter.try_wait()
        );
    }
    holder.close();
    assert_eq!(holder.end().code(), Some(0));
    assert_eq!(waiter.wait().unwrap().code(), Some(7));
    see_none(&mut ann).await;
    // A failure is reported by the exit code alone.
    let mut nobody = bob.command("run --request 9 -- true");
    let full = File::options().write(true).open("/dev/full").unwrap();
    assert_eq!(nobody.stderr(full).status().unwrap().code(), Some(125));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_that_is_hung_up_ends_the_program_of_its_sessions_leader() {
    let (manager, _node, mut ann) = with_a_device("").await;
    let tool = runner(&manager, "ann");
    let line = format!(
        "exec {} run --request 1 -- sh -c 'echo in; exec sleep 600'",
        env!("CARGO_BIN_EXE_causeway")
    );
    // `script` is the terminal. The process that it starts leads a session of its own.
    let mut terminal = tool
        .program("script")
        .args(["-qc", &line, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    BufReader::new(terminal.stdout.take().unwrap())
        .read_line(&mut said)
        .unwrap();
    assert_eq!(said.trim_end(), "in");
    assert_eq!(ann.list().await.len(), 1);
    terminal.kill().unwrap();
    terminal.wait().unwrap();
    see_none(&mut ann).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_warnings_of_batch_systems_reach_the_program() {
    let (manager, _node, mut ann) = with_a_device("").await;
    for signal in [Signal::USR1, Signal::USR2, Signal::XCPU] {
        let name = signal.as_raw().to_string();
        let script = format!("trap 'echo warned' {name}; echo ready; read line; exit 3");
        let arguments = ["run", "--wait", "--request", "1", "--", "sh", "-c", &script];
        let mut tool = RunningTool::start(&manager, "ann", &arguments);
        tool.line();
        tool.signal(signal);
        assert_eq!(tool.line(), "warned");
        tool.close();
        assert_eq!(tool.end().code(), Some(3));
    }
    // A program without a handler ends by the signal, and so does the tool.
    let tool = RunningTool::start(&manager, "ann", &run_with(&["--wait", "--request", "1"]));
    tool.line();
    tool.signal(Signal::USR1);
    assert_eq!(tool.end().signal(), Some(Signal::USR1.as_raw()));
    see_none(&mut ann).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_ends_the_giving_back_to_a_manager_that_is_away() {
    let (mut manager, _node, _ann) = with_a_device("").await;
    let script = "trap '' INT; echo ready; cat; echo gone; exit 5";
    let arguments = ["run", "--request", "1", "--", "sh", "-c", script];
    let mut tool = RunningTool::start(&manager, "ann", &arguments);
    tool.line();
    manager.kill();
    tool.close();
    assert_eq!(tool.line(), "gone");
    let begin = Instant::now();
    // The tool may not have noticed the program's end yet. Then the first signals go to the program, which
    // ignores them.
    let told = loop {
        tool.signal(Signal::INT);
        if let Some(told) = tool.error_line_within(Duration::from_millis(100)) {
            break told;
        }
        assert!(begin.elapsed() < AT_MOST, "the tool goes on");
    };
    assert!(told.contains("interrupted by a signal"), "{told}");
    assert_eq!(tool.end().code(), Some(5));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hangup_that_was_ignored_at_the_start_stays_so() {
    let (manager, _node, mut ann) = with_a_device("").await;
    let tool = runner(&manager, "ann");
    let script = "echo in; read line; exit 4";
    let mut kept = tool
        .program("nohup")
        .arg(env!("CARGO_BIN_EXE_causeway"))
        .args(["run", "--request", "1", "--", "sh", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    BufReader::new(kept.stdout.take().unwrap())
        .read_line(&mut said)
        .unwrap();
    assert_eq!(said.trim_end(), "in");
    // `nohup` has replaced itself with the tool, so the process id is the tool's.
    kill_process(Pid::from_child(&kept), Signal::HUP).unwrap();
    drop(kept.stdin.take());
    assert_eq!(kept.wait().unwrap().code(), Some(4));
    see_none(&mut ann).await;
}
