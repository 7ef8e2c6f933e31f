//! Tests one lease over several nodes, expired reservations, and managers and nodes that do not answer.

use std::net::TcpListener;

use rustix::process::Signal;

use crate::cluster::{Cluster, LeaseState, played};
use crate::frames::servers::*;

#[test]
fn a_lease_may_be_of_several_nodes_and_loses_one_of_them() {
    if played() {
        return;
    }
    let cluster = Cluster::start("");
    let _one = cluster.node("[[device]]\nname = \"A\"\n[[device]]\nname = \"B\"");
    let other = cluster.node("[[device]]\nname = \"C\"");
    let mut program = cluster.using("2; spread");
    let names = program.ask("devices");
    assert!(names.contains('C') && names.len() == 3, "{names}");
    assert_eq!(program.ask("each"), "0 0");
    assert_eq!(cluster.states(), [LeaseState::Active]);

    // ---- the remaining devices go on
    other.kill();
    eventually("the node's loss", || {
        let codes = program.ask("each");
        let lost = codes.split(' ').filter(|code| *code != "0").count();
        (lost == 1).then_some(())
    });
    assert_eq!(cluster.states(), [LeaseState::Active]);
    program.end();
}

#[test]
fn a_program_is_told_which_node_its_lease_has_lost_and_the_others_go_on() {
    if played() {
        return;
    }
    let cluster = Cluster::start("[policy.timing]\nlease = 1500\n");
    let _one = cluster.node("[[device]]\nname = \"A\"");
    let mut other = cluster.node("[[device]]\nname = \"B\"");
    let mut program = cluster.using("2; spread");
    assert_eq!(program.ask("each"), "0 0");

    // ---- lost for the moment: the manager waits for the node to return
    other.crash();
    eventually("the node's loss", || {
        (lost(&program.ask("each")) == 1).then_some(())
    });
    // ---- the node returns without its sessions
    other.start_again(&cluster.manager.node_arguments());
    program.warns("the lease has lost the devices of node ");
    // The other node's devices go on, this node's stay lost, and no call waits for an answer.
    for _ in 0..3 {
        assert_eq!(lost(&program.ask("each")), 1);
    }
    assert_eq!(program.ask("devices").len(), 3);
    let leases = cluster.manager.admin().leases().expect("a list");
    assert_eq!((leases[0].nodes.len(), leases[0].lost.len()), (1, 1));
    // Other programs may get the lost devices.
    let mut next = cluster.using("1");
    assert_eq!(next.code("round"), CL_SUCCESS);
    next.end();
    program.end();
}

/// Counts the codes that are not success.
fn lost(codes: &str) -> usize {
    codes.split(' ').filter(|code| *code != "0").count()
}

#[test]
fn who_thinks_for_longer_than_a_reservation_asks_again() {
    if played() {
        return;
    }
    let cluster = Cluster::start("[policy.timing]\nreservation = 200\n");
    let _node = cluster.node("[[device]]\nname = \"A\"");
    let (other, _) = cluster.manager.user("other").expect("a user");
    let mut program = cluster.program("1");
    eventually("a device", || (program.ask("devices") == "A").then_some(()));
    cluster.see(&[]);
    assert_eq!(program.code("use"), CL_SUCCESS);
    program.end();

    // ---- the program gets no device if another program was quicker
    let mut program = cluster.program("1");
    eventually("a device", || (program.ask("devices") == "A").then_some(()));
    let waiting = other.wait_for("1").expect("a place");
    let granted = waiting.granted().expect("the device");
    assert_eq!(program.code("again"), CL_DEVICE_NOT_AVAILABLE);
    other.release(&granted).expect("given back");
    eventually("it is free again", || {
        (program.code("again") == CL_SUCCESS).then_some(())
    });
    program.end();
}

#[test]
fn who_says_nothing_is_not_waited_for() {
    if played() {
        return;
    }
    let cluster = Cluster::start("[policy.timing]\ndistrust = 100\n");
    let node = cluster.node("[[device]]\nname = \"A\"");

    // ---- a manager that accepts connections and never answers
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = silent
        .local_addr()
        .expect("the listener's address")
        .to_string();
    let mut program = cluster.program_with("1", &[("CAUSEWAY_MANAGER", &at)]);
    assert_eq!(program.ask("devices"), "");
    program.end();

    // ---- a stopped node acknowledges nothing
    node.signal(Signal::STOP);
    let mut program = cluster.program("1");
    assert_eq!(program.ask("devices"), "");
    node.signal(Signal::CONT);
    eventually("it is back", || {
        (program.ask("devices") == "A").then_some(())
    });
    assert_eq!(program.code("use"), CL_SUCCESS);
    program.end();
}
