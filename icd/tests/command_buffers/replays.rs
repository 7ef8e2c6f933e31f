//! Tests that recorded commands run again and again, in their order, as recorded.

use std::ptr::null_mut;

use crate::frames::opencl::*;
use crate::frames::programs::*;
use crate::frames::recorded::*;

const SOURCE: &str = "\
kernel void add(global int *x, int value) { x[get_global_id(0)] += value; }
kernel void twice(global int *x) { x[get_global_id(0)] *= 2; }
";
const OUT_OF_ORDER: cl_command_queue_properties = CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE;
const COUNT: usize = 64;
const SIZE: usize = 4 * COUNT;

fn done(event: cl_event) {
    ok!(clWaitForEvents(1, &raw const event));
    assert_eq!(status_of(event), CL_COMPLETE);
    ok!(clReleaseEvent(event));
}

#[test]
fn commands_run_in_order_with_the_arguments_of_their_recording() {
    let cl = Fixture::new();
    let program = built(&cl, SOURCE, "");
    let add = kernel(program, "add");
    let (work, result) = (cl.buffer_of(&[0; SIZE]), cl.buffer_of(&[0; SIZE]));
    let recorded = Recorded::new(cl.queue);
    assert_eq!(set(add, 0, &work), CL_SUCCESS);
    recorded.fill(work, 5, SIZE, &[]).unwrap();
    for value in [10i32, 100] {
        assert_eq!(set(add, 1, &value), CL_SUCCESS);
        recorded.launch(add, COUNT, &[]).unwrap();
    }
    recorded.copy((work, result), (0, 0, SIZE), &[]).unwrap();
    // Later arguments and separate launches do not change the recorded launch, and the reverse.
    assert_eq!(set(add, 1, &1i32), CL_SUCCESS);
    assert_eq!(recorded.finalize(), CL_SUCCESS);
    for _ in 0..3 {
        assert_eq!(launch(cl.queue, add, COUNT), CL_SUCCESS);
        assert_eq!(ints(&cl, work, COUNT)[7] % 5, 1);
        recorded.replay();
        assert_eq!(ints(&cl, result, COUNT), [115; COUNT]);
        assert_eq!(launch(cl.queue, add, COUNT), CL_SUCCESS);
        assert_eq!(ints(&cl, work, COUNT), [116; COUNT]);
        cl.write(work, 0, &[0; SIZE]);
    }
    drop(recorded);
    ok!(clReleaseMemObject(work));
    ok!(clReleaseMemObject(result));
    ok!(clReleaseKernel(add));
    ok!(clReleaseProgram(program));
}

#[test]
fn sync_points_and_barriers_order_what_the_queue_does_not() {
    let cl = Fixture::new();
    let queue = cl.another_queue(OUT_OF_ORDER | CL_QUEUE_PROFILING_ENABLE);
    let program = built(&cl, SOURCE, "");
    let (add, twice) = (kernel(program, "add"), kernel(program, "twice"));
    let (left, right, both) = (
        cl.buffer(0, SIZE),
        cl.buffer(0, SIZE),
        cl.buffer(0, 2 * SIZE),
    );
    let recorded = Recorded::new(queue);
    for (buffer, place) in [(left, 0), (right, SIZE)] {
        let filled = recorded.fill(buffer, 3, SIZE, &[]).unwrap();
        assert_eq!(set(add, 0, &buffer), CL_SUCCESS);
        assert_eq!(set(add, 1, &(1 + place as i32)), CL_SUCCESS);
        let added = recorded.launch(add, COUNT, &[filled]).unwrap();
        assert_eq!(set(twice, 0, &buffer), CL_SUCCESS);
        recorded.launch(twice, COUNT, &[added]).unwrap();
    }
    // The barrier follows all commands of both sides, and later commands follow the barrier.
    recorded.barrier(&[]).unwrap();
    recorded.copy((left, both), (0, 0, SIZE), &[]).unwrap();
    recorded.copy((right, both), (0, SIZE, SIZE), &[]).unwrap();
    // A copy of no bytes delays nothing.
    recorded.copy((right, both), (0, 0, 0), &[]).unwrap();
    assert_eq!(recorded.finalize(), CL_SUCCESS);
    let mut before = Vec::new();
    for _ in 0..5 {
        let event = recorded.enqueue(&before);
        before.iter().for_each(|event| {
            ok!(clReleaseEvent(*event));
        });
        before = vec![event];
    }
    let last = before[0];
    assert_eq!(command_of(last), CL_COMMAND_COMMAND_BUFFER_KHR);
    ok!(clWaitForEvents(1, &raw const last));
    let expected = [[2 * 4; COUNT], [2 * (4 + SIZE as i32); COUNT]].concat();
    assert_eq!(ints(&cl, both, 2 * COUNT), expected);
    let moment = |name| {
        let mut time = 0u64;
        let to = (&raw mut time).cast();
        ok!(clGetEventProfilingInfo(last, name, 8, to, null_mut()));
        time
    };
    let times = [
        CL_PROFILING_COMMAND_QUEUED,
        CL_PROFILING_COMMAND_SUBMIT,
        CL_PROFILING_COMMAND_START,
        CL_PROFILING_COMMAND_END,
    ]
    .map(moment);
    assert!(times.is_sorted(), "{times:?}");
    assert!(times[3] > times[2], "{times:?}");
    done(last);
    drop(recorded);
    for memory in [left, right, both] {
        ok!(clReleaseMemObject(memory));
    }
    ok!(clReleaseKernel(add));
    ok!(clReleaseKernel(twice));
    ok!(clReleaseProgram(program));
    ok!(clReleaseCommandQueue(queue));
}

