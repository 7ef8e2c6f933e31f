//! Memory objects: buffers and the commands that move their bytes.
//!
//! One file per verb. Every command checks in the one order: handles, same context, state of the
//! objects, values, wait list, access flags.

mod buffer;
mod copy_fill;
mod info;
mod map;
mod migrate;
mod rect;
mod transfer;

use std::sync::Arc;

use causeway_proto::region::Region;
use cl_headers::types::*;

use super::handle;
use crate::error::{ClResult, require};
use crate::stub::{Buffer, Hold, Queue};
use crate::transport::HostRegion;

pub(super) use buffer::*;
pub(super) use copy_fill::*;
pub(super) use info::*;
pub(super) use map::*;
pub(super) use migrate::*;
pub(super) use rect::*;
pub(super) use transfer::*;

/// The queue and the buffer that a command is about: both live, of one context, and fit together.
///
/// # Errors
/// `CL_INVALID_COMMAND_QUEUE`, `CL_INVALID_MEM_OBJECT`, `CL_INVALID_CONTEXT`, `CL_MISALIGNED_SUB_BUFFER_OFFSET`.
fn on_queue<const N: usize>(
    command_queue: cl_command_queue,
    memory: [cl_mem; N],
) -> ClResult<(Arc<Queue>, [Arc<Buffer>; N])> {
    let queue = handle::resolve::<Queue>(command_queue)?;
    let mut buffers = Hold::new();
    for raw in memory {
        buffers.push(handle::resolve::<Buffer>(raw)?);
    }
    let same = |buffer: &Arc<Buffer>| Arc::ptr_eq(buffer.context(), queue.context());
    require(buffers.iter().all(same), CL_INVALID_CONTEXT)?;
    for buffer in &buffers {
        check_alignment(&queue, buffer)?;
    }
    // One for each handle.
    Ok((queue, std::array::from_fn(|i| buffers[i].clone())))
}

/// "CL_MISALIGNED_SUB_BUFFER_OFFSET if buffer is a sub-buffer object and offset specified when the
/// sub-buffer object is created is not aligned to CL_DEVICE_MEM_BASE_ADDR_ALIGN value for device
/// associated with queue."
fn check_alignment(queue: &Queue, buffer: &Buffer) -> ClResult {
    // The device's value is in bits.
    let bytes = queue.device().number(CL_DEVICE_MEM_BASE_ADDR_ALIGN) / 8;
    require(
        buffer.origin().is_multiple_of(bytes.max(1)),
        CL_MISALIGNED_SUB_BUFFER_OFFSET,
    )
}

/// Bytes of the application's, as a region counted from `base`.
///
/// # Errors
/// `CL_INVALID_VALUE` when they would wrap around the address space.
///
/// # Safety
/// As [`HostRegion::new`].
unsafe fn host_region(base: usize, region: Region) -> ClResult<HostRegion> {
    require(
        region.end().checked_add(base as u64).is_some(),
        CL_INVALID_VALUE,
    )?;
    let base = std::ptr::with_exposed_provenance_mut(base);
    // SAFETY: the caller's promise.
    Ok(unsafe { HostRegion::new(base, region) })
}
