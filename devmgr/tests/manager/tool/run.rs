//! `causeway run` with a manager's devices: the program has the devices while it runs. They are free
//! afterwards, however the program ends.

use std::time::Instant;

use rustix::process::Signal;

use super::super::node::FakeNode;
use super::super::process::{AT_MOST, Client, Manager, hex, waiting};
use super::super::real_node::Daemon;
use super::running::{RunningTool, run, tool};
use super::{Tool, said};

/// A program that prints its lease and runs until its standard input ends.
const PROGRAM: [&str; 3] = ["sh", "-c", "echo $CAUSEWAY_LEASE; exec cat"];

pub(super) fn run_with<'a>(options: &[&'a str]) -> Vec<&'a str> {
    [&["run"], options, &["--"], &PROGRAM].concat()
}

/// Waits until the user has no lease.
pub(super) async fn see_none(client: &mut Client) {
    let begin = Instant::now();
    while !client.list().await.is_empty() {
        assert!(begin.elapsed() < AT_MOST, "the lease does not end");
    }
}

/// A manager with this configuration, a node with one device, and the user ann.
pub(super) async fn with_a_device(config: &str) -> (Manager, FakeNode, Client) {
    let manager = Manager::configured(config);
    let node = FakeNode::start(manager.address, 1, 1);
    let mut ann = manager.user("ann").await;
    ann.see_nodes(1).await;
    (manager, node, ann)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_program_sees_its_devices_and_no_others() {
    let manager = Manager::start();
    let folder = tempfile::tempdir().unwrap();
    // Two devices; the second is offered as two shares.
    let _daemon = Daemon::start(manager.address, folder.path());
    let mut ann = manager.user("ann").await;
    ann.see_nodes(1).await;
    let listed = |request| {
        let arguments = ["run", "--request", request, "--", "clinfo", "--raw", "-l"];
        let ended = run(&manager, "ann", &arguments);
        assert_eq!(ended.code(), Some(0), "{ended:?}");
        ended.out.matches("Fake Device").count()
    };
    assert_eq!((listed("1"), listed("2")), (1, 2));
    see_none(&mut ann).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lease_lasts_as_long_as_the_program_and_its_end_is_the_tools() {
    // Without renewals, the lease would expire soon.
    let (manager, _node, mut ann) = with_a_device("[policy.timing]\nlease = 2000\n").await;
    let mut bob = manager.user("bob").await;
    let mut tool = RunningTool::start(&manager, "ann", &run_with(&["--request", "1"]));
    let lease = tool.line();
    assert_eq!(lease.len(), 32, "{lease}");
    // For longer than an unrenewed lease lasts, another user's request waits in vain.
    let leases = ann.list().await;
    assert_eq!(hex(&leases[0].lease_id), lease);
    assert_eq!(leases[0].client.as_ref().unwrap().program, "sh");
    while ann.list().await[0].age_ms < 4500 {}
    tool.close();
    let ended = tool.end();
    assert_eq!((ended.code(), ended.err.as_str()), (Some(0), ""));
    see_none(&mut ann).await;
    let granted = bob.granted(waiting("1")).await;
    bob.release(&granted.lease_id).await.unwrap();
    for (script, code) in [("exit 7", 7), ("exit 0", 0)] {
        let arguments = ["run", "--wait", "--request", "1", "--", "sh", "-c", script];
        assert_eq!(run(&manager, "ann", &arguments).code(), Some(code));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn signals_reach_the_program_and_the_lease_is_given_back() {
    let (manager, node, mut ann) = with_a_device("").await;
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let tool = RunningTool::start(&manager, "ann", &run_with(&["--request", "1", "--wait"]));
        tool.line();
        tool.signal(signal);
        let ended = tool.end();
        assert_eq!(ended.signal(), Some(signal.as_raw()), "{ended:?}");
        see_none(&mut ann).await;
    }
    // The tool waits for a program that ignores the signal.
    let stubborn = "trap 'echo no' TERM; echo ready; read line; exit 3";
    let arguments = [
        "run",
        "--wait",
        "--request",
        "1",
        "--",
        "sh",
        "-c",
        stubborn,
    ];
    let mut tool = RunningTool::start(&manager, "ann", &arguments);
    tool.line();
    tool.signal(Signal::TERM);
    assert_eq!(tool.line(), "no");
    tool.close();
    let ended = tool.end();
    assert_eq!(ended.code(), Some(3), "{ended:?}");
    see_none(&mut ann).await;
    node.assert_no_fault();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lease_of_a_tool_that_was_killed_runs_out() {
    let (manager, _node, mut ann) = with_a_device("[policy.timing]\nlease = 1000\n").await;
    let mut bob = manager.user("bob").await;
    let mut tool = RunningTool::start(&manager, "ann", &run_with(&["--request", "1"]));
    tool.line();
    tool.killed();
    see_none(&mut ann).await;
    bob.granted(waiting("1")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_free_is_refused_at_once_with_the_reason() {
    let (manager, _node, mut ann) = with_a_device("").await;
    let mut holder = RunningTool::start(&manager, "ann", &run_with(&["--request", "1"]));
    holder.line();
    for (asked, reason) in [
        ("1", "1 device is there, 0 of them are free"),
        ("2", "1 device is there, 2 asked for"),
        ("1, TIPE=GPU", "unknown property 'TIPE'"),
    ] {
        let arguments = ["run", "--request", asked, "--", "echo", "started"];
        let ended = run(&manager, "bob", &arguments);
        assert!(matches!(ended.code(), Some(2 | 125)), "{ended:?}");
        assert!(
            ended.err.contains(reason) && ended.out.is_empty(),
            "{ended:?}"
        );
    }
    // If the program cannot be started, its devices are free again.
    holder.close();
    assert_eq!(holder.end().code(), Some(0));
    let arguments = [
        "run",
        "--wait",
        "--request",
        "1",
        "--",
        "/nonexistent/program",
    ];
    let ended = run(&manager, "bob", &arguments);
    assert_eq!(ended.code(), Some(127), "{ended:?}");
    see_none(&mut ann).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_outlives_its_lease_and_the_reason_is_told() {
    let manager = Manager::start();
    let _node = FakeNode::start(manager.address, 1, 1);
    let mut root = manager.user("root").await;
    root.see_nodes(1).await;
    let mut tool = RunningTool::start(&manager, "ann", &run_with(&["--request", "1"]));
    tool.line();
    let lease = root.list().await[0].lease_id.clone();
    root.revoke_lease(&lease, "maintenance").await.unwrap();
    let told = tool.error_line();
    assert!(told.contains("revoked the lease: maintenance"), "{told}");
    tool.close();
    assert_eq!(tool.end().code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_manager_may_go_and_return_while_the_program_runs() {
    let mut manager = Manager::configured("[policy.timing]\nlease = 2000\n");
    let _node = FakeNode::start(manager.address, 1, 1);
    manager.user("ann").await.see_nodes(1).await;
    let mut tool = RunningTool::start(&manager, "ann", &run_with(&["--request", "1"]));
    let lease = tool.line();
    manager.kill_and_restart();
    let mut ann = manager.user("ann").await;
    ann.see_nodes(1).await;
    // A renewal since then has connected the tool to the new manager.
    let begin = Instant::now();
    loop {
        let leases = ann.list().await;
        assert_eq!(hex(&leases[0].lease_id), lease);
        if leases[0].age_ms > 3000 {
            break;
        }
        assert!(begin.elapsed() < AT_MOST, "the lease's age does not grow");
    }
    tool.close();
    let ended = tool.end();
    assert_eq!((ended.code(), ended.err.as_str()), (Some(0), ""));
    see_none(&mut ann).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_the_environment_names_are_found_wherever_the_program_goes() {
    let manager = Manager::start();
    let script = "cd /; echo $CAUSEWAY_TOKEN_FILE; echo $CAUSEWAY_CA";
    let arguments = [
        "run",
        "--token-file",
        "a/token",
        "--servers",
        "127.0.0.1:1",
        "--",
        "sh",
        "-c",
        script,
    ];
    let ended = run(&manager, "ann", &arguments);
    let whole = ended.out.starts_with('/') && ended.out.ends_with("/a/token\n\n");
    assert!(whole, "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lease_is_given_back_to_a_manager_that_was_away_for_a_moment() {
    let (mut manager, node, _) = with_a_device("").await;
    let script = "echo ready; cat; echo gone";
    let arguments = ["run", "--request", "1", "--", "sh", "-c", script];
    let mut tool = RunningTool::start(&manager, "ann", &arguments);
    tool.line();
    manager.kill();
    tool.close();
    assert_eq!(tool.line(), "gone");
    manager.kill_and_restart();
    let ended = tool.end();
    assert_eq!((ended.code(), ended.err.as_str()), (Some(0), ""));
    see_none(&mut manager.user("ann").await).await;
    node.assert_no_fault();
}

#[tokio::test(flavor = "multi_thread")]
async fn terms_of_the_environment_and_of_files_hold_for_what_the_line_asks_for() {
    let (manager, _node, mut ann) = with_a_device("").await;
    let address = manager.address.to_string();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("servers.toml");
    let told = |tool: Tool, arguments: &str| said(tool.command(arguments));
    let wrong = |name, value| told(tool(&manager, "ann").with(name, value), "request 1");
    for (name, value, word) in [
        (
            "CAUSEWAY_PRIORITY",
            "urgent",
            "expected `low`, `normal` or `high`",
        ),
        ("CAUSEWAY_TIME_LIMIT", "soon", "CAUSEWAY_TIME_LIMIT"),
    ] {
        let said = wrong(name, value);
        assert_eq!(said.code, Some(1), "{said:?}");
        assert!(said.err.contains(word), "{said:?}");
    }
    // A flag overrides an invalid value in the environment.
    let urgent = tool(&manager, "ann").with("CAUSEWAY_PRIORITY", "urgent");
    urgent.does("request 1 --priority high");
    // The lease ends, and the program goes on.
    for is_in_file in [true, false] {
        let runner = RunningTool::with(
            |tool| match is_in_file {
                true => {
                    let text = format!("[manager]\naddress = \"{address}\"\ntime_limit = \"1s\"\n");
                    std::fs::write(&file, text).unwrap();
                    tool.with("CAUSEWAY_CONFIG", file.clone())
                }
                false => tool.with("CAUSEWAY_TIME_LIMIT", "1s"),
            },
            &manager,
            "ann",
            &run_with(&["--request", "1"]),
        );
        let told = runner.error_line();
        assert!(told.contains("has ended while the program runs"), "{told}");
        see_none(&mut ann).await;
    }
}
