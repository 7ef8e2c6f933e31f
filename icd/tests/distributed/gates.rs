//! Tests of user events in contexts of several nodes: which commands they withhold, which not, and how that ends.

use std::ptr::null_mut;
use std::time::Duration;

use crate::frames::opencl::*;
use crate::frames::several::*;

fn is_held(event: cl_event) {
    let status = status_of(event);
    assert!(status == CL_QUEUED || status == CL_SUBMITTED, "{status}");
}

#[test]
fn what_is_held_back_happens_later_and_nothing_else_waits_for_it() {
    for properties in [0, OUT_OF_ORDER] {
        let cl = several_with(properties);
        let buffer = cl.buffer_of(0, &bytes(&[1; 256]));
        let user = cl.user_event();
        let held = cl.add(ALPHA, buffer, 10, 256, &[user]);
        // The application orders these commands after no withheld one.
        assert_eq!(cl.numbers(DELTA, buffer, 256), [1; 256]);
        let free = cl.add(GAMMA, buffer, 1, 256, &[]);
        assert_eq!(finish(free), CL_SUCCESS);
        assert_eq!(cl.numbers(BETA, buffer, 256), [2; 256]);
        is_held(held);
        let behind = cl.add(DELTA, buffer, 100, 256, &[held]);
        is_held(behind);
        set(user, CL_COMPLETE);
        let read = cl.try_read(BETA, buffer, 0, 1024, &[behind]).expect("read");
        assert_eq!(numbers(&read), [112; 256]);
        assert_eq!(finish(held), CL_SUCCESS);
        release(&[behind, user]);
        release_memory(&[buffer]);
    }
}

#[test]
fn a_reader_that_the_application_puts_before_a_held_writer_gets_the_old_bytes() {
    // Design, section 6: a kernel on the second node reads bytes that a withheld command of the first node
    // overwrites. The application sets the user event only when it has seen the kernel's result.
    let cl = several();
    let buffer = cl.buffer(0, 1024);
    cl.write(ALPHA, buffer, 0, &bytes(&[3; 256]));
    let user = cl.user_event();
    let held = cl.fill(ALPHA, buffer, 9, (0, 1024), &[user]);
    let copied = cl.buffer(0, 1024);
    let args = [Arg::Memory(copied), Arg::Memory(buffer)];
    let reader = cl
        .try_launch(DELTA, "fake_copy", &args, 1024, &[])
        .expect("launched");
    assert_eq!(finish(reader), CL_SUCCESS);
    assert_eq!(cl.numbers(GAMMA, copied, 256), [3; 256]);
    set(user, CL_COMPLETE);
    assert_eq!(finish(held), CL_SUCCESS);
    assert_eq!(cl.numbers(DELTA, buffer, 256), [9; 256]);
    release(&[user]);
    release_memory(&[buffer, copied]);
}

#[test]
fn an_in_order_queue_and_barriers_hold_back_what_is_behind() {
    let cl = several();
    let buffer = cl.buffer_of(0, &bytes(&[0; 256]));
    let user = cl.user_event();
    let first = cl.add(ALPHA, buffer, 1, 256, &[user]);
    let second = cl.add(ALPHA, buffer, 2, 256, &[]);
    let marker = cl.marker(ALPHA, &[]);
    let other = cl.add(DELTA, buffer, 4, 256, &[marker]);
    [first, second, marker, other].into_iter().for_each(is_held);
    set(user, CL_COMPLETE);
    assert_eq!(finish(other), CL_SUCCESS);
    assert_eq!(cl.numbers(BETA, buffer, 256), [7; 256]);
    release(&[first, second, marker, user]);
    release_memory(&[buffer]);
    drop(cl);

    let cl = several_with(OUT_OF_ORDER);
    let user = cl.user_event();
    let buffer = cl.buffer(0, 64);
    let free = cl.add(ALPHA, buffer, 1, 16, &[]);
    let barrier = cl.barrier(ALPHA, &[user]);
    let behind = cl.marker(ALPHA, &[free]);
    let elsewhere = cl.marker(GAMMA, &[behind]);
    let beside = cl.marker(GAMMA, &[free]);
    assert_eq!(finish(beside), CL_SUCCESS);
    [barrier, behind, elsewhere].into_iter().for_each(is_held);
    set(user, CL_COMPLETE);
    assert_eq!(finish(elsewhere), CL_SUCCESS);
    release(&[free, barrier, behind, user]);
    release_memory(&[buffer]);
}

