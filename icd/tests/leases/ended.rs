//! Tests leases that end before their programs: running commands fail, the program gets the reason, and the device is
//! free for others.

use crate::cluster::{Cluster, Program, played};
use crate::frames::servers::*;

const ONE: &str = "[[device]]\nname = \"A\"";

/// Enough time for a program to begin its work.
const LIMIT: &str = "5s";

/// Starts a program that waits for an event that never ends.
fn waiting(cluster: &Cluster, more: &[(&str, &str)]) -> Program {
    let mut program = cluster.using_with("1", more);
    assert_eq!(program.ask("wait"), "waits");
    program
}

/// Checks that the program's wait has failed, that nothing works, and that its context got this reason.
fn has_lost(program: &mut Program, why: &str) {
    let code: cl_int = program.answer().parse().expect("a code");
    assert!(code < 0, "{code}");
    assert_eq!(program.code("round"), CL_DEVICE_NOT_AVAILABLE);
    program.hears(why);
}

#[test]
fn who_loses_his_lease_is_told_why() {
    if played() {
        return;
    }
    let cluster = Cluster::start("");
    let _node = cluster.node(ONE);

    // ---- an administrator revokes the lease; lost objects stay lost, and the program may get another lease
    let mut program = waiting(&cluster, &[]);
    cluster.revoke();
    has_lost(
        &mut program,
        "an administrator revoked the lease: for the test",
    );
    eventually("another lease", || {
        (program.code("again") == CL_SUCCESS).then_some(())
    });
    assert_eq!(program.code("round"), CL_DEVICE_NOT_AVAILABLE);
    program.end();

    // ---- its time limit is over
    let mut program = waiting(&cluster, &[("CAUSEWAY_TIME_LIMIT", LIMIT)]);
    has_lost(&mut program, "the lease's time limit is reached");
    program.end();

    // ---- the token is revoked: running work goes on, and nothing new begins
    let admin = cluster.manager.admin();
    let mut program = cluster.using("1");
    admin
        .revoke_token(cluster.user.token_id())
        .expect("revoked");
    assert_eq!(program.code("round"), CL_SUCCESS);
    assert_eq!(program.code("again"), CL_SUCCESS);

    // ---- its user is removed, and so are the user's leases
    assert_eq!(program.ask("wait"), "waits");
    admin.delete_user("tester").expect("removed");
    let code: cl_int = program.answer().parse().expect("a code");
    assert!(code < 0, "{code}");
    assert_eq!(program.code("round"), CL_DEVICE_NOT_AVAILABLE);
    assert_ne!(program.code("again"), CL_SUCCESS);
    program.end();
    cluster.see(&[]);
    let (other, _) = cluster.manager.user("other").expect("a user");
    let waiting = other.wait_for("1").expect("a place");
    waiting.granted().expect("a free device");
}

#[test]
fn a_node_tells_why_where_the_manager_cannot() {
    if played() {
        return;
    }
    let mut cluster = Cluster::start("");
    let _node = cluster.node(ONE);
    let mut program = waiting(&cluster, &[("CAUSEWAY_TIME_LIMIT", LIMIT)]);
    cluster.manager.kill().expect("killed");
    has_lost(
        &mut program,
        "the lease has ended: the lease's time limit is reached",
    );
    program.end();
}
