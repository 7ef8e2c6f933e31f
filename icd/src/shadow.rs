//! Anonymous memory in which the application sees a mapped buffer.
//!
//! As large as the buffer, page-aligned, backed by nothing until touched (`MAP_NORESERVE`), so that a
//! map of a small part of a large buffer costs that part. Invariant: the address stays the same for the
//! life of the shadow, and so agree the pointers of all maps of a buffer.

#![allow(unsafe_code, reason = "mmap has no safe form")]

use std::ptr::{NonNull, null_mut};

use causeway_proto::region::Region;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::transport::HostRegion;

/// See the module.
#[derive(Debug)]
pub(crate) struct Shadow {
    base: NonNull<u8>,
    length: usize,
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
        Some(Shadow { base, length })
    }

    /// Of its first byte, its provenance exposed.
    pub(crate) fn address(&self) -> usize {
        self.base.as_ptr().expose_provenance()
    }

    /// Bytes.
    pub(crate) fn length(&self) -> u64 {
        self.length as u64
    }

    /// Gives the pages back; the bytes read as 0 afterwards. For when nobody is promised them.
    pub(crate) fn give_back(&self) {
        // SAFETY: exactly this mapping, which is private and anonymous: its pages become zero pages.
        let done = unsafe {
            madvise(
                self.base.as_ptr().cast(),
                self.length,
                Advice::LinuxDontNeed,
            )
        };
        if let Err(error) = done {
            tracing::debug!("the pages of a shadow stay: {error}");
        }
    }
}

impl Drop for Shadow {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that `new` made; whoever was given its address has unmapped, or
        // has released the buffer, and may not use it any more.
        let done = unsafe { munmap(self.base.as_ptr().cast(), self.length) };
        if let Err(error) = done {
            tracing::warn!("a shadow cannot be unmapped: {error}");
        }
    }
}

/// Bytes of a buffer where the client keeps its copy: `base` is a shadow's address, or that of the memory
/// which the application gave for the buffer's life. Whoever uses them holds the buffer.
pub(crate) fn view(base: usize, region: Region) -> HostRegion {
    let base = std::ptr::with_exposed_provenance_mut(base);
    // SAFETY: both kinds of memory are there, readable and writable, as long as the buffer is.
    unsafe { HostRegion::new(base, region) }
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
            shadow.give_back();
            assert_eq!(byte.read(), 0);
        }
    }
}
