//! Tests which calls on command buffers are refused, with which code, and what queries answer.

use std::ptr::{null, null_mut};

use crate::frames::opencl::*;
use crate::frames::programs::*;
use crate::frames::recorded::*;

const SOURCE: &str = "kernel void put(global int *x, int value) { x[get_global_id(0)] = value; }";
const FLAGS: u64 = CL_COMMAND_BUFFER_FLAGS_KHR;

#[test]
fn creation_wants_one_queue_and_flags_that_are_there() {
    let cl = Fixture::new();
    let code = |queues: &[cl_command_queue], properties| create(queues, properties).err();
    assert_eq!(code(&[], None), Some(CL_INVALID_VALUE));
    assert_eq!(code(&[cl.queue, cl.queue], None), Some(CL_INVALID_VALUE));
    assert_eq!(code(&[null_mut()], None), Some(CL_INVALID_COMMAND_QUEUE));
    let not_a_queue = cl.context.cast();
    assert_eq!(code(&[not_a_queue], None), Some(CL_INVALID_COMMAND_QUEUE));
    let again = [FLAGS, 1, FLAGS, 1, 0];
    for wrong in [&again[..], &[FLAGS, u64::MAX, 0], &[77, 0, 0]] {
        assert_eq!(code(&[cl.queue], Some(wrong)), Some(CL_INVALID_VALUE));
    }
    const ASSERTS: u64 = CL_COMMAND_BUFFER_MUTABLE_DISPATCH_ASSERTS_KHR;
    let asserts = [ASSERTS, 2, 0];
    assert_eq!(code(&[cl.queue], Some(&asserts)), Some(CL_INVALID_VALUE));
    for right in [
        &[0][..],
        &[FLAGS, 0, 0],
        &[FLAGS, CL_COMMAND_BUFFER_SIMULTANEOUS_USE_KHR, 0],
        &[ASSERTS, 1, FLAGS, CL_COMMAND_BUFFER_MUTABLE_KHR, 0],
    ] {
        let raw = create(&[cl.queue], Some(right)).expect("a command buffer");
        let mut back = [77u64; 5];
        let mut size = 0;
        let to = back.as_mut_ptr().cast();
        let name = CL_COMMAND_BUFFER_PROPERTIES_ARRAY_KHR;
        assert_eq!(call!(info(raw, name, 40, to, &raw mut size)), CL_SUCCESS);
        assert_eq!(back[..size / 8], *right);
        assert_eq!(call!(release(raw)), CL_SUCCESS);
    }
}

#[test]
fn handles_count_and_die() {
    let cl = Fixture::new();
    let raw = create(&[cl.queue], None).unwrap();
    let count = || {
        let mut count = 0u32;
        let to = (&raw mut count).cast();
        let name = CL_COMMAND_BUFFER_REFERENCE_COUNT_KHR;
        assert_eq!(call!(info(raw, name, 4, to, null_mut())), CL_SUCCESS);
        count
    };
    assert_eq!(count(), 1);
    assert_eq!(call!(retain(raw)), CL_SUCCESS);
    assert_eq!(count(), 2);
    assert_eq!(call!(release(raw)), CL_SUCCESS);
    assert_eq!(call!(release(raw)), CL_SUCCESS);
    for dead in [raw, null_mut(), cl.queue.cast()] {
        assert_eq!(call!(retain(dead)), CL_INVALID_COMMAND_BUFFER_KHR);
        assert_eq!(call!(release(dead)), CL_INVALID_COMMAND_BUFFER_KHR);
        assert_eq!(call!(finalize(dead)), CL_INVALID_COMMAND_BUFFER_KHR);
        let name = CL_COMMAND_BUFFER_STATE_KHR;
        let asked = call!(info(dead, name, 0, null_mut(), null_mut()));
        assert_eq!(asked, CL_INVALID_COMMAND_BUFFER_KHR);
        let enqueued = call!(enqueue(0, null_mut(), dead, 0, null(), null_mut()));
        assert_eq!(enqueued, CL_INVALID_COMMAND_BUFFER_KHR);
        let code = call!(barrier(
            dead,
            null_mut(),
            null(),
            0,
            null(),
            null_mut(),
            null_mut()
        ));
        assert_eq!(code, CL_INVALID_COMMAND_BUFFER_KHR);
    }
}

