//! The memory that two processes share, and raw copies into and out of it.
//!
//! A sealed memfd, which nobody can shorten, mapped here. The other process may write anywhere in it at
//! any time, so no reference to its bytes is ever made: positions are atomics, all else is copied. The
//! one module of this crate with raw memory. Invariant: a [`Memory`] stays mapped, with all its pages
//! there to be touched, until it is dropped.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{NonNull, copy_nonoverlapping};
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::ring::{CAPACITY, Span};

/// Room for a ring's positions, each in a cache line of its own.
const CONTROL: usize = 4096;
const RING: usize = CONTROL + CAPACITY;
/// Both rings.
const LENGTH: usize = 2 * RING;
const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::SEAL);
/// What `statfs` calls the file system of a memfd without huge pages.
const TMPFS: u64 = 0x0102_1994;

/// Memory that was offered is not fit to be mapped.
#[derive(Debug, thiserror::Error)]
pub enum Unfit {
    /// Something of the system's.
    #[error("{0}")]
    System(#[from] io::Error),
    /// Someone could take pages away under us.
    #[error("the memory is no memfd of this system, or not sealed against being resized")]
    Unsealed,
    /// Not as long as two rings are.
    #[error("the memory has {0} bytes")]
    Length(u64),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Memory {
    base: NonNull<u8>,
    /// Who has mapped it: a child of `fork` has not.
    process: u32,
}

// SAFETY: an address of memory that stays mapped; what is done there is atomic or a raw copy.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// From who made the memory.
    FromMaker = 0,
    /// To it.
    ToMaker = 1,
}

/// A ring's shared words.
pub(crate) struct Control<'a> {
    pub(crate) head: &'a AtomicU64,
    pub(crate) tail: &'a AtomicU64,
    /// Not 0: the sender sleeps until there is room, the receiver until there are bytes.
    pub(crate) sender_sleeps: &'a AtomicU32,
    pub(crate) receiver_sleeps: &'a AtomicU32,
}

