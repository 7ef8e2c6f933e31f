//! Tests a sub-device of one node in a context with a device of another node.

use std::ptr::{null, null_mut};

use crate::frames::nodes::*;
use crate::frames::opencl::*;

const SIZE: usize = 1 << 16;

/// Returns the first sub-device with one compute unit.
fn part_of(root: cl_device_id) -> cl_device_id {
    let way = [CL_DEVICE_PARTITION_EQUALLY, 1, 0];
    let mut count = 0;
    ok!(clCreateSubDevices(
        root,
        way.as_ptr(),
        0,
        null_mut(),
        &raw mut count
    ));
    let mut parts = vec![null_mut(); count as usize];
    ok!(clCreateSubDevices(
        root,
        way.as_ptr(),
        count,
        parts.as_mut_ptr(),
        null_mut()
    ));
    for &other in &parts[1..] {
        ok!(clReleaseDevice(other));
    }
    parts[0]
}

#[test]
fn a_part_shares_buffers_with_another_nodes_device() {
    own_process!();
    start(&[Drivers::System, Drivers::Fake("")]);
    let devices = devices(2);
    let part = part_of(devices[0]);
    let context = context_over(&[part, devices[1]]);
    ok!(clReleaseDevice(part));
    let queues = [part, devices[1]]
        .map(|device| make!(clCreateCommandQueue(context, device, 0)).expect("a queue"));
    let buffer = make!(clCreateBuffer(context, 0, SIZE, null_mut())).expect("a buffer");
    for (turn, writer) in [(1u8, 0), (2, 1)] {
        let pattern = [turn; 4];
        ok!(clEnqueueFillBuffer(
            queues[writer],
            buffer,
            pattern.as_ptr().cast(),
            pattern.len(),
            0,
            SIZE,
            0,
            null(),
            null_mut()
        ));
        ok!(clFinish(queues[writer]));
        let mut seen = vec![0u8; SIZE];
        ok!(clEnqueueReadBuffer(
            queues[1 - writer],
            buffer,
            CL_TRUE,
            0,
            SIZE,
            seen.as_mut_ptr().cast(),
            0,
            null(),
            null_mut()
        ));
        assert!(seen.iter().all(|&byte| byte == turn));
    }
    ok!(clReleaseMemObject(buffer));
    for queue in queues {
        ok!(clReleaseCommandQueue(queue));
    }
    ok!(clReleaseContext(context));
}
