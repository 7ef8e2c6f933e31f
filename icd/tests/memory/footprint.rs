//! Tests that large transfers cost neither side memory beyond the buffer and the application's own.

use std::fs;
use std::ptr::{null, null_mut};

use crate::frames::opencl::*;

const SIZE: usize = 160 << 20;
const ALLOWED: usize = 64 << 20;

/// Returns a line of `/proc/self/status`, in bytes.
fn status(name: &str) -> usize {
    let status = fs::read_to_string("/proc/self/status").expect("procfs");
    let line = status
        .lines()
        .find(|line| line.starts_with(name))
        .expect("the line");
    let kib: usize = line
        .split_whitespace()
        .nth(1)
        .and_then(|value| value.parse().ok())
        .expect("a number");
    kib << 10
}

/// Returns the largest growth of the process's resident memory while `body` ran.
fn growth(body: impl FnOnce()) -> usize {
    // Resets the high-water mark.
    fs::write("/proc/self/clear_refs", "5").expect("procfs");
    let before = status("VmRSS:");
    body();
    status("VmHWM:").saturating_sub(before)
}

#[test]
fn transfers_are_not_copied_on_the_way() {
    own_process!();
    let cl = Fixture::new();
    let mut host = pattern(1, 1 << 20).repeat(SIZE >> 20);
    let at = host.as_mut_ptr().cast::<c_void>();
    let mut buffer = null_mut();
    let created = growth(|| {
        buffer = make!(clCreateBuffer(cl.context, CL_MEM_COPY_HOST_PTR, SIZE, at)).unwrap();
    });
    assert!(created < ALLOWED, "creation: {created}");
    let written = growth(|| {
        ok!(clEnqueueWriteBuffer(
            cl.queue,
            buffer,
            CL_TRUE,
            0,
            SIZE,
            at,
            0,
            null(),
            null_mut()
        ));
    });
    assert!(written < ALLOWED, "write: {written}");
    host.fill(0);
    let read = growth(|| {
        ok!(clEnqueueReadBuffer(
            cl.queue,
            buffer,
            CL_TRUE,
            0,
            SIZE,
            at,
            0,
            null(),
            null_mut()
        ));
    });
    assert!(read < ALLOWED, "read: {read}");
    let block = pattern(1, 1 << 20);
    assert!(host.chunks(1 << 20).all(|chunk| chunk == block));
    // A map shows the buffer, so it needs the buffer's size once.
    let mapped = growth(|| {
        let at = make!(clEnqueueMapBuffer(
            cl.queue,
            buffer,
            CL_TRUE,
            CL_MAP_READ | CL_MAP_WRITE,
            0,
            SIZE,
            0,
            null(),
            null_mut()
        ))
        .unwrap();
        ok!(clEnqueueUnmapMemObject(
            cl.queue,
            buffer,
            at,
            0,
            null(),
            null_mut()
        ));
        cl.finish();
    });
    assert!(mapped < SIZE + ALLOWED, "map: {mapped}");
    ok!(clReleaseMemObject(buffer));
}
