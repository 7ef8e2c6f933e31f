//! Tests of launches: sizes, arguments at the time of the enqueue, order, refusals.

use std::ptr::{null, null_mut};

use crate::frames::opencl::*;
use crate::frames::programs::*;

const SOURCE: &str = "\
kernel void put(global int *x, int at, int value) { x[at] = value; }
kernel void ids(global int *x) {
    x[get_global_id(0) + 8 * get_global_id(1)] = (int)(100 * get_local_size(0) + get_global_id(0));
}
kernel void stretch(local int *l, global int *x) { l[0] = 1; x[0] = l[0]; }
kernel __attribute__((reqd_work_group_size(4, 2, 1))) void fixed(global int *x) {
    x[get_global_id(0) + 8 * get_global_id(1)] = (int)(10 * get_local_size(0) + get_local_size(1));
}
";

struct Sizes<'a> {
    offset: Option<&'a [usize]>,
    global: &'a [usize],
    local: Option<&'a [usize]>,
}

fn over(global: &[usize]) -> Sizes<'_> {
    Sizes {
        offset: None,
        global,
        local: None,
    }
}

fn launch_over(queue: cl_command_queue, kernel: cl_kernel, sizes: &Sizes) -> cl_int {
    let pointer = |list: Option<&[usize]>| list.map_or(null(), <[usize]>::as_ptr);
    code!(clEnqueueNDRangeKernel(
        queue,
        kernel,
        sizes.global.len() as cl_uint,
        pointer(sizes.offset),
        pointer(Some(sizes.global)),
        pointer(sizes.local),
        0,
        null(),
        null_mut()
    ))
}

#[test]
fn global_local_and_offset_reach_the_kernel() {
    let cl = Fixture::new();
    let program = built(&cl, SOURCE, "");
    let kernel = kernel(program, "ids");
    let buffer = cl.buffer_of(&[0; 4 * 32]);
    assert_eq!(set(kernel, 0, &buffer), CL_SUCCESS);
    let sizes = Sizes {
        offset: Some(&[4, 1]),
        global: &[4, 2],
        local: Some(&[2, 1]),
    };
    assert_eq!(launch_over(cl.queue, kernel, &sizes), CL_SUCCESS);
    let expected: Vec<i32> = (0..32)
        .map(|at| {
            if (at % 8) >= 4 && (8..24).contains(&at) {
                200 + at % 8
            } else {
                0
            }
        })
        .collect();
    assert_eq!(ints(&cl, buffer, 32), expected);
    ok!(clReleaseMemObject(buffer));
    ok!(clReleaseKernel(kernel));
    ok!(clReleaseProgram(program));
}

#[test]
fn arguments_are_those_of_the_enqueue_however_late_the_launch_runs() {
    let cl = Fixture::new();
    let program = built(&cl, SOURCE, "");
    let kernel = kernel(program, "put");
    let other_queue = cl.another_queue(0);
    let buffer = cl.buffer_of(&[0; 4 * 64]);
    let gate = cl.user_event();
    assert_eq!(set(kernel, 0, &buffer), CL_SUCCESS);
    // Half of the launches are withheld, on one queue. The others pass, on another queue. Each changes one or both
    // values compared with the launch before it, on whichever queue that was.
    for at in 0..64 {
        assert_eq!(set(kernel, 1, &at), CL_SUCCESS);
        assert_eq!(set(kernel, 2, &(1000 + at / 4)), CL_SUCCESS);
        let result = if at % 2 == 0 {
            launch_after(cl.queue, kernel, 1, &[gate])
        } else {
            launch(other_queue, kernel, 1)
        };
        assert_eq!(result, CL_SUCCESS);
    }
    ok!(clFinish(other_queue));
    ok!(clSetUserEventStatus(gate, CL_COMPLETE));
    let expected: Vec<i32> = (0..64).map(|at| 1000 + at / 4).collect();
    assert_eq!(ints(&cl, buffer, 64), expected);
    ok!(clReleaseEvent(gate));
    ok!(clReleaseCommandQueue(other_queue));
    ok!(clReleaseMemObject(buffer));
    ok!(clReleaseKernel(kernel));
    ok!(clReleaseProgram(program));
}

#[test]
fn one_kernel_launched_by_many_threads_keeps_its_arguments() {
    let cl = Fixture::new();
    let program = built(&cl, SOURCE, "");
    let kernel = kernel(program, "put").expose_provenance();
    let buffer = cl.buffer_of(&[0; 4 * 8]);
    let raw = std::ptr::with_exposed_provenance_mut(kernel);
    assert_eq!(set(raw, 0, &buffer), CL_SUCCESS);
    for round in 0..20 {
        assert_eq!(set(raw, 1, &(round % 8)), CL_SUCCESS);
        assert_eq!(set(raw, 2, &(round + 5)), CL_SUCCESS);
        let queues: Vec<usize> = (0..4)
            .map(|_| cl.another_queue(0).expose_provenance())
            .collect();
        std::thread::scope(|scope| {
            for queue in queues {
                scope.spawn(move || {
                    let queue = std::ptr::with_exposed_provenance_mut(queue);
                    let kernel = std::ptr::with_exposed_provenance_mut(kernel);
                    for _ in 0..20 {
                        assert_eq!(launch(queue, kernel, 1), CL_SUCCESS);
                    }
                    ok!(clFinish(queue));
                    ok!(clReleaseCommandQueue(queue));
                });
            }
        });
        assert_eq!(ints(&cl, buffer, 8)[round as usize % 8], round + 5);
    }
    ok!(clReleaseMemObject(buffer));
    ok!(clReleaseKernel(raw));
    ok!(clReleaseProgram(program));
}

