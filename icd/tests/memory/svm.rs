//! Tests of coarse-grain SVM: one address for an allocation here and on the node.

use std::ptr::{null, null_mut};

use crate::allocations::*;
use crate::frames::opencl::*;
use crate::frames::programs::*;

const SIZES: [usize; 3] = [64, 20 << 10, 3 << 20];

#[test]
fn the_device_has_coarse_buffers_and_nothing_finer() {
    let cl = Fixture::new();
    let mut capabilities: cl_device_svm_capabilities = 77;
    ok!(clGetDeviceInfo(
        cl.device,
        CL_DEVICE_SVM_CAPABILITIES,
        8,
        (&raw mut capabilities).cast(),
        null_mut()
    ));
    assert_eq!(capabilities, CL_DEVICE_SVM_COARSE_GRAIN_BUFFER);
    let refused = [
        (CL_MEM_SVM_FINE_GRAIN_BUFFER, 64, 0),
        (CL_MEM_SVM_ATOMICS, 64, 0),
        (CL_MEM_USE_HOST_PTR, 64, 0),
        (CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY, 64, 0),
        (CL_MEM_READ_WRITE, 0, 0),
        (CL_MEM_READ_WRITE, 1 << 60, 0),
        (CL_MEM_READ_WRITE, 64, 3),
        (CL_MEM_READ_WRITE, 64, 1 << 30),
    ];
    for (flags, size, alignment) in refused {
        let at = code!(clSVMAlloc(cl.context, flags, size, alignment));
        assert!(at.is_null(), "{flags:#x} {size} {alignment}");
    }
    assert!(code!(clSVMAlloc(null_mut(), 0, 64, 0)).is_null());
    // A free of NULL is no error.
    free(&cl, null_mut());
    free(&cl, 4096 as *mut u8);
}

#[test]
fn a_map_shows_what_was_copied_in_and_an_unmap_sends_what_was_written() {
    let cl = Fixture::new();
    for size in SIZES {
        let at = allocate(&cl, size);
        assert_eq!(copy(&cl, at, pattern(1, size).as_ptr(), size), CL_SUCCESS);
        let seen = map(&cl, CL_MAP_READ | CL_MAP_WRITE, at, size);
        assert!(seen == pattern(1, size));
        seen[5] = 77;
        unmap(&cl, at);
        let mut expected = pattern(1, size);
        expected[5] = 77;
        assert!(fetch(&cl, at, size) == expected);
        // SAFETY: inside of the allocation.
        let inner = unsafe { at.add(16) };
        map(&cl, CL_MAP_WRITE_INVALIDATE_REGION, inner, 32).fill(9);
        unmap(&cl, inner);
        expected[16..48].fill(9);
        assert!(fetch(&cl, at, size) == expected);
        free(&cl, at);
    }
}

#[test]
fn addresses_are_the_same_here_and_in_kernels() {
    let cl = Fixture::new();
    let program = built(&cl, SOURCE, "");
    let kernel = kernel(program, "where_is");
    for size in SIZES {
        let at = allocate(&cl, size);
        // SAFETY: inside of the allocation.
        for place in [at, unsafe { at.add(24) }] {
            assert_eq!(set_pointer(kernel, 0, place), CL_SUCCESS);
            assert_eq!(launch(cl.queue, kernel, 1), CL_SUCCESS);
            let told = fetch(&cl, place, 8);
            assert_eq!(told, (place.addr() as u64).to_ne_bytes());
        }
        free(&cl, at);
    }
    ok!(clReleaseKernel(kernel));
    ok!(clReleaseProgram(program));
}

