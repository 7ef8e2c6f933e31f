//! Tests images and samplers in kernels: access, given and literal samplers, allowed arguments.

use std::ptr::{null, null_mut};

use crate::frames::opencl::*;
use crate::frames::pictures::*;
use crate::frames::programs::*;

const SOURCE: &str = "\
constant sampler_t exact = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP_TO_EDGE | CLK_FILTER_NEAREST;
kernel void invert(read_only image2d_t from, write_only image2d_t to) {
    int2 at = (int2)(get_global_id(0), get_global_id(1));
    write_imageui(to, at, 255u - read_imageui(from, exact, at));
}
kernel void sampled(read_only image2d_t from, sampler_t how, global uint4 *out, float x) {
    out[0] = read_imageui(from, how, (float2)(x, 0.0f));
}
kernel void solid(read_only image3d_t from, global uint4 *out) {
    out[0] = read_imageui(from, exact, (int4)(1, 1, 1, 0));
}
kernel void plain(global uint *x) { x[0] = 1; }
";

fn over(queue: cl_command_queue, kernel: cl_kernel, size: [usize; 2]) {
    ok!(clEnqueueNDRangeKernel(
        queue,
        kernel,
        2,
        null(),
        size.as_ptr(),
        null(),
        0,
        null(),
        null_mut()
    ));
}

#[test]
fn a_kernel_reads_one_image_and_writes_another() {
    let cl = Fixture::new();
    let program = built(&cl, SOURCE, "");
    let kernel = kernel(program, "invert");
    let size = [64, 48, 1];
    let from = Picture::new(cl.context, CL_MEM_OBJECT_IMAGE2D, size, 1);
    let mut to = Picture::new(cl.context, CL_MEM_OBJECT_IMAGE2D, size, 2);
    assert_eq!(set(kernel, 0, &from.memory), CL_SUCCESS);
    assert_eq!(set(kernel, 1, &to.memory), CL_SUCCESS);
    over(cl.queue, kernel, [64, 48]);
    to.bytes = from.bytes.iter().map(|byte| 255 - byte).collect();
    to.check(cl.queue);
    from.check(cl.queue);
    from.release();
    to.release();
    ok!(clReleaseKernel(kernel));
    ok!(clReleaseProgram(program));
}

#[test]
fn a_sampler_decides_what_is_outside() {
    let cl = Fixture::new();
    let program = built(&cl, SOURCE, "");
    let kernel = kernel(program, "sampled");
    let picture = Picture::new(cl.context, CL_MEM_OBJECT_IMAGE2D, [4, 1, 1], 1);
    let out = cl.buffer(0, 16);
    let last: Vec<u32> = picture.bytes[12..]
        .iter()
        .map(|byte| u32::from(*byte))
        .collect();
    assert_eq!(set(kernel, 0, &picture.memory), CL_SUCCESS);
    assert_eq!(set(kernel, 2, &out), CL_SUCCESS);
    assert_eq!(set(kernel, 3, &9.5f32), CL_SUCCESS);
    for (mode, expected) in [
        (CL_ADDRESS_CLAMP_TO_EDGE, &last[..]),
        (CL_ADDRESS_CLAMP, &[0; 4]),
    ] {
        let sampler = make!(clCreateSampler(
            cl.context,
            CL_FALSE,
            mode,
            CL_FILTER_NEAREST
        ));
        let sampler = sampler.expect("a sampler");
        assert_eq!(set(kernel, 1, &sampler), CL_SUCCESS);
        assert_eq!(launch(cl.queue, kernel, 1), CL_SUCCESS);
        // The sampler may be released while the launch needs it.
        ok!(clReleaseSampler(sampler));
        assert_eq!(code!(clRetainSampler(sampler)), CL_INVALID_SAMPLER);
        let got = cl.read(out, 0, 16);
        let got: Vec<u32> = got
            .chunks(4)
            .map(|word| u32::from_ne_bytes(word.try_into().unwrap()))
            .collect();
        assert_eq!(got, expected);
    }
    picture.release();
    ok!(clReleaseMemObject(out));
    ok!(clReleaseKernel(kernel));
    ok!(clReleaseProgram(program));
}

#[test]
fn an_argument_takes_images_of_its_type_and_access_alone() {
    let cl = Fixture::new();
    let program = built(&cl, SOURCE, "");
    let (invert, sampled, solid, plain) = (
        kernel(program, "invert"),
        kernel(program, "sampled"),
        kernel(program, "solid"),
        kernel(program, "plain"),
    );
    let flat = desc(CL_MEM_OBJECT_IMAGE2D, [8, 8, 1]);
    let made = |flags| create(cl.context, flags, &flat, null_mut()).expect("an image");
    let (both, read, written) = (
        made(CL_MEM_READ_WRITE),
        made(CL_MEM_READ_ONLY),
        made(CL_MEM_WRITE_ONLY),
    );
    let buffer = cl.buffer(0, 64);
    let null: cl_mem = null_mut();
    for (kernel, index, value, code) in [
        (invert, 0, both, CL_SUCCESS),
        (invert, 0, read, CL_SUCCESS),
        (invert, 0, written, CL_INVALID_ARG_VALUE),
        (invert, 1, written, CL_SUCCESS),
        (invert, 1, read, CL_INVALID_ARG_VALUE),
        (invert, 0, buffer, CL_INVALID_MEM_OBJECT),
        (invert, 0, null, CL_INVALID_MEM_OBJECT),
        (solid, 0, both, CL_INVALID_MEM_OBJECT),
        (plain, 0, both, CL_INVALID_MEM_OBJECT),
        (sampled, 1, both, CL_INVALID_SAMPLER),
    ] {
        assert_eq!(set(kernel, index, &value), code);
    }
    assert_eq!(set(invert, 0, &1u32), CL_INVALID_ARG_SIZE);
    assert_eq!(set(sampled, 1, &1u32), CL_INVALID_ARG_SIZE);
    assert_eq!(
        code!(clSetKernelArg(invert, 0, 8, null.cast())),
        CL_INVALID_ARG_VALUE
    );
    assert_eq!(
        code!(clSetKernelArg(sampled, 1, 8, null.cast())),
        CL_INVALID_SAMPLER
    );
    for memory in [both, read, written, buffer] {
        ok!(clReleaseMemObject(memory));
    }
    for kernel in [invert, sampled, solid, plain] {
        ok!(clReleaseKernel(kernel));
    }
    ok!(clReleaseProgram(program));
}
