//! Tests of maps, migrations and initial contents in contexts of several nodes: the client's copy is one of the
//! copies.

use std::ptr::{null, null_mut};

use crate::frames::nodes;
use crate::frames::opencl::*;
use crate::frames::several::*;

const SIZE: usize = 1 << 16;

fn moved(cl: &Several) -> usize {
    let of = |node: &nodes::Node| {
        [
            "clEnqueueWriteBuffer",
            "clEnqueueReadBuffer",
            "clEnqueueMapBuffer",
        ]
        .map(|function| node.count(function))
        .iter()
        .sum::<usize>()
    };
    cl.nodes.iter().map(of).sum()
}

#[test]
fn a_map_shows_what_other_nodes_wrote_and_what_is_written_there_reaches_them() {
    let cl = several();
    let buffer = cl.buffer(0, SIZE);
    let mut expected = pattern(1, SIZE);
    for (site, part) in expected.chunks(SIZE / 4).enumerate() {
        cl.write(site, buffer, site * SIZE / 4, part);
    }
    for (turn, site) in [BETA, DELTA, ALPHA, GAMMA].into_iter().enumerate() {
        let (offset, length) = (SIZE / 8, SIZE / 2);
        let map = cl.map(site, buffer, CL_MAP_READ | CL_MAP_WRITE, (offset, length));
        assert_eq!(map, &expected[offset..offset + length]);
        map[..100].fill(turn as u8);
        expected[offset..offset + 100].fill(turn as u8);
        let unmapped = cl.unmap(site, buffer, map, &[]);
        let next = (site + 1) % 4;
        let event = cl.add(next, buffer, 1, SIZE / 4, &[unmapped]);
        assert_eq!(finish(event), CL_SUCCESS);
        release(&[unmapped]);
        let added: Vec<u32> = numbers(&expected)
            .iter()
            .map(|n| n.wrapping_add(1))
            .collect();
        expected = bytes(&added);
        assert_eq!(cl.read(3 - site, buffer, 0, SIZE), expected);
    }
    release_memory(&[buffer]);
}

#[test]
fn a_map_that_invalidates_fetches_nothing() {
    let cl = several();
    let buffer = cl.buffer(0, SIZE);
    cl.write(DELTA, buffer, 0, &pattern(1, SIZE));
    let before = moved(&cl);
    let half = SIZE / 2;
    let map = cl.map(ALPHA, buffer, CL_MAP_WRITE_INVALIDATE_REGION, (0, half));
    assert_eq!(moved(&cl), before);
    map.copy_from_slice(&pattern(2, half));
    let unmapped = cl.unmap(ALPHA, buffer, map, &[]);
    let event = cl.add(BETA, buffer, 0, 1, &[unmapped]);
    assert_eq!(finish(event), CL_SUCCESS);
    release(&[unmapped]);
    let expected = [&pattern(2, half)[..], &pattern(1, SIZE)[half..]].concat();
    assert_eq!(cl.read(GAMMA, buffer, 0, SIZE), expected);
    release_memory(&[buffer]);
}

#[test]
fn overlapping_maps_agree_and_may_be_of_different_queues() {
    let cl = several();
    let buffer = cl.buffer_of(0, &pattern(1, SIZE));
    let part = cl.part(buffer, SIZE / 2, SIZE / 4);
    let event = cl.add(DELTA, buffer, 1, SIZE / 4, &[]);
    assert_eq!(finish(event), CL_SUCCESS);
    let all = cl.map(ALPHA, buffer, CL_MAP_READ, (0, SIZE));
    let some = cl.map(BETA, part, CL_MAP_READ, (16, 64));
    assert_eq!(some.as_ptr(), all[SIZE / 2 + 16..].as_ptr());
    let added: Vec<u32> = numbers(&pattern(1, SIZE))
        .iter()
        .map(|n| n.wrapping_add(1))
        .collect();
    assert_eq!(all, &bytes(&added)[..]);
    // A map for writing that overlaps another map is refused, as in a context of one node. A map beside it is not.
    let beside = cl.map(GAMMA, buffer, CL_MAP_WRITE, (SIZE - 64, 32));
    assert_eq!(mem_info::<cl_uint>(part, CL_MEM_MAP_COUNT), 1);
    assert_eq!(finish(cl.unmap(DELTA, buffer, all, &[])), CL_SUCCESS);
    assert_eq!(some[0], bytes(&added)[SIZE / 2 + 16]);
    assert_eq!(finish(cl.unmap(BETA, part, some, &[])), CL_SUCCESS);
    assert_eq!(finish(cl.unmap(GAMMA, buffer, beside, &[])), CL_SUCCESS);
    assert_eq!(cl.read(ALPHA, buffer, 0, SIZE), bytes(&added));
    release_memory(&[part, buffer]);
}

