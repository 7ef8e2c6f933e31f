//! Tests that host memory is part of the order: commands take and store bytes when the order says, not when the call
//! is made. Calls return as early as they may.

use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};

use crate::frames::opencl::*;

const SIZES: [usize; 3] = [64, 20 << 10, 3 << 20];

#[test]
fn a_write_from_memory_that_a_read_will_write_takes_what_was_read() {
    let cl = Fixture::new();
    let other_queue = cl.another_queue(0);
    for size in SIZES {
        for queue in [cl.queue, other_queue] {
            let from = cl.buffer_of(&pattern(1, size));
            let to = cl.buffer(0, size);
            let mut host = vec![0u8; size];
            let mut read = null_mut();
            ok!(clEnqueueReadBuffer(
                cl.queue,
                from,
                CL_FALSE,
                0,
                size,
                host.as_mut_ptr().cast(),
                0,
                null(),
                &raw mut read
            ));
            // On the other queue, the application must order the command by an event.
            let (count, wait) = if queue == cl.queue {
                (0, null())
            } else {
                (1, &raw const read)
            };
            ok!(clEnqueueWriteBuffer(
                queue,
                to,
                CL_FALSE,
                0,
                size,
                host.as_ptr().cast(),
                count,
                wait,
                null_mut()
            ));
            ok!(clFinish(queue));
            assert!(cl.read(to, 0, size) == pattern(1, size), "{size}");
            ok!(clReleaseEvent(read));
            ok!(clReleaseMemObject(from));
            ok!(clReleaseMemObject(to));
        }
    }
    ok!(clReleaseCommandQueue(other_queue));
}

// A small blocking write may return early. It did so once while lanes still read the memory of a larger write before it.
#[test]
fn after_a_blocking_write_the_memory_of_the_writes_before_it_may_change() {
    let cl = Fixture::new();
    for size in [64, 40 << 10, 3 << 20] {
        let to = cl.buffer(0, size);
        let small = cl.buffer(0, 4);
        for round in 0..10 {
            let mut host = pattern(round, size);
            let one = [1_u8; 4];
            let write = |buffer, bytes: &[u8], blocking| {
                let (size, at, queue) = (bytes.len(), bytes.as_ptr().cast(), cl.queue);
                let none = null_mut();
                ok!(clEnqueueWriteBuffer(
                    queue,
                    buffer,
                    blocking,
                    0,
                    size,
                    at,
                    0,
                    null(),
                    none
                ));
            };
            write(to, &host, CL_FALSE);
            write(small, &one, CL_TRUE);
            host.fill(0xee);
            assert!(cl.read(to, 0, size) == pattern(round, size), "{size}");
        }
        ok!(clReleaseMemObject(to));
        ok!(clReleaseMemObject(small));
    }
}

#[test]
fn a_chain_of_reads_and_writes_through_one_place_is_followed() {
    let cl = Fixture::new();
    let size = 5000;
    let buffers: Vec<cl_mem> = (0..20)
        .map(|seed| cl.buffer_of(&pattern(seed, size)))
        .collect();
    let mut host = vec![0u8; size];
    // Each buffer passes its contents to the next, through one piece of host memory.
    for pair in buffers.windows(2).rev() {
        ok!(clEnqueueReadBuffer(
            cl.queue,
            pair[0],
            CL_FALSE,
            0,
            size,
            host.as_mut_ptr().cast(),
            0,
            null(),
            null_mut()
        ));
        ok!(clEnqueueWriteBuffer(
            cl.queue,
            pair[1],
            CL_FALSE,
            0,
            size,
            host.as_ptr().cast(),
            0,
            null(),
            null_mut()
        ));
    }
    cl.finish();
    for (place, &buffer) in buffers.iter().enumerate() {
        assert!(
            cl.read(buffer, 0, size) == pattern(place.saturating_sub(1), size),
            "{place}"
        );
        ok!(clReleaseMemObject(buffer));
    }
}

#[test]
fn a_write_behind_a_user_event_takes_what_is_there_when_it_is_set() {
    let cl = Fixture::new();
    for size in SIZES {
        let buffer = cl.buffer(0, size);
        let mut host = pattern(1, size);
        let gate = cl.user_event();
        let mut written = null_mut();
        ok!(clEnqueueWriteBuffer(
            cl.queue,
            buffer,
            CL_FALSE,
            0,
            size,
            host.as_ptr().cast(),
            1,
            &raw const gate,
            &raw mut written
        ));
        host.copy_from_slice(&pattern(2, size));
        assert!(status_of(written) > CL_COMPLETE);
        ok!(clSetUserEventStatus(gate, CL_COMPLETE));
        ok!(clWaitForEvents(1, &raw const written));
        assert!(cl.read(buffer, 0, size) == pattern(2, size), "{size}");
        for event in [gate, written] {
            ok!(clReleaseEvent(event));
        }
        ok!(clReleaseMemObject(buffer));
    }
}

