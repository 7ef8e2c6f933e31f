//! The application's memory as bulk connections access it: raw pointers that are passed to system calls.
//!
//! Nothing here makes a Rust reference to those bytes. Another thread of the application may access them
//! (it should not, but may), and a reference would promise that none does. Long rows are transferred
//! directly between memory and socket or shared ring. Shorter rows are collected in a buffer.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed};
use std::io;

use causeway_lane::{Caching, Stream, copy_past_caches, piece};
use causeway_proto::region::{Region, Segment};
use rustix::mm::{Advice, madvise};

use super::digest::PartDigest;
use super::rows::Rows;

/// Rows shorter than this are copied through a buffer, because describing a row to the kernel would cost
/// more.
const SHORT_ROW: u64 = 2048;
/// Regions of at least this size bypass the processor's caches. By the time the program reads them, few
/// of their bytes would still be cached.
const MANY: u64 = 32 << 20;
/// Bytes that are copied at a time to be digested: the copy stays in the processor's first cache.
const DIGESTED: u64 = 32 << 10;
/// The size of a large page, or a multiple of it.
const LARGE_PAGE: usize = 2 << 20;
/// Shorter runs of bytes are not worth a copy past the caches.
const SHORT_RUN: u64 = 4096;

/// Bytes in the application's memory: a base address, and a region relative to it.
///
/// Bytes are transferred in the region's packed order.
#[derive(Debug)]
pub struct HostRegion {
    base: *mut u8,
    region: Region,
    // The position of the rows in memory, if there are gaps between them that the region does not count.
    rows: Option<Rows>,
    // Set if the bytes are the library's own. They are accessed through `base` only.
    owned: Option<Vec<u8>>,
}

// SAFETY: the creator of a HostRegion promises that any thread may access these bytes until the transfer
// has ended (see `HostRegion::new`). Nothing else ties the pointer to its thread.
unsafe impl Send for HostRegion {}
// SAFETY: as above; shared access hands out no references, only system calls and raw copies.
unsafe impl Sync for HostRegion {}

/// Buffers that one lane reuses for all its chunks.
#[derive(Default)]
pub(in crate::transport) struct Scratch {
    gathered: Vec<u8>,
    pieces: Vec<libc::iovec>,
}

// SAFETY: `pieces` is empty except during a call, so no pointer in it moves to another thread.
unsafe impl Send for Scratch {}

impl HostRegion {
    /// The bytes of `region`, whose offset 0 is at `base`.
    ///
    /// # Safety
    /// Every byte of the region must stay readable (upload) or writable (download) from any thread. This
    /// holds from the call that takes the region to the event's `completed`, or the session's `lost`.
    #[must_use]
    pub unsafe fn new(base: *mut u8, region: Region) -> HostRegion {
        HostRegion {
            base,
            region,
            rows: None,
            owned: None,
        }
    }

    /// The bytes of `region`, whose offsets do not count the gaps between `rows`. The first row begins at
    /// `base`.
    ///
    /// # Safety
    /// As [`HostRegion::new`], for the bytes in the rows.
    #[must_use]
    pub unsafe fn in_rows(base: *mut u8, region: Region, rows: Rows) -> HostRegion {
        HostRegion {
            base,
            region,
            rows: Some(rows),
            owned: None,
        }
    }

    /// The first `length` of bytes of the library's own. `None` if there are fewer, or more than a region can have.
    pub(in crate::transport) fn owned(mut bytes: Vec<u8>, length: u64) -> Option<HostRegion> {
        let region = Region::linear(0, length).ok()?;
        (length <= bytes.len() as u64).then_some(HostRegion {
            base: bytes.as_mut_ptr(),
            region,
            rows: None,
            owned: Some(bytes),
        })
    }

    /// Number of bytes of the library's own, those that do not belong to the region included.
    pub(in crate::transport) fn owned_length(&self) -> usize {
        self.owned.as_ref().map_or(0, Vec::len)
    }

    /// The bytes of the library's own.
    pub(in crate::transport) fn into_owned(self) -> Option<Vec<u8>> {
        self.owned
    }