impl Memory {
    /// Makes such memory; its descriptor is for the other process.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn make() -> io::Result<(Memory, OwnedFd)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let made = match rustix::fs::memfd_create("causeway-lane", flags | MemfdFlags::NOEXEC_SEAL)
        {
            // A kernel before 6.3.
            Err(rustix::io::Errno::INVAL) => rustix::fs::memfd_create("causeway-lane", flags),
            other => other,
        }?;
        rustix::fs::ftruncate(&made, LENGTH as u64)?;
        rustix::fs::fcntl_add_seals(&made, SEALS)?;
        Ok((Memory::map(&made)?, made))
    }

    /// Maps memory that another process has made.
    ///
    /// # Errors
    /// [`Unfit`].
    pub(crate) fn adopt(made: &OwnedFd) -> Result<Memory, Unfit> {
        let seals = rustix::fs::fcntl_get_seals(made).map_err(|_| Unfit::Unsealed)?;
        let system = rustix::fs::fstatfs(made).map_err(io::Error::from)?;
        // Huge pages can be missing when they are touched, and touching them then is SIGBUS.
        if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) || system.f_type as u64 != TMPFS {
            return Err(Unfit::Unsealed);
        }
        let length = rustix::fs::fstat(made).map_err(io::Error::from)?.st_size;
        if length != LENGTH as i64 {
            return Err(Unfit::Length(length.cast_unsigned()));
        }
        Ok(Memory::map(made)?)
    }

    fn map(memory: impl AsFd) -> io::Result<Memory> {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                LENGTH,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                memory,
                0,
            )?
        };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let mapped = Memory {
            base,
            process: std::process::id(),
        };
        // A child of `fork` must not find our rings; where that is not to be had it leaves them alone.
        // SAFETY: the mapping is ours, and only a child misses it.
        let _ = unsafe {
            rustix::mm::madvise(mapped.base.as_ptr().cast(), LENGTH, Advice::LinuxDontFork)
        };
        Ok(mapped)
    }

    /// The shared words of a ring.
    pub(crate) fn control(&self, which: Which) -> Control<'_> {
        let control = self.ring(which);
        // SAFETY: page-aligned and mapped as long as `self` lives, with each word inside of the first
        // page and aligned; both processes touch them as atomics only, and another's plain write could
        // change the value and nothing else.
        unsafe {
            Control {
                head: AtomicU64::from_ptr(control.cast()),
                tail: AtomicU64::from_ptr(control.add(128).cast()),
                receiver_sleeps: AtomicU32::from_ptr(control.add(256).cast()),
                sender_sleeps: AtomicU32::from_ptr(control.add(384).cast()),
            }
        }
    }

    fn ring(&self, which: Which) -> *mut u8 {
        // SAFETY: both rings are within the mapping.
        unsafe { self.base.as_ptr().add(which as usize * RING) }
    }

    fn at(&self, which: Which, span: Span) -> *mut u8 {
        assert!(span.offset <= CAPACITY && span.length <= CAPACITY - span.offset);
        // SAFETY: the span is within the ring (checked), which is within the mapping.
        unsafe { self.ring(which).add(CONTROL + span.offset) }
    }

    /// Copies into the ring.
    ///
    /// # Safety
    /// `from` is readable memory of the span's length.
    pub(crate) unsafe fn put(&self, which: Which, span: Span, from: *const u8) {
        // SAFETY: the caller vouches for `from`, `at` for the ring, which is our own mapping and so
        // elsewhere. If the other process writes there meanwhile, it spoils bytes that are its own.
        unsafe { copy_nonoverlapping(from, self.at(which, span), span.length) };
    }

    /// Copies out of the ring.
    ///
    /// # Safety
    /// `to` is writable memory of the span's length.
    pub(crate) unsafe fn take(&self, which: Which, span: Span, to: *mut u8) {
        // SAFETY: as in `put`; what the other process may write meanwhile is copied as it is.
        unsafe { copy_nonoverlapping(self.at(which, span).cast_const(), to, span.length) };
    }

    /// The same past the processor's caches, for bytes that nobody will look at soon.
    ///
    /// # Safety
    /// As [`Memory::take`].
    pub(crate) unsafe fn take_past_caches(&self, which: Which, span: Span, to: *mut u8) {
        let from = self.at(which, span).cast_const();
        // SAFETY: as in `take`.
        unsafe { copy_past_caches(from, to, span.length) };
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // A child of `fork` may have something else at that address.
        if self.process != std::process::id() {
            return;
        }
        // SAFETY: our mapping, which nobody uses any more; unmapping what was mapped does not fail.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), LENGTH) };
    }
}

/// # Safety
/// Both are memory of that length, which do not overlap.
#[cfg(target_arch = "x86_64")]
unsafe fn copy_past_caches(from: *const u8, to: *mut u8, length: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    const WIDE: usize = size_of::<__m128i>();
    const BLOCK: usize = 4 * WIDE;
    let head = to.align_offset(WIDE).min(length);
    let blocks = (length - head) / BLOCK;
    // SAFETY: `head`, then `blocks` whole blocks, then the rest are `length` bytes in all, which both
    // have; the streaming stores are aligned after `head`. Streaming instructions belong to every
    // x86-64, and the fence orders them before what says that the bytes are there.
    unsafe {
        copy_nonoverlapping(from, to, head);
        let (mut source, mut target) = (from.add(head), to.add(head));
        for _ in 0..blocks {
            let (wide_source, wide_target) = (source.cast::<__m128i>(), target.cast::<__m128i>());
            let four = [
                _mm_loadu_si128(wide_source),
                _mm_loadu_si128(wide_source.add(1)),
                _mm_loadu_si128(wide_source.add(2)),
                _mm_loadu_si128(wide_source.add(3)),
            ];
            _mm_stream_si128(wide_target, four[0]);
            _mm_stream_si128(wide_target.add(1), four[1]);
            _mm_stream_si128(wide_target.add(2), four[2]);
            _mm_stream_si128(wide_target.add(3), four[3]);
            (source, target) = (source.add(BLOCK), target.add(BLOCK));
        }
        copy_nonoverlapping(source, target, length - head - blocks * BLOCK);
        _mm_sfence();
    }
}

