//! Tests `clSetKernelArg`: accepted and refused arguments, and that a kernel keeps no object alive.

use std::ptr::{null, null_mut};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use crate::frames::opencl::*;
use crate::frames::programs::*;

const SOURCE: &str = "\
struct pair { int a; char b; };
kernel void each(global int *x, constant int *c, float f, float4 v, struct pair p, local int *l) {
    l[0] = c[0]; x[0] = l[0] + (int)f + (int)v.w + p.a;
}
kernel void put(global int *x, int value) { x[get_global_id(0)] = value; }
";

fn program_of(cl: &Fixture) -> cl_program {
    built(cl, SOURCE, "-cl-kernel-arg-info")
}

fn raw_set(kernel: cl_kernel, index: cl_uint, size: usize, value: *const c_void) -> cl_int {
    code!(clSetKernelArg(kernel, index, size, value))
}

#[test]
fn sizes_kinds_and_null_are_checked_against_the_signature() {
    let cl = Fixture::new();
    let program = program_of(&cl);
    let kernel = kernel(program, "each");
    let buffer = cl.buffer(0, 64);
    let memory = (&raw const buffer).cast();
    let bytes = [0u8; 64];
    let value = bytes.as_ptr().cast();
    let no_buffer: cl_mem = null_mut();
    let wrong_kind = cl.queue;
    assert_eq!(raw_set(kernel, 6, 4, value), CL_INVALID_ARG_INDEX);
    for memory_argument in [0, 1] {
        let set = |size, value| raw_set(kernel, memory_argument, size, value);
        assert_eq!(set(8, memory), CL_SUCCESS);
        assert_eq!(set(4, memory), CL_INVALID_ARG_SIZE);
        assert_eq!(
            set(8, (&raw const wrong_kind).cast()),
            CL_INVALID_MEM_OBJECT
        );
        assert_eq!(set(8, (&raw const no_buffer).cast()), CL_SUCCESS);
        assert_eq!(set(8, null()), CL_SUCCESS);
    }
    for (index, size) in [(2, 4), (3, 16), (4, 8)] {
        assert_eq!(raw_set(kernel, index, size, value), CL_SUCCESS, "{index}");
        assert_eq!(
            raw_set(kernel, index, size, null()),
            CL_INVALID_ARG_VALUE,
            "{index}"
        );
        assert_eq!(
            raw_set(kernel, index, 0, value),
            CL_INVALID_ARG_SIZE,
            "{index}"
        );
        // PoCL accepts a structure of any size, so the right size is unknown.
        let is_structure = index == 4;
        assert!(
            is_structure || raw_set(kernel, index, size + 4, value) == CL_INVALID_ARG_SIZE,
            "{index}"
        );
    }
    assert_eq!(raw_set(kernel, 5, 64, null()), CL_SUCCESS);
    assert_eq!(raw_set(kernel, 5, 64, value), CL_INVALID_ARG_VALUE);
    assert_eq!(raw_set(kernel, 5, 0, null()), CL_INVALID_ARG_SIZE);
    ok!(clReleaseMemObject(buffer));
    ok!(clReleaseKernel(kernel));
    ok!(clReleaseProgram(program));
}

#[test]
fn a_refused_value_leaves_the_old_one_and_a_clone_takes_all_along() {
    let cl = Fixture::new();
    let program = program_of(&cl);
    let first = kernel(program, "put");
    let buffer = cl.buffer_of(&[0; 16]);
    assert_eq!(launch(cl.queue, first, 1), CL_INVALID_KERNEL_ARGS);
    assert_eq!(
        (set(first, 0, &buffer), set(first, 1, &11)),
        (CL_SUCCESS, CL_SUCCESS)
    );
    assert_eq!(set(first, 1, &99u64), CL_INVALID_ARG_SIZE);
    let second = make!(clCloneKernel(first)).expect("a clone");
    assert_eq!(set(first, 1, &12), CL_SUCCESS);
    assert_eq!(launch(cl.queue, first, 1), CL_SUCCESS);
    assert_eq!(ints(&cl, buffer, 1), [12]);
    assert_eq!(launch(cl.queue, second, 2), CL_SUCCESS);
    assert_eq!(ints(&cl, buffer, 3), [11, 11, 0]);
    for kernel in [first, second] {
        ok!(clReleaseKernel(kernel));
    }
    ok!(clReleaseMemObject(buffer));
    ok!(clReleaseProgram(program));
}

unsafe extern "C" fn gone(_memory: cl_mem, user_data: *mut c_void) {
    // SAFETY: made below, for one call.
    let sender = unsafe { *Box::from_raw(user_data.cast::<Sender<()>>()) };
    let _ = sender.send(());
}

