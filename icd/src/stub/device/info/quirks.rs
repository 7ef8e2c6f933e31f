//! Rules for drivers that accept more than they report.
//!
//! The client validates calls itself, by the limits that the node's driver reports. If a driver accepts
//! more than it reports, strict checks would break programs that run natively. Each rule describes the
//! observed behaviour of a driver (NVIDIA's of 2026 on an H100). What the driver then rejects fails on the
//! node.
//!
//! Not here: answers to queries, which are the driver's own. Invariant: no rule is stricter than the
//! specification.

use causeway_proto::VENDOR_NVIDIA;
use cl_headers::types::{
    CL_DEVICE_GLOBAL_MEM_SIZE, CL_DEVICE_MAX_MEM_ALLOC_SIZE, CL_DEVICE_MAX_WORK_GROUP_SIZE,
    CL_DEVICE_MEM_BASE_ADDR_ALIGN, CL_DEVICE_VENDOR_ID,
};

use crate::stub::Device;

impl Device {
    /// Returns the maximum number of work-items in a group of a kernel. `of_kernel` is the driver's limit
    /// for it; 0: unknown.
    pub(crate) fn largest_group(&self, of_kernel: u64) -> u64 {
        largest_group(|name| self.number(name), of_kernel)
    }

    /// Returns the size in bytes of the largest buffer.
    pub(crate) fn largest_buffer(&self) -> u64 {
        largest_buffer(|name| self.number(name))
    }

    /// Returns the required alignment of a sub-buffer's origin, in bytes.
    pub(crate) fn sub_buffer_alignment(&self) -> u64 {
        sub_buffer_alignment(|name| self.number(name))
    }
}

// In these functions, `told` returns the device's answer to a query for a number.

fn is_nvidias(told: impl Fn(u32) -> u64) -> bool {
    told(CL_DEVICE_VENDOR_ID) == VENDOR_NVIDIA
}

// NVIDIA reports 256 for every kernel, and accepts up to the device's limit as long as there are enough
// registers (otherwise `CL_OUT_OF_RESOURCES`).
fn largest_group(told: impl Fn(u32) -> u64, of_kernel: u64) -> u64 {
    if of_kernel != 0 && !is_nvidias(&told) {
        return of_kernel;
    }
    match (of_kernel, told(CL_DEVICE_MAX_WORK_GROUP_SIZE)) {
        (0, 0) => u64::MAX,
        (_, of_device) => of_device.max(of_kernel),
    }
}

// NVIDIA reports a quarter of its memory.
fn largest_buffer(told: impl Fn(u32) -> u64) -> u64 {
    let allocation = told(CL_DEVICE_MAX_MEM_ALLOC_SIZE);
    if is_nvidias(&told) {
        allocation.max(told(CL_DEVICE_GLOBAL_MEM_SIZE))
    } else {
        allocation
    }
}

// NVIDIA reports 512 bytes and accepts any alignment. The answer is in bits.
fn sub_buffer_alignment(told: impl Fn(u32) -> u64) -> u64 {
    if is_nvidias(&told) {
        1
    } else {
        (told(CL_DEVICE_MEM_BASE_ADDR_ALIGN) / 8).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VENDOR_OTHER: u64 = 0x8086;

    fn device(vendor: u64) -> impl Fn(u32) -> u64 {
        move |name| match name {
            CL_DEVICE_VENDOR_ID => vendor,
            CL_DEVICE_MAX_WORK_GROUP_SIZE => 1024,
            CL_DEVICE_MAX_MEM_ALLOC_SIZE => 1 << 30,
            CL_DEVICE_GLOBAL_MEM_SIZE => 4 << 30,
            CL_DEVICE_MEM_BASE_ADDR_ALIGN => 4096,
            _ => unreachable!("{name:#x} decides nothing here"),
        }
    }

    #[test]
    fn others_do_what_they_say() {
        let other = device(VENDOR_OTHER);
        assert_eq!(largest_group(&other, 256), 256);
        assert_eq!(largest_group(&other, 0), 1024);
        assert_eq!(largest_buffer(&other), 1 << 30);
        assert_eq!(sub_buffer_alignment(&other), 512);
    }

    #[test]
    fn nvidia_does_more() {
        let nvidia = device(VENDOR_NVIDIA);
        assert_eq!(largest_group(&nvidia, 256), 1024);
        assert_eq!(largest_group(&nvidia, 0), 1024);
        assert_eq!(largest_buffer(&nvidia), 4 << 30);
        assert_eq!(sub_buffer_alignment(&nvidia), 1);
    }

    #[test]
    fn a_device_that_tells_nothing_forbids_nothing() {
        let silent = |_| 0;
        assert_eq!(largest_group(silent, 0), u64::MAX);
        assert_eq!(sub_buffer_alignment(silent), 1);
    }
}
