//! Tests that command buffers work with memory of every kind: rectangles, images, shared virtual memory.

use std::ptr::{null, null_mut};

use crate::frames::opencl::*;
use crate::frames::pictures::*;
use crate::frames::programs::*;
use crate::frames::recorded::*;

const SOURCE: &str = "\
struct node { global struct node *next; int value; };
kernel void grow(global struct node *first) {
    for (global struct node *at = first; at; at = at->next) at->value += 1;
}
";

#[test]
fn rectangles_and_images_are_copied_and_filled() {
    let cl = Fixture::new();
    let size = [8, 4, 1];
    let (first, second) = (
        Picture::new(cl.context, CL_MEM_OBJECT_IMAGE2D, size, 1),
        Picture::new(cl.context, CL_MEM_OBJECT_IMAGE2D, size, 2),
    );
    let contents = pattern(3, 8 * 4 * ELEMENT);
    let (from, to) = (cl.buffer_of(&contents), cl.buffer_of(&[0; 8 * 4 * ELEMENT]));
    let recorded = Recorded::new(cl.queue);
    let (zero, whole) = ([0usize; 3], size);
    let raw = recorded.raw;
    let code = call!(to_image(
        raw,
        null_mut(),
        null(),
        from,
        first.memory,
        0,
        zero.as_ptr(),
        whole.as_ptr(),
        0,
        null(),
        null_mut(),
        null_mut()
    ));
    assert_eq!(code, CL_SUCCESS);
    let code = call!(copy_image(
        raw,
        null_mut(),
        null(),
        first.memory,
        second.memory,
        zero.as_ptr(),
        zero.as_ptr(),
        whole.as_ptr(),
        0,
        null(),
        null_mut(),
        null_mut()
    ));
    assert_eq!(code, CL_SUCCESS);
    let (colour, corner) = ([9u32; 4], [2usize, 1, 1]);
    let code = call!(fill_image(
        raw,
        null_mut(),
        null(),
        second.memory,
        colour.as_ptr().cast(),
        zero.as_ptr(),
        corner.as_ptr(),
        0,
        null(),
        null_mut(),
        null_mut()
    ));
    assert_eq!(code, CL_SUCCESS);
    let code = call!(from_image(
        raw,
        null_mut(),
        null(),
        second.memory,
        to,
        zero.as_ptr(),
        whole.as_ptr(),
        0,
        0,
        null(),
        null_mut(),
        null_mut()
    ));
    assert_eq!(code, CL_SUCCESS);
    // Copies the second half of the first row to the beginning of the third.
    let (source, target, bytes) = ([16usize, 0, 0], [0usize, 2, 0], [16usize, 1, 1]);
    let code = call!(copy_rect(
        raw,
        null_mut(),
        null(),
        to,
        to,
        source.as_ptr(),
        target.as_ptr(),
        bytes.as_ptr(),
        32,
        0,
        32,
        0,
        0,
        null(),
        null_mut(),
        null_mut()
    ));
    assert_eq!(code, CL_SUCCESS);
    assert_eq!(recorded.finalize(), CL_SUCCESS);
    let mut expected = contents;
    expected[..2 * ELEMENT].fill(9);
    expected.copy_within(16..32, 64);
    for _ in 0..2 {
        cl.write(to, 0, &[0; 8 * 4 * ELEMENT]);
        recorded.replay();
        assert!(cl.read(to, 0, 8 * 4 * ELEMENT) == expected);
    }
    drop(recorded);
    ok!(clReleaseMemObject(from));
    ok!(clReleaseMemObject(to));
    first.release();
    second.release();
}

#[repr(C)]
struct Node {
    next: *mut Node,
    value: i32,
}

fn record_shared(raw: cl_command_buffer_khr, to: *mut Node, from: *const c_void) -> cl_int {
    let (size, none) = (size_of::<Node>(), null_mut());
    call!(svm_copy(
        raw,
        null_mut(),
        null(),
        to.cast(),
        from,
        size,
        0,
        null(),
        null_mut(),
        none
    ))
}

#[test]
fn shared_virtual_memory_is_copied_filled_and_reached() {
    let cl = Fixture::new();
    let program = built(&cl, SOURCE, "");
    let grow = kernel(program, "grow");
    let size = size_of::<Node>();
    let [first, second, third] = [0; 3].map(|_: i32| {
        let at = code!(clSVMAlloc(cl.context, CL_MEM_READ_WRITE, size, 0));
        assert!(!at.is_null());
        at.cast::<Node>()
    });
    let map = |at: *mut Node, flags| {
        let to = at.cast();
        ok!(clEnqueueSVMMap(
            cl.queue,
            CL_TRUE,
            flags,
            to,
            size,
            0,
            null(),
            null_mut()
        ));
    };
    let unmap = |at: *mut Node| {
        ok!(clEnqueueSVMUnmap(
            cl.queue,
            at.cast(),
            0,
            null(),
            null_mut()
        ));
    };
    for (at, next, value) in [(first, second, 10), (second, null_mut(), 20)] {
        map(at, CL_MAP_WRITE);
        // SAFETY: mapped.
        unsafe { at.write(Node { next, value }) };
        unmap(at);
    }
    let recorded = Recorded::new(cl.queue);
    let raw = recorded.raw;
    ok!(clSetKernelArgSVMPointer(grow, 0, first.cast()));
    let reached: [*mut c_void; 1] = [second.cast()];
    ok!(clSetKernelExecInfo(
        grow,
        CL_KERNEL_EXEC_INFO_SVM_PTRS,
        size_of_val(&reached),
        reached.as_ptr().cast()
    ));
    recorded.launch(grow, 1, &[]).unwrap();
    assert_eq!(record_shared(raw, third, second.cast()), CL_SUCCESS);
    // A command buffer cannot read the application's own memory at each replay.
    let own = Node {
        next: null_mut(),
        value: 0,
    };
    let own = (&raw const own).cast();
    assert_eq!(record_shared(raw, third, own), CL_INVALID_OPERATION);
    assert_eq!(recorded.finalize(), CL_SUCCESS);
    for _ in 0..2 {
        recorded.replay();
    }
    for (at, value) in [(first, 12), (second, 22), (third, 22)] {
        map(at, CL_MAP_READ);
        // SAFETY: mapped, and written before.
        assert_eq!(unsafe { (*at).value }, value);
        unmap(at);
    }
    let filled = Recorded::new(cl.queue);
    let pattern = 7u8;
    let code = call!(svm_fill(
        filled.raw,
        null_mut(),
        null(),
        third.cast(),
        (&raw const pattern).cast(),
        1,
        size,
        0,
        null(),
        null_mut(),
        null_mut()
    ));
    assert_eq!(code, CL_SUCCESS);
    assert_eq!(filled.finalize(), CL_SUCCESS);
    filled.replay();
    map(third, CL_MAP_READ);
    // SAFETY: mapped, and written before.
    assert_eq!(unsafe { (*third).value }, 0x0707_0707);
    unmap(third);
    cl.finish();
    drop((recorded, filled));
    for at in [first, second, third] {
        code!(clSVMFree(cl.context, at.cast()));
    }
    ok!(clReleaseKernel(grow));
    ok!(clReleaseProgram(program));
}
