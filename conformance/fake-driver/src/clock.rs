//! The two clocks: the host's, and that of each device.
//!
//! A device's clock runs as fast as the host's but began at another time, each device's at one of
//! its own: whoever takes one for the other is found out. Invariant: neither ever goes back.

/// Nanoseconds on the host's clock.
pub(crate) fn host_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes one timespec, which it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// What a device's clock is ahead of the host's, in nanoseconds; by the device's index.
pub(crate) fn device_offset_ns(index: usize) -> u64 {
    (index as u64 + 1) * 1_000_000_000_000
}
