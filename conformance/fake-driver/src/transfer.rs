//! Reads, writes, copies and fills of whole ranges of buffers, and migration.
//!
//! Not here: the rectangular forms (`rect`), maps (`map`). Invariant: a command is made only of
//! checked ranges.

use std::ffi::c_void;

use cl_headers::types::*;

use crate::command::{Enqueue, Place, Work, ensure_apart};
use crate::error::{ClResult, ensure};
use crate::memory::Memory;
use crate::object::Object;
use crate::{arg, log};

/// Which way bytes go between the application's memory and an object.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
}

impl Direction {
    /// The flags of an object that forbid this.
    pub(crate) fn forbidden_by(self) -> cl_mem_flags {
        CL_MEM_HOST_NO_ACCESS
            | match self {
                Self::Read => CL_MEM_HOST_WRITE_ONLY,
                Self::Write => CL_MEM_HOST_READ_ONLY,
            }
    }
}

/// Checks an object for use on a queue.
///
/// # Safety
/// `memory` is the application's handle.
pub(crate) unsafe fn object_for<'a>(
    enqueue: &Enqueue<'_>,
    memory: cl_mem,
) -> ClResult<&'a Object<Memory>> {
    // SAFETY: the application's handle.
    let memory = unsafe { Object::<Memory>::borrow(memory) }?;
    let context = enqueue.queue.context.handle();
    ensure(memory.context.handle() == context, CL_INVALID_CONTEXT)?;
    Ok(memory)
}

/// The same for a buffer.
///
/// # Safety
/// As [`object_for`].
pub(crate) unsafe fn buffer_for<'a>(
    enqueue: &Enqueue<'_>,
    memory: cl_mem,
) -> ClResult<&'a Object<Memory>> {
    // SAFETY: passed on.
    let memory = unsafe { object_for(enqueue, memory) }?;
    ensure(memory.is_buffer(), CL_INVALID_MEM_OBJECT)?;
    Ok(memory)
}

/// Bytes of a buffer in one piece.
fn piece(buffer: &Object<Memory>, offset: usize) -> Place {
    Place::plain(buffer.address + offset, Some(buffer.hold()))
}

pub(crate) mod api {
    #![allow(non_snake_case, reason = "OpenCL's names")]
    #![allow(clippy::too_many_arguments, reason = "OpenCL's functions")]
    use super::*;

    pub(crate) unsafe fn clEnqueueReadBuffer(
        queue: cl_command_queue,
        buffer: cl_mem,
        blocking: cl_bool,
        offset: size_t,
        size: size_t,
        ptr: *mut c_void,
        count: cl_uint,
        list: *const cl_event,
        event: *mut cl_event,
    ) -> ClResult {
        let kind = CL_COMMAND_READ_BUFFER;
        // SAFETY: passed on.
        let enqueue = unsafe { Enqueue::begin(queue, kind, count, list, event) }?;
        // SAFETY: the application's handle.
        let buffer = unsafe { buffer_for(&enqueue, buffer) }?;
        ensure(!ptr.is_null(), CL_INVALID_VALUE)?;
        buffer.ensure_inside(offset, size)?;
        let forbidden = buffer.flags & Direction::Read.forbidden_by();
        ensure(forbidden == 0, CL_INVALID_OPERATION)?;
        let work = Work::copy(
            piece(buffer, offset),
            Place::plain(ptr.addr(), None),
            [size, 1, 1],
        );
        // SAFETY: passed on; the application keeps its memory until the command is complete.
        unsafe { enqueue.blocking(blocking).submit(work) }?;
        if blocking != CL_FALSE {
            // SAFETY: the read has just written these bytes.
            let bytes = unsafe { arg::list(size, ptr.cast::<u8>()) };
            log::note("data", || log::digest([bytes]));
        }
        Ok(())
    }

    pub(crate) unsafe fn clEnqueueWriteBuffer(
        queue: cl_command_queue,
        buffer: cl_mem,
        blocking: cl_bool,
        offset: size_t,
        size: size_t,
        ptr: *const c_void,
        count: cl_uint,
        list: *const cl_event,
        event: *mut cl_event,
    ) -> ClResult {
        let kind = CL_COMMAND_WRITE_BUFFER;
        // SAFETY: passed on.
        let enqueue = unsafe { Enqueue::begin(queue, kind, count, list, event) }?;
        // SAFETY: the application's handle.
        let buffer = unsafe { buffer_for(&enqueue, buffer) }?;
        ensure(!ptr.is_null(), CL_INVALID_VALUE)?;
        buffer.ensure_inside(offset, size)?;
        let forbidden = buffer.flags & Direction::Write.forbidden_by();
        ensure(forbidden == 0, CL_INVALID_OPERATION)?;
        // SAFETY: the application's bytes.
        let bytes = unsafe { arg::list(size, ptr.cast::<u8>()) };
        log::note("data", || log::digest([bytes]));
        let host = Place::plain(ptr.addr(), None);
        // SAFETY: the application's bytes.
        let work = unsafe { Work::write(host, piece(buffer, offset), [size, 1, 1]) };
        // SAFETY: passed on; the application keeps its memory until the command is complete.
        unsafe { enqueue.blocking(blocking).submit(work) }
    }

