//! Tests which commands a queue's order ties together, and which not.

use std::ptr::{null, null_mut};

use crate::frames::opencl::*;

#[test]
fn a_gated_read_holds_back_no_free_write_of_an_out_of_order_queue() {
    let cl = Fixture::new();
    let queue = cl.another_queue(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    for size in [64, 1 << 20] {
        let from = cl.buffer_of(&pattern(1, size));
        let to = cl.buffer(0, size);
        let mut host = pattern(2, size);
        let gate = cl.user_event();
        ok!(clEnqueueReadBuffer(
            queue,
            from,
            CL_FALSE,
            0,
            size,
            host.as_mut_ptr().cast(),
            1,
            &raw const gate,
            null_mut()
        ));
        // Nothing orders the write after the read, so it must not wait for a later command.
        ok!(clEnqueueWriteBuffer(
            queue,
            to,
            CL_TRUE,
            0,
            size,
            host.as_ptr().cast(),
            0,
            null(),
            null_mut()
        ));
        ok!(clSetUserEventStatus(gate, CL_COMPLETE));
        ok!(clFinish(queue));
        assert!(cl.read(to, 0, size) == pattern(2, size));
        assert!(host == pattern(1, size));
        ok!(clReleaseEvent(gate));
        ok!(clReleaseMemObject(from));
        ok!(clReleaseMemObject(to));
    }
    ok!(clReleaseCommandQueue(queue));
}

#[test]
fn a_barrier_behind_a_gated_command_gates_what_follows_it() {
    let cl = Fixture::new();
    let queue = cl.another_queue(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    let (from, to) = (cl.buffer_of(&pattern(1, 64)), cl.buffer(0, 64));
    let mut host = pattern(2, 64);
    let gate = cl.user_event();
    ok!(clEnqueueReadBuffer(
        queue,
        from,
        CL_FALSE,
        0,
        64,
        host.as_mut_ptr().cast(),
        1,
        &raw const gate,
        null_mut()
    ));
    ok!(clEnqueueBarrierWithWaitList(queue, 0, null(), null_mut()));
    ok!(clEnqueueWriteBuffer(
        queue,
        to,
        CL_FALSE,
        0,
        64,
        host.as_ptr().cast(),
        0,
        null(),
        null_mut()
    ));
    ok!(clSetUserEventStatus(gate, CL_COMPLETE));
    ok!(clFinish(queue));
    assert_eq!(cl.read(to, 0, 64), pattern(1, 64), "the bytes of the read");
    ok!(clReleaseEvent(gate));
    ok!(clReleaseMemObject(from));
    ok!(clReleaseMemObject(to));
    ok!(clReleaseCommandQueue(queue));
}

#[test]
fn a_wait_list_may_be_longer_than_a_command_takes() {
    let cl = Fixture::new();
    let gate = cl.user_event();
    let list = vec![gate; 70_000];
    let mut marker = null_mut();
    ok!(clEnqueueMarkerWithWaitList(
        cl.queue,
        list.len() as cl_uint,
        list.as_ptr(),
        &raw mut marker
    ));
    ok!(clSetUserEventStatus(gate, -7));
    let events = [marker];
    assert_eq!(
        code!(clWaitForEvents(1, events.as_ptr())),
        CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST
    );
    cl.finish();
    ok!(clReleaseEvent(gate));
    ok!(clReleaseEvent(marker));
}
