//! A device queue: kernels enqueue into it, the host does not. A simple stub, on one site.
//!
//! A device queue is either an argument of kernels, or the default queue of its device in a context.

use std::sync::{Arc, Weak};

use causeway_proto::command::{
    CreateDeviceQueue, ObjectKind, SetDefaultDeviceQueue, command::Kind,
};
use causeway_proto::id::QueueId;
use cl_headers::types::{
    CL_DEVICE_DEVICE_ENQUEUE_CAPABILITIES, CL_DEVICE_MAX_ON_DEVICE_QUEUES,
    CL_DEVICE_QUEUE_ON_DEVICE_PREFERRED_SIZE, CL_DEVICE_QUEUE_ON_DEVICE_PROPERTIES,
    CL_DEVICE_QUEUE_REPLACEABLE_DEFAULT, CL_DEVICE_QUEUE_SUPPORTED, CL_OUT_OF_RESOURCES,
    CL_QUEUE_ON_DEVICE_DEFAULT,
};
use parking_lot::Mutex;

use crate::error::{ClResult, require};
use crate::stub::{Binding, Context, Device, Site, next_id};

/// An on-device queue; see the module.
#[derive(Debug)]
pub struct DeviceQueue {
    pub(crate) binding: Binding,
    id: QueueId,
    context: Arc<Context>,
    site: Arc<Site>,
    device: Arc<Device>,
    spec: DeviceQueueSpec,
}

/// The parameters that a device queue is made with.
#[derive(Debug, Clone)]
pub struct DeviceQueueSpec {
    /// The bits of `CL_QUEUE_PROPERTIES`.
    pub properties: u64,
    /// The property list as the application gave it, with the terminating 0.
    pub property_list: Vec<u64>,
    /// `CL_QUEUE_SIZE`, if it was given.
    pub size: Option<u32>,
}

/// The device queues of a context.
#[derive(Debug, Default)]
pub(in crate::stub) struct DeviceQueues(Mutex<ContextDeviceQueues>);

#[derive(Debug, Default)]
struct ContextDeviceQueues {
    all: Vec<Weak<DeviceQueue>>,
    // At most one for each device.
    defaults: Vec<Weak<DeviceQueue>>,
}

impl ContextDeviceQueues {
    fn default_of(&self, device: &Arc<Device>) -> Option<Arc<DeviceQueue>> {
        let mut alive = self.defaults.iter().filter_map(Weak::upgrade);
        alive.find(|queue| Arc::ptr_eq(&queue.device, device))
    }

    fn set_default(&mut self, queue: &Arc<DeviceQueue>) {
        let of_another = |known: &Weak<DeviceQueue>| {
            let known = known.upgrade();
            known.is_some_and(|known| !Arc::ptr_eq(&known.device, &queue.device))
        };
        self.defaults.retain(of_another);
        self.defaults.push(Arc::downgrade(queue));
    }
}

impl DeviceQueue {
    /// Makes a queue on a device of the context, without waiting.
    ///
    /// # Errors
    /// `CL_OUT_OF_RESOURCES` when the context has as many as the device supports, `CL_DEVICE_NOT_AVAILABLE`
    /// when the session is lost.
    pub fn new(
        context: Arc<Context>,
        device: Arc<Device>,
        spec: DeviceQueueSpec,
    ) -> ClResult<Arc<DeviceQueue>> {
        let site = context.site_of(&device).clone();
        // Locked until the queue is in the list, so that two threads cannot exceed the limit.
        let mut known = context.device_queues().0.lock();
        known.all.retain(|queue| queue.strong_count() > 0);
        let alive = known.all.iter().filter_map(Weak::upgrade);
        let there = alive.filter(|queue| Arc::ptr_eq(&queue.device, &device));
        let most = device.number(CL_DEVICE_MAX_ON_DEVICE_QUEUES);
        // clCreateCommandQueueWithProperties: CL_OUT_OF_RESOURCES when the device has no room for
        // another on-device queue, by CL_DEVICE_MAX_ON_DEVICE_QUEUES.
        require((there.count() as u64) < most, CL_OUT_OF_RESOURCES)?;
        let id = QueueId(next_id());
        let mut properties = spec.property_list.clone();
        properties.pop();
        site.send(Kind::CreateDeviceQueue(CreateDeviceQueue {
            queue: id.0,
            context: site.context().0,
            device: device.index().0,
            properties,
        }))?;
        let is_default = spec.properties & CL_QUEUE_ON_DEVICE_DEFAULT != 0;
        let queue = Arc::new(DeviceQueue {
            binding: Binding::default(),
            id,
            context: context.clone(),
            site,
            device,
            spec,
        });
        known.all.push(Arc::downgrade(&queue));
        if is_default {
            known.set_default(&queue);
        }
        Ok(queue)
    }

