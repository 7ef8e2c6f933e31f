//! Memory that two processes share, and raw copies into and out of it.
//!
//! A mapped memfd that is sealed, so that nobody can shorten it. The other process may write anywhere in
//! it at any time, so this module makes no references to its bytes: positions are atomics, everything
//! else is copied. Invariant: a [`Memory`] stays mapped, with all its pages accessible, until it is
//! dropped.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{NonNull, copy_nonoverlapping};
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::ring::{CAPACITY, Span};

/// Room for a ring's positions, each in a separate cache line.
const CONTROL: usize = 4096;
const RING: usize = CONTROL + CAPACITY;
/// Size of both rings.
const LENGTH: usize = 2 * RING;
const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::SEAL);
/// The `statfs` type of a memfd without huge pages.
const TMPFS: u64 = 0x0102_1994;

/// Why offered memory is unsuitable for mapping.
#[derive(Debug, thiserror::Error)]
pub enum MappingError {
    /// An error of the system.
    #[error("{0}")]
    System(#[from] io::Error),
    /// The memory could be shortened while it is mapped.
    #[error("the offered memory is not a memfd without huge pages, or not sealed against resizing")]
    Unsealed,
    /// The memory does not have the size of two rings.
    #[error("the offered memory has {0} bytes, which is not the size of two rings")]
    Length(u64),
}

/// The mapping of both rings; see the module.
#[derive(Debug)]
pub(crate) struct Memory {
    base: NonNull<u8>,
    /// The process that mapped the memory. A child of `fork` does not have the mapping.
    process: u32,
}

// SAFETY: this is the address of memory that stays mapped. All accesses are atomic operations or raw
// copies.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// Selects one of the two rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// From the maker of the memory.
    FromMaker = 0,
    /// To the maker of the memory.
    ToMaker = 1,
}

/// The shared control words of a ring.
pub(crate) struct Control<'a> {
    pub(crate) head: &'a AtomicU64,
    pub(crate) tail: &'a AtomicU64,
    /// Not 0 while the sender sleeps until there is room, or the receiver until there are bytes.
    pub(crate) sender_sleeps: &'a AtomicU32,
    pub(crate) receiver_sleeps: &'a AtomicU32,
}

impl Memory {
    /// Makes such memory. The descriptor is for the other process.
    ///
    /// # Errors
    /// Errors of the system.
    pub(crate) fn make() -> io::Result<(Memory, OwnedFd)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let made = match rustix::fs::memfd_create("causeway-lane", flags | MemfdFlags::NOEXEC_SEAL)
        {
            // Kernels before 6.3 do not know the flag.
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
    /// [`MappingError`] if the memory is unsuitable.
    pub(crate) fn adopt(made: &OwnedFd) -> Result<Memory, MappingError> {
        let seals = rustix::fs::fcntl_get_seals(made).map_err(|_| MappingError::Unsealed)?;
        let system = rustix::fs::fstatfs(made).map_err(io::Error::from)?;
        // Huge pages may be unavailable when they are first accessed, which raises SIGBUS.
        if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) || system.f_type as u64 != TMPFS {
            return Err(MappingError::Unsealed);
        }
        let length = rustix::fs::fstat(made).map_err(io::Error::from)?.st_size;
        if length != LENGTH as i64 {
            return Err(MappingError::Length(length.cast_unsigned()));
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
        // A child of `fork` should not have the rings mapped. If the kernel refuses this, the child does
        // not use them anyway.
        // SAFETY: the mapping belongs to this function, and only children are affected.
        let _ = unsafe {
            rustix::mm::madvise(mapped.base.as_ptr().cast(), LENGTH, Advice::LinuxDontFork)
        };
        Ok(mapped)
    }

    /// The shared control words of a ring.
    pub(crate) fn control(&self, which: Which) -> Control<'_> {
        let control = self.ring(which);
        // SAFETY: the address is page-aligned and mapped while `self` lives. Each word is aligned and
        // inside of the first page. Both processes access the words only as atomics. A plain write by a
        // faulty process could only change the value.
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

    /// Copies bytes into the ring.
    ///
    /// # Safety
    /// `from` must be readable for the span's length.
    pub(crate) unsafe fn put(&self, which: Which, span: Span, from: *const u8) {
        // SAFETY: the caller guarantees `from`. `at` guarantees the ring, which is a separate mapping, so
        // the two do not overlap. If the other process writes there meanwhile, it only corrupts its own
        // bytes.
        unsafe { copy_nonoverlapping(from, self.at(which, span), span.length) };
    }

    /// Copies bytes out of the ring.
    ///
    /// # Safety
    /// `to` must be writable for the span's length.
    pub(crate) unsafe fn take(&self, which: Which, span: Span, to: *mut u8) {
        // SAFETY: as in `put`. Bytes that the other process writes meanwhile are copied as they are.
        unsafe { copy_nonoverlapping(self.at(which, span).cast_const(), to, span.length) };
    }

    /// Like [`Memory::take`], bypassing the processor's caches, for bytes that will not be read soon.
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
        // A child of `fork` may have another mapping at this address.
        if self.process != std::process::id() {
            return;
        }
        // SAFETY: this mapping is not used any more. Unmapping an existing mapping does not fail.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), LENGTH) };
    }
}

