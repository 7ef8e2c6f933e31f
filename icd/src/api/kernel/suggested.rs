//! `clGetKernelSuggestedLocalWorkSize` of OpenCL 3.1, and its form in `cl_khr_suggested_local_work_size`.
//! The node's driver answers, on devices that have the extension.

use std::sync::Arc;

use cl_headers::types::*;

use crate::api::entry::entry_point;
use crate::api::handle;
use crate::api::launch::read_range;
use crate::error::{ClResult, require};
use crate::stub::{Kernel, Queue, Range};

const EXTENSION: &str = "cl_khr_suggested_local_work_size";

/// Checks in the order in which the specification lists the errors. Then asks the node.
fn suggested(
    (queue, kernel): (cl_command_queue, cl_kernel),
    range: impl FnOnce() -> ClResult<Range>,
    has_room: bool,
) -> ClResult<Vec<u64>> {
    let queue = handle::resolve::<Queue>(queue)?;
    let kernel = handle::resolve::<Kernel>(kernel)?;
    let context = kernel.program().context();
    // clGetKernelSuggestedLocalWorkSizeKHR: CL_INVALID_CONTEXT when kernel and queue belong to different
    // contexts.
    require(Arc::ptr_eq(context, queue.context()), CL_INVALID_CONTEXT)?;
    let device = queue.device();
    // clGetKernelSuggestedLocalWorkSizeKHR: CL_INVALID_OPERATION when the device does not have the
    // extension.
    require(device.has_extension(EXTENSION), CL_INVALID_OPERATION)?;
    let launch = kernel.launch(device, false)?;
    launch.check_memory()?;
    let range = range()?;
    // clGetKernelSuggestedLocalWorkSizeKHR: CL_INVALID_GLOBAL_WORK_SIZE when global_work_size is NULL or
    // contains 0.
    require(!range.is_empty(), CL_INVALID_GLOBAL_WORK_SIZE)?;
    range.check(launch.limits())?;
    // clGetKernelSuggestedLocalWorkSizeKHR: CL_INVALID_VALUE when suggested_local_work_size is NULL.
    require(has_room, CL_INVALID_VALUE)?;
    launch.capture(&range)?.suggested_local_size(&queue)
}

#[entry_point]
pub(crate) fn clGetKernelSuggestedLocalWorkSize(
    command_queue: cl_command_queue,
    kernel: cl_kernel,
    work_dim: cl_uint,
    global_work_offset: *const size_t,
    global_work_size: *const size_t,
    suggested_local_work_size: *mut size_t,
) -> ClResult {
    let lists = [global_work_offset, global_work_size, std::ptr::null()];
    // SAFETY: the specification demands that each list is NULL or has `work_dim` sizes.
    let range = || unsafe { read_range(work_dim, lists) };
    let has_room = !suggested_local_work_size.is_null();
    let sizes = suggested((command_queue, kernel), range, has_room)?;
    for (place, size) in sizes.into_iter().enumerate() {
        // SAFETY: not NULL, and the specification demands room for `work_dim` sizes. There are as many.
        unsafe { suggested_local_work_size.add(place).write(size as size_t) };
    }
    Ok(())
}

#[entry_point]
pub(crate) fn clGetKernelSuggestedLocalWorkSizeKHR(
    command_queue: cl_command_queue,
    kernel: cl_kernel,
    work_dim: cl_uint,
    global_work_offset: *const size_t,
    global_work_size: *const size_t,
    suggested_local_work_size: *mut size_t,
) -> ClResult {
    // SAFETY: the two functions have the same contract.
    let code = unsafe {
        clGetKernelSuggestedLocalWorkSize(
            command_queue,
            kernel,
            work_dim,
            global_work_offset,
            global_work_size,
            suggested_local_work_size,
        )
    };
    // clGetKernelSuggestedLocalWorkSizeKHR: the codes of the core function, which has made all checks.
    require(code == CL_SUCCESS, code)
}
