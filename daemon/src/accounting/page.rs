//! The shared memory: a sealed memfd that both processes map, and that contains only atomic words.
//!
//! This is the only module of `accounting` that uses raw memory. Invariant: a [`Page`] stays mapped and
//! accessible until it is dropped, because the seals prevent anyone from shrinking it.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Words before the first slot: one cache line. The first word is the highest number of slots ever in use.
const HEADER: usize = 8;
/// Words per slot: whole cache lines.
pub(super) const SLOT: usize = 592;
const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::SEAL);

/// The passed memory cannot be used for counting.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// A system call failed.
    #[error("{0}")]
    System(#[from] io::Error),
    /// The memory is not sealed, so another process could shrink it while it is mapped.
    #[error("the memory is not sealed against being resized")]
    Unsealed,
    /// The memory has no whole slot, or fewer slots than the supervisor claims.
    #[error("the memory has no such slot")]
    NoSlot,
}

/// A mapped page.
#[derive(Debug)]
pub(super) struct Page {
    base: NonNull<AtomicU64>,
    slots: usize,
}

// SAFETY: the address refers to memory that stays mapped and contains only atomics.
unsafe impl Send for Page {}
// SAFETY: as for `Send`.
unsafe impl Sync for Page {}

impl Page {
    /// Makes a page with `slots` empty slots. The descriptor is for the workers.
    pub(super) fn make(slots: usize) -> io::Result<(Page, OwnedFd)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let made =
            match rustix::fs::memfd_create("causeway-ledger", flags | MemfdFlags::NOEXEC_SEAL) {
                // A kernel before 6.3 does not know NOEXEC_SEAL.
                Err(rustix::io::Errno::INVAL) => rustix::fs::memfd_create("causeway-ledger", flags),
                other => other,
            }?;
        rustix::fs::ftruncate(&made, length(slots) as u64)?;
        rustix::fs::fcntl_add_seals(&made, SEALS)?;
        Ok((Page::map(&made, slots)?, made))
    }

    /// Maps a page that the supervisor has made.
    ///
    /// # Errors
    /// [`PageError`] if the memory is not sealed, or has no whole slot.
    pub(super) fn adopt(made: &OwnedFd) -> Result<Page, PageError> {
        let seals = rustix::fs::fcntl_get_seals(made).map_err(|_| PageError::Unsealed)?;
        if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) {
            return Err(PageError::Unsealed);
        }
        let bytes = rustix::fs::fstat(made).map_err(io::Error::from)?.st_size;
        let words = usize::try_from(bytes).unwrap_or(0) / size_of::<AtomicU64>();
        match words.checked_sub(HEADER) {
            Some(words) if words >= SLOT => Ok(Page::map(made, words / SLOT)?),
            _ => Err(PageError::NoSlot),
        }
    }

    fn map(memory: impl AsFd, slots: usize) -> io::Result<Page> {
        // SAFETY: this makes a new mapping at an address that the kernel chooses.
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
        // Processes that a driver forks must not count for the session. Errors are ignored: a kernel that
        // cannot do this must not stop the session.
        // SAFETY: this function owns the mapping, and the advice only affects child processes.
        let _ = unsafe {
            rustix::mm::madvise(base.as_ptr().cast(), length(slots), Advice::LinuxDontFork)
        };
        Ok(Page { base, slots })
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is page-aligned, has this many words, and lives as long as `self`. Every bit
        // pattern is a valid word. Other processes can only change values.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), HEADER + self.slots * SLOT) }
    }

    /// Returns the number of slots.
    pub(super) fn slots(&self) -> usize {
        self.slots
    }

    /// Returns the words of one slot.
    pub(super) fn slot(&self, index: usize) -> &[AtomicU64] {
        &self.words()[HEADER + index * SLOT..][..SLOT]
    }

    /// Returns the number of slots that have ever been in use. Slots with higher numbers are still zero.
    pub(super) fn in_use(&self) -> usize {
        let said = self.words()[0].load(Ordering::SeqCst);
        usize::try_from(said).unwrap_or(usize::MAX).min(self.slots)
    }

    /// Records that the first `slots` slots have been in use.
    pub(super) fn note_in_use(&self, slots: usize) {
        self.words()[0].fetch_max(slots as u64, Ordering::SeqCst);
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: `self` owns the mapping, and nothing refers to it any more.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), length(self.slots)) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

fn length(slots: usize) -> usize {
    (HEADER + slots * SLOT) * size_of::<AtomicU64>()
}
