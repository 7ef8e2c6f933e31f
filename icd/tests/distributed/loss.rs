//! Tests the loss of a node in a context of several nodes: the bytes that it alone had are lost, and everything else
//! soon goes on.

use std::ptr::{null, null_mut};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use crate::frames::opencl::*;
use crate::frames::several::*;

/// Launches of this kernel never end.
const HANGS: &str = "[kernel.nothing]\nhang = true";

/// Time limit for the client to notice a loss.
const SOON: Duration = Duration::from_secs(8);

fn hang(cl: &Several, site: usize, buffer: cl_mem) -> cl_event {
    let args = [0; 3].map(|_| Arg::Memory(buffer));
    cl.try_launch(site, "nothing", &args, 4, &[])
        .expect("launched")
}

/// Kills the worker of the last node, and waits until the client has noticed.
fn lose_delta(cl: &Several) {
    cl.nodes[2].kill_workers();
    let end = Instant::now() + SOON;
    let marker = || {
        let mut event = null_mut();
        let code = code!(clEnqueueMarkerWithWaitList(
            cl.queues[DELTA],
            0,
            null(),
            &raw mut event
        ));
        if code == CL_SUCCESS {
            finish(event)
        } else {
            code
        }
    };
    while marker() != CL_DEVICE_NOT_AVAILABLE {
        assert!(Instant::now() < end, "the loss is not known");
    }
}

#[test]
fn only_what_was_nowhere_else_is_lost_and_writing_it_anew_heals() {
    let cl = several();
    let buffer = cl.buffer(0, 4096);
    let expected = pattern(1, 4096);
    for (site, quarter) in expected.chunks(1024).enumerate() {
        cl.write(site, buffer, 1024 * site, quarter);
    }
    // Another node has a copy of half of it.
    let part = cl.part(buffer, 3072, 512);
    let mut migrated = null_mut();
    ok!(clEnqueueMigrateMemObjects(
        cl.queues[BETA],
        1,
        &raw const part,
        0,
        0,
        null(),
        &raw mut migrated
    ));
    assert_eq!(finish(migrated), CL_SUCCESS);
    lose_delta(&cl);
    for site in [ALPHA, BETA, GAMMA] {
        assert_eq!(cl.read(site, buffer, 0, 3584), expected[..3584]);
        let lost = cl.try_read(site, buffer, 0, 4096, &[]);
        assert_eq!(lost, Err(CL_OUT_OF_RESOURCES));
        let args = [Arg::Memory(buffer), Arg::Number(1)];
        let launched = cl.try_launch(site, "fake_add_u32", &args, 4, &[]);
        assert_eq!(launched, Err(CL_OUT_OF_RESOURCES));
        cl.finish(site);
    }
    // Calls on the lost node's queue change nothing.
    let refused = code!(clEnqueueWriteBuffer(
        cl.queues[DELTA],
        buffer,
        CL_FALSE,
        0,
        4096,
        expected.as_ptr().cast(),
        0,
        null(),
        null_mut()
    ));
    assert_eq!(refused, CL_DEVICE_NOT_AVAILABLE);
    assert_eq!(
        cl.try_read(DELTA, buffer, 0, 16, &[]),
        Err(CL_DEVICE_NOT_AVAILABLE)
    );
    assert_eq!(cl.read(ALPHA, buffer, 0, 3584), expected[..3584]);
    cl.write(GAMMA, buffer, 3584, &expected[3584..]);
    assert_eq!(cl.read(ALPHA, buffer, 0, 4096), expected);
    let event = cl.add(ALPHA, buffer, 0, 4, &[]);
    assert_eq!(finish(event), CL_SUCCESS);
    release_memory(&[part, buffer]);
}

