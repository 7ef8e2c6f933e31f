//! Shared virtual memory: allocation, and the checks that its commands share. Only coarse-grain buffers are
//! offered.
//!
//! There is one file per verb. For a device without SVM, and in a context of several nodes, SVM is a
//! missing optional feature of OpenCL 3.0: allocation returns NULL, freeing does nothing, and enqueues fail
//! with `CL_INVALID_OPERATION`.

pub(super) mod copy_fill;
mod free;
mod map;
mod migrate;

use std::sync::Arc;

use causeway_proto::region::Region;
use cl_headers::types::*;

use super::entry::entry_point;
use super::handle;
use super::memory::buffer::{KERNEL_ACCESS, at_most_one};
use crate::error::{ClResult, Status, require};
use crate::shadow::page_size;
use crate::stub::{Buffer, Context, Queue, memory::svm};

pub(super) use copy_fill::*;
pub(super) use free::*;
pub(super) use map::*;
pub(super) use migrate::*;

/// Returns the queue of an SVM command.
///
/// # Errors
/// `CL_INVALID_COMMAND_QUEUE`; `CL_INVALID_OPERATION` when the queue's device does not support SVM.
fn svm_queue(command_queue: cl_command_queue) -> ClResult<Arc<Queue>> {
    let queue = handle::resolve::<Queue>(command_queue)?;
    require_svm(&queue)?;
    Ok(queue)
}

fn require_svm(queue: &Queue) -> ClResult {
    // clEnqueueSVM*: CL_INVALID_OPERATION when the queue's device does not support SVM.
    let has = queue.context().has_svm() && svm::is_offered(queue.device());
    require(has, CL_INVALID_OPERATION)
}

/// The region of `size` bytes from an address of the context's shared virtual memory.
///
/// # Errors
/// `CL_INVALID_VALUE` when the region is not inside of one allocation.
fn bytes_at(queue: &Queue, address: usize, size: size_t) -> ClResult<(Arc<Buffer>, Region)> {
    let found = svm::find(queue.context(), address);
    // clEnqueueSVM*: CL_INVALID_VALUE when an address is in no allocation of clSVMAlloc.
    let (buffer, offset) = found.ok_or(Status(CL_INVALID_VALUE))?;
    // clEnqueueSVM*: CL_INVALID_VALUE when the bytes leave the allocation.
    let region = buffer.range(offset, size as u64)?;
    Ok((buffer, region))
}

/// Checks and makes an allocation. clSVMAlloc has no error code, so each code here only tells the log why
/// it returns NULL.
fn allocate(
    context: cl_context,
    flags: cl_svm_mem_flags,
    size: size_t,
    alignment: cl_uint,
) -> ClResult<*mut c_void> {
    let context = handle::resolve::<Context>(context)?;
    // clSVMAlloc fails when no device of the context supports SVM.
    require(context.has_svm(), CL_INVALID_OPERATION)?;
    // clSVMAlloc fails when flags is not valid or asks for what no device has; no device here has
    // fine-grain SVM or SVM atomics.
    let known = flags & !KERNEL_ACCESS == 0 && at_most_one(flags, KERNEL_ACCESS);
    require(known, CL_INVALID_VALUE)?;
    let smallest = context
        .devices()
        .iter()
        .map(|device| device.number(CL_DEVICE_MAX_MEM_ALLOC_SIZE))
        .min();
    let fits = smallest.is_none_or(|smallest| size as u64 <= smallest);
    // clSVMAlloc fails when size is 0 or exceeds CL_DEVICE_MAX_MEM_ALLOC_SIZE of any device in the context.
    require(size > 0 && fits, CL_INVALID_BUFFER_SIZE)?;
    // clSVMAlloc fails when alignment is not a power of two or cannot be supported; every allocation here
    // begins on a page.
    let aligned =
        alignment == 0 || (alignment.is_power_of_two() && alignment as usize <= page_size());
    require(aligned, CL_INVALID_VALUE)?;
    let address = svm::allocate(&context, flags, size as u64)?;
    Ok(std::ptr::with_exposed_provenance_mut(address))
}

#[entry_point(no_code)]
pub(crate) fn clSVMAlloc(
    context: cl_context,
    flags: cl_svm_mem_flags,
    size: size_t,
    alignment: cl_uint,
) -> ClResult<*mut c_void> {
    allocate(context, flags, size, alignment)
}
