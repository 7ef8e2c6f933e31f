//! Tests a manager that is killed and restarted while programs use its leases: programs do not notice, and no lease
//! is lost.

use crate::cluster::{Cluster, LeaseState, played};
use crate::frames::servers::*;

const SOON: &str = "[policy.timing]\ngrace = 1000\nlease = 2000\n";

#[test]
fn programs_work_on_while_the_manager_is_killed_and_started_again() {
    if played() {
        return;
    }
    let mut cluster = Cluster::start(SOON);
    let _node = cluster.node("[[device]]\nname = \"A\"");

    // ---- with a reservation: it stays, and is confirmed
    let mut program = cluster.program("1");
    eventually("a device", || (program.ask("devices") == "A").then_some(()));
    cluster.manager.kill().expect("killed");
    cluster.manager.start_again().expect("started");
    assert_eq!(cluster.states(), [LeaseState::Reserved]);
    cluster.manager.see_devices(1).expect("the node is back");
    assert_eq!(program.code("use"), CL_SUCCESS);

    // ---- with a lease: nothing changes, new contexts included
    assert_eq!(program.ask("wait"), "waits");
    cluster.manager.kill().expect("killed");
    let mut idle = cluster.program("1");
    assert_eq!(idle.ask("devices"), "", "no manager leases devices");
    idle.end();
    cluster.manager.start_again().expect("started");
    cluster.manager.see_devices(1).expect("the node is back");
    cluster.see(&[LeaseState::Active]);
    let mut idle = cluster.program("1");
    assert_eq!(idle.ask("devices"), "", "the device is in use");
    idle.end();
    program.kill();

    // ---- with a lease that is being released: it expires
    let next = cluster.user.wait_for("1").expect("a place");
    let held = next.granted().expect("the device");
    cluster.user.release(&held).expect("given back");
    let mut program = cluster.using("1");
    assert_eq!(program.code("again"), CL_SUCCESS);
    cluster.manager.kill().expect("killed");
    assert_eq!(program.code("round"), CL_SUCCESS);
    assert_eq!(program.code("again"), CL_SUCCESS);
    program.end();
    cluster.manager.start_again().expect("started");
    cluster.manager.see_devices(1).expect("the node is back");
    let next = cluster.user.wait_for("1").expect("a place");
    next.granted().expect("the device");
}
