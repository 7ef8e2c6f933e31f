//! Shared virtual memory for tests, on top of `opencl` and `programs`.

use std::ptr::{null, null_mut};

use crate::frames::opencl::*;

/// Kernels that follow, create and use pointers.
pub const SOURCE: &str = "\
struct node { global struct node *next; int value; };
kernel void sum(global struct node *first, global int *total) {
    *total = 0;
    for (global struct node *at = first; at; at = at->next) *total += at->value;
}
kernel void chain(global struct node *nodes, int count) {
    for (int i = 0; i < count; ++i) {
        nodes[i].next = i + 1 < count ? nodes + i + 1 : 0;
        nodes[i].value = 3 * i;
    }
}
kernel void put(global int *x, int value) { x[get_global_id(0)] = value; }
kernel void where_is(global ulong *x) { x[0] = (ulong)x; }
kernel void is_null(global int *x, global int *answer) { *answer = x == 0; }
";

/// The structure that the pointers point to.
#[repr(C)]
pub struct Node {
    pub next: *mut Node,
    pub value: i32,
}

/// Makes a coarse-grain allocation.
pub fn allocate(cl: &Fixture, size: usize) -> *mut u8 {
    let at = code!(clSVMAlloc(cl.context, CL_MEM_READ_WRITE, size, 0));
    assert!(!at.is_null());
    at.cast()
}

/// Frees an allocation at once.
pub fn free(cl: &Fixture, at: *mut u8) {
    code!(clSVMFree(cl.context, at.cast()));
}

/// Maps in a blocking call. Returns the code.
pub fn try_map(cl: &Fixture, flags: cl_map_flags, at: *mut u8, size: usize) -> cl_int {
    code!(clEnqueueSVMMap(
        cl.queue,
        CL_TRUE,
        flags,
        at.cast(),
        size,
        0,
        null(),
        null_mut()
    ))
}

/// Maps in a blocking call.
pub fn map(cl: &Fixture, flags: cl_map_flags, at: *mut u8, size: usize) -> &'static mut [u8] {
    assert_eq!(try_map(cl, flags, at, size), CL_SUCCESS);
    // SAFETY: mapped; the tests let go of it before they unmap.
    unsafe { std::slice::from_raw_parts_mut(at, size) }
}

/// Enqueues an unmap.
pub fn unmap(cl: &Fixture, at: *mut u8) {
    ok!(clEnqueueSVMUnmap(
        cl.queue,
        at.cast(),
        0,
        null(),
        null_mut()
    ));
}

/// Copies in a blocking call. Returns the code.
pub fn copy(cl: &Fixture, to: *mut u8, from: *const u8, size: usize) -> cl_int {
    code!(clEnqueueSVMMemcpy(
        cl.queue,
        CL_TRUE,
        to.cast(),
        from.cast(),
        size,
        0,
        null(),
        null_mut()
    ))
}

/// Copies into the program's own memory.
pub fn fetch(cl: &Fixture, at: *mut u8, size: usize) -> Vec<u8> {
    let mut bytes = vec![0xee; size];
    assert_eq!(copy(cl, bytes.as_mut_ptr(), at, size), CL_SUCCESS);
    bytes
}

/// Sets a kernel's argument. Returns the code.
pub fn set_pointer(kernel: cl_kernel, index: cl_uint, at: *const u8) -> cl_int {
    code!(clSetKernelArgSVMPointer(kernel, index, at.cast()))
}

/// Declares the memory that a kernel reaches by pointers in memory. Returns the code.
pub fn reaches(kernel: cl_kernel, pointers: &[*mut u8]) -> cl_int {
    code!(clSetKernelExecInfo(
        kernel,
        CL_KERNEL_EXEC_INFO_SVM_PTRS,
        size_of_val(pointers),
        pointers.as_ptr().cast()
    ))
}
