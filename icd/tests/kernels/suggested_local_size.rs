//! Tests `clGetKernelSuggestedLocalWorkSize`: the node answers if its driver has the extension, and the call is
//! refused otherwise.

use std::ffi::CStr;
use std::ptr::{null, null_mut};

use crate::frames::nodes::*;
use crate::frames::opencl::*;

const NODES: &[Drivers] = &[
    Drivers::Fake(
        "[[device]]\nname = \"Rich\"\nextensions = [\"cl_khr_suggested_local_work_size\"]\n",
    ),
    Drivers::Fake("[[device]]\nname = \"Poor\"\n"),
];
const SOURCE: &CStr = c"\
kernel void plain(global int *x, local int *space, int value) {}
kernel __attribute__((reqd_work_group_size(8, 4, 1))) void demanding(global int *x) {}
";

/// A context of one device, or of several nodes' devices.
struct Stage {
    context: cl_context,
    queues: Vec<cl_command_queue>,
    program: cl_program,
    buffer: cl_mem,
}

fn queue(context: cl_context, device: cl_device_id) -> cl_command_queue {
    make!(clCreateCommandQueue(context, device, 0)).expect("a queue")
}

impl Stage {
    fn new() -> Stage {
        start(NODES);
        let devices = devices(2);
        let context = context_over(&devices);
        let mut text = SOURCE.as_ptr();
        let program = make!(clCreateProgramWithSource(context, 1, &raw mut text, null()));
        let program = program.expect("a program");
        ok!(clBuildProgram(program, 0, null(), null(), None, null_mut()));
        let buffer = make!(clCreateBuffer(context, 0, 4096, null_mut())).expect("a buffer");
        Stage {
            context,
            queues: devices.iter().map(|of| queue(context, *of)).collect(),
            program,
            buffer,
        }
    }

    fn kernel(&self, name: &CStr) -> cl_kernel {
        let kernel = make!(clCreateKernel(self.program, name.as_ptr())).expect("a kernel");
        let buffer = (&raw const self.buffer).cast();
        ok!(clSetKernelArg(kernel, 0, 8, buffer));
        kernel
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        ok!(clReleaseMemObject(self.buffer));
        ok!(clReleaseProgram(self.program));
        for queue in &self.queues {
            ok!(clReleaseCommandQueue(*queue));
        }
        ok!(clReleaseContext(self.context));
    }
}

fn set_local(kernel: cl_kernel, size: usize) {
    ok!(clSetKernelArg(kernel, 1, size, null()));
    ok!(clSetKernelArg(kernel, 2, 4, (&raw const size).cast()));
}

fn suggested(
    queue: cl_command_queue,
    kernel: cl_kernel,
    global: &[usize],
) -> Result<Vec<usize>, cl_int> {
    let mut sizes = vec![77; global.len()];
    let (count, at) = (global.len() as cl_uint, sizes.as_mut_ptr());
    match code!(clGetKernelSuggestedLocalWorkSize(
        queue,
        kernel,
        count,
        null(),
        global.as_ptr(),
        at
    )) {
        CL_SUCCESS => Ok(sizes),
        code => Err(code),
    }
}