#[test]
fn a_buffer_in_the_applications_memory_is_mapped_there() {
    let cl = several();
    let mut host = vec![0u32; SIZE / 4];
    host[7] = 7;
    let at = host.as_mut_ptr();
    let buffer = make!(clCreateBuffer(
        cl.context,
        CL_MEM_USE_HOST_PTR,
        SIZE,
        at.cast()
    ))
    .expect("a buffer");
    for site in ALL {
        let event = cl.add(site, buffer, 1, SIZE / 4, &[]);
        assert_eq!(finish(event), CL_SUCCESS);
        let other = (site + 2) % 4;
        let map = cl.map(other, buffer, CL_MAP_READ | CL_MAP_WRITE, (16, SIZE - 16));
        // SAFETY: inside of `host`.
        assert_eq!(map.as_ptr(), unsafe { at.add(4) }.cast());
        let expected = 2 * site as u32 + 1;
        assert_eq!(numbers(&map[..12]), [expected; 3]);
        assert_eq!(numbers(&map[12..16]), [expected + 7]);
        let changed: Vec<u32> = numbers(map).iter().map(|n| n + 1).collect();
        map.copy_from_slice(&bytes(&changed));
        assert_eq!(finish(cl.unmap(other, buffer, map, &[])), CL_SUCCESS);
    }
    assert_eq!(
        cl.numbers(BETA, buffer, 9)[..],
        [4, 4, 4, 4, 8, 8, 8, 15, 8]
    );
    release_memory(&[buffer]);
    cl.finish_all();
}

#[test]
fn initial_contents_are_there_whoever_comes_first() {
    let cl = several();
    for size in [64, SIZE, 20 << 20] {
        let expected = pattern(6, size);
        // No device has the bytes, so the client reads its own.
        let buffer = cl.buffer_of(0, &expected);
        assert!(cl.read(DELTA, buffer, 0, size) == expected);
        let map = cl.map(BETA, buffer, CL_MAP_READ, (8, size - 8));
        assert!(map == &expected[8..]);
        assert_eq!(finish(cl.unmap(BETA, buffer, map, &[])), CL_SUCCESS);
        let copied = cl.buffer(0, size);
        let event = cl.copy(GAMMA, (buffer, 0), (copied, 0), size, &[]);
        assert_eq!(finish(event), CL_SUCCESS);
        assert!(cl.read(ALPHA, copied, 0, size) == expected);
        release_memory(&[buffer, copied]);
        // The host may not access this buffer. Devices may.
        let hidden = cl.buffer_of(CL_MEM_HOST_NO_ACCESS, &expected);
        let shown = cl.buffer(0, size);
        let args = [Arg::Memory(shown), Arg::Memory(hidden)];
        let event = cl
            .try_launch(DELTA, "fake_copy", &args, size, &[])
            .expect("launched");
        assert_eq!(finish(event), CL_SUCCESS);
        assert!(cl.read(ALPHA, shown, 0, size) == expected);
        let refused = cl.try_read(ALPHA, hidden, 0, size, &[]);
        assert_eq!(refused, Err(CL_INVALID_OPERATION));
        release_memory(&[hidden, shown]);
    }
}

#[test]
fn the_clients_copy_is_not_read_while_bytes_are_landing_there() {
    let cl = several_with(OUT_OF_ORDER);
    let size = 8 << 20;
    let expected = pattern(1, size);
    for _ in 0..4 {
        let buffer = cl.buffer(0, size);
        cl.write(DELTA, buffer, 0, &expected);
        // The map brings the bytes to the client. Nothing orders the read after it.
        let mut mapped = null_mut();
        let map = make!(clEnqueueMapBuffer(
            cl.queues[ALPHA],
            buffer,
            CL_FALSE,
            CL_MAP_READ,
            0,
            size,
            0,
            null(),
            &raw mut mapped,
        ))
        .expect("a map");
        assert!(cl.read(BETA, buffer, 0, size) == expected);
        assert_eq!(finish(mapped), CL_SUCCESS);
        let mut event = null_mut();
        ok!(clEnqueueUnmapMemObject(
            cl.queues[ALPHA],
            buffer,
            map,
            0,
            null(),
            &raw mut event
        ));
        assert_eq!(finish(event), CL_SUCCESS);
        release_memory(&[buffer]);
    }
}

fn migrate(cl: &Several, site: usize, buffer: cl_mem, flags: cl_mem_migration_flags) {
    let mut event = null_mut();
    ok!(clEnqueueMigrateMemObjects(
        cl.queues[site],
        1,
        &raw const buffer,
        flags,
        0,
        null(),
        &raw mut event
    ));
    assert_eq!(command_of(event), CL_COMMAND_MIGRATE_MEM_OBJECTS);
    assert_eq!(finish(event), CL_SUCCESS);
}

