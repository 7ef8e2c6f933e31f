//! Whether a daemon measures a link now.
//!
//! Pure: times come in. Invariants: one measurement at a time. Without force, streams take [`MOST_MEASURING`] of any minute at
//! most, and so do one user's measurements without streams, which keep others waiting. Beside an active session, no measurement
//! begins if the minute's streams, or the user's measurements without streams, would take more than [`MOST_BESIDE_SESSIONS`].

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Time of a minute that measurements may take.
const MOST_MEASURING: Duration = Duration::from_secs(10);
/// Time of a minute that measurements may take beside sessions that execute commands. Their packets wait behind those of a
/// stream, which costs a program that waits for many short answers a quarter of its speed (`measured_proof`).
const MOST_BESIDE_SESSIONS: Duration = Duration::from_secs(5);
const MINUTE: Duration = Duration::from_secs(60);
/// Time that a measurement without streams takes at least. It limits how many of one user are recorded.
const LEAST_FRUITLESS: Duration = Duration::from_millis(100);

/// Traffic of sessions, in bytes per second, above which a daemon measures only by force.
pub const MOST_TRAFFIC: u64 = 1_000_000;

/// Why a daemon does not measure now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Another measurement is in progress, or the last minute had enough of them.
    #[error(transparent)]
    Busy(#[from] Busy),
    /// The measurement is longer than a minute's allowance.
    #[error(
        "the measurement loads the node for {} ms, and a node measures for {} s a minute, beside active sessions for {} s; \
         take a shorter time, or let an administrator use --force",
        .0.as_millis(), MOST_MEASURING.as_secs(), MOST_BESIDE_SESSIONS.as_secs()
    )]
    Long(Duration),
    /// Sessions move data, which a measurement would disturb.
    #[error(
        "sessions of the node move {} kB/s now, and a measurement would disturb them; try again later, or let an \
         administrator use --force", .0 / 1000
    )]
    Traffic(u64),
}

/// The node can measure again after this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the node is measuring already, or has measured enough in the last minute; try again in {} ms", .0.as_millis())]
pub struct Busy(pub Duration);

/// What the sessions of a daemon do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionLoad {
    /// Bytes per second that they move.
    pub traffic: u64,
    /// Whether they execute commands.
    pub is_active: bool,
}

impl SessionLoad {
    /// Time of a minute that measurements may take.
    fn allowance(&self) -> Duration {
        match self.is_active {
            true => MOST_BESIDE_SESSIONS,
            false => MOST_MEASURING,
        }
    }
}

/// Who asks for a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'a> {
    /// Their name; empty: anyone.
    pub user: &'a str,
    /// Whether the node's limits do not apply.
    pub is_forced: bool,
}

/// What a measurement was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Used {
    /// It has loaded the network.
    Streams,
    /// No other end was reached, or none has come.
    Nothing,
    /// It has not begun at all.
    NotBegun,
}

#[derive(Debug)]
struct Past {
    began: Instant,
    took: Duration,
    /// The user of a measurement without streams. `None`: it had streams, and counts for all users.
    fruitless_of: Option<String>,
}

/// The record of a daemon's measurements.
#[derive(Debug, Default)]
pub struct Admission {
    /// The last minute's measurements.
    past: VecDeque<Past>,
    /// The measurement in progress.
    current: Option<Current>,
}

#[derive(Debug)]
struct Current {
    began: Instant,
    streams: Duration,
    user: String,
    /// The latest end.
    until: Instant,
}

impl Admission {
    /// Begins a measurement that ends within `limit`. `streams` is the time in which it loads the network.
    ///
    /// # Errors
    /// [`Refused`]; nothing has begun then.
    pub fn begin(
        &mut self,
        now: Instant,
        (streams, limit): (Duration, Duration),
        sessions: SessionLoad,
        asker: Asker,
    ) -> Result<(), Refused> {
        let allowance = sessions.allowance();
        if streams > allowance && !asker.is_forced {
            return Err(Refused::Long(streams));
        }
        if let Some(current) = &self.current {
            let left = current.until.saturating_duration_since(now);
            return Err(Busy(left.max(Duration::from_millis(1))).into());
        }
        self.past
            .retain(|past| now.saturating_duration_since(past.began) < MINUTE);
        if !asker.is_forced {
            if let Some(wait) = self.wait_for(now, (streams, allowance), asker.user) {
                return Err(Busy(wait).into());
            }
            if sessions.traffic > MOST_TRAFFIC {
                return Err(Refused::Traffic(sessions.traffic));
            }
        }
        self.current = Some(Current {
            began: now,
            streams,
            user: asker.user.to_owned(),
            until: now + limit,
        });
        Ok(())
    }