    /// As [`HostRegion::owned`], with zeros. `None` if there is not so much memory.
    pub(in crate::transport) fn zeroed(length: u64) -> Option<HostRegion> {
        let length = usize::try_from(length).ok()?;
        let layout = Layout::array::<u8>(length).ok()?;
        if length == 0 {
            return HostRegion::owned(Vec::new(), 0);
        }
        // The kernel's fresh pages are zero, so much memory is touched only when it is written.
        // SAFETY: the layout is not empty.
        let bytes = unsafe { alloc_zeroed(layout) };
        if bytes.is_null() {
            return None;
        }
        // SAFETY: the global allocator gave these bytes with this layout, and all of them are set.
        let bytes = unsafe { Vec::from_raw_parts(bytes, length, length) };
        HostRegion::owned(bytes, length as u64)
    }

    /// Has the kernel back the library's own bytes with large pages, of which fresh ones take fewer faults.
    pub(in crate::transport) fn prefer_large_pages(&self) {
        let Some(bytes) = &self.owned else { return };
        let begin = self.base.addr().next_multiple_of(LARGE_PAGE);
        let end = (self.base.addr() + bytes.len()) / LARGE_PAGE * LARGE_PAGE;
        if begin < end {
            // SAFETY: the range is within this region's own bytes, and the advice changes none of them.
            let done = unsafe {
                let at = self.base.with_addr(begin).cast();
                madvise(at, end - begin, Advice::LinuxHugepage)
            };
            if let Err(error) = done {
                tracing::debug!(%error, "no large pages");
            }
        }
    }

    /// Copies the packed bytes `from..from + length` of another region with as many bytes to the same place here, past the
    /// caches. This region is contiguous.
    pub(in crate::transport) fn copy_part(&self, source: &HostRegion, from: u64, length: u64) {
        assert!(self.is_linear() && self.length() == source.length());
        for segment in source.segments(from, from + length) {
            // SAFETY: the segment is in the source, which is readable (`HostRegion::new`). Its packed place is in this
            // region, which has as many bytes and is contiguous. The two are different memory, because a region whose
            // bytes are copied here is the application's, or the zeros of a failed write. Threads that copy at the same
            // time copy other bytes: the table of transfers gives each chunk to one lane.
            unsafe {
                let bytes = source.base.add(segment.offset as usize);
                let target = self
                    .base
                    .add((self.region.offset() + segment.packed) as usize);
                copy_run(bytes, target, segment.length, Caching::Bypass);
            }
        }
    }

    /// Whether the bytes are contiguous.
    #[must_use]
    pub fn is_linear(&self) -> bool {
        self.region.is_linear() && self.rows.is_none()
    }

    /// Address of the first byte.
    #[must_use]
    pub fn address(&self) -> usize {
        let first = self.region.offset();
        let first = self.rows.map_or(first, |rows| rows.place(first));
        self.base.addr() + first as usize
    }

