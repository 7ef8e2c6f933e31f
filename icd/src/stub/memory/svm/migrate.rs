//! `clEnqueueSVMMigrateMem` to the host: makes what kernels wrote visible to the program without a map.
//!
//! The specification requires this for maps only. But some drivers keep allocations in host memory anyway,
//! so programs read after a migration alone. So a migration to the host also reads the bytes into a
//! separate buffer. Then the bytes are copied into place, except where the program may be writing
//! ([`Fill`](crate::stub::memory::mapped::Fill)). Invariant: the migration's event ends after that.

use std::sync::Arc;

use causeway_proto::region::Region;
use cl_headers::types::{
    CL_COMMAND_SVM_MIGRATE_MEM, CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED, CL_MIGRATE_MEM_OBJECT_HOST,
};
use smallvec::smallvec;

use crate::error::{ClResult, Status};
use crate::shadow::{self, Shadow};
use crate::stub::event::EventSpec;
use crate::stub::queue::command::{Enqueue, HostTransfer, NodeCommand};
use crate::stub::{Buffer, Command, Event, Hold, Queue};

/// Enqueues the migration of these ranges of allocations.
///
/// # Errors
/// Those of [`Queue::enqueue`].
pub fn migrate(
    queue: &Arc<Queue>,
    ranges: &[(Arc<Buffer>, Region)],
    flags: u64,
    mut wait: Vec<Arc<Event>>,
    wants_event: bool,
) -> ClResult<Arc<Event>> {
    let (host, undefined) = (
        CL_MIGRATE_MEM_OBJECT_HOST,
        CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED,
    );
    if flags & (host | undefined) == host {
        let fills = ranges
            .iter()
            .map(|(buffer, region)| fill(queue, buffer, *region, wait.clone()));
        let fills = fills.collect::<ClResult<Vec<_>>>()?;
        wait.extend(fills);
    }
    let whole = ranges
        .iter()
        .all(|(buffer, region)| region.packed_length() == buffer.size());
    // Nodes migrate whole allocations, so the flag would also discard bytes outside of the range.
    let flags = if whole {
        flags
    } else {
        flags & !CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED
    };
    let buffers: Vec<_> = ranges.iter().map(|(buffer, _)| buffer.clone()).collect();
    let event = EventSpec {
        event_type: CL_COMMAND_SVM_MIGRATE_MEM,
        wait,
        hold: Hold::from(&*buffers),
        finisher: None,
        visible: wants_event,
        note: None,
    };
    let command = Command::Node(NodeCommand::Migrate { buffers, flags });
    Ok(queue.enqueue(Enqueue { command, event })?.event)
}

/// Enqueues a read of a range into separate memory. The read ends with copying the bytes into place.
fn fill(
    queue: &Arc<Queue>,
    buffer: &Arc<Buffer>,
    region: Region,
    wait: Vec<Arc<Event>>,
) -> ClResult<Arc<Event>> {
    let length = region.packed_length();
    let fill = buffer.fill(region);
    let staged = Shadow::new(length).ok_or(Status::OUT_OF_HOST_MEMORY)?;
    let all = Region::linear(0, length).map_err(|_| Status::OUT_OF_RESOURCES)?;
    let read = HostTransfer {
        buffer: buffer.clone(),
        region,
        host: shadow::view(staged.address(), all, None),
    };
    let event = EventSpec {
        event_type: CL_COMMAND_SVM_MIGRATE_MEM,
        wait,
        hold: smallvec![buffer.clone()],
        finisher: Some(Box::new(move |status, _| {
            if status.is_error() {
                return;
            }
            fill.land(|at, length| {
                let part = Region::linear(at, length).ok()?;
                Some(shadow::view(staged.address(), part, None).copy_out())
            });
        })),
        visible: true,
        note: None,
    };
    let to = shadow::view(buffer.client_base()?, buffer.in_root(&region)?, None).addresses();
    let command = Command::StagedRead { read, to };
    Ok(queue.enqueue(Enqueue { command, event })?.event)
}
