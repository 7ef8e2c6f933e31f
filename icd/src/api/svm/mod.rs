//! Shared virtual memory: allocation, and what each command of it looks at first. Coarse-grain buffers only.
//!
//! One file per verb. To a device without it, and in a context of several nodes, it is an absent optional feature of
//! OpenCL 3.0: allocation answers NULL, freeing does nothing, enqueues answer `CL_INVALID_OPERATION`.

pub(super) mod copy_fill;
mod free;
mod map;
mod migrate;

use std::sync::Arc;

use causeway_proto::region::Region;
use cl_headers::types::*;

use super::entry::entry_points;
use super::handle;
use super::memory::buffer::{KERNEL_ACCESS, at_most_one};
use crate::error::{ClResult, Status, require};
use crate::shadow::page_size;
use crate::stub::{Buffer, Context, Queue, svm};

pub(super) use copy_fill::*;
pub(super) use free::*;
pub(super) use map::*;
pub(super) use migrate::*;

/// The queue of a command.
///
/// # Errors
/// `CL_INVALID_COMMAND_QUEUE`; "CL_INVALID_OPERATION if the device associated with command_queue does not support SVM".
fn svm_queue(command_queue: cl_command_queue) -> ClResult<Arc<Queue>> {
    let queue = handle::resolve::<Queue>(command_queue)?;
    require_svm(&queue)?;
    Ok(queue)
}

fn require_svm(queue: &Queue) -> ClResult {
    let has = queue.context().has_svm() && svm::is_offered(queue.device());
    require(has, CL_INVALID_OPERATION)
}

/// `size` bytes from an address of the context's shared virtual memory.
///
/// # Errors
/// `CL_INVALID_VALUE` when they are not all inside of one allocation.
fn bytes_at(queue: &Queue, address: usize, size: size_t) -> ClResult<(Arc<Buffer>, Region)> {
    let found = svm::find(queue.context(), address);
    let (buffer, offset) = found.ok_or(Status(CL_INVALID_VALUE))?;
    let region = buffer.range(offset, size as u64)?;
    Ok((buffer, region))
}

/// "clSVMAlloc will fail if […] flags does not contain CL_MEM_SVM_FINE_GRAIN_BUFFER but does contain
/// CL_MEM_SVM_ATOMICS; values specified in flags do not follow rules described for supported values; […] size is zero or
/// is greater than CL_DEVICE_MAX_MEM_ALLOC_SIZE value for any device in context; alignment is not a power of two or the
/// OpenCL implementation cannot support the specified alignment".
fn allocate(
    context: cl_context,
    flags: cl_svm_mem_flags,
    size: size_t,
    alignment: cl_uint,
) -> ClResult<*mut c_void> {
    let context = handle::resolve::<Context>(context)?;
    require(context.has_svm(), CL_INVALID_OPERATION)?;
    // The finer kinds no device has here.
    let known = flags & !KERNEL_ACCESS == 0 && at_most_one(flags, KERNEL_ACCESS);
    require(known, CL_INVALID_VALUE)?;
    let smallest = context
        .devices()
        .iter()
        .map(|device| device.number(CL_DEVICE_MAX_MEM_ALLOC_SIZE))
        .min();
    let fits = smallest.is_none_or(|smallest| size as u64 <= smallest);
    require(size > 0 && fits, CL_INVALID_BUFFER_SIZE)?;
    // Every allocation begins a page.
    let aligned =
        alignment == 0 || (alignment.is_power_of_two() && alignment as usize <= page_size());
    require(aligned, CL_INVALID_VALUE)?;
    let address = svm::allocate(&context, flags, size as u64)?;
    Ok(std::ptr::with_exposed_provenance_mut(address))
}

entry_points! {
    fn clSVMAlloc(context: cl_context, flags: cl_svm_mem_flags, size: size_t, alignment: cl_uint; null) -> *mut c_void {
        allocate(context, flags, size, alignment)
    }
}
