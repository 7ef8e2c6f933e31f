//! Info answers as raw bytes.
//!
//! The size is queried first. An answer of size 0 is not fetched, because some drivers fail that call
//! (NVIDIA: -30). Invariant: no memory is allocated for answers larger than [`MAX_ANSWER`].

use std::ffi::c_void;
use std::ptr::null_mut;

use causeway_proto::status::Status;

/// Maximum size of an answer in bytes. Real answers are far smaller; a larger size is a driver's error.
const MAX_ANSWER: usize = 512 << 20;

/// Fetches one answer. `ask(size, value, size_ret)` is one of the `clGet*Info` functions with its object
/// and name filled in.
pub(super) fn bytes(
    mut ask: impl FnMut(usize, *mut c_void, *mut usize) -> Result<(), Status>,
) -> Result<Vec<u8>, Status> {
    let mut size = 0;
    ask(0, null_mut(), &raw mut size)?;
    if size == 0 {
        return Ok(Vec::new());
    }
    if size > MAX_ANSWER {
        return Err(Status::OUT_OF_HOST_MEMORY);
    }
    let mut value = vec![0u8; size];
    ask(size, value.as_mut_ptr().cast(), null_mut())?;
    Ok(value)
}

/// Fetches an answer that is usually short. A short answer takes only one call.
pub(super) fn short_bytes(
    mut ask: impl FnMut(usize, *mut c_void, *mut usize) -> Result<(), Status>,
) -> Result<Vec<u8>, Status> {
    let mut value = [0u8; 128];
    let mut size = usize::MAX;
    let asked = ask(value.len(), value.as_mut_ptr().cast(), &raw mut size);
    match (asked, value.get(..size)) {
        (Ok(()), Some(value)) => Ok(value.to_vec()),
        // The answer is longer than 128 bytes, or empty and the driver fails that call.
        _ => bytes(ask),
    }
}

/// Converts an answer to text, without its terminating NUL.
pub(super) fn text(mut value: Vec<u8>) -> String {
    while value.last() == Some(&0) {
        value.pop();
    }
    String::from_utf8(value).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
}

/// Converts an answer of 4 or 8 bytes in native byte order to a number; `None` for other lengths.
pub(super) fn number(value: &[u8]) -> Option<u64> {
    match value.len() {
        4 => Some(u64::from(u32::from_ne_bytes(value.try_into().ok()?))),
        8 => Some(u64::from_ne_bytes(value.try_into().ok()?)),
        _ => None,
    }
}

/// Converts an answer that is an array of `size_t`.
pub(super) fn sizes(value: &[u8]) -> Vec<u64> {
    value.chunks_exact(8).filter_map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_answer_is_not_fetched() {
        let answer = bytes(|size, _, size_ret| {
            assert_eq!(size, 0, "fetched");
            // SAFETY: `bytes` passes a valid pointer for the size.
            unsafe { *size_ret = 0 };
            Ok(())
        });
        assert_eq!(answer, Ok(Vec::new()));
    }

    #[test]
    fn an_absurd_size_is_refused_before_allocation() {
        let answer = bytes(|_, _, size_ret| {
            // SAFETY: `bytes` passes a valid pointer for the size.
            unsafe { *size_ret = usize::MAX };
            Ok(())
        });
        assert_eq!(answer, Err(Status::OUT_OF_HOST_MEMORY));
    }

    #[test]
    fn a_short_answer_takes_one_call_and_a_long_one_comes_whole() {
        for length in [0, 1, 128, 129, 1000] {
            let mut calls = 0;
            let answer = short_bytes(|size, value, size_ret| {
                calls += 1;
                if !value.is_null() && size < length {
                    return Err(Status::INVALID_VALUE);
                }
                // SAFETY: `value` is null or has room for `size` bytes; `size_ret` is null or valid.
                unsafe {
                    if !value.is_null() {
                        value.cast::<u8>().write_bytes(7, length);
                    }
                    if !size_ret.is_null() {
                        *size_ret = length;
                    }
                }
                Ok(())
            });
            assert_eq!(answer, Ok(vec![7; length]));
            assert_eq!(calls, if length > 128 { 3 } else { 1 });
        }
    }

    #[test]
    fn text_loses_its_nul() {
        assert_eq!(text(b"PoCL\0".to_vec()), "PoCL");
        assert_eq!(text(Vec::new()), "");
    }
}
