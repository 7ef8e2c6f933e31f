//! Tests of maps: each buffer has one address, and bytes are fetched and sent as the flags say.

use std::ptr::{null, null_mut};

use crate::frames::opencl::*;

const SIZES: [usize; 3] = [64, 20 << 10, 3 << 20];

fn map(
    cl: &Fixture,
    buffer: cl_mem,
    flags: cl_map_flags,
    offset: usize,
    size: usize,
) -> &'static mut [u8] {
    let at = make!(clEnqueueMapBuffer(
        cl.queue,
        buffer,
        CL_TRUE,
        flags,
        offset,
        size,
        0,
        null(),
        null_mut()
    ));
    // SAFETY: the map gives `size` bytes; the tests let go of them before they unmap.
    unsafe { std::slice::from_raw_parts_mut(at.unwrap().cast(), size) }
}

fn unmap(cl: &Fixture, buffer: cl_mem, at: *mut u8) {
    ok!(clEnqueueUnmapMemObject(
        cl.queue,
        buffer,
        at.cast(),
        0,
        null(),
        null_mut()
    ));
}

#[test]
fn a_map_shows_the_buffer_and_an_unmap_sends_what_was_written() {
    let cl = Fixture::new();
    for size in SIZES {
        let buffer = cl.buffer_of(&pattern(1, size));
        let seen = map(&cl, buffer, CL_MAP_READ | CL_MAP_WRITE, 0, size);
        assert!(seen == pattern(1, size));
        seen[3] = 77;
        unmap(&cl, buffer, seen.as_mut_ptr());
        let mut expected = pattern(1, size);
        expected[3] = 77;
        assert!(cl.read(buffer, 0, size) == expected);
        // Maps a part without a fetch. The rest stays.
        let part = map(&cl, buffer, CL_MAP_WRITE_INVALIDATE_REGION, 16, 32);
        part.fill(5);
        unmap(&cl, buffer, part.as_mut_ptr());
        expected[16..48].fill(5);
        assert!(cl.read(buffer, 0, size) == expected);
        // A map for writing alone has the contents too.
        let part = map(&cl, buffer, CL_MAP_WRITE, 8, 48);
        assert!(part == &expected[8..56]);
        unmap(&cl, buffer, part.as_mut_ptr());
        assert!(cl.read(buffer, 0, size) == expected);
        ok!(clReleaseMemObject(buffer));
    }
}

#[test]
fn a_map_for_reading_keeps_what_was_written_to_a_map_around_it() {
    let cl = Fixture::new();
    for size in SIZES {
        for flags in [CL_MAP_WRITE, CL_MAP_WRITE_INVALIDATE_REGION] {
            let buffer = cl.buffer_of(&pattern(1, size));
            let written = map(&cl, buffer, flags, 0, size);
            written.fill(7);
            let seen = map(&cl, buffer, CL_MAP_READ, 8, size / 2);
            assert!(seen.iter().all(|byte| *byte == 7), "{size}");
            unmap(&cl, buffer, seen.as_mut_ptr());
            unmap(&cl, buffer, written.as_mut_ptr());
            assert!(
                cl.read(buffer, 0, size).iter().all(|byte| *byte == 7),
                "{size}"
            );
            ok!(clReleaseMemObject(buffer));
        }
    }
}

#[test]
fn a_map_for_reading_sends_nothing_back() {
    let cl = Fixture::new();
    for size in SIZES {
        let buffer = cl.buffer_of(&pattern(1, size));
        let seen = map(&cl, buffer, CL_MAP_READ, 0, size);
        // The buffer changes meanwhile: during a map for reading, kernels and other commands may do that.
        let bytes = pattern(2, size);
        cl.write(buffer, 0, &bytes);
        unmap(&cl, buffer, seen.as_mut_ptr());
        assert!(cl.read(buffer, 0, size) == bytes);
        ok!(clReleaseMemObject(buffer));
    }
}

