//! Raw memory over a stream: lists of pieces, each an address and a length.
//!
//! Nothing here makes a reference to that memory, because others may access it at the same time.
#![allow(unsafe_code)]

use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;

use libc::iovec;

use crate::sealed::{receive_sealed, receive_some_sealed, send_sealed};
use crate::{Caching, Stream};

/// Maximum number of pieces in one system call (`IOV_MAX`).
const PIECES: usize = 1024;

/// Describes `length` bytes of memory.
#[must_use]
pub fn piece(base: *mut u8, length: usize) -> iovec {
    iovec {
        iov_base: base.cast(),
        iov_len: length,
    }
}

impl Stream {
    /// Sends all pieces, in order. Their descriptions are changed meanwhile.
    ///
    /// # Errors
    /// Errors of the stream.
    ///
    /// # Safety
    /// Every piece must be readable. Others may write there at the same time.
    pub unsafe fn send_pieces(&self, pieces: &mut [iovec]) -> io::Result<()> {
        match self {
            Stream::Tcp(socket) => repeat(pieces, |rest| send_once(socket, rest, 0)),
            // SAFETY: the pieces are readable (caller).
            Stream::Tls(stream) => unsafe { send_sealed(stream, pieces) },
            Stream::Shared(shared) => pieces.iter().try_for_each(|piece| {
                // SAFETY: as above.
                unsafe { shared.send(piece.iov_base.cast(), piece.iov_len) }
            }),
            Stream::Buffer(buffer) => {
                for piece in pieces {
                    // SAFETY: as above.
                    unsafe { buffer.put(piece.iov_base.cast(), piece.iov_len) };
                }
                Ok(())
            }
            Stream::Resumed(resumed) => {
                // SAFETY: as above.
                resumed.send(|connection| unsafe { connection.send_pieces(pieces) })
            }
        }
    }

    /// Sends as much of the pieces, in order, as the stream takes without waiting. Returns the number of
    /// bytes.
    ///
    /// # Errors
    /// As [`Stream::send_pieces`].
    ///
    /// # Safety
    /// As [`Stream::send_pieces`].
    pub unsafe fn send_some(&self, pieces: &mut [iovec]) -> io::Result<usize> {
        let mut sent = 0;
        match self {
            Stream::Tcp(socket) => loop {
                match send_once(socket, pieces, libc::MSG_DONTWAIT) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    sent => return sent,
                }
            },
            // A TLS record leaves whole, or the connection is broken.
            Stream::Tls(_) => {}
            Stream::Shared(shared) => {
                for piece in pieces {
                    // SAFETY: the pieces are readable (caller).
                    let some = unsafe { shared.send_some(piece.iov_base.cast(), piece.iov_len)? };
                    sent += some;
                    if some < piece.iov_len {
                        break;
                    }
                }
            }
            Stream::Buffer(_) => {
                sent = pieces.iter().map(|piece| piece.iov_len).sum();
                // SAFETY: as above.
                unsafe { self.send_pieces(pieces)? };
            }
            Stream::Resumed(resumed) => {
                // SAFETY: as above.
                return resumed.send(|connection| unsafe { connection.send_some(pieces) });
            }
        }
        Ok(sent)
    }

    /// Sends as many of the bytes as the stream takes without waiting. Returns how many.
    ///
    /// # Errors
    /// As [`Stream::send_pieces`].
    pub fn write_some(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut whole = [piece(bytes.as_ptr().cast_mut(), bytes.len())];
        // SAFETY: the slice is readable memory of its length.
        unsafe { self.send_some(&mut whole) }
    }

    /// Fills all pieces, in order. Their descriptions are changed meanwhile.
    ///
    /// # Errors
    /// Errors of the stream; `UnexpectedEof` if the stream ends before.
    ///
    /// # Safety
    /// Every piece must be writable. Others may access it at the same time.
    pub unsafe fn receive_pieces(&self, pieces: &mut [iovec], caching: Caching) -> io::Result<()> {
        if let Stream::Tcp(socket) = self {
            return repeat(pieces, |rest| receive_once(socket, rest));
        }
        if let Stream::Resumed(resumed) = self {
            return repeat(pieces, |rest| {
                // SAFETY: the pieces are writable (caller).
                resumed.receive(|connection| unsafe { connection.receive_some(rest) })
            });
        }
        pieces.iter().try_for_each(|piece| {
            let (to, length) = (piece.iov_base.cast(), piece.iov_len);
            // SAFETY: the pieces are writable (caller).
            unsafe {
                match self {
                    Stream::Tcp(_) | Stream::Resumed(_) => Ok(()),
                    Stream::Tls(stream) => receive_sealed(stream, to, length),
                    Stream::Shared(shared) => shared.receive(to, length, caching),
                    Stream::Buffer(buffer) => buffer.take(to, length),
                }
            }
        })
    }
}

impl Stream {
    // Receives at least one byte into the pieces, of which the first is not empty. Returns 0 at the end of the
    // connection.
    //
    // # Safety
    // As `receive_pieces`.
    unsafe fn receive_some(&self, pieces: &mut [iovec]) -> io::Result<usize> {
        match (self, pieces.first()) {
            (Stream::Tcp(socket), _) => receive_once(socket, pieces),
            (Stream::Tls(stream), Some(first)) => {
                let (to, length) = (first.iov_base.cast(), first.iov_len);
                // SAFETY: the piece is writable (caller).
                unsafe { receive_some_sealed(stream, to, length) }
            }
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

// Calls `some` with what is left of the pieces, until nothing is left.
fn repeat(
    mut pieces: &mut [iovec],
    some: impl Fn(&mut [iovec]) -> io::Result<usize>,
) -> io::Result<()> {
    while let Some(first) = pieces.first() {
        // The result for an empty piece could be 0, which would mean the end of the stream.
        if first.iov_len == 0 {
            pieces = &mut pieces[1..];
            continue;
        }
        let mut done = match some(pieces) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(done) => done,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        for piece in pieces.iter_mut() {
            let step = done.min(piece.iov_len);
            piece.iov_base = piece.iov_base.cast::<u8>().wrapping_add(step).cast();
            piece.iov_len -= step;
            done -= step;
            if done == 0 {
                break;
            }
        }
    }
    Ok(())
}

fn message(pieces: &mut [iovec]) -> libc::msghdr {
    // SAFETY: a msghdr is plain data, for which zero is valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = pieces.as_mut_ptr();
    message.msg_iovlen = pieces.len().min(PIECES) as _;
    message
}

// Callers pass readable pieces. The kernel returns EFAULT for memory that is not.
fn send_once(socket: &TcpStream, pieces: &mut [iovec], flags: i32) -> io::Result<usize> {
    let message = message(pieces);
    let flags = flags | libc::MSG_NOSIGNAL;
    // SAFETY: the pieces are readable memory of their lengths (callers).
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

// Callers pass writable pieces.
fn receive_once(socket: &TcpStream, pieces: &mut [iovec]) -> io::Result<usize> {
    let mut message = message(pieces);
    // SAFETY: the pieces are writable memory of their lengths (callers).
    let got = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_WAITALL) };
    usize::try_from(got).map_err(|_| io::Error::last_os_error())
}
