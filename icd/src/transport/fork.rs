//! Detects whether this process is a forked child.
//!
//! Sessions do not survive `fork`: the child has none of the threads, and locks may be held by threads
//! that it does not have. So every call checks here first, before it touches a lock. The check is one
//! load from a page that the kernel wipes in a child. Reading the process id would be a system call for
//! each enqueue.

use std::sync::OnceLock;

use causeway_proto::status::WireError;

use crate::process_mark::Mark;

static MARK: OnceLock<Mark> = OnceLock::new();

/// Marks this process as one that has sessions. Must be called before the first session is opened.
pub(super) fn mark_process() {
    MARK.get_or_init(Mark::this_process);
}

/// Whether this process is a child of a marked one.
pub(super) fn is_child() -> bool {
    MARK.get().is_some_and(Mark::is_child)
}

/// Returns [`WireError::Forked`] in a child of `fork` whose parent has, or had, sessions. Costs one load.
/// Call it before taking a lock that another thread of the parent may have held.
pub fn check() -> Result<(), WireError> {
    if is_child() {
        Err(WireError::Forked)
    } else {
        Ok(())
    }
}
