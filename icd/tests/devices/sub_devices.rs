//! Tests of PoCL's sub-devices: creation, info, kernels, release, and the loss of their session.

use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::frames::opencl::*;
use crate::frames::programs::*;

const PATIENCE: Duration = Duration::from_secs(60);

/// Makes tests take turns, because one of them ends the shared session.
static TURN: Mutex<()> = Mutex::new(());

const EQUALLY: [cl_device_partition_property; 3] = [CL_DEVICE_PARTITION_EQUALLY, 1, 0];

fn number<T: Copy + Default>(device: cl_device_id, name: cl_device_info) -> T {
    let mut value = T::default();
    ok!(clGetDeviceInfo(
        device,
        name,
        size_of::<T>(),
        (&raw mut value).cast(),
        null_mut()
    ));
    value
}

fn list(device: cl_device_id, name: cl_device_info) -> Vec<isize> {
    let (mut all, mut size) = ([0isize; 16], 0);
    ok!(clGetDeviceInfo(
        device,
        name,
        size_of_val(&all),
        all.as_mut_ptr().cast(),
        &raw mut size
    ));
    all[..size / size_of::<isize>()].to_vec()
}

/// Returns the number of parts, or the error code.
fn count(device: cl_device_id, properties: &[cl_device_partition_property]) -> Result<u32, cl_int> {
    let mut count = 77;
    let list = properties.as_ptr();
    match code!(clCreateSubDevices(
        device,
        list,
        0,
        null_mut(),
        &raw mut count
    )) {
        CL_SUCCESS => Ok(count),
        code => Err(code),
    }
}

fn divide(
    device: cl_device_id,
    properties: &[cl_device_partition_property],
    room: u32,
) -> Result<Vec<cl_device_id>, cl_int> {
    let (mut parts, mut count) = (vec![null_mut(); room as usize], 0);
    let (list, place) = (properties.as_ptr(), parts.as_mut_ptr());
    match code!(clCreateSubDevices(
        device,
        list,
        room,
        place,
        &raw mut count
    )) {
        CL_SUCCESS => {
            parts.truncate(count as usize);
            Ok(parts)
        }
        code => Err(code),
    }
}

fn is_dead(device: cl_device_id) -> bool {
    let name = CL_DEVICE_TYPE;
    code!(clGetDeviceInfo(device, name, 0, null_mut(), null_mut())) == CL_INVALID_DEVICE
}

fn program_from(context: cl_context, source: &str) -> cl_program {
    let (mut text, length) = (source.as_ptr().cast(), source.len());
    let (text, length) = (&raw mut text, &raw const length);
    make!(clCreateProgramWithSource(context, 1, text, length)).expect("a program")
}

fn context_over(devices: &[cl_device_id]) -> cl_context {
    make!(clCreateContext(
        null(),
        devices.len() as u32,
        devices.as_ptr(),
        None,
        null_mut()
    ))
    .expect("a context")
}

#[test]
fn parts_are_told_as_parts_and_die_with_their_last_hold() {
    own_process!();
    let _turn = TURN.lock();
    daemon();
    let root = device();
    let units: u32 = number(root, CL_DEVICE_MAX_COMPUTE_UNITS);
    let ways = list(root, CL_DEVICE_PARTITION_PROPERTIES);
    assert!(ways.contains(&CL_DEVICE_PARTITION_EQUALLY), "{ways:?}");
    assert_eq!(count(root, &EQUALLY), Ok(units));
    let parts = divide(root, &EQUALLY, units + 3).expect("parts");
    assert_eq!(parts.len(), units as usize);
    for &part in &parts {
        assert_eq!(number::<u32>(part, CL_DEVICE_MAX_COMPUTE_UNITS), 1);
        assert_eq!(number::<usize>(part, CL_DEVICE_PARENT_DEVICE), root.addr());
        assert_eq!(list(part, CL_DEVICE_PARTITION_TYPE), EQUALLY);
        let size = |device| number::<u64>(device, CL_DEVICE_GLOBAL_MEM_SIZE);
        assert_eq!(size(part), size(root));
        assert_eq!(number::<u32>(part, CL_DEVICE_AVAILABLE), CL_TRUE);
        assert_eq!(number::<u32>(part, CL_DEVICE_REFERENCE_COUNT), 1);
    }
    let first = parts[0];
    ok!(clRetainDevice(first));
    assert_eq!(number::<u32>(first, CL_DEVICE_REFERENCE_COUNT), 2);
    ok!(clReleaseDevice(first));
    let context = context_over(&[first]);
    for &part in &parts {
        ok!(clReleaseDevice(part));
    }
    assert!(!is_dead(first) && parts[1..].iter().all(|part| is_dead(*part)));
    ok!(clReleaseContext(context));
    assert!(is_dead(first));
    // A root device has no reference count.
    ok!(clReleaseDevice(root));
    assert_eq!(number::<u32>(root, CL_DEVICE_REFERENCE_COUNT), 1);
}

