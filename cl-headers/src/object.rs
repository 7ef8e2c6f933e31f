//! The first words of an OpenCL object, and the dispatch table for loaders of `cl_khr_icd` 2.
//!
//! Both kinds of loaders read the first word of any handle as a pointer to the driver's dispatch table. A
//! loader of `cl_khr_icd` 2 looks for a tag in two slots of that table. If it finds both, it calls through
//! its own table instead, which it finds by the second word. The rest of the object is private to the
//! driver.
//!
//! Invariant: an object always has both words, with or without tags in the table.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::dispatch::{Dispatch, SLOTS};

/// The value that marks a dispatch table of `cl_khr_icd` 2 (`CL_ICD2_TAG_KHR`): `OPENCL31` in ASCII.
#[cfg(target_pointer_width = "64")]
pub const ICD2_TAG: usize = 0x4F50_454E_434C_3331;
/// The value that marks a dispatch table of `cl_khr_icd` 2 (`CL_ICD2_TAG_KHR`): `CL31` in ASCII.
#[cfg(target_pointer_width = "32")]
pub const ICD2_TAG: usize = 0x434C_3331;

/// The slots with the tag: those of `clGetPlatformIDs` and `clUnloadCompiler`, which no loader calls
/// through the table. Loaders reject a table with the tag in only one of them.
pub const TAGGED_SLOTS: [usize; 2] = [0, 31];

/// The first two words of every OpenCL object.
///
/// ```text
/// offset 0: dispatch table     offset 8: the loader's dispatch data, or NULL
/// ```
#[repr(C)]
#[derive(Debug)]
pub struct ObjectHead {
    dispatch: *const Dispatch,
    icd2: AtomicPtr<c_void>,
}

// SAFETY: the dispatch table is 'static and never written. The other word is atomic, and only the loader
// dereferences it.
unsafe impl Send for ObjectHead {}
// SAFETY: as for `Send`.
unsafe impl Sync for ObjectHead {}

impl ObjectHead {
    /// Creates the head of an object for loaders of `cl_khr_icd` 1. `dispatch_data` is NULL, unless a
    /// loader has set a word nevertheless.
    #[must_use]
    pub const fn new(dispatch: &'static Dispatch, dispatch_data: *mut c_void) -> Self {
        Self {
            dispatch: ptr::from_ref(dispatch),
            icd2: AtomicPtr::new(dispatch_data),
        }
    }

    /// Creates the head of an object for loaders of `cl_khr_icd` 2. `dispatch_data` is the word that the
    /// loader set for the platform by `clIcdSetPlatformDispatchDataKHR`.
    #[must_use]
    pub const fn tagged(dispatch: &'static Icd2Dispatch, dispatch_data: *mut c_void) -> Self {
        Self {
            dispatch: ptr::from_ref(dispatch).cast::<Dispatch>(),
            icd2: AtomicPtr::new(dispatch_data),
        }
    }

    /// The address in the first word. Compare it with that of a table, but do not dereference it: it may
    /// point to an [`Icd2Dispatch`].
    #[must_use]
    pub const fn dispatch(&self) -> *const Dispatch {
        self.dispatch
    }

    /// The loader's word.
    #[must_use]
    pub fn dispatch_data(&self) -> *mut c_void {
        self.icd2.load(Ordering::Acquire)
    }

    /// Sets the loader's word, as `clIcdSetPlatformDispatchDataKHR` does for the platform and for objects
    /// that exist already (devices).
    pub fn set_dispatch_data(&self, dispatch_data: *mut c_void) {
        self.icd2.store(dispatch_data, Ordering::Release);
    }
}

const _: () = {
    assert!(core::mem::offset_of!(ObjectHead, dispatch) == 0);
    assert!(core::mem::offset_of!(ObjectHead, icd2) == size_of::<usize>());
    assert!(size_of::<ObjectHead>() == 2 * size_of::<usize>());
    assert!(size_of::<Icd2Dispatch>() == size_of::<Dispatch>());
};

/// A copy of a dispatch table with the tag in its two slots. It consists of words, because the typed table
/// can hold only functions.
#[repr(transparent)]
#[derive(Clone, Debug)]
pub struct Icd2Dispatch {
    words: [*const c_void; SLOTS],
}

// SAFETY: the words are a number and addresses of functions, which nobody writes.
unsafe impl Send for Icd2Dispatch {}
// SAFETY: as for `Send`.
unsafe impl Sync for Icd2Dispatch {}

impl Icd2Dispatch {
    /// Creates a tagged table of the same functions. The two functions without a slot remain reachable by
    /// name, through [`Dispatch::function`].
    #[must_use]
    pub fn new(dispatch: &Dispatch) -> Self {
        let tag = ptr::without_provenance(ICD2_TAG);
        Self {
            words: core::array::from_fn(|slot| {
                if TAGGED_SLOTS.contains(&slot) {
                    tag
                } else {
                    dispatch.address(slot).unwrap_or(ptr::null())
                }
            }),
        }
    }

    /// The words of the table.
    #[must_use]
    pub const fn words(&self) -> &[*const c_void; SLOTS] {
        &self.words
    }
}
