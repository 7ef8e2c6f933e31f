//! Raw memory over a stream with TLS: copied where the system would have read or written it.
#![allow(unsafe_code)]

use std::io;

use causeway_security::TlsStream;

/// Sends all parts, one after the other.
///
/// # Errors
/// The stream's.
///
/// # Safety
/// Every part is memory of its length that may be read, though others may write it.
pub unsafe fn send_sealed(stream: &TlsStream, parts: &[libc::iovec]) -> io::Result<()> {
    let length = parts.iter().map(|part| part.iov_len).sum();
    let mut rest = parts.iter().copied();
    let mut part = libc::iovec {
        iov_base: std::ptr::null_mut(),
        iov_len: 0,
    };
    stream.send_filled(length, |mut into| {
        while !into.is_empty() {
            while part.iov_len == 0 {
                match rest.next() {
                    Some(next) => part = next,
                    None => return,
                }
            }
            let (now, later) = into.split_at_mut(part.iov_len.min(into.len()));
            let from = part.iov_base.cast::<u8>();
            // SAFETY: `now` is no longer than what is left of the part, which may be read (caller), and is
            // memory of the stream's own.
            unsafe { from.copy_to_nonoverlapping(now.as_mut_ptr(), now.len()) };
            part.iov_base = from.wrapping_add(now.len()).cast();
            part.iov_len -= now.len();
            into = later;
        }
    })
}

/// Receives exactly so many bytes.
///
/// # Errors
/// The stream's, `UnexpectedEof` when it ends before.
///
/// # Safety
/// `to` is memory of that length that may be written, though others may look at it.
pub unsafe fn receive_sealed(stream: &TlsStream, to: *mut u8, length: usize) -> io::Result<()> {
    let mut to = to;
    stream.receive_with(length, |piece| {
        // SAFETY: the pieces are `length` bytes in all, for which there is room (caller), and lie in memory of
        // the stream's own.
        unsafe { to.copy_from_nonoverlapping(piece.as_ptr(), piece.len()) };
        to = to.wrapping_add(piece.len());
    })
}
