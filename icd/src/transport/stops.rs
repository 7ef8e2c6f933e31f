//! Notices that the process was stopped (Ctrl-Z, a debugger) or its machine suspended.
//!
//! Pure: the caller says what time it is, on a clock that goes on while the machine is suspended.
#![forbid(unsafe_code)]

use std::time::Duration;

/// A step that takes this much longer than planned means that the process was stopped.
const STOPPED: Duration = Duration::from_secs(3);
/// What happens within this time after the process went on may be a consequence.
const RECENT: Duration = Duration::from_secs(30);

/// The last time that the process was stopped.
#[derive(Debug)]
pub(super) struct Stops {
    seen: Duration,
    // When the process went on, and for how long it was stopped.
    last: Option<(Duration, Duration)>,
}

impl Stops {
    /// Begins to look at this time.
    pub(super) fn new(now: Duration) -> Stops {
        Stops {
            seen: now,
            last: None,
        }
    }

    /// Looks again, after a step that was to take `planned` at most.
    pub(super) fn look(&mut self, now: Duration, planned: Duration) {
        let taken = now.saturating_sub(self.seen);
        self.seen = now;
        if taken >= planned + STOPPED {
            self.last = Some((now, taken));
        }
    }

    /// For how long the process was stopped, if it was recently.
    pub(super) fn recent(&self, now: Duration) -> Option<Duration> {
        let (went_on, stopped) = self.last?;
        (now.saturating_sub(went_on) <= RECENT).then_some(stopped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_long_and_recent_stop_counts() {
        let seconds = Duration::from_secs;
        let mut stops = Stops::new(seconds(100));
        stops.look(seconds(102), seconds(1));
        assert_eq!(stops.recent(seconds(102)), None);
        stops.look(seconds(192), seconds(1));
        stops.look(seconds(193), seconds(1));
        assert_eq!(stops.recent(seconds(200)), Some(seconds(90)));
        assert_eq!(stops.recent(seconds(223)), None);
    }
}
