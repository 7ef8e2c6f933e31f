//! `clEnqueueSVMMemcpy`, `clEnqueueSVMMemFill`.

use std::sync::Arc;

use causeway_proto::region::Region;
use cl_headers::types::*;
use smallvec::smallvec;

use super::super::entry::entry_point;
use super::super::event::{give_event, wait_list};
use super::super::memory::copy_fill::{self, check_pattern, enqueue};
use super::super::memory::host_region;
use super::super::memory::transfer::{self, How, Regions, Way};
use super::{bytes_at, require_svm, svm_queue};
use crate::error::{ClResult, fail, require};
use crate::stub::{Buffer, Command, Enqueue, Event, EventSpec, Hold, Queue, memory::svm};

/// The checked arguments of a copy.
struct Copy<'a> {
    queue: &'a Arc<Queue>,
    size: size_t,
    blocking: bool,
    wait: (cl_uint, *const cl_event),
    event: *mut cl_event,
}

impl Copy<'_> {
    fn wait_list(&self) -> ClResult<Vec<Arc<Event>>> {
        let (count, events) = self.wait;
        // SAFETY: the specification demands NULL or as many handles as the count says.
        unsafe { wait_list(self.queue.context(), count, events) }
    }

    /// Copies within shared virtual memory.
    fn inside(&self, from: (Arc<Buffer>, Region), to: (Arc<Buffer>, Region)) -> ClResult {
        let hold = smallvec![from.0.clone(), to.0.clone()];
        let command = Command::Copy {
            source: from,
            destination: to,
        };
        self.enqueue(command, hold)
    }

    fn enqueue(&self, command: Command, hold: Hold) -> ClResult {
        let event = EventSpec {
            event_type: CL_COMMAND_SVM_MEMCPY,
            wait: self.wait_list()?,
            hold,
            finisher: None,
            visible: self.blocking || !self.event.is_null(),
        };
        self.finish(self.queue.enqueue(Enqueue { command, event })?.event)
    }

    /// Copies between shared virtual memory and the application's other memory.
    fn across(&self, (buffer, region): (Arc<Buffer>, Region), host: usize, way: Way) -> ClResult {
        let regions = Regions {
            buffer: region,
            host: self.on_host()?,
        };
        let how = How {
            blocking: self.blocking,
            host,
            wait: self.wait,
            event: self.event,
            command: CL_COMMAND_SVM_MEMCPY,
        };
        transfer::enqueue_on(self.queue, buffer, regions, how, way)
    }

    /// Copies within the application's other memory.
    fn outside(&self, from: usize, to: usize) -> ClResult {
        let region = self.on_host()?;
        // SAFETY: the application keeps these bytes readable and writable until the command is complete.
        let (from, to) = unsafe { (host_region(from, region)?, host_region(to, region)?) };
        self.enqueue(Command::HostCopy { from, to }, Hold::new())
    }

    fn nothing(&self) -> ClResult {
        self.enqueue(Command::Nothing, Hold::new())
    }

    fn on_host(&self) -> ClResult<Region> {
        // No rule of the specification covers a size that no region can have.
        Region::linear(0, self.size as u64).or(fail(CL_INVALID_VALUE))
    }

    fn finish(&self, stub: Arc<Event>) -> ClResult {
        if self.blocking {
            stub.outcome()?;
        }
        // SAFETY: the specification lets `event` be NULL or writable.
        unsafe { give_event(self.event, stub) };
        Ok(())
    }
}

/// Checks that source and destination do not overlap.
fn check_overlap(to: usize, from: usize, size: usize) -> ClResult {
    // clEnqueueSVMMemcpy: CL_MEM_COPY_OVERLAP when the two ranges share a byte.
    require(to.abs_diff(from) >= size, CL_MEM_COPY_OVERLAP)
}

/// Checks a copy for a command buffer. Returns the work, or `None` if there are no bytes, and the memory.
/// Both sides must be shared virtual memory: the contents of other host memory would have to be sent with
/// each replay.
///
/// # Errors
/// As `clEnqueueSVMMemcpy`, and `CL_INVALID_OPERATION` for host memory outside of any SVM allocation.
pub(in crate::api) fn copying(
    queue: &Queue,
    to: *mut c_void,
    from: *const c_void,
    size: size_t,
) -> ClResult<(Option<Command>, Hold)> {
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
    let hold = smallvec![source.0.clone(), destination.0.clone()];
    let work = (size > 0).then_some(Command::Copy {
        source,
        destination,
    });
    Ok((work, hold))
}

/// Checks a fill of shared virtual memory. Returns the work, or `None` if there are no bytes, and the
/// memory.
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
) -> ClResult<(Option<Command>, Hold)> {
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
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> ClResult {
    let queue = svm_queue(command_queue)?;
    // clEnqueueSVMMemcpy: CL_INVALID_VALUE when dst_ptr or src_ptr is NULL.
    require(!dst_ptr.is_null() && !src_ptr.is_null(), CL_INVALID_VALUE)?;
    let (to, from) = (dst_ptr.expose_provenance(), src_ptr.expose_provenance());
    check_overlap(to, from, size)?;
    let copy = Copy {
        queue: &queue,
        size,
        blocking: blocking_copy != CL_FALSE,
        wait: (num_events_in_wait_list, event_wait_list),
        event,
    };
    if size == 0 {
        return copy.nothing();
    }
    // clEnqueueSVMMemcpy: CL_INVALID_VALUE when a range begins in an SVM allocation but leaves it.
    let place = |address| {
        let is_svm = svm::find(queue.context(), address).is_some();
        is_svm.then(|| bytes_at(&queue, address, size)).transpose()
    };
    match (place(from)?, place(to)?) {
        (Some(source), Some(destination)) => copy.inside(source, destination),
        (Some(source), None) => copy.across(source, to, Way::Read),
        (None, Some(destination)) => copy.across(destination, from, Way::Write),
        (None, None) => copy.outside(from, to),
    }
}

#[entry_point]
pub(crate) fn clEnqueueSVMMemFill(
    command_queue: cl_command_queue,
    svm_ptr: *mut c_void,
    pattern: *const c_void,
    pattern_size: size_t,
    size: size_t,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> ClResult {
    let queue = svm_queue(command_queue)?;
    // SAFETY: the specification demands NULL or `pattern_size` bytes, and NULL or as many handles as
    // the count says.
    let ((work, hold), wait) = unsafe {
        (
            filling(&queue, svm_ptr, (pattern, pattern_size), size)?,
            wait_list(queue.context(), num_events_in_wait_list, event_wait_list)?,
        )
    };
    enqueue(&queue, work, CL_COMMAND_SVM_MEMFILL, wait, hold, event)
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
