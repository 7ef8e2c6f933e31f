//! Device queues, into which kernels enqueue. The host enqueues nothing into them.

use causeway_proto::status::Status;
use opencl_sys::cl_command_queue;

use super::context::Context;
use super::library::{check, cl, release_on_drop};
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
    pub fn new(
        context: &Context,
        device: Device,
        properties: &[u64],
    ) -> Result<DeviceQueue, Status> {
        let raw = context.create_queue(device, properties)?;
        Ok(DeviceQueue { raw, device })
    }

    /// Makes this queue the default device queue of its device in the context.
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
}

release_on_drop!(DeviceQueue, clReleaseCommandQueue);