    pub(crate) unsafe fn clEnqueueCopyBuffer(
        queue: cl_command_queue,
        from: cl_mem,
        to: cl_mem,
        from_offset: size_t,
        to_offset: size_t,
        size: size_t,
        count: cl_uint,
        list: *const cl_event,
        event: *mut cl_event,
    ) -> ClResult {
        let kind = CL_COMMAND_COPY_BUFFER;
        // SAFETY: passed on.
        let enqueue = unsafe { Enqueue::begin(queue, kind, count, list, event) }?;
        // SAFETY: the application's handle.
        let from = unsafe { buffer_for(&enqueue, from) }?;
        // SAFETY: the application's handle.
        let to = unsafe { buffer_for(&enqueue, to) }?;
        from.ensure_inside(from_offset, size)?;
        to.ensure_inside(to_offset, size)?;
        let ((source, at), (target, to_at)) = (from.root(), to.root());
        if source == target {
            ensure_apart((at + from_offset, size), (to_at + to_offset, size))?;
        }
        let work = Work::copy(piece(from, from_offset), piece(to, to_offset), [size, 1, 1]);
        // SAFETY: passed on.
        unsafe { enqueue.submit(work) }
    }

    pub(crate) unsafe fn clEnqueueFillBuffer(
        queue: cl_command_queue,
        buffer: cl_mem,
        pattern: *const c_void,
        pattern_size: size_t,
        offset: size_t,
        size: size_t,
        count: cl_uint,
        list: *const cl_event,
        event: *mut cl_event,
    ) -> ClResult {
        let kind = CL_COMMAND_FILL_BUFFER;
        // SAFETY: passed on.
        let enqueue = unsafe { Enqueue::begin(queue, kind, count, list, event) }?;
        // SAFETY: the application's handle.
        let buffer = unsafe { buffer_for(&enqueue, buffer) }?;
        buffer.ensure_inside(offset, size)?;
        let pattern_fits = pattern_size.is_power_of_two() && pattern_size <= 128;
        ensure(!pattern.is_null() && pattern_fits, CL_INVALID_VALUE)?;
        let whole = offset.is_multiple_of(pattern_size) && size.is_multiple_of(pattern_size);
        ensure(whole, CL_INVALID_VALUE)?;
        // SAFETY: the application's bytes, read before the call returns.
        let pattern = unsafe { arg::list(pattern_size, pattern.cast::<u8>()) };
        log::note("pattern", || format!("{pattern:02x?}"));
        let work = Work::Fill(Box::new((
            piece(buffer, offset),
            [size, 1, 1],
            pattern.to_vec(),
        )));
        // SAFETY: passed on.
        unsafe { enqueue.submit(work) }
    }

    pub(crate) unsafe fn clEnqueueMigrateMemObjects(
        queue: cl_command_queue,
        num_objects: cl_uint,
        objects: *const cl_mem,
        flags: cl_mem_migration_flags,
        count: cl_uint,
        list: *const cl_event,
        event: *mut cl_event,
    ) -> ClResult {
        let kind = CL_COMMAND_MIGRATE_MEM_OBJECTS;
        // SAFETY: passed on.
        let enqueue = unsafe { Enqueue::begin(queue, kind, count, list, event) }?;
        ensure(num_objects > 0 && !objects.is_null(), CL_INVALID_VALUE)?;
        let known = CL_MIGRATE_MEM_OBJECT_HOST | CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED;
        ensure(flags & !known == 0, CL_INVALID_VALUE)?;
        // SAFETY: the application's list.
        for &object in unsafe { arg::list(num_objects as usize, objects) } {
            // SAFETY: the application's handle.
            unsafe { object_for(&enqueue, object) }?;
        }
        // All devices of the fake share the host's memory: there is nothing to move.
        // SAFETY: passed on.
        unsafe { enqueue.submit(Work::Nothing) }
    }
}
