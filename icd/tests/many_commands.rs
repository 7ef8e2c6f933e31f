//! Thousands of commands that are under way at once, in patterns that tie each to those before it.
#![allow(unsafe_code, missing_docs)]

mod growth;
mod opencl;

use std::ptr::{null, null_mut};

use growth::*;
use opencl::*;

const SIZE: usize = 256;

/// Reads into and writes from parts of one host buffer, in turns, by `part` of the turn's number.
fn reads_and_writes(bytes: usize, part: impl Fn(usize) -> (usize, usize)) {
    let _turn = turn();
    let cl = Fixture::new();
    let (from, to) = (cl.buffer_of(&pattern(1, bytes)), cl.buffer(0, bytes));
    let mut host = vec![0u8; bytes];
    let at = host.as_mut_ptr();
    grows_linearly(1500, |count| {
        for turn in 0..count {
            let (offset, length) = part(turn);
            ok!(clEnqueueReadBuffer(
                cl.queue,
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
                cl.queue,
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
        cl.finish();
    });
    let (offset, length) = part(0);
    let written = cl.read(to, offset, length);
    assert_eq!(written, pattern(1, bytes)[offset..offset + length]);
    ok!(clReleaseMemObject(from));
    ok!(clReleaseMemObject(to));
}

#[test]
fn reads_into_and_writes_from_one_place() {
    reads_and_writes(SIZE, |_| (0, SIZE));
}

#[test]
fn reads_into_a_place_and_writes_from_parts_of_it() {
    reads_and_writes(SIZE, |turn| (turn % 7 * 32, 64));
}

#[test]
fn reads_too_large_for_completions_and_writes_from_parts() {
    reads_and_writes(20 << 10, |turn| (turn % 5 * 4096, 4096));
}

#[test]
fn barriers_between_commands() {
    let _turn = turn();
    let cl = Fixture::new();
    let queue = cl.another_queue(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    let buffer = cl.buffer(0, SIZE);
    let number = 7u32;
    for marks in [false, true] {
        grows_linearly(1500, |count| {
            for _ in 0..count {
                ok!(clEnqueueWriteBuffer(
                    queue,
                    buffer,
                    CL_FALSE,
                    0,
                    4,
                    (&raw const number).cast(),
                    0,
                    null(),
                    null_mut()
                ));
                // Either comes after everything before it.
                if marks {
                    ok!(clEnqueueMarkerWithWaitList(queue, 0, null(), null_mut()));
                } else {
                    ok!(clEnqueueBarrierWithWaitList(queue, 0, null(), null_mut()));
                }
            }
            ok!(clFinish(queue));
        });
    }
    assert_eq!(cl.read(buffer, 0, 4), number.to_ne_bytes());
    ok!(clReleaseMemObject(buffer));
    ok!(clReleaseCommandQueue(queue));
}
