//! How busy each device was in each minute of the last hour; pure. Times count from an arbitrary start.
//!
//! Nothing is stored: the hour begins with the manager, and anew with each leader. Invariant: a minute in which the total
//! was unknown, or has decreased (after a daemon's restart), is unknown.

use std::collections::HashMap;
use std::time::Duration;

/// Length of a step.
const MINUTE: Duration = Duration::from_secs(60);
/// Number of steps.
const MINUTES: usize = 60;
/// The sign of an unknown minute.
const UNKNOWN: u8 = b'-';

/// The last hour of all devices. See the module.
#[derive(Debug, Default)]
pub(crate) struct Hour {
    /// When the last minute has ended.
    last: Option<Duration>,
    devices: HashMap<String, Device>,
}

#[derive(Debug, Default)]
struct Device {
    busy_ns: Option<u64>,
    /// A digit for each minute, the oldest first: the tenth of the minute that was busy.
    minutes: String,
}

impl Hour {
    /// When the next minute ends, at which totals are to be recorded.
    pub(crate) fn next(&self) -> Duration {
        self.last.map_or(Duration::ZERO, |last| last + MINUTE)
    }

    /// Records the totals of all devices, if a minute has ended. Devices that are missing are forgotten.
    pub(crate) fn record<'a>(
        &mut self,
        at: Duration,
        totals: impl Iterator<Item = (&'a str, Option<u64>)>,
    ) {
        if at < self.next() {
            return;
        }
        let span = self.last.map(|last| at.saturating_sub(last));
        // Minutes in which the manager has not asked, because it was busy or stopped.
        let missed = span.map_or(0, |span| {
            (span.as_secs() / MINUTE.as_secs()).saturating_sub(1) as usize
        });
        let mut before = std::mem::take(&mut self.devices);
        for (id, busy_ns) in totals {
            let (id, mut device) = before
                .remove_entry(id)
                .unwrap_or_else(|| (id.to_owned(), Device::default()));
            let digit = span.and_then(|span| tenths(device.busy_ns, busy_ns, span));
            if span.is_some() {
                device.push(UNKNOWN, missed.min(MINUTES));
                device.push(digit.unwrap_or(UNKNOWN), 1);
            }
            device.busy_ns = busy_ns;
            self.devices.insert(id, device);
        }
        self.last = Some(at);
    }

    /// The minutes of a device, the oldest first: a digit for the tenths that were busy (9 for all), or `-`.
    pub(crate) fn of(&self, id: &str) -> Option<&str> {
        let device = self.devices.get(id)?;
        (!device.minutes.is_empty()).then_some(&*device.minutes)
    }
}

impl Device {
    fn push(&mut self, sign: u8, times: usize) {
        for _ in 0..times {
            self.minutes.push(char::from(sign));
        }
        let more = self.minutes.len().saturating_sub(MINUTES);
        self.minutes.drain(..more);
    }
}

/// The digit of a part of a span.
fn tenths(before: Option<u64>, now: Option<u64>, span: Duration) -> Option<u8> {
    let busy = now?.checked_sub(before?)?;
    let part = Duration::from_nanos(busy).as_secs_f64() / span.as_secs_f64();
    // Rounded up, so that a device that did anything is not shown as idle.
    let digit = (part * 9.0).ceil().clamp(0.0, 9.0) as u8;
    Some(b'0' + digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(hour: &mut Hour, second: u64, all: &[(&str, Option<u64>)]) {
        let totals = all
            .iter()
            .map(|(id, busy)| (*id, busy.map(|seconds| seconds * 1_000_000_000)));
        hour.record(Duration::from_secs(second), totals);
    }

    #[test]
    fn each_minute_has_a_digit_and_unknown_ones_a_dash() {
        let mut hour = Hour::default();
        record(&mut hour, 0, &[("a", Some(100)), ("b", None)]);
        assert_eq!((hour.of("a"), hour.next()), (None, MINUTE));
        record(&mut hour, 59, &[("a", Some(500))]);
        record(
            &mut hour,
            60,
            &[("a", Some(130)), ("b", Some(7)), ("c", Some(1))],
        );
        assert_eq!(
            ["a", "b", "c"].map(|id| hour.of(id)),
            [Some("5"), Some("-"), Some("-")]
        );
        record(&mut hour, 120, &[("a", Some(190)), ("b", Some(7))]);
        // The daemon has restarted, and its totals with it.
        record(&mut hour, 180, &[("a", Some(1)), ("b", Some(8))]);
        assert_eq!(
            ["a", "b", "c"].map(|id| hour.of(id)),
            [Some("59-"), Some("-01"), None]
        );
        // Nobody has asked for three minutes. In the time since, 2 s were busy.
        record(&mut hour, 360, &[("a", Some(3)), ("b", Some(8))]);
        assert_eq!(hour.of("a"), Some("59---1"));
    }

    #[test]
    fn an_hour_is_kept_and_no_more() {
        let mut hour = Hour::default();
        for minute in 0..200 {
            record(&mut hour, 60 * minute, &[("a", Some(60 * minute))]);
        }
        assert_eq!(hour.of("a"), Some(&*"9".repeat(MINUTES)));
        record(&mut hour, 1_000_000, &[("a", Some(1_000_000))]);
        assert_eq!(hour.of("a").map(str::len), Some(MINUTES));
    }
}
