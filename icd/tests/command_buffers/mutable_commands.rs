//! Tests of launches that change after recording, and of their replays.

use std::ptr::{null, null_mut};

use crate::frames::opencl::*;
use crate::frames::programs::*;
use crate::frames::recorded::*;
use crate::mutable::*;

#[test]
fn replays_run_as_they_were_when_they_were_enqueued() {
    let stage = Stage::new();
    let other = stage.cl.buffer_of(&[0; SIZE]);
    let (recorded, handle) = stage.recorded(None);
    let gate = stage.cl.user_event();
    let mut events = Vec::new();
    // All of these wait, each with its own values.
    for value in 10i32..14 {
        let buffer = if value % 2 == 0 { stage.buffer } else { other };
        let args = [arg(1, &value), arg(0, &buffer)];
        assert_eq!(
            recorded.update(&[config_of_args(handle, &args)]),
            CL_SUCCESS
        );
        let wait = events.last().copied().unwrap_or(gate);
        events.push(recorded.enqueue(&[wait]));
    }
    // The command buffer is never enqueued with this value, and the kernel's own argument does not count.
    let value = 99i32;
    assert_eq!(
        recorded.update(&[config_of_args(handle, &[arg(1, &value)])]),
        CL_SUCCESS
    );
    assert_eq!(set(stage.put, 1, &77i32), CL_SUCCESS);
    ok!(clSetUserEventStatus(gate, CL_COMPLETE));
    ok!(clWaitForEvents(1, &raw const events[3]));
    assert_eq!(stage.ints(), [12; COUNT]);
    assert_eq!(ints(&stage.cl, other, COUNT), [13; COUNT]);
    recorded.replay();
    assert_eq!(ints(&stage.cl, other, COUNT), [99; COUNT]);
    for event in events.into_iter().chain([gate]) {
        ok!(clReleaseEvent(event));
    }
    drop(recorded);
    ok!(clReleaseMemObject(other));
}

#[test]
fn sizes_change_without_a_number_of_dimensions() {
    let stage = Stage::new();
    let (recorded, handle) = stage.recorded(None);
    let (offset, global) = (8usize, 16usize);
    let change = cl_mutable_dispatch_config_khr {
        work_dim: 0,
        global_work_offset: &raw const offset,
        global_work_size: &raw const global,
        ..config(handle)
    };
    assert_eq!(recorded.update(&[change]), CL_SUCCESS);
    recorded.replay();
    let expected: Vec<i32> = (0..COUNT)
        .map(|at| i32::from((8..24).contains(&at)))
        .collect();
    assert_eq!(stage.ints(), expected);
    drop(recorded);
}

#[test]
fn sizes_change_and_what_is_not_named_stays() {
    let stage = Stage::new();
    let (recorded, handle) = stage.recorded(None);
    let (offset, global, local) = (16usize, 32usize, 8usize);
    let change = cl_mutable_dispatch_config_khr {
        work_dim: 1,
        global_work_offset: &raw const offset,
        global_work_size: &raw const global,
        local_work_size: &raw const local,
        ..config(handle)
    };
    assert_eq!(recorded.update(&[change]), CL_SUCCESS);
    recorded.replay();
    let inside = |place: usize| i32::from((16..48).contains(&place));
    assert_eq!(stage.ints(), (0..COUNT).map(inside).collect::<Vec<_>>());
    assert_eq!(
        asked(handle, CL_MUTABLE_DISPATCH_GLOBAL_WORK_OFFSET_KHR),
        Ok(vec![offset])
    );
    assert_eq!(
        asked(handle, CL_MUTABLE_DISPATCH_GLOBAL_WORK_SIZE_KHR),
        Ok(vec![global])
    );
    assert_eq!(
        asked(handle, CL_MUTABLE_DISPATCH_LOCAL_WORK_SIZE_KHR),
        Ok(vec![local])
    );
    // Changes only the value, as in the specification's example without a dimension.
    let value = 5i32;
    assert_eq!(
        recorded.update(&[config_of_args(handle, &[arg(1, &value)])]),
        CL_SUCCESS
    );
    recorded.replay();
    let inside = |place: usize| if (16..48).contains(&place) { 5 } else { 0 };
    assert_eq!(stage.ints(), (0..COUNT).map(inside).collect::<Vec<_>>());
    drop(recorded);
}

