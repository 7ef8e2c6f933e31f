//! Which host memory incomplete commands will still write.
//!
//! A read or map writes the application's memory some time after its enqueue; a later write from the
//! same memory must not be captured before that (the ordinary halo exchange). Specification: the
//! contents of `ptr` are undefined until the read completes.

use std::sync::atomic::AtomicUsize;

/// The process's table of such ranges.
#[derive(Debug, Default)]
pub struct HostRanges {
    _count: AtomicUsize,
}
