//! The memory itself: a sealed memfd, mapped here and there, in which everything is an atomic word.
//!
//! The one module of accounting with raw memory. Invariant: a [`Page`] stays mapped, and can be touched, until it is
//! dropped: nobody can shorten it.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Words before the first slot: a cache line. The first says how many slots have ever been in use.
const HEADER: usize = 8;
/// Words of a slot: whole cache lines.
pub(super) const SLOT: usize = 80;
const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::SEAL);

/// Memory that was passed is not fit to be counted in.
#[derive(Debug, thiserror::Error)]
pub enum Unfit {
    /// Something of the system's.
    #[error("{0}")]
    System(#[from] io::Error),
    /// Someone could take it away under us.
    #[error("the memory is not sealed against being resized")]
    Unsealed,
    /// It has no whole slots, or fewer than were said.
    #[error("the memory has no such slot")]
    NoSlot,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Page {
    base: NonNull<AtomicU64>,
    slots: usize,
}

// SAFETY: an address of memory that stays mapped, in which there are atomics only.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Page {
    /// Makes one with so many empty slots; its descriptor is for the workers.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn make(slots: usize) -> io::Result<(Page, OwnedFd)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let made =
            match rustix::fs::memfd_create("causeway-ledger", flags | MemfdFlags::NOEXEC_SEAL) {
                // A kernel before 6.3.
                Err(rustix::io::Errno::INVAL) => rustix::fs::memfd_create("causeway-ledger", flags),
                other => other,
            }?;
        rustix::fs::ftruncate(&made, length(slots) as u64)?;
        rustix::fs::fcntl_add_seals(&made, SEALS)?;
        Ok((Page::map(&made, slots)?, made))
    }

    /// Maps one that the supervisor has made.
    ///
    /// # Errors
    /// [`Unfit`].
    pub(super) fn adopt(made: &OwnedFd) -> Result<Page, Unfit> {
        let seals = rustix::fs::fcntl_get_seals(made).map_err(|_| Unfit::Unsealed)?;
        if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) {
            return Err(Unfit::Unsealed);
        }
        let bytes = rustix::fs::fstat(made).map_err(io::Error::from)?.st_size;
        let words = usize::try_from(bytes).unwrap_or(0) / size_of::<AtomicU64>();
        match words.checked_sub(HEADER) {
            Some(words) if words >= SLOT => Ok(Page::map(made, words / SLOT)?),
            _ => Err(Unfit::NoSlot),
        }
    }

    fn map(memory: impl AsFd, slots: usize) -> io::Result<Page> {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                length(slots),
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                memory,
                0,
            )?
        };
        let base: NonNull<AtomicU64> =
            NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        // What a driver forks must not count for the session; where that is not to be had it has no reason to.
        // SAFETY: the mapping is ours, and only a child misses it.
        let _ = unsafe {
            rustix::mm::madvise(base.as_ptr().cast(), length(slots), Advice::LinuxDontFork)
        };
        Ok(Page { base, slots })
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: page-aligned and mapped for as long as `self` lives, with so many words; every bit pattern is one,
        // and other processes can change values only.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), HEADER + self.slots * SLOT) }
    }

    /// How many slots there are.
    pub(super) fn slots(&self) -> usize {
        self.slots
    }

    /// One of them.
    pub(super) fn slot(&self, index: usize) -> &[AtomicU64] {
        &self.words()[HEADER + index * SLOT..][..SLOT]
    }

    /// Beyond these, no slot has ever been in use.
    pub(super) fn in_use(&self) -> usize {
        let said = self.words()[0].load(Ordering::SeqCst);
        usize::try_from(said).unwrap_or(usize::MAX).min(self.slots)
    }

    /// So many have been by now.
    pub(super) fn note_in_use(&self, slots: usize) {
        self.words()[0].fetch_max(slots as u64, Ordering::SeqCst);
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing of it is used any more.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), length(self.slots)) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

fn length(slots: usize) -> usize {
    (HEADER + slots * SLOT) * size_of::<AtomicU64>()
}
