//! Tests that each wrong argument of a memory call has its code, and that checks have an order: handles, same
//! context, state of the objects, values, wait list, access flags.

use std::ptr::{null, null_mut};

use crate::frames::opencl::*;

fn create(cl: &Fixture, flags: cl_mem_flags, size: usize, host: *mut c_void) -> cl_int {
    make!(clCreateBuffer(cl.context, flags, size, host)).expect_err("refused")
}

#[test]
fn creation() {
    let cl = Fixture::new();
    let mut bytes = [0u8; 16];
    let host: *mut c_void = bytes.as_mut_ptr().cast();
    let none = null_mut();
    assert_eq!(
        make!(clCreateBuffer(null_mut(), 0, 16, none)),
        Err(CL_INVALID_CONTEXT)
    );
    assert_eq!(
        make!(clCreateBuffer(cl.queue.cast(), 0, 16, none)),
        Err(CL_INVALID_CONTEXT)
    );
    assert_eq!(
        create(&cl, CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY, 16, none),
        CL_INVALID_VALUE
    );
    assert_eq!(
        create(&cl, CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR, 16, host),
        CL_INVALID_VALUE
    );
    assert_eq!(
        create(&cl, CL_MEM_HOST_NO_ACCESS | CL_MEM_HOST_READ_ONLY, 16, none),
        CL_INVALID_VALUE
    );
    assert_eq!(create(&cl, 1 << 50, 16, none), CL_INVALID_VALUE);
    assert_eq!(create(&cl, 0, 0, none), CL_INVALID_BUFFER_SIZE);
    let mut largest = 0u64;
    ok!(clGetDeviceInfo(
        cl.device,
        CL_DEVICE_MAX_MEM_ALLOC_SIZE,
        8,
        (&raw mut largest).cast(),
        null_mut()
    ));
    assert_eq!(
        create(&cl, 0, largest as usize + 1, none),
        CL_INVALID_BUFFER_SIZE
    );
    for flags in [CL_MEM_USE_HOST_PTR, CL_MEM_COPY_HOST_PTR] {
        assert_eq!(create(&cl, flags, 16, none), CL_INVALID_HOST_PTR);
    }
    for flags in [0, CL_MEM_ALLOC_HOST_PTR] {
        assert_eq!(create(&cl, flags, 16, host), CL_INVALID_HOST_PTR);
    }
    let unknown: [cl_mem_properties; 3] = [0x9999, 1, 0];
    let refused = make!(clCreateBufferWithProperties(
        cl.context,
        unknown.as_ptr(),
        0,
        16,
        none
    ));
    assert_eq!(refused, Err(CL_INVALID_PROPERTY));
}

#[test]
fn sub_buffers() {
    let cl = Fixture::new();
    let parent = cl.buffer(CL_MEM_READ_ONLY | CL_MEM_HOST_WRITE_ONLY, 8192);
    let part = |of: cl_mem,
                flags: cl_mem_flags,
                create: cl_buffer_create_type,
                origin: usize,
                size: usize| {
        let region = cl_buffer_region { origin, size };
        make!(clCreateSubBuffer(
            of,
            flags,
            create,
            (&raw const region).cast()
        ))
    };
    let region = CL_BUFFER_CREATE_TYPE_REGION;
    assert_eq!(
        part(null_mut(), 0, region, 0, 16),
        Err(CL_INVALID_MEM_OBJECT)
    );
    assert_eq!(
        part(parent, CL_MEM_READ_WRITE, region, 0, 16),
        Err(CL_INVALID_VALUE)
    );
    assert_eq!(
        part(parent, CL_MEM_HOST_READ_ONLY, region, 0, 16),
        Err(CL_INVALID_VALUE)
    );
    assert_eq!(
        part(parent, CL_MEM_ALLOC_HOST_PTR, region, 0, 16),
        Err(CL_INVALID_VALUE)
    );
    assert_eq!(part(parent, 0, region + 1, 0, 16), Err(CL_INVALID_VALUE));
    assert_eq!(
        make!(clCreateSubBuffer(parent, 0, region, null())),
        Err(CL_INVALID_VALUE)
    );
    assert_eq!(part(parent, 0, region, 8000, 193), Err(CL_INVALID_VALUE));
    assert_eq!(
        part(parent, 0, region, usize::MAX, 2),
        Err(CL_INVALID_VALUE)
    );
    assert_eq!(part(parent, 0, region, 0, 0), Err(CL_INVALID_BUFFER_SIZE));
    assert_eq!(
        part(parent, 0, region, 1, 16),
        Err(CL_MISALIGNED_SUB_BUFFER_OFFSET)
    );
    let good = part(parent, 0, region, 4096, 4096).unwrap();
    assert_eq!(part(good, 0, region, 0, 16), Err(CL_INVALID_MEM_OBJECT));
    let flags: cl_mem_flags = mem_info(good, CL_MEM_FLAGS);
    assert_eq!(flags, CL_MEM_READ_ONLY | CL_MEM_HOST_WRITE_ONLY);
    ok!(clReleaseMemObject(good));
    ok!(clReleaseMemObject(parent));
}

