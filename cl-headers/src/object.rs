//! How an OpenCL object begins in memory, and the table shown to loaders of `cl_khr_icd` 2.
//!
//! Both kinds of loader read the first word of any handle as a pointer to the driver's dispatch
//! table. A loader of the second kind looks for a tag in two slots of that table; where it finds
//! both, it no longer calls through the table but through its own, which it finds by the second
//! word. What follows those two words is the driver's own business.
//!
//! Invariant: the head always has both words, with the tags or without them.

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

/// The slots that hold the tag: those of `clGetPlatformIDs` and `clUnloadCompiler`, which no loader
/// ever calls through the table. A table with the tag in only one of them is rejected.
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

// SAFETY: the dispatch table is 'static and never written; the other word is atomic, and the
// loader alone follows it.
unsafe impl Send for ObjectHead {}
// SAFETY: as above.
unsafe impl Sync for ObjectHead {}

impl ObjectHead {
    /// A head for loaders of the first kind. `dispatch_data` is kept for the second word in case
    /// that a loader gave some nevertheless; NULL otherwise.
    #[must_use]
    pub const fn new(dispatch: &'static Dispatch, dispatch_data: *mut c_void) -> Self {
        Self {
            dispatch: ptr::from_ref(dispatch),
            icd2: AtomicPtr::new(dispatch_data),
        }
    }

    /// A head for loaders of the second kind; `dispatch_data` is what the loader gave for the
    /// platform by `clIcdSetPlatformDispatchDataKHR`.
    #[must_use]
    pub const fn tagged(dispatch: &'static Icd2Dispatch, dispatch_data: *mut c_void) -> Self {
        Self {
            dispatch: ptr::from_ref(dispatch).cast::<Dispatch>(),
            icd2: AtomicPtr::new(dispatch_data),
        }
    }

    /// The address in the first word, to be compared with that of one's own table, never followed:
    /// it may lead to an [`Icd2Dispatch`].
    #[must_use]
    pub const fn dispatch(&self) -> *const Dispatch {
        self.dispatch
    }

    /// The loader's word.
    #[must_use]
    pub fn dispatch_data(&self) -> *mut c_void {
        self.icd2.load(Ordering::Acquire)
    }

    /// Sets the loader's word, as `clIcdSetPlatformDispatchDataKHR` does for the platform and for
    /// objects that were there before (devices).
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

/// A copy of a dispatch table with the tag in its two slots, as words: two of them are no functions
/// any more, so the typed table could not hold them.
#[repr(transparent)]
#[derive(Clone, Debug)]
pub struct Icd2Dispatch {
    words: [*const c_void; SLOTS],
}

// SAFETY: the words are addresses of functions and a number; nothing behind them is written.
unsafe impl Send for Icd2Dispatch {}
// SAFETY: as above.
unsafe impl Sync for Icd2Dispatch {}

impl Icd2Dispatch {
    /// The table of the same functions, tagged. They stay reachable by name, through
    /// [`Dispatch::function`].
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
