//! Answers of `clGet*Info`: the size rules that all of these queries share.
//!
//! Every query ends in exactly one `give*` call. That call returns the [`Answered`] that the entry point
//! must return, so no query can forget to answer. The specification has the same rules for all:
//! `CL_INVALID_VALUE` when the pointer is not NULL and the size is too small. The needed size is reported
//! in either case.

use std::ffi::CStr;

use cl_headers::types::*;

use crate::error::{ClResult, fail, require};

/// Proof that a query was answered.
#[derive(Debug)]
pub(crate) struct Answered(());

/// The place for an answer, as the application gave it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Info {
    size: size_t,
    value: *mut c_void,
    size_ret: *mut size_t,
}

/// C values that may be copied to the application byte by byte.
///
/// # Safety
/// The type has no padding and no invariant.
pub(crate) unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($t:ty),*) => {$(
        // SAFETY: an integer or a pointer.
        unsafe impl Plain for $t {}
    )*};
}
plain!(u8, u16, u32, i32, u64, i64, usize, isize);

// SAFETY: a pointer has no padding, and any bits are a valid raw pointer.
unsafe impl<T> Plain for *mut T {}
// SAFETY: elements without padding lie side by side.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

impl Info {
    /// Takes the three arguments of an info function.
    ///
    /// # Safety
    /// `value` is NULL or has room for `size` bytes. `size_ret` is NULL or writable.
    pub(crate) unsafe fn from_c(size: size_t, value: *mut c_void, size_ret: *mut size_t) -> Info {
        Info {
            size,
            value,
            size_ret,
        }
    }

    /// # Errors
    /// `CL_INVALID_VALUE` when the bytes do not fit.
    pub(crate) fn give_bytes(self, bytes: &[u8]) -> ClResult<Answered> {
        // This comes first: the specification reports the needed size even when the answer does not fit.
        let answered = self.give_size(bytes.len());
        if !self.value.is_null() {
            // clGet*Info: CL_INVALID_VALUE when param_value is not NULL and param_value_size is smaller
            // than the answer.
            require(self.size >= bytes.len(), CL_INVALID_VALUE)?;
            // SAFETY: `from_c`'s contract gives room for `size` bytes, and the length fits into it.
            unsafe {
                self.value
                    .cast::<u8>()
                    .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
            };
        }
        answered
    }

    /// Whether an answer of this size is written, rather than only its size.
    pub(crate) fn has_room(self, size: usize) -> bool {
        !self.value.is_null() && self.size >= size
    }

    /// Reports a size only. The caller writes the contents elsewhere (program binaries).
    pub(crate) fn give_size(self, size: usize) -> ClResult<Answered> {
        if !self.size_ret.is_null() {
            // SAFETY: by `from_c`'s contract a pointer other than NULL is writable.
            unsafe { self.size_ret.write(size) };
        }
        Ok(Answered(()))
    }

    /// # Errors
    /// As [`Info::give_bytes`].
    pub(crate) fn give<T: Plain>(self, value: T) -> ClResult<Answered> {
        self.give_slice(&[value])
    }

    /// Answers with an array; an empty one has size 0.
    ///
    /// # Errors
    /// As [`Info::give_bytes`].
    pub(crate) fn give_slice<T: Plain>(self, values: &[T]) -> ClResult<Answered> {
        // SAFETY: `Plain` types are initialised bytes throughout.
        let bytes = unsafe {
            std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), std::mem::size_of_val(values))
        };
        self.give_bytes(bytes)
    }

    /// # Errors
    /// As [`Info::give_bytes`].
    pub(crate) fn give_bool(self, value: bool) -> ClResult<Answered> {
        self.give(cl_bool::from(value))
    }

    /// Answers with a string and its NUL.
    ///
    /// # Errors
    /// As [`Info::give_bytes`].
    pub(crate) fn give_str(self, text: &str) -> ClResult<Answered> {
        self.give_text(text.as_bytes())
    }

    /// Answers with a text of any encoding, up to its first NUL, and a NUL.
    ///
    /// # Errors
    /// As [`Info::give_bytes`].
    pub(crate) fn give_text(self, text: &[u8]) -> ClResult<Answered> {
        let mut bytes = Vec::with_capacity(text.len() + 1);
        bytes.extend(text.iter().take_while(|&&byte| byte != 0));
        bytes.push(0);
        self.give_bytes(&bytes)
    }

    /// The pointer and the size, for an answer that is written through pointers inside the buffer.
    pub(crate) fn room(self) -> (*mut c_void, size_t) {
        (self.value, self.size)
    }
}

