//! Reads and writes: `clEnqueueReadBuffer`, `clEnqueueWriteBuffer`.

use std::sync::Arc;

use causeway_proto::region::Region;
use cl_headers::types::*;
use smallvec::smallvec;

use super::super::entry::entry_points;
use super::super::event::{give_event, wait_list};
use super::{Noun, host_region, on_queue};
use crate::error::{ClResult, fail, require};
use crate::stub::{Buffer, Event, Queue, Transfer, nothing};

/// Where a command's bytes are, in the buffer or image and in the application's memory.
pub(in crate::api) struct Regions {
    /// In the buffer or image.
    pub(in crate::api) buffer: Region,
    /// In host memory, counted from the pointer.
    pub(in crate::api) host: Region,
}

/// The arguments that reads and writes of all forms share.
pub(in crate::api) struct Arguments {
    pub(in crate::api) queue: cl_command_queue,
    pub(in crate::api) noun: Noun,
    pub(in crate::api) buffer: cl_mem,
    pub(in crate::api) how: How,
}

/// How a transfer was asked for.
pub(in crate::api) struct How {
    pub(in crate::api) blocking: bool,
    pub(in crate::api) host: usize,
    pub(in crate::api) wait: (cl_uint, *const cl_event),
    pub(in crate::api) event: *mut cl_event,
    pub(in crate::api) command: cl_command_type,
}

/// Which way the bytes go.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::api) enum Way {
    /// Buffer to host.
    Read,
    /// Host to buffer.
    Write,
}

/// "CL_INVALID_OPERATION if […] called on buffer which has been created with CL_MEM_HOST_WRITE_ONLY or
/// CL_MEM_HOST_NO_ACCESS" (reads; writes accordingly).
pub(in crate::api) fn check_host_access(buffer: &Buffer, way: Way) -> ClResult {
    let forbidding = CL_MEM_HOST_NO_ACCESS
        | match way {
            Way::Read => CL_MEM_HOST_WRITE_ONLY,
            Way::Write => CL_MEM_HOST_READ_ONLY,
        };
    require(buffer.flags() & forbidding == 0, CL_INVALID_OPERATION)
}

/// Checks, enqueues and, for a blocking call, waits.
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

/// The same on what has been looked up.
pub(in crate::api) fn enqueue_on(
    queue: &Arc<Queue>,
    buffer: Arc<Buffer>,
    regions: Regions,
    how: How,
    way: Way,
) -> ClResult {
    require(how.host != 0, CL_INVALID_VALUE)?;
    // SAFETY: the application keeps these bytes readable (write) or writable (read) until the command
    // is complete; they are touched no later.
    let host = unsafe { host_region(how.host, regions.host) }?;
    let (count, events) = how.wait;
    // SAFETY: the specification's contract of a wait list.
    let wait = unsafe { wait_list(queue.context(), count, events)? };
    check_host_access(&buffer, way)?;
    let wants_event = !how.event.is_null();
    // A blocking write may return as soon as its bytes are taken when the application cannot tell: no
    // event to look at, nothing it waits for that could fail, nobody beside the queue's own order.
    let unseen = how.blocking
        && !wants_event
        && wait.iter().all(|on| on.status() == 0)
        && queue.is_private();
    let (event, returns) = if regions.buffer.packed_length() == 0 {
        let hold = smallvec![buffer];
        let event = nothing(queue, how.command, wait, hold, None, wants_event)?;
        (event, false)
    } else {
        let (buffer, region) = buffer.stored(&regions.buffer)?;
        let transfer = Transfer {
            buffer,
            region,
            host,
            command: how.command,
            wait,
            wants_event,
            keep: None,
        };
        let returns_early = unseen && way == Way::Write && transfer.rides_along();
        if how.blocking && !returns_early && !queue.context().is_distributed() {
            queue.before_waiting(|| move_bytes(transfer, queue, way, unseen))?
        } else {
            move_bytes(transfer, queue, way, unseen)?
        }
    };
    if how.blocking && !returns {
        event.outcome()?;
    }
    // SAFETY: the specification lets `event` be NULL or writable.
    unsafe { give_event(how.event, event) };
    Ok(())
}

/// The event, and whether a blocking call may return at once.
fn move_bytes(
    transfer: Transfer,
    queue: &Arc<Queue>,
    way: Way,
    unseen: bool,
) -> ClResult<(Arc<Event>, bool)> {
    match way {
        Way::Read => Ok((transfer.read(queue)?, false)),
        Way::Write => {
            let written = transfer.write(queue)?;
            let returns = written.taken && unseen && queue.promise(&written.event);
            Ok((written.event, returns))
        }
    }
}

/// A run of bytes at `ptr`.
fn linear(buffer: &Buffer, offset: size_t, size: size_t) -> ClResult<Regions> {
    Ok(Regions {
        buffer: buffer.range(offset as u64, size as u64)?,
        host: Region::linear(0, size as u64).or(fail(CL_INVALID_VALUE))?,
    })
}

entry_points! {
    fn clEnqueueReadBuffer(
        command_queue: cl_command_queue, buffer: cl_mem, blocking_read: cl_bool, offset: size_t,
        size: size_t, ptr: *mut c_void, num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event, event: *mut cl_event,
    ) {
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

    fn clEnqueueWriteBuffer(
        command_queue: cl_command_queue, buffer: cl_mem, blocking_write: cl_bool, offset: size_t,
        size: size_t, ptr: *const c_void, num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event, event: *mut cl_event,
    ) {
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
}