#[test]
fn a_kernel_follows_a_list_through_several_allocations() {
    let cl = Fixture::new();
    let program = built(&cl, SOURCE, "");
    let kernel = kernel(program, "sum");
    let nodes: Vec<*mut Node> = (0..8)
        .map(|_| allocate(&cl, size_of::<Node>()).cast())
        .collect();
    for (at, node) in nodes.iter().enumerate() {
        map(&cl, CL_MAP_WRITE, node.cast(), size_of::<Node>());
        let next = nodes.get(at + 1).copied().unwrap_or(null_mut());
        let value = 10 + at as i32;
        // SAFETY: mapped for writing, and large enough.
        unsafe { node.write(Node { next, value }) };
        unmap(&cl, node.cast());
    }
    let total = allocate(&cl, 4);
    let all: Vec<*mut u8> = nodes.iter().map(|node| node.cast()).collect();
    assert_eq!(set_pointer(kernel, 0, all[0]), CL_SUCCESS);
    assert_eq!(set_pointer(kernel, 1, total), CL_SUCCESS);
    assert_eq!(reaches(kernel, &all[1..]), CL_SUCCESS);
    assert_eq!(launch(cl.queue, kernel, 1), CL_SUCCESS);
    let sum: i32 = (10..18).sum();
    assert_eq!(fetch(&cl, total, 4), sum.to_ne_bytes());
    // A clone reaches the same memory. An empty set replaces the earlier one.
    let twin = make!(clCloneKernel(kernel)).unwrap();
    assert_eq!(reaches(kernel, &[]), CL_SUCCESS);
    assert_eq!(launch(cl.queue, twin, 1), CL_SUCCESS);
    assert_eq!(fetch(&cl, total, 4), sum.to_ne_bytes());
    for at in all.into_iter().chain([total]) {
        free(&cl, at);
    }
    for kernel in [kernel, twin] {
        ok!(clReleaseKernel(kernel));
    }
    ok!(clReleaseProgram(program));
}

#[test]
fn the_host_follows_a_list_that_a_kernel_made() {
    let cl = Fixture::new();
    let program = built(&cl, SOURCE, "");
    let kernel = kernel(program, "chain");
    let count = 5000;
    let size = count * size_of::<Node>();
    let at = allocate(&cl, size);
    assert_eq!(set_pointer(kernel, 0, at), CL_SUCCESS);
    assert_eq!(set(kernel, 1, &(count as i32)), CL_SUCCESS);
    assert_eq!(launch(cl.queue, kernel, 1), CL_SUCCESS);
    map(&cl, CL_MAP_READ, at, size);
    let (mut node, mut seen) = (at.cast::<Node>().cast_const(), 0);
    while !node.is_null() {
        // SAFETY: the kernel's pointers lead from node to node of the mapped allocation.
        let Node { next, value } = unsafe { node.read() };
        assert_eq!(value, 3 * seen);
        (node, seen) = (next, seen + 1);
    }
    assert_eq!(seen as usize, count);
    unmap(&cl, at);
    free(&cl, at);
    ok!(clReleaseKernel(kernel));
    ok!(clReleaseProgram(program));
}

#[test]
fn copies_and_fills_go_between_allocations_and_the_programs_memory() {
    let cl = Fixture::new();
    for size in SIZES {
        let (one, other) = (allocate(&cl, size), allocate(&cl, size));
        assert_eq!(copy(&cl, one, pattern(1, size).as_ptr(), size), CL_SUCCESS);
        assert_eq!(copy(&cl, other, one, size), CL_SUCCESS);
        assert!(fetch(&cl, other, size) == pattern(1, size));
        let word = 0x0102_0304u32;
        let mut filled = null_mut();
        ok!(clEnqueueSVMMemFill(
            cl.queue,
            other.wrapping_add(8).cast(),
            (&raw const word).cast(),
            4,
            16,
            0,
            null(),
            &raw mut filled
        ));
        assert_eq!(command_of(filled), CL_COMMAND_SVM_MEMFILL);
        ok!(clReleaseEvent(filled));
        let mut expected = pattern(1, size);
        for bytes in expected[8..24].chunks_exact_mut(4) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        assert!(fetch(&cl, other, size) == expected);
        let (from, mut to) = (pattern(2, size), vec![0; size]);
        assert_eq!(copy(&cl, to.as_mut_ptr(), from.as_ptr(), size), CL_SUCCESS);
        assert!(to == from);
        free(&cl, one);
        free(&cl, other);
    }
}

#[test]
fn a_copy_within_the_programs_memory_comes_behind_what_brings_its_bytes() {
    let cl = Fixture::new();
    let size = 3 << 20;
    let at = allocate(&cl, size);
    assert_eq!(copy(&cl, at, pattern(3, size).as_ptr(), size), CL_SUCCESS);
    let (mut first, mut second) = (vec![0; size], vec![0; size]);
    ok!(clEnqueueSVMMemcpy(
        cl.queue,
        CL_FALSE,
        first.as_mut_ptr().cast(),
        at.cast(),
        size,
        0,
        null(),
        null_mut()
    ));
    assert_eq!(
        copy(&cl, second.as_mut_ptr(), first.as_ptr(), size),
        CL_SUCCESS
    );
    assert!(second == pattern(3, size));
    cl.finish();
    free(&cl, at);
}

