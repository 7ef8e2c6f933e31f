//! Tests that reads, writes, copies and fills move the right bytes, few and many, also in rectangles.

use std::ptr::{null, null_mut};

use crate::frames::opencl::*;

// Sizes around those at which payloads change their path.
const SIZES: [usize; 8] = [
    1,
    7,
    4096,
    32 << 10,
    (32 << 10) + 1,
    1 << 20,
    (1 << 20) + 3,
    9 << 20,
];

#[test]
fn what_was_written_is_read() {
    let cl = Fixture::new();
    for (seed, size) in SIZES.into_iter().enumerate() {
        let buffer = cl.buffer(CL_MEM_READ_WRITE, size);
        let bytes = pattern(seed, size);
        cl.write(buffer, 0, &bytes);
        assert!(cl.read(buffer, 0, size) == bytes, "{size} bytes");
        ok!(clReleaseMemObject(buffer));
    }
}

#[test]
fn offsets_are_kept() {
    let cl = Fixture::new();
    let size = 1 << 20;
    let mut expected = pattern(1, size);
    let buffer = cl.buffer_of(&expected);
    for (seed, (offset, length)) in [(5, 100), (70_001, 100_003), (size - 9, 9)]
        .into_iter()
        .enumerate()
    {
        let bytes = pattern(seed + 50, length);
        cl.write(buffer, offset, &bytes);
        expected[offset..offset + length].copy_from_slice(&bytes);
        assert!(cl.read(buffer, offset, length) == bytes);
    }
    assert!(cl.read(buffer, 0, size) == expected);
    ok!(clReleaseMemObject(buffer));
}

#[test]
fn contents_are_taken_at_creation() {
    let cl = Fixture::new();
    for flags in [
        CL_MEM_COPY_HOST_PTR,
        CL_MEM_USE_HOST_PTR,
        CL_MEM_COPY_HOST_PTR | CL_MEM_ALLOC_HOST_PTR,
    ] {
        for size in SIZES {
            let mut bytes = pattern(size, size);
            let host = bytes.as_mut_ptr().cast();
            let buffer = make!(clCreateBuffer(cl.context, flags, size, host)).unwrap();
            // Later changes of the application's memory do not change the buffer.
            if flags & CL_MEM_USE_HOST_PTR == 0 {
                bytes.fill(0);
            }
            assert!(
                cl.read(buffer, 0, size) == pattern(size, size),
                "{flags:#x} {size}"
            );
            ok!(clReleaseMemObject(buffer));
        }
    }
}

#[test]
fn many_commands_in_flight_keep_their_order() {
    let cl = Fixture::new();
    let size = 64 << 10;
    let buffer = cl.buffer(CL_MEM_READ_WRITE, size);
    let written: Vec<Vec<u8>> = (0..40)
        .map(|seed| pattern(seed, if seed % 2 == 0 { size } else { 1000 }))
        .collect();
    let mut read = vec![vec![0u8; size]; written.len()];
    for (bytes, back) in written.iter().zip(&mut read) {
        ok!(clEnqueueWriteBuffer(
            cl.queue,
            buffer,
            CL_FALSE,
            0,
            bytes.len(),
            bytes.as_ptr().cast(),
            0,
            null(),
            null_mut()
        ));
        ok!(clEnqueueReadBuffer(
            cl.queue,
            buffer,
            CL_FALSE,
            0,
            bytes.len(),
            back.as_mut_ptr().cast(),
            0,
            null(),
            null_mut()
        ));
    }
    cl.finish();
    for (bytes, back) in written.iter().zip(&read) {
        assert!(bytes[..] == back[..bytes.len()]);
    }
    ok!(clReleaseMemObject(buffer));
}

