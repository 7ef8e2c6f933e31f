//! A context: a compound stub over the sites of its devices.
//!
//! Today all devices of a context are of one site; what belongs to a site is reached through
//! [`Context::site`].

use std::sync::{Arc, Weak};

use causeway_proto::command::ObjectKind;
use causeway_proto::id::{ContextId, QueueId};
use cl_headers::types::CL_INVALID_DEVICE;
use parking_lot::Mutex;

use super::{Binding, Device, Queue, Site, callbacks, next_id};
use crate::error::{ClResult, require};

/// The application's error callback, with its private data inside.
pub type ContextNotify = Arc<dyn Fn(&str) + Send + Sync>;

/// See the module.
pub struct Context {
    pub(crate) binding: Binding,
    devices: Vec<Arc<Device>>,
    properties: Vec<isize>,
    site: Arc<Site>,
    notify: Mutex<Option<ContextNotify>>,
    destructors: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
    own_queue: Mutex<Option<QueueId>>,
    // The application's.
    queues: Mutex<Vec<Weak<Queue>>>,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("site", &self.site)
            .finish_non_exhaustive()
    }
}

impl Context {
    /// Makes a context of `devices` (not empty, no duplicates); `properties` are echoed by queries, as
    /// given with their 0, empty for NULL.
    ///
    /// # Errors
    /// `CL_INVALID_DEVICE` for devices of several sites, which this version cannot join; what the
    /// wire says when the node gives no session.
    pub fn new(
        devices: Vec<Arc<Device>>,
        properties: Vec<isize>,
        notify: Option<ContextNotify>,
    ) -> ClResult<Arc<Context>> {
        let first = &devices[0];
        let one_site = devices.iter().all(|device| {
            Arc::ptr_eq(device.node(), first.node()) && device.platform() == first.platform()
        });
        require(one_site, CL_INVALID_DEVICE)?;
        let id = ContextId(next_id());
        let site = Site::open(id, first.platform(), &devices)?;
        let context = Arc::new(Context {
            binding: Binding::default(),
            devices,
            properties,
            site,
            notify: Mutex::new(notify),
            destructors: Mutex::default(),
            own_queue: Mutex::default(),
            queues: Mutex::default(),
        });
        context.site.link().register_context(id, &context);
        Ok(context)
    }

    /// Its devices, in the application's order.
    #[must_use]
    pub fn devices(&self) -> &[Arc<Device>] {
        &self.devices
    }

    /// Whether the device is one of its.
    #[must_use]
    pub fn has_device(&self, device: &Arc<Device>) -> bool {
        self.devices.iter().any(|own| Arc::ptr_eq(own, device))
    }

    /// What `CL_CONTEXT_PROPERTIES` echoes.
    #[must_use]
    pub fn properties(&self) -> &[isize] {
        &self.properties
    }

    /// Its site.
    #[must_use]
    pub fn site(&self) -> &Arc<Site> {
        &self.site
    }

    /// Notes a new queue of the application's; the others that there are.
    pub(super) fn add_queue(&self, queue: &Arc<Queue>) -> Vec<Arc<Queue>> {
        let mut queues = self.queues.lock();
        queues.retain(|queue| queue.strong_count() > 0);
        let others = queues.iter().filter_map(Weak::upgrade).collect();
        queues.push(Arc::downgrade(queue));
        others
    }

    /// Whether the application has one queue here at most.
    pub(super) fn has_one_queue(&self) -> bool {
        let mut queues = self.queues.lock();
        queues.retain(|queue| queue.strong_count() > 0);
        queues.len() <= 1
    }

    /// The id of the context's own queue on the node; `create` makes it the first time.
    pub(super) fn own_queue(&self, create: impl FnOnce(QueueId) -> ClResult) -> ClResult<QueueId> {
        let mut own = self.own_queue.lock();
        if let Some(id) = *own {
            return Ok(id);
        }
        let id = QueueId(next_id());
        create(id)?;
        *own = Some(id);
        Ok(id)
    }

    /// Tells the application's error callback, on the callback thread.
    pub fn notify(self: &Arc<Self>, text: &str) {
        let text = text.to_owned();
        let context = Arc::downgrade(self);
        callbacks::run(move || {
            // After the destructor callbacks the error callback must not be heard any more.
            let notify = context
                .upgrade()
                .and_then(|context| context.notify.lock().clone());
            if let Some(notify) = notify {
                notify(&text);
            }
        });
    }

    /// `clSetContextDestructorCallback`: runs once when the context is gone, the last registered first.
    pub fn on_destroyed(&self, callback: Box<dyn FnOnce() + Send>) {
        self.destructors.lock().push(callback);
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let id = self.site.context();
        self.site.link().forget_context(id);
        if let Some(queue) = self.own_queue.get_mut().take() {
            self.site.release(ObjectKind::Queue, queue.0);
        }
        self.site.release(ObjectKind::Context, id.0);
        for callback in std::mem::take(self.destructors.get_mut()).into_iter().rev() {
            callbacks::run(callback);
        }
    }
}
