//! Programs and kernels for tests, on top of `opencl`.

use std::ffi::CString;
use std::ptr::{null, null_mut};

use crate::frames::opencl::*;

/// Makes a program from one text.
pub fn program(cl: &Fixture, source: &str) -> cl_program {
    program_in(cl.context, source)
}

/// Makes a program from one text in any context.
pub fn program_in(context: cl_context, source: &str) -> cl_program {
    let mut text = source.as_ptr().cast();
    let length = source.len();
    make!(clCreateProgramWithSource(
        context,
        1,
        &raw mut text,
        &raw const length
    ))
    .expect("a program")
}

/// Builds for all devices and waits. Returns the code.
pub fn build(program: cl_program, options: &str) -> cl_int {
    build_for(program, &[], options)
}

/// Builds for some devices and waits. Returns the code.
pub fn build_for(program: cl_program, devices: &[cl_device_id], options: &str) -> cl_int {
    let options = CString::new(options).unwrap();
    let (count, list) = match devices {
        [] => (0, null()),
        some => (some.len() as cl_uint, some.as_ptr()),
    };
    code!(clBuildProgram(
        program,
        count,
        list,
        options.as_ptr(),
        None,
        null_mut()
    ))
}

/// Makes and builds a program.
pub fn built(cl: &Fixture, source: &str, options: &str) -> cl_program {
    let program = program(cl, source);
    let code = build(program, options);
    assert_eq!(code, CL_SUCCESS, "{}", log_of(cl, program));
    program
}

/// A kernel of a built program.
pub fn kernel(program: cl_program, name: &str) -> cl_kernel {
    try_kernel(program, name).expect("a kernel")
}

pub fn try_kernel(program: cl_program, name: &str) -> Result<cl_kernel, cl_int> {
    let name = CString::new(name).unwrap();
    make!(clCreateKernel(program, name.as_ptr()))
}

/// Sets an argument from its bytes. Returns the code.
pub fn set<T: Copy>(kernel: cl_kernel, index: cl_uint, value: &T) -> cl_int {
    let from = (&raw const *value).cast();
    code!(clSetKernelArg(kernel, index, size_of::<T>(), from))
}

/// Launches over one dimension. Returns the code.
pub fn launch(queue: cl_command_queue, kernel: cl_kernel, global: usize) -> cl_int {
    launch_after(queue, kernel, global, &[])
}

/// Launches over one dimension behind events. Returns the code.
pub fn launch_after(
    queue: cl_command_queue,
    kernel: cl_kernel,
    global: usize,
    wait: &[cl_event],
) -> cl_int {
    let list = if wait.is_empty() {
        null()
    } else {
        wait.as_ptr()
    };
    code!(clEnqueueNDRangeKernel(
        queue,
        kernel,
        1,
        null(),
        &raw const global,
        null(),
        wait.len() as cl_uint,
        list,
        null_mut()
    ))
}

/// A text answer of `clGetProgramBuildInfo`.
pub fn build_text(cl: &Fixture, program: cl_program, name: cl_program_build_info) -> String {
    let mut size = 0;
    ok!(clGetProgramBuildInfo(
        program,
        cl.device,
        name,
        0,
        null_mut(),
        &raw mut size
    ));
    let mut bytes = vec![0u8; size];
    ok!(clGetProgramBuildInfo(
        program,
        cl.device,
        name,
        size,
        bytes.as_mut_ptr().cast(),
        null_mut()
    ));
    assert_eq!(bytes.pop(), Some(0), "a string ends with a NUL");
    String::from_utf8(bytes).unwrap()
}

pub fn log_of(cl: &Fixture, program: cl_program) -> String {
    build_text(cl, program, CL_PROGRAM_BUILD_LOG)
}

/// A number of `clGetProgramBuildInfo`.
pub fn build_number(cl: &Fixture, program: cl_program, name: cl_program_build_info) -> i32 {
    let mut value = 77;
    ok!(clGetProgramBuildInfo(
        program,
        cl.device,
        name,
        4,
        (&raw mut value).cast(),
        null_mut()
    ));
    value
}

pub fn status_of_build(cl: &Fixture, program: cl_program) -> i32 {
    build_number(cl, program, CL_PROGRAM_BUILD_STATUS)
}

/// A number of `clGetProgramInfo`.
pub fn program_number(program: cl_program, name: cl_program_info) -> Result<usize, cl_int> {
    let (mut value, mut size) = (0usize, 0);
    let to = (&raw mut value).cast();
    match code!(clGetProgramInfo(program, name, 8, to, &raw mut size)) {
        CL_SUCCESS => Ok(value),
        code => Err(code),
    }
}

/// The integers in a buffer.
pub fn ints(cl: &Fixture, buffer: cl_mem, count: usize) -> Vec<i32> {
    let bytes = cl.read(buffer, 0, 4 * count);
    let ints = bytes.chunks_exact(4);
    ints.map(|int| i32::from_ne_bytes(int.try_into().unwrap()))
        .collect()
}
