//! The inventory: all info answers of all platforms and devices, and the image formats.
//!
//! Query names are tried in ranges, so that vendors' own queries are found without a list of them. For
//! names that the specification defines, errors are recorded too. For other names, only successful answers
//! are recorded. Invariant: the answers contain no native handles.

use std::ops::RangeInclusive;

use causeway_proto::control::{Device as WireDevice, InfoAnswer, Platform as WirePlatform};
use causeway_proto::status::Status;
use opencl_sys::{
    CL_DEVICE_COMMAND_BUFFER_SYNC_DEVICES_KHR, CL_DEVICE_PARENT_DEVICE, CL_DEVICE_PLATFORM,
};

use super::compute_mode::Modes;
use super::image;
use super::node::{Device, Node};

/// Result of a probe.
#[derive(Debug, Default)]
pub struct Probed {
    /// Platforms in the order of their indices on the wire.
    pub platforms: Vec<WirePlatform>,
    /// Problems with the node's OpenCL, as text for people.
    pub problems: Vec<String>,
}

/// A range of query names: from the specification, or used by vendors.
struct Names {
    range: RangeInclusive<u32>,
    specified: bool,
}

const fn specified(range: RangeInclusive<u32>) -> Names {
    Names {
        range,
        specified: true,
    }
}

const fn vendors(range: RangeInclusive<u32>) -> Names {
    Names {
        range,
        specified: false,
    }
}

const PLATFORM: &[Names] = &[
    specified(0x0900..=0x0907), // 1.0 to 3.0
    vendors(0x0908..=0x093F),   // command buffers, SVM, ICD suffix, unloadable
    vendors(0x2030..=0x205F),   // semaphores, external memory
];

const DEVICE: &[Names] = &[
    specified(0x1000..=0x1075), // 1.0 to 3.1, UUIDs, integer dot products
    vendors(0x1076..=0x10AF),   // kernel clock, SVM types
    vendors(0x1290..=0x12CF),   // command buffers, SPIR-V lists
    vendors(0x2030..=0x205F),   // terminate, named barriers, semaphores, external memory
    vendors(0x4000..=0x4060),   // NVIDIA, AMD, fission
    vendors(0x4070..=0x40FF),   // Intel, Qualcomm, Arm, Imagination, SPIR
    vendors(0x4100..=0x4260),   // Intel, PCI bus, Arm, C++ for OpenCL
];

const PARENT_DEVICE_EXT: u32 = 0x4054;
const HANDLES: [u32; 4] = [
    CL_DEVICE_PLATFORM,
    CL_DEVICE_PARENT_DEVICE,
    CL_DEVICE_COMMAND_BUFFER_SYNC_DEVICES_KHR,
    PARENT_DEVICE_EXT,
];

/// Queries every platform and device for everything that a client may ask. Blocks, and may crash with the
/// driver, so it must run in a process of its own.
#[must_use]
pub fn probe() -> Probed {
    let node = Node::load();
    let modes = Modes::of(&node);
    let platforms = node
        .platforms()
        .iter()
        .map(|platform| WirePlatform {
            info: answers(PLATFORM, |name| platform.info(name)),
            devices: platform
                .devices()
                .iter()
                .map(|device| WireDevice {
                    info: device_answers(*device),
                    image_formats: image::formats(platform, *device),
                    compute_mode: modes.of_device(*device).into(),
                })
                .collect(),
        })
        .collect();
    Probed {
        platforms,
        problems: node.problems().to_vec(),
    }
}

/// Returns all info answers of a device.
pub(super) fn device_answers(device: Device) -> Vec<InfoAnswer> {
    answers(DEVICE, |name| device.info(name))
}

fn answers(names: &[Names], ask: impl Fn(u32) -> Result<Vec<u8>, Status>) -> Vec<InfoAnswer> {
    let mut out = Vec::new();
    for Names { range, specified } in names {
        for name in range.clone().filter(|name| !HANDLES.contains(name)) {
            match ask(name) {
                Ok(value) => out.push(InfoAnswer {
                    name,
                    value: value.into(),
                    status: 0,
                }),
                Err(status) if *specified => out.push(InfoAnswer {
                    name,
                    value: bytes::Bytes::new(),
                    status: status.0,
                }),
                Err(_) => {}
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_never_leave_and_refusals_are_kept_only_where_specified() {
        let got = answers(DEVICE, |name| match name {
            0x1000 | 0x1031 | 0x4000 | 0x4054 => Ok(vec![1]),
            _ => Err(Status::INVALID_VALUE),
        });
        let status = |name| got.iter().find(|a| a.name == name).map(|a| a.status);
        assert_eq!(status(0x1000), Some(0));
        assert_eq!(status(0x1001), Some(-30));
        assert_eq!((status(0x1031), status(0x4054)), (None, None));
        assert_eq!((status(0x4000), status(0x4001)), (Some(0), None));
    }
}
