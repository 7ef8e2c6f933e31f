//! Tests of pipes: packets move between the kernels of one node, the host sees none of them, and a second node is
//! refused.

use std::ptr::{null, null_mut};

use crate::frames::nodes::{Drivers, context_over, devices, start};
use crate::frames::opencl::*;
use crate::frames::programs::{built, kernel, launch, launch_after, set};

/// One device reports pipes by OpenCL 3.0, one has a version that requires them, and one has none.
const NODES: [Drivers; 3] = [
    Drivers::Fake("[[device]]\nname = \"New\"\npipes = true"),
    Drivers::Fake("[[device]]\nname = \"Old\"\nversion = \"2.0\"\npipes = true"),
    Drivers::Fake("[[device]]\nname = \"Poor\""),
];
const NEW: usize = 0;
const OLD: usize = 1;
const POOR: usize = 2;

const SOURCE: &str = "
kernel void fake_put(write_only pipe uint to, global const uint *from) {
    write_pipe(to, from + get_global_id(0));
}
kernel void fake_take(read_only pipe uint from, global uint *to) {
    read_pipe(from, to + get_global_id(0));
}
";

fn over(places: &[usize]) -> Fixture {
    start(&NODES);
    let all = devices(NODES.len());
    let chosen: Vec<_> = places.iter().map(|place| all[*place]).collect();
    let context = context_over(&chosen);
    Fixture {
        device: chosen[0],
        context,
        queue: make!(clCreateCommandQueue(context, chosen[0], 0)).expect("a queue"),
    }
}

fn pipe(cl: &Fixture, packet_size: cl_uint, max_packets: cl_uint) -> Result<cl_mem, cl_int> {
    make!(clCreatePipe(
        cl.context,
        0,
        packet_size,
        max_packets,
        null()
    ))
}

fn bytes(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|of| of.to_ne_bytes()).collect()
}

/// Makes a kernel with a pipe and a buffer as arguments.
fn with(program: cl_program, name: &str, pipe: cl_mem, buffer: cl_mem) -> cl_kernel {
    let kernel = kernel(program, name);
    assert_eq!(set(kernel, 0, &pipe), CL_SUCCESS);
    assert_eq!(set(kernel, 1, &buffer), CL_SUCCESS);
    kernel
}

fn release(kernels: &[cl_kernel], memory: &[cl_mem]) {
    for kernel in kernels {
        ok!(clReleaseKernel(*kernel));
    }
    for memory in memory {
        ok!(clReleaseMemObject(*memory));
    }
}

#[test]
fn packets_go_from_kernel_to_kernel() {
    own_process!();
    for place in [NEW, OLD] {
        let cl = over(&[place]);
        let program = built(&cl, SOURCE, "");
        let pipe = pipe(&cl, 4, 3).expect("a pipe");
        let source = cl.buffer_of(&bytes(&[5, 6, 7, 8, 9]));
        let target = cl.buffer_of(&bytes(&[1; 5]));
        let put = with(program, "fake_put", pipe, source);
        let take = with(program, "fake_take", pipe, target);
        // A packet beyond the capacity is lost, and a read beyond the written packets fails.
        assert_eq!(launch(cl.queue, put, 4), CL_SUCCESS);
        assert_eq!(launch(cl.queue, take, 2), CL_SUCCESS);
        assert_eq!(cl.read(target, 0, 20), bytes(&[5, 6, 1, 1, 1]));
        assert_eq!(launch(cl.queue, put, 1), CL_SUCCESS);
        assert_eq!(launch(cl.queue, take, 5), CL_SUCCESS);
        assert_eq!(cl.read(target, 0, 20), bytes(&[7, 5, 1, 1, 1]));
        release(&[put, take], &[pipe, source, target]);
        ok!(clReleaseProgram(program));
    }
}

#[test]
fn a_pipe_lives_as_long_as_launches_that_are_held_back() {
    own_process!();
    let cl = over(&[NEW]);
    let program = built(&cl, SOURCE, "");
    let pipe = pipe(&cl, 4, 3).expect("a pipe");
    let (source, target) = (cl.buffer_of(&bytes(&[5, 6])), cl.buffer_of(&bytes(&[1, 1])));
    let put = with(program, "fake_put", pipe, source);
    let take = with(program, "fake_take", pipe, target);
    let gate = cl.user_event();
    assert_eq!(launch_after(cl.queue, put, 2, &[gate]), CL_SUCCESS);
    assert_eq!(launch(cl.queue, take, 2), CL_SUCCESS);
    release(&[put, take], &[pipe, source]);
    ok!(clSetUserEventStatus(gate, CL_COMPLETE));
    assert_eq!(cl.read(target, 0, 8), bytes(&[5, 6]));
    release(&[], &[target]);
    ok!(clReleaseEvent(gate));
    ok!(clReleaseProgram(program));
}

