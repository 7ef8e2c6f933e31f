//! A stream's bytes in memory of our own: what is put is what can be taken.
//!
//! Chunks that are compressed come from here, and go here when they are unpacked, so that whoever moves bytes
//! between a stream and memory need not know of it. Invariant: nothing here waits; an end comes where the
//! bytes do.
#![allow(unsafe_code)]

use std::io;
use std::ptr::copy_nonoverlapping;

use parking_lot::Mutex;

/// The bytes.
#[derive(Debug, Default)]
pub struct Buffer(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    bytes: Vec<u8>,
    taken: usize,
}

impl Buffer {
    /// Has `change` make the bytes others, of which none is taken then.
    pub(crate) fn renew<T>(&self, change: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let mut held = self.0.lock();
        held.taken = 0;
        change(&mut held.bytes)
    }

    /// Appends `length` bytes.
    ///
    /// # Safety
    /// `from` is readable for `length` bytes. Others may write there at the same time.
    pub unsafe fn put(&self, from: *const u8, length: usize) {
        let mut held = self.0.lock();
        held.bytes.reserve(length);
        let end = held.bytes.len();
        // SAFETY: there is room for `length` bytes behind the end, which the copy initialises; the caller
        // vouches for `from`, which is not ours.
        unsafe {
            copy_nonoverlapping(from, held.bytes.as_mut_ptr().add(end), length);
            held.bytes.set_len(end + length);
        }
    }

    /// Takes at most `length` bytes; says how many, 0 at the end.
    ///
    /// # Safety
    /// `to` is writable for `length` bytes.
    pub unsafe fn take_some(&self, to: *mut u8, length: usize) -> usize {
        let mut held = self.0.lock();
        let rest = &held.bytes[held.taken..];
        let count = rest.len().min(length);
        // SAFETY: both are at least `count` bytes long, and `to` is not ours.
        unsafe { copy_nonoverlapping(rest.as_ptr(), to, count) };
        held.taken += count;
        count
    }

    /// Takes `length` bytes.
    ///
    /// # Errors
    /// `UnexpectedEof` where there are fewer.
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