// A copy within the program's memory takes place when its end is handled, in the order of ends. By then the bytes of a later
// read had come by lanes once, while an earlier large read was still on its way.
#[test]
fn a_copy_within_the_programs_memory_comes_before_what_replaces_its_bytes() {
    let cl = Fixture::new();
    let (large, small) = (64 << 20, 256 << 10);
    let first = cl.buffer(0, large);
    let second = cl.buffer_of(&pattern(2, small));
    let mut elsewhere = vec![0_u8; large];
    for _ in 0..5 {
        let (mut from, mut to) = (pattern(3, small), vec![0_u8; small]);
        let read = |buffer, into: &mut [u8]| {
            let (size, at) = (into.len(), into.as_mut_ptr().cast());
            let queue = cl.queue;
            let none = (null(), null_mut());
            ok!(clEnqueueReadBuffer(
                queue, buffer, CL_FALSE, 0, size, at, 0, none.0, none.1
            ));
        };
        read(first, &mut elsewhere);
        let (target, source) = (to.as_mut_ptr().cast(), from.as_ptr().cast());
        ok!(clEnqueueSVMMemcpy(
            cl.queue,
            CL_FALSE,
            target,
            source,
            small,
            0,
            null(),
            null_mut()
        ));
        read(second, &mut from);
        ok!(clFinish(cl.queue));
        assert!(
            to == pattern(3, small),
            "the copy took bytes of the later read"
        );
        assert!(from == pattern(2, small));
    }
    ok!(clReleaseMemObject(first));
    ok!(clReleaseMemObject(second));
}

#[test]
fn what_is_wrong_is_refused() {
    let cl = Fixture::new();
    let program = built(&cl, SOURCE, "-cl-kernel-arg-info");
    let kernel = kernel(program, "put");
    let at = allocate(&cl, 64);
    let outside = pattern(1, 256);
    let stranger = outside.as_ptr().cast_mut();
    assert_eq!(try_map(&cl, CL_MAP_READ, null_mut(), 8), CL_INVALID_VALUE);
    assert_eq!(try_map(&cl, CL_MAP_READ, at, 0), CL_INVALID_VALUE);
    assert_eq!(try_map(&cl, CL_MAP_READ, at, 65), CL_INVALID_VALUE);
    assert_eq!(try_map(&cl, CL_MAP_READ, stranger, 8), CL_INVALID_VALUE);
    assert_eq!(try_map(&cl, 1 << 9, at, 8), CL_INVALID_VALUE);
    let unmap = |at: *mut u8| {
        code!(clEnqueueSVMUnmap(
            cl.queue,
            at.cast(),
            0,
            null(),
            null_mut()
        ))
    };
    assert_eq!(unmap(null_mut()), CL_INVALID_VALUE);
    assert_eq!(unmap(at), CL_INVALID_VALUE);
    assert_eq!(copy(&cl, at, null(), 8), CL_INVALID_VALUE);
    assert_eq!(copy(&cl, null_mut(), at, 8), CL_INVALID_VALUE);
    // SAFETY: inside of the allocation.
    let inner = unsafe { at.add(8) };
    assert_eq!(copy(&cl, inner, at, 16), CL_MEM_COPY_OVERLAP);
    assert_eq!(copy(&cl, inner, stranger, 60), CL_INVALID_VALUE);
    let fill = |at: *mut u8, length, size| {
        code!(clEnqueueSVMMemFill(
            cl.queue,
            at.cast(),
            stranger.cast(),
            length,
            size,
            0,
            null(),
            null_mut()
        ))
    };
    assert_eq!(fill(null_mut(), 4, 8), CL_INVALID_VALUE);
    assert_eq!(fill(at.wrapping_add(2), 4, 8), CL_INVALID_VALUE);
    assert_eq!(fill(at, 3, 9), CL_INVALID_VALUE);
    assert_eq!(fill(at, 4, 10), CL_INVALID_VALUE);
    assert_eq!(fill(at, 4, 128), CL_INVALID_VALUE);
    assert_eq!(set_pointer(kernel, 9, at), CL_INVALID_ARG_INDEX);
    assert_eq!(set_pointer(kernel, 0, stranger), CL_INVALID_ARG_VALUE);
    assert_eq!(set_pointer(kernel, 1, at), CL_INVALID_ARG_VALUE);
    assert_eq!(reaches(kernel, &[stranger]), CL_INVALID_VALUE);
    let exec_info = |name, size, value: *const cl_bool| {
        code!(clSetKernelExecInfo(kernel, name, size, value.cast()))
    };
    let system = CL_KERNEL_EXEC_INFO_SVM_FINE_GRAIN_SYSTEM;
    assert_eq!(exec_info(system, 4, &CL_TRUE), CL_INVALID_OPERATION);
    assert_eq!(exec_info(system, 4, &CL_FALSE), CL_SUCCESS);
    assert_eq!(exec_info(system, 4, null()), CL_INVALID_VALUE);
    assert_eq!(exec_info(0x4242, 4, &CL_TRUE), CL_INVALID_VALUE);
    let pointers = CL_KERNEL_EXEC_INFO_SVM_PTRS;
    assert_eq!(exec_info(pointers, 8, null()), CL_INVALID_VALUE);
    assert_eq!(exec_info(pointers, 4, &CL_TRUE), CL_INVALID_VALUE);
    let migrate = |count, list: *mut *const c_void, sizes: &[usize], flags| {
        let sizes = sizes.as_ptr();
        code!(clEnqueueSVMMigrateMem(
            cl.queue,
            count,
            list,
            sizes,
            flags,
            0,
            null(),
            null_mut()
        ))
    };
    let mut list = [at.cast_const().cast()];
    let list = list.as_mut_ptr();
    assert_eq!(migrate(0, list, &[0], 0), CL_INVALID_VALUE);
    assert_eq!(migrate(1, null_mut(), &[0], 0), CL_INVALID_VALUE);
    assert_eq!(migrate(1, list, &[65], 0), CL_INVALID_VALUE);
    assert_eq!(migrate(1, list, &[0], 1 << 9), CL_INVALID_VALUE);
    assert_eq!(migrate(1, list, &[0], 0), CL_SUCCESS);
    let undefined = CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED;
    assert_eq!(migrate(1, list, &[16], undefined), CL_SUCCESS);
    cl.finish();
    free(&cl, at);
    assert_eq!(set_pointer(kernel, 0, at), CL_INVALID_ARG_VALUE);
    ok!(clReleaseKernel(kernel));
    ok!(clReleaseProgram(program));
}

