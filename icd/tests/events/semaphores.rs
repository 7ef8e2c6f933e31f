//! Tests of semaphores: which waits a signal ends, and waits whose signal fails, comes later or never.

use std::ptr::{null, null_mut};

use crate::frames::opencl::*;
use crate::frames::signalled::*;

const OUT_OF_ORDER: cl_command_queue_properties = CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE;
const FAILED: cl_int = CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;

/// Enqueues a copy of everything.
fn copy(queue: cl_command_queue, from: cl_mem, to: cl_mem, size: usize, wait: &[cl_event]) {
    let list = if wait.is_empty() {
        null()
    } else {
        wait.as_ptr()
    };
    let count = wait.len() as cl_uint;
    ok!(clEnqueueCopyBuffer(
        queue,
        from,
        to,
        0,
        0,
        size,
        count,
        list,
        null_mut()
    ));
}

fn barrier(queue: cl_command_queue) {
    ok!(clEnqueueBarrierWithWaitList(queue, 0, null(), null_mut()));
}

#[test]
fn what_comes_after_a_wait_finds_what_came_before_the_signal() {
    let cl = Fixture::new();
    const SIZE: usize = 4096;
    for properties in [0, OUT_OF_ORDER] {
        let [first, second] = [0; 2].map(|_| cl.another_queue(properties));
        let semaphore = semaphore(cl.context);
        let between = cl.buffer_of(&pattern(0, SIZE));
        let to = cl.buffer(0, SIZE);
        for round in 1..6 {
            let from = cl.buffer_of(&pattern(round, SIZE));
            let gate = cl.user_event();
            copy(first, from, between, SIZE, &[gate]);
            // In an out-of-order queue, a signal has no implied place.
            barrier(first);
            let signalled = signal(first, semaphore, &[]);
            let waited = wait(second, semaphore, &[]);
            copy(second, between, to, SIZE, &[waited]);
            ok!(clFlush(second));
            assert!(status_of(signalled) > CL_COMPLETE && status_of(waited) > CL_COMPLETE);
            assert_eq!(payload(semaphore), 0);
            ok!(clSetUserEventStatus(gate, CL_COMPLETE));
            ok!(clFinish(second));
            assert!(
                cl.read(to, 0, SIZE) == pattern(round, SIZE),
                "round {round}"
            );
            assert_eq!(
                (finish(signalled), finish(waited)),
                (CL_COMPLETE, CL_COMPLETE)
            );
            assert_eq!(payload(semaphore), 0, "taken");
            ok!(clReleaseEvent(gate));
            ok!(clReleaseMemObject(from));
        }
        let_go(semaphore);
        for memory in [between, to] {
            ok!(clReleaseMemObject(memory));
        }
        for queue in [first, second] {
            ok!(clReleaseCommandQueue(queue));
        }
    }
}

#[test]
fn events_say_what_they_are_of_and_the_payload_what_is_so() {
    let cl = Fixture::new();
    let semaphore = semaphore(cl.context);
    let signalled = signal(cl.queue, semaphore, &[]);
    assert_eq!(command_of(signalled), CL_COMMAND_SEMAPHORE_SIGNAL_KHR);
    assert_eq!(finish(signalled), CL_COMPLETE);
    assert_eq!(payload(semaphore), 1);
    let gate = cl.user_event();
    let waited = wait(cl.queue, semaphore, &[gate]);
    assert_eq!(command_of(waited), CL_COMMAND_SEMAPHORE_WAIT_KHR);
    assert_eq!(payload(semaphore), 1, "the wait waits");
    ok!(clSetUserEventStatus(gate, CL_COMPLETE));
    assert_eq!(finish(waited), CL_COMPLETE);
    assert_eq!(payload(semaphore), 0);
    ok!(clReleaseEvent(gate));
    let_go(semaphore);
}

#[test]
fn in_an_out_of_order_queue_they_wait_for_nothing_else() {
    let cl = Fixture::new();
    let queue = cl.another_queue(OUT_OF_ORDER);
    let (semaphore, gate) = (semaphore(cl.context), cl.user_event());
    let [from, to] = [1, 2].map(|seed| cl.buffer_of(&pattern(seed, 64)));
    copy(queue, from, to, 64, &[gate]);
    let signalled = signal(queue, semaphore, &[]);
    let waited = wait(queue, semaphore, &[]);
    assert_eq!(
        (finish(signalled), finish(waited)),
        (CL_COMPLETE, CL_COMPLETE)
    );
    ok!(clSetUserEventStatus(gate, CL_COMPLETE));
    ok!(clFinish(queue));
    assert!(cl.read(to, 0, 64) == pattern(1, 64));
    ok!(clReleaseEvent(gate));
    for memory in [from, to] {
        ok!(clReleaseMemObject(memory));
    }
    let_go(semaphore);
    ok!(clReleaseCommandQueue(queue));
}

#[test]
fn one_command_takes_several_without_events() {
    let cl = Fixture::new();
    let other = cl.another_queue(0);
    let both = [0; 2].map(|_| semaphore(cl.context));
    let event = null_mut();
    for round in 0..20 {
        assert_eq!(
            call!(signal(cl.queue, 2, both.as_ptr(), null(), 0, null(), event)),
            CL_SUCCESS
        );
        // A semaphore that is named twice is waited for once. Payloads of this type are ignored.
        let (twice, payloads) = ([both[0], both[1], both[0]], [7u64; 3]);
        let (list, values) = (twice.as_ptr(), payloads.as_ptr());
        if round % 2 == 0 {
            assert_eq!(
                call!(wait(other, 3, list, values, 0, null(), event)),
                CL_SUCCESS
            );
        } else {
            for one in both {
                assert_eq!(
                    call!(wait(other, 1, &raw const one, null(), 0, null(), event)),
                    CL_SUCCESS
                );
            }
        }
    }
    ok!(clFinish(other));
    for one in both {
        assert_eq!(payload(one), 0);
        let_go(one);
    }
    ok!(clReleaseCommandQueue(other));
}

