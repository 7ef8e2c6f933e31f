//! Moves bytes between a lane's stream and memory that Rust does not own: a driver's mapping or a pinned chunk.
//!
//! Only this file of the module uses raw pointers. It never forms a reference to such memory, because the
//! device, the driver or another lane may access it at the same time. Invariant: a [`Window`]'s memory is
//! valid until its owner gives it back. Owners count the lanes that are inside.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::ptr::copy_nonoverlapping;

use causeway_lane::{Caching, Stream, receive_sealed, send_sealed};
use causeway_proto::region::Region;

/// Shorter rows are gathered in a scratch buffer, to avoid one system call per row.
const LONG_ROW: u64 = 16 << 10;

/// Regions of at least so many bytes bypass the processor's caches: they would be evicted
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
            for (pointer, length) in self.pieces(from, length) {
                receive(stream, pointer, length, self.caching())?;
            }
            return Ok(());
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
        if self.has_long_rows() {
            let mut parts: Vec<libc::iovec> = vec![part(header.as_ptr().cast_mut(), header.len())];
            parts.extend(
                self.pieces(from, length)
                    .map(|(pointer, length)| part(pointer, length)),
            );
            return send(stream, &mut parts);
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

fn part(pointer: *mut u8, length: usize) -> libc::iovec {
    libc::iovec {
        iov_base: pointer.cast(),
        iov_len: length,
    }
}

/// Fills `bytes` from the stream.
///
/// # Errors
/// As [`Window::receive`].
pub(super) fn receive_into(stream: &Stream, bytes: &mut [u8]) -> io::Result<()> {
    receive(stream, bytes.as_mut_ptr(), bytes.len(), Caching::Keep)
}

/// Sends `header`, then `bytes`.
///
/// # Errors
/// The stream's error.
pub(super) fn send_bytes(stream: &Stream, header: &[u8], bytes: &[u8]) -> io::Result<()> {
    let of = |bytes: &[u8]| part(bytes.as_ptr().cast_mut(), bytes.len());
    send(stream, &mut [of(header), of(bytes)])
}

/// Sends as much of the two `parts`, in order, as the stream takes without blocking. Returns
/// the number of bytes sent.
///
/// # Errors
/// The stream's error.
pub(super) fn send_some(stream: &Stream, parts: [&[u8]; 2]) -> io::Result<usize> {
    let socket = match stream {
        Stream::Tcp(socket) => socket,
        // A TLS record leaves whole, or the connection is broken. So the lane's thread sends all of it.
        Stream::Tls(_) => return Ok(0),
        Stream::Shared(shared) => {
            let mut sent = 0;
            for bytes in parts {
                // SAFETY: the slice's memory is as long as its length.
                let some = unsafe { shared.send_some(bytes.as_ptr(), bytes.len())? };
                sent += some;
                if some < bytes.len() {
                    break;
                }
            }
            return Ok(sent);
        }
        Stream::Buffer(buffer) => {
            for bytes in parts {
                // SAFETY: the slice's memory is as long as its length.
                unsafe { buffer.put(bytes.as_ptr(), bytes.len()) };
            }
            return Ok(parts.iter().map(|bytes| bytes.len()).sum());
        }
    };
    let mut parts = parts.map(|bytes| part(bytes.as_ptr().cast_mut(), bytes.len()));
    loop {
        match send_once(socket, &mut parts, libc::MSG_DONTWAIT) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
            sent => return sent,
        }
    }
}

// Makes one system call; returns how many bytes it took. Callers pass memory that is valid through a
// window, slice or header.
fn send_once(socket: &TcpStream, parts: &mut [libc::iovec], flags: i32) -> io::Result<usize> {
    const AT_ONCE: usize = 1024; // IOV_MAX
    // SAFETY: all zeros is an empty message.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = parts.len().min(AT_ONCE) as _;
    let flags = flags | libc::MSG_NOSIGNAL;
    // SAFETY: every part is readable memory of its length (callers).
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

// Callers pass memory that a window vouches for.
fn receive(
    stream: &Stream,
    mut to: *mut u8,
    mut length: usize,
    caching: Caching,
) -> io::Result<()> {
    let socket = match stream {
        Stream::Tcp(socket) => socket,
        // SAFETY: `to` has room for `length` bytes (callers).
        Stream::Tls(stream) => return unsafe { receive_sealed(stream, to, length) },
        // SAFETY: as above.
        Stream::Shared(shared) => return unsafe { shared.receive(to, length, caching) },
        // SAFETY: as above.
        Stream::Buffer(buffer) => return unsafe { buffer.take(to, length) },
    };
    while length > 0 {
        // SAFETY: `to` has room for `length` bytes (callers); the kernel writes no more.
        let got = unsafe { libc::recv(socket.as_raw_fd(), to.cast(), length, libc::MSG_WAITALL) };
        match usize::try_from(got) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(got) => {
                // SAFETY: `got` is at most `length`.
                to = unsafe { to.add(got) };
                length -= got;
            }
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            },
        }
    }
    Ok(())
}

// Callers pass memory that a window or a header vouches for.
fn send(stream: &Stream, parts: &mut [libc::iovec]) -> io::Result<()> {
    let socket = match stream {
        Stream::Tcp(socket) => socket,
        // SAFETY: every part is readable memory of its length (callers).
        Stream::Tls(stream) => return unsafe { send_sealed(stream, parts) },
        Stream::Shared(shared) => {
            return parts.iter().try_for_each(|part| {
                // SAFETY: every part is readable memory of its length (callers).
                unsafe { shared.send(part.iov_base.cast(), part.iov_len) }
            });
        }
        Stream::Buffer(buffer) => {
            for part in parts {
                // SAFETY: as above.
                unsafe { buffer.put(part.iov_base.cast(), part.iov_len) };
            }
            return Ok(());
        }
    };
    let mut first = 0;
    while first < parts.len() {
        let mut sent = match send_once(socket, &mut parts[first..], 0) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            sent => sent?,
        };
        // The kernel may take only a part of the list: skip what was sent and cut the part
        // that was not sent whole.
        while first < parts.len() && sent >= parts[first].iov_len {
            sent -= parts[first].iov_len;
            first += 1;
        }
        if sent > 0 {
            let cut = &mut parts[first];
            // SAFETY: `sent` is less than the part's length.
            cut.iov_base = unsafe { cut.iov_base.cast::<u8>().add(sent) }.cast();
            cut.iov_len -= sent;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

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
