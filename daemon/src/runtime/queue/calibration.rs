//! Measures the clocks of devices, when their first profiling queues are made.
//!
//! The driver's own timer function is used if it has one, otherwise markers on a separate queue. Markers
//! may be delayed on a busy device; a thread then waits for them.

use std::time::{Duration, Instant};

use causeway_proto::clock::Reading;
use causeway_proto::status::Status;
use opencl_sys::{CL_QUEUE_PROFILING_ENABLE, CL_QUEUE_PROPERTIES};

use super::Queue;
use crate::runtime::clock::{DeviceClock, READINGS, host_ns};
use crate::runtime::context::Context;
use crate::runtime::event::{Event, WaitList};
use crate::runtime::node::Device;

/// Number of markers that may fail or be late before the measurement is abandoned.
const MOST_FAILURES: usize = 3;
/// Time limit for one marker. An idle device needs microseconds; a busy host may need more.
const PATIENCE: Duration = Duration::from_millis(10);

impl Queue {
    /// Creates a queue; `properties` are pairs of names and values without the terminating 0.
    pub fn new(context: &Context, device: Device, properties: &[u64]) -> Result<Queue, Status> {
        let queue = Queue::unprepared(context, device, properties)?;
        if queue.profiling {
            prepare(device, context);
        }
        Ok(queue)
    }
}

/// Measures the offset of the device's clock if that has not been done: at once if the driver has a timer
/// function, otherwise soon.
fn prepare(device: Device, context: &Context) {
    let clock = device.clock;
    if clock.is_measured() || clock.ask_driver(&|| device.timers()) {
        return;
    }
    let properties = [u64::from(CL_QUEUE_PROPERTIES), CL_QUEUE_PROFILING_ENABLE];
    // The queue keeps the context alive, also for the thread below.
    let Ok(queue) = Queue::unprepared(context, device, &properties) else {
        return;
    };
    // This waits briefly, because commands that are enqueued after this call then find the offset set.
    if ask_markers(clock, &queue, Some(PATIENCE)) {
        return;
    }
    let measure = move || {
        ask_markers(clock, &queue, None);
    };
    // Without a thread, the offset comes from the first command that ends (`on_host`).
    let _ = std::thread::Builder::new()
        .name("clock".to_owned())
        .spawn(measure);
}

fn ask_markers(clock: &DeviceClock, queue: &Queue, patience: Option<Duration>) -> bool {
    let mut failures = 0;
    clock.measured((0..READINGS).filter_map(|_| {
        let reading = (failures < MOST_FAILURES).then(|| read_by_marker(queue, patience))?;
        failures += usize::from(reading.is_err());
        reading.ok()
    }))
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
