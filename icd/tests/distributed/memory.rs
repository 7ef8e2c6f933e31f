//! Tests of memory in contexts of several nodes: every command finds the newest bytes, wherever they were written.

use std::ptr::{null, null_mut};

use crate::frames::nodes;
use crate::frames::nodes::context_over;
use crate::frames::opencl::*;
use crate::frames::several::*;

/// Makes a buffer of four quarters, each written at the site of its number.
fn in_quarters(cl: &Several, size: usize) -> (cl_mem, Vec<u8>) {
    let buffer = cl.buffer(0, size);
    let expected = pattern(5, size);
    for (site, quarter) in expected.chunks(size / 4).enumerate() {
        cl.write(site, buffer, site * (size / 4), quarter);
    }
    (buffer, expected)
}

#[test]
fn a_read_takes_each_piece_from_where_it_is() {
    for properties in [0, OUT_OF_ORDER] {
        let cl = several_with(properties);
        for size in [1 << 10, 4 << 20] {
            let (buffer, expected) = in_quarters(&cl, size);
            for site in ALL {
                assert_eq!(cl.read(site, buffer, 0, size), expected, "at {site}");
            }
            // Copies from the middle of one piece to the middle of another.
            let (from, to) = (size / 8, 5 * size / 8);
            assert_eq!(cl.read(DELTA, buffer, from, to - from), expected[from..to]);
            release_memory(&[buffer]);
        }
    }
}

#[test]
fn a_read_in_pieces_keeps_its_place_among_the_commands_of_its_queue() {
    let cl = several();
    let (buffer, mut expected) = in_quarters(&cl, 1 << 12);
    let mut before = vec![0; 1 << 12];
    let mut after = vec![0; 1 << 12];
    let first = cl.begin_read(ALPHA, buffer, 0, &mut before, &[]);
    let changed = cl.fill(ALPHA, buffer, 7, (512, 2048), &[]);
    let second = cl.begin_read(ALPHA, buffer, 0, &mut after, &[]);
    assert_eq!(finish(second), CL_SUCCESS);
    assert_eq!(before, expected);
    expected[512..2560].copy_from_slice(&bytes(&[7; 512]));
    assert_eq!(after, expected);
    release(&[first, changed]);
    release_memory(&[buffer]);
}

#[test]
fn sub_buffers_are_ranges_of_one_whole() {
    let cl = several();
    let (buffer, mut expected) = in_quarters(&cl, 1 << 12);
    let parts: Vec<_> = ALL.map(|site| cl.part(buffer, site << 10, 1 << 10)).into();
    // Each quarter is changed at another site than the one that wrote it.
    let events: Vec<_> = ALL
        .map(|site| cl.add((site + 1) % 4, parts[site], 100 + site as u32, 256, &[]))
        .into();
    for (site, quarter) in expected.chunks_mut(1 << 10).enumerate() {
        let changed = numbers(quarter).into_iter();
        let changed: Vec<u32> = changed.map(|n| n.wrapping_add(100 + site as u32)).collect();
        quarter.copy_from_slice(&bytes(&changed));
    }
    let (count, list) = list(&events);
    ok!(clWaitForEvents(count, list));
    assert_eq!(cl.read(GAMMA, buffer, 0, 1 << 12), expected);
    assert_eq!(
        cl.read(DELTA, parts[1], 0, 1 << 10),
        expected[1 << 10..2 << 10]
    );
    // Kernels on the whole after kernels on parts, and the reverse.
    let event = cl.add(BETA, buffer, 1, 1 << 10, &[]);
    assert_eq!(finish(event), CL_SUCCESS);
    let changed: Vec<u32> = numbers(&expected)
        .iter()
        .map(|n| n.wrapping_add(1))
        .collect();
    let event = cl.add(ALPHA, parts[3], 5, 256, &[]);
    assert_eq!(finish(event), CL_SUCCESS);
    let read = cl.numbers(ALPHA, buffer, 1 << 10);
    assert_eq!(read[..768], changed[..768]);
    let last: Vec<u32> = changed[768..].iter().map(|n| n.wrapping_add(5)).collect();
    assert_eq!(read[768..], last);
    release(&events);
    release_memory(&parts);
    release_memory(&[buffer]);
    cl.finish_all();
}

#[test]
fn a_kernel_follows_another_wherever_that_ran() {
    let cl = several_with(OUT_OF_ORDER);
    let count = 1 << 10;
    let buffer = cl.buffer_of(0, &bytes(&vec![1; count]));
    let mut last: Vec<cl_event> = Vec::new();
    for turn in 0..40 {
        let next = cl.add(turn * 7 % 4, buffer, turn as u32, count, &last);
        release(&last);
        last = vec![next];
    }
    let read = cl
        .try_read(DELTA, buffer, 0, 4 * count, &last)
        .expect("read");
    assert_eq!(numbers(&read), vec![1 + 39 * 40 / 2; count]);
    release(&last);
    release_memory(&[buffer]);
}

