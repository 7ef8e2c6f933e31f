//! The node's host clock, and the conversion of device times to it.
//!
//! Drivers report profiling times on a clock of the device. All times that callers of this module pass on
//! are on the node's host clock. The offset of a device is measured once, when its first profiling queue is
//! made or its timer is first read. The driver's own timer function is used if it has one (OpenCL 2.1),
//! otherwise markers on a separate queue. Markers may be delayed on a busy device; a thread then waits for
//! them. If another command ends first, its end is taken to be the time of its notification.
//!
//! Invariant: an offset is set once, so times of one device keep their order and distances.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use causeway_proto::clock::{Offset, Reading, best};
use causeway_proto::status::Status;
use opencl_sys::{CL_QUEUE_PROFILING_ENABLE, CL_QUEUE_PROPERTIES};

use super::context::Context;
use super::event::{Event, Times, WaitList};
use super::node::Device;
use super::queue::Queue;

/// Environment variable with a number of nanoseconds that are added to the node's host clock. Tests use it
/// to simulate a node that was booted at another time.
pub const AHEAD: &str = "CAUSEWAYD_CLOCK_AHEAD";

/// Number of clock readings; the most precise one counts.
const READINGS: usize = 8;
/// Maximum uncertainty, in nanoseconds, that [`DeviceClock::now`] corrects for.
const MOST_UNSURE: u64 = 1_000_000;
/// Number of markers that may fail or be late before the measurement is abandoned.
const MOST_FAILURES: usize = 3;
/// Time limit for one marker. An idle device needs microseconds; a busy host may need more.
const PATIENCE: Duration = Duration::from_millis(10);

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
    seconds * 1_000_000_000 + rest + shift
}

/// The clock of a device, relative to the host clock.
#[derive(Debug, Default)]
pub struct DeviceClock {
    offset: OnceLock<Offset>,
    // Latest end of a command that was reported, on the host clock.
    latest: AtomicU64,
}

impl DeviceClock {
    /// Measures the offset if that has not been done: at once if the driver has a timer function, otherwise
    /// soon.
    pub(super) fn prepare(&'static self, device: Device, context: &Context) {
        if self.offset.get().is_some() || self.ask_driver(device) {
            return;
        }
        let properties = [u64::from(CL_QUEUE_PROPERTIES), CL_QUEUE_PROFILING_ENABLE];
        // The queue keeps the context alive, also for the thread below.
        let Ok(queue) = Queue::unprepared(context, device, &properties) else {
            return;
        };
        // This waits briefly, because commands that are enqueued after this call then find the offset set.
        if self.ask_markers(&queue, Some(PATIENCE)) {
            return;
        }
        let measure = move || {
            self.ask_markers(&queue, None);
        };
        // Without a thread, the offset comes from the first command that ends (`on_host`).
        let _ = std::thread::Builder::new()
            .name("clock".to_owned())
            .spawn(measure);
    }

    /// Returns the device's current time on the host clock.
    ///
    /// If the driver has no timer function, the host's time is used instead, reduced by the uncertainty of
    /// the device's clock. The result is then not later than the start of any later command. It is also not
    /// earlier than the end of any earlier command.
    pub(super) fn now(&self, device: Device) -> u64 {
        if self.offset.get().is_none() {
            self.ask_driver(device);
        }
        let offset = self.offset.get();
        if let (Some(offset), Ok((now, _))) = (offset, device.timers()) {
            return offset.apply(now);
        }
        let unsure = offset.map_or(0, |offset| offset.uncertainty.min(MOST_UNSURE));
        (host_ns() - unsure).max(self.latest.load(Ordering::Relaxed))
    }

    fn ask_markers(&self, queue: &Queue, patience: Option<Duration>) -> bool {
        let mut failures = 0;
        let readings = (0..READINGS).filter_map(|_| {
            let reading = (failures < MOST_FAILURES).then(|| read_by_marker(queue, patience))?;
            failures += usize::from(reading.is_err());
            reading.ok()
        });
        let found = best(readings);
        found.is_some_and(|found| {
            let _ = self.offset.set(found);
            true
        })
    }

    fn ask_driver(&self, device: Device) -> bool {
        let read = || {
            let before = host_ns();
            let (now, _) = device.timers().ok().filter(|(now, _)| *now != 0)?;
            Some(Reading::of_moment(before, now, host_ns()))
        };
        let found = best((0..READINGS).map_while(|_| read()));
        found.is_some_and(|found| {
            let _ = self.offset.set(found);
            true
        })
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

// Reads the device's clock with a marker between two readings of the host clock.
fn read_by_marker(queue: &Queue, patience: Option<Duration>) -> Result<Reading, Status> {
    let deadline = patience.map(|patience| Instant::now() + patience);
    let before = host_ns();
    let marker: Event = queue.marker(&WaitList::default())?;
    queue.flush()?;
    // The state is polled first, because a driver's own wait may sleep and has no timeout.
    while !marker.looks_ended() {
        match deadline {
            Some(deadline) if Instant::now() > deadline => return Err(Status::OUT_OF_RESOURCES),
            Some(_) => std::thread::yield_now(),
            None => marker.wait()?,
        }
    }
    let after = host_ns();
    marker.wait()?;
    let times = marker.device_times().ok_or(Status::INVALID_OPERATION)?;
    if times.ended == 0 {
        return Err(Status::INVALID_OPERATION);
    }
    Ok(Reading {
        before,
        first: times.started,
        last: times.ended,
        after,
    })
}
