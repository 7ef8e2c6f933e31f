//! The two clocks: the host's, and that of each device.
//!
//! A device's clock has the host's speed but another start time, different for each device. So a
//! confusion of two clocks is noticed. Invariant: no clock runs backwards.

/// Returns the time of the host's clock, in nanoseconds.
pub(crate) fn host_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call writes only the given timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// Returns how far a device's clock is ahead of the host's, in nanoseconds, by the device's index.
pub(crate) fn device_offset_ns(index: usize) -> u64 {
    (index as u64 + 1) * 1_000_000_000_000
}