#[test]
fn copies_and_fills_stay_on_the_node() {
    let cl = Fixture::new();
    let size = 256 << 10;
    let from = cl.buffer_of(&pattern(1, size));
    let to = cl.buffer_of(&pattern(2, size));
    let mut expected = pattern(2, size);
    ok!(clEnqueueCopyBuffer(
        cl.queue,
        from,
        to,
        100,
        3000,
        70_000,
        0,
        null(),
        null_mut()
    ));
    expected[3000..73_000].copy_from_slice(&pattern(1, size)[100..70_100]);
    // Within one buffer, without overlap.
    ok!(clEnqueueCopyBuffer(
        cl.queue,
        to,
        to,
        0,
        size / 2,
        1000,
        0,
        null(),
        null_mut()
    ));
    expected.copy_within(0..1000, size / 2);
    let fill = [1u8, 2, 3, 4, 5, 6, 7, 8];
    ok!(clEnqueueFillBuffer(
        cl.queue,
        to,
        fill.as_ptr().cast(),
        8,
        80,
        160,
        0,
        null(),
        null_mut()
    ));
    for at in 80..240 {
        expected[at] = fill[at % 8];
    }
    assert!(cl.read(to, 0, size) == expected);
    for buffer in [from, to] {
        ok!(clReleaseMemObject(buffer));
    }
}

struct Shape {
    origin: [usize; 3],
    row: usize,
    slice: usize,
}

impl Shape {
    fn at(&self, x: usize, y: usize, z: usize) -> usize {
        (self.origin[2] + z) * self.slice + (self.origin[1] + y) * self.row + self.origin[0] + x
    }
}

#[test]
fn rectangles_go_where_they_belong() {
    let cl = Fixture::new();
    let size = 4 << 20;
    let cases = [
        // Few bytes, many bytes in short rows, many in long rows, and a rectangle without gaps.
        (
            [3, 4, 2],
            Shape {
                origin: [1, 2, 1],
                row: 10,
                slice: 90,
            },
            Shape {
                origin: [5, 0, 1],
                row: 16,
                slice: 80,
            },
        ),
        (
            [12, 600, 20],
            Shape {
                origin: [4, 1, 0],
                row: 40,
                slice: 40 * 700,
            },
            Shape {
                origin: [0, 3, 1],
                row: 33,
                slice: 33 * 650,
            },
        ),
        (
            [5000, 30, 3],
            Shape {
                origin: [100, 1, 0],
                row: 6000,
                slice: 6000 * 40,
            },
            Shape {
                origin: [0, 0, 0],
                row: 5000,
                slice: 5000 * 30,
            },
        ),
    ];
    for (region, device, host) in cases {
        let buffer = cl.buffer_of(&pattern(3, size));
        let mut on_device = pattern(3, size);
        let source = pattern(4, size);
        ok!(clEnqueueWriteBufferRect(
            cl.queue,
            buffer,
            CL_TRUE,
            device.origin.as_ptr(),
            host.origin.as_ptr(),
            region.as_ptr(),
            device.row,
            device.slice,
            host.row,
            host.slice,
            source.as_ptr().cast(),
            0,
            null(),
            null_mut()
        ));
        each(region, |x, y, z| {
            on_device[device.at(x, y, z)] = source[host.at(x, y, z)]
        });
        assert!(cl.read(buffer, 0, size) == on_device);
        let mut back = vec![0; size];
        let mut expected = vec![0; size];
        ok!(clEnqueueReadBufferRect(
            cl.queue,
            buffer,
            CL_TRUE,
            device.origin.as_ptr(),
            host.origin.as_ptr(),
            region.as_ptr(),
            device.row,
            device.slice,
            host.row,
            host.slice,
            back.as_mut_ptr().cast(),
            0,
            null(),
            null_mut()
        ));
        each(region, |x, y, z| {
            expected[host.at(x, y, z)] = on_device[device.at(x, y, z)]
        });
        assert!(back == expected);
        // Copies from one buffer to another, with the two shapes.
        let other = cl.buffer_of(&pattern(5, size));
        let mut in_other = pattern(5, size);
        ok!(clEnqueueCopyBufferRect(
            cl.queue,
            buffer,
            other,
            device.origin.as_ptr(),
            host.origin.as_ptr(),
            region.as_ptr(),
            device.row,
            device.slice,
            host.row,
            host.slice,
            0,
            null(),
            null_mut()
        ));
        each(region, |x, y, z| {
            in_other[host.at(x, y, z)] = on_device[device.at(x, y, z)]
        });
        assert!(cl.read(other, 0, size) == in_other);
        ok!(clReleaseMemObject(buffer));
        ok!(clReleaseMemObject(other));
    }
}

