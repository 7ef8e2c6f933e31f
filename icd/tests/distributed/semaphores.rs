//! Tests of semaphores in contexts of several nodes. Each belongs to one device and follows commands of any node. A
//! lost node fails waits.

use std::time::{Duration, Instant};

use crate::frames::opencl::*;
use crate::frames::several::*;
use crate::frames::signalled::{
    BINARY, TYPE, create, let_go, payload, semaphore_of, signal, try_signal, try_wait, wait,
};

/// Time limit for the client to notice a loss.
const SOON: Duration = Duration::from_secs(8);
const FAILED: cl_int = CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;

fn queue(cl: &Several, site: usize) -> cl_command_queue {
    make!(clCreateCommandQueue(
        cl.context,
        cl.devices[site],
        OUT_OF_ORDER
    ))
    .expect("a queue")
}

#[test]
fn each_is_of_one_device_that_is_named() {
    let cl = several();
    assert_eq!(
        create(cl.context, Some(&[TYPE, BINARY, 0])),
        Err(CL_INVALID_PROPERTY)
    );
    let semaphore = semaphore_of(cl.context, cl.devices[BETA]);
    for site in [ALPHA, GAMMA, DELTA] {
        for enqueue in [try_signal, try_wait] {
            assert_eq!(
                enqueue(cl.queues[site], &[semaphore], &[]),
                Err(CL_INVALID_COMMAND_QUEUE)
            );
        }
    }
    assert_eq!(finish(signal(cl.queues[BETA], semaphore, &[])), CL_COMPLETE);
    assert_eq!(payload(semaphore), 1);
    assert_eq!(finish(wait(cl.queues[BETA], semaphore, &[])), CL_COMPLETE);
    let_go(semaphore);
}

#[test]
fn a_signal_behind_another_nodes_commands_lets_the_wait_through() {
    let cl = several();
    let other = queue(&cl, BETA);
    let semaphore = semaphore_of(cl.context, cl.devices[BETA]);
    let buffer = cl.buffer_of(0, &bytes(&[1; 64]));
    for round in 0..4u32 {
        let gate = cl.user_event();
        let added = cl.add(ALPHA, buffer, 1, 64, &[gate]);
        let (signalled, waited) = if round % 2 == 0 {
            let signalled = signal(cl.queues[BETA], semaphore, &[added]);
            (signalled, wait(other, semaphore, &[]))
        } else {
            // This wait comes before its signal.
            let waited = wait(other, semaphore, &[]);
            (signal(cl.queues[BETA], semaphore, &[added]), waited)
        };
        let further = cl.add(DELTA, buffer, 10, 64, &[waited]);
        for held in [added, signalled, waited, further] {
            assert!(status_of(held) > CL_COMPLETE);
        }
        set(gate, CL_COMPLETE);
        for event in [added, signalled, waited, further] {
            assert_eq!(finish(event), CL_COMPLETE);
        }
        assert_eq!(cl.numbers(GAMMA, buffer, 64), [1 + 11 * (round + 1); 64]);
        assert_eq!(payload(semaphore), 0);
        release(&[gate]);
    }
    let_go(semaphore);
    release_memory(&[buffer]);
    ok!(clReleaseCommandQueue(other));
}

#[test]
fn a_lost_node_fails_its_waits_and_those_behind_them() {
    let cl = several();
    let other = queue(&cl, DELTA);
    let [early, late, probe] = [0; 3].map(|_| semaphore_of(cl.context, cl.devices[DELTA]));
    let gate = cl.user_event();
    let signalled = signal(cl.queues[DELTA], early, &[gate]);
    let waited = wait(other, early, &[]);
    let unsignalled = wait(other, late, &[]);
    let behind = [waited, unsignalled].map(|event| cl.marker(ALPHA, &[event]));
    cl.nodes[2].kill_workers();
    let end = Instant::now() + SOON;
    let refused = loop {
        assert!(Instant::now() < end, "the loss is not known");
        match try_signal(other, &[probe], &[]) {
            Ok(event) => assert!(finish(event) <= CL_COMPLETE),
            Err(code) => break code,
        }
    };
    assert_eq!(refused, CL_DEVICE_NOT_AVAILABLE);
    // No signal can come any more.
    assert_eq!(try_signal(other, &[late], &[]), Err(refused));
    set(gate, CL_COMPLETE);
    for event in [signalled, waited, unsignalled] {
        assert!(finish(event) < 0);
    }
    for event in behind {
        assert_eq!(finish(event), FAILED);
    }
    assert_eq!(try_wait(other, &[early], &[]), Err(CL_DEVICE_NOT_AVAILABLE));
    assert_eq!(
        finish(cl.marker(ALPHA, &[])),
        CL_COMPLETE,
        "the others go on"
    );
    release(&[gate]);
    for semaphore in [early, late, probe] {
        let_go(semaphore);
    }
    ok!(clReleaseCommandQueue(other));
}
