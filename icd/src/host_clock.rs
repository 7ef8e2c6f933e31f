//! The client's host clock, which all times that a program sees refer to.

/// Returns the clock's time: monotonic, in nanoseconds, as `clGetHostTimer` returns it.
#[must_use]
pub fn host_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}
