//! Queues on devices: kernels enqueue into them, the client only says which.
//!
//! A default queue is no argument of a launch, so nobody knows which launches use it. One that the client releases
//! while commands are held back therefore lingers until none is.
#![forbid(unsafe_code)]

use std::sync::Arc;

use causeway_proto::command::{CreateDeviceQueue, Notice, ObjectKind, SetDefaultDeviceQueue};
use causeway_proto::id::{ContextId, DeviceIndex, QueueId};
use causeway_proto::limits::MAX_LIST;
use causeway_proto::status::Status;

use super::objects::{Context, add, find};
use super::{Core, Shared, Violation};
use crate::runtime::device_queue::DeviceQueue as NativeQueue;

/// A device queue, made or broken.
pub(crate) struct DeviceQueue {
    context: Arc<Context>,
    native: Result<NativeQueue, Status>,
}

impl DeviceQueue {
    /// The native queue.
    pub(crate) fn native(&self) -> Result<&NativeQueue, Status> {
        self.native.as_ref().map_err(|status| *status)
    }
}

/// Makes one.
///
/// # Errors
/// [`Violation`] for what no client of ours sends.
pub(super) fn create(shared: &Arc<Shared>, create: &CreateDeviceQueue) -> Result<(), Violation> {
    let (id, index) = (QueueId(create.queue), DeviceIndex(create.device));
    if create.properties.len() > MAX_LIST || !create.properties.len().is_multiple_of(2) {
        return Err(Violation::Malformed("a queue's properties are no pairs"));
    }
    let (context, gone) = {
        let mut core = shared.core.lock();
        let context = find(&core.objects.contexts, ContextId(create.context))?;
        (context, no_longer_used(&mut core))
    };
    // A device has few of them: what is released has gone before the next one is made.
    drop(gone);
    let device = context
        .device(index)
        .ok_or_else(|| Violation::Unknown(format!("{index:?} in a context")))?;
    let native = (shared.room()?.and(context.native()))
        .and_then(|native| NativeQueue::new(native, device, &create.properties));
    let broken = native.as_ref().err();
    shared.tell_broken(ObjectKind::DeviceQueue, id.0, broken, context.id);
    let queue = DeviceQueue { context, native };
    add(&mut shared.core.lock().objects.device_queues, id, queue)
}

/// Makes one the default of its device.
///
/// # Errors
/// [`Violation`] for what no client of ours sends.
pub(super) fn set_default(
    shared: &Arc<Shared>,
    set: &SetDefaultDeviceQueue,
) -> Result<(), Violation> {
    let id = QueueId(set.queue);
    let queue = find(&shared.core.lock().objects.device_queues, id)?;
    // That it could not be made has been told.
    if let (Ok(native), Ok(context)) = (queue.native(), queue.context.native())
        && let Err(status) = native.make_default(context)
    {
        shared.outbox.notice(Notice {
            object: ObjectKind::DeviceQueue.into(),
            id: id.0,
            status: status.0,
            message: format!("device queue {} could not become the default one", id.0),
            context: queue.context.id.0,
        });
    }
    Ok(())
}

/// The client has released one; what is to be dropped after the lock.
pub(super) fn remove(core: &mut Core, id: QueueId) -> Vec<Arc<DeviceQueue>> {
    let released = core.objects.device_queues.remove(&id);
    core.objects.lingering.extend(released);
    no_longer_used(core)
}

fn no_longer_used(core: &mut Core) -> Vec<Arc<DeviceQueue>> {
    if core.graph.held() > 0 {
        return Vec::new();
    }
    std::mem::take(&mut core.objects.lingering)
}