/// # Safety
/// Both are memory of that length, which do not overlap.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn copy_past_caches(from: *const u8, to: *mut u8, length: usize) {
    // SAFETY: the caller's word.
    unsafe { copy_nonoverlapping(from, to, length) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_mappings_are_one_memory() {
        let (maker, made) = Memory::make().unwrap();
        let other = Memory::adopt(&made).unwrap();
        let span = Span {
            offset: CAPACITY - 1000,
            length: 1000,
        };
        let bytes: Vec<u8> = (0..1000u32).map(|i| (i * 7) as u8).collect();
        for which in [Which::FromMaker, Which::ToMaker] {
            let (mut got, mut past) = (vec![0; 1000], vec![0; 1003]);
            // SAFETY: all three are of the span's length or longer by the 3 bytes that are skipped.
            unsafe {
                maker.put(which, span, bytes.as_ptr());
                other.take(which, span, got.as_mut_ptr());
                other.take_past_caches(which, span, past.as_mut_ptr().add(3));
            }
            assert_eq!(got, bytes);
            assert_eq!(&past[3..], bytes);
            maker
                .control(which)
                .head
                .store(9, std::sync::atomic::Ordering::Release);
            let head = other
                .control(which)
                .head
                .load(std::sync::atomic::Ordering::Acquire);
            assert_eq!(head, 9);
        }
    }

    #[test]
    fn a_child_of_fork_leaves_alone_what_is_not_mapped_there() {
        let (memory, _made) = Memory::make().unwrap();
        // SAFETY: the child makes system calls only, and leaves by one.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            let at = memory.base.as_ptr();
            // SAFETY: no mapping is replaced.
            let own = unsafe { rustix::mm::mmap_anonymous(at.cast(), LENGTH, protection, flags) };
            drop(memory);
            // SAFETY: the pages of the mapping just made, if it was; `msync` says whether they are there.
            let there = unsafe { libc::msync(at.cast(), LENGTH, libc::MS_ASYNC) } == 0;
            let code = i32::from(own.is_err()) + 2 * i32::from(!there);
            // SAFETY: ends the child.
            unsafe { libc::_exit(code) };
        }
        let mut status = 0;
        // SAFETY: our own child; the status is a local.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(
            libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
            "{status}"
        );
    }

    fn memfd(length: u64, seals: SealFlags) -> OwnedFd {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let made = rustix::fs::memfd_create("test", flags).unwrap();
        rustix::fs::ftruncate(&made, length).unwrap();
        rustix::fs::fcntl_add_seals(&made, seals).unwrap();
        made
    }

    #[test]
    fn memory_that_could_be_taken_away_is_not_mapped() {
        for seals in [SealFlags::empty(), SealFlags::GROW, SealFlags::SHRINK] {
            let made = memfd(LENGTH as u64, seals);
            assert!(
                matches!(Memory::adopt(&made), Err(Unfit::Unsealed)),
                "{seals:?}"
            );
        }
        for length in [0, 4096, LENGTH as u64 - 1, LENGTH as u64 + 4096] {
            let made = memfd(length, SEALS);
            assert!(
                matches!(Memory::adopt(&made), Err(Unfit::Length(_))),
                "{length}"
            );
        }
        let unwritable = memfd(LENGTH as u64, SEALS | SealFlags::FUTURE_WRITE);
        assert!(matches!(Memory::adopt(&unwritable), Err(Unfit::System(_))));
        let (file, _) = rustix::pipe::pipe().unwrap();
        assert!(matches!(Memory::adopt(&file), Err(Unfit::Unsealed)));
    }
}
