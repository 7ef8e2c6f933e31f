//! Tells a process from its children.
//!
//! What a process has, such as threads, its children lack, although they have a copy of its memory. The mark is a word in a
//! page that the kernel wipes in a child. Reading the process id would be a system call each time. Invariant: a mark never
//! takes a child for the process that was marked.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering};

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
