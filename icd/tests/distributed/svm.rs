//! Tests that SVM exists in contexts of one node with a suitable driver. Elsewhere it is absent, as OpenCL 3.0
//! defines. A node's own context has SVM beside a context of several nodes.

use std::ptr::{null, null_mut};

use crate::frames::nodes::{Drivers, context_over, devices, start};
use crate::frames::opencl::*;
use crate::frames::programs;

const NODES: [Drivers; 3] = [
    Drivers::System,
    Drivers::System,
    Drivers::Fake("[[device]]\nname = \"Poor\""),
];

fn has_svm(device: cl_device_id) -> bool {
    let mut capabilities: cl_device_svm_capabilities = 77;
    ok!(clGetDeviceInfo(
        device,
        CL_DEVICE_SVM_CAPABILITIES,
        8,
        (&raw mut capabilities).cast(),
        null_mut()
    ));
    capabilities == CL_DEVICE_SVM_COARSE_GRAIN_BUFFER
}

fn allocate(context: cl_context) -> *mut c_void {
    code!(clSVMAlloc(context, CL_MEM_READ_WRITE, 64, 0))
}

fn map(queue: cl_command_queue, at: *mut c_void) -> cl_int {
    code!(clEnqueueSVMMap(
        queue,
        CL_TRUE,
        CL_MAP_READ,
        at,
        64,
        0,
        null(),
        null_mut()
    ))
}

/// Checks that every call answers as without the feature.
fn is_absent(fixture: &Fixture, stranger: *mut c_void) {
    let queue = fixture.queue;
    assert!(allocate(fixture.context).is_null());
    code!(clSVMFree(fixture.context, stranger));
    let mut list = [stranger];
    let mut source = [stranger.cast_const()];
    let program = programs::built(fixture, "kernel void put(global int *x) { *x = 1; }", "");
    let kernel = programs::kernel(program, "put");
    let answers = [
        map(queue, stranger),
        code!(clEnqueueSVMUnmap(queue, stranger, 0, null(), null_mut())),
        code!(clEnqueueSVMMemcpy(
            queue,
            CL_TRUE,
            stranger,
            source[0].wrapping_byte_add(32),
            8,
            0,
            null(),
            null_mut()
        )),
        code!(clEnqueueSVMMemFill(
            queue,
            stranger,
            source[0],
            4,
            8,
            0,
            null(),
            null_mut()
        )),
        code!(clEnqueueSVMMigrateMem(
            queue,
            1,
            source.as_mut_ptr(),
            null(),
            0,
            0,
            null(),
            null_mut()
        )),
        code!(clEnqueueSVMFree(
            queue,
            1,
            list.as_mut_ptr(),
            None,
            null_mut(),
            0,
            null(),
            null_mut()
        )),
        code!(clSetKernelArgSVMPointer(kernel, 0, stranger)),
        code!(clSetKernelExecInfo(
            kernel,
            CL_KERNEL_EXEC_INFO_SVM_PTRS,
            8,
            list.as_ptr().cast()
        )),
    ];
    assert_eq!(answers, [CL_INVALID_OPERATION; 8]);
    ok!(clReleaseKernel(kernel));
    ok!(clReleaseProgram(program));
}

fn fixture(devices: &[cl_device_id]) -> Fixture {
    let context = context_over(devices);
    let device = devices[0];
    let queue = make!(clCreateCommandQueue(context, device, 0)).unwrap();
    Fixture {
        device,
        context,
        queue,
    }
}

#[test]
fn contexts_of_several_nodes_and_poor_devices_have_none() {
    own_process!();
    start(&NODES);
    let devices = devices(3);
    let (rich, poor): (Vec<_>, Vec<_>) = devices.iter().partition(|device| has_svm(**device));
    assert_eq!((rich.len(), poor.len()), (2, 1));
    // Each node's own context has SVM, at the same time.
    let alone = rich.iter().map(|device| fixture(&[*device]));
    let alone: Vec<_> = alone.collect();
    let memory: Vec<_> = alone.iter().map(|of| allocate(of.context)).collect();
    for (of, at) in alone.iter().zip(&memory) {
        assert!(!at.is_null());
        assert_eq!(map(of.queue, *at), CL_SUCCESS);
        ok!(clEnqueueSVMUnmap(of.queue, *at, 0, null(), null_mut()));
    }
    // One context's memory is invalid in another.
    assert_eq!(map(alone[0].queue, memory[1]), CL_INVALID_VALUE);
    code!(clSVMFree(alone[0].context, memory[1]));
    assert_eq!(map(alone[1].queue, memory[1]), CL_SUCCESS);
    for together in [&rich[..], &poor[..], &[rich[0], poor[0]]] {
        is_absent(&fixture(together), memory[0]);
    }
    for (of, at) in alone.iter().zip(&memory) {
        ok!(clFinish(of.queue));
        code!(clSVMFree(of.context, *at));
    }
}