    /// Ends the measurement that has begun. One that has not loaded the network counts for its user only, with the time in
    /// which the node could measure nothing else.
    pub fn end(&mut self, now: Instant, used: Used) {
        let Some(current) = self.current.take() else {
            return;
        };
        let (took, fruitless_of) = match used {
            Used::NotBegun => return,
            Used::Streams => (current.streams, None),
            Used::Nothing => {
                let took = now.saturating_duration_since(current.began);
                (took.max(LEAST_FRUITLESS), Some(current.user))
            }
        };
        self.past.push_back(Past {
            began: current.began,
            took,
            fruitless_of,
        });
    }

    /// How long it takes until the user's minute has room for `streams`. `None`: it has room.
    fn wait_for(
        &self,
        now: Instant,
        (streams, allowance): (Duration, Duration),
        user: &str,
    ) -> Option<Duration> {
        let counts = |past: &&Past| past.fruitless_of.as_deref().is_none_or(|of| of == user);
        let past = self.past.iter().filter(counts);
        let mut taken: Duration = past.clone().map(|past| past.took).sum();
        let mut wait = None;
        for past in past {
            if taken + streams <= allowance {
                break;
            }
            taken -= past.took;
            let left = MINUTE.saturating_sub(now.saturating_duration_since(past.began));
            wait = Some(left.max(Duration::from_millis(1)));
        }
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const S: Duration = Duration::from_secs(1);
    const SHORT: (Duration, Duration) = (S, Duration::from_secs(3));
    const ALICE: Asker = Asker {
        user: "alice",
        is_forced: false,
    };
    const BOB: Asker = Asker {
        user: "bob",
        is_forced: false,
    };
    const FORCED: Asker = Asker {
        user: "root",
        is_forced: true,
    };

    const IDLE: SessionLoad = SessionLoad {
        traffic: 0,
        is_active: false,
    };
    const ACTIVE: SessionLoad = SessionLoad {
        traffic: 0,
        is_active: true,
    };

    fn moving(traffic: u64) -> SessionLoad {
        SessionLoad {
            traffic,
            is_active: true,
        }
    }

    #[test]
    fn a_busy_daemon_says_how_long() {
        let mut admission = Admission::default();
        let now = Instant::now();
        admission.begin(now, SHORT, IDLE, ALICE).unwrap();
        let busy = admission.begin(now + S, SHORT, IDLE, FORCED);
        assert_eq!(busy, Err(Busy(2 * S).into()));
        admission.end(now + S, Used::Streams);
        admission.begin(now + S, SHORT, IDLE, ALICE).unwrap();
    }

    #[test]
    fn a_minute_has_ten_seconds_and_force_has_more() {
        let mut admission = Admission::default();
        let now = Instant::now();
        for second in 0..10 {
            let now = now + second * S;
            admission.begin(now, SHORT, IDLE, ALICE).unwrap();
            admission.end(now + S, Used::Streams);
        }
        let busy = admission.begin(now + 10 * S, SHORT, IDLE, BOB);
        assert_eq!(busy, Err(Busy(50 * S).into()));
        admission.begin(now + 10 * S, SHORT, IDLE, FORCED).unwrap();
        admission.end(now + 10 * S, Used::NotBegun);
        admission.begin(now + 60 * S, SHORT, IDLE, ALICE).unwrap();
    }

    #[test]
    fn longer_than_the_allowance_takes_force() {
        let mut admission = Admission::default();
        let now = Instant::now();
        let long = (20 * S, 25 * S);
        let refused = admission.begin(now, long, IDLE, ALICE);
        assert_eq!(refused, Err(Refused::Long(20 * S)));
        admission.begin(now, (10 * S, 15 * S), IDLE, ALICE).unwrap();
        admission.end(now + 10 * S, Used::Streams);
        admission.begin(now + 11 * S, long, IDLE, FORCED).unwrap();
    }

    #[test]
    fn beside_active_sessions_a_minute_has_five_seconds() {
        let mut admission = Admission::default();
        let now = Instant::now();
        let refused = admission.begin(now, (6 * S, 11 * S), ACTIVE, ALICE);
        assert_eq!(refused, Err(Refused::Long(6 * S)));
        for second in 0..5 {
            let now = now + second * S;
            admission.begin(now, SHORT, ACTIVE, ALICE).unwrap();
            admission.end(now + S, Used::Streams);
        }
        let now = now + 5 * S;
        let busy = admission.begin(now, SHORT, ACTIVE, BOB);
        assert_eq!(busy, Err(Busy(55 * S).into()));
        // The sessions are idle now. What they had beside them counts.
        for second in 0..5 {
            let now = now + second * S;
            admission.begin(now, SHORT, IDLE, ALICE).unwrap();
            admission.end(now + S, Used::Streams);
        }
        let now = now + 5 * S;
        let busy = admission.begin(now, SHORT, IDLE, ALICE);
        assert_eq!(busy, Err(Busy(50 * S).into()));
        // The first six must be over before the minute has room for a fifth.
        let busy = admission.begin(now, SHORT, ACTIVE, ALICE);
        assert_eq!(busy, Err(Busy(55 * S).into()));
        admission.begin(now, SHORT, ACTIVE, FORCED).unwrap();
    }

    #[test]
    fn attempts_without_streams_are_counted_for_their_user_only() {
        let mut admission = Admission::default();
        let now = Instant::now();
        for attempt in 0..2 {
            let now = now + attempt * 5 * S;
            admission.begin(now, SHORT, IDLE, ALICE).unwrap();
            admission.end(now + 5 * S, Used::Nothing);
        }
        let now = now + 10 * S;
        let busy = admission.begin(now, SHORT, IDLE, ALICE);
        assert_eq!(busy, Err(Busy(50 * S).into()));
        admission.begin(now, (10 * S, 15 * S), IDLE, BOB).unwrap();
    }

    #[test]
    fn traffic_of_sessions_goes_first() {
        let mut admission = Admission::default();
        let now = Instant::now();
        let refused = admission.begin(now, SHORT, moving(MOST_TRAFFIC + 1), ALICE);
        assert_eq!(refused, Err(Refused::Traffic(MOST_TRAFFIC + 1)));
        admission
            .begin(now, SHORT, moving(MOST_TRAFFIC), ALICE)
            .unwrap();
        admission.end(now, Used::Streams);
        admission
            .begin(now, SHORT, moving(u64::MAX), FORCED)
            .unwrap();
    }

    proptest! {
        #[test]
        fn no_minute_has_more_than_its_ten_seconds(
            asks in prop::collection::vec((0_u64..9_000, 100_u64..20_000, any::<bool>(), any::<bool>()), 1..80)
        ) {
            let begin = Instant::now();
            let mut admission = Admission::default();
            let (mut now, mut admitted) = (begin, Vec::new());
            for (pause, streams, has_streamed, is_active) in asks {
                now += Duration::from_millis(pause);
                let streams = Duration::from_millis(streams);
                let times = (streams, streams + S);
                let sessions = SessionLoad { traffic: 0, is_active };
                match admission.begin(now, times, sessions, ALICE) {
                    Ok(()) => {}
                    // The answer is exact: then there is room.
                    Err(Refused::Busy(Busy(wait))) => {
                        now += wait;
                        prop_assert_eq!(admission.begin(now, times, sessions, ALICE), Ok(()));
                    }
                    Err(Refused::Long(_)) => {
                        prop_assert!(streams > sessions.allowance());
                        continue;
                    }
                    Err(other) => prop_assert!(false, "{other}"),
                }
                let used = if has_streamed { Used::Streams } else { Used::Nothing };
                admission.end(now, used);
                if has_streamed {
                    admitted.push((now, streams, sessions));
                }
            }
            for (at, _, sessions) in &admitted {
                let within = admitted.iter().filter(|(began, ..)| began <= at && *at - *began < MINUTE);
                let sum: Duration = within.map(|(_, took, _)| *took).sum();
                prop_assert!(sum <= sessions.allowance(), "{sum:?}");
            }
        }
    }
}
