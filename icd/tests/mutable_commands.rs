//! Launches of command buffers that are changed after recording: what replays then do, what is refused, what queries say.
#![allow(unsafe_code, missing_docs)]

mod opencl;
mod programs;
mod recorded;

use std::ptr::{null, null_mut};

use opencl::*;
use programs::*;
use recorded::*;

const SOURCE: &str = "\
kernel void put(global int *x, int value) { x[get_global_id(0)] = value; }
kernel void sum(global int *x, local int *space, int value) {
    space[get_local_id(0)] = value;
    barrier(CLK_LOCAL_MEM_FENCE);
    x[get_global_id(0)] += space[0];
}
struct node { global struct node *next; int value; };
kernel void grow(global struct node *first) {
    for (global struct node *at = first; at; at = at->next) at->value += 1;
}
";
const COUNT: usize = 64;
const SIZE: usize = 4 * COUNT;
const FIELDS: u64 = CL_MUTABLE_DISPATCH_UPDATABLE_FIELDS_KHR;

/// A program with a launch of `put` in a command buffer.
struct Stage {
    cl: Fixture,
    program: cl_program,
    put: cl_kernel,
    buffer: cl_mem,
}

impl Stage {
    fn new() -> Stage {
        let cl = Fixture::new();
        let program = built(&cl, SOURCE, "");
        let put = kernel(program, "put");
        let buffer = cl.buffer_of(&[0; SIZE]);
        assert_eq!(set(put, 0, &buffer), CL_SUCCESS);
        assert_eq!(set(put, 1, &1i32), CL_SUCCESS);
        Stage {
            cl,
            program,
            put,
            buffer,
        }
    }

    fn recorded(&self, properties: Option<&[u64]>) -> (Recorded, cl_mutable_command_khr) {
        let recorded = Recorded::mutable(self.cl.queue);
        let handle = recorded.launch_mutable(properties, self.put, COUNT, None);
        assert_eq!(recorded.finalize(), CL_SUCCESS);
        (recorded, handle.expect("a handle"))
    }

    fn ints(&self) -> Vec<i32> {
        ints(&self.cl, self.buffer, COUNT)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        ok!(clReleaseMemObject(self.buffer));
        ok!(clReleaseKernel(self.put));
        ok!(clReleaseProgram(self.program));
    }
}

fn asked<T: Copy + Default>(
    handle: cl_mutable_command_khr,
    name: cl_uint,
) -> Result<Vec<T>, cl_int> {
    let (mut all, mut size) = ([T::default(); 8], 0);
    let room = size_of_val(&all);
    let to = all.as_mut_ptr().cast();
    match call!(command_info(handle, name, room, to, &raw mut size)) {
        CL_SUCCESS => Ok(all[..size / size_of::<T>()].to_vec()),
        code => Err(code),
    }
}

