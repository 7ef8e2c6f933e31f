//! Tests that enqueues without an event allocate nothing on the calling thread once all buffers have grown. With an
//! event, they allocate only the event itself. The session can be resumed, as by default, so what is written is kept.

use std::ptr::{null, null_mut};

use crate::frames::counting::allocations;
use crate::frames::opencl::*;
use crate::frames::programs::*;

const SOURCE: &str = "kernel void put(global int *x, int at, int value) { x[at] = value; }";

/// Number of enqueues between two `clFinish`.
const ROUND: usize = 1000;
/// Number of rounds in which pools, tables and buffers may grow.
const ROUNDS: usize = 30;
/// Allocations of an event: the event, and the block behind its handle, which is reused after some thousands of
/// others.
const OF_AN_EVENT: usize = 2;

/// Returns the smallest number of allocations of a round. The search ends at `want`.
fn least(cl: &Fixture, want: usize, mut enqueue: impl FnMut(usize)) -> usize {
    let mut least = usize::MAX;
    for _ in 0..ROUNDS {
        let before = allocations();
        (0..ROUND).for_each(&mut enqueue);
        least = least.min(allocations() - before);
        cl.finish();
        if least <= want {
            break;
        }
    }
    least
}

struct Enqueues {
    cl: Fixture,
    kernel: cl_kernel,
    buffer: cl_mem,
    bytes: Vec<u8>,
}

impl Enqueues {
    fn new() -> Enqueues {
        let cl = Fixture::new();
        let program = built(&cl, SOURCE, "");
        let kernel = kernel(program, "put");
        let buffer = cl.buffer(0, 1 << 16);
        assert_eq!(set(kernel, 0, &buffer), CL_SUCCESS);
        assert_eq!(set(kernel, 1, &0i32), CL_SUCCESS);
        assert_eq!(set(kernel, 2, &0i32), CL_SUCCESS);
        let bytes = pattern(1, 1 << 12);
        Enqueues {
            cl,
            kernel,
            buffer,
            bytes,
        }
    }

    fn launch(&self, event: *mut cl_event) {
        let (global, local) = (1usize, 1usize);
        ok!(clEnqueueNDRangeKernel(
            self.cl.queue,
            self.kernel,
            1,
            null(),
            &raw const global,
            &raw const local,
            0,
            null(),
            event
        ));
    }

    fn launch_changed(&self, value: usize) {
        assert_eq!(set(self.kernel, 1, &((value % 100) as i32)), CL_SUCCESS);
        assert_eq!(set(self.kernel, 2, &(value as i32 + 1)), CL_SUCCESS);
        self.launch(null_mut());
    }

    fn write(&self, length: usize, event: *mut cl_event) {
        ok!(clEnqueueWriteBuffer(
            self.cl.queue,
            self.buffer,
            CL_FALSE,
            0,
            length,
            self.bytes.as_ptr().cast(),
            0,
            null(),
            event
        ));
    }

    fn marker(&self, event: *mut cl_event) {
        ok!(clEnqueueMarkerWithWaitList(self.cl.queue, 0, null(), event));
    }
}

#[test]
fn without_an_event_nothing_is_allocated() {
    let all = Enqueues::new();
    let none = null_mut();
    let cl = &all.cl;
    assert_eq!(least(cl, 0, |_| all.launch(none)), 0, "a launch");
    assert_eq!(
        least(cl, 0, |i| all.launch_changed(i)),
        0,
        "other arguments"
    );
    assert_eq!(
        least(cl, 0, |_| all.write(4, none)),
        0,
        "a write of 4 bytes"
    );
    assert_eq!(
        least(cl, 0, |_| all.write(4096, none)),
        0,
        "a write of 4 KiB"
    );
    assert_eq!(least(cl, 0, |_| all.marker(none)), 0, "a marker");
    let mixed = |i: usize| match i % 4 {
        0 => all.launch(none),
        1 => all.launch_changed(i),
        2 => all.write(i % 4096 + 1, none),
        _ => all.marker(none),
    };
    assert_eq!(least(cl, 0, mixed), 0, "one after the other");
}

#[test]
fn an_event_costs_what_it_is_made_of() {
    let all = Enqueues::new();
    let most = OF_AN_EVENT * ROUND;
    let seen = |enqueue: &dyn Fn(*mut cl_event)| {
        least(&all.cl, most, |_| {
            let mut event = null_mut();
            enqueue(&raw mut event);
            ok!(clReleaseEvent(event));
        })
    };
    assert!(seen(&|event| all.launch(event)) <= most, "a launch");
    assert!(seen(&|event| all.write(4096, event)) <= most, "a write");
    assert!(seen(&|event| all.marker(event)) <= most, "a marker");
}

#[test]
fn a_pool_of_events_keeps_order_ends_and_contents() {
    let all = Enqueues::new();
    // Some rounds are waited for, and others are not.
    for round in 0..6usize {
        for i in 0..700 {
            all.launch_changed(round * 700 + i);
            if i % 97 == 0 {
                // An observed command reports its end after all unobserved ones before it.
                let mut event = null_mut();
                all.marker(&raw mut event);
                if i % 2 == 0 {
                    ok!(clWaitForEvents(1, &raw const event));
                    assert_eq!(status_of(event), CL_COMPLETE);
                }
                ok!(clReleaseEvent(event));
            }
        }
        if round % 2 == 0 {
            all.cl.finish();
        }
    }
    let last = all.cl.read(all.buffer, 0, 400);
    for at in 0..100usize {
        // The newest value that was written there.
        let newest = (0..4200).rev().find(|value| value % 100 == at).unwrap() as i32 + 1;
        assert_eq!(last[4 * at..][..4], newest.to_ne_bytes(), "at {at}");
    }
}