#[test]
fn the_nodes_driver_answers_for_the_arguments_that_are_set() {
    own_process!();
    let stage = Stage::new();
    let queue = stage.queues[0];
    let (plain, demanding) = (stage.kernel(c"plain"), stage.kernel(c"demanding"));
    assert_eq!(suggested(queue, plain, &[96]), Err(CL_INVALID_KERNEL_ARGS));
    set_local(plain, 16);
    assert_eq!(suggested(queue, plain, &[96]), Ok(vec![48]));
    assert_eq!(suggested(queue, plain, &[7, 3, 2]), Ok(vec![7, 1, 1]));
    // Less local memory remains, of the device's 48 KiB.
    set_local(plain, 6 << 10);
    assert_eq!(suggested(queue, plain, &[96]), Ok(vec![8]));
    assert_eq!(suggested(queue, demanding, &[64, 64]), Ok(vec![8, 4]));
    // A launch in between, and another call by the extension's name.
    let global = 96usize;
    ok!(clEnqueueNDRangeKernel(
        queue,
        plain,
        1,
        null(),
        &raw const global,
        null(),
        0,
        null(),
        null_mut()
    ));
    let name = c"clGetKernelSuggestedLocalWorkSizeKHR".as_ptr();
    let mut platform = null_mut();
    ok!(clGetPlatformIDs(1, &raw mut platform, null_mut()));
    // SAFETY: a live platform and a C string.
    let address = unsafe { (cl().clGetExtensionFunctionAddressForPlatform)(platform, name) };
    // SAFETY: the function of this name, or none.
    let ask = unsafe {
        std::mem::transmute::<*mut c_void, clGetKernelSuggestedLocalWorkSizeKHR_fn>(address)
    };
    let mut size = 0usize;
    // SAFETY: live handles and places.
    let code = unsafe {
        ask.expect("the function")(
            queue,
            plain,
            1,
            &raw const global,
            &raw const global,
            &raw mut size,
        )
    };
    assert_eq!((code, size), (CL_SUCCESS, 8));
    ok!(clFinish(queue));
    ok!(clReleaseKernel(plain));
    ok!(clReleaseKernel(demanding));
}

#[test]
fn what_is_wrong_is_told_in_the_specifications_order() {
    own_process!();
    let stage = Stage::new();
    let (rich, poor) = (stage.queues[0], stage.queues[1]);
    let kernel = stage.kernel(c"plain");
    assert_eq!(suggested(poor, kernel, &[4]), Err(CL_INVALID_OPERATION));
    assert_eq!(
        suggested(null_mut(), null_mut(), &[4]),
        Err(CL_INVALID_COMMAND_QUEUE)
    );
    assert_eq!(suggested(rich, null_mut(), &[4]), Err(CL_INVALID_KERNEL));
    assert_eq!(suggested(rich, kernel, &[]), Err(CL_INVALID_KERNEL_ARGS));
    set_local(kernel, 4);
    assert_eq!(suggested(rich, kernel, &[]), Err(CL_INVALID_WORK_DIMENSION));
    assert_eq!(
        suggested(rich, kernel, &[4; 4]),
        Err(CL_INVALID_WORK_DIMENSION)
    );
    assert_eq!(
        suggested(rich, kernel, &[4, 0]),
        Err(CL_INVALID_GLOBAL_WORK_SIZE)
    );
    let (global, most) = (4usize, usize::MAX);
    let ask = |offset, global| {
        let nowhere = null_mut();
        code!(clGetKernelSuggestedLocalWorkSize(
            rich, kernel, 1, offset, global, nowhere
        ))
    };
    assert_eq!(ask(null(), null()), CL_INVALID_GLOBAL_WORK_SIZE);
    assert_eq!(
        ask(&raw const most, &raw const global),
        CL_INVALID_GLOBAL_OFFSET
    );
    assert_eq!(ask(null(), &raw const global), CL_INVALID_VALUE);
    // A program that is built for the other device only.
    let mut text = SOURCE.as_ptr();
    let program = make!(clCreateProgramWithSource(
        stage.context,
        1,
        &raw mut text,
        null()
    ));
    let program = program.expect("a program");
    let other = devices(2)[1];
    let only = &raw const other;
    ok!(clBuildProgram(program, 1, only, null(), None, null_mut()));
    let unbuilt = make!(clCreateKernel(program, c"plain".as_ptr())).expect("a kernel");
    let buffer = (&raw const stage.buffer).cast();
    ok!(clSetKernelArg(unbuilt, 0, 8, buffer));
    set_local(unbuilt, 4);
    assert_eq!(
        suggested(rich, unbuilt, &[4]),
        Err(CL_INVALID_PROGRAM_EXECUTABLE)
    );
    ok!(clReleaseKernel(unbuilt));
    ok!(clReleaseProgram(program));
    let elsewhere = context_over(&devices(2)[..1]);
    let device = devices(2)[0];
    let foreign = queue(elsewhere, device);
    assert_eq!(suggested(foreign, kernel, &[4]), Err(CL_INVALID_CONTEXT));
    ok!(clReleaseCommandQueue(foreign));
    ok!(clReleaseContext(elsewhere));
    ok!(clReleaseKernel(kernel));
}