fn each([width, height, depth]: [usize; 3], mut body: impl FnMut(usize, usize, usize)) {
    for z in 0..depth {
        for y in 0..height {
            for x in 0..width {
                body(x, y, z);
            }
        }
    }
}

#[test]
fn nothing_to_move_is_a_command_all_the_same() {
    let cl = Fixture::new();
    let out_of_order = cl.another_queue(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    let (one, two) = (cl.buffer(0, 64), cl.buffer(0, 64));
    let mut byte = 9u8;
    let host = (&raw mut byte).cast();
    for queue in [cl.queue, out_of_order] {
        let mut events = [null_mut(); 4];
        ok!(clEnqueueReadBuffer(
            queue,
            one,
            CL_TRUE,
            64,
            0,
            host,
            0,
            null(),
            &raw mut events[0]
        ));
        ok!(clEnqueueWriteBuffer(
            queue,
            one,
            CL_FALSE,
            0,
            0,
            host,
            0,
            null(),
            &raw mut events[1]
        ));
        ok!(clEnqueueCopyBuffer(
            queue,
            one,
            two,
            0,
            64,
            0,
            0,
            null(),
            &raw mut events[2]
        ));
        ok!(clEnqueueFillBuffer(
            queue,
            one,
            host,
            1,
            0,
            0,
            0,
            null(),
            &raw mut events[3]
        ));
        ok!(clWaitForEvents(4, events.as_ptr()));
        let commands = events.map(command_of);
        assert_eq!(
            commands,
            [
                CL_COMMAND_READ_BUFFER,
                CL_COMMAND_WRITE_BUFFER,
                CL_COMMAND_COPY_BUFFER,
                CL_COMMAND_FILL_BUFFER
            ]
        );
        for event in events {
            ok!(clReleaseEvent(event));
        }
    }
    assert_eq!(byte, 9);
    ok!(clReleaseMemObject(one));
    ok!(clReleaseMemObject(two));
    ok!(clReleaseCommandQueue(out_of_order));
}

#[test]
fn migration_is_a_command() {
    let cl = Fixture::new();
    let buffers = [
        cl.buffer_of(&pattern(1, 100)),
        cl.buffer_of(&pattern(2, 100)),
    ];
    for flags in [
        0,
        CL_MIGRATE_MEM_OBJECT_HOST,
        CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED,
    ] {
        let mut event = null_mut();
        ok!(clEnqueueMigrateMemObjects(
            cl.queue,
            2,
            buffers.as_ptr(),
            flags,
            0,
            null(),
            &raw mut event
        ));
        ok!(clWaitForEvents(1, &raw const event));
        assert_eq!(command_of(event), CL_COMMAND_MIGRATE_MEM_OBJECTS);
        ok!(clReleaseEvent(event));
    }
    for buffer in buffers {
        ok!(clReleaseMemObject(buffer));
    }
}

// The bytes of small reads come inside of completions. Too many of them at once ended a session once, because one message
// grew beyond its limit.
#[test]
fn thousands_of_small_reads_may_be_outstanding() {
    let cl = Fixture::new();
    let size = 32 << 10;
    let buffer = cl.buffer_of(&pattern(7, size));
    let mut host = vec![0_u8; 6000 * size];
    for part in host.chunks_mut(size) {
        let (at, queue) = (part.as_mut_ptr().cast(), cl.queue);
        let none = null_mut();
        ok!(clEnqueueReadBuffer(
            queue,
            buffer,
            CL_FALSE,
            0,
            size,
            at,
            0,
            null(),
            none
        ));
    }
    ok!(clFinish(cl.queue));
    let expected = pattern(7, size);
    assert!(host.chunks(size).all(|part| part == expected));
    ok!(clReleaseMemObject(buffer));
}
