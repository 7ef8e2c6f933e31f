//! A context: a compound stub over the sites of its devices.
//!
//! Invariant: the list of sites is fixed for the life of the context, in the order of their first devices.
//! A site whose session is lost stays in the list.

pub(in crate::stub) mod remote;
pub(in crate::stub) mod repeats;

use std::sync::{Arc, Weak};

use causeway_proto::command::ObjectKind;
use causeway_proto::id::QueueId;
use parking_lot::Mutex;

use crate::error::ClResult;
use crate::stub::distributed::Distributed;
use crate::stub::queue::device_queue::DeviceQueues;
use crate::stub::{Binding, Device, Queue, SessionLink, Site, event::callbacks, next_id};
use crate::transport::Node;

/// The application's error callback, with its private data inside.
pub type ContextNotify = Arc<dyn Fn(&str) + Send + Sync>;

/// An OpenCL context; see the module.
pub struct Context {
    pub(crate) binding: Binding,
    devices: Vec<Arc<Device>>,
    properties: Vec<isize>,
    sites: Vec<Arc<Site>>,
    // Present only in a context of several sites.
    distributed: Option<Distributed>,
    notify: Mutex<Option<ContextNotify>>,
    destructors: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
    own_queue: Mutex<Option<QueueId>>,
    // The queues that the application created.
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
    /// Makes a context for `devices`, which must not be empty or contain duplicates. Queries return
    /// `properties` as given: with the terminating 0, or empty for NULL.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE`, or the code of the wire error, when one of the nodes cannot open a
    /// session.
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

    /// Returns the context's devices, in the application's order.
    #[must_use]
    pub fn devices(&self) -> &[Arc<Device>] {
        &self.devices
    }

    /// Whether the context contains `device`.
    #[must_use]
    pub fn has_device(&self, device: &Arc<Device>) -> bool {
        self.devices.iter().any(|own| Arc::ptr_eq(own, device))
    }

    /// Returns the property list that `CL_CONTEXT_PROPERTIES` reports.
    #[must_use]
    pub fn properties(&self) -> &[isize] {
        &self.properties
    }

    /// Returns the context's sites; there is at least one.
    #[must_use]
    pub fn sites(&self) -> &[Arc<Site>] {
        &self.sites
    }

    /// Whether the context spans several sites.
    #[must_use]
    pub fn is_distributed(&self) -> bool {
        self.distributed.is_some()
    }

    /// Returns the command sequence of a context of several sites; `None` for a context of one site.
    pub(super) fn distributed(&self) -> Option<&Distributed> {
        self.distributed.as_ref()
    }

    /// Sends everything that is still in the outboxes, to all sites.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the session of the only site is lost. With several sites this never
    /// fails: the loss of one session is reported by that session itself.
    pub fn flush(&self) -> ClResult {
        if let [site] = &self.sites[..] {
            return Ok(site.session().flush()?);
        }
        for site in &self.sites {
            let _ = site.session().flush();
        }
        Ok(())
    }

    /// Returns the site of one of the context's devices.
    ///
    /// # Panics
    /// When the device does not belong to the context.
    #[must_use]
    pub fn site_of(&self, device: &Device) -> &Arc<Site> {
        let mut sites = self.sites.iter();
        sites
            .find(|site| site.has(device))
            .expect("every device of the context has a site")
    }

    /// Returns the first site, which is the only one of an ordinary context.
    #[must_use]
    pub fn site(&self) -> &Arc<Site> {
        &self.sites[0]
    }

    /// Registers a new queue of the application and returns the other queues that are alive.
    pub(super) fn add_queue(&self, queue: &Arc<Queue>) -> Vec<Arc<Queue>> {
        let mut queues = self.queues.lock();
        queues.retain(|queue| queue.strong_count() > 0);
        let others = queues.iter().filter_map(Weak::upgrade).collect();
        queues.push(Arc::downgrade(queue));
        others
    }

    /// Whether the application has at most one live queue in this context.
    pub(super) fn has_one_queue(&self) -> bool {
        let mut queues = self.queues.lock();
        queues.retain(|queue| queue.strong_count() > 0);
        queues.len() <= 1
    }

    /// Returns the context's on-device queues.
    pub(super) fn device_queues(&self) -> &DeviceQueues {
        &self.device_queues
    }

    /// Returns the id of the context's internal queue on the node. The first call makes the queue with
    /// `create`.
    pub(super) fn own_queue(&self, create: impl FnOnce(QueueId) -> ClResult) -> ClResult<QueueId> {
        let mut own = self.own_queue.lock();
        if let Some(id) = *own {
            return Ok(id);
        }
        let id = QueueId(next_id());
        // Stored only after `create` succeeds, so that a later call can try again.
        create(id)?;
        *own = Some(id);
        Ok(id)
    }

    /// Calls the application's error callback with `text`, on the callback thread.
    pub fn notify(self: &Arc<Self>, text: &str) {
        let text = text.to_owned();
        let context = Arc::downgrade(self);
        callbacks::run(move || {
            // The weak reference ensures that the error callback never runs after the destructor callbacks.
            let notify = context
                .upgrade()
                .and_then(|context| context.notify.lock().clone());
            if let Some(notify) = notify {
                notify(&text);
            }
        });
    }

    /// `clSetContextDestructorCallback`: registers a callback that runs once, after the context is
    /// destroyed. Callbacks run in reverse order of registration.
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

// Opens one site for each pair of node and native platform, in the order of the devices. The sessions open
// in parallel, because each one may take a while.
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
    // The callback thread must be started by a call of the application; see `callbacks::prepare`.
    callbacks::prepare();
    let links = SessionLink::open_all(&nodes)?;
    let link_of = |node: &Arc<Node>| {
        let at = nodes.iter().position(|known| Arc::ptr_eq(known, node));
        links[at.expect("every device's node has a link")].clone()
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
