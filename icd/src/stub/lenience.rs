//! What drivers take beyond what they say.
//!
//! Calls are judged here, where no answer of the node is waited for, by the limits that the node's driver tells. A driver that
//! does more than it tells would so be kept from it, and programs that it runs would fail. Each rule is of what
//! such a driver was seen to do (NVIDIA's of 2026 on an H100); what it then cannot do after all fails where it is done.
//!
//! What it is not: answers to queries are the driver's own. Invariant: nothing is stricter than the specification.

use causeway_proto::VENDOR_NVIDIA;
use cl_headers::types::{
    CL_DEVICE_GLOBAL_MEM_SIZE, CL_DEVICE_MAX_MEM_ALLOC_SIZE, CL_DEVICE_MAX_WORK_GROUP_SIZE,
    CL_DEVICE_MEM_BASE_ADDR_ALIGN, CL_DEVICE_VENDOR_ID,
};

use super::Device;

impl Device {
    /// Most work-items of a group of a kernel of which the driver says `of_kernel` (0: nothing).
    pub(crate) fn largest_group(&self, of_kernel: u64) -> u64 {
        largest_group(|name| self.number(name), of_kernel)
    }

    /// Bytes of the largest buffer.
    pub(crate) fn largest_buffer(&self) -> u64 {
        largest_buffer(|name| self.number(name))
    }

    /// What the origin of a sub-buffer must be a multiple of, bytes.
    pub(crate) fn sub_buffer_alignment(&self) -> u64 {
        sub_buffer_alignment(|name| self.number(name))
    }
}

// `told` is the device's answer to a query for a number.

fn is_nvidias(told: impl Fn(u32) -> u64) -> bool {
    told(CL_DEVICE_VENDOR_ID) == VENDOR_NVIDIA
}

// NVIDIA says 256 of every kernel, and takes up to the device's limit as far as the registers suffice
// (`CL_OUT_OF_RESOURCES` where they do not).
fn largest_group(told: impl Fn(u32) -> u64, of_kernel: u64) -> u64 {
    if of_kernel != 0 && !is_nvidias(&told) {
        return of_kernel;
    }
    match (of_kernel, told(CL_DEVICE_MAX_WORK_GROUP_SIZE)) {
        (0, 0) => u64::MAX,
        (_, of_device) => of_device.max(of_kernel),
    }
}

// NVIDIA says a quarter of its memory.
fn largest_buffer(told: impl Fn(u32) -> u64) -> u64 {
    let allocation = told(CL_DEVICE_MAX_MEM_ALLOC_SIZE);
    if is_nvidias(&told) {
        allocation.max(told(CL_DEVICE_GLOBAL_MEM_SIZE))
    } else {
        allocation
    }
}

// NVIDIA says 512 bytes and takes any. The answer is in bits.
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