#[test]
fn a_gated_read_holds_back_no_write_that_the_application_did_not_tie_to_it() {
    let cl = Fixture::new();
    let free = cl.another_queue(0);
    for size in SIZES {
        let (from, to) = (cl.buffer_of(&pattern(1, size)), cl.buffer(0, size));
        let mut host = pattern(2, size);
        let gate = cl.user_event();
        let mut read = null_mut();
        ok!(clEnqueueReadBuffer(
            cl.queue,
            from,
            CL_FALSE,
            0,
            size,
            host.as_mut_ptr().cast(),
            1,
            &raw const gate,
            &raw mut read
        ));
        // On its own queue, this write depends on nothing. If it does not end, the test hangs.
        ok!(clEnqueueWriteBuffer(
            free,
            to,
            CL_TRUE,
            0,
            size,
            host.as_ptr().cast(),
            0,
            null(),
            null_mut()
        ));
        ok!(clFinish(free));
        ok!(clSetUserEventStatus(gate, CL_COMPLETE));
        ok!(clWaitForEvents(1, &raw const read));
        assert!(host == pattern(1, size));
        assert!(cl.read(to, 0, size) == pattern(2, size));
        for event in [gate, read] {
            ok!(clReleaseEvent(event));
        }
        ok!(clReleaseMemObject(from));
        ok!(clReleaseMemObject(to));
    }
    ok!(clReleaseCommandQueue(free));
}

#[test]
fn a_failed_read_does_not_fail_the_write_behind_it() {
    let cl = Fixture::new();
    for size in SIZES {
        let (from, to) = (cl.buffer_of(&pattern(1, size)), cl.buffer(0, size));
        let mut host = pattern(2, size);
        let gate = cl.user_event();
        let (mut read, mut written) = (null_mut(), null_mut());
        ok!(clEnqueueReadBuffer(
            cl.queue,
            from,
            CL_FALSE,
            0,
            size,
            host.as_mut_ptr().cast(),
            1,
            &raw const gate,
            &raw mut read
        ));
        ok!(clEnqueueWriteBuffer(
            cl.queue,
            to,
            CL_FALSE,
            0,
            size,
            host.as_ptr().cast(),
            0,
            null(),
            &raw mut written
        ));
        ok!(clSetUserEventStatus(gate, -1234));
        ok!(clWaitForEvents(1, &raw const written));
        assert_eq!(status_of(written), CL_COMPLETE);
        assert!(status_of(read) < 0);
        assert!(host == pattern(2, size), "a failed read touches nothing");
        assert!(cl.read(to, 0, size) == pattern(2, size));
        for event in [gate, read, written] {
            ok!(clReleaseEvent(event));
        }
        ok!(clReleaseMemObject(from));
        ok!(clReleaseMemObject(to));
    }
}

#[test]
fn blocking_calls_tell_of_a_failed_wait_list() {
    let cl = Fixture::new();
    let mut bytes = [0u8; 16];
    let to = bytes.as_mut_ptr().cast();
    let buffer = cl.buffer(0, 16);
    let gate = cl.user_event();
    ok!(clSetUserEventStatus(gate, -5));
    let failed = CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
    let mut event = null_mut();
    assert_eq!(
        code!(clEnqueueReadBuffer(
            cl.queue,
            buffer,
            CL_TRUE,
            0,
            16,
            to,
            1,
            &raw const gate,
            &raw mut event
        )),
        failed
    );
    assert_eq!(
        code!(clEnqueueWriteBuffer(
            cl.queue,
            buffer,
            CL_TRUE,
            0,
            16,
            to,
            1,
            &raw const gate,
            &raw mut event
        )),
        failed
    );
    assert_eq!(
        code!(clEnqueueWriteBuffer(
            cl.queue,
            buffer,
            CL_TRUE,
            0,
            16,
            to,
            1,
            &raw const gate,
            null_mut()
        )),
        failed
    );
    let mapped = make!(clEnqueueMapBuffer(
        cl.queue,
        buffer,
        CL_TRUE,
        CL_MAP_READ,
        0,
        16,
        1,
        &raw const gate,
        &raw mut event
    ));
    assert_eq!(mapped, Err(failed));
    assert!(event.is_null(), "untouched");
    assert_eq!(mem_info::<cl_uint>(buffer, CL_MEM_MAP_COUNT), 0);
    // The queue still works.
    cl.write(buffer, 0, &pattern(1, 16));
    assert_eq!(cl.read(buffer, 0, 16), pattern(1, 16));
    ok!(clReleaseEvent(gate));
    ok!(clReleaseMemObject(buffer));
}

