//! Anonymous memory in which the application sees a mapped buffer.
//!
//! As large as the buffer, page-aligned, backed by nothing until touched (`MAP_NORESERVE`), so that a
//! map of a small part of a large buffer costs that part. Invariant: the address stays the same for the
//! life of the shadow, and so agree the pointers of all maps of a buffer.
//!
//! Fresh pages cost a map more than the bytes that go into them. So pages are large ones where the system
//! has them, and those that are given back stay, up to a bound for the process, until the system wants
//! them (`MADV_FREE`).

#![allow(unsafe_code, reason = "mmap has no safe form")]

use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use causeway_proto::region::Region;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::transport::{HostRegion, Rows};

/// Of the systems we run on.
const LARGE_PAGE: usize = 2 << 20;

/// So many bytes of shadows that nobody uses may keep their pages until the system wants them.
const RESTING_LIMIT: u64 = 256 << 20;

static RESTING: AtomicU64 = AtomicU64::new(0);

/// Nothing is ever mapped below, so that small numbers are no pointers.
const LOWEST: usize = 1 << 16;
/// Below the first thread's stack so much address space is left to it, whatever limit it has.
const STACK_ROOM: usize = 1 << 30;

/// The system's pages, bytes.
pub(crate) fn page_size() -> usize {
    // SAFETY: a question about a constant of the system.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

/// The kernel has put these bytes above the first thread's stack.
fn stack_top() -> usize {
    // SAFETY: a look into what the kernel has given the process at its start.
    unsafe { libc::getauxval(libc::AT_RANDOM) as usize }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Shadow {
    base: NonNull<u8>,
    length: usize,
    // Counted in RESTING, from the first time its pages were left to the system.
    rested: AtomicBool,
}

// SAFETY: the memory belongs to the process, not to a thread; nothing here reads or writes it.
unsafe impl Send for Shadow {}
// SAFETY: as above.
unsafe impl Sync for Shadow {}

impl Shadow {
    /// Address space for `length` bytes (not 0); none when there is not so much.
    pub(crate) fn new(length: u64) -> Option<Shadow> {
        let length = usize::try_from(length).ok()?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the system's choice touches no other memory.
        let base = unsafe { mmap_anonymous(null_mut(), length, access, flags) }.ok()?;
        let base = NonNull::new(base.cast())?;
        let shadow = Shadow {
            base,
            length,
            rested: AtomicBool::new(false),
        };
        // A small one would only become larger by large pages.
        if length >= LARGE_PAGE {
            shadow.advise(Advice::LinuxHugepage);
        }
        Some(shadow)
    }

    /// Exactly these addresses, of which the first begins a page; none when something of the process is there, or the
    /// first thread's stack may grow into them.
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
        // SAFETY: a new mapping that never replaces another one touches no other memory.
        let base = unsafe { mmap_anonymous(wanted, length, access, flags) }.ok()?;
        let shadow = Shadow {
            base: NonNull::new(base.cast())?,
            length,
            rested: AtomicBool::new(false),
        };
        // Linux before 4.17 takes the address as a hint only; what is elsewhere goes again.
        (shadow.address() == address).then_some(shadow)
    }

    /// Of its first byte, its provenance exposed.
    pub(crate) fn address(&self) -> usize {
        self.base.as_ptr().expose_provenance()
    }

    /// Bytes.
    pub(crate) fn length(&self) -> u64 {
        self.length as u64
    }

    /// Gives the pages back, at once or when the system wants them; the bytes mean nothing afterwards.
    /// For when nobody is promised them.
    pub(crate) fn give_back(&self) {
        let advice = if self.may_rest() {
            Advice::LinuxFree
        } else {
            Advice::LinuxDontNeed
        };
        self.advise(advice);
    }

    // Whether the pages may be left to the system.
    fn may_rest(&self) -> bool {
        if self.rested.load(Ordering::Acquire) {
            return true;
        }
        let more = |resting: u64| {
            let sum = resting.checked_add(self.length())?;
            (sum <= RESTING_LIMIT).then_some(sum)
        };
        let counted = RESTING.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        // Callers hold their buffer's lock: nobody else counts this one meanwhile.
        self.rested.store(counted.is_ok(), Ordering::Release);
        counted.is_ok()
    }

    fn advise(&self, advice: Advice) {
        // SAFETY: exactly this mapping, which is private and anonymous. None of the advices in use
        // changes what it may be used for; what they do to its bytes is said where they are used.
        let done = unsafe { madvise(self.base.as_ptr().cast(), self.length, advice) };
        if let Err(error) = done {
            tracing::debug!("the system does not heed {advice:?} for a shadow: {error}");
        }
    }
}

impl Drop for Shadow {
    fn drop(&mut self) {
        if *self.rested.get_mut() {
            RESTING.fetch_sub(self.length(), Ordering::AcqRel);
        }
        // SAFETY: exactly the mapping that `new` made; whoever was given its address has unmapped, or
        // has released the buffer, and may not use it any more.
        let done = unsafe { munmap(self.base.as_ptr().cast(), self.length) };
        if let Err(error) = done {
            tracing::warn!("a shadow cannot be unmapped: {error}");
        }
    }
}

/// Bytes of a buffer or image where the client keeps its copy: `base` is a shadow's address, or that of the memory
/// which the application gave for the object's life, in `rows` with gaps or without. Whoever uses them holds the
/// object.
pub(crate) fn view(base: usize, region: Region, rows: Option<Rows>) -> HostRegion {
    let base = std::ptr::with_exposed_provenance_mut(base);
    // SAFETY: both kinds of memory are there, readable and writable, as long as the object is.
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
        // More than any test machine has.
        let shadow = Shadow::new(1 << 40).unwrap();
        assert_eq!(shadow.address() % 4096, 0);
        let byte = std::ptr::with_exposed_provenance_mut::<u8>(shadow.address() + (1 << 39));
        // SAFETY: inside of the mapping.
        unsafe {
            byte.write(7);
            assert_eq!(byte.read(), 7);
            // Too large to rest.
            shadow.give_back();
            assert_eq!(byte.read(), 0);
        }
    }

    #[test]
    fn a_shadow_at_an_address_takes_nobody_elses_place() {
        // Where the system puts nothing by itself, so no other thread either.
        let free = 0x1234_5600_0000;
        let there = Shadow::at(free, 1 << 20).unwrap();
        assert_eq!(there.address(), free);
        assert!(Shadow::at(free, 4096).is_none());
        assert!(Shadow::at(free + (1 << 19), 1 << 20).is_none());
        let byte = std::ptr::with_exposed_provenance_mut::<u8>(free);
        // SAFETY: inside of the mapping.
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