#[test]
fn what_cannot_be_divided_so_is_refused() {
    own_process!();
    let _turn = TURN.lock();
    daemon();
    let root = device();
    let units = number::<u32>(root, CL_DEVICE_MAX_COMPUTE_UNITS) as isize;
    let counts = |counts: &[isize]| {
        let list = [&[CL_DEVICE_PARTITION_BY_COUNTS], counts, &[0, 0]].concat();
        count(root, &list)
    };
    assert_eq!(counts(&[units]), Ok(1));
    assert_eq!(counts(&[units, 1]), Err(CL_INVALID_DEVICE_PARTITION_COUNT));
    assert_eq!(counts(&[-1]), Err(CL_INVALID_DEVICE_PARTITION_COUNT));
    for wrong in [
        &[0][..],
        &[0x999, 1, 0],
        &[CL_DEVICE_PARTITION_EQUALLY, 1, 5, 0],
        &[CL_DEVICE_PARTITION_EQUALLY, units + 1, 0],
    ] {
        assert_eq!(count(root, wrong), Err(CL_INVALID_VALUE), "{wrong:?}");
    }
    if units > 1 {
        assert_eq!(divide(root, &EQUALLY, 1), Err(CL_INVALID_VALUE));
    }
    let none = code!(clCreateSubDevices(root, null(), 0, null_mut(), null_mut()));
    assert_eq!(none, CL_INVALID_VALUE);
    let part = divide(root, &EQUALLY, units as u32).expect("parts");
    assert_eq!(count(part[0], &EQUALLY), Err(CL_DEVICE_PARTITION_FAILED));
    for part in part {
        ok!(clReleaseDevice(part));
    }
}

/// Whether a new context on the device works.
fn is_served(device: cl_device_id) -> bool {
    let made = make!(clCreateContext(
        null(),
        1,
        &raw const device,
        None,
        null_mut()
    ));
    let Ok(context) = made else {
        assert_eq!(made, Err(CL_DEVICE_NOT_AVAILABLE));
        return false;
    };
    let queue = make!(clCreateCommandQueue(context, device, 0));
    let served = queue.is_ok_and(|queue| {
        let finished =
            code!(clEnqueueBarrier(queue)) == CL_SUCCESS && code!(clFinish(queue)) == CL_SUCCESS;
        ok!(clReleaseCommandQueue(queue));
        finished
    });
    ok!(clReleaseContext(context));
    served
}