#[test]
fn a_blocking_write_completes_what_the_application_can_see() {
    let cl = Fixture::new();
    let size = 100;
    let buffer = cl.buffer_of(&pattern(1, size));
    let mut host = vec![0u8; size];
    for _ in 0..50 {
        let (mut read, mut written) = (null_mut(), null_mut());
        ok!(clEnqueueReadBuffer(
            cl.queue,
            buffer,
            CL_FALSE,
            0,
            size,
            host.as_mut_ptr().cast(),
            0,
            null(),
            &raw mut read
        ));
        let bytes = pattern(2, size);
        ok!(clEnqueueWriteBuffer(
            cl.queue,
            buffer,
            CL_TRUE,
            0,
            size,
            bytes.as_ptr().cast(),
            0,
            null(),
            &raw mut written
        ));
        // On an in-order queue, earlier commands end with a blocking command.
        assert_eq!(
            (status_of(read), status_of(written)),
            (CL_COMPLETE, CL_COMPLETE)
        );
        for event in [read, written] {
            ok!(clReleaseEvent(event));
        }
    }
    ok!(clReleaseMemObject(buffer));
}

#[test]
fn enqueues_do_not_wait() {
    let cl = Fixture::new();
    let size = 1 << 20;
    let buffer = cl.buffer(0, size);
    let mut host = vec![0u8; size];
    let gate = cl.user_event();
    let begin = Instant::now();
    ok!(clEnqueueWriteBuffer(
        cl.queue,
        buffer,
        CL_FALSE,
        0,
        100,
        host.as_ptr().cast(),
        1,
        &raw const gate,
        null_mut()
    ));
    for _ in 0..200 {
        ok!(clEnqueueWriteBuffer(
            cl.queue,
            buffer,
            CL_FALSE,
            0,
            100,
            host.as_ptr().cast(),
            0,
            null(),
            null_mut()
        ));
        ok!(clEnqueueReadBuffer(
            cl.queue,
            buffer,
            CL_FALSE,
            0,
            size,
            host.as_mut_ptr().cast(),
            0,
            null(),
            null_mut()
        ));
    }
    ok!(clSetUserEventStatus(gate, CL_COMPLETE));
    cl.finish();
    assert!(begin.elapsed() < Duration::from_secs(20));
    ok!(clReleaseEvent(gate));
    ok!(clReleaseMemObject(buffer));
}

// Keeps the queue busy for a while, then writes `buffer` in a blocking call without an event.
fn busy_then_write(cl: &Fixture, busy: cl_mem, size: usize, seed: usize) {
    let fill = [seed as u8; 16];
    for _ in 0..20 {
        ok!(clEnqueueFillBuffer(
            cl.queue,
            busy,
            fill.as_ptr().cast(),
            16,
            0,
            size,
            0,
            null(),
            null_mut()
        ));
    }
    let end = [seed as u8 + 1; 16];
    cl.write(busy, size - 16, &end);
}

#[test]
fn what_a_blocking_write_completed_is_complete_for_other_queues() {
    let cl = Fixture::new();
    let size = 16 << 20;
    let buffer = cl.buffer(0, size);
    // An existing queue, and one that is created later.
    busy_then_write(&cl, buffer, size, 3);
    let mut queues = Vec::new();
    for seed in [3, 5, 7] {
        if seed > 3 {
            busy_then_write(&cl, buffer, size, seed);
        } else {
            queues.push(cl.another_queue(0));
        }
        let mut seen = [0u8; 32];
        ok!(clEnqueueReadBuffer(
            queues[0],
            buffer,
            CL_TRUE,
            size - 32,
            32,
            seen.as_mut_ptr().cast(),
            0,
            null(),
            null_mut()
        ));
        let expected: Vec<u8> = [[seed as u8; 16], [seed as u8 + 1; 16]].concat();
        assert_eq!(seen[..], expected[..]);
    }
    for queue in queues {
        ok!(clReleaseCommandQueue(queue));
    }
    ok!(clReleaseMemObject(buffer));
}

#[test]
fn a_blocking_write_is_complete_on_an_out_of_order_queue() {
    let cl = Fixture::new();
    let queue = cl.another_queue(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    let buffer = cl.buffer(0, 64);
    for seed in 0..100 {
        let bytes = pattern(seed, 64);
        ok!(clEnqueueWriteBuffer(
            queue,
            buffer,
            CL_TRUE,
            0,
            64,
            bytes.as_ptr().cast(),
            0,
            null(),
            null_mut()
        ));
        let mut seen = [0u8; 64];
        ok!(clEnqueueReadBuffer(
            queue,
            buffer,
            CL_TRUE,
            0,
            64,
            seen.as_mut_ptr().cast(),
            0,
            null(),
            null_mut()
        ));
        assert_eq!(seen[..], bytes[..]);
    }
    ok!(clReleaseMemObject(buffer));
    ok!(clReleaseCommandQueue(queue));
}
