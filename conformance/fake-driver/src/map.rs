//! Mapping and unmapping. A map's pointer points into the object's own storage.
//!
//! Invariant: an object's list of maps is the multiset of pointers that are mapped now.

use std::ffi::c_void;

use cl_headers::types::*;

use crate::command::{Enqueue, Work};
use crate::error::{ClResult, Code, ensure};
use crate::memory::Memory;
use crate::object::Object;
use crate::transfer::{Direction, buffer_for, object_for};
use crate::{arg, log};

/// A mapped region.
pub(crate) struct Mapping {
    pub(crate) pointer: usize,
    pub(crate) size: usize,
    pub(crate) flags: cl_map_flags,
}

/// Checks the flags of a map for conflicts with each other and with the object's flags.
pub(crate) fn check_flags(memory: &Memory, flags: cl_map_flags) -> ClResult {
    let writes = CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION;
    ensure(flags & !(CL_MAP_READ | writes) == 0, CL_INVALID_VALUE)?;
    let alone =
        flags & CL_MAP_WRITE_INVALIDATE_REGION == 0 || flags == CL_MAP_WRITE_INVALIDATE_REGION;
    ensure(alone, CL_INVALID_VALUE)?;
    let read = flags & CL_MAP_READ == 0 || memory.flags & Direction::Read.forbidden_by() == 0;
    let write = flags & writes == 0 || memory.flags & Direction::Write.forbidden_by() == 0;
    ensure(read && write, CL_INVALID_OPERATION)
}

pub(crate) mod api {
    #![allow(non_snake_case, reason = "OpenCL's names")]
    #![allow(clippy::too_many_arguments, reason = "OpenCL's functions")]
    use super::*;

    pub(crate) unsafe fn clEnqueueMapBuffer(
        queue: cl_command_queue,
        buffer: cl_mem,
        blocking: cl_bool,
        flags: cl_map_flags,
        offset: size_t,
        size: size_t,
        count: cl_uint,
        list: *const cl_event,
        event: *mut cl_event,
        _errcode_ret: *mut cl_int,
    ) -> ClResult<*mut c_void> {
        let kind = CL_COMMAND_MAP_BUFFER;
        // SAFETY: the caller keeps the same contract.
        let enqueue = unsafe { Enqueue::begin(queue, kind, count, list, event) }?;
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let buffer = unsafe { buffer_for(&enqueue, buffer) }?;
        ensure(size > 0, CL_INVALID_VALUE)?;
        buffer.ensure_inside(offset, size)?;
        check_flags(buffer, flags)?;
        let pointer = buffer.address + offset;
        let mapping = Mapping {
            pointer,
            size,
            flags,
        };
        buffer.maps.lock().push(mapping);
        // SAFETY: the caller keeps the same contract.
        unsafe { enqueue.blocking(blocking).submit(Work::Nothing) }?;
        Ok(pointer as *mut c_void)
    }

    pub(crate) unsafe fn clEnqueueUnmapMemObject(
        queue: cl_command_queue,
        memory: cl_mem,
        pointer: *mut c_void,
        count: cl_uint,
        list: *const cl_event,
        event: *mut cl_event,
    ) -> ClResult {
        let kind = CL_COMMAND_UNMAP_MEM_OBJECT;
        // SAFETY: the caller keeps the same contract.
        let enqueue = unsafe { Enqueue::begin(queue, kind, count, list, event) }?;
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let memory = unsafe { object_for(&enqueue, memory) }?;
        let mapping = unmap(memory, pointer.addr()).ok_or(Code(CL_INVALID_VALUE))?;
        log::note("region", || {
            let offset = mapping.pointer - memory.address;
            format!("{offset}+{} flags={:#x}", mapping.size, mapping.flags)
        });
        if mapping.flags & (CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION) != 0 {
            // SAFETY: the bytes were mapped, and the application no longer touches them.
            let bytes = unsafe { arg::list(mapping.size, mapping.pointer as *const u8) };
            log::note("data", || log::digest([bytes]));
        }
        // SAFETY: the caller keeps the same contract.
        unsafe { enqueue.submit(Work::Nothing) }
    }

    fn unmap(memory: &Object<Memory>, pointer: usize) -> Option<Mapping> {
        let mut maps = memory.maps.lock();
        let place = maps.iter().position(|map| map.pointer == pointer)?;
        Some(maps.swap_remove(place))
    }
}
