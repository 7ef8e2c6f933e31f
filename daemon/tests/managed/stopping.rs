//! Tests of drained nodes and ending daemons.

use causeway_proto::manager::{Drain, Stopping, from_node, to_node};
use rustix::process::{Pid, Signal, kill_process};

use crate::common::manager::grant;
use crate::support::{Cluster, cluster};

#[test]
fn a_draining_node_takes_no_new_lease() {
    let cluster = cluster();
    let (lease, credential) = cluster.lease();
    let drain = |draining| {
        cluster
            .node
            .say(to_node::Message::Drain(Drain { draining }))
    };
    drain(true);
    let other = grant(2, 12, &[(0, 0, 0, 0)]);
    assert!(cluster.node.grant_refused(&other).contains("draining"));
    let _session = cluster.open(&credential);
    cluster.node.expect_sessions(&lease, 1);
    drain(false);
    cluster.node.grant(&grant(2, 13, &[(0, 0, 0, 0)]));
}

#[test]
fn a_daemon_that_is_told_to_end_takes_no_lease_and_lets_go_of_those_that_it_has() {
    let cluster = cluster();
    let (used, credential) = cluster.lease();
    let unused = grant(2, 12, &[(0, 0, 0, 0)]);
    cluster.node.grant(&unused);
    let session = cluster.open(&credential);
    cluster.node.expect_sessions(&used, 1);
    let daemon = Pid::from_raw(cluster.daemon.pid() as i32).unwrap();
    kill_process(daemon, Signal::TERM).unwrap();
    let told = from_node::Message::Stopping(Stopping {});
    assert_eq!(cluster.node.word(), told);
    let late = grant(3, 13, &[(0, 2, 0, 0)]);
    assert!(cluster.node.grant_refused(&late).contains("stopping"));
    let remarks = cluster.daemon.inventory_for(&credential).remarks;
    assert!(
        remarks.iter().any(|of| of.starts_with("STOPPING")),
        "{remarks:?}"
    );
    // The node reports it to every manager that it joins meanwhile, and running work goes on.
    let Cluster {
        daemon,
        node,
        manager,
        state: _state,
    } = cluster;
    drop(node);
    let node = manager.joined();
    assert!(node.hello.stopping && node.hello.leases.len() == 2);
    node.welcome(&manager.key, 10);
    drop(session);
    node.expect_sessions(&used, 0);
    node.expect_withdrawn(&used);
    node.expect_withdrawn(&unused);
    // All of it was reported before the node disconnected.
    node.left();
    assert!(daemon.terminate());
}
