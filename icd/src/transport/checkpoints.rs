//! When a session asks its worker for a checkpoint.
//!
//! Pure: the caller says what time it is. A checkpoint is due when the log is three quarters full, or after an interval:
//! the one of the settings, or the one that loses least time together. That is √(2·K0·MTBF), where K0 is how long the last
//! checkpoint took.
//!
//! A checkpoint that the client holds is made in two steps: the worker has *copied* it, and then its bytes come.
//!
//! Invariant: at most one checkpoint is asked for at a time, and none while the bytes of one come. After one that cannot be
//! had, none is asked for.
#![forbid(unsafe_code)]

use std::time::Duration;

use crate::config::Hold;

/// Limits of an interval that is chosen here.
const INTERVALS: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(3600));
/// Without an answer for so long, the question is taken for lost, for example with a connection. A worker whose commands go
/// on for too long does not answer. One that still makes the checkpoint ignores another question.
const LOST: Duration = Duration::from_secs(60);

/// How the interval is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Mean time between the deaths of a session's workers.
    pub mtbf: Duration,
    /// The interval of the settings.
    pub interval: Option<Duration>,
}

/// Decides about checkpoints; see the module. All times count from the opening of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoints {
    by: Interval,
    last: Duration,
    took: Duration,
    asked: Option<Duration>,
    is_refused: bool,
    /// The checkpoint whose bytes come: since when, and how many there are.
    comes: Option<(Duration, u64)>,
    /// Bytes per second of the last checkpoint that has come.
    rate: Option<u64>,
}

/// Returns who holds a checkpoint of `bytes` bytes: the client (true) or the node. `rate`: bytes per second of the link, as
/// far as anything is known. [`Hold::Auto`] takes the client if its link carries the checkpoint in a tenth of the interval.
/// While nothing is known of the link, the node holds the checkpoint.
#[must_use]
pub fn client_holds(hold: Hold, bytes: u64, rate: Option<u64>, interval: Duration) -> bool {
    match hold {
        Hold::Node => false,
        Hold::Client => true,
        Hold::Auto => rate.is_some_and(|rate| {
            let carried = u128::from(rate) * interval.as_millis() / 10_000;
            u128::from(bytes) <= carried
        }),
    }
}

impl Checkpoints {
    /// No checkpoint yet.
    #[must_use]
    pub fn new(by: Interval) -> Checkpoints {
        Checkpoints {
            by,
            last: Duration::ZERO,
            took: Duration::ZERO,
            asked: None,
            is_refused: false,
            comes: None,
            rate: None,
        }
    }

    /// Whether a checkpoint is due. `kept` of `limit` bytes are in the log. It then counts as asked for.
    pub fn is_due(&mut self, now: Duration, kept: usize, limit: usize) -> bool {
        let is_asked = |since: Duration| now.saturating_sub(since) < LOST;
        let is_under_way = self.asked.is_some_and(is_asked) || self.comes.is_some();
        if self.is_refused || is_under_way || kept == 0 {
            return false;
        }
        let is_due = kept >= limit / 4 * 3 || now.saturating_sub(self.last) >= self.interval();
        if is_due {
            self.asked = Some(now);
        }
        is_due
    }

    /// The time from one checkpoint to the next.
    #[must_use]
    pub fn interval(&self) -> Duration {
        let Interval { mtbf, interval } = self.by;
        interval.unwrap_or_else(|| {
            let seconds = (2.0 * self.took.as_secs_f64() * mtbf.as_secs_f64()).sqrt();
            // Limited first: a duration has no room for all numbers.
            let most = INTERVALS.1.as_secs_f64();
            Duration::from_secs_f64(seconds.min(most)).max(INTERVALS.0)
        })
    }

