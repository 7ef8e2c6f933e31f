//! Tests of kernels in contexts of several nodes: one signature from the answers of all nodes, creation on the nodes
//! that need the kernel, launches everywhere.

use std::ptr::{null, null_mut};

use crate::frames::opencl::*;
use crate::frames::programs;
use crate::frames::programs::{kernel, program_number, set, try_kernel};
use crate::stage::*;

#[test]
fn kernels_about_which_nodes_disagree_cannot_be_made() {
    own_process!();
    let stage = stage();
    let source = "\
#ifdef __OPENCL_VERSION__
#define SIZE long
#else
#define SIZE int
#endif
kernel void same(global int *x, local int *l, int a) { x[0] = a; }
kernel void size(global int *x, SIZE a) { x[0] = a; }
kernel void plain(constant int *x) { }
#ifdef __OPENCL_VERSION__
kernel void count(global int *x) { x[0] = 1; }
kernel void space(constant int *x) { }
#else
kernel void count(global int *x, int a) { x[0] = 1; }
kernel void space(global int *x) { }
#endif
";
    let over = over(&[stage.alpha, stage.pocl], source);
    let built = build_for(over.program, &[], "");
    assert_eq!(built, CL_SUCCESS, "{}", log(over.program, stage.pocl));
    for name in ["size", "count", "space"] {
        let made = try_kernel(over.program, name);
        assert_eq!(made, Err(CL_INVALID_KERNEL_DEFINITION), "{name}");
    }
    for name in ["same", "plain"] {
        ok!(clReleaseKernel(kernel(over.program, name)));
    }
    let mut count = 0;
    ok!(clCreateKernelsInProgram(
        over.program,
        0,
        null_mut(),
        &raw mut count
    ));
    assert_eq!(count, 2);
    // All kernels are in the program, though.
    let all = program_number(over.program, CL_PROGRAM_NUM_KERNELS);
    assert_eq!(all, Ok(5));
}

#[test]
fn builds_for_some_devices_are_compared_with_what_the_others_were_built_to() {
    own_process!();
    let stage = stage();
    let devices = [stage.alpha, stage.betas[0], stage.betas[1]];
    let over = over(&devices, "kernel void k(TYPE a) { }");
    let build = |device, options| build_for(over.program, &[device], options);
    assert_eq!(build(devices[2], "-DTYPE=int"), CL_SUCCESS);
    assert_eq!(build(devices[0], "-DTYPE=int"), CL_SUCCESS);
    assert_eq!(status(over.program, devices[1]), CL_BUILD_NONE);
    let kernel = kernel(over.program, "k");
    assert!(local_mem_size(kernel, devices[2]).is_ok());
    assert_eq!(local_mem_size(kernel, devices[1]), Err(CL_INVALID_DEVICE));
    assert_eq!(local_mem_size(kernel, null_mut()), Err(CL_INVALID_DEVICE));
    ok!(clReleaseKernel(kernel));
    assert_eq!(build(devices[1], "-DTYPE=long"), CL_SUCCESS);
    let made = try_kernel(over.program, "k");
    assert_eq!(made, Err(CL_INVALID_KERNEL_DEFINITION));
    assert_eq!(build(devices[0], "-DTYPE=long"), CL_SUCCESS);
    assert_eq!(build(devices[2], "-DTYPE=long"), CL_SUCCESS);
    let kernel = programs::kernel(over.program, "k");
    assert_eq!(set(kernel, 0, &1i32), CL_INVALID_ARG_SIZE);
    assert_eq!(set(kernel, 0, &1i64), CL_SUCCESS);
    ok!(clReleaseKernel(kernel));
}

#[test]
fn names_are_the_union_in_the_order_of_the_devices() {
    own_process!();
    let stage = stage();
    let source = "\
kernel void both(global int *x) { x[0] = 1; }
#ifdef __OPENCL_VERSION__
kernel void pocl_alone(global int *x) { x[0] = 1; }
#else
kernel void fakes_alone(global int *x) { x[0] = 1; }
#endif
";
    let over = over(&[stage.betas[1], stage.pocl], source);
    assert_eq!(build_for(over.program, &[], ""), CL_SUCCESS);
    assert_eq!(kernel_names(over.program), "both;fakes_alone;pocl_alone");
    let alone = kernel(over.program, "pocl_alone");
    assert!(local_mem_size(alone, stage.pocl).is_ok());
    let elsewhere = local_mem_size(alone, stage.betas[1]);
    assert_eq!(elsewhere, Err(CL_INVALID_DEVICE));
    // This is the only device that has the kernel.
    assert!(local_mem_size(alone, null_mut()).is_ok());
    ok!(clReleaseKernel(alone));

    let (mut listed, mut size): ([cl_device_id; 2], _) = ([null_mut(); 2], 0);
    let to = listed.as_mut_ptr().cast();
    let name = CL_PROGRAM_DEVICES;
    ok!(clGetProgramInfo(over.program, name, 16, to, &raw mut size));
    assert_eq!((listed, size), ([stage.betas[1], stage.pocl], 16));
    let to = listed.as_mut_ptr().cast();
    ok!(clGetContextInfo(
        over.context,
        CL_CONTEXT_DEVICES,
        16,
        to,
        null_mut()
    ));
    assert_eq!(listed, [stage.betas[1], stage.pocl]);
}