#[test]
fn pointers_of_overlapping_maps_and_of_sub_buffers_agree() {
    let cl = Fixture::new();
    let size = 8192;
    let buffer = cl.buffer_of(&pattern(1, size));
    let region = cl_buffer_region {
        origin: 1024,
        size: 4096,
    };
    let part = make!(clCreateSubBuffer(
        buffer,
        0,
        CL_BUFFER_CREATE_TYPE_REGION,
        (&raw const region).cast()
    ))
    .unwrap();
    let whole = map(&cl, buffer, CL_MAP_READ, 0, size).as_mut_ptr();
    let later = map(&cl, buffer, CL_MAP_READ, 100, 10).as_mut_ptr();
    let within = map(&cl, part, CL_MAP_READ, 24, 8).as_mut_ptr();
    assert_eq!(whole.addr() % 4096, 0);
    assert_eq!(later.addr(), whole.addr() + 100);
    assert_eq!(within.addr(), whole.addr() + 1048);
    assert_eq!(mem_info::<cl_uint>(buffer, CL_MEM_MAP_COUNT), 2);
    assert_eq!(mem_info::<cl_uint>(part, CL_MEM_MAP_COUNT), 1);
    // An unmap must name the mapped object.
    let wrong = code!(clEnqueueUnmapMemObject(
        cl.queue,
        buffer,
        within.cast(),
        0,
        null(),
        null_mut()
    ));
    assert_eq!(wrong, CL_INVALID_VALUE);
    unmap(&cl, part, within);
    unmap(&cl, buffer, whole);
    unmap(&cl, buffer, later);
    let again = code!(clEnqueueUnmapMemObject(
        cl.queue,
        buffer,
        later.cast(),
        0,
        null(),
        null_mut()
    ));
    assert_eq!(again, CL_INVALID_VALUE);
    assert_eq!(mem_info::<cl_uint>(buffer, CL_MEM_MAP_COUNT), 0);
    ok!(clReleaseMemObject(part));
    ok!(clReleaseMemObject(buffer));
}

#[test]
fn two_maps_for_writing_do_not_overlap() {
    let cl = Fixture::new();
    let buffer = cl.buffer(0, 1024);
    let first = map(&cl, buffer, CL_MAP_WRITE, 0, 512).as_mut_ptr();
    for flags in [
        CL_MAP_WRITE,
        CL_MAP_READ | CL_MAP_WRITE,
        CL_MAP_WRITE_INVALIDATE_REGION,
    ] {
        let second = make!(clEnqueueMapBuffer(
            cl.queue,
            buffer,
            CL_TRUE,
            flags,
            511,
            2,
            0,
            null(),
            null_mut()
        ));
        assert_eq!(second, Err(CL_INVALID_OPERATION));
    }
    let beside = map(&cl, buffer, CL_MAP_WRITE, 512, 2).as_mut_ptr();
    unmap(&cl, buffer, beside);
    unmap(&cl, buffer, first);
    let now = map(&cl, buffer, CL_MAP_WRITE, 0, 1024).as_mut_ptr();
    unmap(&cl, buffer, now);
    cl.finish();
    ok!(clReleaseMemObject(buffer));
}

#[test]
fn a_map_of_the_applications_own_memory_is_at_that_memory_and_fresh() {
    let cl = Fixture::new();
    for size in SIZES {
        let mut own = pattern(1, size);
        let host = own.as_mut_ptr();
        let buffer = make!(clCreateBuffer(
            cl.context,
            CL_MEM_USE_HOST_PTR,
            size,
            host.cast()
        ))
        .unwrap();
        cl.write(buffer, 0, &pattern(2, size));
        let seen = map(&cl, buffer, CL_MAP_READ, 7, size - 7);
        assert_eq!(seen.as_ptr().addr(), host.addr() + 7);
        assert!(seen == &pattern(2, size)[7..]);
        unmap(&cl, buffer, seen.as_mut_ptr());
        let seen = map(&cl, buffer, CL_MAP_WRITE_INVALIDATE_REGION, 0, size);
        seen.copy_from_slice(&pattern(3, size));
        unmap(&cl, buffer, seen.as_mut_ptr());
        assert!(cl.read(buffer, 0, size) == pattern(3, size));
        ok!(clReleaseMemObject(buffer));
    }
}

#[test]
fn a_map_of_the_applications_constant_writes_nothing_there() {
    static CONSTANT: [u8; 3 << 20] = [9; 3 << 20];
    let cl = Fixture::new();
    for size in SIZES {
        let host = CONSTANT.as_ptr().cast_mut();
        let flags = CL_MEM_USE_HOST_PTR | CL_MEM_READ_ONLY;
        let buffer = make!(clCreateBuffer(cl.context, flags, size, host.cast())).unwrap();
        for _ in 0..2 {
            let seen = map(&cl, buffer, CL_MAP_READ, 7, size - 7);
            assert_eq!(seen.as_ptr().addr(), host.addr() + 7);
            assert!(seen.iter().all(|byte| *byte == 9));
            unmap(&cl, buffer, seen.as_mut_ptr());
        }
        cl.finish();
        assert!(cl.read(buffer, 0, size) == CONSTANT[..size]);
        ok!(clReleaseMemObject(buffer));
    }
}

