//! Tests of reports on sessions to the manager and in the log.

use causeway_proto::manager::Heartbeat;

use crate::common::manager::{Manager, USER, grant};
use crate::common::{Daemon, Session};
use crate::support::cluster;

#[test]
fn sessions_of_one_lease_come_and_go_and_the_manager_is_told() {
    let cluster = cluster();
    let (lease, credential) = cluster.lease();
    let [first, second] = [1, 2].map(|count| {
        let session = cluster.open(&credential);
        cluster.node.expect_sessions(&lease, count);
        session
    });
    drop(first);
    cluster.node.expect_sessions(&lease, 1);
    drop(second);
    cluster.node.expect_sessions(&lease, 0);
    // The manager decides that the lease is over.
    let _third = cluster.open(&credential);
    cluster.node.expect_sessions(&lease, 1);
}

#[test]
fn heartbeats_tell_what_each_lease_uses() {
    let cluster = cluster();
    let (lease, credential) = cluster.lease();
    cluster.node.grant(&grant(2, 12, &[(0, 0, 0, 0)]));
    let mut session = cluster.open(&credential);
    session.ping();
    let of = |beat: &Heartbeat, lease: &[u8]| {
        let mut leases = beat.leases.iter();
        leases.find(|of| of.lease_id == lease).cloned()
    };
    let beat = cluster.node.beat(|beat| beat.commands > 0);
    let used = of(&beat, &lease.lease_id).unwrap();
    assert_eq!((used.commands, used.sessions), (beat.commands, 1));
    let idle = of(&beat, &[2; 16]).unwrap();
    assert_eq!((idle.bytes, idle.commands, idle.sessions), (0, 0, 0));
    // The counts of a session stay in the lease's and the node's counts.
    drop(session);
    let beat = cluster.node.beat(|beat| beat.sessions == 0);
    let left = of(&beat, &lease.lease_id).unwrap();
    assert!(left.commands >= used.commands && left.sessions == 0);
    cluster.node.withdraw(&lease);
    let beat = cluster
        .node
        .beat(|beat| of(beat, &lease.lease_id).is_none());
    assert!(beat.commands >= left.commands);
}

#[test]
fn every_line_about_a_session_tells_whose_it_is() {
    let manager = Manager::start();
    let state = tempfile::tempdir().unwrap();
    let log = state.path().join("log");
    let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_causewayd"));
    program.stderr(std::fs::File::create(&log).unwrap());
    let arguments = ["--manager", &manager.address.to_string()];
    let arguments = [&arguments[..], &["--log", "debug", "--log-format", "json"]].concat();
    let state_directory = state.path().to_str().unwrap();
    let daemon = Daemon::by_fake(
        program,
        "devices = 3",
        &arguments,
        &[("STATE_DIRECTORY", state_directory)],
    );
    let node = manager.welcomed(10);
    let lease = grant(1, 11, &[(0, 1, 0, 0)]);
    node.grant(&lease);
    let session = Session::try_open(&daemon, &manager.credential(&node, &lease)).unwrap();
    let name = format!("{:?}", session.id());
    drop(session);
    node.expect_sessions(&lease, 1);
    node.expect_sessions(&lease, 0);
    assert!(daemon.terminate());
    let log = std::fs::read_to_string(log).unwrap();
    let mut said = Vec::new();
    for line in log.lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect(line);
        let (fields, target) = (&line["fields"], line["target"].as_str().unwrap());
        let is_workers = target.starts_with("causeway_daemon::worker");
        // A worker belongs to no session until it is assigned.
        if fields.get("session").is_none() {
            assert!(!is_workers, "{line}");
            continue;
        }
        assert_eq!(fields["session"], name, "{line}");
        assert_eq!(fields["lease"], "01010101", "{line}");
        assert_eq!(fields["user"], USER, "{line}");
        said.push(fields["message"].as_str().unwrap().to_owned());
    }
    for message in [
        "session opened",
        "client of a session",
        "the worker has a session now",
        "the client closed the session",
        "session ended",
    ] {
        assert!(said.iter().any(|of| of == message), "{message}: {said:?}");
    }
}