#[test]
fn programs_and_kernels_are_made_on_a_node_when_it_needs_them() {
    own_process!();
    let stage = stage();
    let before = stage.nodes[0].count("clCreateProgramWithSource");
    let over = over(&[stage.alpha, stage.betas[0]], PLAIN);
    assert_eq!(build_for(over.program, &[stage.betas[0]], ""), CL_SUCCESS);
    let kernel = kernel(over.program, "k");
    // Local arguments count too. Only the node knows the sum.
    ok!(clSetKernelArg(kernel, 1, 64, null()));
    let kernels = [0, 1].map(|node| stage.nodes[node].count("clCreateKernel"));
    assert!(local_mem_size(kernel, stage.betas[0]).unwrap() >= 64);
    assert_eq!(local_mem_size(kernel, stage.alpha), Err(CL_INVALID_DEVICE));
    let after = [0, 1].map(|node| stage.nodes[node].count("clCreateKernel"));
    assert_eq!(after, [kernels[0], kernels[1] + 1]);
    assert_eq!(stage.nodes[0].count("clCreateProgramWithSource"), before);
    ok!(clReleaseKernel(kernel));
}

#[test]
fn two_drivers_of_one_node_are_two_native_contexts() {
    own_process!();
    let stage = stage();
    let contexts = stage.nodes[1].count("clCreateContext");
    let devices = [stage.other, stage.betas[1], stage.betas[0]];
    let over = over(&devices, PLAIN);
    assert_eq!(build_for(over.program, &[], ""), CL_SUCCESS);
    assert_eq!(stage.nodes[1].count("clCreateContext"), contexts + 2);
    let kernel = kernel(over.program, "k");
    ok!(clSetKernelArg(kernel, 1, 32, null()));
    for device in devices {
        assert_eq!(status(over.program, device), CL_BUILD_SUCCESS);
        assert!(local_mem_size(kernel, device).unwrap() >= 32);
    }
    ok!(clReleaseKernel(kernel));
}

#[test]
fn one_kernel_runs_on_every_node_with_the_arguments_of_each_launch() {
    own_process!();
    let stage = stage();
    // The fake driver computes kernels of this name.
    let source = "kernel void fake_add_u32(global uint *target, uint value) {
        target[get_global_id(0)] += value;
    }";
    let devices = [stage.alpha, stage.pocl, stage.betas[1], stage.other];
    let over = over(&devices, source);
    assert_eq!(build_for(over.program, &[], ""), CL_SUCCESS);
    let kernel = kernel(over.program, "fake_add_u32");
    let queues = devices
        .map(|device| make!(clCreateCommandQueue(over.context, device, 0)).expect("a queue"));
    let mut numbers = [0u32, 10, 20, 30];
    let flags = CL_MEM_COPY_HOST_PTR;
    let buffer = make!(clCreateBuffer(
        over.context,
        flags,
        16,
        numbers.as_mut_ptr().cast()
    ))
    .expect("a buffer");
    assert_eq!(set(kernel, 0, &buffer), CL_SUCCESS);
    let mut sum = 0;
    let mut last: cl_event = null_mut();
    for round in 0..3u32 {
        for (queue, place) in queues.iter().zip(1u32..) {
            let value = 100 * round + place;
            sum += value;
            assert_eq!(set(kernel, 1, &value), CL_SUCCESS);
            let (size, mut event) = (4usize, null_mut());
            let (waits, list) = match last.is_null() {
                true => (0, null()),
                false => (1, &raw const last),
            };
            ok!(clEnqueueNDRangeKernel(
                *queue,
                kernel,
                1,
                null(),
                &raw const size,
                null(),
                waits,
                list,
                &raw mut event
            ));
            if !last.is_null() {
                ok!(clReleaseEvent(last));
            }
            last = event;
        }
    }
    ok!(clEnqueueReadBuffer(
        queues[0],
        buffer,
        CL_TRUE,
        0,
        16,
        numbers.as_mut_ptr().cast(),
        1,
        &raw const last,
        null_mut()
    ));
    assert_eq!(numbers, [0, 10, 20, 30].map(|first: u32| first + sum));
    ok!(clReleaseEvent(last));
    ok!(clReleaseMemObject(buffer));
    ok!(clReleaseKernel(kernel));
    for queue in queues {
        ok!(clReleaseCommandQueue(queue));
    }
}

#[test]
fn a_launch_where_the_build_failed_is_refused() {
    own_process!();
    let stage = stage();
    let source = format!("{PLAIN}\n#ifdef __OPENCL_VERSION__\n#error not here\n#endif\n");
    let over = over(&[stage.alpha, stage.pocl], &source);
    assert_eq!(build_for(over.program, &[], ""), CL_BUILD_PROGRAM_FAILURE);
    let kernel = kernel(over.program, "k");
    assert_eq!(set(kernel, 0, &null_mut::<c_void>()), CL_SUCCESS);
    ok!(clSetKernelArg(kernel, 1, 64, null()));
    assert_eq!(set(kernel, 2, &1i32), CL_SUCCESS);
    for (device, code) in [
        (stage.alpha, CL_SUCCESS),
        (stage.pocl, CL_INVALID_PROGRAM_EXECUTABLE),
    ] {
        let queue = make!(clCreateCommandQueue(over.context, device, 0)).expect("a queue");
        assert_eq!(programs::launch(queue, kernel, 1), code);
        ok!(clFinish(queue));
        ok!(clReleaseCommandQueue(queue));
    }
    ok!(clReleaseKernel(kernel));
}
