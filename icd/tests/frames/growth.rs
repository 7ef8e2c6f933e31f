//! Compares the processor time of many calls with that of few. The time is the process's, so tests run one at a time.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn cost(calls: &mut impl FnMut(usize), count: usize) -> Duration {
    let before = processor_time();
    calls(count);
    processor_time() - before
}

/// Checks that four times as many calls cost about four times as much. 16 times would be quadratic.
#[track_caller]
pub fn grows_linearly(count: usize, mut calls: impl FnMut(usize)) {
    cost(&mut calls, count / 4);
    let few = cost(&mut calls, count);
    let many = cost(&mut calls, 4 * count);
    println!("{count}: {few:?}, {}: {many:?}", 4 * count);
    assert!(
        many < 8 * few,
        "{count} cost {few:?}, four times as many {many:?}"
    );
}