#[test]
fn one_may_be_under_way_many_times_and_be_released_meanwhile() {
    for properties in [0, OUT_OF_ORDER] {
        let cl = Fixture::new();
        let queue = cl.another_queue(properties);
        let program = built(&cl, SOURCE, "");
        let add = kernel(program, "add");
        let buffer = cl.buffer_of(&[0; SIZE]);
        let recorded = Recorded::new(queue);
        assert_eq!(set(add, 0, &buffer), CL_SUCCESS);
        assert_eq!(set(add, 1, &1i32), CL_SUCCESS);
        recorded.launch(add, COUNT, &[]).unwrap();
        recorded.barrier(&[]).unwrap();
        recorded.launch(add, COUNT, &[]).unwrap();
        assert_eq!(recorded.finalize(), CL_SUCCESS);
        let gate = cl.user_event();
        let mut last = gate;
        for _ in 0..20 {
            let next = recorded.enqueue(&[last]);
            assert!(status_of(next) > CL_COMPLETE);
            if last != gate {
                ok!(clReleaseEvent(last));
            }
            last = next;
        }
        let state = recorded.number::<u32>(CL_COMMAND_BUFFER_STATE_KHR);
        assert_eq!(state, CL_COMMAND_BUFFER_STATE_EXECUTABLE_KHR);
        drop(recorded);
        ok!(clReleaseKernel(add));
        ok!(clSetUserEventStatus(gate, CL_COMPLETE));
        ok!(clReleaseEvent(gate));
        done(last);
        assert_eq!(ints(&cl, buffer, COUNT), [40; COUNT]);
        ok!(clReleaseMemObject(buffer));
        ok!(clReleaseProgram(program));
        ok!(clReleaseCommandQueue(queue));
    }
}

#[test]
fn it_keeps_what_it_copies_and_its_kernels_but_no_arguments() {
    let cl = Fixture::new();
    let program = built(&cl, SOURCE, "");
    let add = kernel(program, "add");
    let (from, to, argument) = (
        cl.buffer_of(&[7; SIZE]),
        cl.buffer_of(&[0; SIZE]),
        cl.buffer_of(&[0; SIZE]),
    );
    let (copies, launches) = (Recorded::new(cl.queue), Recorded::new(cl.queue));
    copies.copy((from, to), (0, 0, SIZE), &[]).unwrap();
    assert_eq!(copies.finalize(), CL_SUCCESS);
    ok!(clReleaseMemObject(from));
    done(copies.enqueue(&[]));
    assert_eq!(cl.read(to, 0, SIZE), [7; SIZE]);
    assert_eq!(set(add, 0, &argument), CL_SUCCESS);
    assert_eq!(set(add, 1, &4i32), CL_SUCCESS);
    launches.launch(add, COUNT, &[]).unwrap();
    assert_eq!(launches.finalize(), CL_SUCCESS);
    ok!(clReleaseKernel(add));
    done(launches.enqueue(&[]));
    assert_eq!(ints(&cl, argument, COUNT), [4; COUNT]);
    ok!(clReleaseMemObject(argument));
    assert_eq!(
        launches.try_enqueue(&[], &[]),
        Err(CL_INVALID_MEM_OBJECT),
        "an argument that is gone"
    );
    ok!(clReleaseMemObject(to));
    drop((copies, launches));
    ok!(clReleaseProgram(program));
}

