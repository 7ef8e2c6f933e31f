//! `clEnqueueSVMMap`, `clEnqueueSVMUnmap`.

use cl_headers::types::*;

use super::super::entry::entry_point;
use super::super::event::Events;
use super::super::memory::map::{HowToMap, map_on, unmap_on};
use super::{bytes_at, svm_queue};
use crate::error::{ClResult, Status, require};
use crate::stub::memory::svm;

#[entry_point]
pub(crate) fn clEnqueueSVMMap(
    command_queue: cl_command_queue,
    blocking_map: cl_bool,
    flags: cl_map_flags,
    svm_ptr: *mut c_void,
    size: size_t,
    events: Events,
) -> ClResult {
    let queue = svm_queue(command_queue)?;
    // clEnqueueSVMMap: CL_INVALID_VALUE when svm_ptr is NULL or size is 0.
    require(!svm_ptr.is_null() && size > 0, CL_INVALID_VALUE)?;
    let (buffer, region) = bytes_at(&queue, svm_ptr.expose_provenance(), size)?;
    let how = HowToMap {
        blocking: blocking_map != CL_FALSE,
        flags,
        events,
        command: CL_COMMAND_SVM_MAP,
    };
    map_on(&queue, &buffer, region, &how).map(drop)
}

#[entry_point]
pub(crate) fn clEnqueueSVMUnmap(
    command_queue: cl_command_queue,
    svm_ptr: *mut c_void,
    events: Events,
) -> ClResult {
    let queue = svm_queue(command_queue)?;
    let address = svm_ptr.expose_provenance();
    // clEnqueueSVMUnmap: CL_INVALID_VALUE when svm_ptr is in no allocation of clSVMAlloc.
    let (buffer, _) = svm::find(queue.context(), address).ok_or(Status(CL_INVALID_VALUE))?;
    unmap_on(&queue, &buffer, address, events, CL_COMMAND_SVM_UNMAP)
}
