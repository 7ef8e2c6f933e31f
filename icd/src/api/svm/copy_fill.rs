//! `clEnqueueSVMMemcpy`, `clEnqueueSVMMemFill`.

use std::sync::Arc;

use causeway_proto::region::Region;
use cl_headers::types::*;
use smallvec::smallvec;

use super::super::entry::entry_point;
use super::super::event::Events;
use super::super::memory::copy_fill::{self, Work, check_pattern, enqueue};
use super::super::memory::host_region;
use super::super::memory::transfer::{self, How, Regions};
use super::{bytes_at, require_svm, svm_queue};
use crate::error::{ClResult, fail, require};
use crate::stub::{Command, Enqueue, EventSpec, Hold, NodeCommand, Queue, memory::svm};

/// Enqueues a copy whose bytes do not cross between the node and the application's other memory. For a
/// blocking call, waits until it is complete.
fn enqueue_copy(
    queue: &Arc<Queue>,
    (command, hold): (Command, Hold),
    blocking: bool,
    events: Events,
) -> ClResult {
    let event = EventSpec {
        event_type: CL_COMMAND_SVM_MEMCPY,
        wait: events.wait_list(queue.context())?,
        hold,
        finisher: None,
        visible: blocking || events.wants_event(),
        note: None,
    };
    let stub = queue.enqueue(Enqueue { command, event })?.event;
    if blocking {
        stub.outcome()?;
    }
    events.give(stub);
    Ok(())
}

/// Checks that source and destination do not overlap.
fn check_overlap(to: usize, from: usize, size: usize) -> ClResult {
    // clEnqueueSVMMemcpy: CL_MEM_COPY_OVERLAP when the two ranges share a byte.
    require(to.abs_diff(from) >= size, CL_MEM_COPY_OVERLAP)
}

/// Checks a copy for a command buffer. Both sides must be shared virtual memory: the contents of other host memory would have to be sent with
/// each replay.
///
/// # Errors
/// As `clEnqueueSVMMemcpy`, and `CL_INVALID_OPERATION` for host memory outside of any SVM allocation.
pub(in crate::api) fn copying(
    queue: &Queue,
    to: *mut c_void,
    from: *const c_void,
    size: size_t,
) -> ClResult<Work> {
    require_svm(queue)?;
    // clCommandSVMMemcpyKHR: CL_INVALID_VALUE when dst_ptr or src_ptr is NULL.
    require(!to.is_null() && !from.is_null(), CL_INVALID_VALUE)?;
    let (to, from) = (to.expose_provenance(), from.expose_provenance());
    check_overlap(to, from, size)?;
    let is_svm = |address| svm::find(queue.context(), address).is_some();
    // No rule of the specification covers host memory outside of SVM. A replay cannot copy it, so it is
    // refused when it is recorded.
    require(is_svm(to) && is_svm(from), CL_INVALID_OPERATION)?;
    let (source, destination) = (bytes_at(queue, from, size)?, bytes_at(queue, to, size)?);
    Ok(copy_fill::copying(source, destination))
}

/// Checks a fill of shared virtual memory.
///
/// # Errors
/// As `clEnqueueSVMMemFill`, except for the wait list.
///
/// # Safety
/// `pattern` is NULL or points to `pattern_size` bytes.
pub(in crate::api) unsafe fn filling(
    queue: &Queue,
    to: *mut c_void,
    (pattern, pattern_size): (*const c_void, size_t),
    size: size_t,
) -> ClResult<Work> {
    require_svm(queue)?;
    let address = to.expose_provenance();
    // clEnqueueSVMMemFill: CL_INVALID_VALUE when svm_ptr is NULL.
    require(address != 0, CL_INVALID_VALUE)?;
    // clEnqueueSVMMemFill: CL_INVALID_VALUE when svm_ptr is not aligned to pattern_size, which
    // `check_pattern` tests as an offset.
    check_pattern(pattern.is_null(), pattern_size, address, size)?;
    let filled = bytes_at(queue, address, size)?;
    // SAFETY: the caller upholds this function's contract.
    Ok(unsafe { copy_fill::filling(filled, pattern, pattern_size) })
}