#[test]
fn queries_tell_queue_context_and_state() {
    let cl = Fixture::new();
    let recorded = Recorded::new(cl.queue);
    assert_eq!(recorded.number::<u32>(CL_COMMAND_BUFFER_NUM_QUEUES_KHR), 1);
    let queue = recorded.number::<usize>(CL_COMMAND_BUFFER_QUEUES_KHR);
    assert_eq!(queue, cl.queue.addr());
    let context = recorded.number::<usize>(CL_COMMAND_BUFFER_CONTEXT_KHR);
    assert_eq!(context, cl.context.addr());
    let state = || recorded.number::<u32>(CL_COMMAND_BUFFER_STATE_KHR);
    assert_eq!(state(), CL_COMMAND_BUFFER_STATE_RECORDING_KHR);
    assert_eq!(recorded.finalize(), CL_SUCCESS);
    assert_eq!(state(), CL_COMMAND_BUFFER_STATE_EXECUTABLE_KHR);
    let mut small = 0u16;
    let to = (&raw mut small).cast();
    let name = CL_COMMAND_BUFFER_STATE_KHR;
    let code = call!(info(recorded.raw, name, 2, to, null_mut()));
    assert_eq!(code, CL_INVALID_VALUE);
    let code = call!(info(recorded.raw, 0x1, 0, null_mut(), null_mut()));
    assert_eq!(code, CL_INVALID_VALUE);
}

#[test]
fn recording_ends_once_and_enqueuing_comes_after_it() {
    let cl = Fixture::new();
    let buffer = cl.buffer(0, 16);
    let recorded = Recorded::new(cl.queue);
    recorded.fill(buffer, 1, 16, &[]).unwrap();
    assert_eq!(recorded.try_enqueue(&[], &[]), Err(CL_INVALID_OPERATION));
    assert_eq!(recorded.finalize(), CL_SUCCESS);
    assert_eq!(recorded.finalize(), CL_INVALID_OPERATION);
    assert_eq!(recorded.fill(buffer, 1, 16, &[]), Err(CL_INVALID_OPERATION));
    assert_eq!(recorded.barrier(&[]), Err(CL_INVALID_OPERATION));
    ok!(clReleaseMemObject(buffer));
}

#[test]
fn an_enqueue_wants_a_queue_of_the_device_and_a_list_of_the_context() {
    let (cl, elsewhere) = (Fixture::new(), Fixture::new());
    let recorded = Recorded::new(cl.queue);
    assert_eq!(recorded.finalize(), CL_SUCCESS);
    let refused = |queues: &[cl_command_queue], wait: &[cl_event]| {
        recorded.try_enqueue(queues, wait).unwrap_err()
    };
    let other = elsewhere.queue;
    assert_eq!(refused(&[other], &[]), CL_INVALID_CONTEXT);
    assert_eq!(refused(&[null_mut()], &[]), CL_INVALID_COMMAND_QUEUE);
    assert_eq!(refused(&[cl.queue, cl.queue], &[]), CL_INVALID_VALUE);
    assert_eq!(refused(&[], &[null_mut()]), CL_INVALID_EVENT_WAIT_LIST);
    let foreign = elsewhere.user_event();
    assert_eq!(refused(&[], &[foreign]), CL_INVALID_CONTEXT);
    let raw = recorded.raw;
    let mut queue = cl.queue;
    let code = call!(enqueue(1, null_mut(), raw, 0, null(), null_mut()));
    assert_eq!(code, CL_INVALID_VALUE);
    let code = call!(enqueue(0, &raw mut queue, raw, 0, null(), null_mut()));
    assert_eq!(code, CL_INVALID_VALUE);
    let code = call!(enqueue(0, null_mut(), raw, 1, null(), null_mut()));
    assert_eq!(code, CL_INVALID_EVENT_WAIT_LIST);
    ok!(clSetUserEventStatus(foreign, CL_COMPLETE));
    ok!(clReleaseEvent(foreign));
}

