//! Sub-devices: parts of a device, as its driver divides it.
//!
//! Invariant: a [`SubDevice`] owns one native reference, and outlives whatever uses its [`Device`] by being kept beside
//! it; the driver reads no list beyond its end, whatever a client sent.

use std::ptr::null_mut;

use causeway_proto::command::DeviceInfo;
use causeway_proto::status::Status;

use super::library::{check, cl};
use super::node::Device;
use super::probe;

/// A native sub-device; released when dropped.
#[derive(Debug)]
pub struct SubDevice {
    device: Device,
}

impl SubDevice {
    /// As a device. Its clock is that of the root device.
    #[must_use]
    pub fn device(&self) -> Device {
        self.device
    }

    /// What it answers otherwise than `parent`.
    #[must_use]
    pub fn differing(&self, parent: Device) -> Vec<DeviceInfo> {
        let parents = probe::device_answers(parent);
        let own = probe::device_answers(self.device).into_iter();
        own.filter(|answer| !parents.contains(answer))
            .map(|answer| DeviceInfo {
                name: answer.name,
                value: answer.value,
                status: answer.status,
            })
            .collect()
    }

    fn release(&self) -> Result<(), Status> {
        // SAFETY: we own one reference and give it up here.
        check(unsafe { cl!(clReleaseDevice(self.device.raw)) })
    }
}

impl Drop for SubDevice {
    fn drop(&mut self) {
        let _ = self.release();
    }
}

impl Device {
    /// How many parts `clCreateSubDevices` makes; `properties` come without what ends the list.
    ///
    /// # Errors
    /// What the driver says; `CL_INVALID_OPERATION` before OpenCL 1.2.
    pub fn count_parts(&self, properties: &[i64]) -> Result<u32, Status> {
        let list = ended(properties);
        let mut count = 0;
        // SAFETY: the list ends as every list does, and no parts are asked for.
        check(unsafe {
            cl!(clCreateSubDevices(
                self.raw,
                list.as_ptr(),
                0,
                null_mut(),
                &raw mut count
            ))
        })?;
        Ok(count)
    }

    /// Makes these parts: `count` of them, as [`Device::count_parts`] said.
    ///
    /// # Errors
    /// What the driver says.
    pub fn parts(&self, properties: &[i64], count: u32) -> Result<Vec<SubDevice>, Status> {
        let list = ended(properties);
        let mut parts = vec![null_mut(); count as usize];
        // SAFETY: the list ends as every list does, and there is room for so many handles.
        check(unsafe {
            cl!(clCreateSubDevices(
                self.raw,
                list.as_ptr(),
                count,
                parts.as_mut_ptr(),
                null_mut()
            ))
        })?;
        let made = parts.into_iter().filter(|raw| !raw.is_null());
        Ok(made
            .map(|raw| SubDevice {
                device: self.part(raw),
            })
            .collect())
    }
}

// Two zeros end any list: that of counts, too, which has an end of its own.
fn ended(properties: &[i64]) -> Vec<isize> {
    let given = properties.iter().map(|property| *property as isize);
    given.chain([0, 0]).collect()
}
