//! How many processes may have a context on a device.
//!
//! Only NVIDIA's driver has such modes, and OpenCL has no query for them. NVML has one and needs no context.
//! Where NVML is missing, the mode shows only in what happens to contexts: two processes try to make one
//! each ([`try_contexts`]), and in exclusive mode the second one fails. This takes time and memory on the
//! card, so it is done only where NVML gives no answer. The supervisor starts the two processes and
//! compares.

use causeway_proto::VENDOR_NVIDIA;
use causeway_proto::control::ComputeMode;
use opencl_sys::{CL_DEVICE_TYPE, CL_DEVICE_TYPE_GPU, CL_DEVICE_VENDOR_ID};

use super::context::Context;
use super::node::{Device, Node};
use super::nvml::Nvml;

/// Query of `cl_khr_device_uuid`.
const CL_DEVICE_UUID_KHR: u32 = 0x106A;

/// A device on which a context was tried.
pub struct Tried {
    /// Index of the platform on the wire.
    pub platform: u32,
    /// Index of the device in its platform.
    pub device: u32,
    /// The context, if the driver has made it.
    pub context: Option<Context>,
}

/// Finds the modes of devices.
pub(super) struct Modes(Option<Nvml>);

impl Modes {
    /// Loads NVML if the node has a device with modes.
    pub(super) fn of(node: &Node) -> Modes {
        let mut devices = node.platforms().iter().flat_map(|of| of.devices());
        let has_modes = devices.any(|device| has_modes(*device));
        Modes(has_modes.then(Nvml::load).flatten())
    }

    pub(super) fn of_device(&self, device: Device) -> ComputeMode {
        if !has_modes(device) {
            return ComputeMode::Unknown;
        }
        let uuid = device.info(CL_DEVICE_UUID_KHR).ok();
        let uuid = uuid.and_then(|uuid| <[u8; 16]>::try_from(uuid).ok());
        match (&self.0, uuid) {
            (Some(nvml), Some(uuid)) => nvml.compute_mode(&uuid),
            _ => ComputeMode::Unknown,
        }
    }
}

/// Tries to make a context on each device that has modes and whose mode NVML does not know. Blocks, and may
/// crash with the driver.
#[must_use]
pub fn try_contexts() -> Vec<Tried> {
    let node = Node::load();
    let modes = Modes::of(&node);
    let mut tried = Vec::new();
    for (platform, of) in (0..).zip(node.platforms()) {
        for (device, of_device) in (0..).zip(of.devices()) {
            if !has_modes(*of_device) || modes.of_device(*of_device) != ComputeMode::Unknown {
                continue;
            }
            let listener =
                Box::new(|error: &str| tracing::debug!(error, "error of a tried context"));
            tried.push(Tried {
                platform,
                device,
                context: Context::new(of, vec![*of_device], listener).ok(),
            });
        }
    }
    tried
}

fn has_modes(device: Device) -> bool {
    let number = |name| {
        device.info(name).ok().map(|bytes| {
            bytes
                .iter()
                .rev()
                .fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
        })
    };
    number(CL_DEVICE_VENDOR_ID) == Some(VENDOR_NVIDIA)
        && number(CL_DEVICE_TYPE).is_some_and(|kind| kind & CL_DEVICE_TYPE_GPU != 0)
}
