//! Moves bytes between a lane's stream and memory that Rust does not own: a driver's mapping or a pinned chunk.
//!
//! Only this file of the module uses raw pointers. It never forms a reference to such memory, because the
//! device, the driver or another lane may access it at the same time. Invariant: a [`Window`]'s memory is
//! valid until its owner gives it back. Owners count the lanes that are inside.

use std::io::{self, Read, Write};
use std::ptr::copy_nonoverlapping;

use causeway_lane::{Caching, Stream, piece};
use causeway_proto::region::Region;

/// Shorter rows are gathered in a scratch buffer, to avoid one system call per row.
const LONG_ROW: u64 = 16 << 10;

/// Regions of at least this size bypass the processor's caches: they would be evicted
/// before their next use.
const MANY: u64 = 4 << 20;

/// Memory that holds the bytes of a region, including its gaps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    // Address of the region's first byte.
    first: *mut u8,
    region: Region,
}

// SAFETY: a window is only an address. Its users keep the module's invariant on every thread.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

impl Window {
    /// # Safety
    /// `first` is the address of the region's first byte, in memory that holds the whole region until
    /// the owner of the window gives it back.
    pub(super) unsafe fn new(first: *mut u8, region: Region) -> Window {
        Window { first, region }
    }

    /// The address of the region's first byte.
    pub(super) fn first(&self) -> *mut u8 {
        self.first
    }

    fn pieces(&self, from: u64, length: u64) -> impl Iterator<Item = (*mut u8, usize)> + use<> {
        let (first, start) = (self.first, self.region.offset());
        self.region.segments(from, from + length).map(move |s| {
            // SAFETY: the segment lies within the region, which lies within the memory.
            let pointer = unsafe { first.add((s.offset - start) as usize) };
            (pointer, s.length as usize)
        })
    }

    fn has_long_rows(&self) -> bool {
        self.region.is_linear() || self.region.size()[0] >= LONG_ROW
    }

    fn caching(&self) -> Caching {
        if self.region.packed_length() < MANY {
            Caching::Keep
        } else {
            Caching::Bypass
        }
    }

    /// Receives `length` packed bytes into the window, from packed offset `from` on.
    ///
    /// # Errors
    /// The stream's error; `UnexpectedEof` if the stream ends within the bytes.
    pub(super) fn receive(
        &self,
        mut stream: &Stream,
        from: u64,
        length: u64,
        scratch: &mut Vec<u8>,
    ) -> io::Result<()> {
        if self.has_long_rows() {
            let pieces = self.pieces(from, length);
            let mut pieces: Vec<_> = pieces.map(|(at, length)| piece(at, length)).collect();
            // SAFETY: the pieces lie within the window's memory.
            return unsafe { stream.receive_pieces(&mut pieces, self.caching()) };
        }
        scratch.resize(length as usize, 0);
        stream.read_exact(scratch)?;
        let mut taken = 0;
        for (pointer, length) in self.pieces(from, length) {
            // SAFETY: the pieces together are as long as `scratch`, and lie in other memory.
            unsafe { copy_nonoverlapping(scratch.as_ptr().add(taken), pointer, length) };
            taken += length;
        }
        Ok(())
    }

    /// Sends `header`, then `length` packed bytes from packed offset `from` on.
    ///
    /// # Errors
    /// The stream's error.
    pub(super) fn send(
        &self,
        mut stream: &Stream,
        header: &[u8],
        from: u64,
        length: u64,
        scratch: &mut Vec<u8>,
    ) -> io::Result<()> {
        // Long rows are sent from their place. Short ones are gathered first, so that they need no part
        // each.
        if self.has_long_rows() {
            let mut pieces = vec![readable(header)];
            pieces.extend(
                self.pieces(from, length)
                    .map(|(at, length)| piece(at, length)),
            );
            // SAFETY: the header is a slice, and the other pieces lie within the window's memory.
            return unsafe { stream.send_pieces(&mut pieces) };
        }
        scratch.clear();
        scratch.extend_from_slice(header);
        scratch.resize(header.len() + length as usize, 0);
        let mut put = header.len();
        for (pointer, length) in self.pieces(from, length) {
            // SAFETY: `scratch` has room for all pieces, which lie in other memory.
            unsafe { copy_nonoverlapping(pointer, scratch.as_mut_ptr().add(put), length) };
            put += length;
        }
        stream.write_all(scratch)
    }
}