fn pipe_info(pipe: cl_mem, name: cl_pipe_info) -> Result<(usize, cl_uint), cl_int> {
    let (mut size, mut value) = (77, 0);
    let code = code!(clGetPipeInfo(
        pipe,
        name,
        4,
        (&raw mut value).cast(),
        &raw mut size
    ));
    if code == CL_SUCCESS {
        Ok((size, value))
    } else {
        Err(code)
    }
}

#[test]
fn a_pipe_tells_what_it_was_made_with() {
    own_process!();
    let cl = over(&[NEW, POOR]);
    let pipe = pipe(&cl, 12, 5).expect("a pipe");
    assert_eq!(pipe_info(pipe, CL_PIPE_PACKET_SIZE), Ok((4, 12)));
    assert_eq!(pipe_info(pipe, CL_PIPE_MAX_PACKETS), Ok((4, 5)));
    assert_eq!(pipe_info(pipe, CL_PIPE_PROPERTIES), Ok((0, 0)));
    assert_eq!(pipe_info(pipe, CL_MEM_SIZE), Err(CL_INVALID_VALUE));
    let kind: cl_mem_object_type = mem_info(pipe, CL_MEM_TYPE);
    assert_eq!(kind, CL_MEM_OBJECT_PIPE);
    let flags: cl_mem_flags = mem_info(pipe, CL_MEM_FLAGS);
    assert_eq!(flags, CL_MEM_READ_WRITE | CL_MEM_HOST_NO_ACCESS);
    assert_eq!(mem_info::<usize>(pipe, CL_MEM_SIZE), 60);
    assert_eq!(mem_info::<usize>(pipe, CL_MEM_HOST_PTR), 0);
    assert_eq!(mem_info::<cl_uint>(pipe, CL_MEM_REFERENCE_COUNT), 1);
    ok!(clRetainMemObject(pipe));
    release(&[], &[pipe, pipe]);
    assert_eq!(
        pipe_info(pipe, CL_PIPE_PACKET_SIZE),
        Err(CL_INVALID_MEM_OBJECT)
    );
}

#[test]
fn what_is_no_pipe_is_refused() {
    own_process!();
    let cl = over(&[NEW]);
    let most = 1024;
    assert_eq!(pipe(&cl, 0, 1), Err(CL_INVALID_PIPE_SIZE));
    assert_eq!(pipe(&cl, 4, 0), Err(CL_INVALID_PIPE_SIZE));
    assert_eq!(pipe(&cl, most + 1, 1), Err(CL_INVALID_PIPE_SIZE));
    let made = |flags, properties: *const cl_pipe_properties| {
        make!(clCreatePipe(cl.context, flags, most, 1, properties))
    };
    assert_eq!(made(CL_MEM_READ_ONLY, null()), Err(CL_INVALID_VALUE));
    let list = [0];
    assert_eq!(made(0, list.as_ptr()), Err(CL_INVALID_VALUE));
    let nowhere = make!(clCreatePipe(null_mut(), 0, 4, 1, null()));
    assert_eq!(nowhere, Err(CL_INVALID_CONTEXT));
    let pipe = made(CL_MEM_HOST_NO_ACCESS, null()).expect("a pipe");

    let program = built(&cl, SOURCE, "");
    let (put, buffer) = (kernel(program, "fake_put"), cl.buffer(0, 64));
    assert_eq!(set(put, 0, &buffer), CL_INVALID_MEM_OBJECT);
    assert_eq!(set(put, 0, &0_u32), CL_INVALID_ARG_SIZE);
    let unset = code!(clSetKernelArg(put, 0, 8, null()));
    assert_eq!(unset, CL_INVALID_ARG_VALUE);
    assert_eq!(set(put, 1, &pipe), CL_INVALID_MEM_OBJECT);
    let other = over(&[NEW]);
    let foreign = make!(clCreatePipe(other.context, 0, 4, 1, null())).expect("a pipe");
    assert_eq!(set(put, 0, &foreign), CL_INVALID_MEM_OBJECT);
    assert_eq!(set(put, 1, &buffer), CL_SUCCESS);
    assert_eq!(launch(cl.queue, put, 1), CL_INVALID_KERNEL_ARGS);
    assert_eq!(
        pipe_info(buffer, CL_PIPE_PACKET_SIZE),
        Err(CL_INVALID_MEM_OBJECT)
    );
    release(&[put], &[foreign, pipe, buffer]);
    ok!(clReleaseProgram(program));
}

