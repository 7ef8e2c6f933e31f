//! Host memory that the driver reads or writes behind our back.
//!
//! What it is not: it starts no transfer. Invariant: whoever gives a pointer from here to the driver
//! keeps the [`Host`] alive until the driver's event has completed; [`Event`](super::event::Event)
//! does so, and leaks the memory rather than free it under the driver.

use std::ptr::{copy_nonoverlapping, null_mut};
use std::sync::Arc;

use bytes::Bytes;

use super::block::Block;
use super::pinned::{PinnedPart, Slot};

/// Memory for one transfer between host and device.
#[derive(Debug)]
pub enum Host {
    /// A payload as it came; read by the driver.
    Source(Bytes),
    /// Room for what the driver will write; zeroed.
    Target(Box<[u8]>),
    /// Memory that is used again, for either direction.
    Block(Block),
    /// A part of a pinned slab, for devices with memory of their own.
    Pinned(PinnedPart),
    /// A pinned chunk of a staging ring, shared with the sockets.
    Chunk(Arc<Slot>),
}

impl Host {
    /// Room for `length` bytes from the driver.
    #[must_use]
    pub fn target(length: usize) -> Host {
        Host::Target(vec![0; length].into_boxed_slice())
    }

    /// Pinned memory that holds `payload`.
    #[must_use]
    pub fn pinned_copy(part: PinnedPart, payload: &[u8]) -> Host {
        let length = payload.len().min(part.length());
        // SAFETY: `part` is exclusively ours until it is given to the driver and holds `length` bytes;
        // it cannot overlap a payload from the network.
        unsafe { copy_nonoverlapping(payload.as_ptr(), part.pointer(), length) };
        Host::Pinned(part)
    }

    /// Bytes it holds.
    #[must_use]
    pub fn length(&self) -> usize {
        match self {
            Host::Source(bytes) => bytes.len(),
            Host::Target(bytes) => bytes.len(),
            Host::Block(block) => block.as_ref().len(),
            Host::Pinned(part) => part.length(),
            Host::Chunk(slot) => slot.length(),
        }
    }

    /// For the driver to read.
    pub(super) fn source(&self) -> *const u8 {
        match self {
            Host::Source(bytes) => bytes.as_ptr(),
            Host::Target(bytes) => bytes.as_ptr(),
            Host::Block(block) => block.as_ref().as_ptr(),
            Host::Pinned(part) => part.pointer(),
            Host::Chunk(slot) => slot.pointer(),
        }
    }

    /// For the driver to write; null for what must not be written.
    pub(super) fn destination(&mut self) -> *mut u8 {
        match self {
            Host::Source(_) => null_mut(),
            Host::Target(bytes) => bytes.as_mut_ptr(),
            Host::Block(block) => block.as_mut().as_mut_ptr(),
            Host::Pinned(part) => part.pointer(),
            Host::Chunk(slot) => slot.pointer(),
        }
    }

    /// What the driver wrote. Only called by `Event` after completion.
    pub(super) fn into_contents(self) -> Bytes {
        match self {
            Host::Source(bytes) => bytes,
            Host::Target(bytes) => Bytes::from(bytes),
            Host::Block(block) => Bytes::from_owner(block),
            Host::Pinned(part) => {
                // SAFETY: the driver is done with the part, which is exclusively ours.
                Bytes::copy_from_slice(unsafe {
                    std::slice::from_raw_parts(part.pointer(), part.length())
                })
            }
            Host::Chunk(_) => Bytes::new(),
        }
    }
}