#[test]
fn sizes_that_kernel_or_device_do_not_take_are_refused_at_once() {
    let cl = Fixture::new();
    let program = built(&cl, SOURCE, "");
    let kernel = kernel(program, "ids");
    let buffer = cl.buffer(0, 4096);
    assert_eq!(set(kernel, 0, &buffer), CL_SUCCESS);
    let launch = |sizes: &Sizes| launch_over(cl.queue, kernel, sizes);
    let locally = |local: &'static [usize]| Sizes {
        local: Some(local),
        ..over(&[8, 4][..local.len()])
    };
    let dimensions = |count| {
        let (size, none) = (1usize, null());
        let global = &raw const size;
        code!(clEnqueueNDRangeKernel(
            cl.queue,
            kernel,
            count,
            none,
            global,
            none,
            0,
            null(),
            null_mut()
        ))
    };
    assert_eq!(dimensions(0), CL_INVALID_WORK_DIMENSION);
    assert_eq!(dimensions(4), CL_INVALID_WORK_DIMENSION);
    assert_eq!(launch(&locally(&[3])), CL_INVALID_WORK_GROUP_SIZE);
    assert_eq!(launch(&locally(&[0])), CL_INVALID_WORK_GROUP_SIZE);
    assert_eq!(
        launch(&locally(&[usize::MAX, 4])),
        CL_INVALID_WORK_GROUP_SIZE
    );
    let beyond = Sizes {
        offset: Some(&[usize::MAX]),
        ..over(&[8])
    };
    assert_eq!(launch(&beyond), CL_INVALID_GLOBAL_OFFSET);
    // A launch without work-items succeeds on devices of OpenCL 2.1 and later.
    assert_eq!(launch(&over(&[8, 0])), CL_SUCCESS);
    ok!(clReleaseKernel(kernel));

    let fixed = self::kernel(program, "fixed");
    assert_eq!(set(fixed, 0, &buffer), CL_SUCCESS);
    let launch = |sizes: &Sizes| launch_over(cl.queue, fixed, sizes);
    assert_eq!(launch(&locally(&[2, 2])), CL_INVALID_WORK_GROUP_SIZE);
    assert_eq!(launch(&over(&[6, 2])), CL_INVALID_WORK_GROUP_SIZE);
    // The required size is used if the application gives none.
    assert_eq!(launch(&over(&[8, 4])), CL_SUCCESS);
    assert_eq!(ints(&cl, buffer, 32), [42; 32]);
    ok!(clReleaseMemObject(buffer));
    ok!(clReleaseKernel(fixed));
    ok!(clReleaseProgram(program));
}

#[test]
fn memory_that_the_device_cannot_give_is_refused() {
    let cl = Fixture::new();
    let program = built(&cl, SOURCE, "");
    let kernel = kernel(program, "stretch");
    let buffer = cl.buffer(0, 1 << 16);
    assert_eq!(
        code!(clSetKernelArg(kernel, 0, 1 << 40, null())),
        CL_SUCCESS
    );
    assert_eq!(set(kernel, 1, &buffer), CL_SUCCESS);
    assert_eq!(launch(cl.queue, kernel, 1), CL_OUT_OF_RESOURCES);
    ok!(clSetKernelArg(kernel, 0, 64, null()));
    assert_eq!(launch(cl.queue, kernel, 1), CL_SUCCESS);
    cl.finish();
    ok!(clReleaseMemObject(buffer));
    ok!(clReleaseKernel(kernel));
    ok!(clReleaseProgram(program));
}

#[test]
fn tasks_events_and_handles() {
    let cl = Fixture::new();
    let program = built(&cl, SOURCE, "");
    let kernel = kernel(program, "put");
    let buffer = cl.buffer_of(&[0; 64]);
    assert_eq!(set(kernel, 0, &buffer), CL_SUCCESS);
    assert_eq!(
        (set(kernel, 1, &3), set(kernel, 2, &33)),
        (CL_SUCCESS, CL_SUCCESS)
    );
    let mut event = null_mut();
    ok!(clEnqueueTask(cl.queue, kernel, 0, null(), &raw mut event));
    assert_eq!(command_of(event), CL_COMMAND_TASK);
    ok!(clWaitForEvents(1, &raw const event));
    assert_eq!(status_of(event), CL_COMPLETE as cl_int);
    assert_eq!(ints(&cl, buffer, 4), [0, 0, 0, 33]);
    ok!(clReleaseEvent(event));

    let other = Fixture::new();
    assert_eq!(launch(other.queue, kernel, 1), CL_INVALID_CONTEXT);
    assert_eq!(launch(null_mut(), kernel, 1), CL_INVALID_COMMAND_QUEUE);
    assert_eq!(launch(cl.queue, cl.queue, 1), CL_INVALID_KERNEL);
    let foreign = other.user_event();
    assert_eq!(
        launch_after(cl.queue, kernel, 1, &[foreign]),
        CL_INVALID_CONTEXT
    );
    assert_eq!(
        launch_after(cl.queue, kernel, 1, &[null_mut()]),
        CL_INVALID_EVENT_WAIT_LIST
    );
    let native = code!(clEnqueueNativeKernel(
        cl.queue,
        None,
        null_mut(),
        0,
        0,
        null(),
        null_mut(),
        0,
        null(),
        null_mut()
    ));
    assert_eq!(native, CL_INVALID_OPERATION);
    ok!(clSetUserEventStatus(foreign, CL_COMPLETE));
    ok!(clReleaseEvent(foreign));
    ok!(clReleaseMemObject(buffer));
    ok!(clReleaseKernel(kernel));
    ok!(clReleaseProgram(program));
}
