//! Anonymous memory in which the application sees a mapped buffer.
//!
//! A shadow is as large as the buffer and page-aligned. Untouched pages use no memory (`MAP_NORESERVE`), so
//! a map of a small part of a large buffer costs only that part. Invariant: the address stays the same for
//! the life of the shadow, so the pointers of all maps of a buffer fit together.
//!
//! For a map, fresh pages cost more than copying the bytes. So large pages are used where the system has
//! them. Pages of unused shadows stay until the system needs them (`MADV_FREE`), up to a limit for the
//! process.

#![allow(unsafe_code, reason = "mmap has no safe form")]

use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use causeway_proto::region::Region;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::transport::{HostRegion, Rows};

/// Size of a large page on the supported systems, in bytes.
const LARGE_PAGE: usize = 2 << 20;

/// Largest sum of unused shadows, in bytes, whose pages stay until the system needs them.
const RESTING_LIMIT: u64 = 256 << 20;

static RESTING: AtomicU64 = AtomicU64::new(0);

/// Lowest address of a mapping. Nothing is mapped below, so that small numbers are never valid pointers.
const LOWEST: usize = 1 << 16;
/// Address space below the first thread's stack that stays free for it, in bytes, whatever limit the stack
/// has.
const STACK_ROOM: usize = 1 << 30;

