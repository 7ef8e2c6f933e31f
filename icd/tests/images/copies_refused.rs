//! Tests a driver that refuses copies between buffers and arrays of one-dimensional images, and takes a write's bytes
//! at the enqueue. The copies go through the node's memory, and are right.

use std::ptr::{null, null_mut};

use crate::frames::opencl;
use crate::frames::pictures::*;
use crate::frames::servers::*;

/// Commands behind a launch of `slow` are enqueued before they can run.
const SETTINGS: &str = "early_writes = true\nodd_layer_copies = true\nkernel.slow.ns = 50000000\n\
                        [[device]]\nimages = true";

fn slow_kernel(cl: &opencl::Fixture) -> cl_kernel {
    let source = c"kernel void slow(void) {}".as_ptr();
    let program = make!(clCreateProgramWithSource(
        cl.context,
        1,
        (&raw const source).cast_mut(),
        null()
    ));
    let program = program.expect("a program");
    let options = c"".as_ptr();
    ok!(clBuildProgram(
        program,
        0,
        null(),
        options,
        None,
        null_mut()
    ));
    let kernel = make!(clCreateKernel(program, c"slow".as_ptr())).expect("a kernel");
    ok!(clReleaseProgram(program));
    kernel
}

/// Launches on this queue. Returns the event.
fn launch(queue: cl_command_queue, kernel: cl_kernel) -> cl_event {
    let (one, mut event) = (1, null_mut());
    ok!(clEnqueueNDRangeKernel(
        queue,
        kernel,
        1,
        null(),
        &raw const one,
        null(),
        0,
        null(),
        &raw mut event
    ));
    event
}

#[test]
fn what_a_driver_refuses_goes_by_way_of_host_memory() {
    own_process!();
    let daemon = Daemon::start(SETTINGS);
    configure(&daemon.address.to_string());
    let device = eventually("the device", || devices().first().copied());
    let context = context(device).expect("a context");
    let queue = make!(clCreateCommandQueue(context, device, 0)).expect("a queue");
    let cl = opencl::Fixture {
        device,
        context,
        queue,
    };
    let kernel = slow_kernel(&cl);
    // A copy may wait for a command that is still in flight to another queue.
    let other = cl.another_queue(0);
    for (image_type, size, inner) in shapes() {
        let mut picture = Picture::new(cl.context, image_type, size, 1);
        let buffer = cl.buffer_of(&opencl::pattern(3, inner.length() + 100));
        let after = launch(other, kernel);
        ok!(clEnqueueCopyImageToBuffer(
            cl.queue,
            picture.memory,
            buffer,
            inner.origin.as_ptr(),
            inner.size.as_ptr(),
            64,
            1,
            &raw const after,
            null_mut()
        ));
        let copied = cl.read(buffer, 64, inner.length());
        assert!(copied == picture.expected(inner), "{size:?}");
        let untouched = cl.read(buffer, 0, 64);
        assert_eq!(untouched, opencl::pattern(3, 64));
        ok!(clReleaseEvent(after));

        let bytes = opencl::pattern(4, inner.length() + 100);
        cl.write(buffer, 0, &bytes);
        let after = launch(cl.queue, kernel);
        ok!(clEnqueueCopyBufferToImage(
            cl.queue,
            buffer,
            picture.memory,
            64,
            inner.origin.as_ptr(),
            inner.size.as_ptr(),
            0,
            null(),
            null_mut()
        ));
        picture.note(inner, &bytes[64..][..inner.length()]);
        picture.check(cl.queue);
        ok!(clReleaseEvent(after));
        ok!(clReleaseMemObject(buffer));
        picture.release();
    }
    ok!(clReleaseKernel(kernel));
    ok!(clReleaseCommandQueue(other));
}
