//! Whether a daemon measures a link now.
//!
//! Pure: times come in. Invariants: one measurement at a time. Without force, measurements take [`MOST_MEASURING`] of
//! any minute at most.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Time of a minute that measurements may take.
const MOST_MEASURING: Duration = Duration::from_secs(10);
const MINUTE: Duration = Duration::from_secs(60);

/// Traffic of sessions, in bytes per second, above which a daemon measures only by force.
pub const MOST_TRAFFIC: u64 = 1_000_000;

/// Why a daemon does not measure now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Another measurement is in progress, or the last minute had enough of them.
    #[error(transparent)]
    Busy(#[from] Busy),
    /// Sessions move data, which a measurement would disturb.
    #[error(
        "sessions of the node move {} kB/s now, and a measurement would disturb them; try again later, or let an \
         administrator use --force", .0 / 1000
    )]
    Traffic(u64),
}

/// The node can measure again after this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the node is measuring already, or has measured for 10 s of the last minute; try again in {} ms", .0.as_millis())]
pub struct Busy(pub Duration);

/// The record of a daemon's measurements.
#[derive(Debug, Default)]
pub struct Admission {
    /// Start and reserved or used time of the last minute's measurements.
    past: VecDeque<(Instant, Duration)>,
    /// The latest end of the measurement in progress.
    until: Option<Instant>,
}

impl Admission {
    /// Begins a measurement that ends within `limit`. `streams` is the time in which it loads the network. `traffic` is
    /// that of sessions, in bytes per second.
    ///
    /// # Errors
    /// [`Refused`]; nothing has begun then.
    pub fn begin(
        &mut self,
        now: Instant,
        (streams, limit): (Duration, Duration),
        traffic: u64,
        is_forced: bool,
    ) -> Result<(), Refused> {
        if let Some(until) = self.until {
            let left = until.saturating_duration_since(now);
            return Err(Busy(left.max(Duration::from_millis(1))).into());
        }
        self.past
            .retain(|(began, _)| now.saturating_duration_since(*began) < MINUTE);
        if !is_forced {
            if let Some(wait) = self.wait_for(now, streams) {
                return Err(Busy(wait).into());
            }
            if traffic > MOST_TRAFFIC {
                return Err(Refused::Traffic(traffic));
            }
        }
        self.past.push_back((now, streams));
        self.until = Some(now + limit);
        Ok(())
    }

    /// Ends the measurement that has begun. One that has not loaded the network is not counted.
    pub fn end(&mut self, has_streamed: bool) {
        if self.until.take().is_some() && !has_streamed {
            self.past.pop_back();
        }
    }

    /// How long it takes until the minute has room for `streams`. `None`: it has room.
    fn wait_for(&self, now: Instant, streams: Duration) -> Option<Duration> {
        let mut taken: Duration = self.past.iter().map(|(_, took)| *took).sum();
        // A measurement that is longer than the allowance is possible if there was no other.
        let room = MOST_MEASURING.max(streams);
        let mut wait = None;
        for (began, took) in &self.past {
            if taken + streams <= room {
                break;
            }
            taken -= *took;
            let left = MINUTE.saturating_sub(now.saturating_duration_since(*began));
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

    #[test]
    fn a_busy_daemon_says_how_long() {
        let mut admission = Admission::default();
        let now = Instant::now();
        admission.begin(now, SHORT, 0, false).unwrap();
        let busy = admission.begin(now + S, SHORT, 0, true);
        assert_eq!(busy, Err(Busy(2 * S).into()));
        admission.end(true);
        admission.begin(now + S, SHORT, 0, false).unwrap();
    }

    #[test]
    fn a_minute_has_ten_seconds_and_force_has_more() {
        let mut admission = Admission::default();
        let now = Instant::now();
        for second in 0..10 {
            admission.begin(now + second * S, SHORT, 0, false).unwrap();
            admission.end(true);
        }
        let busy = admission.begin(now + 10 * S, SHORT, 0, false);
        assert_eq!(busy, Err(Busy(50 * S).into()));
        admission.begin(now + 10 * S, SHORT, 0, true).unwrap();
        admission.end(false);
        admission.begin(now + 60 * S, SHORT, 0, false).unwrap();
    }

    #[test]
    fn traffic_of_sessions_goes_first() {
        let mut admission = Admission::default();
        let now = Instant::now();
        let refused = admission.begin(now, SHORT, MOST_TRAFFIC + 1, false);
        assert_eq!(refused, Err(Refused::Traffic(MOST_TRAFFIC + 1)));
        admission.begin(now, SHORT, MOST_TRAFFIC, false).unwrap();
        admission.end(true);
        admission.begin(now, SHORT, u64::MAX, true).unwrap();
    }

    proptest! {
        #[test]
        fn no_minute_has_more_than_its_ten_seconds(asks in prop::collection::vec((0_u64..9_000, 100_u64..10_000), 1..80)) {
            let begin = Instant::now();
            let mut admission = Admission::default();
            let (mut now, mut admitted) = (begin, Vec::new());
            for (pause, streams) in asks {
                now += Duration::from_millis(pause);
                let streams = Duration::from_millis(streams);
                match admission.begin(now, (streams, streams + S), 0, false) {
                    Ok(()) => {
                        admission.end(true);
                        admitted.push((now, streams));
                    }
                    // The answer is exact: then there is room.
                    Err(Refused::Busy(Busy(wait))) => {
                        now += wait;
                        prop_assert_eq!(admission.begin(now, (streams, streams + S), 0, false), Ok(()));
                        admission.end(true);
                        admitted.push((now, streams));
                    }
                    Err(other) => prop_assert!(false, "{other}"),
                }
            }
            for (at, _) in &admitted {
                let within = |(began, _): &&(Instant, Duration)| *began <= *at && *at - *began < MINUTE;
                let sum: Duration = admitted.iter().filter(within).map(|(_, took)| *took).sum();
                prop_assert!(sum <= MOST_MEASURING, "{sum:?}");
            }
        }
    }
}