impl Window {
    /// Copies packed bytes from packed offset `from` on.
    pub(super) fn copy_out(&self, from: u64, to: &mut [u8]) {
        let mut done = 0;
        for (pointer, length) in self.pieces(from, to.len() as u64) {
            let part = &mut to[done..done + length];
            // SAFETY: the piece lies within the window's memory, and the part is as long and elsewhere.
            unsafe { copy_nonoverlapping(pointer.cast_const(), part.as_mut_ptr(), length) };
            done += length;
        }
    }
}

/// Fills `bytes` from the stream.
///
/// # Errors
/// As [`Window::receive`].
pub(super) fn receive_into(stream: &Stream, bytes: &mut [u8]) -> io::Result<()> {
    let mut whole = [piece(bytes.as_mut_ptr(), bytes.len())];
    // SAFETY: the slice is writable memory of its length.
    unsafe { stream.receive_pieces(&mut whole, Caching::Keep) }
}

/// Sends `header`, then `bytes`.
///
/// # Errors
/// The stream's error.
pub(super) fn send_bytes(stream: &Stream, header: &[u8], bytes: &[u8]) -> io::Result<()> {
    // SAFETY: the slices are readable memory of their lengths.
    unsafe { stream.send_pieces(&mut [header, bytes].map(readable)) }
}

/// Sends as much of the two `parts`, in order, as the stream takes without waiting. Returns
/// the number of bytes sent.
///
/// # Errors
/// The stream's error.
pub(super) fn send_some(stream: &Stream, parts: [&[u8]; 2]) -> io::Result<usize> {
    // SAFETY: the slices are readable memory of their lengths.
    unsafe { stream.send_some(&mut parts.map(readable)) }
}

// For sending only.
fn readable(bytes: &[u8]) -> libc::iovec {
    piece(bytes.as_ptr().cast_mut(), bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    fn pair() -> (Stream, Stream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (a.into(), listener.accept().unwrap().0.into())
    }

    fn window(memory: &mut [u8], region: Region) -> Window {
        assert!(region.end() <= memory.len() as u64);
        // SAFETY: the region lies within `memory`, which outlives the window in these tests.
        unsafe { Window::new(memory.as_mut_ptr().add(region.offset() as usize), region) }
    }

    #[test]
    fn a_stretch_of_any_region_goes_over_and_lands_where_it_belongs() {
        let rows = |row: u64| Region::rect(3, [row, 5, 2], row + 7, (row + 7) * 6).unwrap();
        for region in [Region::linear(5, 300_000).unwrap(), rows(10), rows(20_000)] {
            let (a, b) = pair();
            let mut from: Vec<u8> = (0..region.end()).map(|i| i as u8).collect();
            let mut to = vec![0xee; from.len()];
            let (offset, length) = (7, region.packed_length() - 9);
            let (source, sink) = (window(&mut from, region), window(&mut to, region));
            let header = [0u8; 32];
            let sender = std::thread::spawn(move || {
                source
                    .send(&a, &header, offset, length, &mut Vec::new())
                    .unwrap();
            });
            let mut got = [1; 32];
            io::Read::read_exact(&mut &b, &mut got).unwrap();
            assert_eq!(got, header);
            sink.receive(&b, offset, length, &mut Vec::new()).unwrap();
            sender.join().unwrap();
            let mut expected = vec![0xee; from.len()];
            for s in region.segments(offset, offset + length) {
                let range = s.offset as usize..(s.offset + s.length) as usize;
                expected[range.clone()].copy_from_slice(&from[range]);
            }
            assert!(to == expected);
        }
    }

    #[test]
    fn a_stream_that_ends_early_is_an_error() {
        let (a, b) = pair();
        drop(a);
        let mut memory = [0; 8];
        let region = Region::linear(0, 8).unwrap();
        let error = window(&mut memory, region)
            .receive(&b, 0, 8, &mut Vec::new())
            .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
