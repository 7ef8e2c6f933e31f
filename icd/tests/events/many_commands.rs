//! Tests thousands of simultaneous commands, in patterns that tie each to earlier ones.

use std::ptr::{null, null_mut};

use crate::frames::growth::*;
use crate::frames::nodes::Drivers;
use crate::frames::opencl::*;
use crate::frames::several::*;

const SIZE: usize = 256;

/// Longer than it takes to enqueue thousands of commands.
const LONG: &str = "[kernel.fake_add_u32]\nns = 2_500_000_000";

/// One node with the fake driver, because some drivers handle thousands of barriers badly.
fn one_node(properties: cl_command_queue_properties) -> Several {
    several_on(&[Drivers::Fake(LONG)], 1, properties)
}

/// Alternating reads into and writes from parts of one host buffer, given by `part` of the turn's number.
fn reads_and_writes(bytes: usize, part: impl Fn(usize) -> (usize, usize)) {
    let cl = one_node(0);
    let (from, to) = (cl.buffer_of(0, &pattern(1, bytes)), cl.buffer(0, bytes));
    let mut host = vec![0u8; bytes];
    let at = host.as_mut_ptr();
    grows_linearly(1000, |count| {
        for turn in 0..count {
            let (offset, length) = part(turn);
            ok!(clEnqueueReadBuffer(
                cl.queues[0],
                from,
                CL_FALSE,
                0,
                bytes,
                at.cast(),
                0,
                null(),
                null_mut()
            ));
            ok!(clEnqueueWriteBuffer(
                cl.queues[0],
                to,
                CL_FALSE,
                offset,
                length,
                at.wrapping_add(offset).cast(),
                0,
                null(),
                null_mut()
            ));
        }
        cl.finish(0);
    });
    let (offset, length) = part(0);
    let written = cl.read(0, to, offset, length);
    assert_eq!(written, pattern(1, bytes)[offset..offset + length]);
    release_memory(&[from, to]);
}

#[test]
fn reads_into_and_writes_from_one_place() {
    own_process!();
    reads_and_writes(SIZE, |_| (0, SIZE));
}

#[test]
fn reads_into_a_place_and_writes_from_parts_of_it() {
    own_process!();
    reads_and_writes(SIZE, |turn| (turn % 7 * 32, 64));
}

#[test]
fn reads_too_large_for_completions_and_writes_from_parts() {
    own_process!();
    reads_and_writes(20 << 10, |turn| (turn % 5 * 4096, 4096));
}

#[test]
fn barriers_and_markers_between_commands() {
    own_process!();
    let cl = one_node(OUT_OF_ORDER);
    let (buffer, other) = (cl.buffer(0, SIZE), cl.buffer(0, SIZE));
    let number = 7u32;
    grows_linearly(500, |count| {
        // All following commands are incomplete at once.
        release(&[cl.add(0, other, 0, 1, &[])]);
        for turn in 0..count {
            ok!(clEnqueueWriteBuffer(
                cl.queues[0],
                buffer,
                CL_FALSE,
                0,
                4,
                (&raw const number).cast(),
                0,
                null(),
                null_mut()
            ));
            let queue = cl.queues[0];
            // A barrier and a marker both follow everything before them.
            if turn % 2 == 0 {
                ok!(clEnqueueMarkerWithWaitList(queue, 0, null(), null_mut()));
            } else {
                ok!(clEnqueueBarrierWithWaitList(queue, 0, null(), null_mut()));
            }
        }
        cl.finish(0);
    });
    assert_eq!(cl.numbers(0, buffer, 1), [number]);
    release_memory(&[buffer, other]);
}
