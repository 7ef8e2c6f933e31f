//! Sub-devices: parts into which a driver divides a device.
//!
//! Invariant: a [`SubDevice`] owns one native reference and outlives all uses of its [`Device`], because
//! the users keep it. The driver never reads past the end of a property list, whatever a client has sent.

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
    /// Returns the sub-device as a device. Its clock is that of the root device.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Returns the info answers that differ from those of `parent`.
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
        // SAFETY: this object owns one reference and gives it up here.
        check(unsafe { cl!(clReleaseDevice(self.device.raw)) })
    }
}

impl Drop for SubDevice {
    fn drop(&mut self) {
        let _ = self.release();
    }
}

impl Device {
    /// Returns the number of parts that `clCreateSubDevices` would make. `properties` has no terminator.
    ///
    /// # Errors
    /// The driver's error; `CL_INVALID_OPERATION` before OpenCL 1.2.
    pub fn count_parts(&self, properties: &[i64]) -> Result<u32, Status> {
        let list = ended(properties);
        let mut count = 0;
        // SAFETY: the list is terminated, and no parts are requested.
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

    /// Makes `count` parts, the number that [`Device::count_parts`] has returned.
    pub fn parts(&self, properties: &[i64], count: u32) -> Result<Vec<SubDevice>, Status> {
        let list = ended(properties);
        let mut parts = vec![null_mut(); count as usize];
        // SAFETY: the list is terminated, and there is room for `count` handles.
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

// Terminates a property list. Two zeros end every kind of list, also a list of counts, which has a
// terminator of its own.
fn ended(properties: &[i64]) -> Vec<isize> {
    let given = properties.iter().map(|property| *property as isize);
    given.chain([0, 0]).collect()
}