#[test]
fn a_command_is_refused_as_its_plain_enqueue_is() {
    let (cl, elsewhere) = (Fixture::new(), Fixture::new());
    let program = built(&cl, SOURCE, "");
    let put = kernel(program, "put");
    let (one, two) = (cl.buffer(0, 16), cl.buffer(0, 16));
    let foreign = elsewhere.buffer(0, 16);
    let recorded = Recorded::new(cl.queue);
    let copied = |from, to, numbers| recorded.copy((from, to), numbers, &[]).unwrap_err();
    assert_eq!(copied(one, null_mut(), (0, 0, 4)), CL_INVALID_MEM_OBJECT);
    assert_eq!(copied(one, foreign, (0, 0, 4)), CL_INVALID_CONTEXT);
    assert_eq!(copied(one, two, (0, 8, 16)), CL_INVALID_VALUE);
    assert_eq!(copied(one, one, (0, 2, 8)), CL_MEM_COPY_OVERLAP);
    assert_eq!(recorded.fill(one, 0, 6, &[]), Err(CL_INVALID_VALUE));
    assert_eq!(recorded.launch(null_mut(), 1, &[]), Err(CL_INVALID_KERNEL));
    assert_eq!(recorded.launch(put, 1, &[]), Err(CL_INVALID_KERNEL_ARGS));
    assert_eq!(set(put, 0, &one), CL_SUCCESS);
    assert_eq!(set(put, 1, &1i32), CL_SUCCESS);
    let theirs = built(&elsewhere, SOURCE, "");
    let foreign_put = kernel(theirs, "put");
    assert_eq!(
        recorded.launch(foreign_put, 1, &[]),
        Err(CL_INVALID_CONTEXT)
    );
    // Nothing was recorded: the next sync point is still the first.
    assert_eq!(
        recorded.barrier(&[1]),
        Err(CL_INVALID_SYNC_POINT_WAIT_LIST_KHR)
    );
    let point = recorded.launch(put, 1, &[]).unwrap();
    assert_eq!(
        recorded.launch(put, 1, &[0]),
        Err(CL_INVALID_SYNC_POINT_WAIT_LIST_KHR)
    );
    recorded.launch(put, 1, &[point]).unwrap();
    for memory in [one, two, foreign] {
        ok!(clReleaseMemObject(memory));
    }
    drop(recorded);
    ok!(clReleaseKernel(put));
    ok!(clReleaseKernel(foreign_put));
    ok!(clReleaseProgram(program));
    ok!(clReleaseProgram(theirs));
}

#[test]
fn queues_properties_and_handles_of_commands_are_for_others() {
    let cl = Fixture::new();
    let recorded = Recorded::new(cl.queue);
    let (raw, mut handle, mut point) = (recorded.raw, null_mut(), 1u32);
    let barrier = |queue, properties: *const u64, count, list, handle| {
        let point = null_mut();
        call!(barrier(raw, queue, properties, count, list, point, handle))
    };
    let nothing = null_mut();
    assert_eq!(
        barrier(cl.queue, null(), 0, null(), nothing),
        CL_INVALID_COMMAND_QUEUE
    );
    let properties = [CL_MUTABLE_DISPATCH_UPDATABLE_FIELDS_KHR, 1, 0];
    let at = properties.as_ptr();
    assert_eq!(
        barrier(null_mut(), at, 0, null(), nothing),
        CL_INVALID_VALUE
    );
    assert_eq!(
        barrier(null_mut(), null(), 0, null(), &raw mut handle),
        CL_INVALID_VALUE
    );
    let list = &raw mut point;
    let wrong = CL_INVALID_SYNC_POINT_WAIT_LIST_KHR;
    assert_eq!(barrier(null_mut(), null(), 0, list, nothing), wrong);
    assert_eq!(barrier(null_mut(), null(), 1, null(), nothing), wrong);
    let none = [0u64];
    let at = none.as_ptr();
    assert_eq!(barrier(null_mut(), at, 0, null(), nothing), CL_SUCCESS);
}
