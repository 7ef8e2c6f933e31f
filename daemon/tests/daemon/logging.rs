//! Tests that all processes of a daemon share one log.

use crate::support::{Daemon, Setup, eventually};

/// The line that a worker logs at `debug` when it gets its session.
const WORKERS_LINE: &str = "the worker has a session now";

async fn log_of_a_session(daemon: &Daemon) -> String {
    daemon.open().await;
    eventually("the worker's line", || {
        Some(daemon.log()).filter(|log| log.contains(WORKERS_LINE))
    })
}

#[tokio::test]
async fn the_environment_reaches_every_process() {
    let daemon = Setup::new().env("CAUSEWAYD_LOG", "debug").start();
    log_of_a_session(&daemon).await;
}

#[tokio::test]
async fn every_line_is_json_when_asked_for() {
    let flags = ["--log", "debug", "--log-format", "json"];
    let daemon = Setup::new().args(&flags).start();
    for line in log_of_a_session(&daemon).await.lines() {
        let parsed: serde_json::Value = serde_json::from_str(line).expect(line);
        for key in ["timestamp", "level", "fields", "target"] {
            assert!(!parsed[key].is_null(), "{line}");
        }
    }
}

fn full() -> std::fs::File {
    let full = std::fs::File::options().write(true).open("/dev/full");
    full.unwrap()
}

#[tokio::test]
async fn a_log_that_cannot_be_written_ends_no_process_of_the_daemon() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    for stderr in [std::process::Stdio::from(full()), writer.into()] {
        let setup = Setup::new().env("CAUSEWAYD_LOG", "debug").stderr(stderr);
        let daemon = setup.start();
        daemon.open().await;
    }
}

#[test]
fn why_it_does_not_start_changes_no_exit_code_where_it_cannot_be_said() {
    let mut daemon = std::process::Command::new(env!("CARGO_BIN_EXE_causewayd"));
    daemon.args(["--config", "/no/such/file"]).stderr(full());
    assert_eq!(daemon.status().unwrap().code(), Some(2));
}