/// A rectangle of 8 rows of 16 bytes in a buffer of 64-byte rows.
const ORIGIN: [size_t; 3] = [4, 2, 0];
const REGION: [size_t; 3] = [16, 8, 1];
const PITCH: size_t = 64;

fn rows(of: &[u8]) -> Vec<u8> {
    let rows = (0..8).map(|row| (ORIGIN[1] + row) * PITCH + ORIGIN[0]);
    rows.flat_map(|at| of[at..at + 16].to_vec()).collect()
}

#[test]
fn rectangles_are_written_read_and_copied_over_nodes() {
    let cl = several();
    let size = 16 * PITCH;
    let (buffer, mut expected) = in_quarters(&cl, size);
    let zero: [size_t; 3] = [0; 3];
    let rectangle = pattern(9, 16 * 8);
    ok!(clEnqueueWriteBufferRect(
        cl.queues[GAMMA],
        buffer,
        CL_TRUE,
        ORIGIN.as_ptr(),
        zero.as_ptr(),
        REGION.as_ptr(),
        PITCH,
        0,
        0,
        0,
        rectangle.as_ptr().cast(),
        0,
        null(),
        null_mut()
    ));
    for (row, bytes) in rectangle.chunks(16).enumerate() {
        let at = (ORIGIN[1] + row) * PITCH + ORIGIN[0];
        expected[at..at + 16].copy_from_slice(bytes);
    }
    assert_eq!(cl.read(ALPHA, buffer, 0, size), expected);
    for site in ALL {
        let mut read = vec![0; 16 * 8];
        ok!(clEnqueueReadBufferRect(
            cl.queues[site],
            buffer,
            CL_TRUE,
            ORIGIN.as_ptr(),
            zero.as_ptr(),
            REGION.as_ptr(),
            PITCH,
            0,
            0,
            0,
            read.as_mut_ptr().cast(),
            0,
            null(),
            null_mut()
        ));
        assert_eq!(read, rows(&expected), "at {site}");
    }
    let other = cl.buffer(0, size);
    let filled = cl.fill(DELTA, other, 0, (0, size), &[]);
    assert_eq!(finish(filled), CL_SUCCESS);
    let mut event = null_mut();
    ok!(clEnqueueCopyBufferRect(
        cl.queues[BETA],
        buffer,
        other,
        ORIGIN.as_ptr(),
        ORIGIN.as_ptr(),
        REGION.as_ptr(),
        PITCH,
        0,
        PITCH,
        0,
        0,
        null(),
        &raw mut event
    ));
    assert_eq!(finish(event), CL_SUCCESS);
    let copied = cl.read(ALPHA, other, 0, size);
    assert_eq!(rows(&copied), rectangle);
    assert_eq!(copied.iter().filter(|byte| **byte != 0).count(), {
        rectangle.iter().filter(|byte| **byte != 0).count()
    });
    release_memory(&[buffer, other]);
}

#[test]
fn a_copy_runs_where_its_bytes_are() {
    let cl = several();
    let size = 1 << 16;
    let (from, to) = (cl.buffer(0, size), cl.buffer(0, size));
    cl.write(DELTA, from, 0, &pattern(3, size));
    let count = |node: usize| cl.nodes[node].count("clEnqueueCopyBuffer");
    let before = [count(0), count(2)];
    // The copy is on Alpha's queue, and the last node has the bytes.
    let copied = cl.copy(ALPHA, (from, 0), (to, 0), size, &[]);
    assert_eq!(command_of(copied), CL_COMMAND_COPY_BUFFER);
    let behind = cl.add(ALPHA, to, 0, size / 4, &[]);
    assert_eq!(finish(behind), CL_SUCCESS);
    assert_eq!(status_of(copied), CL_COMPLETE);
    assert_eq!(finish(copied), CL_SUCCESS);
    assert_eq!([count(0), count(2)], [before[0], before[1] + 1]);
    assert_eq!(cl.read(BETA, to, 0, size), pattern(3, size));
    release_memory(&[from, to]);
}

#[test]
fn fills_and_kernels_see_each_other() {
    let cl = several();
    let buffer = cl.buffer(0, 4096);
    let mut last = cl.fill(ALPHA, buffer, 3, (0, 4096), &[]);
    for site in [DELTA, GAMMA, BETA, ALPHA] {
        let filled = cl.fill(site, buffer, 10, (1024 * site, 512), &[last]);
        let added = cl.add(3 - site, buffer, 1, 1024, &[filled]);
        release(&[last, filled]);
        last = added;
    }
    assert_eq!(finish(last), CL_SUCCESS);
    let read = cl.numbers(GAMMA, buffer, 1024);
    for site in ALL {
        let quarter = &read[256 * site..256 * (site + 1)];
        assert_eq!(quarter[..128], vec![10 + 1 + site as u32; 128]);
        assert_eq!(quarter[128..], vec![3 + 4; 128]);
    }
    release_memory(&[buffer]);
}

