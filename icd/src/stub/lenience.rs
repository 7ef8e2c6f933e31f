//! What drivers take beyond what they say.
//!
//! Calls are judged here, where no answer of the node is waited for, by the limits that the node's driver tells. A driver that
//! does more than it tells would so be kept from it, and programs that it runs would fail. Each rule is of what
//! such a driver was seen to do (NVIDIA's of 2026 on an H100); what it then cannot do after all fails where it is done.
//!
//! What it is not: answers to queries are the driver's own. Invariant: nothing is stricter than the specification.

use cl_headers::types::{
    CL_DEVICE_GLOBAL_MEM_SIZE, CL_DEVICE_MAX_MEM_ALLOC_SIZE, CL_DEVICE_MAX_WORK_GROUP_SIZE,
    CL_DEVICE_MEM_BASE_ADDR_ALIGN, CL_DEVICE_VENDOR_ID,
};

use super::Device;

/// `CL_DEVICE_VENDOR_ID`: its PCI vendor.
const VENDOR_NVIDIA: u64 = 0x10DE;

/// The limits of a device that a call is judged by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Told {
    vendor: u64,
    group: u64,
    allocation: u64,
    memory: u64,
    alignment: u64,
}

impl Device {
    /// Most work-items of a group of a kernel of which the driver says `of_kernel` (0: nothing).
    pub(crate) fn largest_group(&self, of_kernel: u64) -> u64 {
        self.told_limits().largest_group(of_kernel)
    }

    /// Bytes of the largest buffer.
    pub(crate) fn largest_buffer(&self) -> u64 {
        self.told_limits().largest_buffer()
    }

    /// What the origin of a sub-buffer must be a multiple of, bytes.
    pub(crate) fn sub_buffer_alignment(&self) -> u64 {
        self.told_limits().sub_buffer_alignment()
    }

    fn told_limits(&self) -> Told {
        Told {
            vendor: self.number(CL_DEVICE_VENDOR_ID),
            group: self.number(CL_DEVICE_MAX_WORK_GROUP_SIZE),
            allocation: self.number(CL_DEVICE_MAX_MEM_ALLOC_SIZE),
            memory: self.number(CL_DEVICE_GLOBAL_MEM_SIZE),
            alignment: self.number(CL_DEVICE_MEM_BASE_ADDR_ALIGN),
        }
    }
}

impl Told {
    fn is_nvidias(&self) -> bool {
        self.vendor == VENDOR_NVIDIA
    }

    // NVIDIA says 256 of every kernel, and takes up to the device's limit as far as the registers suffice
    // (`CL_OUT_OF_RESOURCES` where they do not).
    fn largest_group(&self, of_kernel: u64) -> u64 {
        match (of_kernel, self.group) {
            (0, 0) => u64::MAX,
            (0, of_device) => of_device,
            (_, of_device) if self.is_nvidias() => of_device.max(of_kernel),
            _ => of_kernel,
        }
    }

    // NVIDIA says a quarter of its memory.
    fn largest_buffer(&self) -> u64 {
        if self.is_nvidias() {
            self.allocation.max(self.memory)
        } else {
            self.allocation
        }
    }

    // NVIDIA says 512 bytes and takes any. The answer is in bits.
    fn sub_buffer_alignment(&self) -> u64 {
        if self.is_nvidias() {
            1
        } else {
            (self.alignment / 8).max(1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLD: Told = Told {
        vendor: 0x8086,
        group: 1024,
        allocation: 1 << 30,
        memory: 4 << 30,
        alignment: 4096,
    };

    #[test]
    fn others_do_what_they_say() {
        assert_eq!(TOLD.largest_group(256), 256);
        assert_eq!(TOLD.largest_group(0), 1024);
        assert_eq!(Told { group: 0, ..TOLD }.largest_group(0), u64::MAX);
        assert_eq!(TOLD.largest_buffer(), 1 << 30);
        assert_eq!(TOLD.sub_buffer_alignment(), 512);
        assert_eq!(
            Told {
                alignment: 0,
                ..TOLD
            }
            .sub_buffer_alignment(),
            1
        );
    }

    #[test]
    fn nvidia_does_more() {
        let nvidia = Told {
            vendor: VENDOR_NVIDIA,
            ..TOLD
        };
        assert_eq!(nvidia.largest_group(256), 1024);
        assert_eq!(nvidia.largest_buffer(), 4 << 30);
        assert_eq!(nvidia.sub_buffer_alignment(), 1);
    }
}
