//! Tests that the callbacks of one event come in the order of its statuses.

use std::ffi::c_void;
use std::ptr::{null_mut, with_exposed_provenance};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use crate::frames::opencl::*;

unsafe extern "C" fn tell(_: cl_event, status: cl_int, to: *mut c_void) {
    // SAFETY: the sender is never dropped, and callbacks come from one thread.
    let to = unsafe { &*with_exposed_provenance::<Sender<cl_int>>(to.expose_provenance()) };
    to.send(status).expect("the test receives");
}

#[test]
fn callbacks_come_by_status_not_by_registration() {
    let cl = Fixture::new();
    let gate = cl.user_event();
    let mut marker = null_mut();
    ok!(clEnqueueMarkerWithWaitList(
        cl.queue,
        1,
        &raw const gate,
        &raw mut marker
    ));
    let (sender, told) = channel::<cl_int>();
    // The sender is never dropped, because the last callback may still be inside `send` when its value has been
    // received.
    let sender: &'static Sender<cl_int> = Box::leak(Box::new(sender));
    for status in [CL_COMPLETE, CL_RUNNING, CL_COMPLETE, CL_SUBMITTED] {
        ok!(clSetEventCallback(
            marker,
            status,
            Some(tell),
            std::ptr::from_ref(sender).cast_mut().cast()
        ));
    }
    ok!(clSetUserEventStatus(gate, CL_COMPLETE));
    ok!(clWaitForEvents(1, &raw const marker));
    let mut order = Vec::new();
    for _ in 0..4 {
        let status = told.recv_timeout(Duration::from_secs(20));
        order.push(status.expect("every callback is called"));
    }
    assert_eq!(order, [CL_SUBMITTED, CL_RUNNING, CL_COMPLETE, CL_COMPLETE]);
    for event in [gate, marker] {
        ok!(clReleaseEvent(event));
    }
}
