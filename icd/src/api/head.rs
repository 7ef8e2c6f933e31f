//! The first two words of every object, which loaders read.
//!
//! Not here: the objects themselves (`handle`). Specification: `cl_khr_icd`. Invariant: every object that is
//! made after the loader has set its word carries that word.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use cl_headers::types::c_void;
use cl_headers::{Icd2Dispatch, ObjectHead};

// The loader's word for the platform. Every later object gets a copy of it.
static DISPATCH_DATA: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

fn icd2() -> Option<&'static Icd2Dispatch> {
    static TABLE: OnceLock<Option<Icd2Dispatch>> = OnceLock::new();
    TABLE
        .get_or_init(|| {
            let wanted = std::env::var_os("CAUSEWAY_ICD2").is_some_and(|value| value == "1");
            wanted.then(|| Icd2Dispatch::new(super::dispatch()))
        })
        .as_ref()
}

/// Whether objects carry the tag of `cl_khr_icd` 2.
pub(super) fn is_icd2() -> bool {
    icd2().is_some()
}

/// The first words of a new object.
pub(super) fn new() -> ObjectHead {
    let data = DISPATCH_DATA.load(Ordering::Acquire);
    match icd2() {
        Some(table) => ObjectHead::tagged(table, data),
        None => ObjectHead::new(super::dispatch(), data),
    }
}

/// Sets the loader's word for objects that are made from now on.
pub(super) fn set_data(data: *mut c_void) {
    DISPATCH_DATA.store(data, Ordering::Release);
}