#[test]
fn large_transfers_go_in_pieces() {
    let cl = several();
    let size = (40 << 20) + 12;
    let expected = pattern(8, 1 << 20).repeat(41)[..size].to_vec();
    let buffer = cl.buffer(0, size);
    cl.write(ALPHA, buffer, 0, &expected);
    let mut last = cl.add(DELTA, buffer, 0, 1, &[]);
    for site in [BETA, GAMMA, ALPHA] {
        let next = cl.add(site, buffer, 1, 1, &[last]);
        release(&[last]);
        last = next;
    }
    assert_eq!(finish(last), CL_SUCCESS);
    let read = cl.read(DELTA, buffer, 0, size);
    let first = u32::from_ne_bytes(expected[..4].try_into().expect("four")) + 3;
    assert_eq!(read[..4], first.to_ne_bytes());
    assert!(read[4..] == expected[4..]);
    release_memory(&[buffer]);
}

#[test]
fn what_is_only_read_stays_shared() {
    let cl = several();
    let size = 1 << 16;
    let constant = cl.buffer_of(0, &pattern(1, size));
    let read_only = cl.buffer_of(CL_MEM_READ_ONLY, &pattern(2, size));
    let targets = ALL.map(|_| cl.buffer(0, size));
    let writes = || -> usize {
        let of = |node: &nodes::Node| {
            node.count("clEnqueueWriteBuffer") + node.count("clEnqueueMapBuffer")
        };
        cl.nodes.iter().map(of).sum()
    };
    let round = || {
        for site in ALL {
            let args = [Arg::Memory(targets[site]), Arg::Memory(constant)];
            let event = cl.try_launch(site, "fake_copy", &args, size, &[]).unwrap();
            let args = [
                Arg::Memory(targets[site]),
                Arg::Memory(read_only),
                Arg::Memory(constant),
            ];
            let other = cl.try_launch(site, "nothing", &args, 4, &[event]).unwrap();
            assert_eq!(finish(other), CL_SUCCESS);
            release(&[event]);
        }
    };
    round();
    let before = writes();
    // All sites have all bytes, so nothing moves any more.
    round();
    round();
    assert_eq!(writes(), before);
    for site in ALL {
        assert_eq!(
            cl.read((site + 1) % 4, targets[site], 0, size),
            pattern(1, size)
        );
    }
    release_memory(&targets);
    release_memory(&[constant, read_only]);
}

#[test]
fn the_same_buffer_may_be_several_arguments() {
    let cl = several();
    let buffer = cl.buffer_of(0, &pattern(1, 4096));
    let halves = [cl.part(buffer, 0, 2048), cl.part(buffer, 2048, 2048)];
    for site in ALL {
        let same = [
            Arg::Memory(buffer),
            Arg::Memory(buffer),
            Arg::Memory(buffer),
        ];
        let first = cl.try_launch(site, "nothing", &same, 4, &[]).unwrap();
        let parts = [Arg::Memory(halves[1]), Arg::Memory(halves[0])];
        let event = cl
            .try_launch(site, "fake_copy", &parts, 2048, &[first])
            .unwrap();
        assert_eq!(finish(event), CL_SUCCESS);
        release(&[first]);
    }
    let expected = pattern(1, 2048).repeat(2);
    assert_eq!(cl.read(DELTA, buffer, 0, 4096), expected);
    release_memory(&halves);
    release_memory(&[buffer]);
}

#[test]
fn what_another_context_still_holds_back_does_not_keep_host_memory() {
    let cl = several();
    // A context of one site reads into the memory that the others then write from.
    let other = context_over(&cl.devices[..1]);
    let queue = make!(clCreateCommandQueue(other, cl.devices[0], 0)).expect("a queue");
    let source = make!(clCreateBuffer(other, 0, 4096, null_mut())).expect("a buffer");
    let user = make!(clCreateUserEvent(other)).expect("a user event");
    let mut bytes = pattern(3, 4096);
    let expected = bytes.clone();
    let mut read = null_mut();
    ok!(clEnqueueReadBuffer(
        queue,
        source,
        CL_FALSE,
        0,
        4096,
        bytes.as_mut_ptr().cast(),
        1,
        &raw const user,
        &raw mut read
    ));
    let buffer = cl.buffer(0, 4096);
    for site in ALL {
        cl.write(site, buffer, 0, &bytes);
        assert_eq!(cl.read((site + 1) % 4, buffer, 0, 4096), expected);
    }
    ok!(clSetUserEventStatus(user, -5));
    ok!(clFinish(queue));
    release(&[user, read]);
    release_memory(&[source, buffer]);
    ok!(clReleaseCommandQueue(queue));
    ok!(clReleaseContext(other));
}