#[test]
fn an_argument_holds_no_buffer_but_a_launch_does() {
    let cl = Fixture::new();
    let program = program_of(&cl);
    let kernel = kernel(program, "put");
    let (sender, told) = channel::<()>();
    let watched = || {
        let buffer = cl.buffer(0, 64);
        let data = Box::into_raw(Box::new(sender.clone())).cast();
        ok!(clSetMemObjectDestructorCallback(buffer, Some(gone), data));
        buffer
    };
    let patience = Duration::from_secs(20);

    let buffer = watched();
    assert_eq!(
        (set(kernel, 0, &buffer), set(kernel, 1, &3)),
        (CL_SUCCESS, CL_SUCCESS)
    );
    ok!(clReleaseMemObject(buffer));
    told.recv_timeout(patience)
        .expect("released while it is an argument");
    // Another buffer at the same address is not mistaken for it.
    let other = cl.buffer(0, 64);
    assert_eq!(launch(cl.queue, kernel, 1), CL_INVALID_MEM_OBJECT);
    ok!(clReleaseMemObject(other));

    let buffer = watched();
    let gate = cl.user_event();
    assert_eq!(set(kernel, 0, &buffer), CL_SUCCESS);
    assert_eq!(launch_after(cl.queue, kernel, 1, &[gate]), CL_SUCCESS);
    ok!(clReleaseMemObject(buffer));
    ok!(clReleaseKernel(kernel));
    assert!(told.try_recv().is_err(), "a launch waits with it");
    ok!(clSetUserEventStatus(gate, CL_COMPLETE));
    told.recv_timeout(patience)
        .expect("released with the launch");
    ok!(clReleaseEvent(gate));
    ok!(clReleaseProgram(program));
}

#[test]
fn argument_info_is_told_only_to_who_asked_for_it() {
    let cl = Fixture::new();
    let program = program_of(&cl);
    let with = kernel(program, "put");
    let mut text = [0u8; 16];
    let to = text.as_mut_ptr().cast();
    let mut size = 0;
    ok!(clGetKernelArgInfo(
        with,
        1,
        CL_KERNEL_ARG_NAME,
        16,
        to,
        &raw mut size
    ));
    assert_eq!(&text[..size], b"value\0");
    ok!(clGetKernelArgInfo(
        with,
        0,
        CL_KERNEL_ARG_TYPE_NAME,
        16,
        to,
        &raw mut size
    ));
    assert_eq!(&text[..size], b"int*\0");
    let mut qualifier = 0u32;
    let name = CL_KERNEL_ARG_ADDRESS_QUALIFIER;
    ok!(clGetKernelArgInfo(
        with,
        0,
        name,
        4,
        (&raw mut qualifier).cast(),
        null_mut()
    ));
    assert_eq!(qualifier, CL_KERNEL_ARG_ADDRESS_GLOBAL);
    let none = code!(clGetKernelArgInfo(with, 2, name, 16, to, null_mut()));
    assert_eq!(none, CL_INVALID_ARG_INDEX);
    ok!(clReleaseKernel(with));
    ok!(clReleaseProgram(program));

    let program = built(&cl, SOURCE, "");
    let without = kernel(program, "put");
    let none = code!(clGetKernelArgInfo(
        without,
        1,
        CL_KERNEL_ARG_NAME,
        16,
        to,
        null_mut()
    ));
    assert_eq!(none, CL_KERNEL_ARG_INFO_NOT_AVAILABLE);
    ok!(clReleaseKernel(without));
    ok!(clReleaseProgram(program));
}

#[test]
fn local_memory_counts_the_local_arguments_set_so_far() {
    let cl = Fixture::new();
    let program = program_of(&cl);
    let kernel = kernel(program, "each");
    let local_mem = || {
        let mut size = 77u64;
        ok!(clGetKernelWorkGroupInfo(
            kernel,
            null_mut(),
            CL_KERNEL_LOCAL_MEM_SIZE,
            8,
            (&raw mut size).cast(),
            null_mut()
        ));
        size
    };
    let before = local_mem();
    assert_eq!(raw_set(kernel, 5, 4096, null()), CL_SUCCESS);
    assert_eq!(local_mem(), before + 4096);
    assert_eq!(raw_set(kernel, 5, 128, null()), CL_SUCCESS);
    assert_eq!(local_mem(), before + 128);
    ok!(clReleaseKernel(kernel));
    ok!(clReleaseProgram(program));
}
