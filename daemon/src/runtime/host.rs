//! Host memory that the driver reads or writes asynchronously.
//!
//! This module starts no transfer. Invariant: the caller that passes a pointer from here to the driver
//! keeps the [`Host`] alive until the driver's event has ended. [`Event`](super::event::Event) does so, and
//! leaks the memory rather than freeing it while the driver may use it.

use std::ptr::{copy_nonoverlapping, null_mut};
use std::sync::Arc;

use bytes::Bytes;

use super::block::Block;
use super::pinned::{PinnedChunk, PinnedPart};

/// Memory for one transfer between host and device.
#[derive(Debug)]
pub enum Host {
    /// A payload as it was received; the driver only reads it.
    Source(Bytes),
    /// Memory that the driver will write; initially zero.
    Target(Box<[u8]>),
    /// Reusable memory, for either direction.
    Block(Block),
    /// A part of a pinned slab, for devices that do not share memory with the host.
    Pinned(PinnedPart),
    /// A pinned chunk of a staging ring, shared with the sockets.
    Chunk(Arc<PinnedChunk>),
}

impl Host {
    /// Allocates `length` bytes for the driver to write.
    #[must_use]
    pub fn target(length: usize) -> Host {
        Host::Target(vec![0; length].into_boxed_slice())
    }

    /// Copies `payload` into pinned memory.
    #[must_use]
    pub fn pinned_copy(part: PinnedPart, payload: &[u8]) -> Host {
        let length = payload.len().min(part.length());
        // SAFETY: `part` is exclusively owned until it is passed to the driver, and has room for `length`
        // bytes. It cannot overlap a payload from the network.
        unsafe { copy_nonoverlapping(payload.as_ptr(), part.pointer(), length) };
        Host::Pinned(part)
    }

    /// Returns the length in bytes.
    pub fn length(&self) -> usize {
        match self {
            Host::Source(bytes) => bytes.len(),
            Host::Target(bytes) => bytes.len(),
            Host::Block(block) => block.as_ref().len(),
            Host::Pinned(part) => part.length(),
            Host::Chunk(chunk) => chunk.length(),
        }
    }

    /// Returns the bytes of memory that no driver uses; none of a chunk, which sockets share.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Host::Source(bytes) => bytes,
            Host::Target(bytes) => bytes,
            Host::Block(block) => block.as_ref(),
            // SAFETY: the part is exclusively owned here, and mapped as long as it lives. Whoever passes its pointer to a
            // driver gives the memory away until the driver's end.
            Host::Pinned(part) => unsafe {
                std::slice::from_raw_parts(part.pointer(), part.length())
            },
            Host::Chunk(_) => &[],
        }
    }

    /// As [`Host::bytes`], to be written; none of a payload.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Host::Target(bytes) => bytes,
            Host::Block(block) => block.as_mut(),
            // SAFETY: as for `bytes`; the part is borrowed mutably.
            Host::Pinned(part) => unsafe {
                std::slice::from_raw_parts_mut(part.pointer(), part.length())
            },
            Host::Source(_) | Host::Chunk(_) => &mut [],
        }
    }

    /// Returns the pointer from which the driver reads.
    pub(super) fn source(&self) -> *const u8 {
        match self {
            Host::Source(bytes) => bytes.as_ptr(),
            Host::Target(bytes) => bytes.as_ptr(),
            Host::Block(block) => block.as_ref().as_ptr(),
            Host::Pinned(part) => part.pointer(),
            Host::Chunk(chunk) => chunk.pointer(),
        }
    }

    /// Returns the pointer to which the driver writes; null for memory that must not be written.
    pub(super) fn destination(&mut self) -> *mut u8 {
        match self {
            Host::Source(_) => null_mut(),
            Host::Target(bytes) => bytes.as_mut_ptr(),
            Host::Block(block) => block.as_mut().as_mut_ptr(),
            Host::Pinned(part) => part.pointer(),
            Host::Chunk(chunk) => chunk.pointer(),
        }
    }

    /// Returns the data that the driver wrote. Only `Event` calls this, after the command's end.
    pub(super) fn into_contents(self) -> Bytes {
        match self {
            Host::Source(bytes) => bytes,
            Host::Target(bytes) => Bytes::from(bytes),
            Host::Block(block) => Bytes::from_owner(block),
            Host::Pinned(part) => {
                // SAFETY: the driver no longer uses the part, which is exclusively owned here.
                Bytes::copy_from_slice(unsafe {
                    std::slice::from_raw_parts(part.pointer(), part.length())
                })
            }
            Host::Chunk(_) => Bytes::new(),
        }
    }
}
