//! Answers of info queries.
//!
//! Invariant: sizes, NULL and too small buffers are handled here, once for all queries.

use std::ffi::c_void;

use cl_headers::types::*;

use crate::error::{ClResult, ensure};

/// The bytes of an answer.
pub(crate) struct Info(Vec<u8>);

impl Info {
    pub(crate) fn bytes(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }
    pub(crate) fn text(text: &str) -> Self {
        let mut bytes = text.as_bytes().to_vec();
        bytes.push(0);
        Self(bytes)
    }
    pub(crate) fn int(value: cl_int) -> Self {
        Self(value.to_ne_bytes().into())
    }
    pub(crate) fn uint(value: cl_uint) -> Self {
        Self(value.to_ne_bytes().into())
    }
    pub(crate) fn bool(value: bool) -> Self {
        Self::uint(cl_uint::from(value))
    }
    pub(crate) fn ulong(value: cl_ulong) -> Self {
        Self(value.to_ne_bytes().into())
    }
    pub(crate) fn size(value: usize) -> Self {
        Self(value.to_ne_bytes().into())
    }
    pub(crate) fn sizes(values: impl IntoIterator<Item = usize>) -> Self {
        Self(values.into_iter().flat_map(usize::to_ne_bytes).collect())
    }
    pub(crate) fn ulongs(values: &[u64]) -> Self {
        Self(
            values
                .iter()
                .flat_map(|value| value.to_ne_bytes())
                .collect(),
        )
    }
    pub(crate) fn handle(handle: *mut c_void) -> Self {
        Self::size(handle.addr())
    }
    pub(crate) fn handles(handles: impl IntoIterator<Item = *mut c_void>) -> Self {
        Self::sizes(handles.into_iter().map(|handle| handle.addr()))
    }
    /// Makes an answer of names with their versions, as `cl_name_version`s.
    pub(crate) fn named_versions<'a>(list: impl IntoIterator<Item = (&'a str, u32)>) -> Self {
        let mut bytes = Vec::new();
        for (name, version) in list {
            let mut text = [0; 64];
            let length = name.len().min(63);
            text[..length].copy_from_slice(&name.as_bytes()[..length]);
            bytes.extend(version.to_ne_bytes());
            bytes.extend(text);
        }
        Self(bytes)
    }
}

/// Writes an answer to the application's memory.
///
/// # Safety
/// `value` is NULL or has `size` writable bytes; `size_ret` is NULL or writable.
pub(crate) unsafe fn reply(
    answer: Info,
    size: size_t,
    value: *mut c_void,
    size_ret: *mut size_t,
) -> ClResult {
    let bytes = answer.0;
    if !value.is_null() {
        ensure(size >= bytes.len(), CL_INVALID_VALUE)?;
        // SAFETY: `value` is large enough, by the check above and this function's contract.
        unsafe { value.cast::<u8>().copy_from(bytes.as_ptr(), bytes.len()) };
    }
    if !size_ret.is_null() {
        // SAFETY: the caller keeps this function's contract.
        unsafe { size_ret.write(bytes.len()) };
    }
    Ok(())
}
