//! Tests which changes to recorded launches are refused, with which code, and what queries answer.

use std::ptr::{null, null_mut};

use crate::frames::opencl::*;
use crate::frames::programs::*;
use crate::frames::recorded::*;
use crate::mutable::*;

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
        // The first change is valid, but fails together with the other.
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
        // Sizes may come without a number of dimensions, but these sizes may not change.
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
    // These sizes would make smaller groups at the edge.
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
    // Bits that are unknown to the specification.
    for unknown in [1 << 5, 1 << 63, CL_MUTABLE_DISPATCH_ARGUMENTS_KHR | 1 << 20] {
        let refused = record(&[FIELDS, unknown, 0], None);
        assert_eq!(refused, Err(CL_INVALID_VALUE));
    }
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
    // The handle becomes invalid with its command buffer, even while the command buffer runs.
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

fn state(recorded: &Recorded) -> cl_uint {
    let mut state = 77;
    let name = CL_COMMAND_BUFFER_STATE_KHR;
    let place = (&raw mut state).cast();
    let code = call!(info(recorded.raw, name, 4, place, null_mut()));
    assert_eq!(code, CL_SUCCESS);
    state
}

#[test]
fn arguments_may_be_set_by_updates_first() {
    let stage = Stage::new();
    // Another kernel, without arguments.
    let bare = kernel(stage.program, "put");
    let properties = [FIELDS, CL_MUTABLE_DISPATCH_ARGUMENTS_KHR, 0];
    let recorded = Recorded::mutable(stage.cl.queue);
    let first = recorded.launch_mutable(Some(&properties), bare, COUNT, None);
    let first = first.expect("a handle");
    let whole = recorded.launch_mutable(Some(&properties), stage.put, COUNT, None);
    let whole = whole.expect("a handle");
    assert_eq!(state(&recorded), CL_COMMAND_BUFFER_STATE_RECORDING_KHR);
    assert_eq!(recorded.finalize(), CL_SUCCESS);
    let enqueue = || {
        let raw = recorded.raw;
        call!(enqueue(0, null_mut(), raw, 0, null(), null_mut()))
    };
    assert_eq!(state(&recorded), CL_COMMAND_BUFFER_STATE_FINALIZED_KHR);
    assert_eq!(enqueue(), CL_INVALID_OPERATION);
    let (five, nine) = (5i32, 9i32);
    // Changes one argument of one launch, and other arguments of the other launch.
    let changes = [
        config_of_args(first, &[arg(1, &five)]),
        config_of_args(whole, &[arg(1, &nine)]),
    ];
    assert_eq!(recorded.update(&changes), CL_SUCCESS);
    assert_eq!(state(&recorded), CL_COMMAND_BUFFER_STATE_FINALIZED_KHR);
    assert_eq!(enqueue(), CL_INVALID_OPERATION);
    let other = stage.cl.buffer_of(&[0; SIZE]);
    let wrong = config_of_args(first, &[arg(0, &stage.cl.queue)]);
    assert_eq!(recorded.update(&[wrong]), CL_INVALID_MEM_OBJECT);
    assert_eq!(state(&recorded), CL_COMMAND_BUFFER_STATE_FINALIZED_KHR);
    let last = config_of_args(first, &[arg(0, &other)]);
    assert_eq!(recorded.update(&[last]), CL_SUCCESS);
    assert_eq!(state(&recorded), CL_COMMAND_BUFFER_STATE_EXECUTABLE_KHR);
    recorded.replay();
    assert_eq!(ints(&stage.cl, other, COUNT), [5; COUNT]);
    assert_eq!(stage.ints(), [9; COUNT]);
    drop(recorded);
    // The kernel itself still has none.
    assert_eq!(launch(stage.cl.queue, bare, COUNT), CL_INVALID_KERNEL_ARGS);
    ok!(clReleaseMemObject(other));
    ok!(clReleaseKernel(bare));
}

#[test]
fn arguments_that_no_update_could_set_are_asked_for_at_once() {
    let stage = Stage::new();
    let bare = kernel(stage.program, "put");
    let refused = |recorded: &Recorded, fields: cl_mutable_dispatch_fields_khr| {
        let properties = [FIELDS, fields, 0];
        let handle = recorded.launch_mutable(Some(&properties), bare, COUNT, None);
        assert_eq!(handle, Err(CL_INVALID_KERNEL_ARGS));
    };
    let mutable = Recorded::mutable(stage.cl.queue);
    refused(&mutable, CL_MUTABLE_DISPATCH_GLOBAL_SIZE_KHR);
    refused(
        &Recorded::new(stage.cl.queue),
        CL_MUTABLE_DISPATCH_ARGUMENTS_KHR,
    );
    // Without a handle.
    assert_eq!(
        mutable.launch(bare, COUNT, &[]),
        Err(CL_INVALID_KERNEL_ARGS)
    );
    drop(mutable);
    ok!(clReleaseKernel(bare));
}
