//! `clEnqueueSVMMigrateMem` to the host: makes what kernels wrote visible to the program without a map.
//!
//! The specification requires this for maps only. But some drivers keep allocations in host memory anyway,
//! so programs read after a migration alone. So a migration to the host also reads the bytes into a
//! separate buffer. Then the bytes are copied into place, except where the program may be writing
//! ([`Fill`]). Invariant: the migration's event ends after that.

use std::sync::Arc;

use causeway_proto::command::{ReadBuffer, enqueue::Operation};
use causeway_proto::limits::INLINE_PAYLOAD;
use causeway_proto::region::Region;
use cl_headers::types::{
    CL_COMMAND_SVM_MIGRATE_MEM, CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED, CL_MIGRATE_MEM_OBJECT_HOST,
};
use smallvec::smallvec;

use crate::error::{ClResult, Status};
use crate::shadow::{self, Shadow};
use crate::stub::event::Finisher;
use crate::stub::mapped::Fill;
use crate::stub::{Buffer, Event, Hold, Queue, Submission, Work};

/// Enqueues the migration of these ranges of allocations.
///
/// # Errors
/// Those of [`Queue::submit`].
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
    let submission = Submission {
        hold: Hold::from(&*buffers),
        work: Work::Migrate { buffers, flags },
        command: CL_COMMAND_SVM_MIGRATE_MEM,
        wait,
        finisher: None,
        visible: wants_event,
    };
    queue.submit(submission, |_| Ok(()))
}

/// Enqueues a read of a range that ends with copying the bytes into place.
fn fill(
    queue: &Arc<Queue>,
    buffer: &Arc<Buffer>,
    region: Region,
    wait: Vec<Arc<Event>>,
) -> ClResult<Arc<Event>> {
    let length = region.packed_length();
    let fill = buffer.fill(region);
    let bulk = length > INLINE_PAYLOAD as u64;
    let staged = if bulk {
        let staged = Shadow::new(length).ok_or(Status::OUT_OF_HOST_MEMORY)?;
        let all = Region::linear(0, length).map_err(|_| Status::OUT_OF_RESOURCES)?;
        Some((shadow::view(staged.address(), all, None), staged))
    } else {
        None
    };
    let (download, staged) = staged.unzip();
    let submission = Submission {
        work: Work::Ready(Operation::ReadBuffer(ReadBuffer {
            buffer: buffer.id_on(queue.site())?.0,
            region: Some(region.to_wire()),
            bulk,
        })),
        command: CL_COMMAND_SVM_MIGRATE_MEM,
        wait,
        hold: smallvec![buffer.clone()],
        finisher: Some(landing(fill, staged)),
        visible: true,
    };
    queue.submit(submission, |event| match download {
        Some(host) => Ok(queue.site().session().download(event.id(), host)?),
        None => Ok(()),
    })
}

/// Returns the finisher that copies the bytes into place, from `staged` or else from the completion.
fn landing(fill: Fill, staged: Option<Shadow>) -> Finisher {
    Box::new(move |status, contents| {
        if status.is_error() {
            return;
        }
        fill.land(|at, length| match &staged {
            Some(staged) => {
                let part = Region::linear(at, length).ok()?;
                Some(shadow::view(staged.address(), part, None).copy_out())
            }
            None => {
                let (from, to) = (at as usize, (at + length) as usize);
                contents.get(from..to).map(<[u8]>::to_vec)
            }
        });
    })
}
