//! Tests of leased programs whose worker dies, and whose commands another one executes again.

use std::time::Duration;

use causeway_proto::manager::LeavingState;

use crate::cluster::{Cluster, LeaseState, played};
use crate::frames::servers::*;

const DEVICE: &str = "[[device]]\nname = \"A\"";
const SURVIVES: &[(&str, &str)] = &[("CAUSEWAY_REEXECUTE", "1")];

/// How many of the node's sessions have got another worker so far.
fn replaced(node: &Daemon) -> usize {
    node.log().matches("another one takes its place").count()
}

#[test]
fn a_leased_program_survives_its_workers_and_then_moves() {
    if played() {
        return;
    }
    let cluster = Cluster::start("");
    let nodes = [cluster.node(DEVICE), cluster.node(DEVICE)];
    let kill = || nodes.iter().for_each(|node| kill_workers_of(node.pid()));
    let mut program = cluster.using_with("1", SURVIVES);
    assert_eq!(program.ask("keep"), "kept");
    for sum in 1..4 {
        assert_eq!(program.code("add"), CL_SUCCESS);
        kill();
        assert_eq!(program.ask("sum"), format!("{sum} added"));
    }
    // With commands under way.
    program.tell("many");
    for _ in 0..2 {
        let before: usize = nodes.iter().map(replaced).sum();
        kill();
        eventually("another worker", || {
            let now: usize = nodes.iter().map(replaced).sum();
            (now > before).then_some(())
        });
    }
    assert_eq!(program.answer(), "200");
    assert_eq!(program.ask("sum"), "203 added");
    assert_eq!(cluster.states(), [LeaseState::Active]);
    // More than the kills, if a spare worker was killed and not reaped yet.
    assert!(nodes.iter().map(replaced).sum::<usize>() >= 5);

    // ---- to another node, where commands are executed again as before
    let node = cluster.place();
    cluster.migrate(&node, Duration::ZERO);
    cluster.leaves(&node, LeavingState::Moved);
    for sum in 204..206 {
        assert_eq!(program.code("add"), CL_SUCCESS);
        kill();
        assert_eq!(program.ask("sum"), format!("{sum} added"));
    }
    program.end();
    cluster.see(&[]);
}

#[test]
fn a_worker_that_dies_after_its_lease_has_ended_is_not_replaced() {
    if played() {
        return;
    }
    let cluster = Cluster::start("");
    let node = cluster.node(DEVICE);
    let mut program = cluster.using_with("1", SURVIVES);
    assert_eq!(program.ask("keep"), "kept");
    kill_workers_of(node.pid());
    assert_eq!(program.ask("sum"), "0 added");
    let before = replaced(&node);
    assert!(before >= 1, "the worker is replaced while the lease lasts");
    cluster.revoke();
    program.hears("for the test");
    kill_workers_of(node.pid());
    assert_eq!(program.code("add"), CL_DEVICE_NOT_AVAILABLE);
    let (said, status) = program.end_with();
    assert!(status.success(), "{status}: {said:?}");
    // The node's reason may come after the manager's, while the program ends.
    let is_reason = |line: &String| line.contains("for the test");
    assert!(said.len() <= 1 && said.iter().all(is_reason), "{said:?}");
    cluster.see(&[]);
    assert_eq!(replaced(&node), before);
}