#[test]
fn who_waits_for_its_commands_is_told_and_goes_on() {
    let cl = several();
    let buffers = ALL.map(|_| cl.buffer(0, 64));
    let _rules = cl.nodes[2].with_rules(HANGS);
    let hung = hang(&cl, DELTA, buffers[3]);
    let behind = cl.fill(ALPHA, buffers[0], 1, (0, 64), &[hung]);
    let further = cl.fill(GAMMA, buffers[2], 1, (0, 64), &[behind]);
    let marker = cl.marker(DELTA, &[]);
    let shared = Shared([cl.queues[ALPHA], cl.queues[GAMMA], cl.queues[DELTA]]);
    let finishing = soon(move || shared.get().map(|queue| code!(clFinish(queue))));
    cl.nodes[2].kill_workers();
    assert_eq!(finish(hung), CL_DEVICE_NOT_AVAILABLE);
    for event in [behind, further] {
        assert_eq!(finish(event), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    }
    assert_eq!(finish(marker), CL_DEVICE_NOT_AVAILABLE);
    let codes = finishing.recv_timeout(SOON).expect("all finish");
    assert_eq!(codes, [CL_SUCCESS, CL_SUCCESS, CL_DEVICE_NOT_AVAILABLE]);
    for site in [ALPHA, BETA, GAMMA] {
        assert_eq!(
            finish(cl.fill(site, buffers[site], 6, (0, 64), &[])),
            CL_SUCCESS
        );
        assert_eq!(cl.numbers(2 - site, buffers[site], 16), [6; 16]);
    }
    release_memory(&buffers);
}

#[test]
fn a_transfer_from_it_fails_with_it() {
    let cl = several();
    let buffer = cl.buffer(0, 1 << 20);
    let _rules = cl.nodes[2].with_rules(HANGS);
    let hung = hang(&cl, DELTA, buffer);
    // These commands need bytes that the lost node never sends.
    let added = cl.add(ALPHA, buffer, 1, 64, &[]);
    let behind = cl.add(BETA, buffer, 1, 64, &[added]);
    let mut bytes = vec![0; 1 << 20];
    let other = cl.buffer_of(0, &pattern(1, 1 << 12));
    let free = cl.add(ALPHA, other, 0, 64, &[]);
    let read = cl.begin_read(GAMMA, buffer, 0, &mut bytes, &[]);
    cl.nodes[2].kill_workers();
    for event in [added, behind, read] {
        let status = finish(event);
        let expected = [
            CL_DEVICE_NOT_AVAILABLE,
            CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST,
        ];
        assert!(expected.contains(&status), "{status}");
    }
    assert_eq!(finish(hung), CL_DEVICE_NOT_AVAILABLE);
    assert_eq!(finish(free), CL_SUCCESS);
    for site in [ALPHA, BETA, GAMMA] {
        let _ = code!(clFinish(cl.queues[site]));
        ok!(clFinish(cl.queues[site]));
        assert_eq!(cl.read(site, other, 0, 1 << 12), pattern(1, 1 << 12));
    }
    assert_eq!(
        finish(cl.fill(BETA, buffer, 3, (0, 1 << 20), &[])),
        CL_SUCCESS
    );
    assert_eq!(cl.numbers(ALPHA, buffer, 1 << 18), vec![3; 1 << 18]);
    release_memory(&[buffer, other]);
}

#[test]
fn a_transfer_to_it_takes_no_bytes_with_it() {
    let cl = several();
    let size = 4 << 20;
    let (buffer, small) = (cl.buffer(0, size), cl.buffer(0, 64));
    cl.write(ALPHA, buffer, 0, &pattern(1, size));
    let _rules = cl.nodes[2].with_rules(HANGS);
    let hung = hang(&cl, DELTA, small);
    // The command waits there forever, and its bytes are in flight.
    let added = cl.add(DELTA, buffer, 1, 64, &[]);
    cl.nodes[2].kill_workers();
    assert_eq!(finish(hung), CL_DEVICE_NOT_AVAILABLE);
    assert_eq!(finish(added), CL_DEVICE_NOT_AVAILABLE);
    let read = cl.try_read(BETA, buffer, 0, size, &[]);
    // A native driver would leave the bytes as they were, or as the command left them. Here the command never ran, or
    // its node had the newest bytes.
    match read {
        Ok(read) => assert!(read == pattern(1, size)),
        Err(code) => assert_eq!(code, CL_OUT_OF_RESOURCES),
    }
    cl.write(GAMMA, buffer, 0, &pattern(2, size));
    assert!(cl.read(ALPHA, buffer, 0, size) == pattern(2, size));
    release_memory(&[buffer, small]);
}

#[test]
fn commands_of_parts_there_fail_when_all_their_parts_are_over() {
    let cl = several();
    let size = 2 << 20;
    let buffer = cl.buffer(0, size);
    cl.write(ALPHA, buffer, 0, &pattern(1, size));
    let part = cl.part(buffer, size / 2, size / 2);
    let _rules = cl.nodes[2].with_rules(HANGS);
    let hung = hang(&cl, DELTA, part);
    let mut bytes = vec![0; size];
    let read = cl.begin_read(ALPHA, buffer, 0, &mut bytes, &[]);
    let whole = cl.buffer(0, size);
    let copied = cl.copy(BETA, (buffer, size / 2), (whole, 0), size / 2, &[]);
    let mut mapped = null_mut();
    let map = make!(clEnqueueMapBuffer(
        cl.queues[GAMMA],
        buffer,
        CL_FALSE,
        CL_MAP_READ,
        0,
        size,
        0,
        null(),
        &raw mut mapped,
    ))
    .expect("a map");
    let behind = cl.marker(BETA, &[read]);
    cl.nodes[2].kill_workers();
    for event in [read, copied, mapped] {
        assert_eq!(finish(event), CL_DEVICE_NOT_AVAILABLE);
    }
    assert_eq!(finish(behind), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    assert_eq!(finish(hung), CL_DEVICE_NOT_AVAILABLE);
    // The failure is the commands' own, so each is reported once.
    for site in [ALPHA, BETA, GAMMA] {
        assert_eq!(code!(clFinish(cl.queues[site])), CL_DEVICE_NOT_AVAILABLE);
        cl.finish(site);
    }
    let mut event = null_mut();
    ok!(clEnqueueUnmapMemObject(
        cl.queues[ALPHA],
        buffer,
        map,
        0,
        null(),
        &raw mut event
    ));
    assert_eq!(finish(event), CL_SUCCESS);
    assert_eq!(
        cl.read(GAMMA, buffer, 0, size / 2),
        pattern(1, size)[..size / 2]
    );
    release_memory(&[part, buffer, whole]);
}

#[test]
fn what_is_held_back_for_it_fails_when_its_time_comes() {
    let cl = several();
    let buffer = cl.buffer_of(0, &bytes(&[1; 16]));
    let user = cl.user_event();
    let held = cl.add(DELTA, buffer, 1, 16, &[user]);
    let behind = cl.add(ALPHA, buffer, 1, 16, &[held]);
    let shared = Shared(held);
    let waiting = soon(move || {
        let held = shared.get();
        code!(clWaitForEvents(1, &raw const held))
    });
    let other = make!(clCreateCommandQueue(cl.context, cl.devices[DELTA], 0)).expect("a queue");
    let mut marker = null_mut();
    ok!(clEnqueueMarkerWithWaitList(
        other,
        0,
        null(),
        &raw mut marker
    ));
    assert_eq!(finish(marker), CL_SUCCESS);
    cl.nodes[2].kill_workers();
    // The wait does not return before the application has set the user event.
    assert!(waiting.recv_timeout(Duration::from_millis(300)).is_err());
    assert!(status_of(held) > CL_RUNNING);
    set(user, CL_COMPLETE);
    let waited = waiting.recv_timeout(SOON).expect("returned");
    assert_eq!(waited, CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    assert_eq!(finish(held), CL_DEVICE_NOT_AVAILABLE);
    assert_eq!(finish(behind), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    assert_eq!(cl.numbers(BETA, buffer, 16), [1; 16]);
    ok!(clReleaseCommandQueue(other));
    release(&[user]);
    release_memory(&[buffer]);
}

unsafe extern "C" fn hear(
    text: *const core::ffi::c_char,
    _: *const c_void,
    _: size_t,
    to: *mut c_void,
) {
    // SAFETY: a C string, and the sender that the test gave and keeps.
    let (text, to) = unsafe {
        let text = std::ffi::CStr::from_ptr(text);
        (
            text.to_string_lossy().into_owned(),
            &*to.cast::<Sender<String>>(),
        )
    };
    let _ = to.send(text);
}

#[test]
fn the_context_is_told_which_node_it_was_and_a_new_one_has_it_again() {
    let cl = several();
    let (sender, heard): (Sender<String>, Receiver<String>) = channel();
    // The callback may come late, so the sender lives as long as the process.
    let sender = Box::leak(Box::new(sender));
    let to = (&raw mut *sender).cast();
    let context = make!(clCreateContext(
        null(),
        4,
        cl.devices.as_ptr(),
        Some(hear),
        to
    ))
    .expect("a context");
    lose_delta(&cl);
    let text = heard.recv_timeout(SOON).expect("the callback");
    assert!(text.contains(cl.nodes[2].address()), "{text}");
    ok!(clReleaseContext(context));
    drop(cl);
    let cl = several();
    let buffer = cl.buffer_of(0, &bytes(&[1; 16]));
    let event = cl.add(DELTA, buffer, 1, 16, &[]);
    assert_eq!(finish(event), CL_SUCCESS);
    assert_eq!(cl.numbers(ALPHA, buffer, 16), [2; 16]);
    release_memory(&[buffer]);
}
