//! Reads and writes the memory that arguments point to.
//!
//! Invariant: NULL is never dereferenced.

use std::borrow::Cow;
use std::ffi::{CStr, c_char, c_void};

use cl_headers::types::*;

use crate::error::{ClResult, ensure};
use crate::event::Event;
use crate::object::{Body, Object, Ref};

/// Returns a list of `count` elements; empty for NULL.
///
/// # Safety
/// `list` is NULL or points to `count` elements that nobody changes meanwhile.
pub(crate) unsafe fn list<'a, T>(count: usize, list: *const T) -> &'a [T] {
    if list.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: the caller keeps this function's contract.
    unsafe { std::slice::from_raw_parts(list, count) }
}

/// Returns the objects behind a list of handles. Fails with the kind's error if a handle is invalid.
///
/// # Safety
/// As [`list`], and the handles come from the application.
pub(crate) unsafe fn objects<'a, B: Body>(
    count: cl_uint,
    handles: *const *mut c_void,
) -> ClResult<Vec<&'a Object<B>>> {
    // SAFETY: the caller keeps the same contract.
    let handles = unsafe { list(count as usize, handles) };
    handles
        .iter()
        // SAFETY: the caller keeps the same contract.
        .map(|handle| unsafe { Object::<B>::borrow(*handle) })
        .collect()
}

/// Returns references to the events of a wait list. All of them must belong to `context`.
///
/// # Safety
/// As [`objects`].
pub(crate) unsafe fn wait_list(
    context: *mut c_void,
    count: cl_uint,
    handles: *const cl_event,
) -> ClResult<Box<[Ref<Event>]>> {
    ensure(
        (count == 0) == handles.is_null(),
        CL_INVALID_EVENT_WAIT_LIST,
    )?;
    if count == 0 {
        return Ok(Box::default());
    }
    // SAFETY: the caller keeps the same contract.
    let events = unsafe { objects::<Event>(count, handles) };
    let events = events.or(Err(crate::error::Code(CL_INVALID_EVENT_WAIT_LIST)))?;
    for event in &events {
        ensure(event.context().handle() == context, CL_INVALID_CONTEXT)?;
    }
    Ok(events.into_iter().map(Object::hold).collect())
}

/// Returns a string; empty for NULL.
///
/// # Safety
/// `text` is NULL or a string that ends with NUL.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Cow<'a, str> {
    if text.is_null() {
        return Cow::Borrowed("");
    }
    // SAFETY: the caller keeps this function's contract.
    unsafe { CStr::from_ptr(text) }.to_string_lossy()
}

/// Writes a result, unless `place` is NULL.
///
/// # Safety
/// `place` is NULL or writable.
pub(crate) unsafe fn put<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: the caller keeps this function's contract.
        unsafe { place.write(value) };
    }
}

/// Returns a list of properties as words, with its closing 0; empty for NULL.
///
/// # Safety
/// `list` is NULL, or a 0 in the place of a name ends it.
pub(crate) unsafe fn properties<T>(list: *const T) -> Vec<u64> {
    const { assert!(size_of::<T>() == size_of::<u64>()) };
    let list = list.cast::<u64>();
    let mut words = Vec::new();
    if list.is_null() {
        return words;
    }
    loop {
        // SAFETY: this does not pass the closing 0, because each step is a pair.
        let name = unsafe { list.add(words.len()).read() };
        words.push(name);
        if name == 0 {
            return words;
        }
        // SAFETY: a name is followed by its value.
        words.push(unsafe { list.add(words.len()).read() });
    }
}
