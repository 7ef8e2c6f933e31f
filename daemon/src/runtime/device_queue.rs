//! Device queues, into which kernels enqueue. The host enqueues nothing into them.

use causeway_proto::status::Status;
use opencl_sys::cl_command_queue;

use super::context::Context;
use super::library::{check, cl};
use super::node::Device;

/// A native device queue; released when dropped.
#[derive(Debug)]
pub struct DeviceQueue {
    pub(super) raw: cl_command_queue,
    device: Device,
}

// SAFETY: OpenCL queues may be used from any thread.
unsafe impl Send for DeviceQueue {}
// SAFETY: as for `Send`.
unsafe impl Sync for DeviceQueue {}

impl DeviceQueue {
    /// Creates a queue. `properties` are pairs of names and values without the terminating 0, and include
    /// the flag for a device queue.
    ///
    /// # Errors
    /// The driver's error.
    pub fn new(
        context: &Context,
        device: Device,
        properties: &[u64],
    ) -> Result<DeviceQueue, Status> {
        let raw = context.create_queue(device, properties)?;
        Ok(DeviceQueue { raw, device })
    }

    /// Makes this queue the default device queue of its device in the context.
    ///
    /// # Errors
    /// The driver's error.
    pub fn make_default(&self, context: &Context) -> Result<(), Status> {
        // SAFETY: all objects are live.
        check(unsafe {
            cl!(clSetDefaultDeviceCommandQueue(
                context.raw,
                self.device.raw,
                self.raw
            ))
        })
    }

    fn release(&self) -> Result<(), Status> {
        // SAFETY: this object owns one reference and gives it up here.
        check(unsafe { cl!(clReleaseCommandQueue(self.raw)) })
    }
}

impl Drop for DeviceQueue {
    fn drop(&mut self) {
        let _ = self.release();
    }
}
