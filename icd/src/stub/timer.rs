//! Times as the application sees them: all on one scale, the client's host clock.
//!
//! A command is queued when the application enqueues it, here; the other moments come from its node. They
//! are shown in order whatever the error of the node's clock, and what lies between start and end is never
//! changed. Of a command that is made of parts on several nodes the start is the first part's. A device's timer is its node's, on the same scale: so `clGetDeviceAndHostTimer`,
//! `clGetHostTimer` and profiling agree.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use causeway_proto::clock::Offset;
use causeway_proto::command::DeviceTimer;
use causeway_proto::id::RequestId;
use causeway_proto::status::Status;

use super::event::Start;
use super::{Device, Queue, SessionLink, next_id};
use crate::error::ClResult;
use crate::transport::{Session, clock};

// The latest time of a device that the application was told.
static READ: AtomicU64 = AtomicU64::new(0);

/// `CL_PLATFORM_HOST_TIMER_RESOLUTION`, ns.
pub const HOST_RESOLUTION: u64 = 1;

/// `clGetHostTimer`.
#[must_use]
pub fn host_ns() -> u64 {
    clock::host_ns()
}

/// `clGetDeviceAndHostTimer`: the device's time and the host's, at about the same moment. Waits for the node;
/// opens its session if there is none.
///
/// # Errors
/// What the wire says.
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

/// A queue was made: if it profiles, somebody will ask for times.
pub fn prepare(queue: &Queue) {
    if queue.is_profiling() {
        // Its commands may have parts on every site.
        for site in queue.context().sites() {
            site.session().read_clock(next_request);
        }
    }
}

/// The time of an enqueue; 0 where nobody can ask for it. Not before any timer that the application has read,
/// although that may be ahead by the error of its node's clock.
pub(super) fn stamp(queue: &Queue) -> u64 {
    if queue.is_profiling() {
        host_ns().max(READ.load(Ordering::Relaxed))
    } else {
        0
    }
}

/// The five moments of a command of this queue: enqueued at `queued` here; the others as its node told them, but
/// that it started with the first of `starts`, if that was before.
pub(super) fn moments_of(
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

fn moments(queued: u64, told: [u64; 5], offset: Offset, first: Option<u64>) -> [u64; 5] {
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
        // By the error of the node's clock it came before it was sent.
        assert_eq!(
            moments(103, [0, 1100, 1200, 1300, 1300], offset, None),
            [100, 100, 200, 300, 300]
        );
    }
}
