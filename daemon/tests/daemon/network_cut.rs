//! Tests that a cut network ends the session within the heartbeat limit, and only then.
//!
//! The test runs itself again inside a network namespace, and cuts the network by disabling the loopback there.

use std::io::{Read, Write};
use std::process::Command;
use std::time::{Duration, Instant};

use causeway_proto::command::EventBatch;
use causeway_proto::frame::{self, PREFIX};
use causeway_proto::preamble::Purpose;
use prost::Message;
use rustix::process::Signal;

use crate::carriers::{frame_of, ping};
use crate::support::{Setup, assert_open, children_of, eventually, is_alive};

/// Distinguishes the inner run from a manual `--ignored`.
const INSIDE: &str = "CAUSEWAY_TEST_INSIDE_NAMESPACE";

#[test]
fn a_cut_network_is_noticed_in_time() {
    inside("network_cut::inside_a_namespace");
}

#[test]
fn a_session_outlives_a_cut_network() {
    inside("network_cut::inside_another_namespace");
}

/// Runs a test inside of a network namespace.
fn inside(test: &str) {
    let possible = Command::new("unshare").args(["-n", "true"]).status();
    if !possible.is_ok_and(|status| status.success()) {
        eprintln!("skipped: no network namespace can be made here");
        return;
    }
    let inner = Command::new("unshare")
        .arg("-n")
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", test])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&inner.stdout);
    assert!(inner.status.success(), "{said}");
    assert!(said.contains("1 passed"), "{said}");
}

#[tokio::test]
#[ignore = "run by a_cut_network_is_noticed_in_time, inside a namespace"]
async fn inside_a_namespace() {
    if std::env::var_os(INSIDE).is_none() {
        return;
    }
    loopback("up");
    let daemon = Setup::new()
        .args(&["--spare-workers", "0"])
        .config("[heartbeat]\ninterval_ms = 100\nlimit_ms = 1000\n")
        .start();
    let session = daemon.open().await;
    let mut commands = session.connect(Purpose::Commands, 0).unwrap();
    let _heartbeat = session.connect(Purpose::Heartbeat, 0).unwrap();
    let [worker] = children_of(daemon.pid())[..] else {
        panic!("one worker")
    };

    // This client reads no heartbeat, as if it were stopped. Its kernel answers, so the client is alive.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert_open(&mut commands);
    assert!(is_alive(worker));

    loopback("down");
    let cut = Instant::now();
    eventually("the worker ends", || (!is_alive(worker)).then_some(()));
    let took = cut.elapsed();
    assert!(took >= Duration::from_millis(500), "too soon: {took:?}");
    assert!(took < Duration::from_secs(4), "too late: {took:?}");
    eventually("the loss in the log", || {
        daemon
            .log()
            .contains("the connection to the client broke")
            .then_some(())
    });
    loopback("up");
    daemon.until_sessions(0).await;
    daemon.assert_serves().await;
    daemon.signal(Signal::TERM);
}

#[tokio::test]
#[ignore = "run by a_session_outlives_a_cut_network, inside a namespace"]
async fn inside_another_namespace() {
    if std::env::var_os(INSIDE).is_none() {
        return;
    }
    loopback("up");
    let daemon = Setup::with_drivers()
        .args(&["--spare-workers", "0"])
        .config("[heartbeat]\ninterval_ms = 100\nlimit_ms = 1000\n")
        .start();
    // After a close, the session would end in no time.
    let session = daemon.open_for(200, 4000).await;
    let mut commands = session.connect(Purpose::Commands, 0).unwrap();
    let _heartbeat = session.connect(Purpose::Heartbeat, 0).unwrap();
    let [worker] = children_of(daemon.pid())[..] else {
        panic!("one worker")
    };
    commands.write_all(&frame_of(&ping(1))).unwrap();
    loopback("down");
    eventually("the client is away, in the log", || {
        daemon.log().contains("the client is away").then_some(())
    });
    loopback("up");
    let (mut commands, applied) = session.connect_after(Purpose::Commands, 0, 0).unwrap();
    let _heartbeat = session.connect(Purpose::Heartbeat, 0).unwrap();
    if applied == 0 {
        commands.write_all(&frame_of(&ping(1))).unwrap();
    }
    // The events that the client has not handled come again, or for the first time.
    let mut prefix = [0; PREFIX];
    commands.read_exact(&mut prefix).unwrap();
    let mut bytes = vec![0; frame::length(prefix).unwrap()];
    commands.read_exact(&mut bytes).unwrap();
    assert_eq!(EventBatch::decode(&bytes[..]).unwrap().number, 1);
    eventually("the client is back, in the log", || {
        daemon.log().contains("the client is back").then_some(())
    });
    assert!(is_alive(worker));

    loopback("down");
    let cut = Instant::now();
    eventually("the worker ends", || (!is_alive(worker)).then_some(()));
    let took = cut.elapsed();
    assert!(took >= Duration::from_millis(4000), "too soon: {took:?}");
    assert!(took < Duration::from_secs(9), "too late: {took:?}");
    loopback("up");
    daemon.until_sessions(0).await;
    daemon.signal(Signal::TERM);
}

fn loopback(state: &str) {
    let done = Command::new("ip")
        .args(["link", "set", "lo", state])
        .status();
    assert!(done.unwrap().success());
}
