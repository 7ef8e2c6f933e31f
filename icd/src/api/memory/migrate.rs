//! `clEnqueueMigrateMemObjects`.

use std::sync::Arc;

use cl_headers::types::*;

use super::super::entry::entry_point;
use super::super::event::Events;
use super::super::handle;
use super::super::info::list;
use crate::error::{ClResult, require};
use crate::stub::{Buffer, Command, Enqueue, EventSpec, NodeCommand, Queue};

#[entry_point]
pub(crate) fn clEnqueueMigrateMemObjects(
    command_queue: cl_command_queue,
    num_mem_objects: cl_uint,
    mem_objects: *const cl_mem,
    flags: cl_mem_migration_flags,
    events: Events,
) -> ClResult {
    let queue = handle::resolve::<Queue>(command_queue)?;
    // clEnqueueMigrateMemObjects: CL_INVALID_VALUE when num_mem_objects is 0 or mem_objects is NULL.
    // This check precedes those of the handles, because without a list there are no handles.
    require(
        num_mem_objects > 0 && !mem_objects.is_null(),
        CL_INVALID_VALUE,
    )?;
    // SAFETY: not NULL, with `num_mem_objects` handles.
    let handles = unsafe { list(mem_objects, num_mem_objects as usize) };
    // clEnqueueMigrateMemObjects: CL_INVALID_MEM_OBJECT when an element is not a valid memory object.
    let buffers = handles
        .iter()
        .map(|&raw| handle::resolve::<Buffer>(raw))
        .collect::<ClResult<Vec<_>>>()?;
    let same = buffers
        .iter()
        .all(|buffer| Arc::ptr_eq(buffer.context(), queue.context()));
    // clEnqueueMigrateMemObjects: CL_INVALID_CONTEXT when an object belongs to another context than the
    // queue.
    require(same, CL_INVALID_CONTEXT)?;
    let known = CL_MIGRATE_MEM_OBJECT_HOST | CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED;
    // clEnqueueMigrateMemObjects: CL_INVALID_VALUE when flags contains unknown bits.
    require(flags & !known == 0, CL_INVALID_VALUE)?;
    let event = EventSpec {
        event_type: CL_COMMAND_MIGRATE_MEM_OBJECTS,
        wait: events.wait_list(queue.context())?,
        hold: buffers.clone().into(),
        finisher: None,
        visible: events.wants_event(),
        note: None,
    };
    let command = Command::Node(NodeCommand::Migrate { buffers, flags });
    events.give(queue.enqueue(Enqueue { command, event })?.event);
    Ok(())
}
