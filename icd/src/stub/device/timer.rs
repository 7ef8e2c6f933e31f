//! Times as the application sees them: all on one scale, the client's host clock.
//!
//! The client records when a command is enqueued; the node reports the other times. The times are always
//! presented in order, whatever the error of the node's clock, and the duration from start to end is not
//! changed. A command with parts on several nodes starts with its first part. A device's timer is that of
//! its node, on the same scale. So `clGetDeviceAndHostTimer`, `clGetHostTimer` and profiling agree.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use causeway_proto::clock::Offset;
use causeway_proto::command::DeviceTimer;
use causeway_proto::id::RequestId;
use causeway_proto::status::Status;

use crate::error::ClResult;
use crate::stub::event::Start;
use crate::stub::{Device, Queue, SessionLink, next_id};
use crate::transport::{Session, clock};

// The latest device time that the application has read.
static READ: AtomicU64 = AtomicU64::new(0);

/// `CL_PLATFORM_HOST_TIMER_RESOLUTION`, in nanoseconds.
pub const HOST_RESOLUTION: u64 = 1;

/// `clGetHostTimer`: returns the host clock, in nanoseconds.
#[must_use]
pub fn host_ns() -> u64 {
    clock::host_ns()
}

/// `clGetDeviceAndHostTimer`: returns the device's time and the host's, at about the same moment, in
/// nanoseconds. Waits for the node, and opens a session if there is none.
///
/// # Errors
/// The code of the wire error.
pub fn device_and_host(device: &Arc<Device>) -> ClResult<(u64, u64)> {
    let links = SessionLink::open_all(&[device.node()])?;
    device.ensure_on(&links[0])?;
    let session = links[0].session();
    session.read_clock(next_request);
    let Some(offset) = session.clock_offset() else {
        return Err(Status::DEVICE_NOT_AVAILABLE);
    };
    let question = DeviceTimer {
        platform: device.platform().0,
        device: device.index().0,
    };
    let (device, host) = session.device_time(next_request(), question)?;
    let device = offset.apply(device);
    READ.fetch_max(device, Ordering::Relaxed);
    Ok((device, host))
}

/// Reads the nodes' clocks for a new queue that profiles, because its times will be needed.
pub fn prepare(queue: &Queue) {
    if queue.records_times() {
        // Commands may have parts on every site.
        for site in queue.context().sites() {
            site.session().read_clock(next_request);
        }
    }
}

/// Returns the time of an enqueue; 0 if the queue does not profile. The time is not before any device time
/// that the application has read, which may be ahead by the error of the node's clock.
pub(in crate::stub) fn stamp(queue: &Queue) -> u64 {
    if queue.records_times() {
        host_ns().max(READ.load(Ordering::Relaxed))
    } else {
        0
    }
}

/// Returns the five times of a command of this queue. `queued` is the host time of the enqueue, and `told`
/// are the node's times. If one of `starts` is earlier than the node's start time, it replaces that. `None`
/// if a clock offset is unknown.
pub(in crate::stub) fn moments_of(
    queue: &Queue,
    queued: u64,
    told: [u64; 5],
    starts: &[Start],
) -> Option<[u64; 5]> {
    let offset = session_of(queue).clock_offset()?;
    let here = |start: &Start| match &start.site {
        Some(site) => Some(site.session().clock_offset()?.apply(start.ns)),
        None => Some(start.ns),
    };
    let first = starts.iter().filter_map(here).min();
    Some(moments(queued, told, offset, first))
}

fn session_of(queue: &Queue) -> &Arc<Session> {
    queue.context().site_of(queue.device()).session()
}

pub(in crate::stub) fn moments(
    queued: u64,
    told: [u64; 5],
    offset: Offset,
    first: Option<u64>,
) -> [u64; 5] {
    let [_, submitted, started, ended, completed] = told.map(|ns| offset.apply(ns));
    let started = started.min(ended).min(first.unwrap_or(u64::MAX));
    let submitted = submitted.min(started);
    let completed = completed.max(ended);
    [queued.min(submitted), submitted, started, ended, completed]
}

fn next_request() -> RequestId {
    RequestId(next_id())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn moments_are_in_order_and_durations_stay(
            queued in 0u64..1 << 40, told in prop::array::uniform5(1u64 << 41..1 << 42), ns in -(1i64 << 40)..1 << 40,
            first in 1u64 << 40..1 << 43,
        ) {
            let offset = Offset { ns, uncertainty: 0 };
            let shown = moments(queued, told, offset, None);
            prop_assert!(shown.is_sorted());
            let earlier = moments(queued, told, offset, Some(first));
            prop_assert!(earlier.is_sorted());
            prop_assert_eq!((earlier[2], earlier[3]), (shown[2].min(first), shown[3]));
            if told[2] <= told[3] {
                prop_assert_eq!(shown[3] - shown[2], told[3] - told[2]);
            }
        }
    }

    #[test]
    fn what_was_enqueued_here_is_told_as_here() {
        let offset = Offset {
            ns: -1000,
            uncertainty: 5,
        };
        assert_eq!(
            moments(90, [0, 1100, 1200, 1300, 1400], offset, None),
            [90, 100, 200, 300, 400]
        );
        // By the error of the node's clock, the command ran before it was enqueued.
        assert_eq!(
            moments(103, [0, 1100, 1200, 1300, 1300], offset, None),
            [100, 100, 200, 300, 300]
        );
    }
}
