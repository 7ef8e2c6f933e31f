//! The common time scale: the client's host clock, to which the times of each session's node are
//! converted.
//!
//! A few queries read a node's clock, one after the other, on a separate thread. Only callers that ask
//! for a time before it is done wait for it. The most precise reading gives the offset, which then stays
//! fixed for the session's life, so times keep their order and their distances. Reading starts when times
//! will be needed (a profiling queue is created), so that a program without profiling pays nothing.
//!
//! Invariant: all times of one session are converted with the same offset.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_proto::clock::{Offset, Reading};
use causeway_proto::command::{Answer, Command, Query, answer, command, query};
use causeway_proto::id::RequestId;
use causeway_proto::status::WireError;
use parking_lot::{Condvar, Mutex};

use super::gauge::Gauge;
use crate::thread::{self, Stack};

/// Number of readings of a node's clock.
const READINGS: usize = 8;
/// After this time no further reading starts, but at least one is made. It limits the readings of a
/// distant node.
const READING_TIME: Duration = Duration::from_millis(300);
/// Maximum wait for the readings. Heartbeats end a session whose node does not answer.
const WAIT_LIMIT: Duration = Duration::from_secs(5);

/// The client's host clock: monotonic, in nanoseconds, as `clGetHostTimer` returns it.
#[must_use]
pub fn host_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// The time since the machine's start, also that in which it was suspended.
pub(super) fn since_boot() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}

/// Clock state of one node.
#[derive(Debug, Default)]
pub(super) struct NodeClock {
    state: Mutex<ClockState>,
    known: Condvar,
}

#[derive(Debug, Default)]
enum ClockState {
    #[default]
    Unread,
    Reading,
    /// Final; `None` if the session was lost before the first reading.
    Read(Option<Offset>),
}

impl NodeClock {
    /// Starts to read the clock, unless that was done before. `ask` queries the node once; `None` means
    /// that the session is lost.
    pub(super) fn read(
        self: &Arc<Self>,
        gauge: &Arc<Gauge>,
        ask: impl FnMut() -> Option<Reading> + Send + 'static,
    ) {
        {
            let mut state = self.state.lock();
            if !matches!(*state, ClockState::Unread) {
                return;
            }
            *state = ClockState::Reading;
        }
        let (clock, gauge) = (Arc::clone(self), Arc::clone(gauge));
        let reading = move || {
            let best = read_all(ask);
            if let Some(best) = best {
                // The uncertainty is half of the round trip.
                gauge.set_round_trip(Duration::from_nanos(best.uncertainty.saturating_mul(2)));
            }
            clock.set(best);
        };
        if !thread::spawn("cw-clock", Stack::Small, reading) {
            self.set(None);
        }
    }

    /// The offset, once it is known. Waits for a reading in progress.
    pub(super) fn offset(&self) -> Option<Offset> {
        let mut state = self.state.lock();
        let reading = |state: &mut ClockState| matches!(*state, ClockState::Reading);
        let _ = self.known.wait_while_for(&mut state, reading, WAIT_LIMIT);
        match *state {
            ClockState::Read(offset) => offset,
            ClockState::Unread | ClockState::Reading => None,
        }
    }

    fn set(&self, offset: Option<Offset>) {
        *self.state.lock() = ClockState::Read(offset);
        self.known.notify_all();
    }
}

fn read_all(mut ask: impl FnMut() -> Option<Reading>) -> Option<Offset> {
    let begun = Instant::now();
    let mut best: Option<Offset> = None;
    for _ in 0..READINGS {
        let Some(reading) = ask() else {
            break;
        };
        best = match (best, reading.offset()) {
            (Some(best), Some(offset)) => Some(best.surer(offset)),
            (best, offset) => best.or(offset),
        };
        if begun.elapsed() > READING_TIME {
            break;
        }
    }
    best
}

/// Queries a time from a node; `send` sends the query and returns the answer. Returns the reading of the
/// node's host clock by the client's clock, and the device's time if the question asked for it.
pub(super) fn ask(
    request: RequestId,
    question: query::Question,
    send: impl FnOnce(&Command) -> Result<Answer, WireError>,
) -> Option<(Reading, u64)> {
    let command = Command {
        kind: Some(command::Kind::Query(Query {
            request: request.0,
            question: Some(question),
        })),
    };
    let before = host_ns();
    let answered = send(&command);
    let after = host_ns();
    match answered {
        Ok(Answer {
            body: Some(answer::Body::Timer(timer)),
            ..
        }) => Some((
            Reading::of_moment(before, timer.host_ns, after),
            timer.device_ns,
        )),
        _ => None,
    }
}