#[test]
fn the_host_reaches_no_byte_of_a_pipe() {
    own_process!();
    let cl = over(&[NEW]);
    let (pipe, buffer) = (pipe(&cl, 4, 4).expect("a pipe"), cl.buffer(0, 64));
    let mut place = [0u8; 4];
    let at = place.as_mut_ptr().cast();
    let (queue, none) = (cl.queue, null_mut());
    let codes = [
        code!(clEnqueueReadBuffer(
            queue,
            pipe,
            CL_TRUE,
            0,
            4,
            at,
            0,
            null(),
            none
        )),
        code!(clEnqueueWriteBuffer(
            queue,
            pipe,
            CL_TRUE,
            0,
            4,
            at,
            0,
            null(),
            none
        )),
        code!(clEnqueueCopyBuffer(
            queue,
            pipe,
            buffer,
            0,
            0,
            4,
            0,
            null(),
            none
        )),
        code!(clEnqueueCopyBuffer(
            queue,
            buffer,
            pipe,
            0,
            0,
            4,
            0,
            null(),
            none
        )),
        code!(clEnqueueFillBuffer(
            queue,
            pipe,
            at,
            4,
            0,
            4,
            0,
            null(),
            none
        )),
    ];
    assert_eq!(codes, [CL_INVALID_MEM_OBJECT; 5]);
    let mapped = make!(clEnqueueMapBuffer(
        queue,
        pipe,
        CL_TRUE,
        CL_MAP_READ,
        0,
        4,
        0,
        null(),
        none
    ));
    assert_eq!(mapped, Err(CL_INVALID_MEM_OBJECT));
    let region = cl_buffer_region { origin: 0, size: 4 };
    let part = make!(clCreateSubBuffer(
        pipe,
        0,
        CL_BUFFER_CREATE_TYPE_REGION,
        (&raw const region).cast()
    ));
    assert_eq!(part, Err(CL_INVALID_MEM_OBJECT));
    ok!(clEnqueueMigrateMemObjects(
        queue,
        1,
        &raw const pipe,
        0,
        0,
        null(),
        none
    ));
    cl.finish();
    release(&[], &[pipe, buffer]);
}

#[test]
fn a_device_without_pipes_has_none() {
    own_process!();
    let cl = over(&[POOR]);
    assert_eq!(pipe(&cl, 4, 1), Err(CL_INVALID_OPERATION));
    let buffer = cl.buffer(0, 4);
    assert_eq!(
        pipe_info(buffer, CL_PIPE_PACKET_SIZE),
        Err(CL_INVALID_MEM_OBJECT)
    );
    release(&[], &[buffer]);
}

#[test]
fn among_nodes_a_pipe_belongs_to_the_first_that_uses_it() {
    own_process!();
    let cl = over(&[NEW, OLD, POOR]);
    let all = devices(NODES.len());
    let queue_of =
        |place: usize| make!(clCreateCommandQueue(cl.context, all[place], 0)).expect("a queue");
    let queues = [NEW, OLD, POOR].map(queue_of);
    let program = built(&cl, SOURCE, "");
    let source = cl.buffer_of(&bytes(&[5, 6]));
    let target = cl.buffer_of(&bytes(&[1, 1]));
    for (home, elsewhere) in [(OLD, NEW), (NEW, OLD)] {
        let pipe = pipe(&cl, 4, 3).expect("a pipe");
        let put = with(program, "fake_put", pipe, source);
        let take = with(program, "fake_take", pipe, target);
        assert_eq!(launch(queues[POOR], put, 2), CL_INVALID_OPERATION);
        assert_eq!(launch(queues[home], put, 2), CL_SUCCESS);
        assert_eq!(launch(queues[elsewhere], take, 2), CL_INVALID_OPERATION);
        // A migration leaves the pipe on its node.
        let moved = code!(clEnqueueMigrateMemObjects(
            queues[elsewhere],
            1,
            &raw const pipe,
            0,
            0,
            null(),
            null_mut()
        ));
        assert_eq!(moved, CL_SUCCESS);
        assert_eq!(launch(queues[home], take, 2), CL_SUCCESS);
        ok!(clFinish(queues[home]));
        assert_eq!(cl.read(target, 0, 8), bytes(&[5, 6]));
        cl.write(target, 0, &bytes(&[1, 1]));
        release(&[put, take], &[pipe]);
    }
    for queue in queues {
        ok!(clFinish(queue));
        ok!(clReleaseCommandQueue(queue));
    }
    release(&[], &[source, target]);
    ok!(clReleaseProgram(program));
}