#[test]
fn reads_and_writes() {
    let cl = Fixture::new();
    let stranger = Fixture::new();
    let buffer = cl.buffer(0, 64);
    let theirs = stranger.buffer(0, 64);
    let mut bytes = [0u8; 64];
    let host: *mut c_void = bytes.as_mut_ptr().cast();
    let (q, none) = (cl.queue, null_mut());
    let their_event = stranger.user_event();
    let read = |queue, buffer, offset, size, host, count, wait| {
        let read = code!(clEnqueueReadBuffer(
            queue, buffer, CL_TRUE, offset, size, host, count, wait, none
        ));
        let written = code!(clEnqueueWriteBuffer(
            queue, buffer, CL_TRUE, offset, size, host, count, wait, none
        ));
        assert_eq!(read, written);
        read
    };
    assert_eq!(
        read(null_mut(), buffer, 0, 64, host, 0, null()),
        CL_INVALID_COMMAND_QUEUE
    );
    assert_eq!(
        read(q, null_mut(), 0, 64, host, 0, null()),
        CL_INVALID_MEM_OBJECT
    );
    assert_eq!(
        read(q, q.cast(), 0, 64, host, 0, null()),
        CL_INVALID_MEM_OBJECT
    );
    assert_eq!(read(q, theirs, 0, 64, host, 0, null()), CL_INVALID_CONTEXT);
    assert_eq!(read(q, buffer, 1, 64, host, 0, null()), CL_INVALID_VALUE);
    assert_eq!(
        read(q, buffer, usize::MAX, 2, host, 0, null()),
        CL_INVALID_VALUE
    );
    assert_eq!(
        read(q, buffer, 0, 64, null_mut(), 0, null()),
        CL_INVALID_VALUE
    );
    assert_eq!(
        read(q, buffer, 0, 64, host, 1, null()),
        CL_INVALID_EVENT_WAIT_LIST
    );
    assert_eq!(
        read(q, buffer, 0, 64, host, 0, &raw const their_event),
        CL_INVALID_EVENT_WAIT_LIST
    );
    let nothing: cl_event = null_mut();
    assert_eq!(
        read(q, buffer, 0, 64, host, 1, &raw const nothing),
        CL_INVALID_EVENT_WAIT_LIST
    );
    assert_eq!(
        read(q, buffer, 0, 64, host, 1, &raw const their_event),
        CL_INVALID_CONTEXT
    );
    // Of two faults, the one that is checked first is reported.
    assert_eq!(
        read(q, theirs, 1, 64, null_mut(), 1, null()),
        CL_INVALID_CONTEXT
    );
    assert_eq!(read(q, buffer, 1, 64, host, 1, null()), CL_INVALID_VALUE);
    ok!(clReleaseEvent(their_event));
    ok!(clReleaseMemObject(buffer));
    ok!(clReleaseMemObject(theirs));
}

#[test]
fn access_flags_come_last() {
    let cl = Fixture::new();
    let mut bytes = [0u8; 64];
    let host: *mut c_void = bytes.as_mut_ptr().cast();
    let (q, none) = (cl.queue, null_mut());
    let cases = [
        (CL_MEM_HOST_WRITE_ONLY, CL_INVALID_OPERATION, CL_SUCCESS),
        (CL_MEM_HOST_READ_ONLY, CL_SUCCESS, CL_INVALID_OPERATION),
        (
            CL_MEM_HOST_NO_ACCESS,
            CL_INVALID_OPERATION,
            CL_INVALID_OPERATION,
        ),
        // These flags restrict kernels only.
        (CL_MEM_READ_ONLY, CL_SUCCESS, CL_SUCCESS),
        (CL_MEM_WRITE_ONLY, CL_SUCCESS, CL_SUCCESS),
    ];
    for (flags, reading, writing) in cases {
        let buffer = cl.buffer(flags, 64);
        assert_eq!(
            code!(clEnqueueReadBuffer(
                q,
                buffer,
                CL_TRUE,
                0,
                64,
                host,
                0,
                null(),
                none
            )),
            reading
        );
        assert_eq!(
            code!(clEnqueueWriteBuffer(
                q,
                buffer,
                CL_TRUE,
                0,
                64,
                host,
                0,
                null(),
                none
            )),
            writing
        );
        for (map, expected) in [
            (CL_MAP_READ, reading),
            (CL_MAP_WRITE, writing),
            (CL_MAP_WRITE_INVALIDATE_REGION, writing),
        ] {
            match make!(clEnqueueMapBuffer(
                q,
                buffer,
                CL_TRUE,
                map,
                0,
                64,
                0,
                null(),
                none
            )) {
                Ok(at) => {
                    assert_eq!(expected, CL_SUCCESS);
                    ok!(clEnqueueUnmapMemObject(q, buffer, at, 0, null(), none));
                }
                Err(code) => assert_eq!(code, expected),
            }
        }
        // Copies and fills are not host accesses.
        ok!(clEnqueueFillBuffer(
            q,
            buffer,
            host,
            4,
            0,
            32,
            0,
            null(),
            none
        ));
        ok!(clEnqueueCopyBuffer(
            q,
            buffer,
            buffer,
            0,
            32,
            32,
            0,
            null(),
            none
        ));
        if reading != CL_SUCCESS {
            let code = code!(clEnqueueReadBuffer(
                q,
                buffer,
                CL_TRUE,
                0,
                64,
                host,
                1,
                null(),
                none
            ));
            assert_eq!(code, CL_INVALID_EVENT_WAIT_LIST);
        }
        cl.finish();
        ok!(clReleaseMemObject(buffer));
    }
}