/// The system's page size in bytes.
pub(crate) fn page_size() -> usize {
    // SAFETY: sysconf only reads a constant of the system.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

/// An address just above the first thread's stack: the kernel has put random bytes there.
fn stack_top() -> usize {
    // SAFETY: getauxval only reads the vector that the kernel gave the process at its start.
    unsafe { libc::getauxval(libc::AT_RANDOM) as usize }
}

/// A private mapping of anonymous memory; see the module.
#[derive(Debug)]
pub(crate) struct Shadow {
    base: NonNull<u8>,
    length: usize,
    // Whether this shadow is counted in RESTING: from the first time its pages were left to the system.
    rested: AtomicBool,
}

// SAFETY: the memory belongs to the process, not to a thread. Nothing here reads or writes it.
unsafe impl Send for Shadow {}
// SAFETY: as for `Send`.
unsafe impl Sync for Shadow {}

impl Shadow {
    /// Maps `length` bytes (not 0) at an address of the system's choice. `None` without enough address
    /// space.
    pub(crate) fn new(length: u64) -> Option<Shadow> {
        let length = usize::try_from(length).ok()?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the system's choice replaces no other memory.
        let base = unsafe { mmap_anonymous(null_mut(), length, access, flags) }.ok()?;
        let base = NonNull::new(base.cast())?;
        let shadow = Shadow {
            base,
            length,
            rested: AtomicBool::new(false),
        };
        // Large pages would only make a smaller shadow use more memory.
        if length >= LARGE_PAGE {
            shadow.advise(Advice::LinuxHugepage);
        }
        Some(shadow)
    }

    /// Maps exactly these addresses, of which the first begins a page. `None` if the process has memory
    /// there already, or if the first thread's stack may grow into them.
    pub(crate) fn at(address: usize, length: u64) -> Option<Shadow> {
        let length = usize::try_from(length).ok()?;
        let end = address.checked_add(length)?;
        let stack = stack_top();
        if address < LOWEST {
            return None;
        }
        if address < stack && stack.saturating_sub(STACK_ROOM) < end {
            return None;
        }
        let wanted = std::ptr::with_exposed_provenance_mut(address);
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
        // SAFETY: a new mapping that never replaces another one changes no other memory.
        let base = unsafe { mmap_anonymous(wanted, length, access, flags) }.ok()?;
        let shadow = Shadow {
            base: NonNull::new(base.cast())?,
            length,
            rested: AtomicBool::new(false),
        };
        // Linux before 4.17 takes the address only as a hint. A mapping elsewhere is dropped here, which
        // unmaps it.
        (shadow.address() == address).then_some(shadow)
    }

    /// Address of the first byte. Its provenance is exposed.
    pub(crate) fn address(&self) -> usize {
        self.base.as_ptr().expose_provenance()
    }

    /// Length in bytes.
    pub(crate) fn length(&self) -> u64 {
        self.length as u64
    }

    /// Releases the pages, at once or when the system needs them. The contents are undefined afterwards, so
    /// no map may exist that promises them.
    pub(crate) fn give_back(&self) {
        let advice = if self.may_rest() {
            Advice::LinuxFree
        } else {
            Advice::LinuxDontNeed
        };
        self.advise(advice);
    }

    // Whether the pages may stay until the system needs them. Counts this shadow if so.
    fn may_rest(&self) -> bool {
        if self.rested.load(Ordering::Acquire) {
            return true;
        }
        let more = |resting: u64| {
            let sum = resting.checked_add(self.length())?;
            (sum <= RESTING_LIMIT).then_some(sum)
        };
        let counted = RESTING.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        // The caller holds the buffer's lock, so no other thread counts this shadow at the same time.
        self.rested.store(counted.is_ok(), Ordering::Release);
        counted.is_ok()
    }

    fn advise(&self, advice: Advice) {
        // SAFETY: the range is exactly this mapping, which is private and anonymous. No advice in use makes
        // it inaccessible. The callers document what the advice does to the bytes.
        let done = unsafe { madvise(self.base.as_ptr().cast(), self.length, advice) };
        if let Err(error) = done {
            tracing::debug!("madvise({advice:?}) failed for a mapped buffer's memory: {error}");
        }
    }
}

impl Drop for Shadow {
    fn drop(&mut self) {
        if *self.rested.get_mut() {
            RESTING.fetch_sub(self.length(), Ordering::AcqRel);
        }
        // SAFETY: the range is exactly this mapping. Users of its address have unmapped the buffer or
        // released it, and may not use the address any more.
        let done = unsafe { munmap(self.base.as_ptr().cast(), self.length) };
        if let Err(error) = done {
            tracing::warn!("munmap failed for a mapped buffer's memory: {error}");
        }
    }
}

/// Bytes of a buffer or image in the client's copy. `base` is a shadow's address, or that of the host
/// memory that the application gave for the object's life. `rows` describes gaps between rows. The user of
/// the view holds a reference to the object.
pub(crate) fn view(base: usize, region: Region, rows: Option<Rows>) -> HostRegion {
    let base = std::ptr::with_exposed_provenance_mut(base);
    // SAFETY: both kinds of memory stay mapped, readable and writable as long as the object exists.
    unsafe {
        match rows {
            None => HostRegion::new(base, region),
            Some(rows) => HostRegion::in_rows(base, region, rows),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shadow_is_aligned_and_costs_nothing_untouched() {
        // This is more than any test machine has.
        let shadow = Shadow::new(1 << 40).unwrap();
        assert_eq!(shadow.address() % 4096, 0);
        let byte = std::ptr::with_exposed_provenance_mut::<u8>(shadow.address() + (1 << 39));
        // SAFETY: the address is inside of the mapping.
        unsafe {
            byte.write(7);
            assert_eq!(byte.read(), 7);
            // This shadow is larger than the limit, so its pages are released at once.
            shadow.give_back();
            assert_eq!(byte.read(), 0);
        }
    }

    #[test]
    fn a_shadow_at_an_address_takes_nobody_elses_place() {
        // The system maps nothing here on its own, so no other thread does.
        let free = 0x1234_5600_0000;
        let there = Shadow::at(free, 1 << 20).unwrap();
        assert_eq!(there.address(), free);
        assert!(Shadow::at(free, 4096).is_none());
        assert!(Shadow::at(free + (1 << 19), 1 << 20).is_none());
        let byte = std::ptr::with_exposed_provenance_mut::<u8>(free);
        // SAFETY: the address is inside of the mapping.
        unsafe {
            byte.write(7);
            assert_eq!(byte.read(), 7);
        }
        drop(there);
        assert!(Shadow::at(stack_top() - (STACK_ROOM >> 1), 4096).is_none());
        assert!(Shadow::at(usize::MAX - 4095, 4096).is_none());
        assert!(Shadow::at(0, 4096).is_none());
    }

    #[test]
    fn a_shadow_that_rests_is_counted_once_and_until_it_goes() {
        let shadow = Shadow::new(RESTING_LIMIT).unwrap();
        assert!(shadow.may_rest() && shadow.may_rest());
        let other = Shadow::new(4096).unwrap();
        assert!(!other.may_rest());
        drop(shadow);
        assert!(other.may_rest());
        other.give_back();
    }
}
