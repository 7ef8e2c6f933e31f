//! Tests the codes for wrong arguments of rectangles, copies, fills, maps and migrations.

use std::ptr::{null, null_mut};

use crate::frames::opencl::*;

#[test]
fn rectangles() {
    let cl = Fixture::new();
    let buffer = cl.buffer(0, 1000);
    let mut bytes = vec![0u8; 4000];
    let host: *mut c_void = bytes.as_mut_ptr().cast();
    let zero = [0usize; 3];
    let call = |origin: *const usize,
                there: *const usize,
                region: *const usize,
                pitches: [usize; 4],
                host| {
        let [row, slice, host_row, host_slice] = pitches;
        let (q, none) = (cl.queue, null_mut());
        let read = code!(clEnqueueReadBufferRect(
            q,
            buffer,
            CL_TRUE,
            origin,
            there,
            region,
            row,
            slice,
            host_row,
            host_slice,
            host,
            0,
            null(),
            none
        ));
        let written = code!(clEnqueueWriteBufferRect(
            q,
            buffer,
            CL_TRUE,
            origin,
            there,
            region,
            row,
            slice,
            host_row,
            host_slice,
            host,
            0,
            null(),
            none
        ));
        assert_eq!(read, written);
        read
    };
    let z = zero.as_ptr();
    let region = [10usize, 10, 10];
    let r = region.as_ptr();
    assert_eq!(call(z, z, r, [0; 4], host), CL_SUCCESS);
    for (origin, there, region) in [(null(), z, r), (z, null(), r), (z, z, null())] {
        assert_eq!(call(origin, there, region, [0; 4], host), CL_INVALID_VALUE);
    }
    assert_eq!(call(z, z, r, [0; 4], null_mut()), CL_INVALID_VALUE);
    for flat in [[0usize, 10, 10], [10, 0, 10], [10, 10, 0]] {
        assert_eq!(call(z, z, flat.as_ptr(), [0; 4], host), CL_INVALID_VALUE);
    }
    let bad = [
        [9, 0, 0, 0],
        [0, 0, 9, 0],
        [0, 99, 0, 0],
        [0, 0, 0, 99],
        [0, 105, 0, 0],
        [11, 0, 0, 0],
        [usize::MAX, 0, 0, 0],
        [0, 0, usize::MAX / 4, 0],
    ];
    for pitches in bad {
        assert_eq!(
            call(z, z, r, pitches, host),
            CL_INVALID_VALUE,
            "{pitches:?}"
        );
    }
    let outside = [1usize, 0, 0];
    assert_eq!(call(outside.as_ptr(), z, r, [0; 4], host), CL_INVALID_VALUE);
    let far = [usize::MAX, usize::MAX, usize::MAX];
    assert_eq!(call(far.as_ptr(), z, r, [0; 4], host), CL_INVALID_VALUE);
    ok!(clReleaseMemObject(buffer));
}

