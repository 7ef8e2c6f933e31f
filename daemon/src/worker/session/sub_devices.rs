//! Sub-devices, by the indices that the client chose for them.
//!
//! The driver, not this module, knows how a device can be divided. Invariants: an index means either a
//! root device of the node or a sub-device in the table, never both. The session may use a sub-device
//! exactly if it may use its root device. If a sub-device cannot be made and no answer was requested, its
//! index is kept as *broken*.
#![forbid(unsafe_code)]

use std::sync::Arc;

use causeway_proto::command::{
    Answer, CreateSubDevices, ReleaseSubDevice, SubDevice as WirePart, SubDevicesAnswer, answer,
};
use causeway_proto::id::{DeviceIndex, PlatformIndex};
use causeway_proto::limits::MAX_LIST;
use causeway_proto::status::Status;

use super::shared::Shared;
use super::tables::{Objects, add};
use super::violation::Violation;
use crate::runtime::node::{Device, Node};
use crate::runtime::sub_device::SubDevice as NativeSubDevice;
use crate::worker::objects::SubDevice;

/// A device that an index names.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// The native device; for a broken sub-device, another one in its place.
    pub(crate) device: Device,
    /// Whether the device can be used.
    pub(crate) status: Result<(), Status>,
    /// The root device that this is, or is a part of.
    pub(crate) root: DeviceIndex,
    /// Keeps the sub-device alive while it is in use.
    pub(crate) part: Option<Arc<SubDevice>>,
}

/// Finds the device of an index; `None` if the session has no such device.
pub(crate) fn find(shared: &Shared, platform: PlatformIndex, device: DeviceIndex) -> Option<Found> {
    if let Some(root) = shared.node.platform(platform)?.device(device) {
        return shared.share.allows(platform, device).then_some(Found {
            device: root,
            status: Ok(()),
            root: device,
            part: None,
        });
    }
    let core = shared.core.lock();
    let part = core.objects.sub_devices.get(&(platform, device))?;
    Some(Found {
        device: part.device,
        status: part.native.as_ref().map(drop).map_err(|status| *status),
        root: part.root,
        part: Some(Arc::clone(part)),
    })
}

/// Applies `CreateSubDevices`.
pub(crate) fn create(shared: &Arc<Shared>, create: &CreateSubDevices) -> Result<(), Violation> {
    let (platform, index) = (PlatformIndex(create.platform), DeviceIndex(create.device));
    let parent = find(shared, platform, index)
        .ok_or_else(|| Violation::Unknown(format!("{index:?}, to be divided")))?;
    let end = create.first.checked_add(create.room);
    let fits = create.room as usize <= MAX_LIST && create.properties.len() <= MAX_LIST;
    let free = |end: u32| {
        let core = shared.core.lock();
        (create.first..end).all(|index| is_free(&shared.node, &core.objects, platform, index))
    };
    if !fits || !end.is_some_and(free) {
        return Err(Violation::Malformed(
            "a division of a device has too many parts, or their indices are in use",
        ));
    }
    let room = shared.room()?;
    let made = room.and_then(|()| divide(&parent, create));
    if create.request != 0 {
        shared.outbox.answer(told(create.request, &parent, &made));
    }
    let parts: Vec<Result<NativeSubDevice, Status>> = match made {
        Ok((_, parts)) => parts.into_iter().map(Ok).collect(),
        Err(status) if create.request == 0 => vec![Err(status)],
        Err(_) => return Ok(()),
    };
    // Without a request, the client expects as many sub-devices as the original division made. Missing
    // ones are added as broken.
    let promised = if create.request == 0 {
        create.room
    } else {
        parts.len() as u32
    };
    let failed = parts.iter().find_map(|part| part.as_ref().err().copied());
    let mut parts = parts.into_iter();
    for index in create.first..create.first + promised {
        let next = parts
            .next()
            .unwrap_or(Err(failed.unwrap_or(Status::DEVICE_PARTITION_FAILED)));
        let part = SubDevice {
            device: next.as_ref().map_or(parent.device, NativeSubDevice::device),
            native: next,
            root: parent.root,
            _parent: parent.part.clone(),
        };
        let key = (platform, DeviceIndex(index));
        add(&mut shared.core.lock().objects.sub_devices, key, part)?;
    }
    Ok(())
}

fn is_free(node: &Node, objects: &Objects, platform: PlatformIndex, index: u32) -> bool {
    let index = DeviceIndex(index);
    let roots = node.platform(platform).map_or(0, |of| of.devices().len());
    index.0 as usize >= roots && !objects.sub_devices.contains_key(&(platform, index))
}

type Made = Result<(u32, Vec<NativeSubDevice>), Status>;

// Counts the sub-devices. Makes them if they are wanted and there is room for all.
fn divide(parent: &Found, create: &CreateSubDevices) -> Made {
    parent.status?;
    let device = parent.device;
    let count = device.count_parts(&create.properties)?;
    if create.room == 0 {
        return Ok((count, Vec::new()));
    }
    if count > create.room {
        return Err(Status::INVALID_VALUE);
    }
    Ok((count, device.parts(&create.properties, count)?))
}

fn told(request: u64, parent: &Found, made: &Made) -> Answer {
    let body = made.as_ref().ok().map(|(count, parts)| {
        let devices = parts.iter().map(|part| WirePart {
            differing: part.differing(parent.device),
        });
        answer::Body::SubDevices(SubDevicesAnswer {
            count: *count,
            devices: devices.collect(),
        })
    });
    Answer {
        request,
        status: made.as_ref().err().map_or(0, |status| status.0),
        message: String::new(),
        body,
    }
}

/// Applies `ReleaseSubDevice`.
///
/// # Errors
/// [`Violation`] if the index names no sub-device.
pub(crate) fn release(shared: &Shared, release: &ReleaseSubDevice) -> Result<(), Violation> {
    let key = (PlatformIndex(release.platform), DeviceIndex(release.device));
    let gone = shared.core.lock().objects.sub_devices.remove(&key);
    match gone {
        // Dropped here, after the lock was released, because the drop calls the driver.
        Some(part) => {
            drop(part);
            Ok(())
        }
        None => Err(Violation::Unknown(format!("{:?}, a part", key.1))),
    }
}
