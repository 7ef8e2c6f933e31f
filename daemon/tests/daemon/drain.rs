//! Tests of SIGTERM: new sessions are refused, and running ones may finish. A second signal ends everything.

use causeway_proto::preamble::Purpose;
use rustix::process::Signal;
use tonic::Code;

use crate::support::{Setup, assert_open, is_alive, read_to_close};

#[tokio::test]
async fn an_idle_daemon_ends_at_once_and_leaves_nothing() {
    let mut daemon = Setup::new().start();
    daemon.inventory().await;
    let workers = daemon.children();
    daemon.signal(Signal::TERM);
    assert!(daemon.wait().success());
    assert!(!workers.into_iter().any(is_alive));
}

#[tokio::test]
async fn running_sessions_finish_and_no_new_one_begins() {
    let mut daemon = Setup::new().start();
    let session = daemon.open().await;
    let mut commands = session.connect(Purpose::Commands, 0).unwrap();
    daemon.signal(Signal::TERM);
    daemon.until(|status| status.draining).await;
    let refused = daemon.try_open().await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert_open(&mut commands);
    let lane = session.connect(Purpose::Bulk, 0);
    assert!(
        lane.is_ok(),
        "a running session gets its further connections"
    );
    drop(commands);
    assert!(daemon.wait().success());
}

#[tokio::test]
async fn patience_has_a_limit() {
    let mut daemon = Setup::new().args(&["--drain-limit", "1"]).start();
    let session = daemon.open().await;
    let mut commands = session.connect(Purpose::Commands, 0).unwrap();
    daemon.signal(Signal::TERM);
    let told = read_to_close(&mut commands);
    let told = String::from_utf8_lossy(&told);
    assert!(told.contains("the node's daemon was stopped"), "{told:?}");
    assert!(daemon.wait().success());
}

#[tokio::test]
async fn a_second_signal_ends_at_once() {
    let mut daemon = Setup::new().args(&["--drain-limit", "3600"]).start();
    let session = daemon.open().await;
    let mut commands = session.connect(Purpose::Commands, 0).unwrap();
    // This worker is stopped, so it cannot clean up.
    let workers = daemon.children();
    for worker in &workers {
        rustix::process::kill_process(*worker, Signal::STOP).unwrap();
    }
    daemon.signal(Signal::INT);
    // Two simultaneous signals would count as one.
    daemon.until(|status| status.draining).await;
    daemon.signal(Signal::INT);
    assert!(daemon.wait().success());
    assert!(read_to_close(&mut commands).is_empty());
    assert!(!workers.into_iter().any(is_alive));
}
