//! Tests of programs from an intermediate language, specialisation constants and sub-groups: on a node that has them,
//! next to one that does not.

use std::ptr::{null, null_mut};
use std::sync::OnceLock;

use parking_lot::{Mutex, MutexGuard};

use crate::frames::nodes::*;
use crate::frames::opencl::*;
use crate::frames::programs::{kernel, program_in};

/// A node with SPIR-V and sub-groups, and one without.
const NODES: [Drivers; 2] = [
    Drivers::Fake(
        "[[device]]\nname = \"Rich\"\nil = true\nsub_groups = 8\n\
         extensions = [\"cl_intel_required_subgroup_size\"]\n",
    ),
    Drivers::Fake("[[device]]\nname = \"Poor\"\n"),
];

struct Stage {
    rich_node: &'static Node,
    rich: cl_device_id,
    poor: cl_device_id,
    // The test counts the driver's calls.
    _turn: MutexGuard<'static, ()>,
}

fn stage() -> Stage {
    static TURN: OnceLock<Mutex<()>> = OnceLock::new();
    let turn = TURN.get_or_init(Mutex::default).lock();
    let nodes = start(&NODES);
    let [rich, poor] = devices(2)[..] else {
        unreachable!("as many were asked for");
    };
    Stage {
        rich_node: &nodes[0],
        rich,
        poor,
        _turn: turn,
    }
}