/// Each device of a context adds its share to one buffer.
fn compute(devices: &[cl_device_id]) {
    const SIZE: usize = 1000;
    let context = context_over(devices);
    let buffer = make!(clCreateBuffer(context, 0, 4 * SIZE, null_mut())).expect("a buffer");
    let source = "kernel void add(global int *x, int v) { x[get_global_id(0)] += v; }";
    let program = program_from(context, source);
    ok!(clBuildProgram(program, 0, null(), null(), None, null_mut()));
    let kernel = kernel(program, "add");
    assert_eq!(set(kernel, 0, &buffer), CL_SUCCESS);
    let queues: Vec<cl_command_queue> = devices
        .iter()
        .map(|device| make!(clCreateCommandQueue(context, *device, 0)).expect("a queue"))
        .collect();
    let zero = 0u32;
    ok!(clEnqueueFillBuffer(
        queues[0],
        buffer,
        (&raw const zero).cast(),
        4,
        0,
        4 * SIZE,
        0,
        null(),
        null_mut()
    ));
    ok!(clFinish(queues[0]));
    for (share, &queue) in (1..).zip(&queues) {
        assert_eq!(set::<cl_int>(kernel, 1, &share), CL_SUCCESS);
        assert_eq!(launch(queue, kernel, SIZE), CL_SUCCESS);
        ok!(clFinish(queue));
    }
    let mut got = vec![0i32; SIZE];
    ok!(clEnqueueReadBuffer(
        queues[queues.len() - 1],
        buffer,
        CL_TRUE,
        0,
        4 * SIZE,
        got.as_mut_ptr().cast(),
        0,
        null(),
        null_mut()
    ));
    let sum: cl_int = (1..=devices.len() as cl_int).sum();
    assert!(got.iter().all(|&value| value == sum));
    for queue in queues {
        ok!(clReleaseCommandQueue(queue));
    }
    ok!(clReleaseKernel(kernel));
    ok!(clReleaseProgram(program));
    ok!(clReleaseMemObject(buffer));
    ok!(clReleaseContext(context));
}

#[test]
fn parts_compute_also_beside_the_device_and_after_the_loss_of_their_session() {
    own_process!();
    let _turn = TURN.lock();
    daemon();
    let root = device();
    let units: u32 = number(root, CL_DEVICE_MAX_COMPUTE_UNITS);
    let mut parts = divide(root, &EQUALLY, units).expect("parts");
    compute(&parts);
    if units > 1 {
        ok!(clReleaseDevice(parts.pop().expect("a part")));
    }
    let (mut device_time, mut host_time) = (0, 0);
    ok!(clGetDeviceAndHostTimer(
        parts[0],
        &raw mut device_time,
        &raw mut host_time
    ));
    assert!(device_time > 0 && host_time > 0);
    kill_workers();
    // The first caller may still meet the lost session.
    let given_up = Instant::now() + PATIENCE;
    while !is_served(parts[0]) {
        assert!(Instant::now() < given_up, "the node is back");
        std::thread::yield_now();
    }
    compute(&parts);
    for part in parts {
        ok!(clReleaseDevice(part));
    }
}

fn build_info<T: Copy + Default>(
    program: cl_program,
    device: cl_device_id,
    name: cl_program_build_info,
) -> Result<T, cl_int> {
    let mut value = T::default();
    let (place, size) = ((&raw mut value).cast(), size_of::<T>());
    match code!(clGetProgramBuildInfo(
        program,
        device,
        name,
        size,
        place,
        null_mut()
    )) {
        CL_SUCCESS => Ok(value),
        code => Err(code),
    }
}

fn work_group_size(kernel: cl_kernel, device: cl_device_id) -> Result<usize, cl_int> {
    let mut value = 0usize;
    match code!(clGetKernelWorkGroupInfo(
        kernel,
        device,
        CL_KERNEL_WORK_GROUP_SIZE,
        size_of::<usize>(),
        (&raw mut value).cast(),
        null_mut()
    )) {
        CL_SUCCESS => Ok(value),
        code => Err(code),
    }
}

/// Launches a kernel that writes 7 into its first argument. Returns the buffer's content, or the launch's code.
fn written(context: cl_context, device: cl_device_id, kernel: cl_kernel) -> Result<cl_int, cl_int> {
    let queue = make!(clCreateCommandQueue(context, device, 0)).expect("a queue");
    let buffer = make!(clCreateBuffer(context, 0, 4, null_mut())).expect("a buffer");
    assert_eq!(set::<cl_mem>(kernel, 0, &buffer), CL_SUCCESS);
    let mut value = 0;
    let code = launch(queue, kernel, 1);
    if code == CL_SUCCESS {
        let place = (&raw mut value).cast();
        ok!(clEnqueueReadBuffer(
            queue,
            buffer,
            CL_TRUE,
            0,
            4,
            place,
            0,
            null(),
            null_mut()
        ));
    }
    ok!(clReleaseCommandQueue(queue));
    ok!(clReleaseMemObject(buffer));
    if code == CL_SUCCESS {
        Ok(value)
    } else {
        Err(code)
    }
}

