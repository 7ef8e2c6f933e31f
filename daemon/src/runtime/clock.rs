//! The node's host clock, and the conversion of device times to it.
//!
//! Drivers report profiling times on a clock of the device. All times that callers of this module pass on
//! are on the node's host clock. The offset of a device is measured once, when its first profiling queue is
//! made or its timer is first read. The driver's own timer function is used if it has one (OpenCL 2.1),
//! otherwise markers on a separate queue (`queue/calibration.rs`). If another command ends first, its end is taken to be the time of its notification.
//!
//! Invariant: an offset is set once, so times of one device keep their order and distances.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use causeway_proto::clock::{Offset, Reading, best};
use causeway_proto::status::Status;

/// Environment variable with a number of nanoseconds that are added to the node's host clock. Tests use it
/// to simulate a node that was booted at another time.
pub const AHEAD: &str = "CAUSEWAYD_CLOCK_AHEAD";

/// Number of clock readings; the most precise one counts.
pub(super) const READINGS: usize = 8;
/// Maximum uncertainty, in nanoseconds, that [`DeviceClock::now`] corrects for.
const MOST_UNSURE: u64 = 1_000_000;
/// Returns the node's monotonic host clock in nanoseconds.
#[must_use]
pub fn host_ns() -> u64 {
    static SHIFT: OnceLock<u64> = OnceLock::new();
    let shift = SHIFT.get_or_init(|| {
        let text = std::env::var(AHEAD).unwrap_or_default();
        text.parse().unwrap_or(0)
    });
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let (seconds, rest) = (now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs());
    let own = seconds * 1_000_000_000 + rest + shift;
    own.wrapping_add(LATER.load(Ordering::Relaxed))
}

/// Nanoseconds that are added to the host clock, modulo 2^64, because a session began by another clock: on another
/// machine, or before this one was booted.
static LATER: AtomicU64 = AtomicU64::new(0);
/// Readings of two clocks that differ by more were not taken by the same clocks.
const SAME_CLOCK: u64 = 1_000_000_000;

/// The time since 1970 in nanoseconds, which machines roughly agree about.
#[must_use]
pub fn wall_ns() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| {
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    })
}

/// Has the host clock go on where another one was at `host` when the wall clock was at `wall`. Called before a session
/// that was parked creates its first object. Its times never run backwards, and take the pause into account.
pub fn goes_on(host: u64, wall: u64) {
    let ahead = ahead(host_ns(), wall_ns(), (host, wall));
    LATER.fetch_add(ahead, Ordering::Relaxed);
}

// What to add to this host's clock, modulo 2^64.
fn ahead(now: u64, wall_now: u64, (then, wall_then): (u64, u64)) -> u64 {
    let expected = then.saturating_add(wall_now.saturating_sub(wall_then));
    if now >= then && now.abs_diff(expected) < SAME_CLOCK {
        return 0;
    }
    expected.wrapping_sub(now)
}

/// The clock of a device, relative to the host clock.
#[derive(Debug, Default)]
pub struct DeviceClock {
    offset: OnceLock<Offset>,
    // Latest end of a command that was reported, on the host clock.
    latest: AtomicU64,
}

impl DeviceClock {
    /// Returns the device's current time on the host clock.
    ///
    /// If the driver has no timer function, the host's time is used instead, reduced by the uncertainty of
    /// the device's clock. The result is then not later than the start of any later command. It is also not
    /// earlier than the end of any earlier command.
    /// `timers` is the driver's own function.
    pub(super) fn now(&self, timers: impl Fn() -> Result<(u64, u64), Status>) -> u64 {
        if self.offset.get().is_none() {
            self.ask_driver(&timers);
        }
        let offset = self.offset.get();
        if let (Some(offset), Ok((now, _))) = (offset, timers()) {
            return offset.apply(now);
        }
        let unsure = offset.map_or(0, |offset| offset.uncertainty.min(MOST_UNSURE));
        (host_ns() - unsure).max(self.latest.load(Ordering::Relaxed))
    }

    /// Whether the offset has been measured.
    pub(super) fn is_measured(&self) -> bool {
        self.offset.get().is_some()
    }

    /// Sets the offset to that of the most precise of `readings`. Returns false if there is none.
    pub(super) fn measured(&self, readings: impl Iterator<Item = Reading>) -> bool {
        best(readings).is_some_and(|found| {
            let _ = self.offset.set(found);
            true
        })
    }

    /// Measures the offset with the driver's own function. Returns false if that is impossible.
    pub(super) fn ask_driver(&self, timers: &impl Fn() -> Result<(u64, u64), Status>) -> bool {
        let read = || {
            let before = host_ns();
            let (now, _) = timers().ok().filter(|(now, _)| *now != 0)?;
            Some(Reading::of_moment(before, now, host_ns()))
        };
        self.measured((0..READINGS).map_while(|_| read()))
    }

    /// Converts the times of a command that has just ended to the host clock.
    pub(super) fn on_host(&self, times: Times) -> Times {
        if times.ended == 0 {
            // The driver reports no times.
            return times;
        }
        let offset = self.offset.get_or_init(|| {
            let now = host_ns();
            let ended_now = Reading::of_moment(now, times.ended, now);
            ended_now.offset().unwrap_or(Offset {
                ns: 0,
                uncertainty: u64::MAX,
            })
        });
        let ended = offset.apply(times.ended);
        self.latest.fetch_max(ended, Ordering::Relaxed);
        Times {
            queued: offset.apply(times.queued),
            submitted: offset.apply(times.submitted),
            started: offset.apply(times.started),
            ended,
            completed: offset.apply(times.completed),
        }
    }
}

/// Profiling times of a command in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// `CL_PROFILING_COMMAND_QUEUED`.
    pub queued: u64,
    /// `CL_PROFILING_COMMAND_SUBMIT`.
    pub submitted: u64,
    /// `CL_PROFILING_COMMAND_START`.
    pub started: u64,
    /// `CL_PROFILING_COMMAND_END`.
    pub ended: u64,
    /// `CL_PROFILING_COMMAND_COMPLETE`.
    pub completed: u64,
}

impl Times {
    /// Combines the times of two commands that count as one: the earliest starts and the latest ends.
    #[must_use]
    pub fn around(self, other: Times) -> Times {
        Times {
            queued: self.queued.min(other.queued),
            submitted: self.submitted.min(other.submitted),
            started: self.started.min(other.started),
            ended: self.ended.max(other.ended),
            completed: self.completed.max(other.completed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_of_another_machine_goes_on_by_its_clock() {
        const S: u64 = 1_000_000_000;
        let on = |now: u64, paused: u64, then: u64| {
            now.wrapping_add(ahead(now, 9 * S + paused, (then, 9 * S)))
        };
        // Booted later, and booted earlier.
        assert_eq!(on(5 * S, 2 * S, 100 * S), 102 * S);
        assert_eq!(on(500 * S, 2 * S, 100 * S), 102 * S);
        // The same machine, whose wall clock was corrected a little.
        assert_eq!(on(102 * S + 7, 2 * S, 100 * S), 102 * S + 7);
        // A wall clock that was set back.
        assert_eq!(ahead(5 * S, 0, (100 * S, 9 * S)), 95 * S);
    }
}
