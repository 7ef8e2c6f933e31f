//! Tests that killed programs soon lose their lease, and stopped programs do not.

use std::time::Duration;

use rustix::process::Signal;

use crate::cluster::{Cluster, LeaseState, played};
use crate::frames::servers::*;

/// A lease without sessions ends within half a second, and one without renewals within a second.
const SOON: &str = "[policy.timing]\ngrace = 500\nlease = 1000\n";

#[test]
fn a_killed_program_s_device_is_another_s_soon_and_a_stopped_one_keeps_it() {
    if played() {
        return;
    }
    let cluster = Cluster::start(SOON);
    let _node = cluster.node("[[device]]\nname = \"A\"\n[[device]]\nname = \"B\"");
    let (other, _) = cluster.manager.user("other").expect("a user");

    // ---- killed while it computes
    let mut program = cluster.using("1, NAME=A");
    assert_eq!(program.ask("wait"), "waits");
    let mut next = other.wait_for("1, NAME=A").expect("a place");
    assert_eq!(next.position().expect("a place"), 1);
    program.kill();
    let granted = next.granted().expect("the device");
    other.release(&granted).expect("given back");

    // ---- stopped for longer than a lease lasts without renewal: the program is alive
    let mut program = cluster.using("1, NAME=A");
    program.signal(Signal::STOP);
    let clock = other.wait_for_so_long("1, NAME=B", Duration::from_secs(2));
    clock.expect("a place").granted().expect("a free device");
    assert_eq!(cluster.states().len(), 2);
    cluster.see(&[LeaseState::Active]);
    assert!(other.lease("1, NAME=A").is_err(), "the device is in use");
    program.signal(Signal::CONT);
    assert_eq!(program.code("round"), CL_SUCCESS);

    // ---- killed while it is stopped
    program.signal(Signal::STOP);
    let next = other.wait_for("1, NAME=A").expect("a place");
    program.kill();
    next.granted().expect("the device");
}