const SEVEN: &str = "#ifdef BAD\n#error bad\n#endif\n\
    kernel void seven(global int *x) { *x = 7; }";

#[test]
fn a_part_uses_the_build_of_its_device_until_it_has_its_own() {
    own_process!();
    let _turn = TURN.lock();
    daemon();
    let root = device();
    let units: u32 = number(root, CL_DEVICE_MAX_COMPUTE_UNITS);
    let all = [CL_DEVICE_PARTITION_BY_COUNTS, units as isize, 0, 0];
    let part = divide(root, &all, 1).expect("a part")[0];
    let parts = divide(part, &EQUALLY, units).unwrap_or_default();
    let devices = [&[root, part][..], &parts].concat();
    let context = context_over(&devices);
    let program = program_from(context, SEVEN);
    let status = |device| build_info::<cl_int>(program, device, CL_PROGRAM_BUILD_STATUS);
    for &device in &devices {
        assert_eq!(status(device), Ok(CL_BUILD_NONE));
    }
    let build = |device: cl_device_id, options: &std::ffi::CStr| {
        let options = options.as_ptr();
        code!(clBuildProgram(
            program,
            1,
            &device,
            options,
            None,
            null_mut()
        ))
    };
    assert_eq!(build(root, c"-cl-kernel-arg-info -DX"), CL_SUCCESS);
    let kernel = make!(clCreateKernel(program, c"seven".as_ptr())).expect("a kernel");
    for &device in &devices {
        assert_eq!(status(device), Ok(CL_BUILD_SUCCESS));
        let binary = build_info::<u32>(program, device, CL_PROGRAM_BINARY_TYPE);
        assert_eq!(binary, Ok(CL_PROGRAM_BINARY_TYPE_EXECUTABLE));
        let options = build_info::<[u8; 24]>(program, device, CL_PROGRAM_BUILD_OPTIONS);
        assert_eq!(options, Ok(*b"-cl-kernel-arg-info -DX\0"));
        assert_eq!(
            work_group_size(kernel, device),
            work_group_size(kernel, null_mut())
        );
        assert_eq!(written(context, device, kernel), Ok(7));
    }
    ok!(clReleaseKernel(kernel));
    // A part's own build counts, also if it fails.
    assert_eq!(build(part, c"-DBAD"), CL_BUILD_PROGRAM_FAILURE);
    assert_eq!(status(root), Ok(CL_BUILD_SUCCESS));
    assert_eq!(status(part), Ok(CL_BUILD_ERROR));
    let kernel = make!(clCreateKernel(program, c"seven".as_ptr())).expect("a kernel");
    assert_eq!(work_group_size(kernel, part), Err(CL_INVALID_DEVICE));
    assert_eq!(
        written(context, part, kernel),
        Err(CL_INVALID_PROGRAM_EXECUTABLE)
    );
    ok!(clReleaseKernel(kernel));
    assert_eq!(build(part, c""), CL_SUCCESS);
    let kernel = make!(clCreateKernel(program, c"seven".as_ptr())).expect("a kernel");
    for &device in &devices {
        assert_eq!(written(context, device, kernel), Ok(7));
    }
    ok!(clReleaseKernel(kernel));
    ok!(clReleaseProgram(program));
    ok!(clReleaseContext(context));
    // A part's build is separate from its parent's.
    let context = context_over(&[root, part]);
    let program = program_from(context, SEVEN);
    ok!(clBuildProgram(program, 1, &part, null(), None, null_mut()));
    let status = build_info::<cl_int>(program, root, CL_PROGRAM_BUILD_STATUS);
    assert_eq!(status, Ok(CL_BUILD_NONE));
    let kernel = make!(clCreateKernel(program, c"seven".as_ptr())).expect("a kernel");
    assert_eq!(
        written(context, root, kernel),
        Err(CL_INVALID_PROGRAM_EXECUTABLE)
    );
    assert_eq!(written(context, part, kernel), Ok(7));
    ok!(clReleaseKernel(kernel));
    ok!(clReleaseProgram(program));
    ok!(clReleaseContext(context));
    for device in parts.into_iter().chain([part]) {
        ok!(clReleaseDevice(device));
    }
}
