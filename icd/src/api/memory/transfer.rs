//! Reads and writes: `clEnqueueReadBuffer`, `clEnqueueWriteBuffer`, and what the other forms share with
//! them.

use std::sync::Arc;

use causeway_proto::region::Region;
use cl_headers::types::*;
use smallvec::smallvec;

use super::super::entry::entry_point;
use super::super::event::Events;
use super::{Noun, host_region, on_queue};
use crate::error::{ClResult, fail, require};
use crate::stub::{Buffer, Command, Enqueue, EventSpec, HostTransfer, NodeCommand, Queue};
use crate::transport::HostRegion;

/// The bytes of a command, in the buffer or image and in the application's memory.
pub(in crate::api) struct Regions {
    /// In the buffer or image.
    pub(in crate::api) buffer: Region,
    /// In host memory, counted from the application's pointer.
    pub(in crate::api) host: Region,
}

/// The arguments of a transfer apart from the queue and the memory object.
pub(in crate::api) struct How {
    way: Way,
    blocking: bool,
    host: usize,
    events: Events,
    command: cl_command_type,
}

impl How {
    pub(in crate::api) fn read(
        blocking: cl_bool,
        host: *mut c_void,
        events: Events,
        command: cl_command_type,
    ) -> How {
        How {
            way: Way::Read,
            blocking: blocking != CL_FALSE,
            host: host.expose_provenance(),
            events,
            command,
        }
    }

    pub(in crate::api) fn write(
        blocking: cl_bool,
        host: *const c_void,
        events: Events,
        command: cl_command_type,
    ) -> How {
        How {
            way: Way::Write,
            ..How::read(blocking, host.cast_mut(), events, command)
        }
    }
}

/// The direction of a transfer, seen from the host.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::api) enum Way {
    Read,
    Write,
}

/// Checks that the buffer's flags allow the host this access.
pub(in crate::api) fn check_host_access(buffer: &Buffer, way: Way) -> ClResult {
    let forbidding = CL_MEM_HOST_NO_ACCESS
        | match way {
            Way::Read => CL_MEM_HOST_WRITE_ONLY,
            Way::Write => CL_MEM_HOST_READ_ONLY,
        };
    // clEnqueueReadBuffer, clEnqueueWriteBuffer: CL_INVALID_OPERATION when the buffer's CL_MEM_HOST_* flags
    // exclude the access.
    require(buffer.flags() & forbidding == 0, CL_INVALID_OPERATION)
}

/// Checks and enqueues a transfer. For a blocking call, waits until it is complete.
pub(in crate::api) fn enqueue(
    command_queue: cl_command_queue,
    memory: (Noun, cl_mem),
    how: How,
    regions: impl FnOnce(&Buffer) -> ClResult<Regions>,
) -> ClResult {
    let (queue, [buffer]) = on_queue(command_queue, [memory])?;
    let regions = regions(&buffer)?;
    enqueue_on(&queue, buffer, regions, how)
}

/// As `enqueue`, for a queue and buffer that the caller has resolved and checked already.
pub(in crate::api) fn enqueue_on(
    queue: &Arc<Queue>,
    buffer: Arc<Buffer>,
    regions: Regions,
    how: How,
) -> ClResult {
    // clEnqueueReadBuffer, clEnqueueWriteBuffer: CL_INVALID_VALUE when ptr is NULL.
    require(how.host != 0, CL_INVALID_VALUE)?;
    // SAFETY: the application keeps these bytes readable (write) or writable (read) until the command is
    // complete. They are not touched later.
    let host = unsafe { host_region(how.host, regions.host) }?;
    let wait = how.events.wait_list(queue.context())?;
    check_host_access(&buffer, how.way)?;
    let wants_event = how.events.wants_event();
    // A blocking write may return once its bytes are copied, if the application cannot notice. That needs:
    // no event, a wait list of complete commands only, and no way to observe the queue from outside.
    let unobserved = how.blocking
        && !wants_event
        && wait.iter().all(|on| on.status() == 0)
        && queue.is_private();
    let hold = smallvec![buffer.clone()];
    let (command, may_return_early) = command(&buffer, &regions, host, how.way)?;
    let event = EventSpec {
        event_type: how.command,
        wait,
        hold,
        finisher: None,
        visible: wants_event,
        note: None,
    };
    let enqueue = || queue.enqueue(Enqueue { command, event });
    // Only writes whose bytes travel inside of the command can return early: their bytes are copied at once.
    let enqueued = if how.blocking && !(unobserved && may_return_early) {
        // The caller waits next anyway, so it sends the outbox itself and no other thread is woken for that.
        queue.before_waiting(enqueue)?
    } else {
        enqueue()?
    };
    let returns_early = unobserved && enqueued.taken && queue.note_early_return(&enqueued.event);
    if how.blocking && !returns_early {
        enqueued.event.outcome()?;
    }
    how.events.give(enqueued.event);
    Ok(())
}

/// The command of a transfer, and whether a blocking call may return before it is complete.
fn command(
    buffer: &Arc<Buffer>,
    regions: &Regions,
    host: HostRegion,
    way: Way,
) -> ClResult<(Command, bool)> {
    if regions.buffer.packed_length() == 0 {
        // A transfer of no bytes is still a command: it waits for its wait list and completes its event.
        return Ok((Command::Node(NodeCommand::Nothing), false));
    }
    let (buffer, region) = buffer.stored(&regions.buffer)?;
    let transfer = HostTransfer {
        buffer,
        region,
        host,
    };
    Ok(match way {
        Way::Read => (Command::Read(transfer), false),
        Way::Write => {
            let is_small = transfer.is_small();
            (Command::Write(transfer), is_small)
        }
    })
}

/// A contiguous run of bytes at the application's pointer.
fn linear(buffer: &Buffer, offset: size_t, size: size_t) -> ClResult<Regions> {
    Ok(Regions {
        // clEnqueueReadBuffer, clEnqueueWriteBuffer: CL_INVALID_VALUE when the region leaves the buffer.
        buffer: buffer.range(offset as u64, size as u64)?,
        // clEnqueueReadBuffer, clEnqueueWriteBuffer: CL_INVALID_VALUE when the size is not valid.
        host: Region::linear(0, size as u64).or(fail(CL_INVALID_VALUE))?,
    })
}

#[entry_point]
pub(crate) fn clEnqueueReadBuffer(
    command_queue: cl_command_queue,
    buffer: cl_mem,
    blocking_read: cl_bool,
    offset: size_t,
    size: size_t,
    ptr: *mut c_void,
    events: Events,
) -> ClResult {
    let how = How::read(blocking_read, ptr, events, CL_COMMAND_READ_BUFFER);
    enqueue(command_queue, (Noun::Buffer, buffer), how, |buffer| {
        linear(buffer, offset, size)
    })
}

#[entry_point]
pub(crate) fn clEnqueueWriteBuffer(
    command_queue: cl_command_queue,
    buffer: cl_mem,
    blocking_write: cl_bool,
    offset: size_t,
    size: size_t,
    ptr: *const c_void,
    events: Events,
) -> ClResult {
    let how = How::write(blocking_write, ptr, events, CL_COMMAND_WRITE_BUFFER);
    enqueue(command_queue, (Noun::Buffer, buffer), how, |buffer| {
        linear(buffer, offset, size)
    })
}