#[test]
fn null_is_an_argument() {
    let cl = Fixture::new();
    let program = built(&cl, SOURCE, "");
    let kernel = kernel(program, "is_null");
    let answer = allocate(&cl, 4);
    assert_eq!(set_pointer(kernel, 1, answer), CL_SUCCESS);
    for (at, expected) in [(null_mut(), 1i32), (answer, 0)] {
        assert_eq!(set_pointer(kernel, 0, at), CL_SUCCESS);
        assert_eq!(launch(cl.queue, kernel, 1), CL_SUCCESS);
        assert_eq!(fetch(&cl, answer, 4), expected.to_ne_bytes());
    }
    free(&cl, answer);
    ok!(clReleaseKernel(kernel));
    ok!(clReleaseProgram(program));
}

#[test]
fn a_buffer_over_an_allocation_has_its_bytes() {
    let cl = Fixture::new();
    let program = built(&cl, SOURCE, "");
    let kernel = kernel(program, "put");
    let size = 3 << 20;
    let at = allocate(&cl, size);
    assert_eq!(copy(&cl, at, pattern(1, size).as_ptr(), size), CL_SUCCESS);
    for offset in [0, 24, 1 << 20] {
        // SAFETY: inside of the allocation.
        let place: *mut c_void = unsafe { at.add(offset) }.cast();
        let length = size - offset;
        let make = |length| {
            make!(clCreateBuffer(
                cl.context,
                CL_MEM_USE_HOST_PTR,
                length,
                place
            ))
        };
        assert_eq!(make(length + 1).unwrap_err(), CL_INVALID_BUFFER_SIZE);
        let buffer = make(length).unwrap();
        assert_eq!(
            mem_info::<cl_bool>(buffer, CL_MEM_USES_SVM_POINTER),
            CL_TRUE
        );
        assert_eq!(mem_info::<usize>(buffer, CL_MEM_HOST_PTR), place.addr());
        assert_eq!(mem_info::<usize>(buffer, CL_MEM_ASSOCIATED_MEMOBJECT), 0);
        assert_eq!(mem_info::<usize>(buffer, CL_MEM_OFFSET), 0);
        let before = fetch(&cl, place.cast(), length);
        assert!(cl.read(buffer, 0, length) == before);
        // Kernels, writes and maps of either object see the same bytes.
        let region = cl_buffer_region {
            origin: 4096,
            size: 64,
        };
        let part = make!(clCreateSubBuffer(
            buffer,
            0,
            CL_BUFFER_CREATE_TYPE_REGION,
            (&raw const region).cast()
        ))
        .unwrap();
        assert_eq!(mem_info::<cl_bool>(part, CL_MEM_USES_SVM_POINTER), CL_TRUE);
        assert_eq!(set(kernel, 0, &part), CL_SUCCESS);
        assert_eq!(set(kernel, 1, &(offset as i32 + 5)), CL_SUCCESS);
        assert_eq!(launch(cl.queue, kernel, 16), CL_SUCCESS);
        cl.write(buffer, 8, &[1, 2, 3]);
        let mapped = make!(clEnqueueMapBuffer(
            cl.queue,
            buffer,
            CL_TRUE,
            CL_MAP_READ | CL_MAP_WRITE,
            4096,
            128,
            0,
            null(),
            null_mut()
        ))
        .unwrap();
        assert_eq!(mapped.addr(), place.addr() + 4096);
        // SAFETY: mapped.
        unsafe { mapped.cast::<u8>().add(100).write(77) };
        ok!(clEnqueueUnmapMemObject(
            cl.queue,
            buffer,
            mapped,
            0,
            null(),
            null_mut()
        ));
        let mut expected = before;
        expected[4096..4160].copy_from_slice(&(offset as i32 + 5).to_ne_bytes().repeat(16));
        expected[8..11].copy_from_slice(&[1, 2, 3]);
        expected[4196] = 77;
        let seen = map(&cl, CL_MAP_READ, place.cast(), length);
        assert!(seen == expected);
        unmap(&cl, place.cast());
        ok!(clReleaseMemObject(part));
        ok!(clReleaseMemObject(buffer));
    }
    free(&cl, at);
    ok!(clReleaseKernel(kernel));
    ok!(clReleaseProgram(program));
}