/// A module with a kernel `k` of one parameter, and a constant 5 of four bytes.
fn module() -> Vec<u8> {
    let name = u32::from_le_bytes(*b"k\0\0\0");
    let words = [
        &[0x0723_0203, 0x0001_0000, 0, 9, 0][..],
        &[4 << 16 | 15, 6, 7, name], // OpEntryPoint Kernel %7 "k"
        &[4 << 16 | 71, 8, 1, 5],    // OpDecorate %8 SpecId 5
        &[4 << 16 | 21, 4, 32, 0],   // %4 = OpTypeInt 32 0
        &[4 << 16 | 50, 4, 8, 1],    // %8 = OpSpecConstant %4 1
        &[5 << 16 | 54, 1, 7, 0, 2], // %7 = OpFunction
        &[3 << 16 | 55, 3, 6],       // OpFunctionParameter
    ];
    let words = words.concat();
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn from_il(context: cl_context, module: &[u8]) -> Result<cl_program, cl_int> {
    make!(clCreateProgramWithIL(
        context,
        module.as_ptr().cast(),
        module.len()
    ))
}

fn build(program: cl_program, devices: &[cl_device_id]) -> cl_int {
    let list = if devices.is_empty() {
        null()
    } else {
        devices.as_ptr()
    };
    let count = devices.len() as cl_uint;
    code!(clBuildProgram(
        program,
        count,
        list,
        null(),
        None,
        null_mut()
    ))
}

fn status(program: cl_program, device: cl_device_id) -> cl_int {
    let mut status = 77;
    ok!(clGetProgramBuildInfo(
        program,
        device,
        CL_PROGRAM_BUILD_STATUS,
        4,
        (&raw mut status).cast(),
        null_mut()
    ));
    status
}

fn set_constant(program: cl_program, id: cl_uint, value: &[u8]) -> cl_int {
    code!(clSetProgramSpecializationConstant(
        program,
        id,
        value.len(),
        value.as_ptr().cast()
    ))
}

#[test]
fn a_module_is_built_where_it_is_taken_and_comes_back_as_it_was() {
    own_process!();
    let stage = stage();
    let context = context_over(&[stage.rich, stage.poor]);
    let program = from_il(context, &module()).expect("a program");
    let mut back = vec![0u8; module().len()];
    let mut size = 0;
    ok!(clGetProgramInfo(
        program,
        CL_PROGRAM_IL,
        back.len(),
        back.as_mut_ptr().cast(),
        &raw mut size
    ));
    assert_eq!((back, size), (module(), module().len()));
    assert_eq!(build(program, &[stage.rich]), CL_SUCCESS);
    let kernel = kernel(program, "k");
    ok!(clReleaseKernel(kernel));
    assert_eq!(build(program, &[]), CL_BUILD_PROGRAM_FAILURE);
    assert_eq!(status(program, stage.rich), CL_BUILD_SUCCESS);
    assert_eq!(status(program, stage.poor), CL_BUILD_ERROR);
    ok!(clReleaseProgram(program));
    ok!(clReleaseContext(context));
}

#[test]
fn what_is_no_module_or_has_no_device_is_refused() {
    own_process!();
    let stage = stage();
    let rich = context_over(&[stage.rich]);
    assert_eq!(from_il(rich, b"no module at all"), Err(CL_INVALID_VALUE));
    assert_eq!(from_il(rich, b""), Err(CL_INVALID_VALUE));
    let poor = context_over(&[stage.poor]);
    assert_eq!(from_il(poor, &module()), Err(CL_INVALID_OPERATION));
    for context in [rich, poor] {
        ok!(clReleaseContext(context));
    }
}

#[test]
fn constants_are_checked_here_and_go_along_with_the_next_build() {
    own_process!();
    let stage = stage();
    let context = context_over(&[stage.rich]);
    let program = from_il(context, &module()).expect("a program");
    assert_eq!(set_constant(program, 6, &[1; 4]), CL_INVALID_SPEC_ID);
    assert_eq!(set_constant(program, 5, &[1; 8]), CL_INVALID_VALUE);
    let set = || stage.rich_node.count("clSetProgramSpecializationConstant");
    let before = set();
    assert_eq!(set_constant(program, 5, &[1; 4]), CL_SUCCESS);
    assert_eq!(set_constant(program, 5, &[2; 4]), CL_SUCCESS);
    assert_eq!(set() - before, 0);
    assert_eq!(build(program, &[]), CL_SUCCESS);
    assert_eq!(set() - before, 1, "the last value");
    let text = "kernel void k(global int *x) { *x = 1; }";
    let (mut lines, length) = (text.as_ptr().cast(), text.len());
    let source = make!(clCreateProgramWithSource(
        context,
        1,
        &raw mut lines,
        &raw const length
    ));
    let source = source.expect("a program");
    assert_eq!(set_constant(source, 5, &[1; 4]), CL_INVALID_PROGRAM);
    for program in [program, source] {
        ok!(clReleaseProgram(program));
    }
    ok!(clReleaseContext(context));
}

/// The answer to a question about sub-groups, as sizes.
fn sub_groups(
    kernel: cl_kernel,
    device: cl_device_id,
    name: cl_kernel_sub_group_info,
    input: &[usize],
    room: usize,
) -> Result<Vec<usize>, cl_int> {
    let (mut answer, mut size) = (vec![0usize; room], 0);
    let code = code!(clGetKernelSubGroupInfo(
        kernel,
        device,
        name,
        size_of_val(input),
        if input.is_empty() {
            null()
        } else {
            input.as_ptr().cast()
        },
        size_of_val(&answer[..]),
        answer.as_mut_ptr().cast(),
        &raw mut size
    ));
    assert!(code != CL_SUCCESS || size == room * size_of::<usize>());
    (code == CL_SUCCESS).then_some(answer).ok_or(code)
}

/// Queries of `cl_intel_required_subgroup_size`.
const SPILL_MEM_SIZE: cl_kernel_work_group_info = 0x4109;
const COMPILE_SUB_GROUP_SIZE: cl_kernel_sub_group_info = 0x410A;

#[test]
fn queries_of_an_extension_need_a_device_with_it() {
    own_process!();
    let stage = stage();
    for (device, told) in [(stage.rich, Ok(64)), (stage.poor, Err(CL_INVALID_VALUE))] {
        let context = context_over(&[device]);
        let program = program_in(context, "kernel void k(global int *a) {}");
        assert_eq!(build(program, &[device]), CL_SUCCESS);
        let kernel = kernel(program, "k");
        let mut spilled = 0u64;
        let code = code!(clGetKernelWorkGroupInfo(
            kernel,
            device,
            SPILL_MEM_SIZE,
            size_of_val(&spilled),
            (&raw mut spilled).cast(),
            null_mut()
        ));
        assert_eq!((code == CL_SUCCESS).then_some(spilled).ok_or(code), told);
        ok!(clReleaseKernel(kernel));
        ok!(clReleaseProgram(program));
        ok!(clReleaseContext(context));
    }
}

#[test]
fn the_node_is_asked_about_sub_groups_once_for_each_question() {
    own_process!();
    let stage = stage();
    let context = context_over(&[stage.rich, stage.poor]);
    let program = from_il(context, &module()).expect("a program");
    assert_eq!(build(program, &[stage.rich]), CL_SUCCESS);
    let kernel = kernel(program, "k");
    let ask = |name, input: &[usize], room| sub_groups(kernel, stage.rich, name, input, room);
    let asked = || stage.rich_node.count("clGetKernelSubGroupInfo");
    let before = asked();
    for _ in 0..3 {
        let count = CL_KERNEL_SUB_GROUP_COUNT_FOR_NDRANGE;
        assert_eq!(ask(count, &[10, 10], 1), Ok(vec![4]));
        assert_eq!(ask(count, &[10], 1), Ok(vec![1]));
    }
    assert_eq!(asked() - before, 2);
    let local = CL_KERNEL_LOCAL_SIZE_FOR_SUB_GROUP_COUNT;
    assert_eq!(ask(local, &[3], 2), Ok(vec![96, 1]));
    assert_eq!(ask(CL_KERNEL_MAX_NUM_SUB_GROUPS, &[], 1), Ok(vec![8]));
    assert_eq!(ask(COMPILE_SUB_GROUP_SIZE, &[], 1), Ok(vec![32]));
    assert_eq!(ask(local, &[3, 3], 2), Err(CL_INVALID_VALUE));
    assert_eq!(ask(local, &[], 1), Err(CL_INVALID_VALUE));
    assert_eq!(ask(77, &[], 1), Err(CL_INVALID_VALUE));
    let poor = sub_groups(kernel, stage.poor, local, &[3], 1);
    assert_eq!(poor, Err(CL_INVALID_DEVICE));
    ok!(clReleaseKernel(kernel));
    ok!(clReleaseProgram(program));
    ok!(clReleaseContext(context));
}