    /// Number of bytes, without gaps.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.region.packed_length()
    }

    /// The bytes' addresses in the process as a region relative to address 0. If there are gaps that the
    /// region does not count, everything from the first byte to the last.
    #[must_use]
    pub fn addresses(&self) -> Region {
        let region = match self.rows {
            Some(rows) if self.length() > 0 => {
                let first = rows.place(self.region.offset());
                let last = rows.place(self.region.end() - 1);
                Region::linear(first, last + 1 - first).unwrap_or(self.region)
            }
            _ => self.region,
        };
        // Memory that exists ends below the end of the address space.
        let offset = region.offset().wrapping_add(self.base.addr() as u64);
        region.at(offset).unwrap_or(region)
    }

    // The runs of bytes that hold the packed bytes `from..to`, in order.
    fn segments(&self, from: u64, to: u64) -> impl Iterator<Item = Segment> + use<> {
        let rows = self.rows;
        self.region.segments(from, to).flat_map(move |run| {
            let whole = rows.is_none().then_some(run);
            let split = rows.map(|rows| rows.split(run));
            whole.into_iter().chain(split.into_iter().flatten())
        })
    }

    /// The current bytes, packed; for a payload inside of a command.
    #[must_use]
    pub fn copy_out(&self) -> Vec<u8> {
        let mut packed = Vec::new();
        self.append_to(&mut packed);
        packed
    }

    /// Appends the current bytes, packed; for a payload inside of a command.
    pub fn append_to(&self, out: &mut Vec<u8>) {
        self.gather_behind(0, self.length(), out);
    }

    /// Writes packed bytes to the region; for a payload inside of a completion. Returns false and changes
    /// nothing if the lengths differ.
    #[must_use]
    pub fn copy_in(&self, packed: &[u8]) -> bool {
        let fits = packed.len() as u64 == self.length();
        if fits {
            self.scatter(0, packed);
        }
        fits
    }

    /// The packed bytes `from..from + length` of a region without gaps. `None` if they are not inside, or
    /// if there are gaps.
    #[must_use]
    pub fn part(&self, from: u64, length: u64) -> Option<HostRegion> {
        let inside = from.checked_add(length)? <= self.length();
        let region = Region::linear(self.region.offset() + from, length).ok()?;
        // The safety promise for the whole region covers its part.
        (inside && self.is_linear()).then_some(HostRegion {
            base: self.base,
            region,
            rows: None,
            owned: None,
        })
    }

    /// Copies the bytes of another region of the process. Returns false and changes nothing if the
    /// lengths differ.
    #[must_use]
    pub fn copy_from(&self, source: &HostRegion) -> bool {
        if self.length() != source.length() {
            return false;
        }
        let mut sources = source.segments(0, u64::MAX);
        let mut source_run = sources.next();
        for run in self.segments(0, u64::MAX) {
            let mut done = 0;
            while let Some(from) = source_run
                && done < run.length
            {
                let skipped = run.packed + done - from.packed;
                let count = (from.length - skipped).min(run.length - done);
                let read = source.base.wrapping_add((from.offset + skipped) as usize);
                let write = self.base.wrapping_add((run.offset + done) as usize);
                // SAFETY: both ranges are inside of their regions, whose bytes may be accessed (see
                // `new`). `copy` allows overlap.
                unsafe { std::ptr::copy(read, write, count as usize) };
                done += count;
                if skipped + count == from.length {
                    source_run = sources.next();
                }
            }
        }
        true
    }

    /// Sends `header`, followed by the packed bytes `from..from + length`.
    pub(in crate::transport) fn send(
        &self,
        stream: &Stream,
        header: &[u8],
        from: u64,
        length: u64,
        scratch: &mut Scratch,
    ) -> io::Result<()> {
        let Scratch { gathered, pieces } = scratch;
        pieces.push(piece(header.as_ptr().cast_mut(), header.len()));
        if self.has_short_rows() {
            self.gather(from, length, gathered);
            pieces.push(piece(gathered.as_mut_ptr(), gathered.len()));
        } else {
            pieces.extend(self.pieces(from, length));
        }
        // SAFETY: the pieces are slices, or lie within the region, which is readable (`HostRegion::new`).
        let sent = unsafe { stream.send_pieces(pieces) };
        pieces.clear();
        sent
    }

    /// Receives the packed bytes `from..from + length`.
    pub(in crate::transport) fn receive(
        &self,
        stream: &Stream,
        from: u64,
        length: u64,
        scratch: &mut Scratch,
    ) -> io::Result<()> {
        let Scratch { gathered, pieces } = scratch;
        let has_short_rows = self.has_short_rows();
        if has_short_rows {
            gathered.clear();
            gathered.resize(length as usize, 0);
            pieces.push(piece(gathered.as_mut_ptr(), gathered.len()));
        } else {
            pieces.extend(self.pieces(from, length));
        }
        // SAFETY: as above, writable instead of readable.
        let received = unsafe { stream.receive_pieces(pieces, self.caching()) };
        pieces.clear();
        if has_short_rows && received.is_ok() {
            self.scatter(from, gathered);
        }
        received
    }

    /// As [`HostRegion::receive`]. Returns the digest of these bytes as a part. They cross the processor's first cache on
    /// their way, so digesting them needs no further access to memory.
    pub(in crate::transport) fn receive_digested(
        &self,
        stream: &Stream,
        from: u64,
        length: u64,
        scratch: &mut Scratch,
    ) -> io::Result<u128> {
        let Scratch { gathered, pieces } = scratch;
        let mut digest = PartDigest::of(from);
        for at in (from..from + length).step_by(DIGESTED as usize) {
            let count = DIGESTED.min(from + length - at) as usize;
            if gathered.len() < count {
                gathered.resize(count, 0);
            }
            let bytes = &mut gathered[..count];
            pieces.push(piece(bytes.as_mut_ptr(), count));
            // SAFETY: the piece is a slice.
            let received = unsafe { stream.receive_pieces(pieces, Caching::Keep) };
            pieces.clear();
            received?;
            digest.add(bytes);
            self.scatter(at, bytes);
        }
        Ok(digest.end())
    }

    fn caching(&self) -> Caching {
        if self.length() < MANY || self.has_short_rows() {
            Caching::Keep
        } else {
            Caching::Bypass
        }
    }

    fn has_short_rows(&self) -> bool {
        let row = self.rows.map_or(u64::MAX, |rows| rows.length);
        !self.is_linear() && self.region.size()[0].min(row) < SHORT_ROW
    }

    fn pieces(&self, from: u64, length: u64) -> impl Iterator<Item = libc::iovec> {
        let at = |segment: Segment| self.base.wrapping_add(segment.offset as usize);
        self.segments(from, from + length)
            .map(move |segment| piece(at(segment), segment.length as usize))
    }

    fn gather(&self, from: u64, length: u64, into: &mut Vec<u8>) {
        into.clear();
        self.gather_behind(from, length, into);
    }

    fn gather_behind(&self, from: u64, length: u64, into: &mut Vec<u8>) {
        into.reserve(length as usize);
        for segment in self.segments(from, from + length) {
            let count = segment.length as usize;
            // SAFETY: the segment is in the region, which is readable (`HostRegion::new`). The segments
            // of `length` packed bytes fit into the reserved capacity, and the copy initialises them.
            unsafe {
                let source = self.base.add(segment.offset as usize);
                into.as_mut_ptr()
                    .add(into.len())
                    .copy_from_nonoverlapping(source, count);
                into.set_len(into.len() + count);
            }
        }
    }

    fn scatter(&self, from: u64, bytes: &[u8]) {
        let caching = self.caching();
        for segment in self.segments(from, from + bytes.len() as u64) {
            let begin = (segment.packed - from) as usize;
            let row = &bytes[begin..begin + segment.length as usize];
            // SAFETY: the segment is in the region, which is writable (`HostRegion::new`). `row` is a
            // separate buffer of this module.
            unsafe {
                let target = self.base.add(segment.offset as usize);
                copy_run(row.as_ptr(), target, segment.length, caching);
            }
        }
    }
}

