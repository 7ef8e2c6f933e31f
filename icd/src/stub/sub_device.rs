//! Sub-devices: parts of a device, made by the node's driver in a session.
//!
//! Their indices on the wire are chosen here, so a part keeps its own in every session. In a later session, after a
//! loss, a partition is made anew, in the same way, when something there needs one of its parts: so the application's
//! handles stay what they are, as those of root devices do.
//!
//! Invariant: a partition is told to a session's worker before anything that names one of its parts, and a part that
//! nobody here holds any more is released there once.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use causeway_proto::command::{
    CreateSubDevices, DeviceInfo, ReleaseSubDevice, SubDevicesAnswer, answer::Body, command::Kind,
};
use causeway_proto::id::{DeviceIndex, RequestId};
use causeway_proto::limits::MAX_LIST;
use cl_headers::types::CL_DEVICE_MAX_COMPUTE_UNITS;
use parking_lot::Mutex;

use super::device::{Answers, Told};
use super::{Device, SessionLink, next_id, pci, presented};
use crate::error::{ClResult, Status, require};

/// No node has so many root devices on a platform.
const FIRST: u32 = 1 << 16;

/// A device's having been divided once.
#[derive(Debug)]
pub(super) struct Partition {
    parent: Arc<Device>,
    // As of clCreateSubDevices, without what ends the list.
    properties: Vec<i64>,
    // Indices of its parts.
    first: u32,
    count: u32,
    standing: Mutex<Standing>,
}

// Where it is made.
#[derive(Debug)]
struct Standing {
    link: Arc<SessionLink>,
    // Parts that nobody holds.
    released: BTreeSet<u32>,
}

/// A device's place in a partition; released with it.
#[derive(Debug)]
pub(super) struct Share {
    partition: Arc<Partition>,
    index: u32,
}

impl Share {
    /// The device that was divided.
    pub(super) fn parent(&self) -> &Arc<Device> {
        &self.partition.parent
    }

    /// Tells it to the link's session, if that does not know it yet.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the session is lost.
    pub(super) fn ensure_on(&self, link: &Arc<SessionLink>) -> ClResult {
        self.partition.ensure_on(link)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut standing = self.partition.standing.lock();
        standing.released.insert(self.index);
        // A lost session has forgotten it.
        let _ = self.partition.send_release(&standing.link, self.index);
    }
}

impl Partition {
    fn command(&self, request: u64, room: u32) -> Kind {
        Kind::CreateSubDevices(CreateSubDevices {
            request,
            platform: self.parent.platform().0,
            device: self.parent.index().0,
            properties: self.properties.clone(),
            first: self.first,
            room,
        })
    }

    fn send_release(&self, link: &SessionLink, index: u32) -> ClResult {
        let release = Kind::ReleaseSubDevice(ReleaseSubDevice {
            platform: self.parent.platform().0,
            device: index,
        });
        Ok(link.session().send(&release)?)
    }

    fn ensure_on(&self, link: &Arc<SessionLink>) -> ClResult {
        self.parent.ensure_on(link)?;
        let mut standing = self.standing.lock();
        if Arc::ptr_eq(&standing.link, link) {
            return Ok(());
        }
        // Nobody waits for the verdict: what cannot be had any more fails where it is used.
        link.session().send(&self.command(0, self.count))?;
        for &index in &standing.released {
            self.send_release(link, index)?;
        }
        standing.link = Arc::clone(link);
        Ok(())
    }
}

impl Device {
    /// `clCreateSubDevices`: how many parts there are, and the parts if there is `room` for all (0: only counted).
    /// Waits for the node; opens its session if there is none.
    ///
    /// # Errors
    /// What the node's driver says, `CL_INVALID_VALUE` when there are more parts than room, and what the wire says.
    pub fn divide(
        self: &Arc<Device>,
        properties: Vec<i64>,
        room: u32,
    ) -> ClResult<(u32, Vec<Arc<Device>>)> {
        let link = SessionLink::open_all(&[self.node()])?.swap_remove(0);
        self.ensure_on(&link)?;
        // A part has a compute unit at least.
        let most = self
            .number(CL_DEVICE_MAX_COMPUTE_UNITS)
            .clamp(1, MAX_LIST as u64);
        let room = room.min(most as u32);
        let first = indices(room)?;
        let mut partition = Partition {
            parent: Arc::clone(self),
            properties,
            first,
            count: room,
            standing: Mutex::new(Standing {
                link: Arc::clone(&link),
                released: BTreeSet::new(),
            }),
        };
        let request = RequestId(next_id());
        let command = partition.command(request.0, room);
        let answer = link.session().request(request, &command)?;
        require(answer.status >= 0, answer.status)?;
        let Some(Body::SubDevices(told)) = answer.body else {
            return Err(Status::OUT_OF_RESOURCES);
        };
        partition.count = told.devices.len() as u32;
        let (count, parts) = (told.count, Arc::new(partition).parts(told));
        require(
            room == 0 || parts.len() == count as usize,
            Status::OUT_OF_RESOURCES.0,
        )?;
        Ok((count, parts))
    }
}

impl Partition {
    fn parts(self: Arc<Self>, told: SubDevicesAnswer) -> Vec<Arc<Device>> {
        let parts = (self.first..).zip(told.devices);
        let parts = parts.map(|(index, part)| {
            let share = Share {
                partition: Arc::clone(&self),
                index,
            };
            let told = self.parent.told_of_part(DeviceIndex(index), |told| {
                self.differ(told, part.differing);
            });
            Arc::new(Device::part(share, told))
        });
        parts.collect()
    }

    // What a part answers: as its parent, but for what it tells otherwise.
    fn differ(&self, told: &mut Told, differing: Vec<DeviceInfo>) {
        let answers = differing.into_iter().map(|answer| {
            let value: Result<Bytes, i32> = match answer.status {
                0 => Ok(answer.value),
                status => Err(status),
            };
            (answer.name, value)
        });
        let answers: Answers = answers.collect();
        let mut shown = presented::present(answers, !told.image_formats.is_empty());
        let inventory = self.parent.node().inventory();
        pci::present(
            &mut shown,
            inventory.as_ref().map_or(&[], |of| &of.node_uuid),
        );
        told.info.extend(shown);
    }
}

// So many consecutive indices that no device has.
fn indices(count: u32) -> ClResult<u32> {
    static NEXT: AtomicU32 = AtomicU32::new(FIRST);
    let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
    let taken = NEXT.fetch_update(set, fetch, |next| next.checked_add(count));
    taken.map_err(|_| Status::OUT_OF_HOST_MEMORY)
}
