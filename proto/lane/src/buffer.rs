//! A stream in memory of this process: bytes that were put can be taken.
//!
//! Compressed chunks are made from such a stream and unpacked into one. So code that moves bytes between
//! a stream and memory need not know about compression. Invariant: nothing here waits. The stream ends
//! where its bytes end.
#![allow(unsafe_code)]

use std::io;
use std::ptr::copy_nonoverlapping;

use parking_lot::Mutex;

/// The stream's bytes, and how many of them were taken.
#[derive(Debug, Default)]
pub struct Buffer(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    bytes: Vec<u8>,
    taken: usize,
}

impl Buffer {
    /// Lets `change` replace the bytes. None of the new bytes counts as taken.
    pub(crate) fn renew<T>(&self, change: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let mut held = self.0.lock();
        held.taken = 0;
        change(&mut held.bytes)
    }

    /// The bytes.
    pub(crate) fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0.get_mut().bytes
    }

    /// Appends `length` bytes.
    ///
    /// # Safety
    /// `from` must be readable for `length` bytes. Others may write there at the same time.
    pub unsafe fn put(&self, from: *const u8, length: usize) {
        let mut held = self.0.lock();
        held.bytes.reserve(length);
        let end = held.bytes.len();
        // SAFETY: there is room for `length` bytes after the end, and the copy initialises them. The
        // caller guarantees `from`, which does not overlap this buffer.
        unsafe {
            copy_nonoverlapping(from, held.bytes.as_mut_ptr().add(end), length);
            held.bytes.set_len(end + length);
        }
    }

    /// Takes at most `length` bytes. Returns how many; 0 at the end.
    ///
    /// # Safety
    /// `to` must be writable for `length` bytes.
    pub unsafe fn take_some(&self, to: *mut u8, length: usize) -> usize {
        let mut held = self.0.lock();
        let rest = &held.bytes[held.taken..];
        let count = rest.len().min(length);
        // SAFETY: both are at least `count` bytes long, and `to` does not overlap this buffer.
        unsafe { copy_nonoverlapping(rest.as_ptr(), to, count) };
        held.taken += count;
        count
    }

    /// Takes `length` bytes.
    ///
    /// # Errors
    /// `UnexpectedEof` if there are fewer.
    ///
    /// # Safety
    /// As [`Buffer::take_some`].
    pub unsafe fn take(&self, to: *mut u8, length: usize) -> io::Result<()> {
        // SAFETY: as the caller promises.
        let count = unsafe { self.take_some(to, length) };
        if count == length {
            Ok(())
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }
}
