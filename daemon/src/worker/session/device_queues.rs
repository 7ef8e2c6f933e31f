//! Queues on devices. Kernels enqueue into them; the client only names the queue.
//!
//! A default queue is not an argument of a launch, so it is unknown which launches use it. A queue that
//! the client releases while commands are held back therefore stays until none is held.
#![forbid(unsafe_code)]

use std::sync::Arc;

use causeway_proto::command::{CreateDeviceQueue, Notice, ObjectKind, SetDefaultDeviceQueue};
use causeway_proto::id::{ContextId, DeviceIndex, QueueId};
use causeway_proto::limits::MAX_LIST;

use super::shared::{Core, Shared};
use super::tables::{add, find};
use super::violation::Violation;
use crate::runtime::device_queue::DeviceQueue as NativeQueue;
use crate::worker::objects::DeviceQueue;

/// Applies `CreateDeviceQueue`.
pub(super) fn create(shared: &Arc<Shared>, create: &CreateDeviceQueue) -> Result<(), Violation> {
    let (id, index) = (QueueId(create.queue), DeviceIndex(create.device));
    if create.properties.len() > MAX_LIST || !create.properties.len().is_multiple_of(2) {
        return Err(Violation::Malformed(
            "a queue's properties are not pairs of name and value",
        ));
    }
    let (context, gone) = {
        let mut core = shared.core.lock();
        let context = find(&core.objects.contexts, ContextId(create.context))?;
        (context, no_longer_used(&mut core))
    };
    // A device has few of these queues. So released ones must be gone before the next one is made.
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

/// Makes a queue the default of its device.
pub(super) fn set_default(
    shared: &Arc<Shared>,
    set: &SetDefaultDeviceQueue,
) -> Result<(), Violation> {
    let id = QueueId(set.queue);
    let queue = find(&shared.core.lock().objects.device_queues, id)?;
    // If the queue is broken, the client has already had a notice.
    if let (Ok(native), Ok(context)) = (queue.native(), queue.context.native())
        && let Err(status) = native.make_default(context)
    {
        shared.outbox.notice(Notice {
            object: ObjectKind::DeviceQueue.into(),
            id: id.0,
            status: status.0,
            message: format!("the driver refuses device queue {} as the default", id.0),
            context: queue.context.id.0,
        });
    }
    Ok(())
}

/// Removes a queue that the client has released. Returns queues that the caller drops after
/// it has released the lock.
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