// Writes to a buffer over the application's memory, releases the buffer, and reuses that memory at once. `part`: through a
// part of the buffer, and the whole is released before the part.
fn lend_and_take_back(cl: &Fixture, size: usize, part: bool) {
    let length = size.max(64 << 10);
    // SAFETY: fresh pages of this test's own.
    let own = unsafe {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        libc::mmap(null_mut(), length, access, flags, -1, 0)
    };
    assert_ne!(own, libc::MAP_FAILED);
    let mut buffer = make!(clCreateBuffer(cl.context, CL_MEM_USE_HOST_PTR, size, own)).unwrap();
    if part {
        let whole = cl_buffer_region { origin: 0, size };
        let (kind, region) = (CL_BUFFER_CREATE_TYPE_REGION, (&raw const whole).cast());
        let of_it = make!(clCreateSubBuffer(buffer, 0, kind, region)).unwrap();
        ok!(clReleaseMemObject(buffer));
        buffer = of_it;
    }
    let seen = map(cl, buffer, CL_MAP_WRITE_INVALIDATE_REGION, 0, size);
    seen.fill(3);
    unmap(cl, buffer, seen.as_mut_ptr());
    ok!(clReleaseMemObject(buffer));
    // SAFETY: nobody holds a reference into it.
    assert_eq!(unsafe { libc::munmap(own, length) }, 0);
}

#[test]
fn memory_is_the_applications_again_with_the_last_reference() {
    let cl = Fixture::new();
    for size in [64, 48 << 10, 3 << 20] {
        for _ in 0..20 {
            lend_and_take_back(&cl, size, false);
            lend_and_take_back(&cl, size, true);
        }
    }
    cl.finish();
}

#[test]
fn a_release_waits_for_nothing_of_the_applications() {
    let cl = Fixture::new();
    let size = 3 << 20;
    let mut own = pattern(1, size);
    let flags = CL_MEM_USE_HOST_PTR;
    let host = own.as_mut_ptr().cast();
    let buffer = make!(clCreateBuffer(cl.context, flags, size, host)).unwrap();
    let seen = map(&cl, buffer, CL_MAP_WRITE_INVALIDATE_REGION, 0, size);
    let gate = cl.user_event();
    ok!(clEnqueueUnmapMemObject(
        cl.queue,
        buffer,
        seen.as_mut_ptr().cast(),
        1,
        &raw const gate,
        null_mut()
    ));
    ok!(clReleaseMemObject(buffer));
    ok!(clSetUserEventStatus(gate, CL_COMPLETE));
    cl.finish();
    ok!(clReleaseEvent(gate));
}

#[test]
fn a_map_that_does_not_block_gives_its_pointer_at_once() {
    let cl = Fixture::new();
    for size in SIZES {
        let buffer = cl.buffer_of(&pattern(1, size));
        let gate = cl.user_event();
        let mut mapped = null_mut();
        let at = make!(clEnqueueMapBuffer(
            cl.queue,
            buffer,
            CL_FALSE,
            CL_MAP_READ | CL_MAP_WRITE,
            0,
            size,
            1,
            &raw const gate,
            &raw mut mapped
        ))
        .unwrap();
        assert_eq!(command_of(mapped), CL_COMMAND_MAP_BUFFER);
        assert!(status_of(mapped) > CL_COMPLETE);
        ok!(clSetUserEventStatus(gate, CL_COMPLETE));
        ok!(clWaitForEvents(1, &raw const mapped));
        // SAFETY: mapped, `size` bytes.
        let seen = unsafe { std::slice::from_raw_parts_mut(at.cast::<u8>(), size) };
        assert!(seen == pattern(1, size));
        seen.copy_from_slice(&pattern(2, size));
        let mut unmapped = null_mut();
        ok!(clEnqueueUnmapMemObject(
            cl.queue,
            buffer,
            at,
            0,
            null(),
            &raw mut unmapped
        ));
        assert_eq!(command_of(unmapped), CL_COMMAND_UNMAP_MEM_OBJECT);
        ok!(clWaitForEvents(1, &raw const unmapped));
        assert!(cl.read(buffer, 0, size) == pattern(2, size));
        for event in [gate, mapped, unmapped] {
            ok!(clReleaseEvent(event));
        }
        ok!(clReleaseMemObject(buffer));
    }
}

