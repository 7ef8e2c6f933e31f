//! `clEnqueueSVMMigrateMem`.

use cl_headers::types::*;

use super::super::entry::entry_points;
use super::super::event::wait_list;
use super::super::info::list;
use super::super::memory::copy_fill::enqueue;
use super::{bytes_at, svm_queue};
use crate::error::{Status, require};
use crate::stub::{Hold, Work, svm};

entry_points! {
    fn clEnqueueSVMMigrateMem(
        command_queue: cl_command_queue, num_svm_pointers: cl_uint, svm_pointers: *mut *const c_void,
        sizes: *const size_t, flags: cl_mem_migration_flags, num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event, event: *mut cl_event,
    ) {
        let queue = svm_queue(command_queue)?;
        // "CL_INVALID_VALUE if num_svm_pointers is zero or svm_pointers is NULL."
        require(num_svm_pointers > 0 && !svm_pointers.is_null(), CL_INVALID_VALUE)?;
        let count = num_svm_pointers as usize;
        // SAFETY: not NULL, with `num_svm_pointers` pointers; sizes are NULL or as many.
        let (pointers, sizes) = unsafe { (list(svm_pointers, count), list(sizes, count)) };
        let mut buffers = Hold::new();
        let mut whole = true;
        for (at, pointer) in pointers.iter().enumerate() {
            let address = pointer.expose_provenance();
            // "CL_INVALID_VALUE if sizes[i] is non-zero [and] the range [svm_pointers[i], svm_pointers[i]+sizes[i]) is
            // not contained within an existing clSVMAlloc allocation."
            let buffer = match sizes.get(at) {
                None | Some(0) => svm::find(queue.context(), address).map(|(buffer, _)| buffer),
                Some(size) => {
                    let (buffer, region) = bytes_at(&queue, address, *size)?;
                    whole &= region.packed_length() == buffer.size();
                    Some(buffer)
                }
            };
            buffers.push(buffer.ok_or(Status(CL_INVALID_VALUE))?);
        }
        let known = CL_MIGRATE_MEM_OBJECT_HOST | CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED;
        require(flags & !known == 0, CL_INVALID_VALUE)?;
        // SAFETY: the specification's contract of a wait list.
        let wait = unsafe { wait_list(queue.context(), num_events_in_wait_list, event_wait_list)? };
        // Nodes migrate whole allocations, of which the rest is wanted still.
        let flags = if whole { flags } else { flags & !CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED };
        let work = Work::Migrate { buffers: buffers.to_vec(), flags };
        enqueue(&queue, Some(work), CL_COMMAND_SVM_MIGRATE_MEM, wait, buffers, event)
    }
}
