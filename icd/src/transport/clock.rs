//! The one scale of all times: the client's host clock, and a session's node by it.
//!
//! A node's clock is read by a few questions, one after the other, on a thread of their own; nobody waits for
//! it but who asks for a time before it is done. The surest reading gives the offset, which is fixed then for
//! the session's life: times keep their order and their distances. It starts when somebody will want times (a
//! profiling queue is made), so that a program without profiling pays nothing.
//!
//! Invariant: all times of one session are mapped with the same offset.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_proto::clock::{Offset, Reading};
use causeway_proto::command::{Answer, Command, Ping, Query, answer, command, query};
use causeway_proto::id::RequestId;
use parking_lot::{Condvar, Mutex};

use super::Session;
use super::gauge::Gauge;
use crate::thread::{self, Stack};

/// How often the node's clock is read.
const READINGS: usize = 8;
/// A far node's clock is read less often, but once.
const READING_TIME: Duration = Duration::from_millis(300);
/// The longest that anybody waits for the first reading; heartbeats end a session that hangs.
const WAIT_LIMIT: Duration = Duration::from_secs(5);

/// The client's host clock: monotonic, in ns. What `clGetHostTimer` tells.
#[must_use]
pub fn host_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// What is known of a node's clock.
#[derive(Debug, Default)]
pub(super) struct NodeClock {
    state: Mutex<State>,
    known: Condvar,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Unread,
    Reading,
    /// For good; none when the session was lost before.
    Read(Option<Offset>),
}

impl NodeClock {
    /// Begins to read the clock, if nobody has.
    pub(super) fn read(&self, session: &Arc<Session>, gauge: &Arc<Gauge>, next: fn() -> RequestId) {
        {
            let mut state = self.state.lock();
            if !matches!(*state, State::Unread) {
                return;
            }
            *state = State::Reading;
        }
        let (session, gauge) = (Arc::clone(session), Arc::clone(gauge));
        let reading = move || {
            let best = read_all(&session, next);
            if let Some(best) = best {
                // It is half of the round trip.
                gauge.set_round_trip(Duration::from_nanos(best.uncertainty.saturating_mul(2)));
            }
            session.clock().set(best);
        };
        if !thread::spawn("cw-clock", Stack::Small, reading) {
            self.set(None);
        }
    }

    /// The offset, once it is known.
    pub(super) fn offset(&self) -> Option<Offset> {
        let mut state = self.state.lock();
        let reading = |state: &mut State| matches!(*state, State::Reading);
        let _ = self.known.wait_while_for(&mut state, reading, WAIT_LIMIT);
        match *state {
            State::Read(offset) => offset,
            State::Unread | State::Reading => None,
        }
    }

    fn set(&self, offset: Option<Offset>) {
        *self.state.lock() = State::Read(offset);
        self.known.notify_all();
    }
}

fn read_all(session: &Session, next: fn() -> RequestId) -> Option<Offset> {
    let begun = Instant::now();
    let mut best: Option<Offset> = None;
    for _ in 0..READINGS {
        let question = query::Question::Ping(Ping {});
        let Some((reading, _)) = ask(session, next(), question) else {
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

/// Asks a node for a time: its host clock read by ours, and the device's time where that was the question.
pub(super) fn ask(
    session: &Session,
    request: RequestId,
    question: query::Question,
) -> Option<(Reading, u64)> {
    let command = Command {
        kind: Some(command::Kind::Query(Query {
            request: request.0,
            question: Some(question),
        })),
    };
    let before = host_ns();
    let answered = session.request(request, &command);
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
