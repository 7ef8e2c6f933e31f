//! The application's memory, as bulk connections touch it.
#![allow(unsafe_code)]

use causeway_proto::region::Region;

/// Bytes in the application's memory: a base address and the region counted from it.
///
/// Bytes travel in the region's packed order.
#[derive(Debug)]
pub struct HostRegion {
    base: *mut u8,
    region: Region,
}

// SAFETY: the maker of a HostRegion promises that any thread may touch these bytes until the transfer
// has ended (see `HostRegion::new`); the pointer has no other tie to its thread.
unsafe impl Send for HostRegion {}
// SAFETY: as above; shared access hands out no references, only system calls on disjoint chunks.
unsafe impl Sync for HostRegion {}

impl HostRegion {
    /// The bytes of `region`, whose offset 0 is at `base`.
    ///
    /// # Safety
    /// From the call that takes it until the event's `completed` (or the session's `lost`) every byte
    /// of the region must stay readable (upload) or writable (download) from any thread.
    #[must_use]
    pub unsafe fn new(base: *mut u8, region: Region) -> HostRegion {
        HostRegion { base, region }
    }

    /// The shape.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Bytes in all.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.region.packed_length()
    }
}
