//! Queues on devices: the queues of a context, and which of them are defaults.
//!
//! They are made in `queue`; kernels enqueue in `launch`. Invariant: a device has at most one default
//! queue in a context, and no more queues than configured.

use cl_headers::types::*;
use parking_lot::Mutex;

use crate::device::Device;
use crate::error::{ClResult, ensure};
use crate::object::{Object, Ref, Weak};
use crate::queue::Queue;

/// `CL_DEVICE_QUEUE_ON_DEVICE_PREFERRED_SIZE`, in bytes.
pub(crate) const PREFERRED_SIZE: cl_uint = 16 << 10;
/// `CL_DEVICE_QUEUE_ON_DEVICE_MAX_SIZE`, in bytes.
pub(crate) const MAX_SIZE: cl_uint = 256 << 10;
/// `CL_DEVICE_MAX_ON_DEVICE_EVENTS`.
pub(crate) const MAX_EVENTS: cl_uint = 1024;

/// The device queues of a context.
#[derive(Default)]
pub(crate) struct DeviceQueues(Mutex<Known>);

#[derive(Default)]
struct Known {
    all: Vec<Weak<Queue>>,
    defaults: Vec<Weak<Queue>>,
}

fn of_device(queues: &[Weak<Queue>], device: &Object<Device>) -> impl Iterator<Item = Ref<Queue>> {
    let alive = queues.iter().filter_map(Weak::upgrade);
    alive.filter(|queue| queue.device.handle() == device.handle())
}

impl DeviceQueues {
    /// Returns the default queue of a device.
    pub(crate) fn default_of(&self, device: &Object<Device>) -> Option<Ref<Queue>> {
        of_device(&self.0.lock().defaults, device).next()
    }

    /// Returns the handle of a device's default queue, for queries.
    pub(crate) fn default_handle(&self, device: &Object<Device>) -> cl_command_queue {
        let default = self.default_of(device);
        default.map_or(std::ptr::null_mut(), |queue| queue.handle())
    }

    /// Makes a queue the default of its device.
    pub(crate) fn set_default(&self, queue: &Object<Queue>) {
        let mut known = self.0.lock();
        known.defaults.retain(|other| {
            let other = other.upgrade();
            other.is_some_and(|other| other.device.handle() != queue.device.handle())
        });
        known.defaults.push(queue.weak());
    }

    /// Checks whether a device supports another queue.
    pub(crate) fn ensure_room(&self, device: &Object<Device>) -> ClResult {
        let there = of_device(&self.0.lock().all, device).count();
        let room = there < device.settings.device_queues as usize;
        ensure(room, CL_OUT_OF_RESOURCES)
    }

    /// Adds a queue that the application now has.
    pub(crate) fn add(&self, queue: &Object<Queue>) {
        let mut known = self.0.lock();
        known.all.retain(|other| other.upgrade().is_some());
        known.all.push(queue.weak());
    }
}
