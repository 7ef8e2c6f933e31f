//! One lease over several nodes; reservations that ran out; managers and nodes that say nothing.
#![allow(unsafe_code, missing_docs)]

mod leases;
mod opencl;
mod servers;

use std::net::TcpListener;

use leases::{Cluster, LeaseState, played};
use rustix::process::Signal;
use servers::*;

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

    // ---- what is left of it goes on
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

    // ---- and gets nothing if another was quicker
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

    // ---- a manager that is only a port
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = silent.local_addr().expect("its address").to_string();
    let mut program = cluster.program_with("1", &[("CAUSEWAY_MANAGER", &at)]);
    assert_eq!(program.ask("devices"), "");
    program.end();

    // ---- a node that is stopped: it acknowledges nothing
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
