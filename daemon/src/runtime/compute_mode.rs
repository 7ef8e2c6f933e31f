//! How many processes may have a context on a device.
//!
//! Only NVIDIA's driver has such modes, and OpenCL has no query for them. NVML has one, and comes with the driver.
//! Where NVML is missing, fails or does not answer in time, the mode stays unknown. Invariant: the caller waits
//! for NVML no longer than [`ANSWERS_WITHIN`].

use std::collections::HashMap;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use causeway_proto::VENDOR_NVIDIA;
use causeway_proto::control::ComputeMode;
use opencl_sys::{CL_DEVICE_TYPE, CL_DEVICE_TYPE_GPU, CL_DEVICE_VENDOR_ID};

use super::node::{Device, Node};
use super::nvml::Nvml;

/// Query of `cl_khr_device_uuid`.
const CL_DEVICE_UUID_KHR: u32 = 0x106A;
/// Time for NVML to answer. A card that has failed may block the library.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

type Uuid = [u8; 16];

/// The modes of the node's devices, by UUID.
#[derive(Default)]
pub(super) struct Modes(HashMap<Uuid, ComputeMode>);

impl Modes {
    /// Asks NVML for the modes of all devices that have modes.
    pub(super) fn of(node: &Node) -> Modes {
        let devices = node.platforms().iter().flat_map(|of| of.devices());
        let uuids: Vec<Uuid> = devices.filter_map(|device| uuid(*device)).collect();
        if uuids.is_empty() {
            return Modes::default();
        }
        let (answer, answered) = mpsc::channel();
        let started = thread::Builder::new()
            .name("nvml".to_owned())
            .spawn(move || {
                if let Some(nvml) = Nvml::load() {
                    let modes = uuids.iter().map(|uuid| (*uuid, nvml.compute_mode(uuid)));
                    // The receiver is gone if the answer comes too late.
                    let _ = answer.send(modes.collect());
                }
            });
        let modes = started
            .ok()
            .and_then(|_| answered.recv_timeout(ANSWERS_WITHIN).ok());
        modes.map(Modes).unwrap_or_default()
    }

    pub(super) fn of_device(&self, device: Device) -> ComputeMode {
        let mode = uuid(device).and_then(|uuid| self.0.get(&uuid).copied());
        mode.unwrap_or(ComputeMode::Unknown)
    }
}

/// Returns the UUID of a device that has modes: a card of NVIDIA's.
pub(crate) fn uuid(device: Device) -> Option<Uuid> {
    if !has_modes(device) {
        return None;
    }
    Uuid::try_from(device.info(CL_DEVICE_UUID_KHR).ok()?).ok()
}

fn has_modes(device: Device) -> bool {
    let number = |name| {
        let bytes = device.info(name).ok()?;
        let digits = bytes.iter().rev();
        Some(digits.fold(0_u64, |number, byte| number << 8 | u64::from(*byte)))
    };
    number(CL_DEVICE_VENDOR_ID) == Some(VENDOR_NVIDIA)
        && number(CL_DEVICE_TYPE).is_some_and(|kind| kind & CL_DEVICE_TYPE_GPU != 0)
}
