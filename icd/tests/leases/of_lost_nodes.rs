//! Tests a node that is killed and returns: its leases are over, and their programs get the reason.

use crate::cluster::{Cluster, LeaseState, played};
use crate::frames::servers::*;

#[test]
fn the_lease_of_a_node_that_was_killed_and_came_back_is_over() {
    if played() {
        return;
    }
    let cluster = Cluster::start("");
    let mut node = cluster.node("[[device]]\nname = \"A\"");
    let mut program = cluster.using("1");
    assert_eq!(program.ask("wait"), "waits");

    // ---- commands there fail; the manager waits for the node to return
    node.crash();
    assert!(program.answer().parse::<cl_int>().expect("a code") < 0);
    assert_eq!(program.code("round"), CL_DEVICE_NOT_AVAILABLE);
    program.hears("is lost");
    assert_ne!(program.code("again"), CL_SUCCESS);
    assert_eq!(cluster.states(), [LeaseState::Active]);

    // ---- the node returns without its sessions: the lease is over, and the program may get another
    cluster.start_again(&mut node);
    eventually("another lease", || {
        (program.code("again") == CL_SUCCESS).then_some(())
    });
    program.hears("the lease's nodes were lost");
    assert_eq!(program.code("round"), CL_DEVICE_NOT_AVAILABLE);
    assert_eq!(cluster.states(), [LeaseState::Active]);
    program.end();
    cluster.see(&[]);
}
