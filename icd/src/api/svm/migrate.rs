//! `clEnqueueSVMMigrateMem`.

use cl_headers::types::*;

use super::super::entry::entry_point;
use super::super::event::Events;
use super::super::info::list;
use super::{bytes_at, svm_queue};
use crate::error::{ClResult, Status, require};
use crate::stub::memory::svm;

#[entry_point]
pub(crate) fn clEnqueueSVMMigrateMem(
    command_queue: cl_command_queue,
    num_svm_pointers: cl_uint,
    svm_pointers: *mut *const c_void,
    sizes: *const size_t,
    flags: cl_mem_migration_flags,
    events: Events,
) -> ClResult {
    let queue = svm_queue(command_queue)?;
    // clEnqueueSVMMigrateMem: CL_INVALID_VALUE when num_svm_pointers is 0 or svm_pointers is NULL.
    require(
        num_svm_pointers > 0 && !svm_pointers.is_null(),
        CL_INVALID_VALUE,
    )?;
    let count = num_svm_pointers as usize;
    // SAFETY: not NULL, with `num_svm_pointers` pointers. `sizes` is NULL or has as many elements.
    let (pointers, sizes) = unsafe { (list(svm_pointers, count), list(sizes, count)) };
    let mut ranges = Vec::with_capacity(count);
    for (at, pointer) in pointers.iter().enumerate() {
        let address = pointer.expose_provenance();
        // clEnqueueSVMMigrateMem: CL_INVALID_VALUE when a range is not inside of one allocation;
        // without a size it is the whole allocation.
        ranges.push(match sizes.get(at) {
            None | Some(0) => {
                let found = svm::find(queue.context(), address);
                let (buffer, _) = found.ok_or(Status(CL_INVALID_VALUE))?;
                let whole = buffer.range(0, buffer.size())?;
                (buffer, whole)
            }
            Some(size) => bytes_at(&queue, address, *size)?,
        });
    }
    let known = CL_MIGRATE_MEM_OBJECT_HOST | CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED;
    // clEnqueueSVMMigrateMem: CL_INVALID_VALUE when flags contains unknown bits.
    require(flags & !known == 0, CL_INVALID_VALUE)?;
    let wait = events.wait_list(queue.context())?;
    let stub = svm::migrate(&queue, &ranges, flags, wait, events.wants_event())?;
    events.give(stub);
    Ok(())
}