#[test]
fn migration_moves_bytes_early_and_never_wrongly() {
    let cl = several();
    let buffer = cl.buffer(0, SIZE);
    cl.write(ALPHA, buffer, 0, &pattern(1, SIZE));
    migrate(&cl, DELTA, buffer, 0);
    let before = moved(&cl);
    let event = cl.add(DELTA, buffer, 0, 1, &[]);
    assert_eq!(finish(event), CL_SUCCESS);
    assert_eq!(moved(&cl), before, "the bytes were there already");
    // After a migration to the host, a map has nothing to fetch.
    migrate(&cl, BETA, buffer, CL_MIGRATE_MEM_OBJECT_HOST);
    let before = moved(&cl);
    let map = cl.map(GAMMA, buffer, CL_MAP_READ, (0, SIZE));
    assert_eq!(moved(&cl), before);
    assert_eq!(map, &pattern(1, SIZE)[..]);
    assert_eq!(finish(cl.unmap(GAMMA, buffer, map, &[])), CL_SUCCESS);
    // A migration without contents moves nothing. Bytes that are written afterwards are there.
    let flags = CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED;
    for flags in [flags, flags | CL_MIGRATE_MEM_OBJECT_HOST] {
        let before = moved(&cl);
        migrate(&cl, GAMMA, buffer, flags);
        assert_eq!(moved(&cl), before);
        let filled = cl.fill(GAMMA, buffer, 5, (0, SIZE), &[]);
        assert_eq!(finish(filled), CL_SUCCESS);
        assert_eq!(cl.numbers(ALPHA, buffer, SIZE / 4), vec![5; SIZE / 4]);
    }
    release_memory(&[buffer]);
}

#[test]
fn a_migration_to_the_host_leaves_alone_what_the_program_writes() {
    let cl = several();
    let buffer = cl.buffer(0, SIZE);
    let filled = cl.fill(ALPHA, buffer, 5, (0, SIZE), &[]);
    assert_eq!(finish(filled), CL_SUCCESS);
    let half = SIZE / 2;
    let map = cl.map(ALPHA, buffer, CL_MAP_WRITE_INVALIDATE_REGION, (0, half));
    map.fill(9);
    migrate(&cl, BETA, buffer, CL_MIGRATE_MEM_OBJECT_HOST);
    assert_eq!(finish(cl.unmap(ALPHA, buffer, map, &[])), CL_SUCCESS);
    let seen = cl.read(GAMMA, buffer, 0, SIZE);
    assert!(seen[..half].iter().all(|byte| *byte == 9));
    assert_eq!(numbers(&seen[half..]), vec![5; half / 4]);
    release_memory(&[buffer]);
}

// The specification allows to read an object into its own host memory. The read waited for itself once.
#[test]
fn an_object_is_read_into_its_own_host_memory() {
    let cl = several();
    for size in [64, 40 << 10, 3 << 20] {
        let mut host = pattern(1, size);
        let at = host.as_mut_ptr();
        let flags = CL_MEM_USE_HOST_PTR;
        let buffer = make!(clCreateBuffer(cl.context, flags, size, at.cast())).expect("a buffer");
        let queue = cl.queues[DELTA];
        let read_all = || {
            let none = (null(), null_mut());
            let at = at.cast();
            ok!(clEnqueueReadBuffer(
                queue, buffer, CL_TRUE, 0, size, at, 0, none.0, none.1
            ));
        };
        read_all();
        assert!(host == pattern(1, size));
        let (zero, region) = ([0, 0, 0], [size / 8, 8, 1]);
        ok!(clEnqueueReadBufferRect(
            cl.queues[BETA],
            buffer,
            CL_TRUE,
            zero.as_ptr(),
            zero.as_ptr(),
            region.as_ptr(),
            size / 8,
            0,
            size / 8,
            0,
            at.cast(),
            0,
            null(),
            null_mut()
        ));
        assert!(host == pattern(1, size));
        let filled = cl.fill(ALPHA, buffer, 3, (0, size), &[]);
        assert_eq!(finish(filled), CL_SUCCESS);
        read_all();
        assert_eq!(numbers(&host), vec![3; size / 4]);
        release_memory(&[buffer]);
    }
}

#[test]
fn many_buffers_and_none_at_all() {
    let cl = several();
    // A launch without work-items moves nothing, wherever the bytes are.
    let buffer = cl.buffer(0, SIZE);
    cl.write(DELTA, buffer, 0, &pattern(3, SIZE));
    let before = moved(&cl);
    let args = [Arg::Memory(buffer), Arg::Number(1)];
    let event = cl
        .try_launch(ALPHA, "fake_add_u32", &args, 0, &[])
        .expect("launched");
    assert_eq!(finish(event), CL_SUCCESS);
    assert_eq!(moved(&cl), before);
    assert_eq!(cl.read(BETA, buffer, 0, SIZE), pattern(3, SIZE));
    release_memory(&[buffer]);
    // Migrates many buffers at once, one after the other to all sites.
    let buffers: Vec<_> = (0..300)
        .map(|n| cl.buffer_of(0, &bytes(&[n; 16])))
        .collect();
    let mut event = null_mut();
    ok!(clEnqueueMigrateMemObjects(
        cl.queues[DELTA],
        300,
        buffers.as_ptr(),
        0,
        0,
        null(),
        &raw mut event
    ));
    assert_eq!(finish(event), CL_SUCCESS);
    for (number, buffer) in buffers.iter().enumerate() {
        release(&[cl.add(number % 4, *buffer, 1, 16, &[])]);
    }
    cl.finish_all();
    for (number, buffer) in buffers.iter().enumerate() {
        let expected = [number as u32 + 1; 16];
        assert_eq!(cl.numbers((number + 1) % 4, *buffer, 16), expected);
    }
    release_memory(&buffers);
}
