//! Ends the process as broken drivers and kernels do.
//!
//! Invariant: no function here returns.

use std::process::abort;

use crate::config::Crash;

/// Ends the process.
pub(crate) fn now(crash: Crash) -> ! {
    match crash {
        Crash::Abort => abort(),
        Crash::Segv => fault(),
        Crash::Divide => divide(),
        // SAFETY: `_exit` runs no further code of the process.
        Crash::Exit => unsafe { libc::_exit(3) },
    }
}

fn fault() -> ! {
    // SAFETY: the page is new, so nothing else uses it.
    let page = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    // SAFETY: the address is inside that page. The processor refuses the write, as intended. If the
    // mapping failed, the address −1 faults as well.
    unsafe { page.cast::<u8>().write_volatile(1) };
    abort()
}

#[cfg(target_arch = "x86_64")]
fn divide() -> ! {
    // SAFETY: the instruction traps, or changes only the named registers.
    unsafe {
        std::arch::asm!("div {zero:e}", zero = in(reg) 0_u32, inout("eax") 1_u32 => _, inout("edx") 0_u32 => _);
    }
    abort()
}

#[cfg(not(target_arch = "x86_64"))]
fn divide() -> ! {
    // SAFETY: this sends the signal that the division would raise.
    unsafe { libc::raise(libc::SIGFPE) };
    abort()
}