#[test]
fn replays_run_as_they_were_when_they_were_enqueued() {
    let stage = Stage::new();
    let other = stage.cl.buffer_of(&[0; SIZE]);
    let (recorded, handle) = stage.recorded(None);
    let gate = stage.cl.user_event();
    let mut events = Vec::new();
    // All of these wait; each has values of its own.
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
    // Never enqueued as this, nor what the kernel itself is set to.
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
    // Only the value, by the specification's own example without a dimension.
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
    // And what one still has may not.
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
    // More than the device has.
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

#[test]
fn only_what_may_change_does_and_a_failed_update_changes_nothing() {
    let stage = Stage::new();
    let properties = [FIELDS, CL_MUTABLE_DISPATCH_ARGUMENTS_KHR, 0];
    let (recorded, handle) = stage.recorded(Some(&properties));
    let (size, value) = (32usize, 7i32);
    let args = [arg(1, &value)];
    let right = config_of_args(handle, &args);
    let sized = |config: cl_mutable_dispatch_config_khr| cl_mutable_dispatch_config_khr {
        work_dim: 1,
        ..config
    };
    let refused = |config, code| {
        // The first is right, and comes to nothing with the other.
        assert_eq!(recorded.update(&[right, config]), code);
        recorded.replay();
        assert_eq!(stage.ints(), [1; COUNT]);
    };
    let at = &raw const size;
    let no = config(handle);
    for wrong in [
        sized(cl_mutable_dispatch_config_khr {
            global_work_offset: at,
            ..no
        }),
        sized(cl_mutable_dispatch_config_khr {
            global_work_size: at,
            ..no
        }),
        sized(cl_mutable_dispatch_config_khr {
            local_work_size: at,
            ..no
        }),
        cl_mutable_dispatch_config_khr {
            work_dim: 2,
            ..right
        },
        cl_mutable_dispatch_config_khr {
            global_work_size: at,
            ..no
        },
        cl_mutable_dispatch_config_khr {
            num_exec_infos: 1,
            ..no
        },
    ] {
        refused(wrong, CL_INVALID_OPERATION);
    }
    let infos = cl_mutable_dispatch_exec_info_khr {
        param_name: 0,
        param_value_size: 0,
        param_value: null(),
    };
    for wrong in [
        cl_mutable_dispatch_config_khr {
            num_args: 0,
            ..right
        },
        cl_mutable_dispatch_config_khr {
            arg_list: null(),
            ..right
        },
        cl_mutable_dispatch_config_khr {
            num_svm_args: 1,
            ..no
        },
        cl_mutable_dispatch_config_khr {
            arg_svm_list: args.as_ptr(),
            ..no
        },
        cl_mutable_dispatch_config_khr {
            exec_info_list: &raw const infos,
            ..no
        },
    ] {
        refused(wrong, CL_INVALID_VALUE);
    }
    let short = 1u8;
    refused(
        config_of_args(handle, &[arg(2, &value)]),
        CL_INVALID_ARG_INDEX,
    );
    refused(
        config_of_args(handle, &[arg(1, &short)]),
        CL_INVALID_ARG_SIZE,
    );
    let queue = stage.cl.queue;
    refused(
        config_of_args(handle, &[arg(0, &queue)]),
        CL_INVALID_MEM_OBJECT,
    );
    let (elsewhere, foreign) = stage.recorded(None);
    for wrong in [null_mut(), recorded.raw, foreign] {
        refused(config(wrong), CL_INVALID_MUTABLE_COMMAND_KHR);
    }
    drop(elsewhere);
    refused(config(foreign), CL_INVALID_MUTABLE_COMMAND_KHR);
    assert_eq!(recorded.update(&[right]), CL_SUCCESS);
    recorded.replay();
    assert_eq!(stage.ints(), [7; COUNT]);
    drop(recorded);
}

#[test]
fn sizes_are_judged_as_those_of_an_enqueue() {
    let stage = Stage::new();
    let (recorded, handle) = stage.recorded(None);
    let update = |global: &usize, local: &usize| {
        recorded.update(&[cl_mutable_dispatch_config_khr {
            work_dim: 1,
            global_work_size: &raw const *global,
            local_work_size: &raw const *local,
            ..config(handle)
        }])
    };
    assert_eq!(update(&64, &0), CL_INVALID_WORK_GROUP_SIZE);
    assert_eq!(update(&64, &usize::MAX), CL_INVALID_WORK_GROUP_SIZE);
    // Groups at the edge would be smaller.
    let ragged = update(&64, &60);
    assert!(
        ragged == CL_INVALID_WORK_GROUP_SIZE || ragged == CL_INVALID_OPERATION,
        "{ragged}"
    );
    assert_eq!(update(&64, &8), CL_SUCCESS);
    drop(recorded);
}

#[test]
fn an_update_wants_a_finalized_mutable_command_buffer_and_whole_lists() {
    let stage = Stage::new();
    let recorded = Recorded::mutable(stage.cl.queue);
    let handle = recorded
        .launch_mutable(None, stage.put, COUNT, None)
        .unwrap();
    assert_eq!(recorded.update(&[config(handle)]), CL_INVALID_OPERATION);
    assert_eq!(recorded.finalize(), CL_SUCCESS);
    let fixed = Recorded::new(stage.cl.queue);
    let other = fixed.launch_mutable(None, stage.put, COUNT, None).unwrap();
    assert_eq!(fixed.finalize(), CL_SUCCESS);
    assert_eq!(fixed.update(&[config(other)]), CL_INVALID_OPERATION);
    let code = call!(update(null_mut(), 0, null(), null_mut()));
    assert_eq!(code, CL_INVALID_COMMAND_BUFFER_KHR);
    let kind = CL_STRUCTURE_TYPE_MUTABLE_DISPATCH_CONFIG_KHR;
    let (unknown, change) = (kind + 1, config(handle));
    let mut whole: *const c_void = (&raw const change).cast();
    let mut none: *const c_void = null();
    let raw = recorded.raw;
    for (count, types, configs) in [
        (1, null(), &raw mut whole),
        (0, &raw const kind, null_mut()),
        (1, &raw const kind, null_mut()),
        (0, null(), &raw mut whole),
        (1, &raw const unknown, &raw mut whole),
        (1, &raw const kind, &raw mut none),
    ] {
        assert_eq!(call!(update(raw, count, types, configs)), CL_INVALID_VALUE);
    }
    assert_eq!(call!(update(raw, 0, null(), null_mut())), CL_SUCCESS);
    assert_eq!(
        call!(update(raw, 1, &raw const kind, &raw mut whole)),
        CL_SUCCESS
    );
}

#[test]
fn recording_wants_properties_that_are_there() {
    let stage = Stage::new();
    let recorded = Recorded::mutable(stage.cl.queue);
    let record = |properties: &[u64], local| {
        recorded.launch_mutable(Some(properties), stage.put, COUNT, local)
    };
    assert_eq!(record(&[77, 0, 0], None), Err(CL_INVALID_VALUE));
    assert_eq!(
        record(&[FIELDS, 1, FIELDS, 1, 0], None),
        Err(CL_INVALID_VALUE)
    );
    assert_eq!(
        record(&[FIELDS, 1 << 20, 0], None),
        Err(CL_INVALID_OPERATION)
    );
    const ASSERTS: u64 = CL_MUTABLE_DISPATCH_ASSERTS_KHR;
    const NO_MORE: u64 = CL_MUTABLE_DISPATCH_ASSERT_NO_ADDITIONAL_WORK_GROUPS_KHR;
    assert_eq!(record(&[ASSERTS, 2, 0], Some(4)), Err(CL_INVALID_VALUE));
    assert_eq!(record(&[ASSERTS, NO_MORE, 0], None), Err(CL_INVALID_VALUE));
    assert!(record(&[ASSERTS, NO_MORE, FIELDS, 0, 0], Some(4)).is_ok());
    let flags = [
        CL_COMMAND_BUFFER_FLAGS_KHR,
        CL_COMMAND_BUFFER_MUTABLE_KHR,
        CL_COMMAND_BUFFER_MUTABLE_DISPATCH_ASSERTS_KHR,
        NO_MORE,
        0,
    ];
    let asserted = Recorded {
        raw: create(&[stage.cl.queue], Some(&flags)).expect("a command buffer"),
    };
    let launched = asserted.launch_mutable(None, stage.put, COUNT, None);
    assert_eq!(launched, Err(CL_INVALID_VALUE));
    assert!(
        asserted
            .launch_mutable(None, stage.put, COUNT, Some(4))
            .is_ok()
    );
}

#[test]
fn queries_tell_what_was_recorded() {
    let stage = Stage::new();
    let properties = [FIELDS, CL_MUTABLE_DISPATCH_GLOBAL_SIZE_KHR, 0];
    let (recorded, handle) = stage.recorded(Some(&properties));
    let (bare, plain) = stage.recorded(None);
    let one = |name| asked::<usize>(handle, name).map(|all| all[0]);
    assert_eq!(
        one(CL_MUTABLE_COMMAND_COMMAND_QUEUE_KHR),
        Ok(stage.cl.queue.addr())
    );
    assert_eq!(
        one(CL_MUTABLE_COMMAND_COMMAND_BUFFER_KHR),
        Ok(recorded.raw.addr())
    );
    assert_eq!(one(CL_MUTABLE_DISPATCH_KERNEL_KHR), Ok(stage.put.addr()));
    let kind = asked(handle, CL_MUTABLE_COMMAND_COMMAND_TYPE_KHR);
    assert_eq!(kind, Ok(vec![CL_COMMAND_NDRANGE_KERNEL]));
    assert_eq!(
        asked(handle, CL_MUTABLE_DISPATCH_DIMENSIONS_KHR),
        Ok(vec![1u32])
    );
    assert_eq!(one(CL_MUTABLE_DISPATCH_GLOBAL_WORK_OFFSET_KHR), Ok(0));
    assert_eq!(one(CL_MUTABLE_DISPATCH_GLOBAL_WORK_SIZE_KHR), Ok(COUNT));
    assert_eq!(one(CL_MUTABLE_DISPATCH_LOCAL_WORK_SIZE_KHR), Ok(0));
    let list = |of| asked::<u64>(of, CL_MUTABLE_COMMAND_PROPERTIES_ARRAY_KHR);
    assert_eq!(list(handle), Ok(properties.to_vec()));
    assert_eq!(list(plain), Ok(Vec::new()));
    assert_eq!(one(1), Err(CL_INVALID_VALUE));
    let mut small = 0u8;
    let to = (&raw mut small).cast();
    let name = CL_MUTABLE_DISPATCH_KERNEL_KHR;
    assert_eq!(
        call!(command_info(handle, name, 1, to, null_mut())),
        CL_INVALID_VALUE
    );
    // The handle goes with its command buffer, even while that still runs.
    let gate = stage.cl.user_event();
    let event = bare.enqueue(&[gate]);
    drop(bare);
    for dead in [plain, null_mut(), recorded.raw] {
        let asked = asked::<u32>(dead, CL_MUTABLE_DISPATCH_DIMENSIONS_KHR);
        assert_eq!(asked, Err(CL_INVALID_MUTABLE_COMMAND_KHR));
    }
    ok!(clSetUserEventStatus(gate, CL_COMPLETE));
    ok!(clWaitForEvents(1, &raw const event));
    ok!(clReleaseEvent(event));
    ok!(clReleaseEvent(gate));
    let mut fields = 0u64;
    ok!(clGetDeviceInfo(
        stage.cl.device,
        CL_DEVICE_MUTABLE_DISPATCH_CAPABILITIES_KHR,
        8,
        (&raw mut fields).cast(),
        null_mut()
    ));
    assert_eq!(fields, 0b1_1111, "PoCL has shared virtual memory");
    drop(recorded);
}