#[test]
fn who_waits_for_a_held_command_hears_of_both_ends() {
    for (status, expected) in [
        (CL_COMPLETE, (CL_SUCCESS, CL_SUCCESS)),
        (
            -3,
            (CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, CL_SUCCESS),
        ),
    ] {
        let cl = several();
        let buffer = cl.buffer(0, 64);
        let user = cl.user_event();
        let held = cl.fill(DELTA, buffer, 1, (0, 64), &[user]);
        let behind = cl.fill(ALPHA, buffer, 1, (0, 64), &[held]);
        let shared = Shared((cl.queues[ALPHA], [held, behind]));
        let waiting = soon(move || {
            let (_, events) = shared.get();
            code!(clWaitForEvents(2, events.as_ptr()))
        });
        let finishing = soon(move || code!(clFinish(shared.get().0)));
        // Neither call returns before the user event is set.
        assert!(waiting.recv_timeout(Duration::from_millis(50)).is_err());
        assert!(finishing.try_recv().is_err());
        set(user, status);
        assert_eq!(waiting.recv_timeout(PATIENCE), Ok(expected.0));
        assert_eq!(finishing.recv_timeout(PATIENCE), Ok(expected.1));
        release(&[held, behind, user]);
        release_memory(&[buffer]);
    }
}

#[test]
fn blocking_calls_wait_for_another_thread_to_set_the_event() {
    let cl = several();
    let buffer = cl.buffer_of(0, &bytes(&[1; 256]));
    let user = cl.user_event();
    let held = cl.add(GAMMA, buffer, 1, 256, &[user]);
    let shared = Shared((cl.queues[DELTA], buffer, held));
    let reading = soon(move || {
        let (queue, buffer, held) = shared.get();
        let mut read = vec![0u8; 1024];
        let to = read.as_mut_ptr().cast();
        let code = code!(clEnqueueReadBuffer(
            queue,
            buffer,
            CL_TRUE,
            0,
            1024,
            to,
            1,
            &raw const held,
            null_mut()
        ));
        (code, numbers(&read))
    });
    assert!(reading.recv_timeout(Duration::from_millis(50)).is_err());
    set(user, CL_COMPLETE);
    let (code, read) = reading.recv_timeout(PATIENCE).expect("returned");
    assert_eq!((code, read), (CL_SUCCESS, vec![2; 256]));
    release(&[held, user]);
    // The same case with a failed user event.
    let user = cl.user_event();
    let held = cl.add(GAMMA, buffer, 1, 256, &[user]);
    let shared = Shared((cl.queues[ALPHA], buffer, held));
    let mapping = soon(move || {
        let (queue, buffer, held) = shared.get();
        make!(clEnqueueMapBuffer(
            queue,
            buffer,
            CL_TRUE,
            CL_MAP_READ,
            0,
            1024,
            1,
            &raw const held,
            null_mut(),
        ))
        .err()
    });
    assert!(mapping.recv_timeout(Duration::from_millis(50)).is_err());
    set(user, -9);
    let code = mapping.recv_timeout(PATIENCE).expect("returned");
    assert_eq!(code, Some(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST));
    release(&[held, user]);
    release_memory(&[buffer]);
}

unsafe extern "C" fn set_next(_: cl_event, status: cl_int, user: *mut c_void) {
    assert_eq!(status, CL_COMPLETE);
    set(user, CL_COMPLETE);
}

#[test]
fn callbacks_may_set_user_events() {
    let cl = several();
    let buffer = cl.buffer_of(0, &bytes(&[0; 64]));
    let users: Vec<_> = (0..20).map(|_| cl.user_event()).collect();
    let mut events = Vec::new();
    for (turn, user) in users.iter().enumerate() {
        events.push(cl.add(turn % 4, buffer, 1, 64, &[*user]));
    }
    for (event, user) in events.iter().zip(&users[1..]) {
        ok!(clSetEventCallback(
            *event,
            CL_COMPLETE,
            Some(set_next),
            *user
        ));
    }
    set(users[0], CL_COMPLETE);
    let last = events[events.len() - 1];
    ok!(clWaitForEvents(1, &raw const last));
    assert_eq!(cl.numbers(GAMMA, buffer, 64), [20; 64]);
    release(&events);
    release(&users);
    release_memory(&[buffer]);
}

#[test]
fn events_are_set_while_others_enqueue() {
    let cl = several();
    let buffer = cl.buffer_of(0, &bytes(&[0; 64]));
    let users: Vec<_> = (0..200).map(|_| cl.user_event()).collect();
    let shared = Shared(users.iter().map(|user| user.addr()).collect::<Vec<_>>());
    let setting = soon(move || {
        for user in shared.0 {
            set(std::ptr::with_exposed_provenance_mut(user), CL_COMPLETE);
            std::thread::yield_now();
        }
    });
    users.iter().for_each(|user| {
        user.expose_provenance();
    });
    let mut last = cl.marker(ALPHA, &[]);
    for (turn, user) in users.iter().enumerate() {
        let next = cl.add(turn % 4, buffer, 1, 64, &[last, *user]);
        release(&[last]);
        last = next;
    }
    setting.recv_timeout(PATIENCE).expect("set");
    assert_eq!(finish(last), CL_SUCCESS);
    assert_eq!(cl.numbers(BETA, buffer, 64), [200; 64]);
    release(&users);
    release_memory(&[buffer]);
}

