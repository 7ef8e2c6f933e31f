//! Tests of events in contexts of several nodes: waits, markers, barriers, callbacks and times, for commands of any
//! node.

use std::ptr::null_mut;
use std::sync::mpsc::{Sender, channel};

use crate::frames::nodes;
use crate::frames::opencl::*;
use crate::frames::several::*;

#[test]
fn a_command_waits_for_those_of_other_nodes() {
    own_process!();
    for properties in [0, OUT_OF_ORDER] {
        let cl = several_with(properties);
        // Only events order these commands, because each has its own buffer.
        let buffers = ALL.map(|_| cl.buffer(0, 64));
        let mut events: Vec<cl_event> = Vec::new();
        for turn in 0..60 {
            let site = turn * 3 % 4;
            let from = events.len().saturating_sub(3);
            let next = cl.fill(site, buffers[site], turn as u32, (0, 64), &events[from..]);
            events.push(next);
        }
        let (count, list) = list(&events);
        ok!(clWaitForEvents(count, list));
        for site in ALL {
            let last = (0..60).rfind(|turn| turn * 3 % 4 == site).expect("one");
            assert_eq!(cl.numbers(site, buffers[site], 16), [last as u32; 16]);
        }
        release(&events);
        release_memory(&buffers);
    }
}

#[test]
fn one_wait_is_for_events_of_all_nodes() {
    own_process!();
    let cl = several();
    let buffers = ALL.map(|_| cl.buffer(0, 1 << 16));
    let events = ALL.map(|site| cl.fill(site, buffers[site], 1, (0, 1 << 16), &[]));
    let user = cl.user_event();
    set(user, CL_COMPLETE);
    let all: Vec<cl_event> = events.into_iter().chain([user]).collect();
    let (count, list) = list(&all);
    ok!(clWaitForEvents(count, list));
    assert!(all.iter().all(|event| status_of(*event) == CL_COMPLETE));
    // A failure is reported after all have ended.
    let failing = cl.user_event();
    let failed = cl.fill(DELTA, buffers[3], 1, (0, 64), &[failing]);
    let good = cl.fill(ALPHA, buffers[0], 1, (0, 1 << 16), &[]);
    set(failing, -7);
    let both = [failed, good];
    let waited = code!(clWaitForEvents(2, both.as_ptr()));
    assert_eq!(waited, CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    assert_eq!(status_of(good), CL_COMPLETE);
    release(&all);
    release(&both);
    release(&[failing]);
    release_memory(&buffers);
}

#[test]
fn markers_and_barriers_keep_order_over_nodes() {
    own_process!();
    for properties in [0, OUT_OF_ORDER] {
        let cl = several_with(properties);
        let buffer = cl.buffer_of(0, &[0; 4096]);
        for round in 0..5 {
            // A marker with an empty list covers everything before it. Then come a marker with a list and both kinds
            // of barriers.
            let added = cl.add(ALPHA, buffer, 1, 1024, &[]);
            let marker = cl.marker(ALPHA, &[]);
            let barrier = cl.barrier(DELTA, &[marker]);
            let behind = cl.add(DELTA, buffer, 1, 1024, &[]);
            let all = cl.barrier(DELTA, &[]);
            let listed = cl.marker(GAMMA, &[all, behind]);
            let last = cl.barrier(ALPHA, &[listed]);
            let read = cl.try_read(ALPHA, buffer, 0, 4096, &[]).expect("read");
            assert_eq!(numbers(&read), vec![2 * round + 2; 1024]);
            for event in [added, marker, barrier, behind, all, listed, last] {
                assert_eq!(finish(event), CL_SUCCESS);
            }
        }
        release_memory(&[buffer]);
    }
}

#[test]
fn a_marker_without_a_list_comes_after_parts_at_other_nodes() {
    own_process!();
    let cl = several_with(OUT_OF_ORDER);
    let size = 1 << 20;
    let buffer = cl.buffer(0, size);
    cl.write(DELTA, buffer, 0, &pattern(1, size / 2));
    cl.write(GAMMA, buffer, size / 2, &pattern(2, size / 2));
    let mut read = vec![0; size];
    let event = cl.begin_read(ALPHA, buffer, 0, &mut read, &[]);
    let copied = cl.buffer(0, size);
    let copy = cl.copy(ALPHA, (buffer, 0), (copied, 0), size / 2, &[]);
    let marker = cl.marker(ALPHA, &[]);
    assert_eq!(finish(marker), CL_SUCCESS);
    assert_eq!(status_of(event), CL_COMPLETE);
    assert_eq!(status_of(copy), CL_COMPLETE);
    assert_eq!(read, [pattern(1, size / 2), pattern(2, size / 2)].concat());
    release(&[event, copy]);
    release_memory(&[buffer, copied]);
}

fn times_of(event: cl_event) -> [u64; 4] {
    [
        CL_PROFILING_COMMAND_QUEUED,
        CL_PROFILING_COMMAND_SUBMIT,
        CL_PROFILING_COMMAND_START,
        CL_PROFILING_COMMAND_END,
    ]
    .map(|name| {
        let mut time = 0u64;
        let to = (&raw mut time).cast();
        ok!(clGetEventProfilingInfo(event, name, 8, to, null_mut()));
        time
    })
}

unsafe extern "C" fn tell(event: cl_event, status: cl_int, to: *mut c_void) {
    // SAFETY: `listen` gave a sender, which lives as long as the test's receiver is waited for.
    let to = unsafe { &*to.cast::<Sender<(usize, cl_int, cl_int)>>() };
    let _ = to.send((event.addr(), status, status_of(event)));
}

#[test]
fn commands_of_several_parts_have_times_and_callbacks() {
    own_process!();
    for more in [0, OUT_OF_ORDER] {
        let cl = several_with(CL_QUEUE_PROFILING_ENABLE | more);
        let size = 1 << 16;
        let (buffer, copied) = (cl.buffer(0, size), cl.buffer(0, size));
        let kept = cl.buffer_of(0, &pattern(4, size));
        cl.write(DELTA, buffer, 0, &pattern(1, size / 2));
        cl.write(GAMMA, buffer, size / 2, &pattern(2, size / 2));
        let (mut pieces, mut whole) = (vec![0; size], vec![0; size]);
        let user = cl.user_event();
        let mut at = null_mut();
        let read = cl.begin_read(ALPHA, buffer, 0, &mut pieces, &[user]);
        let from_client = cl.begin_read(BETA, kept, 0, &mut whole, &[]);
        // This command runs at Delta.
        let copy = cl.copy(ALPHA, (buffer, 0), (copied, 0), size / 2, &[read]);
        let map = make!(clEnqueueMapBuffer(
            cl.queues[BETA],
            buffer,
            CL_FALSE,
            CL_MAP_READ,
            0,
            size,
            1,
            &raw const copy,
            &raw mut at,
        ))
        .expect("a map");
        let events = [read, from_client, copy, at];
        let (sender, receiver) = channel::<(usize, cl_int, cl_int)>();
        let to: *const Sender<_> = &raw const sender;
        for event in events {
            let to = to.cast_mut().cast();
            ok!(clSetEventCallback(event, CL_COMPLETE, Some(tell), to));
        }
        set(user, CL_COMPLETE);
        for _ in events {
            let (event, told, status) = receiver.recv_timeout(PATIENCE).expect("called");
            assert!(events.iter().any(|of| of.addr() == event));
            assert_eq!((told, status), (CL_COMPLETE, CL_COMPLETE));
        }
        let expected = [pattern(1, size / 2), pattern(2, size / 2)].concat();
        assert_eq!(pieces, expected);
        assert_eq!(whole, pattern(4, size));
        for event in events {
            let times = times_of(event);
            assert!(times[0] > 0 && times.is_sorted(), "{times:?}");
        }
        assert!(times_of(read)[3] <= times_of(copy)[3]);
        // SAFETY: mapped, and the map is complete.
        let mapped = unsafe { std::slice::from_raw_parts(map.cast::<u8>(), size) };
        assert_eq!(mapped, expected);
        assert_eq!(finish(cl.unmap(BETA, buffer, mapped, &[])), CL_SUCCESS);
        release(&events);
        release(&[user]);
        release_memory(&[buffer, copied, kept]);
    }
}

#[test]
fn a_failure_reaches_dependants_on_all_nodes_and_nobody_else() {
    own_process!();
    let cl = several();
    let buffers = ALL.map(|_| cl.buffer(0, 64));
    let user = cl.user_event();
    let first = cl.fill(ALPHA, buffers[0], 1, (0, 64), &[user]);
    let mut chain = vec![first];
    for site in [DELTA, GAMMA, BETA, ALPHA, DELTA] {
        let last = chain[chain.len() - 1];
        chain.push(cl.fill(site, buffers[site], 2, (0, 64), &[last]));
    }
    set(user, -1000);
    for event in chain {
        assert_eq!(finish(event), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    }
    // All queues still work.
    for site in ALL {
        assert_eq!(
            finish(cl.fill(site, buffers[site], 5, (0, 64), &[])),
            CL_SUCCESS
        );
        cl.finish(site);
        assert_eq!(cl.numbers(3 - site, buffers[site], 16), [5; 16]);
    }
    // New commands behind the failed event fail too.
    let mut event = null_mut();
    ok!(clEnqueueMarkerWithWaitList(
        cl.queues[BETA],
        1,
        &raw const user,
        &raw mut event
    ));
    assert_eq!(finish(event), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    release(&[user]);
    release_memory(&buffers);
}

#[test]
fn a_command_that_fails_on_its_node_fails_those_behind_it_elsewhere() {
    own_process!();
    let cl = several();
    let buffers = ALL.map(|_| cl.buffer(0, 64));
    let rules = "[kernel.nothing]\nfail = -5";
    let rules = cl.nodes[2].with_rules(rules);
    let args = |site: usize| {
        [
            Arg::Memory(buffers[site]),
            Arg::Memory(buffers[site]),
            Arg::Memory(buffers[site]),
        ]
    };
    let failing = cl
        .try_launch(DELTA, "nothing", &args(3), 4, &[])
        .expect("launched");
    let behind = cl.fill(ALPHA, buffers[0], 1, (0, 64), &[failing]);
    let further = cl.fill(GAMMA, buffers[2], 1, (0, 64), &[behind]);
    assert_eq!(
        finish(further),
        CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST
    );
    assert_eq!(finish(behind), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    assert_eq!(finish(failing), -5);
    assert_eq!(code!(clFinish(cl.queues[DELTA])), -5);
    for site in [ALPHA, BETA, GAMMA, DELTA] {
        cl.finish(site);
    }
    drop(rules);
    release_memory(&buffers);
}

#[test]
fn a_failure_that_a_blocking_call_has_told_is_not_told_again() {
    own_process!();
    let cl = several();
    let buffer = cl.buffer(0, 64);
    cl.write(DELTA, buffer, 0, &[1; 64]);
    let rules = "[kernel.nothing]\nfail = -6\n[[call]]\nname = \"clEnqueueReadBuffer\"\nfail = -5";
    let rules = cl.nodes[2].with_rules(rules);
    assert_eq!(cl.try_read(DELTA, buffer, 0, 64, &[]), Err(-5));
    cl.finish(DELTA);
    // A failure that was not reported yet is reported, whatever was reported since.
    let args = [buffer; 3].map(Arg::Memory);
    let failing = cl.try_launch(DELTA, "nothing", &args, 4, &[]);
    release(&[failing.expect("launched")]);
    assert_eq!(cl.try_read(DELTA, buffer, 0, 64, &[]), Err(-5));
    assert_eq!(code!(clFinish(cl.queues[DELTA])), -6);
    cl.finish(DELTA);
    drop(rules);
    release_memory(&[buffer]);
}

#[test]
fn objects_may_be_released_right_behind_their_last_use() {
    own_process!();
    let cl = several();
    for round in 0..50u32 {
        let context = cl.context;
        let buffer = cl.buffer_of(0, &[0; 4096]);
        let half = cl.part(buffer, 2048, 2048);
        let site = round as usize % 4;
        let queue = make!(clCreateCommandQueue(context, cl.devices[site], 0)).expect("a queue");
        let mut event = cl.add(site, buffer, 1, 1024, &[]);
        for other in ALL {
            let next = cl.add(other, half, 1, 512, &[event]);
            release(&[event]);
            event = next;
        }
        let mut read = vec![0; 4096];
        let mut done = null_mut();
        ok!(clEnqueueReadBuffer(
            queue,
            buffer,
            CL_FALSE,
            0,
            4096,
            read.as_mut_ptr().cast(),
            1,
            &raw const event,
            &raw mut done
        ));
        release(&[event]);
        release_memory(&[half, buffer]);
        ok!(clReleaseCommandQueue(queue));
        assert_eq!(finish(done), CL_SUCCESS);
        let read = numbers(&read);
        assert_eq!((read[0], read[1023]), (1, 5));
    }
    drop(cl);
    nothing_stays();
}

/// Checks that all objects are soon released on the nodes.
fn nothing_stays() {
    let nodes = nodes::start(&[]);
    let counts = || {
        let of = |names: &[&str]| -> usize {
            let each = names.iter();
            each.map(|name| nodes.iter().map(|node| node.count(name)).sum::<usize>())
                .sum()
        };
        let queues = ["clCreateCommandQueue", "clCreateCommandQueueWithProperties"];
        [
            (
                "contexts",
                of(&["clCreateContext"]),
                of(&["clReleaseContext"]),
            ),
            ("queues", of(&queues), of(&["clReleaseCommandQueue"])),
            (
                "memory objects",
                of(&["clCreateBuffer", "clCreateSubBuffer"]),
                of(&["clReleaseMemObject"]),
            ),
        ]
    };
    let end = std::time::Instant::now() + PATIENCE;
    loop {
        let counts = counts();
        if counts.iter().all(|(_, made, released)| made == released) {
            break;
        }
        assert!(std::time::Instant::now() < end, "{counts:?}");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}