    /// Whether an answer may come.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.asked.is_some()
    }

    /// Whether no checkpoint can be had.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// Handles that the checkpoint is whole.
    pub fn made(&mut self, now: Duration) {
        self.stood(now);
        if let Some((since, bytes)) = self.comes.take() {
            let took = now.saturating_sub(since).as_micros().max(1);
            let rate = u128::from(bytes) * 1_000_000 / took;
            self.rate = Some(u64::try_from(rate).unwrap_or(u64::MAX));
        }
        self.last = now;
    }

    /// Handles that the worker has copied the checkpoint, so that the session need not stand for it any more.
    pub fn stood(&mut self, now: Duration) {
        if let Some(asked) = self.asked.take() {
            self.took = now.saturating_sub(asked);
        }
    }

    /// Handles that the `bytes` bytes of a copied checkpoint begin to come.
    pub fn begins_to_come(&mut self, now: Duration, bytes: u64) {
        self.comes = Some((now, bytes));
    }

    /// Whether the bytes of a checkpoint come.
    #[must_use]
    pub fn comes(&self) -> bool {
        self.comes.is_some()
    }

    /// Bytes per second of the link, as far as anything is known: of the last checkpoint that has come, or `measured` with
    /// other transfers. The larger one counts: a small checkpoint, and one that takes turns with the program's transfers,
    /// come more slowly than the link could carry them.
    #[must_use]
    pub fn rate(&self, measured: Option<u64>) -> Option<u64> {
        self.rate.max(measured)
    }

    /// Handles that no checkpoint can be had.
    pub fn refused(&mut self) {
        self.asked = None;
        self.is_refused = true;
    }

    /// Handles that the worker has died, and another one begins.
    pub fn begin_again(&mut self) {
        self.asked = None;
        self.comes = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 100;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    const DAY: u64 = 24 * 3600;

    fn checkpoints(mtbf: u64, interval: Option<u64>) -> Checkpoints {
        Checkpoints::new(Interval {
            mtbf: seconds(mtbf),
            interval: interval.map(seconds),
        })
    }

    #[test]
    fn the_interval_follows_the_settings() {
        for (mtbf, fixed, took, interval) in [
            (DAY, None, 12, 1440),
            (DAY / 4, None, 12, 720),
            // Deaths are rarer than the longest interval can say.
            (u64::MAX, None, 12, 3600),
            (1, None, 1, 10),
            (DAY, Some(3), 12, 3),
            (DAY, Some(DAY), 12, DAY),
        ] {
            let mut checkpoints = checkpoints(mtbf, fixed);
            assert!(checkpoints.is_due(seconds(9), 75, LIMIT));
            checkpoints.made(seconds(9 + took));
            assert_eq!(checkpoints.interval(), seconds(interval));
        }
        let mut often = checkpoints(DAY, Some(3));
        assert!(!often.is_due(seconds(2), 1, LIMIT));
        assert!(often.is_due(seconds(3), 1, LIMIT));
    }

    #[test]
    fn a_checkpoint_is_due_after_the_interval_or_when_the_log_is_nearly_full() {
        let mut checkpoints = checkpoints(DAY, None);
        assert!(!checkpoints.is_due(seconds(9), 74, LIMIT));
        assert!(checkpoints.is_due(seconds(9), 75, LIMIT));
        // Asked for.
        assert!(!checkpoints.is_due(seconds(20), 80, LIMIT));
        checkpoints.made(seconds(21));
        // 12 s at 86400 s give 1440 s.
        assert_eq!(checkpoints.interval(), seconds(1440));
        assert!(!checkpoints.is_due(seconds(21 + 1439), 1, LIMIT));
        assert!(!checkpoints.is_due(seconds(21 + 1440), 0, LIMIT));
        assert!(checkpoints.is_due(seconds(21 + 1440), 1, LIMIT));
    }

    #[test]
    fn while_a_checkpoint_comes_none_is_due() {
        let mut checkpoints = checkpoints(DAY, None);
        assert!(checkpoints.is_due(seconds(10), 1, LIMIT));
        checkpoints.stood(seconds(12));
        checkpoints.begins_to_come(seconds(12), 1000);
        // The session has stood for 2 s, and the interval follows from that.
        assert_eq!(checkpoints.interval().as_secs(), 587);
        assert!(checkpoints.comes() && !checkpoints.is_due(seconds(9999), 99, LIMIT));
        checkpoints.made(seconds(22));
        assert_eq!(
            (checkpoints.rate(None), checkpoints.comes()),
            (Some(100), false)
        );
        assert!(!checkpoints.is_due(seconds(22 + 586), 1, LIMIT));
        assert!(checkpoints.is_due(seconds(22 + 588), 1, LIMIT));
        checkpoints.stood(seconds(700));
        checkpoints.begins_to_come(seconds(700), 1000);
        // The worker dies, and another one begins before this checkpoint.
        checkpoints.begin_again();
        assert!(checkpoints.is_due(seconds(701), 99, LIMIT));
    }

    #[test]
    fn a_slow_checkpoint_does_not_hide_a_fast_link() {
        let mut checkpoints = checkpoints(DAY, None);
        assert_eq!(checkpoints.rate(None), None);
        assert_eq!(checkpoints.rate(Some(7)), Some(7));
        checkpoints.begins_to_come(seconds(10), 1000);
        checkpoints.made(seconds(20));
        for (measured, rate) in [(None, 100), (Some(99), 100), (Some(5000), 5000)] {
            assert_eq!(checkpoints.rate(measured), Some(rate));
        }
    }

    #[test]
    fn the_link_decides_who_holds_a_checkpoint() {
        let tenth = seconds(100);
        for (hold, bytes, rate, client) in [
            (Hold::Node, 0, Some(u64::MAX), false),
            (Hold::Client, u64::MAX, None, true),
            (Hold::Auto, 0, None, false),
            (Hold::Auto, 1000, Some(100), true),
            (Hold::Auto, 1001, Some(100), false),
            (Hold::Auto, u64::MAX, Some(u64::MAX), true),
            (Hold::Auto, 1, Some(0), false),
        ] {
            let holds = client_holds(hold, bytes, rate, tenth);
            assert_eq!(holds, client, "{hold:?} {bytes} {rate:?}");
        }
        assert!(!client_holds(Hold::Auto, 1, Some(u64::MAX), Duration::ZERO));
    }

    #[test]
    fn the_interval_has_limits() {
        let mut checkpoints = checkpoints(DAY, None);
        assert_eq!(checkpoints.interval(), INTERVALS.0);
        assert!(checkpoints.is_due(seconds(10), 1, LIMIT));
        checkpoints.made(seconds(10_000));
        assert_eq!(checkpoints.interval(), INTERVALS.1);
    }

    #[test]
    fn a_lost_question_is_repeated_and_a_refused_one_is_not() {
        let mut checkpoints = checkpoints(DAY, None);
        assert!(checkpoints.is_due(seconds(10), 1, LIMIT));
        assert!(!checkpoints.is_due(seconds(69), 99, LIMIT));
        assert!(checkpoints.is_due(seconds(70), 1, LIMIT));
        checkpoints.begin_again();
        assert!(checkpoints.is_due(seconds(71), 1, LIMIT));
        checkpoints.refused();
        assert!(!checkpoints.is_due(seconds(9999), 99, LIMIT));
    }
}
