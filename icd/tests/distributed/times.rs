//! Tests the times of commands that consist of parts on several nodes: from the first part to the last.

use std::path::Path;
use std::ptr::{null, null_mut};
use std::time::Instant;

use crate::frames::nodes::{await_meeting, meeting};
use crate::frames::opencl::*;
use crate::frames::several::*;

const SIZE: usize = 1 << 16;

/// Returns when the command was queued, submitted, started and ended.
fn times_of(event: cl_event) -> [u64; 4] {
    let names = [
        CL_PROFILING_COMMAND_QUEUED,
        CL_PROFILING_COMMAND_SUBMIT,
        CL_PROFILING_COMMAND_START,
        CL_PROFILING_COMMAND_END,
    ];
    names.map(|name| {
        let mut ns = 0u64;
        let to = (&raw mut ns).cast();
        ok!(clGetEventProfilingInfo(event, name, 8, to, null_mut()));
        ns
    })
}

fn now(cl: &Several) -> u64 {
    let mut ns = 0;
    ok!(clGetHostTimer(cl.devices[ALPHA], &raw mut ns));
    ns
}

/// Rules that make calls of a function wait for the test.
fn held(function: &str, folder: &Path) -> String {
    let folder = folder.display();
    format!("[[call]]\nname = \"{function}\"\nmeet = \"{folder}\"\nof = 2")
}

fn let_go(folder: &Path) {
    std::fs::write(folder.join("the test"), "").expect("written");
}

/// Checks that the event's command had started at that moment, and had not ended.
fn ran_across(event: cl_event, moment: u64) {
    ok!(clWaitForEvents(1, &raw const event));
    let times = times_of(event);
    assert!(times.is_sorted(), "{times:?}");
    assert!(
        times[2] < moment && moment < times[3],
        "{times:?}, {moment} between"
    );
    release(&[event]);
}

/// Waits for the last byte of a transfer to this memory.
fn await_byte(at: *const u8, byte: u8) {
    let end = Instant::now() + PATIENCE;
    // SAFETY: the caller's memory, which outlives the command that writes it.
    while unsafe { at.read_volatile() } != byte {
        assert!(Instant::now() < end, "the bytes do not come");
        std::thread::yield_now();
    }
}

/// Reads a buffer of which one half is at Delta and the other at Gamma. The test decides when Gamma sends its half.
fn in_two_pieces(begin: impl Fn(&Several, cl_mem, *mut u8) -> (cl_event, *const u8)) {
    let cl = several_with(CL_QUEUE_PROFILING_ENABLE);
    let buffer = cl.buffer(0, SIZE);
    let first = pattern(1, SIZE / 2);
    cl.write(DELTA, buffer, 0, &first);
    cl.write(GAMMA, buffer, SIZE / 2, &pattern(2, SIZE / 2));
    let folder = meeting(&cl.nodes[1], "pieces");
    let rules = cl.nodes[1].with_rules(&held("clEnqueueReadBuffer", &folder));
    let mut pieces = vec![!first[SIZE / 2 - 1]; SIZE];
    let (event, place) = begin(&cl, buffer, pieces.as_mut_ptr());
    ok!(clFlush(cl.queues[ALPHA]));
    await_meeting(&folder, 1);
    await_byte(place.wrapping_add(SIZE / 2 - 1), first[SIZE / 2 - 1]);
    let between = now(&cl);
    let_go(&folder);
    ran_across(event, between);
    drop(rules);
    release_memory(&[buffer]);
}

#[test]
fn a_read_in_pieces_starts_with_the_first() {
    in_two_pieces(|cl, buffer, to| {
        let mut event = null_mut();
        ok!(clEnqueueReadBuffer(
            cl.queues[ALPHA],
            buffer,
            CL_FALSE,
            0,
            SIZE,
            to.cast(),
            0,
            null(),
            &raw mut event
        ));
        (event, to)
    });
}

#[test]
fn a_map_starts_with_the_first_bytes_that_it_brings() {
    in_two_pieces(|cl, buffer, _| {
        let mut event = null_mut();
        let map = make!(clEnqueueMapBuffer(
            cl.queues[ALPHA],
            buffer,
            CL_FALSE,
            CL_MAP_READ,
            0,
            SIZE,
            0,
            null(),
            &raw mut event
        ));
        (event, map.expect("a map").cast())
    });
}

#[test]
fn a_copy_that_runs_elsewhere_starts_there() {
    let cl = several_with(CL_QUEUE_PROFILING_ENABLE);
    let (from, to) = (cl.buffer(0, SIZE), cl.buffer(0, SIZE));
    for buffer in [from, to] {
        cl.write(DELTA, buffer, 0, &pattern(1, SIZE));
    }
    let folder = meeting(&cl.nodes[0], "end");
    let rules = cl.nodes[0].with_rules(&held("clEnqueueMarkerWithWaitList", &folder));
    let copies = cl.nodes[2].count("clEnqueueCopyBuffer");
    let copy = cl.copy(ALPHA, (from, 0), (to, 0), SIZE / 2, &[]);
    // This fill overwrites the copy's target, so it comes after the copy.
    let behind = cl.fill(DELTA, to, 3, (0, SIZE), &[]);
    assert_eq!(finish(behind), CL_SUCCESS);
    assert_eq!(cl.nodes[2].count("clEnqueueCopyBuffer"), copies + 1);
    let between = now(&cl);
    let_go(&folder);
    ran_across(copy, between);
    drop(rules);
    release_memory(&[from, to]);
}
