//! The devices of an inventory by their positions, and which of them settings select. Pure.
#![forbid(unsafe_code)]

use causeway_proto::control::{Device, Inventory};
use causeway_proto::request::answer_of;

use super::managed::DeviceAt;
use crate::config::WhichDevice;

/// `CL_DEVICE_NAME` (OpenCL specification, table of device queries).
pub(super) const NAME: u32 = 0x102B;

/// Returns all devices of an inventory with their positions.
pub(super) fn listed(inventory: &Inventory) -> impl Iterator<Item = (DeviceAt, &Device)> {
    (0..).zip(&inventory.platforms).flat_map(|(platform, of)| {
        let devices = (0..).zip(&of.devices);
        devices.map(move |(device, of)| (DeviceAt { platform, device }, of))
    })
}

/// Returns a device's name, without the closing NUL.
pub(super) fn name_of(device: &Device) -> Option<&[u8]> {
    let told = answer_of(&device.info, NAME)?;
    Some(told.strip_suffix(b"\0").unwrap_or(told))
}

/// Returns whether settings select this device.
pub(super) fn is_selected(which: &WhichDevice, at: DeviceAt, device: &Device) -> bool {
    match which {
        WhichDevice::Index {
            platform,
            device: index,
        } => *platform == at.platform && *index == at.device,
        WhichDevice::Name(name) => name_of(device) == Some(name.as_bytes()),
    }
}

/// Returns the device without its compute mode. An administrator changes the mode at any time, and the device stays
/// the same one.
pub(super) fn without_mode(device: &Device) -> Device {
    Device {
        compute_mode: 0,
        ..device.clone()
    }
}
