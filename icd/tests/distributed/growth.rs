//! Tests thousands of withheld commands in a context of several nodes: the cost stays linear.

use crate::frames::growth::grows_linearly;
use crate::frames::opencl::*;
use crate::frames::several::*;

/// Enqueues each command behind a user event of its own, and sets the events in the order of `order`.
fn user_events(order: impl Fn(usize) -> Vec<usize>) {
    let cl = several_with(OUT_OF_ORDER);
    let buffer = cl.buffer(0, 4);
    grows_linearly(1000, |count| {
        let gates: Vec<cl_event> = (0..count).map(|_| cl.user_event()).collect();
        let fill = |(turn, gate): (usize, &cl_event)| {
            cl.fill(turn % 4, buffer, turn as u32, (0, 4), &[*gate])
        };
        let fills: Vec<cl_event> = gates.iter().enumerate().map(fill).collect();
        for at in order(count) {
            set(gates[at], CL_COMPLETE);
        }
        let (length, all) = list(&fills);
        ok!(clWaitForEvents(length, all));
        release(&fills);
        release(&gates);
    });
    release_memory(&[buffer]);
}

#[test]
fn user_events_that_are_set_in_the_order_of_their_commands() {
    own_process!();
    user_events(|count| (0..count).collect());
}

#[test]
fn user_events_that_are_set_from_the_last_to_the_first() {
    own_process!();
    user_events(|count| (0..count).rev().collect());
}

#[test]
fn a_queue_behind_one_user_event() {
    own_process!();
    let cl = several();
    let buffer = cl.buffer(0, 4);
    grows_linearly(1000, |count| {
        let gate = cl.user_event();
        let first = cl.fill(ALPHA, buffer, 1, (0, 4), &[gate]);
        let rest: Vec<cl_event> = (0..count)
            .map(|turn| cl.fill(ALPHA, buffer, turn as u32, (0, 4), &[]))
            .collect();
        set(gate, CL_COMPLETE);
        cl.finish(ALPHA);
        assert_eq!(cl.numbers(BETA, buffer, 1), [count as u32 - 1]);
        release(&rest);
        release(&[first, gate]);
    });
    release_memory(&[buffer]);
}