#[test]
fn a_failed_map_sends_nothing_when_it_is_unmapped() {
    let cl = Fixture::new();
    for size in SIZES {
        let buffer = cl.buffer_of(&pattern(1, size));
        for set_first in [true, false] {
            let gate = cl.user_event();
            let mut mapped = null_mut();
            let at = make!(clEnqueueMapBuffer(
                cl.queue,
                buffer,
                CL_FALSE,
                CL_MAP_WRITE,
                0,
                size,
                1,
                &raw const gate,
                &raw mut mapped
            ))
            .unwrap();
            if set_first {
                ok!(clSetUserEventStatus(gate, -3));
                let _ = code!(clWaitForEvents(1, &raw const mapped));
                assert!(status_of(mapped) < 0);
                // The program has written nothing through it.
                let seen = map(&cl, buffer, CL_MAP_READ, 0, size);
                assert!(seen == pattern(1, size));
                unmap(&cl, buffer, seen.as_mut_ptr());
            }
            ok!(clEnqueueUnmapMemObject(
                cl.queue,
                buffer,
                at,
                0,
                null(),
                null_mut()
            ));
            if !set_first {
                ok!(clSetUserEventStatus(gate, -3));
            }
            let _ = code!(clFinish(cl.queue));
            assert!(cl.read(buffer, 0, size) == pattern(1, size));
            for event in [gate, mapped] {
                ok!(clReleaseEvent(event));
            }
        }
        assert_eq!(mem_info::<cl_uint>(buffer, CL_MEM_MAP_COUNT), 0);
        ok!(clReleaseMemObject(buffer));
    }
}

#[test]
fn a_mapped_pointer_serves_reads_and_writes() {
    let cl = Fixture::new();
    for size in SIZES {
        let (one, two) = (
            cl.buffer_of(&pattern(1, size)),
            cl.buffer_of(&pattern(2, size)),
        );
        let at = map(&cl, one, CL_MAP_READ | CL_MAP_WRITE, 0, size).as_mut_ptr();
        // Reads into the map and unmaps without a wait. The read bytes must arrive.
        ok!(clEnqueueReadBuffer(
            cl.queue,
            two,
            CL_FALSE,
            0,
            size,
            at.cast(),
            0,
            null(),
            null_mut()
        ));
        unmap(&cl, one, at);
        assert!(cl.read(one, 0, size) == pattern(2, size));
        // Maps without a wait, and writes from the map.
        let three = cl.buffer(0, size);
        let at = make!(clEnqueueMapBuffer(
            cl.queue,
            one,
            CL_FALSE,
            CL_MAP_READ,
            0,
            size,
            0,
            null(),
            null_mut()
        ))
        .unwrap();
        ok!(clEnqueueWriteBuffer(
            cl.queue,
            three,
            CL_FALSE,
            0,
            size,
            at,
            0,
            null(),
            null_mut()
        ));
        ok!(clEnqueueUnmapMemObject(
            cl.queue,
            one,
            at,
            0,
            null(),
            null_mut()
        ));
        assert!(cl.read(three, 0, size) == pattern(2, size));
        for buffer in [one, two, three] {
            ok!(clReleaseMemObject(buffer));
        }
    }
}

#[test]
fn pages_go_back_when_nothing_is_mapped() {
    let cl = Fixture::new();
    let size = 16 << 20;
    // More memory than a shadow may keep, of which little is touched.
    let buffer = cl.buffer(0, 300 << 20);
    let seen = map(&cl, buffer, CL_MAP_WRITE_INVALIDATE_REGION, 0, size);
    seen.fill(1);
    let at = seen.as_mut_ptr();
    assert!(resident(at, size) >= size);
    unmap(&cl, buffer, at);
    cl.finish();
    assert_eq!(resident(at, size), 0);
    assert!(cl.read(buffer, 0, size).iter().all(|&byte| byte == 1));
    ok!(clReleaseMemObject(buffer));
}

/// Number of resident bytes of a mapping.
fn resident(at: *mut u8, size: usize) -> usize {
    let mut pages = vec![0u8; size / 4096];
    // SAFETY: asks about a mapping that is there, with room for an answer a page.
    let done = unsafe { libc::mincore(at.cast(), size, pages.as_mut_ptr()) };
    assert_eq!(done, 0);
    pages.iter().filter(|&&page| page & 1 == 1).count() * 4096
}
