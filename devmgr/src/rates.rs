//! Computes rates from the totals of nodes and leases; pure.
//!
//! Heartbeats and snapshots are not synchronised, so a rate covers a few seconds. Invariant: totals that
//! have decreased (after a daemon's restart) give no rate, and no rate is negative.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use serde::Serialize;

/// The time that a rate covers.
const WINDOW: Duration = Duration::from_secs(5);

/// The rate of a node, lease or device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Rate {
    /// Bytes transferred over bulk connections, both ways.
    pub bytes_per_second: f64,
    /// Commands that have run.
    pub commands_per_second: f64,
    /// Part of the time for which commands were under way; the sum over sessions or devices may exceed 1.
    pub busy: f64,
}

/// The totals of a node, lease or device.
#[derive(Clone, Copy, Debug)]
pub struct Totals {
    /// Bytes transferred over bulk connections, both ways.
    pub bytes: u64,
    /// Commands that have run.
    pub commands: u64,
    /// Nanoseconds for which commands were under way.
    pub busy_ns: u64,
}

/// Samples of totals by id, from which rates are computed.
#[derive(Debug, Default)]
pub struct Rates(HashMap<Vec<u8>, VecDeque<(Duration, Totals)>>);

impl Rates {
    /// Adds the totals at a time, which must be later than at the last call. Ids that are missing are
    /// forgotten.
    pub fn take(&mut self, at: Duration, all: impl Iterator<Item = (Vec<u8>, Totals)>) {
        let mut before = std::mem::take(&mut self.0);
        for (who, totals) in all {
            let mut samples = before.remove(&who).unwrap_or_default();
            let fell = |(_, last): &(Duration, Totals)| {
                last.bytes > totals.bytes
                    || last.commands > totals.commands
                    || last.busy_ns > totals.busy_ns
            };
            if samples.back().is_some_and(fell) {
                samples.clear();
            }
            samples.push_back((at, totals));
            // One sample may be older, so that the window is covered.
            let begin = at.saturating_sub(WINDOW);
            while samples.get(1).is_some_and(|second| second.0 <= begin) {
                samples.pop_front();
            }
            self.0.insert(who, samples);
        }
    }

    /// The rate of an id. `None`: unknown.
    #[must_use]
    pub fn of(&self, who: &[u8]) -> Option<Rate> {
        let samples = self.0.get(who)?;
        let ((begin, first), (end, last)) = (samples.front()?, samples.back()?);
        let seconds = end.saturating_sub(*begin).as_secs_f64();
        (seconds > 0.0).then(|| Rate {
            bytes_per_second: (last.bytes - first.bytes) as f64 / seconds,
            commands_per_second: (last.commands - first.commands) as f64 / seconds,
            busy: Duration::from_nanos(last.busy_ns - first.busy_ns).as_secs_f64() / seconds,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(rates: &mut Rates, second: u64, all: &[(&[u8], u64, u64)]) {
        let all = all.iter().map(|&(who, bytes, commands)| {
            let busy_ns = commands * 100_000_000;
            (
                who.to_vec(),
                Totals {
                    bytes,
                    commands,
                    busy_ns,
                },
            )
        });
        rates.take(Duration::from_secs(second), all);
    }

    fn bytes(rates: &Rates, who: &[u8]) -> Option<f64> {
        rates.of(who).map(|rate| rate.bytes_per_second)
    }

    #[test]
    fn a_rate_is_what_was_moved_in_the_last_seconds() {
        let mut rates = Rates::default();
        take(&mut rates, 0, &[(b"a", 1000, 0)]);
        assert_eq!(rates.of(b"a"), None);
        take(&mut rates, 2, &[(b"a", 3000, 10)]);
        let rate = rates.of(b"a").unwrap();
        assert_eq!(
            (rate.bytes_per_second, rate.commands_per_second, rate.busy),
            (1000.0, 5.0, 0.5)
        );
        // No more bytes are transferred: the rate falls, and is zero when the window has passed.
        take(&mut rates, 4, &[(b"a", 3000, 10)]);
        assert_eq!(bytes(&rates, b"a"), Some(500.0));
        for second in 5..=8 {
            take(&mut rates, second, &[(b"a", 3000, 10)]);
        }
        assert_eq!(rates.of(b"a"), Some(Rate::default()));
    }

    #[test]
    fn who_begins_anew_or_goes_has_no_rate() {
        let mut rates = Rates::default();
        take(&mut rates, 0, &[(b"a", 5000, 9), (b"b", 0, 0)]);
        take(&mut rates, 1, &[(b"a", 10, 9), (b"b", 50, 0)]);
        assert_eq!(
            (bytes(&rates, b"a"), bytes(&rates, b"b")),
            (None, Some(50.0))
        );
        take(&mut rates, 2, &[(b"a", 30, 9)]);
        assert_eq!(
            (bytes(&rates, b"a"), bytes(&rates, b"b")),
            (Some(20.0), None)
        );
        take(&mut rates, 3, &[]);
        take(&mut rates, 4, &[(b"a", 90, 9)]);
        assert_eq!(rates.of(b"a"), None);
    }
}