    /// Returns the default queue of a device in a context, if there is one.
    #[must_use]
    pub fn default_of(context: &Context, device: &Arc<Device>) -> Option<Arc<DeviceQueue>> {
        context.device_queues().0.lock().default_of(device)
    }

    /// `clSetDefaultDeviceCommandQueue`: makes this queue the default of its device in its context.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the session is lost.
    pub fn make_default(self: &Arc<Self>) -> ClResult {
        let mut known = self.context.device_queues().0.lock();
        self.site
            .send(Kind::SetDefaultDeviceQueue(SetDefaultDeviceQueue {
                queue: self.id.0,
            }))?;
        known.set_default(self);
        Ok(())
    }

    /// Returns the queue's id on the wire.
    #[must_use]
    pub fn id(&self) -> QueueId {
        self.id
    }

    /// Returns the queue's context.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Returns the queue's device.
    #[must_use]
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Returns `CL_QUEUE_PROPERTIES`.
    #[must_use]
    pub fn properties(&self) -> u64 {
        self.spec.properties
    }

    /// Returns `CL_QUEUE_PROPERTIES_ARRAY`, with the terminating 0.
    #[must_use]
    pub fn property_list(&self) -> &[u64] {
        &self.spec.property_list
    }

    /// Returns `CL_QUEUE_SIZE`, in bytes.
    #[must_use]
    pub fn size(&self) -> u32 {
        let preferred = || self.device.number(CL_DEVICE_QUEUE_ON_DEVICE_PREFERRED_SIZE) as u32;
        self.spec.size.unwrap_or_else(preferred)
    }
}

impl Drop for DeviceQueue {
    fn drop(&mut self) {
        self.site.release(ObjectKind::DeviceQueue, self.id.0);
    }
}

/// Returns the supported properties of on-device queues (`CL_DEVICE_QUEUE_ON_DEVICE_PROPERTIES`); 0 if the
/// device has none.
#[must_use]
pub fn properties_on(device: &Device) -> u64 {
    let says = device.number(CL_DEVICE_DEVICE_ENQUEUE_CAPABILITIES);
    // All OpenCL 2.x devices have device queues, but lack this query.
    let has = device.version().0 == 2 || says & CL_DEVICE_QUEUE_SUPPORTED != 0;
    if has {
        device.number(CL_DEVICE_QUEUE_ON_DEVICE_PROPERTIES)
    } else {
        0
    }
}

/// Whether another queue may become the device's default: the device reports so, or it is an OpenCL 2.1 or
/// 2.2 device.
#[must_use]
pub fn has_replaceable_default(device: &Device) -> bool {
    let says = device.number(CL_DEVICE_DEVICE_ENQUEUE_CAPABILITIES);
    match device.version() {
        (2, minor) => minor >= 1 && device.number(CL_DEVICE_MAX_ON_DEVICE_QUEUES) != 0,
        _ => says & CL_DEVICE_QUEUE_REPLACEABLE_DEFAULT != 0,
    }
}
