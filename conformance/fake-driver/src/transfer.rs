//! Reads, writes, copies and fills of whole ranges of buffers, and migration.
//!
//! Other modules handle rectangles (`rect`) and maps (`map`). Invariant: a command contains
//! only checked ranges.

use std::ffi::c_void;

use cl_headers::types::*;

use crate::command::{Enqueue, RectPlace, Work, ensure_apart};
use crate::error::{ClResult, ensure};
use crate::memory::Memory;
use crate::object::Object;
use crate::{arg, log};

/// The direction of a transfer between the application's memory and an object.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
}

impl Direction {
    /// Returns the flags of an object that forbid this direction.
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
/// The application passes the handle.
pub(crate) unsafe fn object_for<'a>(
    enqueue: &Enqueue<'_>,
    memory: cl_mem,
) -> ClResult<&'a Object<Memory>> {
    // SAFETY: the application passes a handle that it got from this driver, or NULL.
    let memory = unsafe { Object::<Memory>::borrow(memory) }?;
    let context = enqueue.queue.context.handle();
    ensure(memory.context.handle() == context, CL_INVALID_CONTEXT)?;
    Ok(memory)
}

/// Checks a buffer for use on a queue.
///
/// # Safety
/// See [`object_for`].
pub(crate) unsafe fn buffer_for<'a>(
    enqueue: &Enqueue<'_>,
    memory: cl_mem,
) -> ClResult<&'a Object<Memory>> {
    // SAFETY: the caller keeps the same contract.
    let memory = unsafe { object_for(enqueue, memory) }?;
    ensure(memory.is_buffer(), CL_INVALID_MEM_OBJECT)?;
    Ok(memory)
}

/// Returns a contiguous part of a buffer.
fn piece(buffer: &Object<Memory>, offset: usize) -> RectPlace {
    RectPlace::plain(buffer.address + offset, Some(buffer.hold()))
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
        // SAFETY: the caller keeps the same contract.
        let enqueue = unsafe { Enqueue::begin(queue, kind, count, list, event) }?;
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let buffer = unsafe { buffer_for(&enqueue, buffer) }?;
        ensure(!ptr.is_null(), CL_INVALID_VALUE)?;
        buffer.ensure_inside(offset, size)?;
        let forbidden = buffer.flags & Direction::Read.forbidden_by();
        ensure(forbidden == 0, CL_INVALID_OPERATION)?;
        let work = Work::copy(
            piece(buffer, offset),
            RectPlace::plain(ptr.addr(), None),
            [size, 1, 1],
        );
        // SAFETY: the caller keeps the same contract. The application keeps its memory until the command ends.
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
        // SAFETY: the caller keeps the same contract.
        let enqueue = unsafe { Enqueue::begin(queue, kind, count, list, event) }?;
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let buffer = unsafe { buffer_for(&enqueue, buffer) }?;
        ensure(!ptr.is_null(), CL_INVALID_VALUE)?;
        buffer.ensure_inside(offset, size)?;
        let forbidden = buffer.flags & Direction::Write.forbidden_by();
        ensure(forbidden == 0, CL_INVALID_OPERATION)?;
        // SAFETY: the application passes as many bytes as OpenCL requires.
        let bytes = unsafe { arg::list(size, ptr.cast::<u8>()) };
        log::note("data", || log::digest([bytes]));
        let host = RectPlace::plain(ptr.addr(), None);
        // SAFETY: the application passes as many bytes as OpenCL requires.
        let work = unsafe { Work::write(host, piece(buffer, offset), [size, 1, 1]) };
        // SAFETY: the caller keeps the same contract. The application keeps its memory until the command ends.
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
        // SAFETY: the caller keeps the same contract.
        let enqueue = unsafe { Enqueue::begin(queue, kind, count, list, event) }?;
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let from = unsafe { buffer_for(&enqueue, from) }?;
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let to = unsafe { buffer_for(&enqueue, to) }?;
        from.ensure_inside(from_offset, size)?;
        to.ensure_inside(to_offset, size)?;
        let ((source, at), (target, to_at)) = (from.root(), to.root());
        if source == target {
            ensure_apart((at + from_offset, size), (to_at + to_offset, size))?;
        }
        let work = Work::copy(piece(from, from_offset), piece(to, to_offset), [size, 1, 1]);
        // SAFETY: the caller keeps the same contract.
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
        // SAFETY: the caller keeps the same contract.
        let enqueue = unsafe { Enqueue::begin(queue, kind, count, list, event) }?;
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let buffer = unsafe { buffer_for(&enqueue, buffer) }?;
        buffer.ensure_inside(offset, size)?;
        let pattern_fits = pattern_size.is_power_of_two() && pattern_size <= 128;
        ensure(!pattern.is_null() && pattern_fits, CL_INVALID_VALUE)?;
        let whole = offset.is_multiple_of(pattern_size) && size.is_multiple_of(pattern_size);
        ensure(whole, CL_INVALID_VALUE)?;
        // SAFETY: the application passes these bytes, which are read before the call returns.
        let pattern = unsafe { arg::list(pattern_size, pattern.cast::<u8>()) };
        log::note("pattern", || format!("{pattern:02x?}"));
        let work = Work::Fill(Box::new((
            piece(buffer, offset),
            [size, 1, 1],
            pattern.to_vec(),
        )));
        // SAFETY: the caller keeps the same contract.
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
        // SAFETY: the caller keeps the same contract.
        let enqueue = unsafe { Enqueue::begin(queue, kind, count, list, event) }?;
        ensure(num_objects > 0 && !objects.is_null(), CL_INVALID_VALUE)?;
        let known = CL_MIGRATE_MEM_OBJECT_HOST | CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED;
        ensure(flags & !known == 0, CL_INVALID_VALUE)?;
        // SAFETY: the application passes a list as OpenCL requires.
        for &object in unsafe { arg::list(num_objects as usize, objects) } {
            // SAFETY: the application passes a handle that it got from this driver, or NULL.
            unsafe { object_for(&enqueue, object) }?;
        }
        // All devices of the fake driver share the host's memory, so nothing has to move.
        // SAFETY: the caller keeps the same contract.
        unsafe { enqueue.submit(Work::Nothing) }
    }
}