#[test]
fn another_queue_of_the_device_may_run_it() {
    let cl = Fixture::new();
    let program = built(&cl, SOURCE, "");
    let (add, twice) = (kernel(program, "add"), kernel(program, "twice"));
    let others = [0, OUT_OF_ORDER, CL_QUEUE_PROFILING_ENABLE];
    let others = others.map(|properties| cl.another_queue(properties));
    let buffer = cl.buffer(0, SIZE);
    assert_eq!(set(add, 0, &buffer), CL_SUCCESS);
    assert_eq!(set(add, 1, &1i32), CL_SUCCESS);
    assert_eq!(set(twice, 0, &buffer), CL_SUCCESS);
    for own in others {
        let recorded = Recorded::new(own);
        let mut point = recorded.fill(buffer, 1, SIZE, &[]).unwrap();
        for kernel in [add, twice, add, twice] {
            point = recorded.launch(kernel, COUNT, &[point]).unwrap();
        }
        assert_eq!(recorded.finalize(), CL_SUCCESS);
        for other in others {
            cl.write(buffer, 0, &[0; SIZE]);
            done(recorded.try_enqueue(&[other], &[]).unwrap());
            assert_eq!(ints(&cl, buffer, COUNT), [10; COUNT]);
        }
    }
    for queue in others {
        ok!(clReleaseCommandQueue(queue));
    }
    ok!(clReleaseMemObject(buffer));
    ok!(clReleaseKernel(add));
    ok!(clReleaseKernel(twice));
    ok!(clReleaseProgram(program));
}

#[test]
fn an_empty_one_comes_after_its_list_only() {
    let cl = Fixture::new();
    let queue = cl.another_queue(OUT_OF_ORDER);
    let (held, free) = (cl.user_event(), cl.user_event());
    let recorded = Recorded::new(queue);
    assert_eq!(recorded.finalize(), CL_SUCCESS);
    let behind = recorded.enqueue(&[held]);
    let passes = recorded.enqueue(&[free]);
    ok!(clSetUserEventStatus(free, CL_COMPLETE));
    done(passes);
    done(recorded.enqueue(&[]));
    assert!(status_of(behind) > CL_COMPLETE);
    ok!(clSetUserEventStatus(held, -7));
    assert_eq!(
        code!(clWaitForEvents(1, &raw const behind)),
        CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST
    );
    for event in [held, free, behind] {
        ok!(clReleaseEvent(event));
    }
    drop(recorded);
    ok!(clReleaseCommandQueue(queue));
}

#[test]
fn a_program_is_told_of_it() {
    let cl = Fixture::new();
    let size = |name| {
        let mut size = 0;
        ok!(clGetDeviceInfo(
            cl.device,
            name,
            0,
            null_mut(),
            &raw mut size
        ));
        size
    };
    let mut names = vec![0u8; size(CL_DEVICE_EXTENSIONS)];
    let to = names.as_mut_ptr().cast();
    let room = names.len();
    ok!(clGetDeviceInfo(
        cl.device,
        CL_DEVICE_EXTENSIONS,
        room,
        to,
        null_mut()
    ));
    let names = String::from_utf8(names).unwrap();
    let own = "cl_khr_command_buffer";
    let mut words = names.trim_end_matches('\0').split(' ');
    assert!(words.any(|word| word == own), "{names}");
    let number = |name| {
        let mut value = 77u64;
        let to = (&raw mut value).cast();
        ok!(clGetDeviceInfo(cl.device, name, 8, to, null_mut()));
        value
    };
    let capabilities = number(CL_DEVICE_COMMAND_BUFFER_CAPABILITIES_KHR);
    assert_ne!(
        capabilities & CL_COMMAND_BUFFER_CAPABILITY_KERNEL_PRINTF_KHR,
        0
    );
    assert_eq!(
        number(CL_DEVICE_COMMAND_BUFFER_REQUIRED_QUEUE_PROPERTIES_KHR),
        0
    );
    let queues = number(CL_DEVICE_COMMAND_BUFFER_SUPPORTED_QUEUE_PROPERTIES_KHR);
    assert_eq!(queues, number(CL_DEVICE_QUEUE_ON_HOST_PROPERTIES));
}
