//! Launches: `clEnqueueNDRangeKernel`, `clEnqueueTask`, and `clEnqueueNativeKernel`, which always fails.

use std::sync::Arc;

use cl_headers::types::*;

use super::entry::entry_point;
use super::event::Events;
use super::handle;
use super::info::list;
use crate::error::{ClResult, fail, require};
use crate::stub::kernel::Launch;
use crate::stub::{Kernel, Queue, Range};

/// Checks in order: same context, executable, arguments. With `deferred`, arguments may be unset.
///
/// # Errors
/// As `clEnqueueNDRangeKernel`.
pub(super) fn begun<'a>(
    kernel: &'a Arc<Kernel>,
    queue: &Queue,
    deferred: bool,
) -> ClResult<Launch<'a>> {
    let context = kernel.program().context();
    // clEnqueueNDRangeKernel: CL_INVALID_CONTEXT when kernel and queue belong to different contexts.
    require(Arc::ptr_eq(context, queue.context()), CL_INVALID_CONTEXT)?;
    kernel.launch(queue.device(), deferred)
}

/// Checks in order what [`begun`] leaves: sizes, local memory.
///
/// # Errors
/// As `clEnqueueNDRangeKernel`, except for handles and the wait list.
pub(super) fn checked(
    launch: Launch<'_>,
    range: impl FnOnce() -> ClResult<Range>,
) -> ClResult<(Launch<'_>, Range)> {
    let range = range()?.with_required(launch.limits());
    // clEnqueueNDRangeKernel: CL_INVALID_WORK_GROUP_SIZE, CL_INVALID_GLOBAL_WORK_SIZE and so on when the
    // sizes do not suit kernel or device.
    range.check(launch.limits())?;
    launch.check_memory()?;
    Ok((launch, range))
}

/// Checks in order: handles, the launch, the wait list. Then sends the launch.
fn launch(
    command_queue: cl_command_queue,
    kernel: cl_kernel,
    command: cl_command_type,
    events: Events,
    range: impl FnOnce() -> ClResult<Range>,
) -> ClResult {
    let queue = handle::resolve::<Queue>(command_queue)?;
    let kernel = handle::resolve::<Kernel>(kernel)?;
    let (launch, range) = checked(begun(&kernel, &queue, false)?, range)?;
    let wait = events.wait_list(queue.context())?;
    events.give(launch.submit(&queue, command, &range, wait, events.wants_event())?);
    Ok(())
}

/// Reads a list of `dimensions` sizes. Missing dimensions are `rest`. Returns `None` for NULL.
///
/// # Safety
/// `sizes` is NULL or points to `dimensions` sizes, at most 3.
pub(super) unsafe fn sizes(sizes: *const size_t, dimensions: usize, rest: u64) -> Option<[u64; 3]> {
    // SAFETY: the caller upholds this function's contract.
    let given = unsafe { list(sizes, dimensions) };
    (!given.is_empty())
        .then(|| std::array::from_fn(|i| given.get(i).map_or(rest, |&size| size as u64)))
}

/// Reads the sizes of a launch from its lists of offset, global size and local size.
///
/// # Errors
/// `CL_INVALID_WORK_DIMENSION`.
///
/// # Safety
/// Each list is NULL or of `dimensions` sizes, where those are 1 to 3.
pub(super) unsafe fn read_range(
    dimensions: cl_uint,
    [offset, global, local]: [*const size_t; 3],
) -> ClResult<Range> {
    // clEnqueueNDRangeKernel: CL_INVALID_WORK_DIMENSION when work_dim is not 1, 2 or 3.
    require((1..=3).contains(&dimensions), CL_INVALID_WORK_DIMENSION)?;
    let dimensions = dimensions as usize;
    // SAFETY: the caller upholds this function's contract.
    let (global, offset, local) = unsafe {
        (
            sizes(global, dimensions, 1),
            sizes(offset, dimensions, 0),
            sizes(local, dimensions, 1),
        )
    };
    Ok(Range {
        dimensions,
        global: global.unwrap_or([0; 3]),
        offset,
        local,
    })
}

#[entry_point]
pub(crate) fn clEnqueueNDRangeKernel(
    command_queue: cl_command_queue,
    kernel: cl_kernel,
    work_dim: cl_uint,
    global_work_offset: *const size_t,
    global_work_size: *const size_t,
    local_work_size: *const size_t,
    events: Events,
) -> ClResult {
    let lists = [global_work_offset, global_work_size, local_work_size];
    // SAFETY: the specification demands that each list is NULL or has `work_dim` sizes.
    let range = || unsafe { read_range(work_dim, lists) };
    launch(
        command_queue,
        kernel,
        CL_COMMAND_NDRANGE_KERNEL,
        events,
        range,
    )
}

#[entry_point]
pub(crate) fn clEnqueueTask(
    command_queue: cl_command_queue,
    kernel: cl_kernel,
    events: Events,
) -> ClResult {
    // clEnqueueTask: the launch of a single work-item.
    let one = Range {
        dimensions: 1,
        global: [1; 3],
        offset: None,
        local: Some([1; 3]),
    };
    launch(command_queue, kernel, CL_COMMAND_TASK, events, || Ok(one))
}

#[entry_point]
pub(crate) fn clEnqueueNativeKernel(
    command_queue: cl_command_queue,
    _user_func: NativeKernel,
    _args: *mut c_void,
    _cb_args: size_t,
    _num_mem_objects: cl_uint,
    _mem_list: *const cl_mem,
    _args_mem_loc: *mut *const c_void,
    _events: Events,
) -> ClResult {
    handle::resolve::<Queue>(command_queue)?;
    // clEnqueueNativeKernel: CL_INVALID_OPERATION when the device cannot run native kernels; the node
    // does not have the application's function, so no device reports it.
    fail(CL_INVALID_OPERATION)
}
