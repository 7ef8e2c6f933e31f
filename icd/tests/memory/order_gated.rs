//! Tests a write behind a user event, and reads behind other reads into the same memory: only commands that the
//! application ordered before it delay it.

use std::ptr::{null, null_mut};

use crate::frames::opencl::*;

const SIZES: [usize; 3] = [64, 20 << 10, 3 << 20];

// The list is NULL exactly if the count is 0, as the specification demands.
fn list(events: &[cl_event]) -> *const cl_event {
    if events.is_empty() {
        null()
    } else {
        events.as_ptr()
    }
}

fn read(queue: cl_command_queue, from: cl_mem, host: &mut [u8], wait: &[cl_event]) -> cl_event {
    let mut event = null_mut();
    ok!(clEnqueueReadBuffer(
        queue,
        from,
        CL_FALSE,
        0,
        host.len(),
        host.as_mut_ptr().cast(),
        wait.len() as cl_uint,
        list(wait),
        &raw mut event
    ));
    event
}

fn write(queue: cl_command_queue, to: cl_mem, host: &[u8], wait: &[cl_event]) -> cl_event {
    let mut event = null_mut();
    ok!(clEnqueueWriteBuffer(
        queue,
        to,
        CL_FALSE,
        0,
        host.len(),
        host.as_ptr().cast(),
        wait.len() as cl_uint,
        list(wait),
        &raw mut event
    ));
    event
}

fn marker(queue: cl_command_queue, wait: &[cl_event]) -> cl_event {
    let mut event = null_mut();
    ok!(clEnqueueMarkerWithWaitList(
        queue,
        wait.len() as cl_uint,
        list(wait),
        &raw mut event
    ));
    event
}

#[test]
fn a_read_behind_another_user_event_holds_back_no_gated_write() {
    let cl = Fixture::new();
    let other = cl.another_queue(0);
    for size in SIZES {
        let (from, to) = (cl.buffer_of(&pattern(1, size)), cl.buffer(0, size));
        let mut host = pattern(2, size);
        let (first, second) = (cl.user_event(), cl.user_event());
        let done = read(cl.queue, from, &mut host, &[first]);
        let written = write(other, to, &host, &[second]);
        ok!(clSetUserEventStatus(second, CL_COMPLETE));
        // The application orders this after nothing else. If it does not end, the test hangs.
        ok!(clWaitForEvents(1, &raw const written));
        assert!(status_of(done) > CL_COMPLETE);
        ok!(clSetUserEventStatus(first, CL_COMPLETE));
        ok!(clWaitForEvents(1, &raw const done));
        assert!(host == pattern(1, size));
        assert!(cl.read(to, 0, size) == pattern(2, size));
        for event in [first, second, done, written] {
            ok!(clReleaseEvent(event));
        }
        ok!(clReleaseMemObject(from));
        ok!(clReleaseMemObject(to));
    }
    ok!(clReleaseCommandQueue(other));
}

/// The way in which the application orders a write after a read.
#[derive(Clone, Copy, Debug)]
enum Tie {
    Queue,
    WaitList,
    MarkerOfTheReadsQueue,
    MarkersOfOtherQueues,
    Barrier,
}

#[test]
fn a_gated_read_that_comes_before_a_write_holds_it_back() {
    let cl = Fixture::new();
    let other = cl.another_queue(0);
    let unordered = cl.another_queue(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    for tie in [
        Tie::Queue,
        Tie::WaitList,
        Tie::MarkerOfTheReadsQueue,
        Tie::MarkersOfOtherQueues,
        Tie::Barrier,
    ] {
        for size in SIZES {
            let (from, to) = (cl.buffer_of(&pattern(1, size)), cl.buffer(0, size));
            let mut host = pattern(2, size);
            let gate = cl.user_event();
            let queue = if matches!(tie, Tie::Barrier) {
                unordered
            } else {
                cl.queue
            };
            let done = read(queue, from, &mut host, &[gate]);
            let mut events = vec![gate, done];
            let written = match tie {
                Tie::Queue => write(queue, to, &host, &[]),
                Tie::WaitList => write(other, to, &host, &[done]),
                Tie::MarkerOfTheReadsQueue => {
                    events.push(marker(queue, &[]));
                    write(other, to, &host, &events[2..])
                }
                Tie::MarkersOfOtherQueues => {
                    events.push(marker(other, &[done]));
                    events.push(marker(other, &[]));
                    events.push(marker(unordered, &events[3..]));
                    write(unordered, to, &host, &events[4..])
                }
                Tie::Barrier => {
                    ok!(clEnqueueBarrierWithWaitList(queue, 0, null(), null_mut()));
                    write(queue, to, &host, &[])
                }
            };
            events.push(written);
            ok!(clSetUserEventStatus(gate, CL_COMPLETE));
            ok!(clWaitForEvents(1, &raw const written));
            assert!(cl.read(to, 0, size) == pattern(1, size), "{tie:?} {size}");
            for event in events {
                ok!(clReleaseEvent(event));
            }
            ok!(clReleaseMemObject(from));
            ok!(clReleaseMemObject(to));
        }
    }
    ok!(clReleaseCommandQueue(unordered));
    ok!(clReleaseCommandQueue(other));
}
