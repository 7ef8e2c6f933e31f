//! The process that announces a node: it is replaced when it dies, and there is none where nobody could reach the daemon.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use crate::frames::servers::*;
use crate::stage::*;

#[test]
fn an_announcer_that_dies_is_replaced_and_loopback_has_none() {
    own_process!(waits);
    let Some(network) = network(2) else { return };
    let certificates = Certificates::new();
    certificates.node("gpu1");
    let daemon = announced(network.host(1), "A", &certificates.flags("gpu1"));
    let first = announcer(&daemon);
    heard(network.host(0), &["gpu1"]);
    let pid = Pid::from_raw(i32::try_from(first).expect("a number")).expect("a process");
    kill_process(pid, Signal::KILL).expect("the announcer is there");
    eventually("another announcer", || {
        (announcer(&daemon) != first).then_some(())
    });
    heard(network.host(0), &["gpu1"]);
    assert!(
        daemon.log().contains("has ended; it is started again"),
        "{}",
        daemon.log()
    );
    // Workers are not announcers: the process has neither files of sessions nor capabilities.
    let status = std::fs::read_to_string(format!("/proc/{}/status", announcer(&daemon)));
    let status = status.expect("procfs");
    for expected in ["NoNewPrivs:\t1", "Seccomp:\t2", "CapEff:\t0000000000000000"] {
        assert!(status.contains(expected), "{expected}: {status}");
    }
    let mut refused = causewayd("127.0.0.1:0");
    let refused = refused.arg("--announce").stderr(Stdio::piped()).output();
    let refused = refused.expect("causewayd starts");
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && text.contains("listens on this machine only"),
        "{text}"
    );
}