#[entry_point]
pub(crate) fn clEnqueueSVMMemcpy(
    command_queue: cl_command_queue,
    blocking_copy: cl_bool,
    dst_ptr: *mut c_void,
    src_ptr: *const c_void,
    size: size_t,
    events: Events,
) -> ClResult {
    let queue = svm_queue(command_queue)?;
    // clEnqueueSVMMemcpy: CL_INVALID_VALUE when dst_ptr or src_ptr is NULL.
    require(!dst_ptr.is_null() && !src_ptr.is_null(), CL_INVALID_VALUE)?;
    let (to, from) = (dst_ptr.expose_provenance(), src_ptr.expose_provenance());
    check_overlap(to, from, size)?;
    let blocking = blocking_copy != CL_FALSE;
    if size == 0 {
        let nothing = (Command::Node(NodeCommand::Nothing), Hold::new());
        return enqueue_copy(&queue, nothing, blocking, events);
    }
    // clEnqueueSVMMemcpy: CL_INVALID_VALUE when a range begins in an SVM allocation but leaves it.
    let place = |address| {
        let is_svm = svm::find(queue.context(), address).is_some();
        is_svm.then(|| bytes_at(&queue, address, size)).transpose()
    };
    // No rule of the specification covers a size that no region can have.
    let host = || Region::linear(0, size as u64).or(fail(CL_INVALID_VALUE));
    match (place(from)?, place(to)?) {
        (Some(source), Some(destination)) => {
            let hold = smallvec![source.0.clone(), destination.0.clone()];
            let command = Command::Node(NodeCommand::Copy {
                source,
                destination,
            });
            enqueue_copy(&queue, (command, hold), blocking, events)
        }
        (Some((buffer, region)), None) => {
            let regions = Regions {
                buffer: region,
                host: host()?,
            };
            let how = How::read(blocking_copy, dst_ptr, events, CL_COMMAND_SVM_MEMCPY);
            transfer::enqueue_on(&queue, buffer, regions, how)
        }
        (None, Some((buffer, region))) => {
            let regions = Regions {
                buffer: region,
                host: host()?,
            };
            let how = How::write(blocking_copy, src_ptr, events, CL_COMMAND_SVM_MEMCPY);
            transfer::enqueue_on(&queue, buffer, regions, how)
        }
        (None, None) => {
            let region = host()?;
            // SAFETY: the application keeps these bytes readable and writable until the command is
            // complete.
            let (from, to) = unsafe { (host_region(from, region)?, host_region(to, region)?) };
            let command = Command::HostCopy { from, to };
            enqueue_copy(&queue, (command, Hold::new()), blocking, events)
        }
    }
}

#[entry_point]
pub(crate) fn clEnqueueSVMMemFill(
    command_queue: cl_command_queue,
    svm_ptr: *mut c_void,
    pattern: *const c_void,
    pattern_size: size_t,
    size: size_t,
    events: Events,
) -> ClResult {
    let queue = svm_queue(command_queue)?;
    // SAFETY: the specification demands NULL or `pattern_size` bytes.
    let work = unsafe { filling(&queue, svm_ptr, (pattern, pattern_size), size)? };
    enqueue(&queue, work, CL_COMMAND_SVM_MEMFILL, events)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_overlap_when_they_share_a_byte() {
        assert!(check_overlap(100, 108, 8).is_ok());
        assert!(check_overlap(108, 100, 8).is_ok());
        assert!(check_overlap(100, 100, 0).is_ok());
        assert!(check_overlap(100, 107, 8).is_err());
        assert!(check_overlap(107, 100, 8).is_err());
    }
}
