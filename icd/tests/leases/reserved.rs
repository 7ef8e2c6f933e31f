//! Tests leased devices next to those of a plain server: reserved at enumeration, leased from the first context on,
//! lost by revocation, and available again.

use std::ptr::null_mut;

use crate::cluster::{Cluster, LeaseState, has_thread};
use crate::frames::servers::*;

#[test]
fn devices_are_reserved_leased_lost_and_leased_again() {
    own_process!();
    let cluster = Cluster::start("");
    let node = cluster.node("[[device]]\nname = \"A\"\n[[device]]\nname = \"B\"");
    let plain = cluster.plain("[[device]]\nname = \"P\"");
    cluster.configure(&plain.address.to_string(), "1, NAME=B");

    // ---- an enumeration reserves, once
    assert_eq!(names(), ["P", "B"]);
    let all = devices();
    assert_eq!(cluster.states(), [LeaseState::Reserved]);
    assert!(
        cluster.user.lease("1, NAME=B").is_err(),
        "the device is reserved"
    );
    assert!(!has_thread("cw-lease"));
    let server = server_of(all[1]);
    assert_eq!(
        text(&server_info(server, CL_SERVER_ADDRESS_WWU)),
        node.address.to_string()
    );

    // ---- a context on another server does not affect the reservation
    assert_eq!(try_out(all[0]), CL_SUCCESS);
    assert_eq!(cluster.states(), [LeaseState::Reserved]);

    // ---- the first context makes the reservation a lease
    let context = context(all[1]).expect("a context");
    let queue = make!(clCreateCommandQueue(context, all[1], 0)).expect("a queue");
    assert_eq!(round_trip(context, queue), CL_SUCCESS);
    assert_eq!(cluster.states(), [LeaseState::Active]);
    assert!(has_thread("cw-lease"));
    assert_eq!(devices(), all);
    let other = cluster.user.lease("1, NAME=A").expect("a free device");
    assert!(!other.reserved);

    // ---- revoked: running commands fail, and the other server goes on
    let gate = make!(clCreateUserEvent(context)).expect("a user event");
    let mut held = null_mut();
    ok!(clEnqueueMarkerWithWaitList(
        queue,
        1,
        &raw const gate,
        &raw mut held
    ));
    ok!(clFlush(queue));
    let admin = cluster.manager.admin();
    let leases = admin.leases().expect("a list");
    let ours = leases.iter().find(|of| of.lease_id != other.lease_id);
    let ours = ours.expect("this program's");
    admin.revoke(ours, "for the test").expect("revoked");
    assert!(code!(clWaitForEvents(1, &raw const held)) < 0);
    assert_eq!(round_trip(context, queue), CL_DEVICE_NOT_AVAILABLE);
    assert_eq!(try_out(all[0]), CL_SUCCESS);
    eventually("the loss is seen", || (!is_available(all[1])).then_some(()));
    assert_eq!(name_of(all[1]), "B");

    // ---- the device is free again, and this program gets it on request
    eventually("another lease is had", || {
        devices();
        (try_out(all[1]) == CL_SUCCESS).then_some(())
    });
    assert_eq!(devices(), all);
    assert!(is_available(all[1]));
    assert_eq!(
        round_trip(context, queue),
        CL_DEVICE_NOT_AVAILABLE,
        "what was lost stays lost"
    );

    ok!(clReleaseEvent(held));
    ok!(clSetUserEventStatus(gate, CL_COMPLETE));
    ok!(clReleaseEvent(gate));
    ok!(clReleaseCommandQueue(queue));
    ok!(clReleaseContext(context));
}