/// Copies bytes past the processor's caches, for bytes that will not be read soon. The copy is visible to other threads as
/// after any other copy.
///
/// # Safety
/// `from` must be readable and `to` writable for `length` bytes, and they must not overlap. Others may write to `from` at
/// the same time.
#[cfg(target_arch = "x86_64")]
pub unsafe fn copy_past_caches(from: *const u8, to: *mut u8, length: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    const WIDE: usize = size_of::<__m128i>();
    const BLOCK: usize = 4 * WIDE;
    let head = to.align_offset(WIDE).min(length);
    let blocks = (length - head) / BLOCK;
    // SAFETY: `head`, `blocks` whole blocks and the rest add up to `length` bytes, which both sides have.
    // The streaming stores are aligned after `head`. Every x86-64 processor has streaming instructions.
    // The fence orders them before the store that publishes the new position.
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

/// Copies bytes. This processor has no streaming stores that are used here.
///
/// # Safety
/// `from` must be readable and `to` writable for `length` bytes, and they must not overlap. Others may write to `from` at
/// the same time.
#[cfg(not(target_arch = "x86_64"))]
pub unsafe fn copy_past_caches(from: *const u8, to: *mut u8, length: usize) {
    // SAFETY: the caller guarantees both.
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
            // SAFETY: all three buffers have the span's length, or 3 more bytes that are skipped.
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
        // SAFETY: the child makes only system calls, and ends with one.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            let at = memory.base.as_ptr();
            // SAFETY: no mapping is replaced.
            let own = unsafe { rustix::mm::mmap_anonymous(at.cast(), LENGTH, protection, flags) };
            drop(memory);
            // SAFETY: the range is that of the new mapping, if it succeeded. `msync` only reports whether
            // the pages are mapped.
            let there = unsafe { libc::msync(at.cast(), LENGTH, libc::MS_ASYNC) } == 0;
            let code = i32::from(own.is_err()) + 2 * i32::from(!there);
            // SAFETY: ends the child.
            unsafe { libc::_exit(code) };
        }
        let mut status = 0;
        // SAFETY: the child belongs to this process, and the status is a local variable.
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
                matches!(Memory::adopt(&made), Err(MappingError::Unsealed)),
                "{seals:?}"
            );
        }
        for length in [0, 4096, LENGTH as u64 - 1, LENGTH as u64 + 4096] {
            let made = memfd(length, SEALS);
            assert!(
                matches!(Memory::adopt(&made), Err(MappingError::Length(_))),
                "{length}"
            );
        }
        let unwritable = memfd(LENGTH as u64, SEALS | SealFlags::FUTURE_WRITE);
        assert!(matches!(
            Memory::adopt(&unwritable),
            Err(MappingError::System(_))
        ));
        let (file, _) = rustix::pipe::pipe().unwrap();
        assert!(matches!(Memory::adopt(&file), Err(MappingError::Unsealed)));
    }
}
