//! Reads and writes: `clEnqueueReadBuffer`, `clEnqueueWriteBuffer`, and what the other forms share with
//! them.

use std::sync::Arc;

use causeway_proto::region::Region;
use cl_headers::types::*;
use smallvec::smallvec;

use super::super::entry::entry_point;
use super::super::event::{give_event, wait_list};
use super::{Noun, host_region, on_queue};
use crate::error::{ClResult, fail, require};
use crate::stub::{Buffer, Command, Enqueue, EventSpec, HostTransfer, Queue};

/// The bytes of a command, in the buffer or image and in the application's memory.
pub(in crate::api) struct Regions {
    /// In the buffer or image.
    pub(in crate::api) buffer: Region,
    /// In host memory, counted from the application's pointer.
    pub(in crate::api) host: Region,
}

/// The arguments that all forms of reads and writes share.
pub(in crate::api) struct Arguments {
    pub(in crate::api) queue: cl_command_queue,
    pub(in crate::api) noun: Noun,
    pub(in crate::api) buffer: cl_mem,
    pub(in crate::api) how: How,
}

/// The arguments of a transfer apart from the queue and the memory object.
pub(in crate::api) struct How {
    pub(in crate::api) blocking: bool,
    pub(in crate::api) host: usize,
    pub(in crate::api) wait: (cl_uint, *const cl_event),
    pub(in crate::api) event: *mut cl_event,
    pub(in crate::api) command: cl_command_type,
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
    arguments: Arguments,
    way: Way,
    regions: impl FnOnce(&Buffer) -> ClResult<Regions>,
) -> ClResult {
    let memory = (arguments.noun, arguments.buffer);
    let (queue, [buffer]) = on_queue(arguments.queue, [memory])?;
    let regions = regions(&buffer)?;
    enqueue_on(&queue, buffer, regions, arguments.how, way)
}

/// As `enqueue`, for a queue and buffer that the caller has resolved and checked already.
pub(in crate::api) fn enqueue_on(
    queue: &Arc<Queue>,
    buffer: Arc<Buffer>,
    regions: Regions,
    how: How,
    way: Way,
) -> ClResult {
    // clEnqueueReadBuffer, clEnqueueWriteBuffer: CL_INVALID_VALUE when ptr is NULL.
    require(how.host != 0, CL_INVALID_VALUE)?;
    // SAFETY: the application keeps these bytes readable (write) or writable (read) until the command is
    // complete. They are not touched later.
    let host = unsafe { host_region(how.host, regions.host) }?;
    let (count, events) = how.wait;
    // SAFETY: the specification demands NULL or as many handles as the count says.
    let wait = unsafe { wait_list(queue.context(), count, events)? };
    check_host_access(&buffer, way)?;
    let wants_event = !how.event.is_null();
    // A blocking write may return once its bytes are copied, if the application cannot notice. That needs:
    // no event, a wait list of complete commands only, and no way to observe the queue from outside.
    let unobserved = how.blocking
        && !wants_event
        && wait.iter().all(|on| on.status() == 0)
        && queue.is_private();
    let hold = smallvec![buffer.clone()];
    let (command, may_return_early) = if regions.buffer.packed_length() == 0 {
        // A transfer of no bytes is still a command: it waits for its wait list and completes its event.
        (Command::Nothing, false)
    } else {
        let (buffer, region) = buffer.stored(&regions.buffer)?;
        let transfer = HostTransfer {
            buffer,
            region,
            host,
        };
        match way {
            Way::Read => (Command::Read(transfer), false),
            Way::Write => {
                let is_small = transfer.is_small();
                (Command::Write(transfer), is_small)
            }
        }
    };
    let event = EventSpec {
        event_type: how.command,
        wait,
        hold,
        finisher: None,
        visible: wants_event,
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
    // SAFETY: the specification lets `event` be NULL or writable.
    unsafe { give_event(how.event, enqueued.event) };
    Ok(())
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
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> ClResult {
    let arguments = Arguments {
        queue: command_queue,
        noun: Noun::Buffer,
        buffer,
        how: How {
            blocking: blocking_read != CL_FALSE,
            host: ptr.expose_provenance(),
            wait: (num_events_in_wait_list, event_wait_list),
            event,
            command: CL_COMMAND_READ_BUFFER,
        },
    };
    enqueue(arguments, Way::Read, |buffer| linear(buffer, offset, size))
}

#[entry_point]
pub(crate) fn clEnqueueWriteBuffer(
    command_queue: cl_command_queue,
    buffer: cl_mem,
    blocking_write: cl_bool,
    offset: size_t,
    size: size_t,
    ptr: *const c_void,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> ClResult {
    let arguments = Arguments {
        queue: command_queue,
        noun: Noun::Buffer,
        buffer,
        how: How {
            blocking: blocking_write != CL_FALSE,
            host: ptr.expose_provenance(),
            wait: (num_events_in_wait_list, event_wait_list),
            event,
            command: CL_COMMAND_WRITE_BUFFER,
        },
    };
    enqueue(arguments, Way::Write, |buffer| linear(buffer, offset, size))
}
