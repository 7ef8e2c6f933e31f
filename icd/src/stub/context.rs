//! A context: a compound stub over the sites of its devices.
//!
//! Invariant: its sites are there, in the order of their first devices, as long as it lives; a site whose
//! session is lost stays among them.

use std::sync::{Arc, Weak};

use causeway_proto::command::ObjectKind;
use causeway_proto::id::QueueId;
use parking_lot::Mutex;

use super::device_queue::DeviceQueues;
use super::distributed::Distributed;
use super::{Binding, Device, Queue, SessionLink, Site, callbacks, next_id};
use crate::error::ClResult;
use crate::transport::Node;

/// The application's error callback, with its private data inside.
pub type ContextNotify = Arc<dyn Fn(&str) + Send + Sync>;

/// See the module.
pub struct Context {
    pub(crate) binding: Binding,
    devices: Vec<Arc<Device>>,
    properties: Vec<isize>,
    sites: Vec<Arc<Site>>,
    // There with several sites.
    distributed: Option<Distributed>,
    notify: Mutex<Option<ContextNotify>>,
    destructors: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
    own_queue: Mutex<Option<QueueId>>,
    // The application's.
    queues: Mutex<Vec<Weak<Queue>>>,
    device_queues: DeviceQueues,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("sites", &self.sites)
            .finish_non_exhaustive()
    }
}

impl Context {
    /// Makes a context of `devices` (not empty, no duplicates); `properties` are echoed by queries, as
    /// given with their 0, empty for NULL.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` and whatever else the wire says when one of the nodes gives no session.
    pub fn new(
        devices: Vec<Arc<Device>>,
        properties: Vec<isize>,
        notify: Option<ContextNotify>,
    ) -> ClResult<Arc<Context>> {
        let sites = open_sites(&devices)?;
        let context = Arc::new(Context {
            binding: Binding::default(),
            devices,
            properties,
            distributed: (sites.len() > 1).then(|| Distributed::new(&sites)),
            sites,
            notify: Mutex::new(notify),
            destructors: Mutex::default(),
            own_queue: Mutex::default(),
            queues: Mutex::default(),
            device_queues: DeviceQueues::default(),
        });
        for site in &context.sites {
            site.link().register_context(site.context(), &context);
        }
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

    /// Its sites: one at least.
    #[must_use]
    pub fn sites(&self) -> &[Arc<Site>] {
        &self.sites
    }

    /// Whether it spans several sites.
    #[must_use]
    pub fn is_distributed(&self) -> bool {
        self.distributed.is_some()
    }

    /// What orders the commands of a context of several sites.
    pub(super) fn distributed(&self) -> Option<&Distributed> {
        self.distributed.as_ref()
    }

    /// What was enqueued leaves now, to whichever site.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the session of the only site is lost; of several, each tells by itself.
    pub fn flush(&self) -> ClResult {
        if let [site] = &self.sites[..] {
            return Ok(site.session().flush()?);
        }
        for site in &self.sites {
            let _ = site.session().flush();
        }
        Ok(())
    }

    /// The site of one of its devices.
    ///
    /// # Panics
    /// When the device is none of its.
    #[must_use]
    pub fn site_of(&self, device: &Device) -> &Arc<Site> {
        let mut sites = self.sites.iter();
        sites
            .find(|site| site.has(device))
            .expect("a device of the context is of one of its sites")
    }

    /// The first site; the only one of an ordinary context.
    #[must_use]
    pub fn site(&self) -> &Arc<Site> {
        &self.sites[0]
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

    /// Its queues on devices.
    pub(super) fn device_queues(&self) -> &DeviceQueues {
        &self.device_queues
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
        if let Some(queue) = self.own_queue.get_mut().take() {
            self.site().release(ObjectKind::Queue, queue.0);
        }
        if let Some(distributed) = self.distributed.take() {
            distributed.close();
        }
        for site in &self.sites {
            site.link().forget_context(site.context());
            site.release(ObjectKind::Context, site.context().0);
        }
        for callback in std::mem::take(self.destructors.get_mut()).into_iter().rev() {
            callbacks::run(callback);
        }
    }
}

// One site for each pair of node and native platform, in the order of the devices. The sessions are opened
// at the same time, since each may take its time.
fn open_sites(devices: &[Arc<Device>]) -> ClResult<Vec<Arc<Site>>> {
    let mut groups: Vec<Vec<Arc<Device>>> = Vec::new();
    for device in devices {
        let beside = |group: &&mut Vec<Arc<Device>>| {
            Arc::ptr_eq(group[0].node(), device.node()) && group[0].platform() == device.platform()
        };
        match groups.iter_mut().find(beside) {
            Some(group) => group.push(device.clone()),
            None => groups.push(vec![device.clone()]),
        }
    }
    let mut nodes: Vec<&Arc<Node>> = Vec::new();
    for group in &groups {
        if !nodes.iter().any(|node| Arc::ptr_eq(node, group[0].node())) {
            nodes.push(group[0].node());
        }
    }
    callbacks::prepare();
    let links = SessionLink::open_all(&nodes)?;
    let link_of = |node: &Arc<Node>| {
        let at = nodes.iter().position(|known| Arc::ptr_eq(known, node));
        links[at.expect("every device's node is among them")].clone()
    };
    let groups = groups
        .iter()
        .map(|group| link_of(group[0].node()))
        .zip(groups.clone());
    groups
        .enumerate()
        .map(|(index, (link, devices))| Site::open(index, link, devices))
        .collect()
}
