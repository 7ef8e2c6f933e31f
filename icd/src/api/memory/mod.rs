//! Memory objects: buffers and the commands that transfer their bytes. `super::image` uses the same helpers
//! for images.
//!
//! There is one file per verb. Every command checks in one order: handles, same context, state of the
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

/// The kind of memory object that a handle must stand for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Noun {
    /// A buffer or sub-buffer.
    Buffer,
    Image,
    Pipe,
}

impl Noun {
    /// Returns the memory object behind a handle.
    ///
    /// # Errors
    /// `CL_INVALID_MEM_OBJECT`, also for a memory object of another kind.
    pub(super) fn resolve(self, raw: cl_mem) -> ClResult<Arc<Buffer>> {
        let memory = handle::resolve::<Buffer>(raw)?;
        // Commands on memory objects: CL_INVALID_MEM_OBJECT when the object is not of the kind that the
        // command takes.
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

/// Returns the queue and the memory objects of a command. All are valid handles of the right kinds and of
/// one context, and suit the queue's device.
///
/// # Errors
/// `CL_INVALID_COMMAND_QUEUE`, `CL_INVALID_MEM_OBJECT`, `CL_INVALID_CONTEXT`,
/// `CL_MISALIGNED_SUB_BUFFER_OFFSET`. For images also `CL_INVALID_OPERATION`, `CL_INVALID_IMAGE_SIZE`,
/// `CL_IMAGE_FORMAT_NOT_SUPPORTED`.
pub(super) fn on_queue<const N: usize>(
    command_queue: cl_command_queue,
    memory: [(Noun, cl_mem); N],
) -> ClResult<(Arc<Queue>, [Arc<Buffer>; N])> {
    let queue = handle::resolve::<Queue>(command_queue)?;
    let memory = for_queue(&queue, memory)?;
    Ok((queue, memory))
}

/// As [`on_queue`], for a queue that the caller has resolved already.
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
    // clEnqueue*: CL_INVALID_CONTEXT when a memory object belongs to another context than the queue.
    require(buffers.iter().all(same), CL_INVALID_CONTEXT)?;
    for buffer in &buffers {
        match buffer.image() {
            Some(image) => image.check_on(queue.device(), buffer.flags())?,
            None => check_alignment(queue, buffer)?,
        }
    }
    // `buffers` has one entry per handle, so every index is in range.
    Ok(std::array::from_fn(|i| buffers[i].clone()))
}

/// Checks that a sub-buffer begins where the queue's device can address it.
fn check_alignment(queue: &Queue, buffer: &Buffer) -> ClResult {
    // The device is not asked about a buffer that begins at 0, which every alignment allows.
    let origin = buffer.origin();
    let aligned = origin == 0 || origin.is_multiple_of(queue.device().sub_buffer_alignment());
    // clEnqueue*: CL_MISALIGNED_SUB_BUFFER_OFFSET when a sub-buffer's origin does not fit the device's
    // CL_DEVICE_MEM_BASE_ADDR_ALIGN.
    require(aligned, CL_MISALIGNED_SUB_BUFFER_OFFSET)
}

/// A region of the application's memory, counted from `base`.
///
/// # Errors
/// `CL_INVALID_VALUE` when the region would wrap around the address space.
///
/// # Safety
/// As [`HostRegion::new`].
pub(super) unsafe fn host_region(base: usize, region: Region) -> ClResult<HostRegion> {
    // clEnqueueRead*, clEnqueueWrite*: CL_INVALID_VALUE when the host pointer is not valid for the region.
    require(
        region.end().checked_add(base as u64).is_some(),
        CL_INVALID_VALUE,
    )?;
    let base = std::ptr::with_exposed_provenance_mut(base);
    // SAFETY: the caller upholds this function's contract.
    Ok(unsafe { HostRegion::new(base, region) })
}