#[test]
fn many_allocations_live_side_by_side() {
    let cl = Fixture::new();
    let all: Vec<*mut u8> = (0..200).map(|at| allocate(&cl, 1 + 37 * at)).collect();
    for (seed, at) in all.iter().enumerate() {
        let bytes = pattern(seed, 1 + 37 * seed);
        assert_eq!(copy(&cl, *at, bytes.as_ptr(), bytes.len()), CL_SUCCESS);
    }
    for (seed, at) in all.iter().enumerate() {
        let length = 1 + 37 * seed;
        assert!(fetch(&cl, *at, length) == pattern(seed, length));
        free(&cl, *at);
    }
}

/// Enqueues a migration to the host. Returns its event.
fn migrate(cl: &Fixture, at: *mut u8, size: usize) -> cl_event {
    let pointer: *const std::ffi::c_void = at.cast_const().cast();
    let mut event = null_mut();
    ok!(clEnqueueSVMMigrateMem(
        cl.queue,
        1,
        (&raw const pointer).cast_mut(),
        &raw const size,
        CL_MIGRATE_MEM_OBJECT_HOST,
        0,
        null(),
        &raw mut event
    ));
    event
}

/// Migrates to the host, and waits for the event alone.
fn migrate_to_host(cl: &Fixture, at: *mut u8, size: usize) {
    let event = migrate(cl, at, size);
    ok!(clWaitForEvents(1, &raw const event));
    ok!(clReleaseEvent(event));
}

/// Returns the program's bytes, without a map.
fn here(at: *mut u8, size: usize) -> Vec<u8> {
    // SAFETY: of an allocation, whose bytes nothing writes meanwhile.
    unsafe { std::slice::from_raw_parts(at, size) }.to_vec()
}

