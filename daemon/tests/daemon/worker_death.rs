//! Tests that the death of a worker ends its own session and nothing else.

use causeway_proto::preamble::{Purpose, Verdict};
use rustix::process::Signal;

use crate::support::{Setup, assert_open, eventually, read_to_close};

#[tokio::test]
async fn a_killed_worker_is_its_own_sessions_loss() {
    let daemon = Setup::new().args(&["--spare-workers", "0"]).start();
    let first = daemon.open().await;
    let victim = eventually("one worker", || match daemon.children()[..] {
        [worker] => Some(worker),
        _ => None,
    });
    let second = daemon.open().await;
    let mut firsts = first.connect(Purpose::Commands, 0).unwrap();
    let mut seconds = second.connect(Purpose::Commands, 0).unwrap();

    // A division by zero in a kernel does this.
    rustix::process::kill_process(victim, Signal::FPE).unwrap();
    assert!(read_to_close(&mut firsts).is_empty());
    daemon.until_sessions(1).await;
    eventually("the cause in the log", || {
        daemon.log().contains("signal SIGFPE").then_some(())
    });
    let refused = first.connect(Purpose::Bulk, 0).unwrap_err();
    assert_eq!(refused, Verdict::UnknownSession);
    assert_open(&mut seconds);
    assert!(second.connect(Purpose::Bulk, 0).is_ok());
    daemon.assert_serves().await;
}

#[tokio::test]
async fn no_worker_outlives_a_killed_daemon() {
    let mut daemon = Setup::new().start();
    let session = daemon.open().await;
    let mut commands = session.connect(Purpose::Commands, 0).unwrap();
    let workers = daemon.children();
    assert!(!workers.is_empty());
    daemon.signal(Signal::KILL);
    daemon.wait();
    assert!(read_to_close(&mut commands).is_empty());
    for worker in workers {
        eventually("the worker ends", || {
            (!crate::support::is_alive(worker)).then_some(())
        });
    }
}
