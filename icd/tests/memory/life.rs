//! Tests the info and the lifetime of memory objects.

use std::ptr::{null, null_mut};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use crate::frames::opencl;
use crate::frames::opencl::*;

const PATIENCE: Duration = Duration::from_secs(60);

type Told = (usize, usize);

unsafe extern "C" fn tell(memory: cl_mem, user_data: *mut c_void) {
    // SAFETY: made by `on_destroyed`, for one call.
    let (sender, name) = unsafe { *Box::from_raw(user_data.cast::<(Sender<Told>, usize)>()) };
    let _ = sender.send((memory.addr(), name));
}

fn on_destroyed(memory: cl_mem, sender: &Sender<Told>, name: usize) {
    let data = Box::into_raw(Box::new((sender.clone(), name)));
    ok!(clSetMemObjectDestructorCallback(
        memory,
        Some(tell),
        data.cast()
    ));
}

fn next(told: &Receiver<Told>) -> Told {
    told.recv_timeout(PATIENCE).expect("a destructor callback")
}

#[test]
fn a_released_buffer_is_dead_to_the_application_while_a_command_uses_it() {
    let cl = Fixture::new();
    let buffer = cl.buffer(0, 64);
    let gate = cl.user_event();
    let mut host = [0u8; 64];
    let mut read = null_mut();
    ok!(clEnqueueReadBuffer(
        cl.queue,
        buffer,
        CL_FALSE,
        0,
        64,
        host.as_mut_ptr().cast(),
        1,
        &raw const gate,
        &raw mut read
    ));
    ok!(clReleaseMemObject(buffer));
    // SAFETY: a handle that was valid; the driver must recognise that it is no more.
    let again = unsafe { (opencl::cl().clRetainMemObject)(buffer) };
    assert_eq!(again, CL_INVALID_MEM_OBJECT);
    ok!(clSetUserEventStatus(gate, CL_COMPLETE));
    ok!(clWaitForEvents(1, &raw const read));
}

#[test]
fn destructor_callbacks_run_once_the_last_first_and_after_the_last_use() {
    let cl = Fixture::new();
    let (sender, told) = channel();
    let buffer = cl.buffer(0, 4096);
    let region = cl_buffer_region {
        origin: 0,
        size: 64,
    };
    let part = make!(clCreateSubBuffer(
        buffer,
        0,
        CL_BUFFER_CREATE_TYPE_REGION,
        (&raw const region).cast()
    ))
    .unwrap();
    for name in 0..3 {
        on_destroyed(buffer, &sender, name);
    }
    on_destroyed(part, &sender, 9);
    let gate = cl.user_event();
    let mut host = [0u8; 64];
    let mut read = null_mut();
    ok!(clEnqueueReadBuffer(
        cl.queue,
        part,
        CL_FALSE,
        0,
        64,
        host.as_mut_ptr().cast(),
        1,
        &raw const gate,
        &raw mut read
    ));
    ok!(clReleaseMemObject(buffer));
    ok!(clReleaseMemObject(part));
    // A command still uses the sub-buffer, which keeps its parent.
    assert!(told.try_recv().is_err());
    ok!(clSetUserEventStatus(gate, CL_COMPLETE));
    ok!(clWaitForEvents(1, &raw const read));
    assert_eq!(next(&told), (part.addr(), 9));
    for name in [2, 1, 0] {
        assert_eq!(next(&told), (buffer.addr(), name));
    }
    cl.finish();
    assert!(told.try_recv().is_err());
    for event in [gate, read] {
        ok!(clReleaseEvent(event));
    }
}

#[test]
fn counts_are_the_applications_own() {
    let cl = Fixture::new();
    let buffer = cl.buffer(0, 64);
    let count = || mem_info::<cl_uint>(buffer, CL_MEM_REFERENCE_COUNT);
    assert_eq!(count(), 1);
    ok!(clRetainMemObject(buffer));
    assert_eq!(count(), 2);
    let mut host = [0u8; 64];
    ok!(clEnqueueReadBuffer(
        cl.queue,
        buffer,
        CL_FALSE,
        0,
        64,
        host.as_mut_ptr().cast(),
        0,
        null(),
        null_mut()
    ));
    assert_eq!(count(), 2);
    cl.finish();
    ok!(clReleaseMemObject(buffer));
    assert_eq!(count(), 1);
    ok!(clReleaseMemObject(buffer));
}