// Copies a run of bytes.
//
// # Safety
// As `copy_past_caches`.
unsafe fn copy_run(from: *const u8, to: *mut u8, length: u64, caching: Caching) {
    // SAFETY: the caller guarantees both.
    unsafe {
        match caching {
            Caching::Bypass if length >= SHORT_RUN => copy_past_caches(from, to, length as usize),
            _ => to.copy_from_nonoverlapping(from, length as usize),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rows_with_gaps_are_copied_byte_by_byte(
            length in 1u64..8, count in 1u64..4, slices in 1u64..4, gap in 0u64..4, slice_gap in 0u64..5,
            place: prop::sample::Index, extent: prop::sample::Index,
        ) {
            let total = length * count * slices;
            let from = place.index(total as usize) as u64;
            let many = 1 + extent.index((total - from) as usize) as u64;
            let pitch = length + gap;
            let rows = Rows { length, count, pitch, slice_pitch: pitch * count + slice_gap };
            let mut memory: Vec<u8> = (0..rows.slice_pitch * slices).map(|i| i as u8).collect();
            let region = Region::linear(from, many).unwrap();
            // SAFETY: the memory holds all rows, and outlives the region.
            let host = unsafe { HostRegion::in_rows(memory.as_mut_ptr(), region, rows) };
            let expected: Vec<u8> = (from..from + many)
                .map(|byte| {
                    let (row, within) = (byte / length, byte % length);
                    (row / count * rows.slice_pitch + row % count * pitch + within) as u8
                })
                .collect();
            prop_assert_eq!(host.copy_out(), &expected[..]);
            let mut packed = vec![0u8; many as usize];
            let whole = Region::linear(0, many).unwrap();
            // SAFETY: as many bytes as the vector has.
            let to = unsafe { HostRegion::new(packed.as_mut_ptr(), whole) };
            prop_assert!(to.copy_from(&host));
            prop_assert_eq!(&packed, &expected);
            packed.reverse();
            prop_assert!(host.copy_from(&to) && host.copy_out() == packed);
            let first = memory.as_ptr().addr() as u64;
            let addresses = host.addresses();
            prop_assert!(addresses.offset() >= first && addresses.end() <= first + memory.len() as u64);
        }
    }
}