#[test]
fn memory_that_no_launch_has_any_more_may_go() {
    let stage = Stage::new();
    let gone = stage.cl.buffer(0, SIZE);
    assert_eq!(set(stage.put, 0, &gone), CL_SUCCESS);
    let (recorded, handle) = stage.recorded(None);
    recorded.replay();
    let change = [arg(0, &stage.buffer)];
    assert_eq!(
        recorded.update(&[config_of_args(handle, &change)]),
        CL_SUCCESS
    );
    ok!(clReleaseMemObject(gone));
    recorded.replay();
    assert_eq!(stage.ints(), [1; COUNT]);
    // A replay fails if an argument of its launch was released.
    let second = stage.cl.buffer(0, SIZE);
    assert_eq!(
        recorded.update(&[config_of_args(handle, &[arg(0, &second)])]),
        CL_SUCCESS
    );
    ok!(clReleaseMemObject(second));
    assert_eq!(recorded.try_enqueue(&[], &[]), Err(CL_INVALID_MEM_OBJECT));
    assert_eq!(set(stage.put, 0, &stage.buffer), CL_SUCCESS);
    drop(recorded);
}

#[test]
fn local_memory_changes_with_the_groups() {
    let stage = Stage::new();
    let sum = kernel(stage.program, "sum");
    assert_eq!(set(sum, 0, &stage.buffer), CL_SUCCESS);
    assert_eq!(code!(clSetKernelArg(sum, 1, 16, null())), CL_SUCCESS);
    assert_eq!(set(sum, 2, &3i32), CL_SUCCESS);
    let recorded = Recorded::mutable(stage.cl.queue);
    let handle = recorded.launch_mutable(None, sum, COUNT, Some(4)).unwrap();
    assert_eq!(recorded.finalize(), CL_SUCCESS);
    recorded.replay();
    let local = 16usize;
    let mut space = [cl_mutable_dispatch_arg_khr {
        arg_index: 1,
        arg_size: 4 * local,
        arg_value: null(),
    }];
    let change = cl_mutable_dispatch_config_khr {
        work_dim: 1,
        local_work_size: &raw const local,
        ..config_of_args(handle, &space)
    };
    assert_eq!(recorded.update(&[change]), CL_SUCCESS);
    recorded.replay();
    assert_eq!(stage.ints(), [6; COUNT]);
    // More local memory than the device has.
    space[0].arg_size = 1 << 40;
    let change = config_of_args(handle, &space);
    assert_eq!(recorded.update(&[change]), CL_OUT_OF_RESOURCES);
    recorded.replay();
    assert_eq!(stage.ints(), [9; COUNT]);
    drop(recorded);
    ok!(clReleaseKernel(sum));
}

#[test]
fn shared_virtual_memory_and_what_pointers_reach_change() {
    let stage = Stage::new();
    let context = stage.cl.context;
    // SAFETY: a live context; NULL or memory of that size.
    let allocate = || unsafe { (cl().clSVMAlloc)(context, CL_MEM_READ_WRITE, SIZE, 0) };
    let (one, two) = (allocate(), allocate());
    assert!(!one.is_null() && !two.is_null(), "PoCL has it");
    let (recorded, handle) = stage.recorded(None);
    let svm = [cl_mutable_dispatch_arg_khr {
        arg_index: 0,
        arg_size: 0,
        arg_value: one,
    }];
    let pointers = [one.cast_const(), two.cast_const()];
    let infos = [cl_mutable_dispatch_exec_info_khr {
        param_name: CL_KERNEL_EXEC_INFO_SVM_PTRS,
        param_value_size: size_of_val(&pointers),
        param_value: pointers.as_ptr().cast(),
    }];
    let change = cl_mutable_dispatch_config_khr {
        num_svm_args: 1,
        arg_svm_list: svm.as_ptr(),
        num_exec_infos: 1,
        exec_info_list: infos.as_ptr(),
        ..config(handle)
    };
    assert_eq!(recorded.update(&[change]), CL_SUCCESS);
    recorded.replay();
    let queue = stage.cl.queue;
    ok!(clEnqueueSVMMap(
        queue,
        CL_TRUE,
        CL_MAP_READ,
        one,
        SIZE,
        0,
        null(),
        null_mut()
    ));
    // SAFETY: mapped, and of as many numbers.
    let seen = unsafe { std::slice::from_raw_parts(one.cast::<i32>(), COUNT) };
    assert_eq!(seen, [1; COUNT]);
    ok!(clEnqueueSVMUnmap(queue, one, 0, null(), null_mut()));
    let wrong = [cl_mutable_dispatch_arg_khr {
        arg_value: (&raw const svm).cast(),
        ..svm[0]
    }];
    let change = cl_mutable_dispatch_config_khr {
        num_svm_args: 1,
        arg_svm_list: wrong.as_ptr(),
        ..config(handle)
    };
    assert_eq!(recorded.update(&[change]), CL_INVALID_ARG_VALUE);
    drop(recorded);
    stage.cl.finish();
    // SAFETY: allocated here, and used no more.
    unsafe {
        (cl().clSVMFree)(context, one);
        (cl().clSVMFree)(context, two);
    }
}
