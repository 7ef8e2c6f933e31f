//! Tests the release of leased devices: at the program's end, after everything that it does there, and when its last
//! server is disconnected. Children of `fork` release nothing.

use rustix::process::Signal;

use crate::cluster::{Cluster, LATE, LeaseState, Program, played};
use crate::frames::servers::*;

const ONE: &str = "[[device]]\nname = \"A\"";

#[test]
fn what_a_program_has_is_given_back() {
    if played() {
        return;
    }
    let cluster = Cluster::start("");
    let _node = cluster.node(ONE);

    // ---- a program that only enumerates leaves nothing behind
    let mut looking = cluster.program("1");
    eventually("a device", || (looking.ask("devices") == "A").then_some(()));
    assert_eq!(cluster.states(), [LeaseState::Reserved]);
    looking.end();
    cluster.sees_all_given_back();

    // ---- no device is free: the list is empty, without an error
    let working = cluster.using("1");
    assert_eq!(cluster.states(), [LeaseState::Active]);
    let mut idle = cluster.program("1");
    assert_eq!(idle.ask("devices"), "");
    idle.end();
    working.end();
    cluster.sees_all_given_back();

    // ---- one program after the other: a device that is just being released is worth a short wait
    for _ in 0..5 {
        cluster.using("1").end();
    }

    // ---- a child of `fork` releases nothing at its end
    let mut forking = cluster.using("1");
    assert_eq!(forking.ask("fork"), "0");
    assert_eq!(cluster.states(), [LeaseState::Active]);
    assert_eq!(forking.code("round"), CL_SUCCESS);
    forking.end();
    cluster.sees_all_given_back();

    // ---- disconnected
    let mut leaving = cluster.using("1");
    assert_eq!(leaving.code("disconnect"), CL_SUCCESS);
    assert_eq!(leaving.ask("devices"), "");
    cluster.sees_all_given_back();
    leaving.end();

    // ---- a lease of another holder is used, and stays
    let lease = cluster.user.lease("1").expect("a free device");
    let id: String = lease
        .lease_id
        .iter()
        .map(|of| format!("{of:02x}"))
        .collect();
    let mut guest = cluster.program_with("1", &[("CAUSEWAY_LEASE", &id)]);
    eventually("a device", || {
        (guest.code("use") == CL_SUCCESS).then_some(())
    });
    guest.end();
    let leases = cluster.user.leases().expect("a list");
    assert_eq!(leases[0].lease_id, lease.lease_id);
    assert!(cluster.user.lease("1").is_err());
}

#[test]
fn who_has_ended_is_not_told_that_his_lease_has() {
    if played() {
        return;
    }
    let cluster = Cluster::start("");
    let _nodes = [cluster.node(ONE), cluster.node(ONE)];
    for _ in 0..20 {
        // The program releases nothing, and reports any further notice to its context.
        cluster.using("2").end();
    }
}

#[test]
fn sessions_end_before_their_lease_is_given_back() {
    if played() {
        return;
    }
    let cluster = Cluster::start("");
    let node = cluster.node(ONE);
    for _ in 0..20 {
        cluster.using("1").end();
        cluster.sees_all_given_back();
    }
    // A session that its lease ends keeps no builds. A busy worker may hear from the supervisor first.
    let log = node.log();
    let closed = log.matches("the client closed the session").count();
    assert!(closed >= 15, "{closed} of 20");
}

#[test]
fn what_was_registered_for_the_end_before_all_else_still_has_its_device() {
    if played() {
        return;
    }
    let cluster = Cluster::start("");
    let _node = cluster.node(ONE);
    let mut late = Program::start_late(&cluster, "1");
    eventually("a device", || {
        (late.code("use") == CL_SUCCESS).then_some(())
    });
    let (said, status) = late.end_with();
    assert_eq!((said, status.code()), (vec!["late 0".to_owned()], Some(0)));
    cluster.sees_all_given_back();
}

#[test]
fn what_is_queued_at_the_very_end_is_written_before_the_lease_is_released() {
    if played() {
        return;
    }
    let cluster = Cluster::start("");
    let node = cluster.logging_node(ONE);
    // A session that can be resumed says a farewell, which writes the commands too.
    let more = [("CAUSEWAY_RESUME", "0s"), (LATE, "barrier")];
    let late = cluster.using_with("1", &more);
    late.stop_flusher();
    // A worker that hears first of the lease's end reads no further commands.
    cluster.manager.signal(Signal::STOP).expect("it stops");
    let (said, status) = late.end_with();
    assert_eq!((said, status.code()), (vec!["late 0".to_owned()], Some(0)));
    eventually("the late command", || {
        let calls = node.calls();
        calls.contains("clEnqueueBarrierWithWaitList").then_some(())
    });
}