#[test]
#[ignore = "a million commands"]
fn too_many_held_commands_are_refused_and_the_others_run() {
    let cl = several();
    let buffer = cl.buffer(0, 64);
    let user = cl.user_event();
    let most = causeway_proto::limits::MAX_HELD_COMMANDS;
    let enqueue = || {
        code!(clEnqueueFillBuffer(
            cl.queues[DELTA],
            buffer,
            [1u8; 4].as_ptr().cast(),
            4,
            0,
            64,
            1,
            &raw const user,
            null_mut()
        ))
    };
    for _ in 0..most {
        assert_eq!(enqueue(), CL_SUCCESS);
    }
    assert_eq!(enqueue(), CL_OUT_OF_HOST_MEMORY);
    // Commands that are not withheld do not fail.
    let free = cl.fill(ALPHA, buffer, 1, (0, 64), &[]);
    assert_eq!(finish(free), CL_SUCCESS);
    set(user, CL_COMPLETE);
    cl.finish(DELTA);
    assert_eq!(enqueue(), CL_SUCCESS);
    cl.finish_all();
    release(&[user]);
    release_memory(&[buffer]);
}

#[test]
fn a_held_write_takes_its_bytes_when_it_may() {
    let cl = several();
    let buffer = cl.buffer(0, 1 << 16);
    for size in [64, 1 << 16] {
        let mut bytes = vec![1u8; size];
        let user = cl.user_event();
        let at = bytes.as_mut_ptr();
        let write = cl.begin_write(GAMMA, buffer, 0, &bytes, &[user]);
        // SAFETY: of `bytes`, which nobody reads before the event is set.
        unsafe { at.write_bytes(2, size) };
        set(user, CL_COMPLETE);
        assert_eq!(finish(write), CL_SUCCESS);
        assert_eq!(cl.read(DELTA, buffer, 0, size), vec![2; size]);
        release(&[user]);
        drop(bytes);
    }
    // A write from memory that a withheld read fills waits too.
    let (mut read, user) = (vec![0u8; 1 << 16], cl.user_event());
    let event = cl.begin_read(ALPHA, buffer, 0, &mut read, &[user]);
    let back = cl.buffer(0, 1 << 16);
    let write = cl.begin_write(ALPHA, back, 0, &read, &[]);
    set(user, CL_COMPLETE);
    assert_eq!(finish(write), CL_SUCCESS);
    assert_eq!(cl.read(BETA, back, 0, 1 << 16), vec![2; 1 << 16]);
    release(&[event, user]);
    release_memory(&[buffer, back]);
}

#[test]
fn everything_may_be_released_while_it_is_held_back() {
    let cl = several();
    let context = {
        ok!(clRetainContext(cl.context));
        cl.context
    };
    let mut read = vec![0u8; 1024];
    let user = cl.user_event();
    let buffer = cl.buffer_of(0, &bytes(&[1; 256]));
    let queue = make!(clCreateCommandQueue(context, cl.devices[DELTA], 0)).expect("a queue");
    let added = cl.add(GAMMA, buffer, 1, 256, &[user]);
    let mut event = null_mut();
    ok!(clEnqueueReadBuffer(
        queue,
        buffer,
        CL_FALSE,
        0,
        1024,
        read.as_mut_ptr().cast(),
        1,
        &raw const added,
        &raw mut event
    ));
    release(&[added]);
    release_memory(&[buffer]);
    ok!(clReleaseCommandQueue(queue));
    ok!(clReleaseContext(context));
    set(user, CL_COMPLETE);
    release(&[user]);
    assert_eq!(finish(event), CL_SUCCESS);
    assert_eq!(numbers(&read), [2; 256]);
    // Commands behind a user event that nobody can set any more wait forever. They harm no other command.
    let never = cl.user_event();
    let buffer = cl.buffer(0, 64);
    let lost = cl.fill(ALPHA, buffer, 1, (0, 64), &[never]);
    release(&[never, lost]);
    let free = cl.fill(BETA, buffer, 7, (0, 64), &[]);
    assert_eq!(finish(free), CL_SUCCESS);
    assert_eq!(cl.numbers(DELTA, buffer, 16), [7; 16]);
    release_memory(&[buffer]);
}
