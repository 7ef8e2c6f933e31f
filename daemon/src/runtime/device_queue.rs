//! Device queues: what kernels enqueue into, and the host never.

use causeway_proto::status::Status;
use opencl_sys::cl_command_queue;

use super::context::Context;
use super::library::{check, cl};
use super::node::Device;
use super::queue;

/// A native queue on the device; released when dropped.
#[derive(Debug)]
pub struct DeviceQueue {
    pub(super) raw: cl_command_queue,
    device: Device,
}

// SAFETY: OpenCL queues may be used from any thread.
unsafe impl Send for DeviceQueue {}
// SAFETY: as above.
unsafe impl Sync for DeviceQueue {}

impl DeviceQueue {
    /// Creates one; `properties` are names and values without the closing 0, and say that it is on the device.
    ///
    /// # Errors
    /// What the driver says.
    pub fn new(
        context: &Context,
        device: Device,
        properties: &[u64],
    ) -> Result<DeviceQueue, Status> {
        let raw = queue::create(context, device, properties)?;
        Ok(DeviceQueue { raw, device })
    }

    /// Makes it the default one of its device in its context.
    ///
    /// # Errors
    /// What the driver says.
    pub fn make_default(&self, context: &Context) -> Result<(), Status> {
        // SAFETY: live objects only.
        check(unsafe {
            cl!(clSetDefaultDeviceCommandQueue(
                context.raw,
                self.device.raw,
                self.raw
            ))
        })
    }

    fn release(&self) -> Result<(), Status> {
        // SAFETY: we own one reference and give it up here.
        check(unsafe { cl!(clReleaseCommandQueue(self.raw)) })
    }
}

impl Drop for DeviceQueue {
    fn drop(&mut self) {
        let _ = self.release();
    }
}
