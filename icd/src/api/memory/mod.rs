//! Memory objects: buffers and the commands that move their bytes, and those of images (`super::image`).
//!
//! One file per verb. Every command checks in the one order: handles, same context, state of the
//! objects, values, wait list, access flags.

pub(super) mod buffer;
pub(super) mod copy_fill;
mod info;
pub(super) mod map;
mod migrate;
pub(super) mod rect;
pub(super) mod transfer;
mod writable;

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

/// What a handle to a memory object must be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Noun {
    /// A buffer or sub-buffer.
    Buffer,
    /// An image.
    Image,
    /// A pipe.
    Pipe,
}

impl Noun {
    /// The memory object behind a handle.
    ///
    /// # Errors
    /// `CL_INVALID_MEM_OBJECT`, also for one of another kind.
    pub(super) fn resolve(self, raw: cl_mem) -> ClResult<Arc<Buffer>> {
        let memory = handle::resolve::<Buffer>(raw)?;
        require(Noun::of(&memory) == self, CL_INVALID_MEM_OBJECT)?;
        Ok(memory)
    }

    fn of(memory: &Buffer) -> Noun {
        match (memory.image(), memory.pipe()) {
            (Some(_), _) => Noun::Image,
            (None, Some(_)) => Noun::Pipe,
            (None, None) => Noun::Buffer,
        }
    }
}

/// The queue and the memory that a command is about: all live, of the kinds that it takes, of one context, and fit
/// for the queue's device.
///
/// # Errors
/// `CL_INVALID_COMMAND_QUEUE`, `CL_INVALID_MEM_OBJECT`, `CL_INVALID_CONTEXT`, `CL_MISALIGNED_SUB_BUFFER_OFFSET`, and
/// of images `CL_INVALID_OPERATION`, `CL_INVALID_IMAGE_SIZE`, `CL_IMAGE_FORMAT_NOT_SUPPORTED`.
pub(super) fn on_queue<const N: usize>(
    command_queue: cl_command_queue,
    memory: [(Noun, cl_mem); N],
) -> ClResult<(Arc<Queue>, [Arc<Buffer>; N])> {
    let queue = handle::resolve::<Queue>(command_queue)?;
    let memory = for_queue(&queue, memory)?;
    Ok((queue, memory))
}

/// The same for a queue that is at hand.
///
/// # Errors
/// As [`on_queue`].
pub(super) fn for_queue<const N: usize>(
    queue: &Queue,
    memory: [(Noun, cl_mem); N],
) -> ClResult<[Arc<Buffer>; N]> {
    let mut buffers = Hold::new();
    for (noun, raw) in memory {
        buffers.push(noun.resolve(raw)?);
    }
    let same = |buffer: &Arc<Buffer>| Arc::ptr_eq(buffer.context(), queue.context());
    require(buffers.iter().all(same), CL_INVALID_CONTEXT)?;
    for buffer in &buffers {
        match buffer.image() {
            Some(image) => image.check_on(queue.device(), buffer.flags())?,
            None => check_alignment(queue, buffer)?,
        }
    }
    // One for each handle.
    Ok(std::array::from_fn(|i| buffers[i].clone()))
}

/// "CL_MISALIGNED_SUB_BUFFER_OFFSET if buffer is a sub-buffer object and offset specified when the
/// sub-buffer object is created is not aligned to CL_DEVICE_MEM_BASE_ADDR_ALIGN value for device
/// associated with queue."
fn check_alignment(queue: &Queue, buffer: &Buffer) -> ClResult {
    // Nothing is looked up for a buffer that is no part of another.
    let origin = buffer.origin();
    let aligned = origin == 0 || origin.is_multiple_of(queue.device().sub_buffer_alignment());
    require(aligned, CL_MISALIGNED_SUB_BUFFER_OFFSET)
}

/// Bytes of the application's, as a region counted from `base`.
///
/// # Errors
/// `CL_INVALID_VALUE` when they would wrap around the address space.
///
/// # Safety
/// As [`HostRegion::new`].
pub(super) unsafe fn host_region(base: usize, region: Region) -> ClResult<HostRegion> {
    require(
        region.end().checked_add(base as u64).is_some(),
        CL_INVALID_VALUE,
    )?;
    let base = std::ptr::with_exposed_provenance_mut(base);
    // SAFETY: the caller's promise.
    Ok(unsafe { HostRegion::new(base, region) })
}
