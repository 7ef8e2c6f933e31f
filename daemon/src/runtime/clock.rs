//! The node's host clock, and each device's clock by it.
//!
//! Drivers stamp commands with a clock of the device's; every time that leaves this module's callers is on
//! the node's host clock instead. A device's offset is found once, when its first profiling queue is made
//! (or its timer asked for): by the driver's own timer function where it has one (OpenCL 2.1), else by
//! markers on a queue of our own. A busy device may let those wait; then they are waited for on a thread of
//! their own, and if a command ends meanwhile, it tells instead: it is taken to have ended when we heard of it.
//!
//! Invariant: an offset is set once, so times of one device keep order and distances.

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

/// Set to a number, this many nanoseconds are added to the node's host clock. For tests: as if the node
/// had been started at another time.
pub const AHEAD: &str = "CAUSEWAYD_CLOCK_AHEAD";

/// How often a clock is read; the surest reading counts.
const READINGS: usize = 8;
/// More than this is not corrected for.
const MOST_UNSURE: u64 = 1_000_000;
/// So often a marker may fail, or be late.
const MOST_FAILURES: usize = 3;
/// An idle device needs microseconds for a marker; a host that has other things to do perhaps more. For each.
const PATIENCE: Duration = Duration::from_millis(10);

/// The node's host clock: monotonic, in ns.
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

/// A device's clock.
#[derive(Debug, Default)]
pub struct DeviceClock {
    offset: OnceLock<Offset>,
    // The latest end that was told, on the host clock.
    latest: AtomicU64,
}

impl DeviceClock {
    /// Finds the offset if nobody has: now where the driver has a timer function, else soon.
    pub(super) fn prepare(&'static self, device: Device, context: &Context) {
        if self.offset.get().is_some() || self.ask_driver(device) {
            return;
        }
        let properties = [u64::from(CL_QUEUE_PROPERTIES), CL_QUEUE_PROFILING_ENABLE];
        // The queue keeps the context alive.
        let Ok(queue) = Queue::unprepared(context, device, &properties) else {
            return;
        };
        // Commands come after this call, so that their times find it done.
        if self.ask_markers(&queue, Some(PATIENCE)) {
            return;
        }
        let measure = move || {
            self.ask_markers(&queue, None);
        };
        // Without a thread the first command tells.
        let _ = std::thread::Builder::new()
            .name("clock".to_owned())
            .spawn(measure);
    }

    /// The device's time now, on the host clock. Where the driver has no timer function it is the host's, as
    /// early as the device's clock may be, so that it is not after what begins later, but not before what has
    /// ended.
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

    /// Times of a command that has just ended, on the host clock.
    pub(super) fn on_host(&self, times: Times) -> Times {
        if times.ended == 0 {
            // The driver has none.
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

// A marker runs between two readings of the host clock.
fn read_by_marker(queue: &Queue, patience: Option<Duration>) -> Result<Reading, Status> {
    let deadline = patience.map(|patience| Instant::now() + patience);
    let before = host_ns();
    let marker: Event = queue.marker(&WaitList::default())?;
    queue.flush()?;
    // Looked for first: a driver's own wait may sleep, and has no limit.
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