#[test]
fn a_migration_to_the_host_brings_the_bytes_without_a_map() {
    let cl = Fixture::new();
    for size in SIZES {
        let at = allocate(&cl, size);
        assert_eq!(copy(&cl, at, pattern(1, size).as_ptr(), size), CL_SUCCESS);
        // A size of 0 means the whole allocation.
        migrate_to_host(&cl, at, 0);
        assert!(here(at, size) == pattern(1, size), "{size}");
        // Migrates a part, after a map of another part.
        assert_eq!(copy(&cl, at, pattern(2, size).as_ptr(), size), CL_SUCCESS);
        map(&cl, CL_MAP_READ, at, 8);
        unmap(&cl, at);
        // SAFETY: inside of the allocation.
        migrate_to_host(&cl, unsafe { at.add(16) }, 32);
        assert_eq!(here(at, 48)[16..], pattern(2, size)[16..48]);
        assert!(here(at, size)[48..] == pattern(1, size)[48..], "{size}");
        free(&cl, at);
    }
}

fn svm_fill(cl: &Fixture, at: *mut u8, value: u8, size: usize) {
    let value = (&raw const value).cast();
    ok!(clEnqueueSVMMemFill(
        cl.queue,
        at.cast(),
        value,
        1,
        size,
        0,
        null(),
        null_mut()
    ));
}

#[test]
fn a_map_behind_a_migration_shows_what_came_between() {
    let cl = Fixture::new();
    for size in SIZES {
        let at = allocate(&cl, size);
        for round in 0..20 {
            svm_fill(&cl, at, 2 * round + 1, size);
            ok!(clReleaseEvent(migrate(&cl, at, size)));
            svm_fill(&cl, at, 2 * round + 2, size);
            let seen = map(&cl, CL_MAP_READ, at, size);
            assert!(seen.iter().all(|byte| *byte == 2 * round + 2), "{size}");
            unmap(&cl, at);
        }
        free(&cl, at);
    }
}

#[test]
fn a_second_migration_brings_its_bytes_whatever_was_mapped_before_it() {
    let cl = Fixture::new();
    for size in SIZES {
        let at = allocate(&cl, size);
        for round in 0..20 {
            svm_fill(&cl, at, 2 * round + 1, size);
            ok!(clReleaseEvent(migrate(&cl, at, size)));
            ok!(clEnqueueSVMMap(
                cl.queue,
                CL_FALSE,
                CL_MAP_WRITE,
                at.cast(),
                size,
                0,
                null(),
                null_mut()
            ));
            unmap(&cl, at);
            svm_fill(&cl, at, 2 * round + 2, size);
            ok!(clReleaseEvent(migrate(&cl, at, size)));
            cl.finish();
            assert!(
                here(at, size).iter().all(|byte| *byte == 2 * round + 2),
                "{size}"
            );
        }
        free(&cl, at);
    }
}

#[test]
fn a_migration_to_the_host_leaves_alone_what_the_program_writes() {
    let cl = Fixture::new();
    let other = cl.another_queue(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    for size in SIZES {
        let at = allocate(&cl, size);
        assert_eq!(copy(&cl, at, pattern(1, size).as_ptr(), size), CL_SUCCESS);
        let written = map(&cl, CL_MAP_WRITE, at, 16);
        written.fill(9);
        migrate_to_host(&cl, at, size);
        let mut expected = pattern(1, size);
        expected[..16].fill(9);
        assert!(here(at, size) == expected, "{size}");
        unmap(&cl, at);
        assert!(fetch(&cl, at, size) == expected);
        // This migration is withheld while the program maps and writes elsewhere.
        let gate = cl.user_event();
        let pointer: *const std::ffi::c_void = at.cast_const().cast();
        ok!(clEnqueueSVMMigrateMem(
            other,
            1,
            (&raw const pointer).cast_mut(),
            &raw const size,
            CL_MIGRATE_MEM_OBJECT_HOST,
            1,
            &raw const gate,
            null_mut()
        ));
        let written = map(&cl, CL_MAP_WRITE, at, 32);
        written.fill(7);
        ok!(clSetUserEventStatus(gate, CL_COMPLETE));
        ok!(clFinish(other));
        expected[..32].fill(7);
        assert!(here(at, size) == expected, "{size}");
        unmap(&cl, at);
        assert!(fetch(&cl, at, size) == expected);
        ok!(clReleaseEvent(gate));
        free(&cl, at);
    }
    ok!(clReleaseCommandQueue(other));
}
