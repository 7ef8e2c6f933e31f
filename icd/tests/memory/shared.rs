//! Tests that large transfers go through shared memory if the daemon is on this host, with the same results.

use std::ptr::{null, null_mut};

use causeway_lane::carried_bytes;

use crate::frames::opencl::*;

#[test]
fn large_transfers_go_through_shared_memory() {
    own_process!();
    let cl = Fixture::new();
    // Below and above the size that bypasses the caches.
    for size in [100_000, 1 << 20, (9 << 20) + 4_321] {
        let bytes = pattern(3, size);
        let before = carried_bytes();
        let buffer = make!(clCreateBuffer(
            cl.context,
            CL_MEM_READ_WRITE,
            size,
            null_mut()
        ))
        .unwrap();
        ok!(clEnqueueWriteBuffer(
            cl.queue,
            buffer,
            CL_TRUE,
            0,
            size,
            bytes.as_ptr().cast(),
            0,
            null(),
            null_mut()
        ));
        assert!(carried_bytes() - before >= size as u64);
        let mut got = vec![0u8; size];
        ok!(clEnqueueReadBuffer(
            cl.queue,
            buffer,
            CL_TRUE,
            0,
            size,
            got.as_mut_ptr().cast(),
            0,
            null(),
            null_mut()
        ));
        assert!(carried_bytes() - before >= 2 * size as u64);
        assert!(got == bytes);
        ok!(clReleaseMemObject(buffer));
    }
    let maps = std::fs::read_to_string("/proc/self/maps").expect("procfs");
    assert!(maps.contains("causeway-lane"));
}
