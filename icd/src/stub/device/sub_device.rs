//! Sub-devices: parts of a device, which the node's driver creates in a session.
//!
//! The client chooses their indices on the wire, so a sub-device keeps its index in every session. After
//! the loss of a session, a partition is created again, in the same way, when something in the new session
//! needs one of its parts. So the application's handles stay valid, like those of root devices.
//!
//! Invariant: the session's worker is told of a partition before any command names one of its parts. A part
//! that the client no longer uses is released once in each session.
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

use crate::error::{ClResult, Status, require};
use crate::stub::device::info::{overrides, pci};
use crate::stub::device::{Answers, DeviceAnswers};
use crate::stub::{Device, SessionLink, next_id};

/// First index for sub-devices; no node has this many root devices on a platform.
const FIRST: u32 = 1 << 16;

/// One division of a device into sub-devices.
#[derive(Debug)]
pub(in crate::stub) struct Partition {
    parent: Arc<Device>,
    // The properties of `clCreateSubDevices`, without the terminating 0.
    properties: Vec<i64>,
    // The indices of the parts: `count` of them from `first`.
    first: u32,
    count: u32,
    standing: Mutex<Standing>,
}

// The session in which the partition exists.
#[derive(Debug)]
struct Standing {
    link: Arc<SessionLink>,
    // Parts that the client no longer uses.
    released: BTreeSet<u32>,
}

/// A sub-device's place in a partition. Dropping it releases the part.
#[derive(Debug)]
pub(in crate::stub) struct Share {
    partition: Arc<Partition>,
    index: u32,
}

impl Share {
    /// Returns the device that was divided.
    pub(in crate::stub) fn parent(&self) -> &Arc<Device> {
        &self.partition.parent
    }

    /// Creates the partition in the link's session, unless the session knows it already.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the session is lost.
    pub(in crate::stub) fn ensure_on(&self, link: &Arc<SessionLink>) -> ClResult {
        self.partition.ensure_on(link)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut standing = self.partition.standing.lock();
        standing.released.insert(self.index);
        // A lost session has no parts to release.
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
        // The parent may itself be a sub-device.
        self.parent.ensure_on(link)?;
        let mut standing = self.standing.lock();
        if Arc::ptr_eq(&standing.link, link) {
            return Ok(());
        }
        // Nothing waits for an answer. If the partition fails now, commands that use its parts fail.
        link.session().send(&self.command(0, self.count))?;
        // The worker creates all parts again, so those that are no longer used are released at once.
        for &index in &standing.released {
            self.send_release(link, index)?;
        }
        standing.link = Arc::clone(link);
        Ok(())
    }
}

impl Device {
    /// `clCreateSubDevices`: returns the number of parts, and the parts themselves if there is `room` for
    /// all (0: only count). Waits for the node, and opens a session if there is none.
    ///
    /// # Errors
    /// The code of the node's driver, `CL_INVALID_VALUE` when there are more parts than `room`, and the
    /// code of a wire error.
    pub fn divide(
        self: &Arc<Device>,
        properties: Vec<i64>,
        room: u32,
    ) -> ClResult<(u32, Vec<Arc<Device>>)> {
        let link = SessionLink::open_all(&[self.node()])?.swap_remove(0);
        self.ensure_on(&link)?;
        // Each part has at least one compute unit.
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
            let told = self.parent.answers_of_part(DeviceIndex(index), |told| {
                self.differ(told, part.differing);
            });
            Arc::new(Device::part(share, told))
        });
        parts.collect()
    }

    // Replaces those answers of the parent that are different for this part.
    fn differ(&self, told: &mut DeviceAnswers, differing: Vec<DeviceInfo>) {
        let answers = differing.into_iter().map(|answer| {
            let value: Result<Bytes, i32> = match answer.status {
                0 => Ok(answer.value),
                status => Err(status),
            };
            (answer.name, value)
        });
        let answers: Answers = answers.collect();
        let mut shown = overrides::present(answers, !told.image_formats.is_empty());
        let inventory = self.parent.node().inventory();
        pci::present(
            &mut shown,
            inventory.as_ref().map_or(&[], |of| &of.node_uuid),
        );
        told.info.extend(shown);
    }
}

// Reserves `count` consecutive indices that no device has.
fn indices(count: u32) -> ClResult<u32> {
    static NEXT: AtomicU32 = AtomicU32::new(FIRST);
    let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
    let taken = NEXT.fetch_update(set, fetch, |next| next.checked_add(count));
    taken.map_err(|_| Status::OUT_OF_HOST_MEMORY)
}