/// Reads a NUL-terminated string argument.
///
/// # Errors
/// `code` for NULL or text that is not UTF-8.
///
/// # Safety
/// `text` is NULL or a C string.
pub(crate) unsafe fn c_str<'a>(text: *const c_char, code: cl_int) -> ClResult<&'a str> {
    // SAFETY: the caller upholds this function's contract.
    let bytes = unsafe { c_bytes(text, code)? };
    // No rule of the specification covers text that is not UTF-8. It gets the code for a wrong argument.
    std::str::from_utf8(bytes).or(fail(code))
}

/// Reads a NUL-terminated argument of any encoding, without its NUL.
///
/// # Errors
/// `code` for NULL.
///
/// # Safety
/// As [`c_str`].
pub(crate) unsafe fn c_bytes<'a>(text: *const c_char, code: cl_int) -> ClResult<&'a [u8]> {
    // The caller passes the code that its function has for a string that is NULL.
    if text.is_null() {
        return fail(code);
    }
    // SAFETY: the caller upholds this function's contract.
    Ok(unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// Reads an array argument. Returns an empty slice for NULL, for a count of 0, and for a count that no
/// memory can hold.
///
/// # Safety
/// `values` is NULL or points to `count` readable elements that stay valid for `'a`.
pub(crate) unsafe fn list<'a, T>(values: *const T, count: usize) -> &'a [T] {
    let possible = count
        .checked_mul(size_of::<T>())
        .is_some_and(|bytes| isize::try_from(bytes).is_ok());
    if values.is_null() || !possible {
        return &[];
    }
    // SAFETY: the caller upholds this function's contract.
    unsafe { std::slice::from_raw_parts(values, count) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask<R>(size: usize, body: impl FnOnce(Info) -> R) -> (R, Vec<u8>, usize) {
        let (mut room, mut needed) = (vec![0xee; size.max(1)], usize::MAX);
        // SAFETY: both pointers lead to live local memory of the size given.
        let info = unsafe { Info::from_c(size, room.as_mut_ptr().cast(), &raw mut needed) };
        (body(info), room, needed)
    }

    #[test]
    fn an_array_that_cannot_be_is_empty() {
        for count in [0, usize::MAX, isize::MAX as usize] {
            // SAFETY: a count of 0 reads nothing, and the function refuses the others because no memory can
            // hold them.
            assert!(unsafe { list([7u64].as_ptr(), count) }.is_empty());
        }
    }

    #[test]
    fn strings_count_their_nul() {
        let (result, room, needed) = ask(4, |info| info.give_str("abc"));
        assert!(result.is_ok());
        assert_eq!((&room[..], needed), (&b"abc\0"[..], 4));
    }

    #[test]
    fn too_little_room_is_refused_and_only_the_size_told() {
        let (result, room, needed) = ask(3, |info| info.give(7u32));
        assert_eq!(result.unwrap_err().0, CL_INVALID_VALUE);
        assert!(room.iter().all(|&byte| byte == 0xee));
        assert_eq!(needed, 4);
        let (result, _, needed) = ask(0, |info| info.give_str("abc"));
        assert_eq!((result.unwrap_err().0, needed), (CL_INVALID_VALUE, 4));
    }

    #[test]
    fn a_null_pointer_asks_for_the_size() {
        let mut needed = 0;
        // SAFETY: NULL value, live size.
        let info = unsafe { Info::from_c(0, std::ptr::null_mut(), &raw mut needed) };
        assert!(info.give_slice(&[1u64, 2, 3]).is_ok());
        assert_eq!(needed, 24);
    }
}
