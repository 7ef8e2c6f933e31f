//! Tells a process from its children, which `fork` makes.
//!
//! What a process has, such as threads and sessions, its children lack, although they have a copy of its memory, with locks
//! that threads of the parent may hold. So every call checks here first, before it touches a lock. The mark is a word in a
//! page that the kernel wipes in a child. Reading the process id would be a system call each time. Invariant: a mark never
//! takes a child for the process that was marked.
#![allow(unsafe_code)]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use causeway_proto::status::WireError;

/// Set before the process opens its first session.
static HAS_SESSIONS: OnceLock<Mark> = OnceLock::new();

/// Marks this process as one that has sessions. Must be called before the first session is opened.
pub(crate) fn mark_process() {
    HAS_SESSIONS.get_or_init(Mark::this_process);
}

/// Whether this process is a child of one that has, or had, sessions.
pub(crate) fn is_child() -> bool {
    HAS_SESSIONS.get().is_some_and(Mark::is_child)
}

/// Returns [`WireError::Forked`] in a child of `fork` whose parent has, or had, sessions. Costs one load.
/// Call it before taking a lock that another thread of the parent may have held.
pub(crate) fn check() -> Result<(), WireError> {
    if is_child() {
        Err(WireError::Forked)
    } else {
        Ok(())
    }
}

/// Tells a process from its children.
#[derive(Debug)]
pub(crate) enum Mark {
    Word(&'static AtomicU32),
    // For kernels without MADV_WIPEONFORK.
    Process(u32),
}

impl Mark {
    /// Marks this process.
    pub(crate) fn this_process() -> Mark {
        match word_wiped_on_fork() {
            Some(word) => {
                word.store(1, Ordering::Relaxed);
                Mark::Word(word)
            }
            None => Mark::Process(std::process::id()),
        }
    }

    /// Whether this process is a child of the marked one.
    pub(crate) fn is_child(&self) -> bool {
        match self {
            Mark::Word(word) => word.load(Ordering::Relaxed) == 0,
            Mark::Process(id) => *id != std::process::id(),
        }
    }
}

/// A zeroed word in a separate page, which reads as zero again in a child of `fork`. `None` if the kernel
/// does not support that.
fn word_wiped_on_fork() -> Option<&'static AtomicU32> {
    // The smallest page size of any supported system. The kernel rounds up to its own.
    const LENGTH: usize = 4096;
    // SAFETY: this is a fresh anonymous mapping that is never unmapped once it is returned. So a 'static
    // reference to its first word, which is zeroed and aligned, is valid. Only atomic operations access
    // it.
    unsafe {
        let page = libc::mmap(
            std::ptr::null_mut(),
            LENGTH,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        if page == libc::MAP_FAILED {
            return None;
        }
        if libc::madvise(page, LENGTH, libc::MADV_WIPEONFORK) != 0 {
            libc::munmap(page, LENGTH);
            return None;
        }
        Some(&*page.cast::<AtomicU32>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_is_zero_and_can_be_set() {
        let word = word_wiped_on_fork().expect("Linux 4.14 or later");
        assert_eq!(word.swap(7, Ordering::Relaxed), 0);
        assert_eq!(word.load(Ordering::Relaxed), 7);
    }
}