#[test]
fn copies_and_fills() {
    let cl = Fixture::new();
    let buffer = cl.buffer(0, 8192);
    let other = cl.buffer(0, 8192);
    let part = |origin: usize| {
        let region = cl_buffer_region { origin, size: 4096 };
        make!(clCreateSubBuffer(
            buffer,
            0,
            CL_BUFFER_CREATE_TYPE_REGION,
            (&raw const region).cast()
        ))
        .unwrap()
    };
    let (low, middle, high) = (part(0), part(2048), part(4096));
    let copy = |from, to, at, there, size| {
        code!(clEnqueueCopyBuffer(
            cl.queue,
            from,
            to,
            at,
            there,
            size,
            0,
            null(),
            null_mut()
        ))
    };
    assert_eq!(copy(buffer, null_mut(), 0, 0, 16), CL_INVALID_MEM_OBJECT);
    assert_eq!(copy(buffer, other, 8000, 0, 193), CL_INVALID_VALUE);
    assert_eq!(copy(buffer, other, 0, usize::MAX, 16), CL_INVALID_VALUE);
    assert_eq!(copy(buffer, buffer, 0, 15, 16), CL_MEM_COPY_OVERLAP);
    assert_eq!(copy(buffer, buffer, 0, 16, 16), CL_SUCCESS);
    assert_eq!(copy(low, middle, 2048, 0, 16), CL_MEM_COPY_OVERLAP);
    assert_eq!(copy(low, middle, 0, 0, 16), CL_SUCCESS);
    assert_eq!(copy(low, high, 0, 0, 4096), CL_SUCCESS);
    assert_eq!(copy(buffer, middle, 2050, 0, 16), CL_MEM_COPY_OVERLAP);
    let rect = |to: cl_mem, origin: [usize; 3], region: [usize; 3], pitches: [usize; 4]| {
        let zero = [0usize; 3];
        let [row, slice, to_row, to_slice] = pitches;
        code!(clEnqueueCopyBufferRect(
            cl.queue,
            buffer,
            to,
            zero.as_ptr(),
            origin.as_ptr(),
            region.as_ptr(),
            row,
            slice,
            to_row,
            to_slice,
            0,
            null(),
            null_mut()
        ))
    };
    // Rectangles side by side in the same rows do not overlap. One more column does.
    assert_eq!(
        rect(buffer, [16, 0, 0], [16, 8, 1], [64, 0, 64, 0]),
        CL_SUCCESS
    );
    assert_eq!(
        rect(buffer, [15, 0, 0], [16, 8, 1], [64, 0, 64, 0]),
        CL_MEM_COPY_OVERLAP
    );
    assert_eq!(
        rect(buffer, [16, 0, 0], [16, 8, 1], [64, 0, 65, 0]),
        CL_INVALID_VALUE
    );
    assert_eq!(
        rect(other, [0; 3], [0, 8, 1], [64, 0, 64, 0]),
        CL_INVALID_VALUE
    );
    assert_eq!(
        rect(other, [0, 0, 1], [64, 64, 2], [0; 4]),
        CL_INVALID_VALUE
    );
    let fill = |pattern: *const c_void, length, offset, size| {
        code!(clEnqueueFillBuffer(
            cl.queue,
            buffer,
            pattern,
            length,
            offset,
            size,
            0,
            null(),
            null_mut()
        ))
    };
    let pattern = [0u8; 256];
    let p = pattern.as_ptr().cast();
    assert_eq!(fill(null(), 4, 0, 16), CL_INVALID_VALUE);
    for length in [0, 3, 256] {
        assert_eq!(fill(p, length, 0, 768), CL_INVALID_VALUE);
    }
    assert_eq!(fill(p, 4, 2, 16), CL_INVALID_VALUE);
    assert_eq!(fill(p, 4, 4, 18), CL_INVALID_VALUE);
    assert_eq!(fill(p, 4, 8192, 4), CL_INVALID_VALUE);
    assert_eq!(fill(p, 128, 128, 1280), CL_SUCCESS);
    cl.finish();
    for memory in [low, middle, high, buffer, other] {
        ok!(clReleaseMemObject(memory));
    }
}

#[test]
fn maps_unmaps_and_migration() {
    let cl = Fixture::new();
    let (q, none) = (cl.queue, null_mut());
    let buffer = cl.buffer(0, 64);
    let map = |flags, offset, size| {
        make!(clEnqueueMapBuffer(
            q,
            buffer,
            CL_TRUE,
            flags,
            offset,
            size,
            0,
            null(),
            none
        ))
        .unwrap_err()
    };
    assert_eq!(map(CL_MAP_READ, 0, 0), CL_INVALID_VALUE);
    assert_eq!(map(CL_MAP_READ, 60, 5), CL_INVALID_VALUE);
    assert_eq!(map(CL_MAP_READ, usize::MAX, 5), CL_INVALID_VALUE);
    assert_eq!(map(1 << 9, 0, 4), CL_INVALID_VALUE);
    assert_eq!(
        map(CL_MAP_READ | CL_MAP_WRITE_INVALIDATE_REGION, 0, 4),
        CL_INVALID_VALUE
    );
    let mut byte = 0u8;
    let wild = (&raw mut byte).cast();
    assert_eq!(
        code!(clEnqueueUnmapMemObject(q, buffer, wild, 0, null(), none)),
        CL_INVALID_VALUE
    );
    assert_eq!(
        code!(clEnqueueUnmapMemObject(
            q,
            null_mut(),
            wild,
            0,
            null(),
            none
        )),
        CL_INVALID_MEM_OBJECT
    );
    assert_eq!(
        code!(clEnqueueUnmapMemObject(
            null_mut(),
            buffer,
            wild,
            0,
            null(),
            none
        )),
        CL_INVALID_COMMAND_QUEUE
    );
    let migrate = |count, list, flags| {
        code!(clEnqueueMigrateMemObjects(
            q,
            count,
            list,
            flags,
            0,
            null(),
            none
        ))
    };
    assert_eq!(migrate(0, &raw const buffer, 0), CL_INVALID_VALUE);
    assert_eq!(migrate(1, null(), 0), CL_INVALID_VALUE);
    assert_eq!(migrate(1, &raw const buffer, 1 << 7), CL_INVALID_VALUE);
    let wrong: cl_mem = cl.context.cast();
    assert_eq!(migrate(1, &raw const wrong, 0), CL_INVALID_MEM_OBJECT);
    ok!(clReleaseMemObject(buffer));
    assert_eq!(code!(clReleaseMemObject(buffer)), CL_INVALID_MEM_OBJECT);
    assert_eq!(code!(clRetainMemObject(buffer)), CL_INVALID_MEM_OBJECT);
    assert_eq!(
        code!(clSetMemObjectDestructorCallback(buffer, None, null_mut())),
        CL_INVALID_MEM_OBJECT
    );
}
