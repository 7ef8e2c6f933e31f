//! Ending the process as broken drivers and kernels do.
//!
//! Invariant: nothing here returns.

use std::process::abort;

use crate::config::Crash;

/// Ends the process.
pub(crate) fn now(crash: Crash) -> ! {
    match crash {
        Crash::Abort => abort(),
        Crash::Segv => fault(),
        Crash::Divide => divide(),
        // SAFETY: `_exit` runs nothing of the process any more.
        Crash::Exit => unsafe { libc::_exit(3) },
    }
}

fn fault() -> ! {
    // SAFETY: a new page, which nobody else has.
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
    // SAFETY: inside that page; the write is refused by the processor, which is the purpose. (Were
    // the mapping refused, the address −1 would fault as well.)
    unsafe { page.cast::<u8>().write_volatile(1) };
    abort()
}

#[cfg(target_arch = "x86_64")]
fn divide() -> ! {
    // SAFETY: traps, or changes only the registers that are named.
    unsafe {
        std::arch::asm!("div {zero:e}", zero = in(reg) 0_u32, inout("eax") 1_u32 => _, inout("edx") 0_u32 => _);
    }
    abort()
}

#[cfg(not(target_arch = "x86_64"))]
fn divide() -> ! {
    // SAFETY: sends the signal that the division would raise.
    unsafe { libc::raise(libc::SIGFPE) };
    abort()
}
