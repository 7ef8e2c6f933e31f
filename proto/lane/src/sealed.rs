//! Raw memory over a stream with TLS. TLS must copy the bytes anyway, so these functions copy them from
//! and to raw pointers.
#![allow(unsafe_code)]

use std::io;

use causeway_security::TlsStream;

/// Sends all parts, one after the other.
///
/// # Errors
/// Errors of the stream.
///
/// # Safety
/// Every part must be readable for its length. Others may write there at the same time.
pub(crate) unsafe fn send_sealed(stream: &TlsStream, parts: &[libc::iovec]) -> io::Result<()> {
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
            // SAFETY: `now` is no longer than the rest of the part, which is readable (caller). It
            // belongs to the stream, so the two do not overlap.
            unsafe { from.copy_to_nonoverlapping(now.as_mut_ptr(), now.len()) };
            part.iov_base = from.wrapping_add(now.len()).cast();
            part.iov_len -= now.len();
            into = later;
        }
    })
}

/// Receives exactly `length` bytes.
///
/// # Errors
/// Errors of the stream; `UnexpectedEof` when the stream ends before.
///
/// # Safety
/// `to` must be writable for `length` bytes. Others may read there at the same time.
pub(crate) unsafe fn receive_sealed(
    stream: &TlsStream,
    to: *mut u8,
    length: usize,
) -> io::Result<()> {
    // SAFETY: as the caller promises.
    unsafe { receive_counted(stream, to, length) }.1
}

/// Receives at most `length` bytes, and fewer only if the stream ends or breaks. Returns how many.
///
/// # Errors
/// Errors of the stream before the first byte.
///
/// # Safety
/// As [`receive_sealed`].
pub(crate) unsafe fn receive_some_sealed(
    stream: &TlsStream,
    to: *mut u8,
    length: usize,
) -> io::Result<usize> {
    // SAFETY: as the caller promises.
    match unsafe { receive_counted(stream, to, length) } {
        (0, Err(error)) if error.kind() != io::ErrorKind::UnexpectedEof => Err(error),
        (count, _) => Ok(count),
    }
}

// Returns the number of bytes that were received, also if there was an error.
unsafe fn receive_counted(
    stream: &TlsStream,
    to: *mut u8,
    length: usize,
) -> (usize, io::Result<()>) {
    let (mut to, mut count) = (to, 0);
    let received = stream.receive_with(length, |piece| {
        // SAFETY: the pieces add up to `length` bytes, for which there is room (caller). They belong to
        // the stream, so the two do not overlap.
        unsafe { to.copy_from_nonoverlapping(piece.as_ptr(), piece.len()) };
        to = to.wrapping_add(piece.len());
        count += piece.len();
    });
    (count, received)
}
