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
use crate::fork;
pub use crate::host_clock::host_ns;
use crate::thread::{self, Stack};

/// Number of readings of a node's clock.
const READINGS: usize = 8;
/// After this time no further reading starts, but at least two are made: the connections may have been broken during
/// the first. It limits the readings of a distant node.
const READING_TIME: Duration = Duration::from_millis(300);

/// The time since the machine's start, also that in which it was suspended.
pub(super) fn since_boot() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}

/// Clock state of one node.
#[derive(Debug, Default)]
pub struct NodeClock {
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
            let begun = Instant::now();
            let best = read_all(ask, || begun.elapsed());
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

    /// The offset, once it is known. Waits for a reading in progress, which the loss of the session ends.
    pub(super) fn offset(&self) -> Option<Offset> {
        let mut state = self.state.lock();
        // A child of `fork` does not have the thread that reads.
        let reading =
            |state: &mut ClockState| matches!(*state, ClockState::Reading) && !fork::is_child();
        self.known.wait_while(&mut state, reading);
        match *state {
            ClockState::Read(offset) => offset,
            ClockState::Unread | ClockState::Reading => None,
        }
    }

    /// Like `offset`, but waits no longer than this. `None` if the clock is still being read then.
    #[must_use]
    pub fn offset_within(&self, patience: Duration) -> Option<Option<Offset>> {
        let mut state = self.state.lock();
        let reading = |state: &mut ClockState| matches!(*state, ClockState::Reading);
        if !patience.is_zero() {
            self.known.wait_while_for(&mut state, reading, patience);
        }
        match *state {
            ClockState::Read(offset) => Some(offset),
            ClockState::Unread => Some(None),
            ClockState::Reading => None,
        }
    }

    fn set(&self, offset: Option<Offset>) {
        *self.state.lock() = ClockState::Read(offset);
        self.known.notify_all();
    }
}

fn read_all(
    mut ask: impl FnMut() -> Option<Reading>,
    elapsed: impl Fn() -> Duration,
) -> Option<Offset> {
    let mut best: Option<Offset> = None;
    for number in 1..=READINGS {
        let Some(reading) = ask() else {
            break;
        };
        best = match (best, reading.offset()) {
            (Some(best), Some(offset)) => Some(best.surer(offset)),
            (best, offset) => best.or(offset),
        };
        if number > 1 && elapsed() > READING_TIME {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Reads a clock whose answers take so long. Returns the number of readings too.
    fn read(round_trips: &[Duration]) -> (Option<Offset>, usize) {
        let (now, count) = (Cell::new(Duration::ZERO), Cell::new(0));
        let ask = || {
            let before = now.get();
            let took = round_trips.get(count.get())?;
            now.set(before + *took);
            count.set(count.get() + 1);
            let [before, after] = [before, now.get()].map(|at| at.as_nanos() as u64);
            // The remote clock is read when the answer leaves, right before it arrives.
            Some(Reading::of_moment(before, after, after))
        };
        (read_all(ask, || now.get()), count.get())
    }

    #[test]
    fn a_break_during_the_first_reading_does_not_make_the_offset_wrong() {
        let (near, broken) = (Duration::from_millis(1), Duration::from_secs(5));
        let (offset, count) = read(&[broken, near, near]);
        assert!(offset.unwrap().uncertainty <= 1_000_000, "{offset:?}");
        assert_eq!(count, 2);
    }

    #[test]
    fn a_distant_node_is_read_less_often() {
        let (near, far) = (Duration::from_millis(1), Duration::from_millis(200));
        assert_eq!(read(&[near; 20]).1, READINGS);
        assert_eq!(read(&[far; 20]).1, 2);
        // The session is lost.
        assert_eq!(read(&[]), (None, 0));
    }
}