#[test]
fn info_of_a_buffer_and_of_its_part() {
    let cl = Fixture::new();
    let mut host = vec![1u8; 8192];
    let at = host.as_mut_ptr().cast::<c_void>();
    let flags = CL_MEM_READ_ONLY | CL_MEM_USE_HOST_PTR;
    let buffer = make!(clCreateBuffer(cl.context, flags, 8192, at)).unwrap();
    let region = cl_buffer_region {
        origin: 4096,
        size: 100,
    };
    let part = make!(clCreateSubBuffer(
        buffer,
        0,
        CL_BUFFER_CREATE_TYPE_REGION,
        (&raw const region).cast()
    ))
    .unwrap();
    for (memory, size, offset, parent) in [(buffer, 8192, 0, null_mut()), (part, 100, 4096, buffer)]
    {
        assert_eq!(
            mem_info::<cl_mem_object_type>(memory, CL_MEM_TYPE),
            CL_MEM_OBJECT_BUFFER
        );
        assert_eq!(mem_info::<cl_mem_flags>(memory, CL_MEM_FLAGS), flags);
        assert_eq!(mem_info::<usize>(memory, CL_MEM_SIZE), size);
        assert_eq!(mem_info::<usize>(memory, CL_MEM_OFFSET), offset);
        assert_eq!(
            mem_info::<usize>(memory, CL_MEM_HOST_PTR),
            at.addr() + offset
        );
        assert_eq!(
            mem_info::<usize>(memory, CL_MEM_ASSOCIATED_MEMOBJECT),
            parent.addr()
        );
        assert_eq!(mem_info::<usize>(memory, CL_MEM_CONTEXT), cl.context.addr());
        assert_eq!(mem_info::<cl_uint>(memory, CL_MEM_MAP_COUNT), 0);
        assert_eq!(
            mem_info::<cl_bool>(memory, CL_MEM_USES_SVM_POINTER),
            CL_FALSE
        );
        let unknown = code!(clGetMemObjectInfo(
            memory,
            0x4242,
            0,
            null_mut(),
            null_mut()
        ));
        assert_eq!(unknown, CL_INVALID_VALUE);
        let image = code!(clGetImageInfo(
            memory,
            CL_IMAGE_WIDTH,
            0,
            null_mut(),
            null_mut()
        ));
        assert_eq!(image, CL_INVALID_MEM_OBJECT);
    }
    ok!(clReleaseMemObject(buffer));
    // The sub-buffer keeps its parent alive.
    assert_eq!(
        mem_info::<usize>(part, CL_MEM_ASSOCIATED_MEMOBJECT),
        buffer.addr()
    );
    ok!(clReleaseMemObject(part));
}

#[test]
fn only_use_host_ptr_has_a_host_pointer() {
    let cl = Fixture::new();
    let mut host = [1u8; 64];
    for flags in [0, CL_MEM_ALLOC_HOST_PTR, CL_MEM_COPY_HOST_PTR] {
        let given = if flags == CL_MEM_COPY_HOST_PTR {
            host.as_mut_ptr().cast()
        } else {
            null_mut()
        };
        let buffer = make!(clCreateBuffer(cl.context, flags, 64, given)).unwrap();
        assert_eq!(mem_info::<usize>(buffer, CL_MEM_HOST_PTR), 0);
        assert_eq!(mem_info::<cl_mem_flags>(buffer, CL_MEM_FLAGS), flags);
        ok!(clReleaseMemObject(buffer));
    }
}

#[test]
fn properties_are_echoed() {
    let cl = Fixture::new();
    let empty: [cl_mem_properties; 1] = [0];
    for (list, expected) in [(null(), 0), (empty.as_ptr(), 8)] {
        let buffer = make!(clCreateBufferWithProperties(
            cl.context,
            list,
            0,
            64,
            null_mut()
        ))
        .unwrap();
        let (mut value, mut size) = (7u64, 77);
        ok!(clGetMemObjectInfo(
            buffer,
            CL_MEM_PROPERTIES,
            8,
            (&raw mut value).cast(),
            &raw mut size
        ));
        assert_eq!((size, value), (expected, if expected == 0 { 7 } else { 0 }));
        ok!(clReleaseMemObject(buffer));
    }
}

#[test]
fn objects_released_in_any_order_leave_running_commands_alone() {
    let cl = Fixture::new();
    let queue = cl.another_queue(0);
    let buffer = cl.buffer_of(&pattern(1, 1000));
    let mut host = vec![0u8; 1000];
    let mut read = null_mut();
    ok!(clEnqueueReadBuffer(
        queue,
        buffer,
        CL_FALSE,
        0,
        1000,
        host.as_mut_ptr().cast(),
        0,
        null(),
        &raw mut read
    ));
    ok!(clReleaseMemObject(buffer));
    ok!(clReleaseCommandQueue(queue));
    ok!(clWaitForEvents(1, &raw const read));
    assert_eq!(host, pattern(1, 1000));
    ok!(clReleaseEvent(read));
}

#[test]
fn dead_handles_stay_readable_for_loaders_and_are_refused() {
    let cl = Fixture::new();
    let buffers: Vec<cl_mem> = (0..100).map(|_| cl.buffer(0, 64)).collect();
    for &buffer in &buffers {
        ok!(clReleaseMemObject(buffer));
    }
    for buffer in buffers {
        // SAFETY: what a loader does with any handle: its first word leads to the dispatch table.
        let dispatch = unsafe { buffer.cast::<*const Dispatch>().read() };
        assert_eq!(dispatch, std::ptr::from_ref(opencl::cl()));
        assert_eq!(code!(clRetainMemObject(buffer)), CL_INVALID_MEM_OBJECT);
    }
}