#[test]
fn a_signal_that_fails_fails_its_wait_and_no_later_one() {
    let cl = Fixture::new();
    let (other, semaphore, gate) = (cl.another_queue(0), semaphore(cl.context), cl.user_event());
    let signalled = signal(cl.queue, semaphore, &[gate]);
    let waited = wait(other, semaphore, &[]);
    ok!(clSetUserEventStatus(gate, -5));
    assert!(finish(signalled) < 0 && finish(waited) < 0);
    assert_eq!(payload(semaphore), 0);
    assert_eq!(finish(signal(cl.queue, semaphore, &[])), CL_COMPLETE);
    assert_eq!(finish(wait(other, semaphore, &[])), CL_COMPLETE);
    // A wait that fails for another reason leaves the signal for others.
    let second = cl.user_event();
    assert_eq!(finish(signal(cl.queue, semaphore, &[])), CL_COMPLETE);
    let waited = wait(other, semaphore, &[second]);
    ok!(clSetUserEventStatus(second, -5));
    assert!(finish(waited) < 0);
    assert_eq!(payload(semaphore), 1);
    assert_eq!(finish(wait(other, semaphore, &[])), CL_COMPLETE);
    assert_eq!(payload(semaphore), 0);
    for event in [gate, second] {
        ok!(clReleaseEvent(event));
    }
    let_go(semaphore);
    ok!(clReleaseCommandQueue(other));
}

#[test]
fn a_wait_before_its_signal_goes_with_it_or_fails_with_the_semaphore() {
    let cl = Fixture::new();
    let (other, semaphore) = (cl.another_queue(0), semaphore(cl.context));
    let waits = [0; 3].map(|_| wait(other, semaphore, &[]));
    ok!(clFlush(other));
    assert_eq!(finish(signal(cl.queue, semaphore, &[])), CL_COMPLETE);
    assert_eq!(finish(waits[0]), CL_COMPLETE);
    assert!(status_of(waits[1]) > CL_COMPLETE && status_of(waits[2]) > CL_COMPLETE);
    assert_eq!(payload(semaphore), 0);
    // The second wait gets a signal that fails, and the third gets none.
    let gate = cl.user_event();
    let signalled = signal(cl.queue, semaphore, &[gate]);
    ok!(clSetUserEventStatus(gate, -5));
    assert!(finish(signalled) < 0 && finish(waits[1]) < 0);
    let_go(semaphore);
    assert!(finish(waits[2]) < 0);
    let marker = {
        let mut marker = null_mut();
        ok!(clEnqueueMarkerWithWaitList(
            other,
            0,
            null(),
            &raw mut marker
        ));
        marker
    };
    assert_eq!(finish(marker), CL_COMPLETE, "the queue goes on");
    ok!(clReleaseEvent(gate));
    ok!(clReleaseCommandQueue(other));
}

#[test]
fn everything_may_be_released_at_once() {
    let cl = Fixture::new();
    let (other, gate) = (cl.another_queue(0), cl.user_event());
    let semaphore = semaphore(cl.context);
    let signalled = signal(cl.queue, semaphore, &[gate]);
    let waited = wait(other, semaphore, &[]);
    let_go(semaphore);
    ok!(clReleaseCommandQueue(other));
    ok!(clReleaseEvent(signalled));
    ok!(clSetUserEventStatus(gate, CL_COMPLETE));
    ok!(clReleaseEvent(gate));
    assert_eq!(finish(waited), CL_COMPLETE);
}

#[test]
fn threads_that_signal_and_wait_in_turns_lose_none() {
    let cl = Fixture::new();
    let (other, ping, pong) = (
        cl.another_queue(0),
        semaphore(cl.context),
        semaphore(cl.context),
    );
    let handles = [cl.queue, other, ping, pong].map(|raw| raw.expose_provenance());
    let raw = move |at: usize| std::ptr::with_exposed_provenance_mut::<c_void>(handles[at]);
    const ROUNDS: usize = 200;
    let turn = move |queue: usize, gives: usize, takes: usize, first: bool| {
        let give = || ok!(clReleaseEvent(signal(raw(queue), raw(gives), &[])));
        for _ in 0..ROUNDS {
            if first {
                give();
            }
            // The wait comes before or after the other thread's signal.
            assert_eq!(finish(wait(raw(queue), raw(takes), &[])), CL_COMPLETE);
            if !first {
                give();
            }
        }
    };
    let second = std::thread::spawn(move || turn(1, 3, 2, false));
    turn(0, 2, 3, true);
    second.join().expect("no panic");
    for semaphore in [ping, pong] {
        assert_eq!(payload(semaphore), 0);
        let_go(semaphore);
    }
    ok!(clReleaseCommandQueue(other));
}

#[test]
fn a_failed_event_in_the_wait_list_is_refused_and_takes_no_signal() {
    let cl = Fixture::new();
    let (semaphore, failed) = (semaphore(cl.context), cl.user_event());
    ok!(clSetUserEventStatus(failed, -1));
    assert_eq!(try_signal(cl.queue, &[semaphore], &[failed]), Err(FAILED));
    assert_eq!(finish(signal(cl.queue, semaphore, &[])), CL_COMPLETE);
    assert_eq!(try_wait(cl.queue, &[semaphore], &[failed]), Err(FAILED));
    assert_eq!(payload(semaphore), 1);
    assert_eq!(finish(wait(cl.queue, semaphore, &[])), CL_COMPLETE);
    ok!(clReleaseEvent(failed));
    let_go(semaphore);
}
